//! Routes in words: the keys of `ip -j route`, and ours beside them.

use crate::kernel::route::{Hop, Path, kind};
use crate::kernel::seg6::{Behaviour, Encap};
use crate::rib::Ip;
use crate::world::World;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use trieline_dataplane::{Action, Adjacency};
use trieline_lpm::Prefix;

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

/// The keys that say how a path's packets are forwarded.
pub fn path(path: &Path, world: &World, into: &mut Map<String, Value>) {
    if path.kind != kind::UNICAST {
        into.insert("type".into(), kind::name(path.kind).into());
    }
    match &path.hops[..] {
        [one] => hop(path.family, one, world, into),
        [] => {}
        many => {
            let hops = many.iter().map(|one| {
                let mut object = Map::new();
                hop(path.family, one, world, &mut object);
                object.insert("weight".into(), one.weight.into());
                Value::Object(object)
            });
            into.insert("nexthops".into(), hops.collect());
        }
    }
    if let Some(id) = path.nexthop {
        into.insert("nhid".into(), id.into());
    }
    into.insert("protocol".into(), protocol(path.protocol).into());
    if let Some(scope) = scope(path.scope).filter(|_| path.family == crate::kernel::family::INET) {
        into.insert("scope".into(), scope.into());
    }
    if let Some(preferred) = path.preferred {
        into.insert("prefsrc".into(), preferred.to_string().into());
    }
}

/// The keys of one way out.
pub fn hop(family: u8, hop: &Hop, world: &World, into: &mut Map<String, Value>) {
    match &hop.encap {
        Some(Encap::Seg6 { mode, segments, .. }) => {
            into.insert("encap".into(), "seg6".into());
            into.insert("mode".into(), mode.name().into());
            into.insert(
                "segs".into(),
                segments.iter().map(|segment| Value::from(segment.to_string())).collect(),
            );
        }
        Some(Encap::Seg6Local(behaviour)) => {
            into.insert("encap".into(), "seg6local".into());
            into.insert("behaviour".into(), behaviour.name().into());
            if let Behaviour::EndDx4(next_hop) = behaviour {
                into.insert("nh4".into(), next_hop.to_string().into());
            }
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
        into.insert("dev".into(), world.name(hop.ifindex).into());
    }
    if hop.onlink {
        into.insert("flags".into(), json!(["onlink"]));
    }
}

/// What XDP does: `action`, why, and the header it writes. `name` gives a device's name.
pub fn action(action: &Action, mut name: impl FnMut(u32) -> String, into: &mut Map<String, Value>) {
    let (word, adjacency) = match action {
        Action::Pass(reason) => {
            into.insert("reason".into(), reason.name().into());
            ("pass", None)
        }
        Action::Drop(reason) => {
            into.insert("reason".into(), reason.name().into());
            ("drop", None)
        }
        Action::Forward(adjacency) => ("forward", Some(adjacency)),
        Action::Encaps { adjacency, outer } => {
            let address = |at: usize| {
                let bytes: Option<[u8; 16]> = outer.get(at..at + 16).and_then(|bytes| bytes.try_into().ok());
                bytes.map(|bytes| IpAddr::from(bytes).to_string())
            };
            into.insert("outer_src".into(), address(8).into());
            into.insert("outer_dst".into(), address(24).into());
            ("h_encaps", Some(adjacency))
        }
        Action::EndDx4 { adjacency } => ("end_dx4", adjacency.as_ref()),
        Action::Table(_) => ("table", None),
    };
    into.insert("action".into(), word.into());
    if let Some(Adjacency { ifindex, mtu, destination, vlan, .. }) = adjacency {
        into.insert("out".into(), name(*ifindex).into());
        let mac: Vec<String> = destination.iter().map(|byte| format!("{byte:02x}")).collect();
        into.insert("lladdr".into(), mac.join(":").into());
        into.insert("mtu".into(), (*mtu).into());
        if let Some(vlan) = vlan {
            into.insert("vlan".into(), (*vlan).into());
        }
    }
}
