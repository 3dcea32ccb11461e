//! Everything but routes that the node must know of its kernel: links, forwarding settings, rules, SRv6 settings.

use crate::bypass::netfilter::Reach;
use crate::bypass::state::Bypass;
use crate::kernel::link::Link;
use crate::kernel::netconf::{self, Netconf};
use crate::kernel::rule::Rule;
use crate::kernel::socket::{self, Netlink};
use crate::kernel::xfrm::Policies;
use crate::kernel::{family, inet6, seg6};
use crate::rib::tenant::Tenants;
use crate::xdp::action::FlowLabel;
use crate::xdp::local_addrs::FlowKeys;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;

/// Links and settings.
#[derive(Debug, Default)]
pub struct KernelState {
    /// Links by index.
    pub links: BTreeMap<u32, Link>,
    /// Forwarding settings by family and device (-1 = all).
    pub netconf: HashMap<(u8, i32), Netconf>,
    /// Policy rules of both families; those of one priority in the kernel's order.
    pub rules: Vec<Rule>,
    /// Settings that the kernel does not announce.
    pub sysctl: Sysctl,
    /// The kernel's processing of packets besides routing.
    pub bypass: Bypass,
    /// The configuration's settings. The kernel's answers never touch it.
    pub settings: Settings,
    /// Devices given to the daemon that packets cannot leave by at present.
    pub disabled: BTreeSet<u32>,
}

/// The part of the configuration that decides what the kernel's state means for packets.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Packets may go past netfilter's rules (`bypass_netfilter`).
    pub bypass_netfilter: bool,
    /// SRv6 follows the RFCs where Linux differs (`[srv6] rfc`).
    pub rfc: bool,
    /// Tenants that the kernel has no devices for (`[[vrf]]`, `[[vlan]]`).
    pub tenants: Tenants,
}

/// Settings that trielined reads from time to time, because the kernel does not notify their changes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// `ip sr tunsrc`.
    pub tunnel_source: Option<Ipv6Addr>,
    /// `net.ipv6.seg6_flowlabel`: where outer flow labels come from.
    pub flow_label: FlowLabel,
    /// `net.ipv4.fib_multipath_hash_policy` and `…_fields`, and those of IPv6.
    pub flows: [FlowKeys; 2],
    /// Policies that the kernel asks before it forwards.
    pub policies: Policies,
    /// `net.ipv4.ip_forward_use_pmtu`: IPv4 packets are kept to path MTUs that the kernel learnt.
    pub path_mtus: bool,
    /// Devices with `net.ipv4.conf.DEV.send_redirects`; `None`: every one, by the setting of all.
    pub redirects: Option<BTreeSet<String>>,
    /// Those of IPv6 by device; a device that is not there has no IPv6.
    pub devices: BTreeMap<String, inet6::Settings>,
}

impl Sysctl {
    /// Asks for the settings, those of `devices` alone. O(devices of the namespace).
    pub fn read<'a>(
        requests: &mut Netlink,
        devices: impl Iterator<Item = &'a str>,
    ) -> Result<Self, socket::Error> {
        // A kernel without SRv6 has no source to tell.
        let tunnel_source = seg6::tunnel_source().unwrap_or_default();
        let on = |name: &str| number(&format!("ipv4/{name}")).is_some_and(|value| value != 0);
        let devices: BTreeSet<&str> = devices.collect();
        let reported = |device: &&str| on(&format!("conf/{device}/send_redirects"));
        let some =
            || devices.iter().filter(|device| reported(device)).map(|device| device.to_string()).collect();
        let mut known = inet6::read(requests)?;
        Ok(Self {
            tunnel_source,
            flow_label: match number("ipv6/seg6_flowlabel").unwrap_or(0) {
                0 => FlowLabel::Inner,
                1.. => FlowLabel::Hash,
                _ => FlowLabel::Zero,
            },
            flows: ["ipv4", "ipv6"].map(flow_keys),
            policies: Policies::read(),
            path_mtus: on("ip_forward_use_pmtu"),
            redirects: if on("conf/all/send_redirects") { None } else { Some(some()) },
            devices: devices.iter().filter_map(|name| known.remove_entry(*name)).collect(),
        })
    }
}

/// The fields by which the kernel distinguishes the flows of a family, where a route has several next hops.
fn flow_keys(family: &str) -> FlowKeys {
    let setting = |name: &str| number(&format!("{family}/fib_multipath_hash_{name}"));
    let FlowKeys { policy, fields } = FlowKeys::default();
    FlowKeys {
        policy: setting("policy").and_then(|value| value.try_into().ok()).unwrap_or(policy),
        fields: setting("fields").and_then(|value| value.try_into().ok()).unwrap_or(fields),
    }
}

/// A setting below `net`; the kernel's default applies where it has no such setting.
fn number(name: &str) -> Option<i64> {
    std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?.trim().parse().ok()
}

/// The MTU that every IPv6 link has at least (RFC 8200 §5).
const IPV6_MIN_MTU: u32 = 1280;

impl KernelState {
    /// The name of a link, or its index when it has none.
    pub fn name(&self, ifindex: u32) -> String {
        self.links.get(&ifindex).map_or_else(|| ifindex.to_string(), |link| link.name.clone())
    }

    /// The settings of a device; all unknown if the kernel reported none.
    pub fn netconf(&self, family: u8, ifindex: i32) -> Netconf {
        self.netconf.get(&(family, ifindex)).copied().unwrap_or_default()
    }

    /// Takes over links, forwarding settings and rules as the kernel reported them. All else stays: a dump does not know it.
    pub fn adopt(&mut self, reported: Self) {
        // Without `..`: a new field has to be kept or taken over here.
        let Self { links, netconf, rules, sysctl: _, bypass: _, settings: _, disabled: _ } = reported;
        (self.links, self.netconf, self.rules) = (links, netconf, rules);
    }

    /// Takes over a settings message.
    pub fn update_netconf(&mut self, reported: &Netconf) {
        let known = self.netconf.entry((reported.family, reported.ifindex)).or_insert(Netconf {
            family: reported.family,
            ifindex: reported.ifindex,
            ..Netconf::default()
        });
        known.update(reported);
    }

    /// Whether the kernel's route lookup would send through a link.
    pub fn alive(&self, family: u8, ifindex: u32) -> bool {
        let ignores_down = || self.netconf(family, ifindex as i32).ignore_linkdown == Some(true);
        self.links.get(&ifindex).is_some_and(|link| link.is_up() && (link.has_carrier() || !ignores_down()))
    }

    /// The rules of a family.
    pub fn rules(&self, family: u8) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.family == family)
    }

    /// Follows a rule that was added (`here`) or is gone; whether anything changed.
    pub fn follow_rule(&mut self, reported: Rule, here: bool) -> bool {
        match (self.rules.iter().position(|known| *known == reported), here) {
            (None, true) => self.rules.push(reported),
            (Some(at), false) => drop(self.rules.remove(at)),
            _ => return false,
        }
        true
    }

    /// The VRF that the configuration puts a link into: its name and table.
    pub fn declared_vrf_of<'a>(&'a self, link: &'a Link) -> Option<(&'a str, u32)> {
        let table = || self.settings.tenants.vrf(&link.name).map(|table| (&*link.name, table));
        self.settings.tenants.table_of(&link.name).or_else(table)
    }

    /// The VRF device that a link belongs to: its name and table.
    pub fn vrf_of(&self, link: &Link) -> Option<(&str, u32)> {
        let vrf = self.links.get(&link.master?)?;
        Some((&vrf.name, vrf.vrf_table?))
    }

    /// The table of a VRF by its name.
    pub fn table_of_vrf(&self, name: &str) -> Option<u32> {
        let of_device = || self.links.values().find(|link| link.name == name)?.vrf_table;
        self.settings.tenants.vrf(name).or_else(of_device)
    }

    /// Why the family's packets are the kernel's whatever the routes say, if they are.
    pub fn obstacle(&self, family: u8) -> Option<String> {
        if self.sysctl.policies.concern(family) {
            return Some("there are IPsec policies (ip xfrm policy)".into());
        }
        if family == family::INET && self.sysctl.path_mtus {
            return Some("net.ipv4.ip_forward_use_pmtu is on".into());
        }
        if self.settings.bypass_netfilter { None } else { self.bypass.obstacle(family) }
    }

    /// The packets of a family that are the kernel's because netfilter's rules can do something to them, where those are not all.
    pub fn parts(&self, family: u8) -> BTreeSet<Reach> {
        if self.settings.bypass_netfilter { BTreeSet::new() } else { self.bypass.parts(family) }
    }

    /// The largest packet of a family that the kernel forwards to a link.
    pub fn mtu(&self, family: u8, ifindex: u32) -> u32 {
        let Some(link) = self.links.get(&ifindex) else { return 0 };
        if family == family::INET {
            return link.mtu;
        }
        let known = self.sysctl.devices.get(&link.name);
        link.mtu.min(known.map_or(IPV6_MIN_MTU, |device| device.mtu))
    }

    /// Whether the kernel forwards packets of a family that come in through a device.
    pub fn forwards(&self, family: u8, ifindex: u32) -> bool {
        let device = self.netconf(family, ifindex as i32).forwarding == Some(true);
        // IPv6 forwards by the setting of all devices; a device that is set apart is left to the kernel.
        let all = family == family::INET || self.netconf(family, netconf::ALL).forwarding == Some(true);
        let enabled = family == family::INET
            || !self.sysctl.devices.get(&self.name(ifindex)).is_some_and(|device| device.disabled);
        device && all && enabled
    }

    /// `rp_filter` in force on a device: the stricter of `all` and its own, as the kernel takes it (the larger number).
    pub fn rp_filter(&self, ifindex: u32) -> i32 {
        let of = |index| self.netconf(family::INET, index).rp_filter.unwrap_or(0);
        of(netconf::ALL).max(of(ifindex as i32))
    }

    /// Whether the kernel tells senders of IPv4 packets on a link of shorter ways: `send_redirects` of all devices or its own.
    pub fn sends_redirects(&self, link: &Link) -> bool {
        self.sysctl.redirects.as_ref().is_none_or(|devices| devices.contains(&link.name))
    }

    /// Whether the kernel may answer neighbour solicitations for others' addresses on a device (`proxy_ndp`).
    pub fn answers_for_others(&self, ifindex: u32) -> bool {
        [netconf::ALL, ifindex as i32].iter().any(|of| self.netconf(family::INET6, *of).proxy == Some(true))
    }

    /// The 802.1Q devices on top of each link, with their VLAN ids. O(links).
    pub fn vlans(&self) -> HashMap<u32, Vec<(u16, &Link)>> {
        let mut vlans: HashMap<u32, Vec<(u16, &Link)>> = HashMap::new();
        for link in self.links.values() {
            if let (Some(parent), Some(id)) = (link.parent, link.vlan) {
                vlans.entry(parent).or_default().push((id, link));
            }
        }
        vlans
    }
}
