//! Everything but routes that the node must know of its kernel: links, forwarding settings, rules, SRv6 settings.

use crate::bypass::netfilter::Reach;
use crate::bypass::state::Bypass;
use crate::kernel::addr::Addr;
use crate::kernel::link::Link;
use crate::kernel::netconf::{self, Netconf};
use crate::kernel::route::{Nexthop, NexthopGroup};
use crate::kernel::rule::{Attached, Rule};
use crate::kernel::socket::{self, Netlink};
use crate::kernel::xfrm::Policies;
use crate::kernel::{family, inet6, seg6};
use crate::rib::table::Followed;
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
    /// IPv4 addresses by link.
    pub addresses: BTreeMap<u32, BTreeSet<Addr>>,
    /// Links, by family, whose dead next hops the kernel has made alive again since the routes were dumped.
    pub revived: BTreeSet<(u8, u32)>,
    /// Policy rules of both families; those of one priority in the kernel's order. The kernel can have several that are equal.
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
    /// Takes over settings that the kernel does not announce. Whether they differ, and whether IPv6 routes may differ by them.
    pub fn put_sysctl(&mut self, sysctl: Sysctl) -> (bool, bool) {
        let mut routes = false;
        for link in self.links.values() {
            let Some(settings) = sysctl.devices.get(&link.name) else { continue };
            let before = self.sysctl.devices.get(&link.name).unwrap_or(settings);
            // With a smaller MTU the kernel shortens those of routes, and without IPv6 the device's next hops are dead.
            routes |= (before.mtu, before.disabled) != (settings.mtu, settings.disabled);
            // Before Linux 6.13 the kernel does not announce that of one device.
            let known = self.netconf.get_mut(&(family::INET6, link.ifindex as i32));
            if let Some(known) = known.filter(|known| known.ignore_linkdown != Some(settings.ignore_linkdown))
            {
                known.ignore_linkdown = Some(settings.ignore_linkdown);
                routes = true;
            }
        }
        (std::mem::replace(&mut self.sysctl, sysctl) != self.sysctl, routes)
    }

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
        let Self {
            links,
            addresses,
            netconf,
            rules,
            sysctl: _,
            bypass: _,
            settings: _,
            disabled: _,
            revived: _,
        } = reported;
        (self.links, self.addresses, self.netconf, self.rules) = (links, addresses, netconf, rules);
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

    /// Whether the kernel's route lookup would send by a next hop of this group.
    pub fn alive(&self, family: u8, nhg: &NexthopGroup, hop: &Nexthop) -> bool {
        let Some(link) = self.links.get(&hop.ifindex) else { return false };
        if nhg.outlives_its_link() {
            return true;
        }
        // The kernel marks next hops without a carrier as dead, too, so there the mark says nothing more.
        let usable = match link.has_carrier() {
            true => !hop.dead || self.revived.contains(&(family, hop.ifindex)),
            false => !self.ignores_linkdown(family, hop.ifindex),
        };
        link.is_up() && usable
    }

    /// `ignore_routes_with_linkdown` in force on a device: in IPv4 also that of all devices, which IPv6 copies to each.
    pub fn ignores_linkdown(&self, family: u8, ifindex: u32) -> bool {
        let of = |index| self.netconf(family, index).ignore_linkdown == Some(true);
        of(ifindex as i32) || family == family::INET && of(netconf::ALL)
    }

    /// Follows an IPv4 address that was added (`here`) or is gone. Whether the device has its first, or has lost its last.
    pub fn follow_address(&mut self, address: Addr, here: bool) -> bool {
        let known = self.addresses.entry(address.ifindex).or_default();
        let before = known.is_empty();
        if here {
            known.insert(address)
        } else {
            known.remove(&address)
        };
        before != known.is_empty()
    }

    /// Takes over a link. Rules follow it as the kernel's do: they lose a device that gets another name, and find one by its own new name.
    /// Whether rules changed.
    pub fn put_link(&mut self, link: Link) -> bool {
        let before = self.links.get(&link.ifindex);
        let is_renamed = before.is_some_and(|before| before.name != link.name);
        let (own, name) = (Attached::To(link.ifindex), Some(&link.name));
        let mut changed = false;
        for rule in &mut self.rules {
            let known = rule.attached;
            if is_renamed && rule.attached == own {
                rule.attached = Attached::Nowhere;
            }
            let finds = rule.attached == Attached::Nowhere && rule.iif.as_ref() == name;
            let meant = || rule.iif.as_ref().is_some_and(|name| link.is_named(name));
            if finds && (is_renamed || before.is_none()) || rule.attached == Attached::Unknown && meant() {
                rule.attached = own;
            }
            changed |= rule.attached != known;
        }
        self.links.insert(link.ifindex, link);
        changed
    }

    /// Forgets a link, which rules lose.
    pub fn remove_link(&mut self, ifindex: u32) {
        self.links.remove(&ifindex);
        self.addresses.remove(&ifindex);
        let own = Attached::To(ifindex);
        self.rules
            .iter_mut()
            .filter(|rule| rule.attached == own)
            .for_each(|rule| rule.attached = Attached::Nowhere);
    }

    /// The rules of a family.
    pub fn rules(&self, family: u8) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.family == family)
    }

    /// Follows a rule that was added (`here`) or is gone. A dump that had it already, or another one that is equal? Then the rules have to be
    /// dumped again.
    pub fn follow_rule(&mut self, mut reported: Rule, here: bool) -> Followed {
        let mut equal =
            self.rules.iter().enumerate().filter(|(_, rule)| rule.is_equal(&reported)).map(|(at, _)| at);
        let (first, others) = (equal.next(), equal.next().is_some());
        match (first, here) {
            (_, true) => {
                self.attach(&mut reported);
                self.rules.push(reported);
            }
            (Some(at), false) => drop(self.rules.remove(at)),
            (None, false) => {}
        }
        if first.is_some() == here || others { Followed::Ambiguously } else { Followed::Exactly }
    }

    /// Finds the device of a rule that the kernel has attached.
    fn attach(&self, rule: &mut Rule) {
        if rule.is_by_unknown_device()
            && let Some(name) = &rule.iif
            && let Some(link) = self.links.values().find(|link| link.is_named(name))
        {
            rule.attached = Attached::To(link.ifindex);
        }
    }

    /// The VRF that the configuration puts a link into: its name and table.
    pub fn declared_vrf_of<'a>(&'a self, link: &'a Link) -> Option<(&'a str, u32)> {
        let tenants = &self.settings.tenants;
        let vrf = || link.names().find_map(|name| tenants.vrf(name)).map(|table| (&*link.name, table));
        link.names().find_map(|name| tenants.table_of(name)).or_else(vrf)
    }

    /// The VRF device that a link belongs to: its name and table.
    pub fn vrf_of(&self, link: &Link) -> Option<(&str, u32)> {
        let vrf = self.links.get(&link.master?)?;
        Some((&vrf.name, vrf.vrf_table?))
    }

    /// The table of a VRF by its name.
    pub fn table_of_vrf(&self, name: &str) -> Option<u32> {
        let of_device = || self.links.values().find(|link| link.is_named(name))?.vrf_table;
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
        if family == family::INET {
            return device;
        }
        // IPv6 forwards by the setting of all devices, or where it is forced; a device that is set apart is left to the kernel.
        let all = self.netconf(family, netconf::ALL).forwarding == Some(true);
        let settings = self.sysctl.devices.get(&self.name(ifindex)).copied().unwrap_or_default();
        (device && all || settings.force_forwarding) && !settings.disabled
    }

    /// `rp_filter` in force on a device, as the kernel takes it: the largest of `all`, its own and its VRF's. A loose filter (2) is strict (1) where
    /// the device that the kernel receives the packet on has no IPv4 address.
    pub fn rp_filter(&self, link: &Link) -> i32 {
        let of = |index| self.netconf(family::INET, index).rp_filter.unwrap_or(0);
        let vrf = link.master.filter(|_| self.vrf_of(link).is_some());
        let set = of(netconf::ALL).max(of(link.ifindex as i32)).max(vrf.map_or(0, |vrf| of(vrf as i32)));
        let is_numbered =
            self.addresses.get(&vrf.unwrap_or(link.ifindex)).is_some_and(|known| !known.is_empty());
        if set > 1 && !is_numbered { 1 } else { set }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::attribute::{HEADER, Request};
    use crate::kernel::rule::FibRuleAction;
    use crate::kernel::{link, netconf::ALL, route};

    fn device(ifindex: u32, name: &str) -> Link {
        let named = Request::new(0, 0, &[0; 16]).attribute(3, format!("{name}\0").as_bytes());
        Link { ifindex, flags: 0x1_0001, ..link::decode(&named.finish(0)[HEADER..]).unwrap() }
    }

    fn by(name: &str, attached: Attached) -> Rule {
        Rule { iif: Some(name.into()), attached, ..Rule::lookup(family::INET, 5, FibRuleAction::Table(5)) }
    }

    /// As `attach_rules` and `detach_rules` of net/core/fib_rules.c.
    #[test]
    fn rules_keep_their_device() {
        let mut kernel = KernelState::default();
        let attached =
            |kernel: &KernelState| kernel.rules.iter().map(|rule| rule.attached).collect::<Vec<_>>();
        kernel.put_link(Link { alt_names: vec!["enp9s0".into()], ..device(7, "n0") });
        for rule in [
            by("enp9s0", Attached::Unknown),
            by("n0", Attached::Unknown),
            by("n1", Attached::Nowhere),
            by("enp9s1", Attached::Nowhere),
            by("enp8s0", Attached::Unknown),
        ] {
            assert_eq!(kernel.follow_rule(rule, true), Followed::Exactly);
        }
        let (own, none, unknown) = (Attached::To(7), Attached::Nowhere, Attached::Unknown);
        assert_eq!(attached(&kernel), [own, own, none, none, unknown]);
        // (1) another alternative name: rules that found no device by it do not now
        assert!(!kernel.put_link(Link { alt_names: vec!["enp9s1".into()], ..device(7, "n0") }));
        assert_eq!(attached(&kernel), [own, own, none, none, unknown]);
        // (2) another name of its own, then a device that was not known comes
        assert!(kernel.put_link(device(7, "n1")));
        assert_eq!(attached(&kernel), [none, none, own, none, unknown]);
        assert!(kernel.put_link(Link { alt_names: vec!["enp8s0".into()], ..device(8, "n0") }));
        let other = Attached::To(8);
        assert_eq!(attached(&kernel), [none, other, own, none, other]);
        // (3) it goes
        kernel.remove_link(8);
        assert_eq!(attached(&kernel), [none, none, own, none, none]);
    }

    /// A rule that is reported twice may be two, or one that a dump had already.
    #[test]
    fn equal_rules_are_several() {
        let mut kernel = KernelState::default();
        let rule = || by("n0", Attached::Nowhere);
        let mut follow = |here| (kernel.follow_rule(rule(), here), kernel.rules.len());
        assert_eq!(follow(true), (Followed::Exactly, 1));
        assert_eq!(follow(true), (Followed::Ambiguously, 2));
        assert_eq!(follow(false), (Followed::Ambiguously, 1));
        assert_eq!(follow(false), (Followed::Exactly, 0));
        assert_eq!(follow(false), (Followed::Ambiguously, 0));
    }

    #[test]
    fn a_loose_filter_needs_an_address() {
        let (mut kernel, link) = (KernelState::default(), device(7, "n0"));
        let loose =
            |ifindex, rp_filter| Netconf { family: family::INET, ifindex, rp_filter, ..Netconf::default() };
        kernel.update_netconf(&loose(7, Some(2)));
        assert_eq!(kernel.rp_filter(&link), 1);
        let address = |last: u8| {
            let address = [10, 0, 0, last].into();
            Addr { ifindex: 7, address, peer: address, prefix_len: 24 }
        };
        let changes = [(1, true), (2, true), (1, false), (2, false)];
        let followed =
            changes.map(|(last, here)| (kernel.follow_address(address(last), here), kernel.rp_filter(&link)));
        assert_eq!(followed, [(true, 2), (false, 2), (false, 2), (true, 1)]);
        kernel.update_netconf(&loose(7, Some(0)));
        assert_eq!(kernel.rp_filter(&link), 0);
    }

    #[test]
    fn next_hops_are_alive_as_the_kernel_marks_them() {
        let mut kernel = KernelState::default();
        kernel.put_link(device(7, "n0"));
        let hop = |dead| Nexthop { ifindex: 7, gateway: None, onlink: false, weight: 1, dead, encap: None };
        let nhg = |family| NexthopGroup { family, ..route::decode_nhg(&[]) };
        let alive = |kernel: &KernelState, family, dead| kernel.alive(family, &nhg(family), &hop(dead));
        assert!(alive(&kernel, family::INET, false) && !alive(&kernel, family::INET, true));
        kernel.revived.insert((family::INET, 7));
        assert!(alive(&kernel, family::INET, true) && !alive(&kernel, family::INET6, true));
        // without a carrier the settings decide: of IPv4 also that of all devices
        kernel.put_link(Link { flags: 1, ..device(7, "n0") });
        for family in [family::INET, family::INET6] {
            assert!(alive(&kernel, family, true));
            let ignore_linkdown = Some(true);
            kernel.update_netconf(&Netconf { family, ifindex: ALL, ignore_linkdown, ..Netconf::default() });
            assert_eq!(alive(&kernel, family, true), family == family::INET6);
        }
        // a route of scope host stays
        kernel.put_link(Link { flags: 0, ..device(7, "n0") });
        for (family, scope, is_alive) in
            [(family::INET, 254, true), (family::INET, 253, false), (family::INET6, 254, false)]
        {
            assert_eq!(kernel.alive(family, &NexthopGroup { scope, ..nhg(family) }, &hop(false)), is_alive);
        }
    }
}
