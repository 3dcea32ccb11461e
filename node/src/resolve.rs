//! From a path to an action: next hop, neighbour, device, VLAN, MTU and outer header, all found before a packet comes.
//!
//! Whatever this node cannot do exactly as the kernel would becomes "pass", with the reason.

use crate::family::{Decision, Family, View};
use crate::kernel::route::{Hop, Path, kind};
use crate::kernel::seg6::{Behaviour, Encap, Mode};
use crate::kernel::{family, netconf};
use crate::path::PathId;
use crate::rib::Ip;
use crate::world::World;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use trieline_dataplane::{Action, Adjacency, DropReason, PassReason};

/// An action, or why the kernel has to do it.
type Resolved<T> = Result<T, PassReason>;

/// Bytes of an outer header: IPv6 and an SRH of one segment.
const OUTER: usize = 64;
const SRH_FLAG_HMAC: u8 = 0x08;
const NEXT_HEADER_ROUTING: u8 = 43;

/// Everything that a path's action depends on.
#[derive(Clone, Copy)]
pub struct Resolver<'a> {
    /// Links and settings.
    pub world: &'a World,
    /// IPv4 routes and neighbours.
    pub v4: &'a Family<u32>,
    /// IPv6 routes and neighbours.
    pub v6: &'a Family<u128>,
    /// Devices that packets may leave by.
    pub devices: &'a BTreeSet<u32>,
    /// How to look at the routes.
    pub view4: View<'a>,
    /// How to look at the routes.
    pub view6: View<'a>,
    /// Output device and source address that the kernel would choose towards an address, which takes this path.
    pub source: &'a dyn Fn(Ipv6Addr, PathId) -> Option<(u32, Ipv6Addr)>,
}

impl std::fmt::Debug for Resolver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl Resolver<'_> {
    /// The action of a path.
    pub fn path(&self, id: PathId) -> Action {
        let Some(path) = self.view4.paths.get(id) else { return Action::Pass(PassReason::Unsupported) };
        match path.kind {
            kind::UNICAST => self.forwarding(path).unwrap_or_else(Action::Pass),
            kind::LOCAL | kind::BROADCAST | kind::ANYCAST | kind::MULTICAST => {
                Action::Pass(PassReason::Local)
            }
            kind::BLACKHOLE => Action::Drop(DropReason::Blackhole),
            kind::UNREACHABLE => Action::Pass(PassReason::Unreachable),
            kind::PROHIBIT => Action::Pass(PassReason::Prohibit),
            _ => Action::Pass(PassReason::Unsupported),
        }
    }

    /// The action of a host entry.
    pub fn host<A: Ip>(&self, addr: A, link: u32) -> Action {
        self.adjacency(A::NETLINK, link, addr.ip(), 0).map_or_else(Action::Pass, Action::Forward)
    }

    /// The address whose route decides beside the path's own: a segment, or the next hop of a decapsulated packet.
    pub fn depends_on(path: &Path) -> Option<IpAddr> {
        path.hops.iter().find_map(|hop| match &hop.encap {
            Some(Encap::Seg6 { segments, .. }) => segments.first().map(|segment| IpAddr::V6(*segment)),
            Some(Encap::Seg6Local(Behaviour::EndDx4(next_hop))) => Some(IpAddr::V4(*next_hop)),
            _ => None,
        })
    }

    fn forwarding(&self, path: &Path) -> Resolved<Action> {
        let hop = self.hop(path)?;
        match (&hop.encap, hop.gateway) {
            (None, Some(gateway)) => {
                self.adjacency(path.family, hop.ifindex, gateway, path.mtu).map(Action::Forward)
            }
            // on-link: every neighbour has a host entry of its own; the others are yet to be found
            (None, None) => Err(self.out(hop.ifindex).err().unwrap_or(PassReason::Unresolved)),
            (Some(encap), _) => self.encap(path, hop, encap),
        }
    }

    /// The first way out that the kernel's lookup would take.
    fn hop<'p>(&self, path: &'p Path) -> Resolved<&'p Hop> {
        let alive = |hop: &&Hop| self.world.alive(path.family, hop.ifindex);
        path.hops.iter().find(alive).ok_or(PassReason::Unsupported)
    }

    /// The device that frames for a link leave by, its VLAN, and the MAC address they come from.
    fn out(&self, link: u32) -> Resolved<(u32, Option<u16>, [u8; 6])> {
        let found = self.world.links.get(&link).ok_or(PassReason::Unsupported)?;
        if found.egress_qos {
            return Err(PassReason::Unsupported);
        }
        let (device, vlan) = match (found.vlan, found.parent) {
            (Some(vlan), Some(parent)) => (parent, Some(vlan)),
            _ => (link, None),
        };
        let source = found.mac.filter(|_| self.devices.contains(&device)).ok_or(PassReason::Unsupported)?;
        let up =
            found.has_carrier() && self.world.links.get(&device).is_some_and(|device| device.has_carrier());
        // The kernel drops what it sends to a link that is down, and says so.
        if up { Ok((device, vlan, source)) } else { Err(PassReason::Unsupported) }
    }

    /// The header of frames that take packets of a family to a neighbour.
    fn adjacency(&self, family: u8, link: u32, neighbour: IpAddr, route_mtu: u32) -> Resolved<Adjacency> {
        let (ifindex, vlan, source) = self.out(link)?;
        let known = match neighbour {
            IpAddr::V4(addr) => self.v4.neighbours.get(&(addr.into(), link)),
            IpAddr::V6(addr) => self.v6.neighbours.get(&(addr.into(), link)),
        };
        let destination = known.and_then(|known| known.mac).ok_or(PassReason::Unresolved)?;
        let mut mtu = self.world.mtu(family, link);
        if route_mtu != 0 {
            mtu = mtu.min(route_mtu);
        }
        Ok(Adjacency { ifindex, mtu: mtu.min(u16::MAX.into()) as u16, destination, source, vlan })
    }

    fn encap(&self, path: &Path, hop: &Hop, encap: &Encap) -> Resolved<Action> {
        match encap {
            Encap::Seg6 { mode: Mode::Encap, srh, segments } => self.h_encaps(path, hop, srh, segments),
            Encap::Seg6Local(Behaviour::EndDx4(next_hop)) if path.family == family::INET6 => {
                self.end_dx4((*next_hop).into())
            }
            _ => Err(PassReason::Unsupported),
        }
    }

    /// H.Encaps with one segment. The outer packet is routed like any other, by its destination, the segment.
    fn h_encaps(&self, path: &Path, hop: &Hop, srh: &[u8], segments: &[Ipv6Addr]) -> Resolved<Action> {
        let [segment] = segments else { return Err(PassReason::Unsupported) };
        let plain = srh.len() == OUTER - 40 && srh[5] & SRH_FLAG_HMAC == 0;
        let forwards = self.world.netconf(family::INET6, netconf::ALL).forwarding == Some(true);
        let sysctl = &self.world.sysctl;
        if !plain || !forwards || sysctl.seg6_flow_label || self.world.obstacle(family::INET6).is_some() {
            return Err(PassReason::Unsupported);
        }
        let (_, Decision::Path(outer)) =
            self.v6.lookup((*segment).into(), self.view6).ok_or(PassReason::Unsupported)?
        else {
            return Err(PassReason::Unsupported);
        };
        let outer_id = outer;
        let outer = self.view6.paths.get(outer_id).filter(|path| path.kind == kind::UNICAST);
        let outer = outer.ok_or(PassReason::Unsupported)?;
        let device = sysctl.devices.get(&self.world.name(hop.ifindex)).ok_or(PassReason::Unsupported)?;
        let source = match sysctl.tunnel_source {
            Some(source) => source,
            // The kernel does not look at the preferred source of the outer packet's route, nor for temporary addresses.
            None if outer.preferred.is_some() || device.temporary_source => {
                return Err(PassReason::Unsupported);
            }
            // It prefers an address of the route's device; it is asked by destination, so the two must agree.
            None => (self.source)(*segment, outer_id)
                .filter(|(device, _)| *device == hop.ifindex)
                .map(|(_, source)| source)
                .ok_or(PassReason::Unsupported)?,
        };
        let next = self.hop(outer)?;
        if next.encap.is_some() {
            return Err(PassReason::Unsupported);
        }
        let gateway = next.gateway.unwrap_or(IpAddr::V6(*segment));
        let adjacency = self.adjacency(family::INET6, next.ifindex, gateway, outer.mtu)?;
        // The kernel encapsulates with the hop limit of the route, else of its device, and then forwards, which takes one off.
        let hop_limit = match u8::try_from(path.hop_limit) {
            Ok(0) => device.hop_limit,
            limit => limit.ok(),
        };
        let hop_limit = hop_limit.ok_or(PassReason::Unsupported)?.saturating_sub(1);
        if hop_limit == 0 {
            return Err(PassReason::Unsupported);
        }
        let inner = if path.family == family::INET { 4 } else { 41 };
        Ok(Action::Encaps { adjacency, outer: outer_header(source, *segment, hop_limit, inner, srh) })
    }

    /// End.DX4. With a next hop, the kernel looks that up in place of the inner destination; a gateway on the way to it is
    /// where the packet goes. An on-link next hop makes the kernel ask for the inner destination's neighbour instead.
    fn end_dx4(&self, next_hop: u32) -> Resolved<Action> {
        if self.world.obstacle(family::INET).is_some() {
            return Err(PassReason::Unsupported);
        }
        if next_hop == 0 {
            return Ok(Action::EndDx4 { adjacency: None });
        }
        let Some((_, Decision::Path(path))) = self.v4.lookup(next_hop, self.view4) else {
            return Err(PassReason::Unsupported);
        };
        let path = self.view4.paths.get(path).filter(|path| path.kind == kind::UNICAST);
        let path = path.ok_or(PassReason::Unsupported)?;
        match self.hop(path)? {
            Hop { encap: None, gateway: Some(gateway), ifindex, .. } => {
                let adjacency = self.adjacency(family::INET, *ifindex, *gateway, path.mtu)?;
                Ok(Action::EndDx4 { adjacency: Some(adjacency) })
            }
            _ => Err(PassReason::Unsupported),
        }
    }
}

/// An outer IPv6 header and the route's SRH. Payload length and, for IPv6 inside, class, flow label and hop limit are the
/// packet's.
fn outer_header(source: Ipv6Addr, segment: Ipv6Addr, hop_limit: u8, inner: u8, srh: &[u8]) -> Vec<u8> {
    let mut outer = vec![0x60, 0, 0, 0, 0, 0, NEXT_HEADER_ROUTING, hop_limit];
    outer.extend_from_slice(&source.octets());
    outer.extend_from_slice(&segment.octets());
    outer.push(inner);
    outer.extend_from_slice(&srh[1..]);
    outer
}
