//! The object that a prefix's number in the tables stands for. It is for the writer, which gives numbers out, and for the audit, which
//! looks whether the image has them.

use crate::kernel::route::kind;
use crate::rib::family::{Decision, Family, NexthopState};
use crate::rib::nexthop_group::NhgId;
use crate::rib::table::Ip;
use std::net::IpAddr;
use trieline_lpm::Prefix;

/// A neighbour: its address, the link, and the MTU of the route to it (0: the link's).
pub type Host = (IpAddr, u32, u32);

/// The object behind a prefix's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A nexthop group.
    NexthopGroup(NhgId),
    /// The nexthop group of a table's default route, which rules leave out.
    Default(NhgId),
    /// A neighbour.
    Host(Host),
    /// The kernel decides.
    Kernel,
    /// The next rule decides.
    Throw,
}

/// The meaning of what table `number` decides for a prefix. `has_default`: the table's default route has a number of its own.
pub fn meaning<A: Ip>(
    has_default: bool,
    (family, nexthops): (&Family<A>, NexthopState<'_>),
    number: u32,
    prefix: Prefix<A>,
    decision: Decision<A>,
) -> Meaning {
    match decision {
        Decision::NexthopGroup(nhg) if prefix.len() == 0 && has_default && !is_error(nexthops, nhg) => {
            Meaning::Default(nhg)
        }
        // The default route leads to this neighbour, and a rule depends on whether it does: only the kernel knows which of the two
        // decides.
        Decision::Neighbour(addr, _, _)
            if has_default
                && (family.lookup(number, addr, nexthops)).is_some_and(|(prefix, _)| prefix.len() == 0) =>
        {
            Meaning::Kernel
        }
        Decision::NexthopGroup(nhg) => Meaning::NexthopGroup(nhg),
        Decision::Neighbour(addr, link, mtu) => Meaning::Host((addr.ip(), link, mtu)),
        Decision::Kernel => Meaning::Kernel,
        Decision::Throw => Meaning::Throw,
    }
}

/// Whether the kernel takes a route for an error, which no rule leaves out; so it does next hop objects that lead nowhere.
pub(super) fn is_error(nexthops: NexthopState<'_>, nhg: NhgId) -> bool {
    nexthops.get(nhg).is_none_or(|nhg| {
        nhg.hops.is_empty() || matches!(nhg.kind, kind::BLACKHOLE | kind::UNREACHABLE | kind::PROHIBIT)
    })
}
