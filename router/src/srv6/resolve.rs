//! SRv6 routes to actions: headends with their outer headers, endpoints with where their packets go next.

use crate::fib::resolve::{Resolved, Resolver, ecmp_group};
use crate::kernel::route::{Nexthop, NexthopGroup, kind};
use crate::kernel::seg6::{Behaviour, Encap, Endpoint, Mode, Operand, SegmentList, TableRef};
use crate::kernel::{family, netconf};
use crate::rib::family::Decision;
use crate::rib::nexthop_group::NhgId;
use crate::xdp::action::{Action, Adjacency, Headend, PassReason, Target, check_flavours};
use crate::xdp::layout::tl_limits;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SRH_FLAG_HMAC: u8 = 0x08;
const SRH_FIXED: usize = 8;
const SEGMENT: usize = 16;
const IPV6: usize = 40;
const NEXT_HEADER_ROUTING: u8 = 43;
/// The most segments that the program pushes.
const SEGMENTS: usize = (tl_limits::TL_OUTER_LONG.0 as usize - IPV6 - SRH_FIXED) / SEGMENT;

/// Where packets to an IPv6 address go: the nexthop group, and its ways that are alive with their weights.
type Ways<'p> = (NhgId, &'p NexthopGroup, Vec<(u16, Resolved<Adjacency>)>);

impl Resolver<'_> {
    /// The lookup id by which a decapsulated packet of a family is looked up, and the next segment of End.T. It is a table alone, or what
    /// the rules say for a VRF's packets. Table main stands for itself although the program's holds table local as well: what
    /// that decides is the kernel's.
    pub fn lookup_of_table(&self, family: u8, table: TableRef) -> Option<u32> {
        match table {
            TableRef::Table(number) => {
                // A table by itself knows nothing of packets that have to meet netfilter.
                self.lookup_ids.of_table(family, number).filter(|_| self.kernel.parts(family).is_empty())
            }
            TableRef::Vrf(number) => {
                let vrf = self.kernel.links.values().find(|link| link.vrf_table == Some(number))?;
                // The kernel takes the packet for one that came in by the VRF device, with that device's settings.
                let reversed = family == family::INET && self.kernel.rp_filter(vrf.ifindex) != 0;
                let plain = vrf.is_up() && self.kernel.forwards(family, vrf.ifindex) && !reversed;
                self.lookup_ids.of(family, vrf.ifindex).filter(|_| plain)
            }
        }
    }

    pub(crate) fn encap(&self, nhg: &NexthopGroup, hop: &Nexthop, encap: &Encap) -> Resolved<Action> {
        let forwards = self.kernel.netconf(family::INET6, netconf::ALL).forwarding == Some(true);
        // Netfilter decides about some packets by their addresses, which change here.
        let parts = !self.kernel.parts(family::INET6).is_empty();
        if !forwards || parts || self.kernel.obstacle(family::INET6).is_some() {
            return Err(PassReason::Unsupported);
        }
        match encap {
            Encap::Seg6 { mode: Mode::Inline, list } if nhg.family == family::INET6 => {
                self.insert(list, |adjacency, outer| Action::Insert { adjacency, outer })
            }
            Encap::Seg6 { mode, list } => {
                let (reduced, l2) = match mode {
                    Mode::Encap => (false, false),
                    Mode::EncapRed => (true, false),
                    Mode::L2Encap => (false, true),
                    Mode::L2EncapRed => (true, true),
                    _ => return Err(PassReason::Unsupported),
                };
                let headend =
                    Headend { l2, label: self.kernel.sysctl.flow_label, rfc: self.kernel.settings.rfc };
                self.push(nhg, hop, list, reduced, |adjacency, outer| Action::Encaps {
                    adjacency,
                    outer,
                    headend,
                })
            }
            Encap::Seg6Local(behaviour) if nhg.family == family::INET6 => self.endpoint(nhg, hop, behaviour),
            _ => Err(PassReason::Unsupported),
        }
    }

    fn endpoint(&self, nhg: &NexthopGroup, hop: &Nexthop, behaviour: &Behaviour) -> Resolved<Action> {
        let lookup = |family, table| self.lookup_of_table(family, table).ok_or(PassReason::Unsupported);
        let Behaviour { endpoint, flavours, operand } = behaviour;
        let (endpoint, flavours) = (*endpoint, *flavours);
        check_flavours(endpoint, &flavours).map_err(|_| PassReason::Unsupported)?;
        let to = |target| Action::Endpoint { endpoint, flavours, target };
        match (endpoint, operand) {
            (Endpoint::End, _) => Ok(to(Target::Port)),
            (Endpoint::EndDx6, Operand::NextHop(IpAddr::V6(next_hop))) if next_hop.is_unspecified() => {
                Ok(to(Target::Port))
            }
            (_, Operand::NextHop(IpAddr::V6(next_hop))) => {
                self.ecmp(*next_hop, |adjacency| to(Target::Adjacency(adjacency)))
            }
            (_, Operand::NextHop(IpAddr::V4(next_hop))) => self.end_dx4(*next_hop),
            (_, Operand::Device(device)) => self.end_dx2(*device),
            (Endpoint::EndDt4, Operand::Table(table)) => {
                Ok(to(Target::Lookup(lookup(family::INET, *table)?)))
            }
            (Endpoint::EndDt46, Operand::Table(table)) => Ok(to(Target::Lookups {
                ipv4: lookup(family::INET, *table)?,
                ipv6: lookup(family::INET6, *table)?,
            })),
            (_, Operand::Table(table)) => Ok(to(Target::Lookup(lookup(family::INET6, *table)?))),
            (Endpoint::EndB6, Operand::List(list)) => {
                self.insert(list, |adjacency, outer| to(Target::Insert { adjacency, outer }))
            }
            (_, Operand::List(list)) => {
                let headend = Headend {
                    l2: false,
                    label: self.kernel.sysctl.flow_label,
                    rfc: self.kernel.settings.rfc,
                };
                self.push(nhg, hop, list, false, |adjacency, outer| {
                    to(Target::Encaps { adjacency, outer, headend })
                })
            }
            (_, Operand::None) => Err(PassReason::Unsupported),
        }
    }

    /// The ways to an IPv6 address, which is itself the neighbour where it is on-link.
    fn ways(&self, address: Ipv6Addr) -> Resolved<Ways<'_>> {
        let Some((_, Decision::NexthopGroup(id))) = self.route(self.v6, address.into(), self.nexthops6)
        else {
            return Err(PassReason::Unsupported);
        };
        let nhg = self.nexthops6.get(id).filter(|nhg| nhg.kind == kind::UNICAST);
        let nhg = nhg.ok_or(PassReason::Unsupported)?;
        let alive = nhg.hops.iter().filter(|hop| self.kernel.alive(family::INET6, hop.ifindex));
        let ways = alive.map(|hop| {
            let gateway = hop.gateway.unwrap_or(IpAddr::V6(address));
            let adjacency = match hop.encap {
                None => self.adjacency(family::INET6, hop.ifindex, gateway, nhg.mtu),
                Some(_) => Err(PassReason::Unsupported),
            };
            (hop.weight, adjacency)
        });
        Ok((id, nhg, ways.collect()))
    }

    /// An action for each way to an IPv6 address.
    fn ecmp(&self, address: Ipv6Addr, action: impl Fn(Adjacency) -> Action) -> Resolved<Action> {
        let (_, _, ways) = self.ways(address)?;
        ecmp_group(ways.into_iter().map(|(weight, way)| (weight, way.map(&action))).collect())
    }

    /// An outer header pushed. The outer packet is routed like any other, by its destination, the first segment.
    fn push(
        &self,
        nhg: &NexthopGroup,
        hop: &Nexthop,
        list: &SegmentList,
        reduced: bool,
        action: impl Fn(Adjacency, Vec<u8>) -> Action,
    ) -> Resolved<Action> {
        let segment = plain_list(list)?;
        let (id, outer, ways) = self.ways(segment)?;
        let sysctl = &self.kernel.sysctl;
        let device = sysctl.devices.get(&self.kernel.name(hop.ifindex)).ok_or(PassReason::Unsupported)?;
        let source = match sysctl.tunnel_source {
            Some(source) => source,
            // The kernel does not look at the preferred source of the outer packet's route, nor for temporary addresses.
            None if outer.preferred.is_some() || device.temporary_source => {
                return Err(PassReason::Unsupported);
            }
            // It prefers an address of the route's device, but chooses by destination, so the two must agree.
            None => self
                .sources
                .get(segment, id)
                .filter(|(device, _)| *device == hop.ifindex)
                .map(|(_, source)| source)
                .ok_or(PassReason::Unsupported)?,
        };
        // The kernel encapsulates with the hop limit of the route, else of its device, and then forwards, which takes one off.
        let hop_limit = match u8::try_from(nhg.hop_limit) {
            Ok(0) => device.hop_limit,
            limit => limit.ok(),
        };
        let hop_limit = hop_limit.ok_or(PassReason::Unsupported)?.saturating_sub(1);
        if hop_limit == 0 {
            return Err(PassReason::Unsupported);
        }
        let srh = if reduced { reduce(&list.srh) } else { list.srh.clone() };
        let header = outer_header(source, segment, hop_limit, &srh);
        ecmp_group(
            ways.into_iter()
                .map(|(weight, way)| (weight, way.map(|adjacency| action(adjacency, header.clone()))))
                .collect(),
        )
    }

    /// An SRH inserted: the packet's own header stays, but for its destination.
    fn insert(&self, list: &SegmentList, action: impl Fn(Adjacency, Vec<u8>) -> Action) -> Resolved<Action> {
        let segment = plain_list(list)?;
        let header = outer_header(Ipv6Addr::UNSPECIFIED, segment, 0, &list.srh);
        self.ecmp(segment, |adjacency| action(adjacency, header.clone()))
    }

    /// End.DX2. The kernel hands the frame to the device as it is; what a VLAN device would do with it is its own.
    fn end_dx2(&self, device: u32) -> Resolved<Action> {
        let (ifindex, None, _) = self.out(device)? else { return Err(PassReason::Unsupported) };
        let mtu = self.kernel.links.get(&device).map_or(0, |link| link.mtu);
        let mtu = mtu.min(u16::MAX.into()) as u16;
        Ok(Action::endpoint(Endpoint::EndDx2, Target::Device { ifindex, mtu }))
    }

    /// End.DX4. With a next hop, the kernel looks that up in place of the inner destination. A gateway on the way to it is
    /// where the packet goes. An on-link next hop makes the kernel ask for the inner destination's neighbour instead.
    fn end_dx4(&self, next_hop: Ipv4Addr) -> Resolved<Action> {
        if self.kernel.obstacle(family::INET).is_some() || !self.kernel.parts(family::INET).is_empty() {
            return Err(PassReason::Unsupported);
        }
        if next_hop.is_unspecified() {
            return Ok(Action::endpoint(Endpoint::EndDx4, Target::Port));
        }
        let nhg = match self.route(self.v4, next_hop.into(), self.nexthops4) {
            Some((_, Decision::NexthopGroup(nhg))) => nhg,
            Some((_, Decision::Neighbour(..))) => return Err(PassReason::OnLink),
            _ => return Err(PassReason::Unsupported),
        };
        let nhg = self.nexthops4.get(nhg).filter(|nhg| nhg.kind == kind::UNICAST);
        let nhg = nhg.ok_or(PassReason::Unsupported)?;
        let alive = nhg.hops.iter().filter(|hop| self.kernel.alive(family::INET, hop.ifindex));
        let ways = alive.map(|hop| {
            let adjacency = match hop {
                Nexthop { encap: None, gateway: Some(gateway), ifindex, .. } => {
                    self.adjacency(family::INET, *ifindex, *gateway, nhg.mtu)
                }
                Nexthop { encap: None, gateway: None, .. } => Err(PassReason::OnLink),
                _ => Err(PassReason::Unsupported),
            };
            let action = |adjacency| Action::endpoint(Endpoint::EndDx4, Target::Adjacency(adjacency));
            (hop.weight, adjacency.map(action))
        });
        ecmp_group(ways.collect())
    }
}

/// The first segment of a list that the program can push: no TLVs, no HMAC, not too long.
fn plain_list(list: &SegmentList) -> Resolved<Ipv6Addr> {
    let plain = list.segments.len() <= SEGMENTS
        && list.srh.len() == SRH_FIXED + SEGMENT * list.segments.len()
        && list.srh[5] & SRH_FLAG_HMAC == 0;
    list.segments.first().copied().filter(|_| plain).ok_or(PassReason::Unsupported)
}

/// Without the first segment, which stands in the destination; of one segment nothing is left.
fn reduce(srh: &[u8]) -> Vec<u8> {
    let mut reduced = srh[..srh.len() - SEGMENT].to_vec();
    if reduced.len() == SRH_FIXED {
        return Vec::new();
    }
    reduced[1] -= 2; // length
    reduced[4] -= 1; // last entry
    reduced
}

/// An outer IPv6 header and the SRH. Payload length and the last next header are the packet's and, for IPv6 inside, class, flow
/// label and hop limit.
fn outer_header(source: Ipv6Addr, segment: Ipv6Addr, hop_limit: u8, srh: &[u8]) -> Vec<u8> {
    let mut outer = vec![0x60, 0, 0, 0, 0, 0, NEXT_HEADER_ROUTING, hop_limit];
    outer.extend_from_slice(&source.octets());
    outer.extend_from_slice(&segment.octets());
    outer.extend_from_slice(srh);
    outer
}
