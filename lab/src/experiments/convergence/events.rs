//! The changes of experiment `convergence`, each with the state of the kernel that it begins from.

use super::super::forked::make;
use crate::{
    Context, Result,
    fork::{Fork, Routes, Way},
    measure::monotonic_ns,
    netlink::{Change, Netlink},
};

/// A change that makes routes leave by another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// So many routes are replaced, one after the other.
    Routes(usize),
    /// A next hop object is replaced that all routes name. The kernel announces the object alone.
    NextHop,
    /// Likewise, with `nexthop_compat_mode`, the kernel's default: it announces each route, too.
    NextHopCompat,
    /// A link goes down, and each route has a next hop of equal cost.
    LinkMultipath,
    /// A link goes down, and each prefix has a route of higher metric.
    LinkMetric,
}

/// The number of the next hop object.
const OBJECT: u32 = 1;
/// Metrics of the routes by way A and by way B.
const METRICS: [u32; 2] = [10, 20];

/// When which part of a change was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Sending {
    /// How many routes' messages had been sent, and CLOCK_MONOTONIC before the next was.
    steps: Vec<(usize, u64)>,
    /// When the kernel had acknowledged all.
    pub(super) acknowledged_ns: u64,
}

impl Sending {
    /// When the first message was sent.
    pub(super) fn began_ns(&self) -> u64 {
        self.steps.first().map_or(0, |(_, ns)| *ns)
    }

    /// When the datagram with the message of the route at this place was sent.
    fn of(&self, place: usize) -> u64 {
        let behind = self.steps.partition_point(|(before, _)| *before <= place);
        self.steps.get(behind.saturating_sub(1)).map_or(0, |(_, ns)| *ns)
    }

    /// The same of a route by its index in the table: only [`Event::Routes`] sends one message a route, in the table's order.
    pub(super) fn of_route(&self, event: Event, route: usize) -> u64 {
        if matches!(event, Event::Routes(_)) { self.of(route) } else { self.began_ns() }
    }
}

impl Event {
    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Event::Routes(_) => "routes",
            Event::NextHop => "nexthop",
            Event::NextHopCompat => "nexthop-compat",
            Event::LinkMultipath => "link-multipath",
            Event::LinkMetric => "link-metric",
        }
    }

    /// How many routes of a table change.
    pub(super) fn routes(self, table: usize) -> usize {
        if let Event::Routes(count) = self { count.min(table) } else { table }
    }

    /// How often a stream of a round meets it: more often where it is quick, for the quantiles.
    pub(super) fn turns(self) -> usize {
        match self {
            Event::Routes(1) => 20,
            Event::Routes(2..=1000) => 4,
            // There and back.
            Event::Routes(_) | Event::NextHop | Event::NextHopCompat => 2,
            Event::LinkMultipath | Event::LinkMetric => 1,
        }
    }

    /// Whether only the routes by way A change, and what went down has to be put up again.
    pub(super) fn is_link(self) -> bool {
        matches!(self, Event::LinkMultipath | Event::LinkMetric)
    }

    /// Whether another event begins from the same state.
    pub(super) fn begins_as(self, other: Event) -> bool {
        matches!((self, other), (Event::Routes(_), Event::Routes(_))) || self == other
    }

    /// Brings the kernel into the state that the event begins from: all routes by way A (or both ways), whatever was there before.
    pub(super) fn prepare(
        self,
        fork: &Fork,
        routes: &Routes,
        netlink: &mut Netlink,
        context: &Context,
    ) -> Result<()> {
        let prefixes = || routes.prefixes.iter().copied();
        let (a, b) = (fork.next_hop(Way::A), fork.next_hop(Way::B));
        match self {
            Event::Routes(_) => make(netlink, prefixes().map(|prefix| fork.route(prefix, Way::A)), context)?,
            Event::NextHop | Event::NextHopCompat => {
                let compat = if self == Event::NextHop { "0" } else { "1" };
                fork.node.write_sysctl("net/ipv4/nexthop_compat_mode", compat)?;
                netlink.make([Change::Object(OBJECT, a)], |_| true)?;
                make(netlink, prefixes().map(|prefix| Change::ByObject(prefix, OBJECT)), context)?;
            }
            Event::LinkMultipath => {
                make(netlink, prefixes().map(|prefix| Change::Multipath(prefix, [a, b])), context)?;
            }
            Event::LinkMetric => {
                for (way, metric) in [a, b].into_iter().zip(METRICS) {
                    make(netlink, prefixes().map(|prefix| Change::Route(prefix, way, metric)), context)?;
                }
                // Those of the event before have no metric, so they would win.
                make(netlink, prefixes().map(|prefix| Change::Remove(prefix, 0)), context)?;
            }
        }
        Ok(())
    }

    /// Makes it happen; routes leave by `to` from then on.
    pub(super) fn change(
        self,
        fork: &Fork,
        routes: &Routes,
        netlink: &mut Netlink,
        to: Way,
        context: &Context,
    ) -> Result<Sending> {
        let mut sending = Sending::default();
        let steps = &mut sending.steps;
        steps.push((0, monotonic_ns()));
        match self {
            Event::Routes(count) => {
                let changed = routes.prefixes.iter().take(count).map(|prefix| fork.route(*prefix, to));
                netlink.make(changed, |made| {
                    steps.push((made as usize, monotonic_ns()));
                    !context.interrupted()
                })?;
                context.check()?;
            }
            Event::NextHop | Event::NextHopCompat => {
                netlink.make([Change::Object(OBJECT, fork.next_hop(to))], |_| true)?;
            }
            Event::LinkMultipath | Event::LinkMetric => {
                netlink.make([Change::Link(fork.egress(to.other()).index, false)], |_| true)?;
            }
        }
        sending.acknowledged_ns = monotonic_ns();
        Ok(sending)
    }

    /// Undoes what a link that went down took with it.
    pub(super) fn restore(
        self,
        fork: &Fork,
        routes: &Routes,
        netlink: &mut Netlink,
        context: &Context,
    ) -> Result<()> {
        netlink.make([Change::Link(fork.egress(Way::A).index, true)], |_| true)?;
        fork.know_neighbours()?;
        let a = fork.next_hop(Way::A);
        let prefixes = routes.prefixes.iter().copied();
        match self {
            Event::LinkMetric => {
                make(netlink, prefixes.map(|prefix| Change::Route(prefix, a, METRICS[0])), context)
            }
            // The kernel keeps a route's next hop, and takes it again when its link comes up.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routes_message_was_sent_with_its_datagram() {
        let sending =
            Sending { steps: vec![(0, 100), (256, 200), (512, 300), (600, 400)], acknowledged_ns: 400 };
        let of = |place| sending.of(place);
        assert_eq!([of(0), of(255), of(256), of(511), of(512), of(599)], [100, 100, 200, 200, 300, 300]);
        assert_eq!(sending.of_route(Event::Routes(600), 300), 200);
        assert_eq!((sending.of_route(Event::NextHop, 300), sending.began_ns()), (100, 100));
        assert!(Event::Routes(1).begins_as(Event::Routes(9)) && !Event::NextHop.begins_as(Event::Routes(1)));
        assert_eq!((Event::Routes(1000).routes(10), Event::LinkMetric.routes(10)), (10, 10));
    }
}
