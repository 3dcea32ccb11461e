//! Routes in words: the keys of `ip -j route`, and ours beside them.

use crate::api::route::{Route, Via};
use crate::kernel::link::mac_text;
use crate::kernel::route::{Nexthop, NexthopGroup, kind};
use crate::kernel::seg6::{Behaviour, CsidLengths, Encap, Flavours, Operand, TableRef, endpoint_name};
use crate::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use crate::rib::kernel_state::KernelState;
use crate::rib::table::Ip;
use crate::xdp::action::{Action, Adjacency, FlowLabel, Target};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use trieline_lpm::Prefix;

/// Bytes of an outer header with an SRH of one segment.
const OUTER_ONE_SEGMENT: usize = 64;

/// `ip route`'s name of a protocol.
fn protocol(number: u8) -> String {
    let name = match number {
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        10 => "mrt",
        11 => "zebra",
        12 => "bird",
        14 => "xorp",
        15 => "ntk",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        other => return other.to_string(),
    };
    name.into()
}

fn scope(number: u8) -> Option<String> {
    match number {
        0 => None,
        200 => Some("site".into()),
        253 => Some("link".into()),
        254 => Some("host".into()),
        255 => Some("nowhere".into()),
        other => Some(other.to_string()),
    }
}

/// A prefix as `ip route` writes it: no length for a host, `default` for all.
pub fn destination<A: Ip>(prefix: Prefix<A>) -> String {
    match prefix.len() {
        0 => "default".into(),
        len if len == A::WIDTH => prefix.addr().ip().to_string(),
        _ => prefix.to_string(),
    }
}

/// `ip route`'s name of a table.
pub fn table(number: u32) -> String {
    match number {
        TABLE_LOCAL => "local".into(),
        TABLE_MAIN => "main".into(),
        TABLE_DEFAULT => "default".into(),
        other => other.to_string(),
    }
}

/// The keys that say how a nexthop group's packets are forwarded.
pub fn nhg(nhg: &NexthopGroup, kernel: &KernelState, into: &mut Route) {
    if nhg.kind != kind::UNICAST {
        into.kind = Some(kind::name(nhg.kind).into());
    }
    match &nhg.hops[..] {
        [one] => hop(nhg.family, one, kernel, into),
        [] => {}
        many => {
            let hops = many.iter().map(|one| {
                let mut way = Route { weight: Some(one.weight), ..Route::default() };
                hop(nhg.family, one, kernel, &mut way);
                way
            });
            into.nexthops = hops.collect();
        }
    }
    into.nhid = nhg.nexthop.or(into.nhid);
    into.protocol = Some(protocol(nhg.protocol));
    if let Some(scope) = scope(nhg.scope).filter(|_| nhg.family == crate::kernel::family::INET) {
        into.scope = Some(scope);
    }
    if let Some(preferred) = nhg.preferred {
        into.prefsrc = Some(preferred);
    }
}

/// The keys of one way out.
pub fn hop(family: u8, hop: &Nexthop, kernel: &KernelState, into: &mut Route) {
    match &hop.encap {
        Some(Encap::Seg6 { mode, list }) => {
            into.encap = Some("seg6".into());
            into.mode = Some(mode.name().into());
            into.segs.clone_from(&list.segments);
        }
        Some(Encap::Seg6Local(behaviour)) => {
            into.encap = Some("seg6local".into());
            into.behaviour = Some(behaviour.endpoint.name().into());
            parameters(behaviour, kernel, into);
        }
        Some(Encap::OtherLocal(number, operands)) => {
            into.encap = Some("seg6local".into());
            into.behaviour = Some(endpoint_name(*number).into());
            operands.iter().for_each(|operand| parameter(operand, kernel, into));
        }
        Some(Encap::Other(kind)) => {
            into.encap = Some(format!("type {kind}"));
        }
        None => {}
    }
    match hop.gateway {
        Some(gateway @ IpAddr::V6(_)) if family == crate::kernel::family::INET => {
            into.via = Some(Via { family: "inet6".into(), host: gateway });
        }
        Some(gateway) => {
            into.gateway = Some(gateway);
        }
        None => {}
    }
    if hop.ifindex != 0 {
        into.dev = Some(kernel.name(hop.ifindex));
    }
    if hop.onlink {
        into.flags = vec!["onlink".into()];
    }
}

/// The keys of an endpoint behaviour, as `ip route` names them.
fn parameters(behaviour: &Behaviour, kernel: &KernelState, into: &mut Route) {
    parameter(&behaviour.operand, kernel, into);
    show_flavours(behaviour.flavours, into);
}

fn parameter(operand: &Operand, kernel: &KernelState, into: &mut Route) {
    match operand {
        Operand::None => {}
        Operand::NextHop(next_hop @ IpAddr::V4(_)) => into.nh4 = Some(*next_hop),
        Operand::NextHop(next_hop) => into.nh6 = Some(*next_hop),
        Operand::Device(device) => into.oif = Some(kernel.name(*device)),
        Operand::Table(TableRef::Table(number)) => into.lookup = Some(*number),
        Operand::Table(TableRef::Vrf(number)) => into.vrftable = Some(*number),
        Operand::List(list) => into.segs.clone_from(&list.segments),
    }
}

/// XDP's action on a packet: `action`, why, and the header it writes. `name` gives a device's name.
pub fn action(action: &Action, mut name: impl FnMut(u32) -> String, into: &mut Route) {
    action_with(action, &mut name, into);
}

fn action_with(action: &Action, name: &mut dyn FnMut(u32) -> String, into: &mut Route) {
    let (word, adjacency): (Cow<'_, str>, _) = match action {
        Action::Pass(reason) => {
            into.reason = Some(reason.name().into());
            ("pass".into(), None)
        }
        Action::Drop(reason) => {
            into.reason = Some(reason.name().into());
            ("drop".into(), None)
        }
        Action::Forward(adjacency) | Action::Deliver(adjacency) => ("forward".into(), Some(adjacency)),
        Action::Encaps { adjacency, outer, headend } => {
            outer_header(outer, into);
            let flow = match headend.label {
                FlowLabel::Inner => "inner",
                FlowLabel::Zero => "zero",
                FlowLabel::Hash => "hash",
            };
            into.outer_flow = Some(flow.into());
            (if headend.l2 { "h_encaps_l2" } else { "h_encaps" }.into(), Some(adjacency))
        }
        Action::Insert { adjacency, outer } => {
            segments(outer, into);
            ("h_insert".into(), Some(adjacency))
        }
        Action::Endpoint { endpoint, flavours, target } => {
            show_flavours(*flavours, into);
            let word = endpoint.name().to_lowercase().replace('.', "_");
            (word.into(), endpoint_target(target, name, into))
        }
        Action::Table(_) => ("table".into(), None),
        Action::Group(members) => {
            let shared = members.iter().map(|(weight, _)| *weight).fold(0, common_divisor).max(1);
            let members = members.iter().map(|(weight, member)| {
                let mut shown = Route { weight: Some(weight / shared), ..Route::default() };
                action_with(member, name, &mut shown);
                shown
            });
            into.members = members.collect();
            ("group".into(), None)
        }
    };
    into.action = Some(word.into());
    if let Some(Adjacency { ifindex, mtu, destination, source, vlan }) = adjacency {
        into.out = Some(name(*ifindex));
        into.lladdr = Some(mac_text(destination));
        into.smac = Some(mac_text(source));
        into.mtu = Some(*mtu);
        into.vlan = *vlan;
    }
}

/// The largest number that divides both.
fn common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The keys of an endpoint's target, and the neighbour that it leads to.
fn endpoint_target<'a>(
    target: &'a Target,
    name: &mut dyn FnMut(u32) -> String,
    into: &mut Route,
) -> Option<&'a Adjacency> {
    match target {
        Target::Port | Target::Lookup(_) | Target::Lookups { .. } => None,
        Target::Adjacency(adjacency) => Some(adjacency),
        Target::Device { ifindex, mtu } => {
            into.out = Some(name(*ifindex));
            into.mtu = Some(*mtu);
            None
        }
        Target::Insert { adjacency, outer } => {
            segments(outer, into);
            Some(adjacency)
        }
        Target::Encaps { adjacency, outer, .. } => {
            outer_header(outer, into);
            Some(adjacency)
        }
    }
}

fn show_flavours(flavours: Flavours, into: &mut Route) {
    if let Some(CsidLengths { block, node_function }) = flavours.next_csid {
        into.lblen = Some(8 * u32::from(block));
        into.nflen = Some(8 * u32::from(node_function));
    }
    if flavours != Flavours::default() {
        into.flavors = flavours.names().into_iter().map(str::to_owned).collect();
    }
}

fn outer_header(outer: &[u8], into: &mut Route) {
    into.outer_src = address(outer, 8);
    into.outer_dst = address(outer, 24);
    into.outer_bytes = Some(outer.len());
    if outer.len() > OUTER_ONE_SEGMENT {
        segments(outer, into);
    }
}

/// The list in a pushed SRH, as it is visited.
fn segments(outer: &[u8], into: &mut Route) {
    let places = (OUTER_ONE_SEGMENT - 16..outer.len()).step_by(16);
    into.outer_segs = places.rev().filter_map(|at| address(outer, at)).collect();
}

fn address(outer: &[u8], at: usize) -> Option<Ipv6Addr> {
    let bytes: Option<[u8; 16]> = outer.get(at..at + 16).and_then(|bytes| bytes.try_into().ok());
    bytes.map(Ipv6Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavours_are_a_list_in_the_order_of_ip_route() {
        let shown = |flavours| {
            let mut route = Route::default();
            show_flavours(flavours, &mut route);
            (route.flavors.join(","), route.lblen, route.nflen)
        };
        let both = Flavours { psp: true, ..Flavours::next_csid(6, 4) };
        let all = Flavours { usp: true, usd: true, ..both };
        for (flavours, names, lengths) in [
            (Flavours::default(), "", None),
            (Flavours::PSP, "psp", None),
            (Flavours::next_csid(4, 2), "next-csid", Some((32, 16))),
            (both, "psp,next-csid", Some((48, 32))),
            (all, "psp,usp,usd,next-csid", Some((48, 32))),
        ] {
            let (block, function) = (lengths.map(|(block, _)| block), lengths.map(|(_, function)| function));
            assert_eq!(shown(flavours), (names.to_owned(), block, function));
        }
    }
}
