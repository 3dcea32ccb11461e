//! SRv6 routes to actions: headends with their outer headers, endpoints with where their packets go next.

use crate::fib::cause::Cause;
use crate::fib::readers::{Reader, Unclear, comes_to, walk};
use crate::fib::resolve::{Resolved, Resolver, ecmp_group};
use crate::kernel::link::Link;
use crate::kernel::route::{Nexthop, NexthopGroup, kind};
use crate::kernel::seg6::{Behaviour, Encap, Endpoint, Mode, Operand, SegmentList, TableRef};
use crate::kernel::{family, netconf};
use crate::rib::family::{Family, NexthopState};
use crate::rib::nexthop_group::NhgId;
use crate::rib::policy::PolicyRule;
use crate::rib::table::Ip;
use crate::xdp::action::{Action, Adjacency, Headend, PassReason, Target, check_flavours};
use crate::xdp::layout::tl_limits;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SRH_FLAG_HMAC: u8 = 0x08;
const SRH_FIXED: usize = 8;
const SEGMENT: usize = 16;
const IPV6: usize = 40;
const NEXT_HEADER_ROUTING: u8 = 43;
/// VRFs that lead into one another on the way to a first segment.
const VRFS: usize = 4;
/// The most segments that the program pushes.
const SEGMENTS: usize = (tl_limits::TL_OUTER_LONG.0 as usize - IPV6 - SRH_FIXED) / SEGMENT;

/// The ways to an IPv6 address that are alive, with their weights.
type Ways = Vec<(u16, Resolved<Adjacency>)>;

/// Whose packet is looked up, and what is known of it.
#[derive(Clone, Copy)]
enum Asked {
    /// It has this very destination, and perhaps a known source: what a VRF device makes of it is known, too.
    Outer(Option<Ipv6Addr>),
    /// The kernel looks an endpoint's next hop up in place of its destination.
    NextHop,
}

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
                let reversed = family == family::INET && self.kernel.rp_filter(vrf) != 0;
                let plain = vrf.is_up() && self.kernel.forwards(family, vrf.ifindex) && !reversed;
                self.lookup_ids.of(family, vrf.ifindex).filter(|_| plain)
            }
        }
    }

    pub(crate) fn encap(&self, nhg: &NexthopGroup, hop: &Nexthop, encap: &Encap) -> Resolved<Action> {
        let is_loopback = || self.kernel.links.get(&hop.ifindex).is_some_and(Link::is_loopback);
        if nhg.family == family::INET6 && is_loopback() {
            return Err(Cause::Loopback);
        }
        if self.kernel.netconf(family::INET6, netconf::ALL).forwarding != Some(true) {
            return Err(Cause::ForwardingOff);
        }
        self.obstacle(family::INET6)?;
        match encap {
            Encap::Seg6 { mode: Mode::Inline, list } if nhg.family == family::INET6 => {
                self.insert(nhg, list, |adjacency, outer| Action::Insert { adjacency, outer })
            }
            Encap::Seg6 { mode, list } => {
                let (reduced, l2) = match mode {
                    Mode::Encap => (false, false),
                    Mode::EncapRed => (true, false),
                    Mode::L2Encap => (false, true),
                    Mode::L2EncapRed => (true, true),
                    _ => return Err(Cause::Behaviour),
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
            _ => Err(Cause::Behaviour),
        }
    }

    /// Netfilter decides about some packets by their addresses, which change here.
    fn obstacle(&self, family: u8) -> Resolved<()> {
        let some = || {
            let some = !self.kernel.parts(family).is_empty();
            some.then(|| {
                "rules of netfilter concern some packets by their addresses, which change here".into()
            })
        };
        self.kernel.obstacle(family).or_else(some).map_or(Ok(()), |why| Err(Cause::Obstacle(why)))
    }

    fn endpoint(&self, nhg: &NexthopGroup, hop: &Nexthop, behaviour: &Behaviour) -> Resolved<Action> {
        let Behaviour { endpoint, flavours, operand } = behaviour;
        let (endpoint, flavours) = (*endpoint, *flavours);
        let lookup = |family, table| {
            let v4 = matches!(endpoint, Endpoint::EndDt4 | Endpoint::EndDt46);
            self.lookup_of_table(family, table).ok_or(Cause::Table(table, v4))
        };
        check_flavours(endpoint, &flavours).map_err(|_| Cause::Behaviour)?;
        let to = |target| Action::Endpoint { endpoint, flavours, target };
        match (endpoint, operand) {
            (Endpoint::End, _) => Ok(to(Target::Port)),
            (Endpoint::EndDx6, Operand::NextHop(IpAddr::V6(next_hop))) if next_hop.is_unspecified() => {
                Ok(to(Target::Port))
            }
            (_, Operand::NextHop(IpAddr::V6(next_hop))) => {
                let vrf = |ifindex| match endpoint {
                    Endpoint::EndDx6 => Ok(to(Target::Lookup(self.lookup_of_vrf(family::INET6, ifindex)?))),
                    _ => Err(Cause::IntoVrf((*next_hop).into())),
                };
                strictly(*next_hop)?;
                self.agreed((nhg, self.v6, self.nexthops6), None, (*next_hop).into(), |id| {
                    if let Some(ifindex) = self.only_vrf(self.nexthops6, id) {
                        return vrf(ifindex);
                    }
                    let ways = self.ways(id, *next_hop, Asked::NextHop)?;
                    let action = |adjacency| to(Target::Adjacency(adjacency));
                    ecmp_group(ways.into_iter().map(|(weight, way)| (weight, way.map(action))).collect())
                })
            }
            (_, Operand::NextHop(IpAddr::V4(next_hop))) => self.end_dx4(nhg, *next_hop),
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
                self.insert(nhg, list, |adjacency, outer| to(Target::Insert { adjacency, outer }))
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
            (_, Operand::None) => Err(Cause::Behaviour),
        }
    }

    /// The action for packets of `nhg` whose way is the one to `address`. The kernel looks that up for each packet, so the answer must be the
    /// same for all who can meet the route. `from`: their source, if it is known.
    fn agreed<A: Ip>(
        &self,
        (nhg, routes, nexthops): (&NexthopGroup, &Family<A>, NexthopState<'_>),
        from: Option<A>,
        address: A,
        action: impl Fn(NhgId) -> Resolved<Action>,
    ) -> Resolved<Action> {
        let meets = |reader: &Reader| self.meets(nhg, reader);
        let steps = self.lookup_ids.readers.steps((nhg.family, nhg.table), A::NETLINK, meets);
        let mut agreed: Option<Resolved<Action>> = None;
        let mut known = Vec::new();
        for steps in steps {
            let one = self.deciding(steps, (routes, nexthops), from, address).and_then(|id| {
                if known.contains(&id) { Ok(None) } else { action(id).map(|action| Some((id, action))) }
            });
            let one = match one {
                Ok(None) => continue,
                Ok(Some((id, action))) => {
                    known.push(id);
                    Ok(action)
                }
                Err(cause) => Err(cause),
            };
            match &agreed {
                Some(agreed) if *agreed != one => return Err(Cause::Differs(address.ip())),
                _ => agreed = Some(one),
            }
        }
        agreed.unwrap_or(Err(Cause::NoRoute(address.ip())))
    }

    /// Whether a reader's packets may meet a nexthop group of a table that it reads. A SID is one address, about which another route may decide
    /// for them.
    fn meets(&self, nhg: &NexthopGroup, reader: &Reader) -> bool {
        // Packets that a VRF device sends on meet no SID.
        if reader.vrf.is_some_and(|vrf| nhg.sid.is_some() || !self.nexthops4.leads(nhg.family, vrf)) {
            return false;
        }
        let steps = reader.reads(nhg.family);
        let Some((IpAddr::V6(sid), 128)) = nhg.sid else {
            return match nhg.family {
                family::INET => comes_to(steps, nhg.table, (self.v4, self.nexthops4)),
                _ => comes_to(steps, nhg.table, (self.v6, self.nexthops6)),
            };
        };
        match walk(steps, (self.v6, self.nexthops6), None, sid.into()) {
            Ok(Some(answer)) => self.nexthops6.get(answer.nhg) == Some(nhg),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// The nexthop group of the forwarding route that these steps find.
    fn deciding<A: Ip>(
        &self,
        steps: &[PolicyRule],
        (routes, nexthops): (&Family<A>, NexthopState<'_>),
        from: Option<A>,
        address: A,
    ) -> Resolved<NhgId> {
        let of = address.ip();
        let answer = walk(steps, (routes, nexthops), from, address).map_err(|unclear| match unclear {
            Unclear::Rule => Cause::ByRule(of),
            Unclear::Source => Cause::BySource(of),
            Unclear::Route => Cause::ByRoute(of),
        })?;
        let id = answer.ok_or(Cause::NoRoute(of))?.nhg;
        let forwards = nexthops.get(id).is_some_and(|nhg| nhg.kind == kind::UNICAST && !nhg.hops.is_empty());
        if forwards { Ok(id) } else { Err(Cause::NotForwarded(of)) }
    }

    /// The VRF device that a route leads into, if that is its only way.
    fn only_vrf(&self, nexthops: NexthopState<'_>, id: NhgId) -> Option<u32> {
        match &nexthops.get(id)?.hops[..] {
            [hop] if hop.encap.is_none() && self.is_vrf(hop.ifindex) => Some(hop.ifindex),
            _ => None,
        }
    }

    /// The lookup id of the packets that a VRF device sends on.
    fn lookup_of_vrf(&self, family: u8, vrf: u32) -> Resolved<u32> {
        self.lookup_ids.of(family, vrf).ok_or(Cause::Verdict(PassReason::TableFull))
    }

    /// The ways of a route to an IPv6 address, which is itself the neighbour where it is on-link.
    fn ways(&self, id: NhgId, address: Ipv6Addr, asked: Asked) -> Resolved<Ways> {
        self.ways_behind(id, address, asked, VRFS)
    }

    fn ways_behind(&self, id: NhgId, address: Ipv6Addr, asked: Asked, vrfs: usize) -> Resolved<Ways> {
        if let Some(vrf) = self.only_vrf(self.nexthops6, id) {
            let (Asked::Outer(source), Some(steps)) =
                (asked, self.lookup_ids.readers.of_vrf(family::INET6, vrf))
            else {
                return Err(Cause::IntoVrf(address.into()));
            };
            if vrfs == 0 {
                return Err(Cause::IntoVrf(address.into()));
            }
            let routes = (self.v6, self.nexthops6);
            let id = self.deciding(steps, routes, source.map(u128::from), address.into())?;
            return self.ways_behind(id, address, asked, vrfs - 1);
        }
        let nhg = self.nexthops6.get(id).ok_or(Cause::NoRoute(address.into()))?;
        let alive = nhg.hops.iter().filter(|hop| self.kernel.alive(family::INET6, nhg, hop));
        let ways = alive.map(|hop| {
            let gateway = hop.gateway.unwrap_or(IpAddr::V6(address));
            let adjacency = match hop.encap {
                None if self.is_vrf(hop.ifindex) => Err(Cause::IntoVrf(address.into())),
                None => self.adjacency(family::INET6, hop.ifindex, gateway, nhg.mtu),
                Some(_) => Err(Cause::Nested(address.into())),
            };
            (hop.weight, adjacency)
        });
        Ok(ways.collect())
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
        let sysctl = &self.kernel.sysctl;
        let device = sysctl.devices.get(&self.kernel.name(hop.ifindex));
        let source = match sysctl.tunnel_source {
            Some(source) => source,
            None => self.chosen_source(hop.ifindex, segment).ok_or(Cause::Source(hop.ifindex))?,
        };
        // The kernel encapsulates with the hop limit of the route, else of its device, and then forwards, which takes one off.
        let hop_limit = match u8::try_from(nhg.hop_limit) {
            Ok(0) => device.and_then(|device| device.hop_limit),
            limit => limit.ok(),
        };
        let hop_limit = hop_limit.map_or(0, |limit| limit.saturating_sub(1));
        if hop_limit == 0 {
            return Err(Cause::HopLimit);
        }
        let srh = if reduced { reduce(&list.srh) } else { list.srh.clone() };
        let header = outer_header(source, segment, hop_limit, &srh);
        self.towards(nhg, Some(source), segment, |adjacency| action(adjacency, header.clone()))
    }

    /// The outer source that the kernel chooses: it prefers an address of the route's device, but chooses by destination, so the two must
    /// agree. It does not look at the preferred source of the outer packet's route, nor for temporary addresses.
    fn chosen_source(&self, device: u32, segment: Ipv6Addr) -> Option<Ipv6Addr> {
        let settings = self.kernel.sysctl.devices.get(&self.kernel.name(device))?;
        if settings.temporary_source {
            return None;
        }
        let unspecified = Some(u128::from(Ipv6Addr::UNSPECIFIED));
        let own = self.lookup_ids.readers.own(family::INET6);
        let found = walk(own, (self.v6, self.nexthops6), unspecified, segment.into()).ok()??;
        if self.nexthops6.get(found.nhg).is_none_or(|outer| outer.preferred.is_some()) {
            return None;
        }
        let (leaves_by, source) = self.sources.get(segment, found.nhg)?;
        (leaves_by == device).then_some(source)
    }

    /// An SRH inserted: the packet's own header stays, but for its destination.
    fn insert(
        &self,
        nhg: &NexthopGroup,
        list: &SegmentList,
        action: impl Fn(Adjacency, Vec<u8>) -> Action,
    ) -> Resolved<Action> {
        let segment = plain_list(list)?;
        let header = outer_header(Ipv6Addr::UNSPECIFIED, segment, 0, &list.srh);
        self.towards(nhg, None, segment, |adjacency| action(adjacency, header.clone()))
    }

    /// An action for each way to the first segment, the new destination of the packets.
    fn towards(
        &self,
        nhg: &NexthopGroup,
        source: Option<Ipv6Addr>,
        segment: Ipv6Addr,
        action: impl Fn(Adjacency) -> Action,
    ) -> Resolved<Action> {
        strictly(segment)?;
        let routes = (nhg, self.v6, self.nexthops6);
        self.agreed(routes, source.map(u128::from), segment.into(), |id| {
            let ways = self.ways(id, segment, Asked::Outer(source))?;
            ecmp_group(ways.into_iter().map(|(weight, way)| (weight, way.map(&action))).collect())
        })
    }

    /// End.DX2. The kernel hands the frame to the device as it is; what a VLAN device would do with it is its own.
    fn end_dx2(&self, device: u32) -> Resolved<Action> {
        let (ifindex, None, _) = self.out(device)? else { return Err(Cause::Device(device)) };
        let mtu = self.kernel.links.get(&device).map_or(0, |link| link.mtu);
        let mtu = mtu.min(u16::MAX.into()) as u16;
        Ok(Action::endpoint(Endpoint::EndDx2, Target::Device { ifindex, mtu }))
    }

    /// End.DX4. With a next hop, the kernel looks that up in place of the inner destination. A gateway on the way to it is
    /// where the packet goes, and in a VRF its table decides. An on-link next hop makes the kernel ask for the inner destination's neighbour
    /// instead.
    fn end_dx4(&self, nhg: &NexthopGroup, next_hop: Ipv4Addr) -> Resolved<Action> {
        self.obstacle(family::INET)?;
        if next_hop.is_unspecified() {
            return Ok(Action::endpoint(Endpoint::EndDx4, Target::Port));
        }
        // ip_route_input_slow() takes these for martians, or for groups
        if next_hop.is_loopback()
            || next_hop.is_multicast()
            || next_hop.is_broadcast()
            || next_hop.octets()[0] == 0
        {
            return Err(Cause::Special(next_hop.into()));
        }
        let to = |target| Action::endpoint(Endpoint::EndDx4, target);
        self.agreed((nhg, self.v4, self.nexthops4), None, next_hop.into(), |id| {
            if let Some(vrf) = self.only_vrf(self.nexthops4, id) {
                return Ok(to(Target::Lookup(self.lookup_of_vrf(family::INET, vrf)?)));
            }
            let found = self.nexthops4.get(id).ok_or(Cause::NoRoute(next_hop.into()))?;
            let alive = found.hops.iter().filter(|hop| self.kernel.alive(family::INET, found, hop));
            let ways = alive.map(|hop| {
                let adjacency = match hop {
                    Nexthop { encap: Some(_), .. } => Err(Cause::Nested(next_hop.into())),
                    Nexthop { ifindex, .. } if self.is_vrf(*ifindex) => Err(Cause::IntoVrf(next_hop.into())),
                    Nexthop { gateway: Some(gateway), ifindex, .. } => {
                        self.adjacency(family::INET, *ifindex, *gateway, found.mtu)
                    }
                    Nexthop { gateway: None, .. } => Err(Cause::Verdict(PassReason::OnLink)),
                };
                (hop.weight, adjacency.map(|adjacency| to(Target::Adjacency(adjacency))))
            });
            ecmp_group(ways.collect())
        })
    }
}

/// The kernel looks some addresses up on the link that the packet came in by (`rt6_need_strict()`).
fn strictly(address: Ipv6Addr) -> Resolved<()> {
    let special = address.is_unicast_link_local() || address.is_loopback() || address.is_multicast();
    if special { Err(Cause::Special(address.into())) } else { Ok(()) }
}

/// The first segment of a list that the program can push: no TLVs, no HMAC, not too long.
fn plain_list(list: &SegmentList) -> Resolved<Ipv6Addr> {
    let plain = list.segments.len() <= SEGMENTS
        && list.srh.len() == SRH_FIXED + SEGMENT * list.segments.len()
        && list.srh[5] & SRH_FLAG_HMAC == 0;
    list.segments.first().copied().filter(|_| plain).ok_or(Cause::Segments)
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
