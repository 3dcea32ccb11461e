//! One address family of the node: its tables, the neighbours, and what they decide together.
//!
//! The image holds the union of local and main, in which the longest prefix wins, and every other table that is used by itself.
//! The union is what the kernel does in IPv4 as long as
//! no policy rule was ever made (both tables are one trie then). IPv6, and IPv4 afterwards, ask table local first. So a
//! route of main under a prefix of local is left out for IPv6 and left to the kernel for IPv4. Beside the routes stand
//! host entries. A neighbour on a link whose prefix is on-link gets a prefix of its own, because a packet to it needs that
//! neighbour's MAC address.

use crate::kernel::route::{NexthopGroup, kind};
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN};
use crate::rib::kernel_state::KernelState;
use crate::rib::nexthop_group::{NexthopGroups, NhgId};
use crate::rib::table::{Ip, Route, Table};
use std::collections::{BTreeMap, BTreeSet};
use trieline_lpm::Prefix;

/// The decision about packets to a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<A> {
    /// The action of this nexthop group.
    NexthopGroup(NhgId),
    /// Forward to this neighbour on this link, by a route of this MTU (0: the link's).
    Neighbour(A, u32, u32),
    /// Something that depends on more than the destination: the kernel decides.
    Kernel,
    /// Nothing: the next rule decides.
    Throw,
}

/// A neighbour on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Its MAC address, when it can be sent to.
    pub mac: Option<[u8; 6]>,
    /// The kernel checks it only after it hears that the entry is in use.
    pub stale: bool,
}

/// Tables and neighbours of one address family.
#[derive(Debug)]
pub struct Family<A: Ip> {
    /// Table main.
    pub main: Table<A>,
    /// Table local: addresses that are the node's own, broadcasts.
    pub local: Table<A>,
    /// The other tables by number.
    pub others: BTreeMap<u32, Table<A>>,
    /// Neighbours by address and link.
    pub neighbours: BTreeMap<(A, u32), Neighbour>,
    /// They by link.
    on_link: BTreeSet<(u32, A)>,
    /// Links that others than local and main have, or had, on-link routes to: such a neighbour concerns that table.
    reached: BTreeSet<(u32, u32)>,
}

impl<A: Ip> Default for Family<A> {
    fn default() -> Self {
        Self {
            main: Table::default(),
            local: Table::default(),
            others: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            on_link: BTreeSet::new(),
            reached: BTreeSet::new(),
        }
    }
}

/// State beside the family's own that decisions depend on.
#[derive(Debug, Clone, Copy)]
pub struct NexthopState<'a> {
    nhgs: &'a NexthopGroups,
    kernel: &'a KernelState,
    /// `AF_INET` or `AF_INET6`: a link can be alive for one of them.
    family: u8,
}

impl<'a> NexthopState<'a> {
    /// That of one address family.
    pub fn new(nhgs: &'a NexthopGroups, kernel: &'a KernelState, family: u8) -> Self {
        Self { nhgs, kernel, family }
    }

    /// The nexthop group of that number.
    pub fn get(&self, nhg: NhgId) -> Option<&'a NexthopGroup> {
        self.nhgs.get(nhg)
    }

    /// Whether routes of a family lead into a VRF device.
    pub fn leads(&self, family: u8, vrf: u32) -> bool {
        self.nhgs.lead_to(family, vrf)
    }

    /// Whether the kernel's lookup would stop at this nexthop group: it passes over a forwarding one while all its links are dead.
    pub fn usable(&self, nhg: NhgId) -> bool {
        self.nhgs.get(nhg).is_some_and(|nhg| {
            nhg.kind != kind::UNICAST
                || nhg.hops.is_empty()
                || nhg.hops.iter().any(|hop| self.kernel.alive(self.family, nhg, hop))
        })
    }

    /// The link of an on-link nexthop group.
    pub fn on_link(&self, nhg: NhgId) -> Option<u32> {
        on_link(self.nhgs.get(nhg)?)
    }

    /// The MTU that a nexthop group sets.
    fn mtu(&self, nhg: NhgId) -> u32 {
        self.nhgs.get(nhg).map_or(0, |nhg| nhg.mtu)
    }

    /// Whether a nexthop group only means that the next rule decides.
    fn is_throw(&self, nhg: NhgId) -> bool {
        let plain = |nhg: &NexthopGroup| !nhg.selects_more() && !nhg.expires;
        self.nhgs.get(nhg).is_some_and(|nhg| nhg.kind == kind::THROW && plain(nhg))
    }

    /// The decision by the routes of one prefix, best first; `None`: the kernel would go on with a shorter prefix.
    fn best<A>(&self, routes: &[Route], ties_open: bool) -> Option<Decision<A>> {
        let selects_more = |route: &Route| {
            self.nhgs.get(route.nhg).is_none_or(|nhg| {
                nhg.selects_more() || self.nhgs.is_expiring(route.nhg) || nhg.kind == kind::THROW
            })
        };
        if routes.len() > 1 || routes.first().is_some_and(&selects_more) {
            if routes.iter().any(&selects_more) {
                return Some(Decision::Kernel);
            }
            let mut usable = routes.iter().filter(|route| self.usable(route.nhg));
            let first = usable.next()?;
            if ties_open && usable.next().is_some_and(|next| next.metric == first.metric) {
                return Some(Decision::Kernel);
            }
            return Some(Decision::NexthopGroup(first.nhg));
        }
        routes.first().filter(|route| self.usable(route.nhg)).map(|route| Decision::NexthopGroup(route.nhg))
    }
}

/// The last address of all.
fn last<A: Ip>() -> A {
    Prefix::truncated(A::ZERO, 0).last()
}

/// The link of an on-link nexthop group: packets go to their destination's own neighbour on it.
fn on_link(nhg: &NexthopGroup) -> Option<u32> {
    match &nhg.hops[..] {
        [hop] if nhg.kind == kind::UNICAST && hop.is_on_link() => Some(hop.ifindex),
        _ => None,
    }
}

impl<A: Ip> Family<A> {
    /// IPv6 chooses among routes of one metric that are no multipath route by criteria of its own; so does IPv4 among
    /// default routes.
    fn ties_open(prefix: &Prefix<A>) -> bool {
        A::WIDTH == 128 || prefix.len() == 0
    }

    /// The decision of main's routes under a prefix of local.
    fn hidden(&self, routes: &[Route], nexthops: NexthopState<'_>) -> Option<Decision<A>> {
        if A::WIDTH == 32 { nexthops.best::<A>(routes, false).map(|_| Decision::Kernel) } else { None }
    }

    /// A table by its number.
    pub fn table(&self, number: u32) -> Option<&Table<A>> {
        match number {
            TABLE_LOCAL => Some(&self.local),
            TABLE_MAIN => Some(&self.main),
            number => self.others.get(&number),
        }
    }

    /// A table other than local and main, to be changed. `watched`: a dump is being read.
    pub fn other(&mut self, number: u32, watched: bool) -> &mut Table<A> {
        self.others.entry(number).or_insert_with(|| {
            let mut table = Table::default();
            if watched {
                table.watch();
            }
            table
        })
    }

    /// Remembers which routes change, until [`Family::set_others`]: a dump begins.
    pub fn watch(&mut self) {
        self.local.watch();
        self.main.watch();
        self.others.values_mut().for_each(Table::watch);
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &Table<A>> {
        [&self.local, &self.main].into_iter().chain(self.others.values())
    }

    /// The routes of another table than local and main were or are changed to: what depends on that beside them.
    pub fn note(&mut self, number: u32, prefix: Prefix<A>, nhgs: &NexthopGroups) {
        let Some(table) = self.others.get(&number) else { return };
        let links = table.get(&prefix).iter().filter_map(|route| on_link(nhgs.get(route.nhg)?));
        self.reached.extend(links.map(|link| (link, number)));
    }

    /// The tables but local and main are these from now on; a dump has ended.
    pub fn set_others(&mut self, others: BTreeMap<u32, Table<A>>, nhgs: &NexthopGroups) {
        self.others = others;
        self.find_reached(nhgs);
    }

    /// Finds out which tables but local and main have routes on link. O(their routes).
    pub fn find_reached(&mut self, nhgs: &NexthopGroups) {
        self.reached = BTreeSet::new();
        for (number, table) in &self.others {
            for (_, routes) in table.iter() {
                let links = routes.iter().filter_map(|route| on_link(nhgs.get(route.nhg)?));
                self.reached.extend(links.map(|link| (link, *number)));
            }
        }
    }

    /// Tables but local and main that a neighbour on a link may concern.
    pub fn reaching(&self, link: u32) -> impl Iterator<Item = u32> + '_ {
        self.reached.range((link, 0)..=(link, u32::MAX)).map(|(_, table)| *table)
    }

    /// Takes over the kernel's state of a neighbour; `None`: it is gone. Returns what was known.
    pub fn set_neighbour(&mut self, addr: A, link: u32, entry: Option<Neighbour>) -> Option<Neighbour> {
        match entry {
            Some(entry) => {
                self.on_link.insert((link, addr));
                self.neighbours.insert((addr, link), entry)
            }
            None => {
                self.on_link.remove(&(link, addr));
                self.neighbours.remove(&(addr, link))
            }
        }
    }

    /// Takes the neighbours that another one knows.
    pub fn take_neighbours(&mut self, other: Self) {
        (self.neighbours, self.on_link) = (other.neighbours, other.on_link);
    }

    /// Neighbours on a link.
    pub fn neighbours_on(&self, link: u32) -> impl Iterator<Item = A> + '_ {
        self.on_link.range((link, A::ZERO)..=(link, last())).map(|(_, addr)| *addr)
    }

    /// The tables that a lookup asks, in this order. Under main's number it asks local and main together, under any other that table alone.
    fn asked(&self, number: u32) -> impl Iterator<Item = &Table<A>> {
        let local = (number == TABLE_MAIN).then_some(&self.local);
        local.into_iter().chain(self.table(number))
    }

    /// About as many prefixes as a lookup has to decide.
    pub fn size(&self, number: u32) -> usize {
        self.asked(number).map(Table::len).sum()
    }

    /// The decision by the routes of one prefix, best first.
    fn best(
        number: u32,
        prefix: &Prefix<A>,
        routes: &[Route],
        nexthops: NexthopState<'_>,
    ) -> Option<Decision<A>> {
        match routes {
            [only] if number != TABLE_MAIN && nexthops.is_throw(only.nhg) => Some(Decision::Throw),
            routes => nexthops.best(routes, Self::ties_open(prefix)),
        }
    }

    /// The decision for one address by the routes alone, with the prefix that makes it. `number` as for [`Family::decide`].
    pub fn lookup(
        &self,
        number: u32,
        addr: A,
        nexthops: NexthopState<'_>,
    ) -> Option<(Prefix<A>, Decision<A>)> {
        self.asked(number).find_map(|table| {
            table.covering(Prefix::host(addr)).find_map(|(prefix, routes)| {
                Self::best(number, &prefix, routes, nexthops).map(|decision| (prefix, decision))
            })
        })
    }

    /// The host entry of `addr`, when a neighbour on an on-link prefix has one.
    fn host(&self, number: u32, addr: A, nexthops: NexthopState<'_>) -> Option<Decision<A>> {
        let mut usable =
            self.neighbours.range((addr, 0)..=(addr, u32::MAX)).filter(|(_, entry)| entry.mac.is_some());
        usable.next()?;
        let (_, Decision::NexthopGroup(nhg)) = self.lookup(number, addr, nexthops)? else { return None };
        let link = nexthops.on_link(nhg)?;
        self.neighbours
            .get(&(addr, link))
            .filter(|entry| entry.mac.is_some())
            .map(|_| Decision::Neighbour(addr, link, nexthops.mtu(nhg)))
    }

    /// All host entries. O(neighbours), and O(n) for a table alone.
    fn hosts(&self, number: u32, nexthops: NexthopState<'_>) -> BTreeMap<A, Decision<A>> {
        let entry = |addr: A| Some((addr, self.host(number, addr, nexthops)?));
        if number == TABLE_MAIN {
            return self.neighbours.keys().filter_map(|(addr, _)| entry(*addr)).collect();
        }
        // Of many tables, each has routes to a few links.
        let routes = self.table(number).into_iter().flat_map(Table::iter).flat_map(|(_, routes)| routes);
        let links: BTreeSet<u32> = routes.filter_map(|route| nexthops.on_link(route.nhg)).collect();
        links.into_iter().flat_map(|link| self.neighbours_on(link)).filter_map(entry).collect()
    }

    /// The image's entry for exactly `prefix` in the table of that number; `None`: no entry. Under main's number it is local and main
    /// together.
    pub fn decide(&self, number: u32, prefix: Prefix<A>, nexthops: NexthopState<'_>) -> Option<Decision<A>> {
        if prefix.len() == A::WIDTH
            && let Some(host) = self.host(number, prefix.addr(), nexthops)
        {
            return Some(host);
        }
        let mut routes = self.table(number)?.get(&prefix);
        if number == TABLE_MAIN
            && let Some((found, own)) = self.local.covering(prefix).find(|(found, own)| {
                // The kernel goes on to main where no route of local is usable.
                Self::best(TABLE_MAIN, found, own, nexthops).is_some()
            })
        {
            if found != prefix {
                return self.hidden(routes, nexthops);
            }
            routes = own;
        }
        Self::best(number, &prefix, routes, nexthops)
    }

    /// Everything the image must say, in no particular order, each prefix once. `number` as for [`Family::decide`]. O(n).
    pub fn decide_all(
        &self,
        number: u32,
        nexthops: NexthopState<'_>,
        mut each: impl FnMut(Prefix<A>, Decision<A>),
    ) {
        let hosts = self.hosts(number, nexthops);
        let mut routes = |prefix: Prefix<A>, decision| {
            if prefix.len() != A::WIDTH || !hosts.contains_key(&prefix.addr()) {
                each(prefix, decision);
            }
        };
        if number == TABLE_MAIN {
            self.decide_union(nexthops, routes);
        } else {
            for (prefix, known) in self.table(number).into_iter().flat_map(Table::iter) {
                if let Some(decision) = Self::best(number, &prefix, known, nexthops) {
                    routes(prefix, decision);
                }
            }
        }
        hosts.into_iter().for_each(|(addr, decision)| each(Prefix::host(addr), decision));
    }

    /// The decision of the routes of local and main together, without host entries.
    fn decide_union(&self, nexthops: NexthopState<'_>, mut each: impl FnMut(Prefix<A>, Decision<A>)) {
        let mut local = self.local.iter().peekable();
        // Whether a nexthop group, when it is its prefix's only route, simply decides: asked once a nexthop group, not once a route.
        let mut simple: Vec<Option<bool>> = vec![None; nexthops.nhgs.bound()];
        // Both tables are walked in order. The last address that an outermost prefix of local covers so far:
        let mut covered: Option<A> = None;
        for (prefix, routes) in self.main.iter() {
            while let Some((own, routes)) = local.next_if(|(own, _)| *own <= prefix) {
                // The kernel goes on to main where no route of local is usable.
                if Self::best(TABLE_MAIN, &own, routes, nexthops).is_some() {
                    covered = covered.max(Some(own.last()));
                }
            }
            if covered.is_some_and(|last| prefix.addr() <= last) {
                if Self::best(TABLE_MAIN, &prefix, self.local.get(&prefix), nexthops).is_none()
                    && let Some(decision) = self.hidden(routes, nexthops)
                {
                    each(prefix, decision);
                }
                continue;
            }
            if let [route] = routes
                && let Some(known) = simple.get_mut(route.nhg as usize)
                && *known.get_or_insert_with(|| {
                    nexthops.best::<A>(routes, false) == Some(Decision::NexthopGroup(route.nhg))
                })
            {
                each(prefix, Decision::NexthopGroup(route.nhg));
            } else if let Some(decision) = Self::best(TABLE_MAIN, &prefix, routes, nexthops) {
                each(prefix, decision);
            }
        }
        for (prefix, routes) in self.local.iter() {
            if let Some(decision) = Self::best(TABLE_MAIN, &prefix, routes, nexthops) {
                each(prefix, decision);
            }
        }
    }

    /// The prefixes whose decision may change when the routes of `prefix` change in table main.
    pub fn touched_by_main(&self, prefix: Prefix<A>, mut each: impl FnMut(Prefix<A>)) {
        each(prefix);
        self.hosts_within(prefix, each);
    }

    /// The prefixes whose decision may change when the routes of `prefix` change in table local.
    pub fn touched_by_local(&self, prefix: Prefix<A>, mut each: impl FnMut(Prefix<A>)) {
        each(prefix);
        self.main.within(prefix).for_each(|(hidden, _)| each(hidden));
        self.hosts_within(prefix, each);
    }

    fn hosts_within(&self, prefix: Prefix<A>, mut each: impl FnMut(Prefix<A>)) {
        let range = self.neighbours.range((prefix.addr(), 0)..=(prefix.last(), u32::MAX));
        range.for_each(|((addr, _), _)| each(Prefix::host(*addr)));
    }
}
