//! Routes of the kernel that the mirror does not have, or has otherwise, until it is clear whether they were only in flight.

use crate::fib::expected::Routed;
use crate::kernel::known::Unknown;
use crate::kernel::route::NexthopGroup;
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN, family};
use crate::rib::mirror::{FamilyChanges, Mirror};
use crate::rib::table::Route;
use std::collections::BTreeMap;
use trieline_lpm::Prefix;

/// A prefix of a table.
pub(super) type Key<A> = (u32, Prefix<A>);

/// A nexthop group with its metric.
pub(super) type Way = (u32, NexthopGroup);

/// How often in a row the routes of a prefix differed, and the last answers of kernel and mirror.
pub(super) type Suspect = (u8, Vec<Way>, Vec<Way>);

/// Routes that differed, of one family.
#[derive(Debug)]
pub(super) struct Suspects<A: Routed> {
    pub(super) all: BTreeMap<Key<A>, Suspect>,
    /// The kernel's answers at this look.
    pub(super) reported: BTreeMap<Key<A>, Vec<Way>>,
    /// The prefixes of the first dump, in order from its end on.
    pub(super) dumped: Vec<Key<A>>,
}

impl<A: Routed> Default for Suspects<A> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), reported: BTreeMap::new(), dumped: Vec::new() }
    }
}

impl<A: Routed> Suspects<A> {
    /// Hears of changes: a route that changed is in flight.
    pub(super) fn note(&mut self, changes: &FamilyChanges<A>) {
        if self.all.is_empty() {
            return;
        }
        let of_main =
            changes.prefixes.iter().flat_map(|prefix| [(TABLE_LOCAL, *prefix), (TABLE_MAIN, *prefix)]);
        let of_others = changes.others.iter();
        let of_others =
            of_others.flat_map(|(table, prefixes)| prefixes.iter().map(|prefix| (*table, *prefix)));
        for key in of_main.chain(of_others) {
            if let Some(suspect) = self.all.get_mut(&key) {
                *suspect = Suspect::default();
            }
        }
    }
}

/// The mirror's routes of a prefix.
pub(super) fn mirrored<A: Routed>(mirror: &Mirror, (table, prefix): Key<A>) -> Vec<Way> {
    let routes = A::family(mirror).table(table).map_or(&[][..], |table| table.get(&prefix));
    let way = |route: &Route| {
        let nhg = NexthopGroup { expires: false, ..mirror.nhgs.get(route.nhg)?.clone() };
        Some(comparable((route.metric, nhg)))
    };
    routes.iter().filter_map(way).collect()
}

/// Whether the mirror leaves a prefix to the kernel, as one of its routes ends about now.
pub(super) fn is_ending<A: Routed>(mirror: &Mirror, (table, prefix): Key<A>) -> bool {
    let routes = A::family(mirror).table(table).map_or(&[][..], |table| table.get(&prefix));
    routes.iter().any(|route| mirror.nhgs.is_expiring(route.nhg))
}

/// The parts of a route that decide about a forwarded packet. The preferred source and the protocol do not, nor does the scope, unless the route
/// outlives its link by it. The kernel changes the source without a message. Of an end, only counts whether it is over: the kernel no longer uses such a route.
///
/// Of a route by a next hop object only its number counts: objects are compared by themselves, and the kernel may leave their hops out. The
/// order of next hops does not count: of IPv6, it depends on the message that reports them.
fn comparable((metric, mut nhg): Way) -> Way {
    (nhg.preferred, nhg.protocol) = (None, 0);
    if !nhg.outlives_its_link() {
        nhg.scope = 0;
    }
    if nhg.nexthop.is_some() {
        nhg.hops.clear();
    }
    if nhg.hops.len() > 1 {
        nhg.hops.sort_by_cached_key(|hop| format!("{hop:?}"));
    }
    if nhg.hides_metrics() {
        (nhg.mtu, nhg.hop_limit, nhg.foreign) = Default::default();
    }
    (metric, nhg)
}

/// A route of the kernel, to be compared with the mirror's of its prefix. Where these say that next hops have metrics which the kernel does not
/// tell, its own metrics say nothing: they are those of one next hop.
pub(super) fn told<A: Routed>(mirror: &Mirror, key: Key<A>, (metric, mut nhg): Way) -> Way {
    let hides = |(of, known): &Way| *of == metric && known.hides_metrics();
    if nhg.hops.len() > 1 && nhg.unknown.is_none() && mirrored(mirror, key).iter().any(hides) {
        nhg.unknown = Some(Unknown::HopMetrics);
    }
    comparable((metric, nhg))
}

/// The tables of a family that the mirror has.
pub(super) fn mirrored_tables(mirror: &Mirror, netlink: u8) -> Vec<u32> {
    let mut numbers = vec![TABLE_LOCAL, TABLE_MAIN];
    if netlink == family::INET {
        numbers.extend(mirror.v4.others.keys());
    } else {
        numbers.extend(mirror.v6.others.keys());
    }
    numbers
}

/// In an order that does not depend on the dump; IPv6 may report a route twice.
pub(super) fn sorted(mut ways: Vec<Way>) -> Vec<Way> {
    ways.sort_by_cached_key(|(metric, nhg)| (*metric, format!("{nhg:?}")));
    ways.dedup();
    ways
}
