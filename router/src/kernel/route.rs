//! Routes, decoded at the speed of the kernel's dump.
//!
//! A million routes share a few hundred ways of forwarding, so a message is split in two. The prefix and metric are decoded at once.
//! Everything else becomes the *key* of a nexthop group: the bytes that decide how packets are forwarded. Fields that change by themselves
//! (flags of the moment, timers) are left out. Only a key never seen before is decoded further, by [`decode_nhg`].

use super::attribute::{Attributes, FLAG_DUMP, Request, address_bytes, read_address, read_u16, read_u32};
use super::known::{self, Unknown};
use super::seg6::{self, Encap};
use super::{family, message};
use std::net::IpAddr;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_FLOW: u16 = 11;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;
const RTAX_HOPLIMIT: u16 = 10;
const RTM_F_CLONED: u32 = 0x200;
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const SCOPE_HOST: u8 = 254;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_ONLINK: u8 = 4;

/// Bytes of `struct rtmsg`.
const FIXED: usize = 12;

/// A route's type: `rtm_type`.
pub mod kind {
    /// Forwards.
    pub const UNICAST: u8 = 1;
    /// Delivers to this node.
    pub const LOCAL: u8 = 2;
    /// Delivers as broadcast.
    pub const BROADCAST: u8 = 3;
    /// Delivers as anycast.
    pub const ANYCAST: u8 = 4;
    /// Delivers as multicast.
    pub const MULTICAST: u8 = 5;
    /// Drops silently.
    pub const BLACKHOLE: u8 = 6;
    /// Drops with ICMP destination unreachable.
    pub const UNREACHABLE: u8 = 7;
    /// Drops with ICMP administratively prohibited.
    pub const PROHIBIT: u8 = 8;
    /// Goes on with the next rule.
    pub const THROW: u8 = 9;

    /// As `ip route` calls it.
    pub fn name(kind: u8) -> &'static str {
        match kind {
            UNICAST => "unicast",
            LOCAL => "local",
            BROADCAST => "broadcast",
            ANYCAST => "anycast",
            MULTICAST => "multicast",
            BLACKHOLE => "blackhole",
            UNREACHABLE => "unreachable",
            PROHIBIT => "prohibit",
            THROW => "throw",
            _ => "unknown",
        }
    }
}

/// A route message, decoded as far as every route needs it.
#[derive(Debug, Clone, Copy)]
pub struct RouteMessage<'a> {
    /// Address family.
    pub family: u8,
    /// Destination address's bytes; empty for the prefix of length 0.
    pub destination: &'a [u8],
    /// Length of the destination prefix.
    pub prefix_len: u8,
    /// Table.
    pub table: u32,
    /// Metric; the lowest wins.
    pub metric: u32,
    /// Hundredths of a second until the route ends; negative: it has ended, and the kernel has yet to remove it. `None`: it has no end.
    pub ends_in: Option<i32>,
    payload: &'a [u8],
}

/// Decodes the payload of a route message; `None` also for cached copies, which are no routes.
#[inline]
pub fn decode(payload: &[u8]) -> Option<RouteMessage<'_>> {
    let fixed = payload.first_chunk::<FIXED>()?;
    if read_u32(&fixed[8..])? & RTM_F_CLONED != 0 {
        return None;
    }
    let mut route = RouteMessage {
        family: fixed[0],
        destination: &[],
        prefix_len: fixed[1],
        table: u32::from(fixed[4]),
        metric: 0,
        ends_in: None,
        payload,
    };
    for (kind, value) in Attributes::new(&payload[FIXED..]) {
        match kind {
            RTA_DST => route.destination = value,
            RTA_PRIORITY => route.metric = read_u32(value)?,
            RTA_TABLE => route.table = read_u32(value)?,
            RTA_CACHEINFO => route.ends_in = ends_in(value),
            _ => {}
        }
    }
    Some(route)
}

impl RouteMessage<'_> {
    /// Appends the key of the nexthop group to `key`.
    #[inline]
    pub fn nhg_key(&self, key: &mut Vec<u8>) {
        self.key_with(RTNH_F_DEAD, key);
    }

    /// That key with these flags of next hops, which tell of the moment.
    #[inline]
    fn key_with(&self, moment: u8, key: &mut Vec<u8>) {
        let fixed = self.payload;
        // family, source length, TOS, protocol, scope, type, "on link": the other flags tell of the moment
        key.extend_from_slice(&[
            fixed[0],
            fixed[2],
            fixed[3],
            fixed[5],
            fixed[6],
            fixed[7],
            fixed[8] & RTNH_F_ONLINK,
        ]);
        let unknown = flags(fixed) & !known::ROUTE_FLAGS;
        if unknown != 0 {
            key.extend_from_slice(&unknown.to_ne_bytes());
        }
        let mut asks_again = false;
        for (kind, value) in Attributes::new(&fixed[FIXED..]) {
            asks_again |= matches!(kind, RTA_ENCAP | RTA_MULTIPATH | RTA_NH_ID);
            match kind {
                RTA_DST | RTA_PRIORITY | RTA_TABLE | RTA_PREF => {}
                // timers; of them only whether there is an end
                RTA_CACHEINFO => key.push(ends_in(value).is_some().into()),
                RTA_MULTIPATH => {
                    key.extend_from_slice(&((value.len() as u32) << 16 | u32::from(kind)).to_ne_bytes());
                    let start = key.len();
                    key.extend_from_slice(value);
                    // the flags of each next hop: the known ones but "on link" tell of the moment
                    let mut at = start;
                    while let Some(hop) = key.get(at..at + 8) {
                        let len = usize::from(u16::from_ne_bytes([hop[0], hop[1]]));
                        key[at + 2] &= moment | RTNH_F_ONLINK | !(known::HOP_FLAGS as u8);
                        at += super::attribute::aligned(len.max(8));
                    }
                }
                RTA_ENCAP_TYPE if read_u16(value) == Some(seg6::TYPE_SEG6_LOCAL) => {
                    key.extend_from_slice(self.destination);
                    key.push(self.prefix_len);
                }
                RTA_ENCAP => {
                    key.extend_from_slice(&((value.len() as u32) << 16 | u32::from(kind)).to_ne_bytes());
                    seg6::key(value, key);
                }
                _ => {
                    key.extend_from_slice(&((value.len() as u32) << 16 | u32::from(kind)).to_ne_bytes());
                    key.extend_from_slice(value);
                }
            }
        }
        if asks_again {
            key.extend_from_slice(&self.table.to_ne_bytes());
        }
    }

    /// Decodes the whole path.
    pub fn nhg(&self) -> NexthopGroup {
        let mut nhg = decode_nhg(self.payload);
        if nhg.asks_again() {
            nhg.table = self.table;
        }
        if nhg.unknown.is_some() || self.has_more() {
            self.key_with(0, &mut nhg.foreign);
        }
        nhg
    }

    /// Whether IPv4 takes it for another route by something that changes nothing for packets that are forwarded.
    fn has_more(&self) -> bool {
        let is_more = |(kind, value): (u16, &[u8])| match kind {
            RTA_FLOW => true,
            RTA_METRICS => Attributes::new(value).any(|(kind, _)| ![RTAX_MTU, RTAX_HOPLIMIT].contains(&kind)),
            _ => false,
        };
        self.family == family::INET && Attributes::new(&self.payload[FIXED..]).any(is_more)
    }
}

/// One way out of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nexthop {
    /// Output device; 0 = none.
    pub ifindex: u32,
    /// The router to send to; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The router is on the link whatever the routes say.
    pub onlink: bool,
    /// Share of the traffic, for multipath.
    pub weight: u16,
    /// One of several that the kernel has marked as dead. It does so when the link goes down, and without a message when the link's last
    /// address goes.
    pub dead: bool,
    /// The encapsulation or SRv6 behaviour, besides forwarding.
    pub encap: Option<Encap>,
}

impl NexthopGroup {
    /// Whether it has metrics that count for packets that are forwarded.
    pub fn has_metrics(&self) -> bool {
        (self.mtu, self.hop_limit) != (0, 0)
    }

    /// Whether the kernel looks it up though its link is down or has no carrier: a route of scope host, which it takes for one of its own
    /// addresses (`fib_sync_down_dev` passes over them).
    pub fn outlives_its_link(&self) -> bool {
        self.family == family::INET && self.scope == SCOPE_HOST && self.nexthop.is_none()
    }

    /// Whether its next hops have metrics that the kernel does not tell.
    pub fn hides_metrics(&self) -> bool {
        self.unknown == Some(Unknown::HopMetrics)
    }

    /// Whether both are the same, apart from next hops that the kernel has marked as dead meanwhile.
    pub fn is_alike(&self, other: &Self) -> bool {
        let hops = self.hops.iter().zip(&other.hops);
        self.hops.len() == other.hops.len()
            && hops.clone().all(|(hop, of)| Nexthop { dead: of.dead, ..hop.clone() } == *of)
            && Self { hops: other.hops.clone(), ..self.clone() } == *other
    }

    /// It selects by more than the destination, or in a way that trieline does not know.
    pub fn selects_more(&self) -> bool {
        self.tos != 0 || self.source_len != 0 || self.unknown.is_some()
    }

    /// It may encapsulate or be an endpoint: then the kernel looks further addresses up, by the rules for packets that met its table.
    pub fn asks_again(&self) -> bool {
        self.nexthop.is_some() || self.hops.iter().any(|hop| hop.encap.is_some())
    }
}

impl Nexthop {
    /// Whether packets go to their destination's own neighbour.
    pub fn is_on_link(&self) -> bool {
        self.gateway.is_none() && self.encap.is_none()
    }
}

/// How packets of a route are forwarded: everything but its prefix and metric.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NexthopGroup {
    /// Address family of the route.
    pub family: u8,
    /// The route's type; see [`kind`].
    pub kind: u8,
    /// The protocol that made the route (`ip route`'s `proto`).
    pub protocol: u8,
    /// Scope.
    pub scope: u8,
    /// TOS selector; routes that have one are left to the kernel.
    pub tos: u8,
    /// Length of the source selector (IPv6 `from`); routes that have one are left to the kernel.
    pub source_len: u8,
    /// Preferred source address.
    pub preferred: Option<IpAddr>,
    /// MTU of the route; 0 = the device's.
    pub mtu: u32,
    /// Hop limit of packets that are made here, such as outer headers; 0 = the device's.
    pub hop_limit: u32,
    /// Id of the next hop object.
    pub nexthop: Option<u32>,
    /// The route ends at some time (router advertisements). The kernel stops using it then, and reports it later: see
    /// [`NexthopGroups::is_expiring`](crate::rib::nexthop_group::NexthopGroups::is_expiring).
    pub expires: bool,
    /// The first thing in the message that trieline does not know: what becomes of the packets only the kernel can say.
    pub unknown: Option<Unknown>,
    /// Then, and where IPv4 has routes that differ in nothing but what trieline need not know, the whole key; else empty.
    pub foreign: Vec<u8>,
    /// The prefix of an SRv6 endpoint (`encap seg6local`): each is a path of its own, and its packets are counted apart.
    pub sid: Option<(IpAddr, u8)>,
    /// The table, where what becomes of packets depends on it: see [`NexthopGroup::asks_again`]. Else 0.
    pub table: u32,
    /// The ways out; one unless multipath, none for a route that does not forward.
    pub hops: Vec<Nexthop>,
}

/// Decodes everything of a route message that is not its prefix and metric. Missing parts stay empty.
pub fn decode_nhg(payload: &[u8]) -> NexthopGroup {
    let mut fixed = [0; FIXED];
    fixed.copy_from_slice(payload.get(..FIXED).unwrap_or(&[0; FIXED]));
    let mut nhg = NexthopGroup {
        family: fixed[0],
        kind: fixed[7],
        protocol: fixed[5],
        scope: fixed[6],
        tos: fixed[3],
        source_len: fixed[2],
        preferred: None,
        mtu: 0,
        hop_limit: 0,
        nexthop: None,
        expires: false,
        unknown: None,
        foreign: Vec::new(),
        sid: None,
        table: 0,
        hops: Vec::new(),
    };
    let attributes = Attributes::new(payload.get(FIXED..).unwrap_or_default());
    let foreign = flags(&fixed) & !known::ROUTE_FLAGS;
    nhg.unknown = (foreign != 0).then_some(Unknown::Flags(foreign));
    for (kind, value) in attributes.clone() {
        match kind {
            RTA_PREFSRC => nhg.preferred = read_address(value),
            RTA_METRICS => {
                let metric = |kind| Attributes::new(value).find(kind).and_then(read_u32).unwrap_or(0);
                (nhg.mtu, nhg.hop_limit) = (metric(RTAX_MTU), metric(RTAX_HOPLIMIT));
                nhg.unknown = nhg.unknown.or(known::unknown_metric(Attributes::new(value)));
            }
            RTA_NH_ID => nhg.nexthop = read_u32(value),
            RTA_CACHEINFO => nhg.expires = ends_in(value).is_some(),
            RTA_MULTIPATH => {
                let (hops, unknown) = decode_multipath(value);
                (nhg.hops, nhg.unknown) = (hops, nhg.unknown.or(unknown));
            }
            RTA_ENCAP_TYPE if read_u16(value) == Some(seg6::TYPE_SEG6_LOCAL) => {
                let address = attributes.clone().find(RTA_DST).and_then(read_address);
                nhg.sid = address.map(|address| (address, fixed[1]));
            }
            _ if !known::ROUTE.has(kind) => nhg.unknown = nhg.unknown.or(Some(Unknown::Attribute(kind))),
            _ => {}
        }
    }
    if nhg.nexthop.is_some() {
        // The kernel takes an object's members away.
        nhg.hops.iter_mut().for_each(|hop| hop.dead = false);
    } else if nhg.family == family::INET6 && nhg.hops.len() > 1 && nhg.has_metrics() {
        // The message tells those of one next hop.
        nhg.unknown = nhg.unknown.or(Some(Unknown::HopMetrics));
    }
    if nhg.hops.is_empty() {
        let ifindex = attributes.clone().find(RTA_OIF).and_then(read_u32).unwrap_or(0);
        let hop = decode_hop(attributes, ifindex, fixed[8], 1);
        if hop.ifindex != 0 || hop.gateway.is_some() {
            nhg.hops.push(hop);
        }
    }
    nhg
}

/// `rtm_flags` of `struct rtmsg`.
fn flags(fixed: &[u8]) -> u32 {
    fixed.get(8..).and_then(read_u32).unwrap_or_default()
}

/// `rta_expires` of `struct rta_cacheinfo`; 0 means that the route does not end.
fn ends_in(cacheinfo: &[u8]) -> Option<i32> {
    cacheinfo.get(8..).and_then(read_u32).map(u32::cast_signed).filter(|left| *left != 0)
}

fn decode_hop(attributes: Attributes<'_>, ifindex: u32, flags: u8, weight: u16) -> Nexthop {
    let onlink = flags & RTNH_F_ONLINK != 0;
    let mut hop = Nexthop { ifindex, gateway: None, onlink, weight, dead: false, encap: None };
    let (mut encap_type, mut encap) = (0, &[][..]);
    for (kind, value) in attributes {
        match kind {
            RTA_GATEWAY => hop.gateway = read_address(value),
            // struct rtvia: family, address
            RTA_VIA => hop.gateway = value.get(2..).and_then(read_address),
            RTA_ENCAP_TYPE => encap_type = read_u16(value).unwrap_or(0),
            RTA_ENCAP => encap = value,
            _ => {}
        }
    }
    if encap_type != 0 {
        hop.encap = Some(seg6::decode(encap_type, encap));
    }
    hop
}

/// `RTA_MULTIPATH`: a run of `struct rtnexthop`, each followed by its attributes; and what of them is not known.
fn decode_multipath(mut bytes: &[u8]) -> (Vec<Nexthop>, Option<Unknown>) {
    let (mut hops, mut unknown) = (Vec::new(), None);
    while let Some(fixed) = bytes.first_chunk::<8>() {
        let len = usize::from(u16::from_ne_bytes([fixed[0], fixed[1]]));
        let Some(attributes) = bytes.get(8..len) else { return (hops, Some(Unknown::Damaged)) };
        let flags = u32::from(fixed[2]) & !known::HOP_FLAGS;
        let foreign = known::HOP.first_unknown(Attributes::new(attributes)).map(Unknown::HopAttribute);
        unknown = unknown.or(foreign).or((flags != 0).then_some(Unknown::Flags(flags)));
        let ifindex = u32::from_ne_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        let hop = decode_hop(Attributes::new(attributes), ifindex, fixed[2], u16::from(fixed[3]) + 1);
        hops.push(Nexthop { dead: fixed[2] & RTNH_F_DEAD != 0, ..hop });
        bytes = bytes.get(super::attribute::aligned(len)..).unwrap_or_default();
    }
    (hops, unknown)
}

/// Asks for all routes of a family, of all tables.
pub fn dump(family: u8) -> Request {
    let mut fixed = [0; FIXED];
    fixed[0] = family;
    Request::new(message::GET_ROUTE, FLAG_DUMP, &fixed)
}

/// Asks which source address the kernel would use towards `destination` (`RTA_PREFSRC` of the answer).
pub fn source_for(destination: &IpAddr) -> Request {
    let mut fixed = [0; FIXED];
    fixed[0] = if destination.is_ipv4() { family::INET } else { family::INET6 };
    fixed[1] = if destination.is_ipv4() { 32 } else { 128 };
    Request::new(message::GET_ROUTE, 0, &fixed).attribute(RTA_DST, &address_bytes(destination))
}

/// Asks which route the kernel's lookup finds for a packet of this node to `destination`. The answer is the route itself, with its prefix
/// and all next hops. `device`: a VRF's, whose table is asked; 0: the rules decide.
pub fn matching(destination: &IpAddr, device: u32) -> Request {
    let mut fixed = [0; FIXED];
    fixed[0] = if destination.is_ipv4() { family::INET } else { family::INET6 };
    fixed[1] = if destination.is_ipv4() { 32 } else { 128 };
    // IPv6 always tells the table, and refuses the flag that asks for it.
    let table = if destination.is_ipv4() { RTM_F_LOOKUP_TABLE } else { 0 };
    fixed[8..].copy_from_slice(&(table | RTM_F_FIB_MATCH).to_ne_bytes());
    let request = Request::new(message::GET_ROUTE, 0, &fixed).attribute(RTA_DST, &address_bytes(destination));
    if device == 0 { request } else { request.attribute(RTA_OIF, &device.to_ne_bytes()) }
}

/// Output device and source address in the answer to [`source_for`].
pub fn decode_source(payload: &[u8]) -> Option<(u32, IpAddr)> {
    let attributes = Attributes::new(payload.get(FIXED..)?);
    let ifindex = attributes.clone().find(RTA_OIF).and_then(read_u32)?;
    Some((ifindex, attributes.find(RTA_PREFSRC).and_then(read_address)?))
}

#[cfg(test)]
#[path = "route_tests.rs"]
pub(crate) mod tests;
