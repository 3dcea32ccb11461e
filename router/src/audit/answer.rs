//! The kernel's answer for one address, and answers in words.

use crate::fib::expected::Routed;
use crate::kernel::link::mac_text;
use crate::kernel::route::{self, Nexthop, NexthopGroup, kind};
use crate::kernel::socket::{Error, Netlink};
use crate::rib::family::Decision;
use crate::rib::mirror::Mirror;
use crate::xdp::action::{Action, Adjacency};
use rustix::io::Errno;
use trieline_lpm::Prefix;

/// The answer of the kernel's route lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<A: Routed> {
    /// This route.
    Route {
        /// Its table.
        table: u32,
        /// Its prefix.
        prefix: Prefix<A>,
        /// How it forwards.
        nhg: Box<NexthopGroup>,
    },
    /// A route of this type that answers with an error. The kernel does not name it.
    Error(u8),
    /// The kernel has none.
    Nothing,
    /// An answer that says nothing about routes.
    Unknown,
}

/// Asks the kernel for the route of a packet of this node. `device`: a VRF's, or 0.
pub fn ask<A: Routed>(socket: &mut Netlink, addr: A, device: u32) -> Result<Answer<A>, Error> {
    let mut answer = Answer::Unknown;
    let asked = socket.request(route::matching(&addr.ip(), device), |message| {
        let Some(reported) = route::decode(message.payload) else { return };
        if let Some(address) = A::from_bytes(reported.destination) {
            let prefix = Prefix::truncated(address, reported.prefix_len.into());
            answer = Answer::Route { table: reported.table, prefix, nhg: Box::new(reported.nhg()) };
        }
    });
    match asked {
        Ok(()) => Ok(answer),
        Err(Error::Refused { source, .. }) => Ok(match Errno::from_io_error(&source) {
            Some(Errno::NETUNREACH) => Answer::Nothing,
            Some(Errno::HOSTUNREACH) => Answer::Error(kind::UNREACHABLE),
            Some(Errno::ACCESS) => Answer::Error(kind::PROHIBIT),
            Some(Errno::INVAL) => Answer::Error(kind::BLACKHOLE),
            _ => Answer::Unknown,
        }),
        Err(error) => Err(error),
    }
}

/// The kernel's answer as `ip route` writes it.
pub fn kernel_text<A: Routed>(answer: &Answer<A>, mirror: &Mirror) -> String {
    match answer {
        Answer::Route { prefix, nhg, .. } => format!("{prefix} {}", nhg_text(nhg, mirror)),
        Answer::Error(found) => kind::name(*found).into(),
        Answer::Nothing => "no route".into(),
        Answer::Unknown => "no answer".into(),
    }
}

/// A next hop as `ip route` writes it.
pub fn hop_text(hop: &Nexthop, mirror: &Mirror) -> String {
    let gateway = hop.gateway.map(|gateway| format!("via {gateway} ")).unwrap_or_default();
    let encap = if hop.encap.is_some() { "encap " } else { "" };
    let onlink = if hop.onlink { " onlink" } else { "" };
    let weight = if hop.weight > 1 { format!(" weight {}", hop.weight) } else { String::new() };
    format!("{encap}{gateway}dev {}{onlink}{weight}", mirror.kernel.name(hop.ifindex))
}

/// A nexthop group as `ip route` writes it.
pub fn nhg_text(nhg: &NexthopGroup, mirror: &Mirror) -> String {
    let hops: Vec<String> = nhg.hops.iter().map(|hop| hop_text(hop, mirror)).collect();
    let name = if nhg.kind == kind::UNICAST { "" } else { kind::name(nhg.kind) };
    let object = nhg.nexthop.map(|id| format!("nhid {id}")).unwrap_or_default();
    let mtu = if nhg.mtu == 0 { String::new() } else { format!("mtu {}", nhg.mtu) };
    let parts = [name, &object, &hops.join(" nexthop "), &mtu];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A decision of the mirror in the same words.
pub fn decision_text<A: Routed>(found: Option<(Prefix<A>, Decision<A>)>, mirror: &Mirror) -> String {
    let Some((prefix, decision)) = found else { return "no route".into() };
    let what = match decision {
        Decision::NexthopGroup(nhg) => {
            mirror.nhgs.get(nhg).map(|nhg| nhg_text(nhg, mirror)).unwrap_or_default()
        }
        Decision::Neighbour(_, link, _) => format!("dev {}", mirror.kernel.name(link)),
        Decision::Kernel => "left to the kernel".into(),
        Decision::Throw => "throw".into(),
    };
    format!("{prefix} {what}")
}

/// An action in words.
pub fn action_text(action: Option<&Action>, mirror: &Mirror) -> String {
    let to = |adjacency: &Adjacency| {
        let mac = mac_text(&adjacency.destination);
        let vlan = adjacency.vlan.map(|vlan| format!(" vlan {vlan}")).unwrap_or_default();
        format!("out {}{vlan} to {mac} mtu {}", mirror.kernel.name(adjacency.ifindex), adjacency.mtu)
    };
    match action {
        None => "no action".into(),
        Some(Action::Pass(reason)) => format!("pass {}", reason.name()),
        Some(Action::Drop(reason)) => format!("drop {}", reason.name()),
        Some(Action::Forward(adjacency) | Action::Deliver(adjacency)) => to(adjacency),
        Some(Action::Encaps { adjacency, .. } | Action::Insert { adjacency, .. }) => {
            format!("encap {}", to(adjacency))
        }
        Some(Action::Endpoint { endpoint, .. }) => endpoint.name().into(),
        Some(Action::Table(lookup)) => format!("lookup {lookup}"),
        Some(Action::Group(members)) => {
            let mut ways: Vec<String> =
                members.iter().map(|(_, member)| action_text(Some(member), mirror)).collect();
            ways.dedup();
            format!("group of {}", ways.join(", "))
        }
    }
}
