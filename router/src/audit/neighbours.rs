//! Links, rules and neighbours: those of the mirror beside a fresh dump of the kernel's.

use super::{Difference, Part, family_name};
use crate::fib::expected::Routed;
use crate::kernel::link::Link;
use crate::kernel::socket::{Error, Netlink};
use crate::kernel::{TABLE_MAIN, family};
use crate::rib::mirror::Mirror;
use std::collections::BTreeMap;

/// Objects by name, as the kernel and as the mirror has them.
#[derive(Debug, Default)]
struct Objects(BTreeMap<(u8, String), [Option<String>; 2]>);

impl Objects {
    fn add(&mut self, side: usize, netlink: u8, name: String, text: String) {
        self.0.entry((netlink, name)).or_default()[side] = Some(text);
    }

    fn add_all(&mut self, side: usize, mirror: &Mirror) {
        for link in mirror.kernel.links.values() {
            self.add(side, family::UNSPEC, format!("link {}", link.ifindex), link_text(link));
        }
        for netlink in [family::INET, family::INET6] {
            for rule in mirror.kernel.rules(netlink) {
                self.add(side, netlink, format!("rule {rule}"), "there".into());
            }
        }
        self.add_neighbours::<u32>(side, mirror);
        self.add_neighbours::<u128>(side, mirror);
    }

    fn add_neighbours<A: Routed>(&mut self, side: usize, mirror: &Mirror) {
        for ((address, link), neighbour) in &A::family(mirror).neighbours {
            let Some(mac) = neighbour.mac else { continue };
            let name = format!("neighbour {} on link {link}", address.ip());
            self.add(side, A::NETLINK, name, mac.map(|byte| format!("{byte:02x}")).join(":"));
        }
    }
}

fn link_text(link: &Link) -> String {
    let mac = link.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":")).unwrap_or_default();
    format!(
        "{} mtu {} mac {mac} up {} carrier {} vlan {:?} parent {:?} master {:?} vrf {:?}",
        link.name,
        link.mtu,
        link.is_up(),
        link.has_carrier(),
        link.vlan,
        link.parent,
        link.master,
        link.vrf_table
    )
}

/// Differences at this moment, and how many objects there are. Changes that are still queued may be among them.
pub fn compare(mirror: &Mirror, socket: &mut Netlink) -> Result<(Vec<Difference>, usize), Error> {
    let mut fresh = Mirror::default();
    fresh.kernel.settings = mirror.kernel.settings.clone();
    fresh.dump_kernel_state(socket)?;
    let kernel = &mut fresh.kernel;
    kernel.settings.tenants.apply(&mut kernel.links);
    let mut objects = Objects::default();
    objects.add_all(0, &fresh);
    objects.add_all(1, mirror);
    let count = objects.0.len();
    let differing = objects.0.into_iter().filter(|(_, [kernel, ours])| kernel != ours);
    let absent = |text: Option<String>| Some(text.unwrap_or_else(|| "none".into()));
    let differences = differing.map(|((netlink, name), [kernel, ours])| Difference {
        part: Part::Mirror,
        family: if netlink == family::UNSPEC { "link".into() } else { family_name(netlink).into() },
        table: TABLE_MAIN,
        prefix: name,
        address: None,
        kernel: absent(kernel),
        mirror: absent(ours),
        image: None,
    });
    Ok((differences.collect(), count))
}
