//! The routes of one kernel table, in the kernel's order, so that the first usable one of the longest prefix answers.

use crate::kernel::attribute::{FLAG_APPEND, FLAG_REPLACE};
use crate::kernel::family;
use crate::kernel::known::Unknown;
use crate::kernel::route::{Nexthop, NexthopGroup};
use crate::rib::nexthop_group::{NexthopGroups, NhgId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use trieline_lpm::{Address, Prefix};

/// An address as netlink carries it.
pub trait Ip: Address + std::hash::Hash {
    /// Address family in netlink.
    const NETLINK: u8;
    /// The address from its bytes; empty means all zero.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
    /// The address, when it is of this family.
    fn from_ip(ip: IpAddr) -> Option<Self>;
    /// As the standard library's type.
    fn ip(self) -> IpAddr;
}

impl Ip for u32 {
    const NETLINK: u8 = family::INET;
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() { Some(0) } else { bytes.try_into().ok().map(u32::from_be_bytes) }
    }
    fn from_ip(ip: IpAddr) -> Option<Self> {
        if let IpAddr::V4(ip) = ip { Some(ip.into()) } else { None }
    }
    fn ip(self) -> IpAddr {
        Ipv4Addr::from(self).into()
    }
}

impl Ip for u128 {
    const NETLINK: u8 = family::INET6;
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() { Some(0) } else { bytes.try_into().ok().map(u128::from_be_bytes) }
    }
    fn from_ip(ip: IpAddr) -> Option<Self> {
        if let IpAddr::V6(ip) = ip { Some(ip.into()) } else { None }
    }
    fn ip(self) -> IpAddr {
        Ipv6Addr::from(self).into()
    }
}

/// One route of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Metric; the lowest wins.
    pub metric: u32,
    /// How packets are forwarded.
    pub nhg: NhgId,
}

/// The routes of one prefix, best first. Nearly always one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Routes {
    One(Route),
    Many(Box<[Route]>),
}

impl Routes {
    fn as_slice(&self) -> &[Route] {
        match self {
            Self::One(route) => std::slice::from_ref(route),
            Self::Many(routes) => routes,
        }
    }

    fn to_vec(&self) -> Vec<Route> {
        self.as_slice().to_vec()
    }

    fn from_vec(routes: Vec<Route>) -> Option<Self> {
        match routes[..] {
            [] => None,
            [route] => Some(Self::One(route)),
            _ => Some(Self::Many(routes.into())),
        }
    }
}

/// Whether a change of the kernel's could be followed exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Followed {
    /// The table is as the kernel's.
    Exactly,
    /// The message did not fit what was known: ask the kernel for everything.
    Ambiguously,
}

/// The routes of one kernel table and family.
#[derive(Debug)]
pub struct Table<A: Ip> {
    prefixes: BTreeMap<Prefix<A>, Routes>,
    /// How many prefixes of each length there are.
    lengths: Vec<u32>,
    routes: usize,
    /// Prefix and metric of the routes that changed during a dump.
    touched: Option<BTreeSet<(Prefix<A>, u32)>>,
    /// Prefixes that the last dump missed although they should exist.
    missed: BTreeSet<Prefix<A>>,
}

impl<A: Ip> Default for Table<A> {
    fn default() -> Self {
        Self {
            prefixes: BTreeMap::new(),
            lengths: vec![0; usize::from(A::WIDTH) + 1],
            routes: 0,
            touched: None,
            missed: BTreeSet::new(),
        }
    }
}

impl<A: Ip> Table<A> {
    /// The table of a dump's routes; routes of one prefix are in the kernel's order. O(n), or O(n log n) when the
    /// prefixes are not in order.
    pub fn from_dump(mut dump: Vec<(Prefix<A>, Route)>) -> Self {
        if !dump.is_sorted_by_key(|(prefix, _)| *prefix) {
            dump.sort_by_key(|(prefix, _)| *prefix); // stable: keeps the kernel's order
        }
        let mut table = Self { routes: dump.len(), ..Self::default() };
        let mut grouped: Vec<(Prefix<A>, Routes)> = Vec::with_capacity(dump.len());
        for (prefix, route) in dump {
            match grouped.last_mut() {
                // IPv6 tells a route again when others came in front of it.
                Some((last, routes)) if *last == prefix && routes.as_slice().contains(&route) => {
                    table.routes -= 1;
                }
                Some((last, routes)) if *last == prefix => {
                    let mut more = routes.to_vec();
                    more.push(route);
                    more.sort_by_key(|route| route.metric);
                    *routes = Routes::Many(more.into());
                }
                _ => {
                    table.lengths[usize::from(prefix.len())] += 1;
                    grouped.push((prefix, Routes::One(route)));
                }
            }
        }
        table.prefixes = grouped.into_iter().collect();
        table
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Number of routes.
    pub fn routes(&self) -> usize {
        self.routes
    }

    /// The routes of exactly `prefix`, best first; empty when there are none.
    pub fn get(&self, prefix: &Prefix<A>) -> &[Route] {
        self.prefixes.get(prefix).map_or(&[], Routes::as_slice)
    }

    /// All prefixes with their routes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, &[Route])> {
        self.prefixes.iter().map(|(prefix, routes)| (*prefix, routes.as_slice()))
    }

    /// The prefixes that `prefix` covers, itself included, in order.
    pub fn within(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, &[Route])> {
        self.prefixes
            .range(prefix..=Prefix::host(prefix.last()))
            .filter(move |(found, _)| prefix.covers(found))
            .map(|(found, routes)| (*found, routes.as_slice()))
    }

    /// The prefixes from `prefix` on, in order.
    pub fn from(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, &[Route])> {
        self.prefixes.range(prefix..).map(|(found, routes)| (*found, routes.as_slice()))
    }

    /// The prefixes that cover `prefix`, itself included, longest first. O(lengths in use · log n).
    pub fn covering(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, &[Route])> {
        (0..=prefix.len()).rev().filter(|len| self.lengths[usize::from(*len)] != 0).filter_map(move |len| {
            let covering = Prefix::truncated(prefix.addr(), len);
            self.prefixes.get(&covering).map(|routes| (covering, routes.as_slice()))
        })
    }

    /// Follows a "new route" message with the flags of its header.
    pub fn add(&mut self, prefix: Prefix<A>, route: Route, flags: u16, nhgs: &mut NexthopGroups) -> Followed {
        self.touch(prefix, route.metric);
        let mut routes = self.get(&prefix).to_vec();
        let followed = if A::NETLINK == family::INET {
            add_ipv4(&mut routes, route, flags, nhgs)
        } else {
            add_ipv6(&mut routes, route, flags, nhgs)
        };
        self.put(prefix, routes);
        followed
    }

    /// Follows a "route is gone" message.
    pub fn remove(&mut self, prefix: Prefix<A>, route: Route, nhgs: &mut NexthopGroups) -> Followed {
        self.touch(prefix, route.metric);
        let mut routes = self.get(&prefix).to_vec();
        let exact = routes.iter().position(|known| *known == route);
        let followed = if let Some(at) = exact.or_else(|| alike(&routes, route, nhgs)) {
            routes.remove(at);
            followed(nhgs.get(route.nhg))
        } else if A::NETLINK == family::INET6 {
            remove_ipv6(&mut routes, route, nhgs)
        } else {
            Followed::Ambiguously
        };
        self.put(prefix, routes);
        followed
    }

    /// From now on it remembers which routes change: a dump begins.
    pub fn watch(&mut self) {
        self.touched = Some(BTreeSet::new());
    }

    /// Whether routes changed since it was watched.
    pub fn is_touched(&self) -> bool {
        self.touched.as_ref().is_some_and(|touched| !touched.is_empty())
    }

    fn touch(&mut self, prefix: Prefix<A>, metric: u32) {
        if let Some(touched) = &mut self.touched {
            touched.insert((prefix, metric));
        }
    }

    /// Makes a dump that changes disturbed as whole as can be. `before` was watched meanwhile, and followed the changes: of
    /// the routes they touched only it knows the order of events.
    ///
    /// IPv6 leaves routes out of a dump when others in front of them go. A missed route is kept, once: a route that two such dumps in a row
    /// miss is gone.
    pub fn repair(&mut self, before: &Self) {
        let ipv6 = A::NETLINK == family::INET6;
        let none = BTreeSet::new();
        let touched = before.touched.as_ref().unwrap_or(&none);
        let mut unsure: Vec<_> = touched.iter().map(|(prefix, _)| *prefix).collect();
        if ipv6 {
            unsure.extend(before.prefixes.keys().filter(|prefix| !self.prefixes.contains_key(prefix)));
        }
        unsure.sort_unstable();
        unsure.dedup();
        for prefix in unsure {
            let (changed, quiet): (Vec<Route>, Vec<Route>) =
                before.get(&prefix).iter().partition(|route| touched.contains(&(prefix, route.metric)));
            let mut routes = self.get(&prefix).to_vec();
            routes.retain(|route| !touched.contains(&(prefix, route.metric)));
            if ipv6 && routes.is_empty() && !quiet.is_empty() && !before.missed.contains(&prefix) {
                self.missed.insert(prefix);
                routes = quiet;
            }
            routes.extend(changed);
            routes.sort_by_key(|route| route.metric);
            self.put(prefix, routes);
        }
    }

    /// Knows of these routes again, whose next hops have metrics of their own, what `before` knew: a dump tells those of one.
    pub fn hide_metrics(&mut self, before: &Self, nhgs: &mut NexthopGroups) {
        let hides = |route: &&Route, nhgs: &NexthopGroups| {
            nhgs.get(route.nhg).is_some_and(NexthopGroup::hides_metrics)
        };
        for (prefix, known) in before.iter() {
            for hid in known.iter().filter(|route| hides(route, nhgs)).copied().collect::<Vec<_>>() {
                let mut routes = self.get(&prefix).to_vec();
                let is_it = |route: &&mut Route| {
                    route.metric == hid.metric
                        && nhgs.get(route.nhg).is_some_and(|nhg| nhg.hops.len() > 1 && nhg.nexthop.is_none())
                };
                let Some(route) = routes.iter_mut().find(is_it) else { continue };
                *route = hiding(*route, nhgs);
                self.put(prefix, routes);
            }
        }
    }

    fn put(&mut self, prefix: Prefix<A>, routes: Vec<Route>) {
        let (count, length) = (routes.len(), &mut self.lengths[usize::from(prefix.len())]);
        let before = match Routes::from_vec(routes) {
            None => self.prefixes.remove(&prefix),
            Some(routes) => self.prefixes.insert(prefix, routes),
        };
        let before = before.map_or(0, |routes| routes.as_slice().len());
        *length = *length + u32::from(count > 0) - u32::from(before > 0);
        self.routes = self.routes + count - before;
    }
}

/// The route that is this one, though next hops may have died or come to life since.
fn alike(routes: &[Route], route: Route, nhgs: &NexthopGroups) -> Option<usize> {
    let nhg = nhgs.get(route.nhg).filter(|nhg| nhg.hops.len() > 1)?;
    let is_alike = |known: &Route| {
        known.metric == route.metric && nhgs.get(known.nhg).is_some_and(|known| known.is_alike(nhg))
    };
    routes.iter().position(is_alike)
}

/// IPv6 routes of one prefix that select by the source are each by itself in the kernel, and here are not.
fn followed(nhg: Option<&NexthopGroup>) -> Followed {
    if nhg.is_some_and(|nhg| nhg.source_len != 0) { Followed::Ambiguously } else { Followed::Exactly }
}

/// IPv4 (`net/ipv4/fib_trie.c`): ordered by TOS, highest first, then metric. A replaced route is the first of the same TOS and
/// metric; a new one stands before those, an appended one behind.
fn add_ipv4(routes: &mut Vec<Route>, route: Route, flags: u16, nhgs: &NexthopGroups) -> Followed {
    let key = |route: &Route| (u8::MAX - nhgs.get(route.nhg).map_or(0, |nhg| nhg.tos), route.metric);
    let equal = routes.iter().position(|known| key(known) == key(&route));
    if flags & FLAG_REPLACE != 0 {
        if let Some(at) = equal {
            routes[at] = route;
            let mut index = 0;
            routes.retain(|known| {
                index += 1;
                index - 1 == at || *known != route
            });
            return Followed::Exactly;
        }
    } else if routes.contains(&route) || alike(routes, route, nhgs).is_some() {
        return Followed::Exactly; // a dump had it already
    }
    let at = match equal {
        Some(first) if flags & FLAG_APPEND == 0 => first,
        _ => routes.iter().position(|known| key(known) > key(&route)).unwrap_or(routes.len()),
    };
    routes.insert(at, route);
    Followed::Exactly
}

const RTPROT_RA: u8 = 9;

/// Whether the kernel joins IPv6 routes of one metric into a multipath route (`rt6_qualify_for_ecmp`).
fn joins(nhg: Option<&NexthopGroup>) -> bool {
    nhg.is_some_and(|nhg| {
        nhg.nexthop.is_none()
            && nhg.protocol != RTPROT_RA
            && nhg.source_len == 0
            && nhg.hops.iter().any(|hop| hop.gateway.is_some())
    })
}

/// IPv6 (`net/ipv6/ip6_fib.c`): ordered by metric. Routes with a gateway and one metric are one multipath route, and the
/// message tells all of it.
fn add_ipv6(routes: &mut Vec<Route>, route: Route, flags: u16, nhgs: &mut NexthopGroups) -> Followed {
    // The kernel joins routes of a program (`proto ra`), but not its own by a router advertisement: the message does not say which it is.
    let is_advertised = |known: &Route| {
        known.metric == route.metric && nhgs.get(known.nhg).is_some_and(|nhg| nhg.protocol == RTPROT_RA)
    };
    if nhgs.get(route.nhg).is_some_and(|nhg| nhg.source_len != 0)
        || !routes.is_empty() && (is_advertised(&route) || routes.iter().any(is_advertised))
    {
        routes.retain(|known| *known != route);
        let at = routes.iter().position(|known| known.metric > route.metric).unwrap_or(routes.len());
        routes.insert(at, route);
        return Followed::Ambiguously;
    }
    if routes.contains(&route) {
        return Followed::Exactly;
    }
    let is_joining = joins(nhgs.get(route.nhg));
    // A route that selects by the source is in a tree of its own.
    let by_source = |known: &Route| nhgs.get(known.nhg).is_some_and(|nhg| nhg.source_len != 0);
    let same = |known: &Route| known.metric == route.metric && !by_source(known);
    let joined = routes.iter().position(|known| same(known) && joins(nhgs.get(known.nhg)) == is_joining);
    if flags & FLAG_REPLACE != 0 {
        if let Some(at) = joined.or_else(|| routes.iter().position(same)) {
            routes[at] = route;
            return Followed::Exactly;
        }
    } else if let Some(at) = joined
        && is_joining
    {
        let hops = |route: &Route| nhgs.get(route.nhg).map_or(0, |nhg| nhg.hops.len());
        let grew = hops(&route) > hops(&routes[at]);
        // The message has the metrics of the next hop that came.
        let has_metrics =
            |route: &Route| nhgs.get(route.nhg).is_some_and(|nhg| nhg.has_metrics() || nhg.hides_metrics());
        let hides = has_metrics(&routes[at]) || has_metrics(&route);
        routes[at] = if hides { hiding(route, nhgs) } else { route };
        return if grew { Followed::Exactly } else { Followed::Ambiguously };
    }
    let at = routes.iter().position(|known| known.metric > route.metric).unwrap_or(routes.len());
    routes.insert(at, route);
    Followed::Exactly
}

/// The route, whose next hops have metrics that are not known.
fn hiding(route: Route, nhgs: &mut NexthopGroups) -> Route {
    let Some(nhg) = nhgs.get(route.nhg).cloned() else { return route };
    Route { nhg: nhgs.intern_nhg(NexthopGroup { unknown: Some(Unknown::HopMetrics), ..nhg }), ..route }
}

/// One next hop of a multipath route can go alone.
fn remove_ipv6(routes: &mut Vec<Route>, route: Route, nhgs: &mut NexthopGroups) -> Followed {
    // A route that selects by the source is one by itself, and is found whole or not at all.
    let Some(gone) = nhgs.get(route.nhg).filter(|nhg| nhg.source_len == 0).map(|nhg| nhg.hops.clone()) else {
        return Followed::Ambiguously;
    };
    // a hop alone carries no weight, as a part of a multipath route it may
    let alike =
        |a: &Nexthop, b: &Nexthop| a.ifindex == b.ifindex && a.gateway == b.gateway && a.encap == b.encap;
    for (at, known) in routes.iter().enumerate().filter(|(_, known)| known.metric == route.metric) {
        let Some(mut nhg) = nhgs.get(known.nhg).filter(|nhg| nhg.source_len == 0).cloned() else { continue };
        let before = nhg.hops.len();
        nhg.hops.retain(|hop| !gone.iter().any(|gone| alike(gone, hop)));
        if nhg.hops.len() + gone.len() != before || before == 0 {
            continue;
        }
        if let [last] = &mut nhg.hops[..] {
            last.weight = 1;
        }
        let hid = nhg.hides_metrics();
        if nhg.hops.is_empty() {
            routes.remove(at);
        } else {
            routes[at].nhg = nhgs.intern_nhg(nhg);
        }
        return if hid { Followed::Ambiguously } else { Followed::Exactly };
    }
    Followed::Ambiguously
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
