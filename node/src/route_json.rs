//! Routes in words: the keys of `ip -j route`, and ours beside them.

use crate::kernel::route::{Nexthop, NexthopGroup, kind};
use crate::kernel::seg6::{Behaviour, Encap, TableRef};
use crate::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use crate::kernel_state::KernelState;
use crate::rib::Ip;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use trieline_dataplane::{Action, Adjacency, Flavour, FlowLabel};
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

/// The keys that say how a path's packets are forwarded.
pub fn nhg(nhg: &NexthopGroup, kernel: &KernelState, into: &mut Map<String, Value>) {
    if nhg.kind != kind::UNICAST {
        into.insert("type".into(), kind::name(nhg.kind).into());
    }
    match &nhg.hops[..] {
        [one] => hop(nhg.family, one, kernel, into),
        [] => {}
        many => {
            let hops = many.iter().map(|one| {
                let mut object = Map::new();
                hop(nhg.family, one, kernel, &mut object);
                object.insert("weight".into(), one.weight.into());
                Value::Object(object)
            });
            into.insert("nexthops".into(), hops.collect());
        }
    }
    if let Some(id) = nhg.nexthop {
        into.insert("nhid".into(), id.into());
    }
    into.insert("protocol".into(), protocol(nhg.protocol).into());
    if let Some(scope) = scope(nhg.scope).filter(|_| nhg.family == crate::kernel::family::INET) {
        into.insert("scope".into(), scope.into());
    }
    if let Some(preferred) = nhg.preferred {
        into.insert("prefsrc".into(), preferred.to_string().into());
    }
}

/// The keys of one way out.
pub fn hop(family: u8, hop: &Nexthop, kernel: &KernelState, into: &mut Map<String, Value>) {
    match &hop.encap {
        Some(Encap::Seg6 { mode, list }) => {
            into.insert("encap".into(), "seg6".into());
            into.insert("mode".into(), mode.name().into());
            into.insert(
                "segs".into(),
                list.segments.iter().map(|segment| Value::from(segment.to_string())).collect(),
            );
        }
        Some(Encap::Seg6Local(behaviour)) => {
            into.insert("encap".into(), "seg6local".into());
            into.insert("behaviour".into(), behaviour.name().into());
            parameters(behaviour, kernel, into);
        }
        Some(Encap::Other(kind)) => {
            into.insert("encap".into(), format!("type {kind}").into());
        }
        None => {}
    }
    match hop.gateway {
        Some(gateway @ IpAddr::V6(_)) if family == crate::kernel::family::INET => {
            into.insert("via".into(), json!({ "family": "inet6", "host": gateway.to_string() }));
        }
        Some(gateway) => {
            into.insert("gateway".into(), gateway.to_string().into());
        }
        None => {}
    }
    if hop.ifindex != 0 {
        into.insert("dev".into(), kernel.name(hop.ifindex).into());
    }
    if hop.onlink {
        into.insert("flags".into(), json!(["onlink"]));
    }
}

/// The keys of an endpoint behaviour, as `ip route` names them.
fn parameters(behaviour: &Behaviour, kernel: &KernelState, into: &mut Map<String, Value>) {
    match behaviour {
        Behaviour::End { flavour } => show_flavour(*flavour, into),
        Behaviour::EndX { next_hop, flavour } => {
            into.insert("nh6".into(), next_hop.to_string().into());
            show_flavour(*flavour, into);
        }
        Behaviour::EndDx4(next_hop) => {
            into.insert("nh4".into(), next_hop.to_string().into());
        }
        Behaviour::EndDx6(next_hop) => {
            into.insert("nh6".into(), next_hop.to_string().into());
        }
        Behaviour::EndDx2 { device } => {
            into.insert("oif".into(), kernel.name(*device).into());
        }
        Behaviour::EndT { table } => {
            into.insert("lookup".into(), (*table).into());
        }
        Behaviour::EndDt4 { table } | Behaviour::EndDt6 { table } | Behaviour::EndDt46 { table } => {
            let (key, number) = match table {
                TableRef::Table(number) => ("lookup", number),
                TableRef::Vrf(number) => ("vrftable", number),
            };
            into.insert(key.into(), (*number).into());
        }
        Behaviour::EndB6 { list } | Behaviour::EndB6Encaps { list } => {
            into.insert(
                "segs".into(),
                list.segments.iter().map(|one| Value::from(one.to_string())).collect(),
            );
        }
        Behaviour::Other(_) => {}
    }
}

/// XDP's action on a packet: `action`, why, and the header it writes. `name` gives a device's name.
pub fn action(action: &Action, mut name: impl FnMut(u32) -> String, into: &mut Map<String, Value>) {
    action_with(action, &mut name, into);
}

fn action_with(action: &Action, name: &mut dyn FnMut(u32) -> String, into: &mut Map<String, Value>) {
    let (word, adjacency) = match action {
        Action::Pass(reason) => {
            into.insert("reason".into(), reason.name().into());
            ("pass", None)
        }
        Action::Drop(reason) => {
            into.insert("reason".into(), reason.name().into());
            ("drop", None)
        }
        Action::Forward(adjacency) | Action::Deliver(adjacency) => ("forward", Some(adjacency)),
        Action::Encaps { adjacency, outer, headend } => {
            outer_header(outer, into);
            let flow = match headend.label {
                FlowLabel::Inner => "inner",
                FlowLabel::Zero => "zero",
                FlowLabel::Hash => "hash",
            };
            into.insert("outer_flow".into(), flow.into());
            (if headend.l2 { "h_encaps_l2" } else { "h_encaps" }, Some(adjacency))
        }
        Action::Insert { adjacency, outer } => {
            segments(outer, into);
            ("h_insert", Some(adjacency))
        }
        Action::EndB6 { adjacency, outer } => {
            segments(outer, into);
            ("end_b6", Some(adjacency))
        }
        Action::EndB6Encaps { adjacency, outer, .. } => {
            outer_header(outer, into);
            ("end_b6_encaps", Some(adjacency))
        }
        Action::End(flavour) => {
            show_flavour(*flavour, into);
            ("end", None)
        }
        Action::EndX(adjacency, flavour) => {
            show_flavour(*flavour, into);
            ("end_x", Some(adjacency))
        }
        Action::EndT { .. } => ("end_t", None),
        Action::EndDx2 { ifindex, mtu } => {
            into.insert("out".into(), name(*ifindex).into());
            into.insert("mtu".into(), (*mtu).into());
            ("end_dx2", None)
        }
        Action::EndDx4 { adjacency } => ("end_dx4", adjacency.as_ref()),
        Action::EndDx6 { adjacency } => ("end_dx6", adjacency.as_ref()),
        Action::EndDt4 { .. } => ("end_dt4", None),
        Action::EndDt6 { .. } => ("end_dt6", None),
        Action::EndDt46 { .. } => ("end_dt46", None),
        Action::Table(_) => ("table", None),
        Action::Group(members) => {
            let shared = members.iter().map(|(weight, _)| *weight).fold(0, common_divisor).max(1);
            let members = members.iter().map(|(weight, member)| {
                let mut object = Map::new();
                object.insert("weight".into(), (weight / shared).into());
                action_with(member, name, &mut object);
                Value::Object(object)
            });
            let members: Vec<Value> = members.collect();
            into.insert("paths".into(), members.into());
            ("group", None)
        }
    };
    into.insert("action".into(), word.into());
    if let Some(Adjacency { ifindex, mtu, destination, source, vlan }) = adjacency {
        into.insert("out".into(), name(*ifindex).into());
        let mac = |bytes: &[u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
        into.insert("lladdr".into(), mac(destination).into());
        into.insert("smac".into(), mac(source).into());
        into.insert("mtu".into(), (*mtu).into());
        if let Some(vlan) = vlan {
            into.insert("vlan".into(), (*vlan).into());
        }
    }
}

/// The largest number that divides both.
fn common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

fn show_flavour(flavour: Flavour, into: &mut Map<String, Value>) {
    let words = match flavour {
        Flavour::Plain => return,
        Flavour::Psp => json!(["psp"]),
        Flavour::NextCsid { block, node_function } => {
            into.insert("lblen".into(), (8 * u32::from(block)).into());
            into.insert("nflen".into(), (8 * u32::from(node_function)).into());
            json!(["next-csid"])
        }
    };
    into.insert("flavors".into(), words);
}

fn outer_header(outer: &[u8], into: &mut Map<String, Value>) {
    into.insert("outer_src".into(), address(outer, 8));
    into.insert("outer_dst".into(), address(outer, 24));
    into.insert("outer_bytes".into(), outer.len().into());
    if outer.len() > OUTER_ONE_SEGMENT {
        segments(outer, into);
    }
}

/// The list in a pushed SRH, as it is visited.
fn segments(outer: &[u8], into: &mut Map<String, Value>) {
    let places = (OUTER_ONE_SEGMENT - 16..outer.len()).step_by(16);
    let list: Vec<Value> = places.rev().map(|at| address(outer, at)).collect();
    into.insert("outer_segs".into(), list.into());
}

fn address(outer: &[u8], at: usize) -> Value {
    let bytes: Option<[u8; 16]> = outer.get(at..at + 16).and_then(|bytes| bytes.try_into().ok());
    bytes.map(|bytes| IpAddr::from(bytes).to_string()).into()
}
