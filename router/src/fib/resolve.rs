//! From a nexthop group to an action: next hop, neighbour, device, VLAN, MTU and outer header, all found before a packet comes.
//!
//! Whatever this node cannot do exactly as the kernel would becomes "pass", with the reason.

use crate::fib::cause::Cause;
use crate::fib::lookup_ids::LookupIds;
use crate::fib::meaning::Host;
use crate::fib::sources::Sources;
use crate::kernel::family;
use crate::kernel::route::{Nexthop, NexthopGroup, kind};
use crate::rib::family::{Family, NexthopState};
use crate::rib::kernel_state::KernelState;
use crate::rib::nexthop_group::NhgId;
use crate::xdp::action::{Action, Adjacency, DropReason, PassReason};
use crate::xdp::layout::tl_limits;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// An action, or why the kernel has to do it.
pub(crate) type Resolved<T> = Result<T, Cause>;

/// By how much finer the weights of groups in groups are, while they are counted out.
const FINE: u64 = 128;
/// The largest weight of an action. The kernel's go to 256 (IPv4, IPv6 routes) or 65536 (next hop groups).
const MOST: u64 = u16::MAX as u64;
/// Most ways of one action: a bucket each.
const MEMBERS: usize = tl_limits::TL_BUCKETS.0 as usize;

/// Everything that a nexthop group's action depends on.
#[derive(Debug, Clone, Copy)]
pub struct Resolver<'a> {
    /// Links and settings.
    pub kernel: &'a KernelState,
    /// IPv4 routes and neighbours.
    pub v4: &'a Family<u32>,
    /// IPv6 routes and neighbours.
    pub v6: &'a Family<u128>,
    /// Devices that packets may leave by.
    pub devices: &'a BTreeSet<u32>,
    /// Lookup ids of devices and tables.
    pub lookup_ids: &'a LookupIds,
    /// How to look at the routes.
    pub nexthops4: NexthopState<'a>,
    /// How to look at the routes.
    pub nexthops6: NexthopState<'a>,
    /// The kernel's choice of source addresses.
    pub sources: &'a Sources,
}

impl Resolver<'_> {
    /// The action of a nexthop group.
    pub(crate) fn nhg(&self, id: NhgId) -> Resolved<Action> {
        let Some(nhg) = self.nexthops4.get(id) else { return Err(PassReason::Unsupported.into()) };
        match nhg.kind {
            // A route that decides by itself; others' prefixes are the kernel's already.
            _ if nhg.unknown.is_some() => Err(PassReason::Unsupported.into()),
            kind::UNICAST => self.forwarding(nhg),
            _ if self.is_own(id) => Err(PassReason::Local.into()),
            kind::BLACKHOLE => Ok(Action::Drop(DropReason::Blackhole)),
            kind::UNREACHABLE => Err(PassReason::Unreachable.into()),
            kind::PROHIBIT => Err(PassReason::Prohibit.into()),
            _ => Err(PassReason::Unsupported.into()),
        }
    }

    /// Whether a nexthop group's packets are this node's.
    pub fn is_own(&self, id: NhgId) -> bool {
        let own = [kind::LOCAL, kind::BROADCAST, kind::ANYCAST, kind::MULTICAST];
        self.nexthops4.get(id).is_some_and(|nhg| own.contains(&nhg.kind))
    }

    /// The action of a host entry.
    pub(crate) fn host(&self, (address, link, mtu): Host) -> Resolved<Action> {
        let family = if address.is_ipv4() { family::INET } else { family::INET6 };
        self.adjacency(family, link, address, mtu).map(Action::Deliver)
    }

    /// The addresses whose routes decide beside the nexthop group's own: segments, and next hops of endpoint behaviours. The SID itself is
    /// one, as other tables may have it for some packets.
    pub fn depends_on(nhg: &NexthopGroup) -> impl Iterator<Item = IpAddr> {
        let looked_up = nhg.hops.iter().filter_map(|hop| hop.encap.as_ref()?.decided_by());
        looked_up.chain(nhg.sid.map(|(address, _)| address))
    }

    /// The action of a forwarding route: by its one way out, or by all that are alive, as the kernel's lookup sees it.
    fn forwarding(&self, nhg: &NexthopGroup) -> Resolved<Action> {
        if nhg.hops.is_empty() {
            return Err(nhg.nexthop.map_or(PassReason::Unsupported.into(), Cause::Object));
        }
        let hops = nhg.hops.iter().filter(|hop| self.kernel.alive(nhg.family, nhg, hop));
        ecmp_group(hops.map(|hop| (hop.weight, self.by_hop(nhg, hop))).collect())
    }

    /// Whether a link is a VRF device, which looks its packets up again, by their destination, whatever the gateway.
    pub(crate) fn is_vrf(&self, ifindex: u32) -> bool {
        self.kernel.links.get(&ifindex).is_some_and(|link| link.vrf_table.is_some())
    }

    fn by_hop(&self, nhg: &NexthopGroup, hop: &Nexthop) -> Resolved<Action> {
        match (&hop.encap, hop.gateway) {
            (None, _) if self.is_vrf(hop.ifindex) => self
                .lookup_ids
                .of(nhg.family, hop.ifindex)
                .map(Action::Table)
                .ok_or(PassReason::TableFull.into()),
            (None, Some(gateway)) => {
                self.adjacency(nhg.family, hop.ifindex, gateway, nhg.mtu).map(Action::Forward)
            }
            // on-link: every neighbour has a host entry of its own; the others are yet to be found
            (None, None) => Err(self.out(hop.ifindex).err().unwrap_or(Cause::OnLinkWay(hop.ifindex))),
            (Some(encap), _) => self.encap(nhg, hop, encap),
        }
    }

    /// The device that frames for a link leave by, its VLAN, and the MAC address they come from.
    pub(crate) fn out(&self, link: u32) -> Resolved<(u32, Option<u16>, [u8; 6])> {
        let found = self.kernel.links.get(&link).ok_or(Cause::Exit(PassReason::NoDevice, link))?;
        if found.egress_qos {
            return Err(Cause::Device(link));
        }
        let (device, vlan) = match (found.vlan, found.parent) {
            (Some(vlan), Some(parent)) => (parent, Some(vlan)),
            _ => (link, None),
        };
        if !self.devices.contains(&device) {
            let disabled = self.kernel.disabled.contains(&device);
            let reason = if disabled { PassReason::NoXdpXmit } else { PassReason::NoDevice };
            return Err(Cause::Exit(reason, device));
        }
        let source = found.mac.ok_or(Cause::Device(link))?;
        let up =
            found.has_carrier() && self.kernel.links.get(&device).is_some_and(|device| device.has_carrier());
        // The kernel drops packets to a link that is down, and reports them.
        if up { Ok((device, vlan, source)) } else { Err(Cause::Exit(PassReason::NoCarrier, link)) }
    }

    /// The header of frames that take packets of a family to a neighbour.
    pub(crate) fn adjacency(
        &self,
        family: u8,
        link: u32,
        neighbour: IpAddr,
        route_mtu: u32,
    ) -> Resolved<Adjacency> {
        let (ifindex, vlan, source) = self.out(link)?;
        let known = match neighbour {
            IpAddr::V4(addr) => self.v4.neighbours.get(&(addr.into(), link)),
            IpAddr::V6(addr) => self.v6.neighbours.get(&(addr.into(), link)),
        };
        let destination = known.and_then(|known| known.mac).ok_or(PassReason::Unresolved)?;
        let mut mtu = self.kernel.mtu(family, link);
        if route_mtu != 0 {
            mtu = mtu.min(route_mtu);
        }
        Ok(Adjacency { ifindex, mtu: mtu.min(u16::MAX.into()) as u16, destination, source, vlan })
    }
}

/// One action of several ways with their weights. A group in a group becomes its members, each with its share of the weight. A way that waits
/// for its neighbour or carrier is the kernel's meanwhile. A way that stays with the kernel takes the others along: the kernel would share
/// out what XDP leaves to it among all ways again.
pub(crate) fn ecmp_group(mut ways: Vec<(u16, Resolved<Action>)>) -> Resolved<Action> {
    if ways.len() <= 1 {
        // None is alive.
        return ways.pop().map_or(Err(PassReason::NoCarrier.into()), |(_, way)| way);
    }
    if ways.iter().all(|(_, way)| way.is_err()) {
        return ways.swap_remove(0).1;
    }
    if let Some(lasting) = ways.iter().find_map(|(_, way)| way.as_ref().err().filter(|why| !why.is_passing()))
    {
        return Err(Cause::Way(Box::new(lasting.clone())));
    }
    let mut members = Vec::new();
    for (weight, way) in ways {
        let weight = u64::from(weight) * FINE;
        match way.unwrap_or_else(|cause| Action::Pass(cause.reason())) {
            Action::Group(inner) => {
                let sum: u64 = inner.iter().map(|(share, _)| u64::from(*share)).sum();
                let part = |share: u16| (weight * u64::from(share) / sum.max(1)).max(1);
                members.extend(inner.into_iter().map(|(share, action)| (part(share), action)));
            }
            action => members.push((weight, action)),
        }
    }
    // A way into a VRF is another lookup, which no bucket can hold.
    if members.iter().any(|(_, way)| matches!(way, Action::Table(_))) {
        return Err(Cause::WayIntoVrf);
    }
    if members.len() > MEMBERS {
        return Err(Cause::Ways);
    }
    let whole = members.iter().all(|(weight, _)| weight % FINE == 0);
    let most = members.iter().map(|(weight, _)| *weight).max().unwrap_or(1);
    let scaled = |weight: u64| match (whole, most > MOST) {
        (true, _) => weight / FINE,
        (false, true) => weight * MOST / most,
        (false, false) => weight,
    };
    let scaled = members.into_iter().map(|(weight, way)| (scaled(weight).clamp(1, MOST) as u16, way));
    Ok(Action::Group(scaled.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An action that its number distinguishes.
    fn way(number: u32) -> Action {
        Action::Forward(Adjacency {
            ifindex: number,
            mtu: 1500,
            destination: [0; 6],
            source: [0; 6],
            vlan: None,
        })
    }

    fn weights(ways: Vec<(u16, Resolved<Action>)>) -> Vec<u16> {
        match ecmp_group(ways) {
            Ok(Action::Group(members)) => members.into_iter().map(|(weight, _)| weight).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_way_that_stays_with_the_kernel_takes_the_others_along() {
        let away = || Err(Cause::Exit(PassReason::NoDevice, 7));
        let group = ecmp_group(vec![(1, Ok(way(1))), (3, away())]);
        assert_eq!(group, Err(Cause::Way(Box::new(Cause::Exit(PassReason::NoDevice, 7)))));
        let on_link = ecmp_group(vec![(1, Err(Cause::OnLinkWay(7))), (1, Ok(way(1)))]);
        assert_eq!(on_link.map_err(|cause| cause.reason()), Err(PassReason::Unsupported));
        // A neighbour that has yet to answer is another matter.
        let waits = ecmp_group(vec![(1, Ok(way(1))), (2, Err(PassReason::Unresolved.into()))]);
        assert_eq!(waits, Ok(Action::Group(vec![(1, way(1)), (2, Action::Pass(PassReason::Unresolved))])));
        assert_eq!(ecmp_group(vec![(1, away()), (1, away())]), away());
    }

    #[test]
    fn the_largest_weights_keep_their_proportions() {
        let group = |shares: &[u16]| {
            Ok(Action::Group(shares.iter().zip(1..).map(|(share, number)| (*share, way(number))).collect()))
        };
        assert_eq!(weights(vec![(3, Ok(way(1))), (1, Ok(way(2)))]), [3, 1]);
        assert_eq!(weights(vec![(u16::MAX, Ok(way(1))), (600, Ok(way(2)))]), [u16::MAX, 600]);
        // 65535 over shares of 2:1, beside 65535
        let shared = weights(vec![(u16::MAX, group(&[600, 300])), (u16::MAX, Ok(way(9)))]);
        assert_eq!(shared, [43690, 21845, u16::MAX]);
        let shared = weights(vec![(u16::MAX, group(&[512, 511])), (1, Ok(way(9)))]);
        assert!(shared[0] > 65000 && shared[1].abs_diff(shared[0]) < 200 && shared[2] == 1, "{shared:?}");
    }
}
