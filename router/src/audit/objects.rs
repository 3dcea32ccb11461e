//! All that is not a route: links, forwarding settings, rules, neighbours and next hop objects. Those of the mirror are compared with a
//! fresh dump of the kernel's.

use super::answer::hop_text;
use super::{Difference, Kind, Part, family_name};
use crate::fib::expected::Routed;
use crate::kernel::link::{Link, mac_text};
use crate::kernel::netconf::{self, Netconf};
use crate::kernel::nexthop::Object;
use crate::kernel::socket::{Error, Netlink};
use crate::kernel::{TABLE_MAIN, family};
use crate::rib::mirror::Mirror;
use std::collections::BTreeMap;

/// Objects by kind, family and name, as the kernel and as the mirror has them.
#[derive(Debug, Default)]
struct Objects(BTreeMap<(Kind, u8, String), [Option<String>; 2]>);

impl Objects {
    fn add(&mut self, side: usize, kind: Kind, netlink: u8, name: String, text: String) {
        self.0.entry((kind, netlink, name)).or_default()[side] = Some(text);
    }

    fn add_all(&mut self, side: usize, mirror: &Mirror) {
        for link in mirror.kernel.links.values() {
            self.add(side, Kind::Link, family::UNSPEC, format!("link {}", link.ifindex), link_text(link));
        }
        for ((netlink, ifindex), settings) in &mirror.kernel.netconf {
            let name = match *ifindex {
                netconf::ALL => "settings of all devices".into(),
                1.. => format!("settings of link {ifindex}"),
                // Those that new devices get.
                _ => continue,
            };
            self.add(side, Kind::Settings, *netlink, name, settings_text(settings));
        }
        for netlink in [family::INET, family::INET6] {
            // The kernel can have several that are equal.
            let mut counts: BTreeMap<String, u32> = BTreeMap::new();
            for rule in mirror.kernel.rules(netlink) {
                *counts.entry(format!("rule {rule}")).or_default() += 1;
            }
            for (rule, count) in counts {
                let text = if count == 1 { "there".into() } else { format!("{count} times") };
                self.add(side, Kind::Rule, netlink, rule, text);
            }
        }
        for (id, object) in mirror.nhgs.objects().iter() {
            let name = format!("next hop object {id}");
            self.add(side, Kind::Nexthop, family::UNSPEC, name, object_text(object, mirror));
        }
        self.add_neighbours::<u32>(side, mirror);
        self.add_neighbours::<u128>(side, mirror);
    }

    fn add_neighbours<A: Routed>(&mut self, side: usize, mirror: &Mirror) {
        for ((address, link), neighbour) in &A::family(mirror).neighbours {
            let Some(mac) = neighbour.mac else { continue };
            let name = format!("neighbour {} on link {link}", address.ip());
            self.add(side, Kind::Neighbour, A::NETLINK, name, mac_text(&mac));
        }
    }
}

fn link_text(link: &Link) -> String {
    let mac = link.mac.map(|mac| mac_text(&mac)).unwrap_or_default();
    // The kernel does not report new ones of a device that is down.
    let names = link.names().take(if link.is_up() { usize::MAX } else { 1 }).collect::<Vec<_>>().join(" ");
    format!(
        "{names} mtu {} mac {mac} up {} carrier {} vlan {:?} parent {:?} master {:?} vrf {:?}",
        link.mtu,
        link.is_up(),
        link.has_carrier(),
        link.vlan,
        link.parent,
        link.master,
        link.vrf_table
    )
}

/// The settings that the kernel reports.
fn settings_text(settings: &Netconf) -> String {
    let on = |setting: Option<bool>| setting.map(i32::from);
    let all = [
        ("forwarding", on(settings.forwarding)),
        ("rp_filter", settings.rp_filter),
        ("proxy", on(settings.proxy)),
        ("ignore_routes_with_linkdown", on(settings.ignore_linkdown)),
    ];
    let known = all.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?)));
    known.collect::<Vec<_>>().join(" ")
}

fn object_text(object: &Object, mirror: &Mirror) -> String {
    match object {
        Object::Nexthop(hop) => {
            let encap = hop.encap.as_ref().map(|encap| format!(" ({encap:?})")).unwrap_or_default();
            format!("{}{encap}", hop_text(hop, mirror))
        }
        Object::Group(members) => {
            let members = members.iter().map(|(id, weight)| format!("{id} weight {weight}"));
            format!("group of {}", members.collect::<Vec<_>>().join(", "))
        }
        Object::Other => "left to the kernel".into(),
    }
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
    let differences = differing.map(|((kind, netlink, name), [kernel, ours])| Difference {
        part: Part::Mirror,
        kind,
        family: if netlink == family::UNSPEC { "any".into() } else { family_name(netlink).into() },
        table: TABLE_MAIN,
        prefix: name,
        address: None,
        kernel: absent(kernel),
        mirror: absent(ours),
        image: None,
    });
    Ok((differences.collect(), count))
}
