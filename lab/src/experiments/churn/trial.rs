//! A trial of `churn`: a stream over the table, and an event while it runs.

use std::{
    net::Ipv4Addr,
    path::Path,
    time::{Duration, Instant},
};

use trieline_lpm::Prefix;

use super::{
    drive::{self, Clock, Done, Lists},
    options::Churn,
};
use crate::{
    Context, Error, Result,
    experiments::forked::{Node, Plane, Product, make},
    fork::{Routes, Way},
    traffic::{FLOWS_MAX, Running, Sender},
};

/// The counts of one trial.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) done: Done,
    pub(super) seconds: f64,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) wrong: u64,
    pub(super) reordered: u64,
    pub(super) filtered: u64,
    pub(super) leaked: u64,
    pub(super) passed: u64,
    pub(super) stalls: u64,
    /// Median, 99th and 99.9th percentile.
    pub(super) ns: [u64; 3],
    pub(super) max_ns: u64,
}

/// An event during a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Nothing.
    None,
    /// Routes are replaced.
    Routes,
    /// Status is asked ten times a second.
    Status,
    /// Filters are reloaded.
    Reload,
    /// trielined is killed and started again.
    Kill,
    /// trielined is stopped and started again.
    Upgrade,
    /// All of it at once.
    All,
}

impl Event {
    pub(super) const ALL: [Event; 7] =
        [Event::None, Event::Routes, Event::Status, Event::Reload, Event::Kill, Event::Upgrade, Event::All];

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Event::None => "none",
            Event::Routes => "routes",
            Event::Status => "status",
            Event::Reload => "reload",
            Event::Kill => "kill",
            Event::Upgrade => "upgrade",
            Event::All => "all",
        }
    }

    /// Whether it can happen to the kernel alone.
    pub(super) fn is_kernels(self) -> bool {
        matches!(self, Event::None | Event::Routes)
    }

    fn replaces(self) -> bool {
        matches!(self, Event::Routes | Event::All)
    }

    fn asks(self) -> bool {
        matches!(self, Event::Status | Event::All)
    }

    /// Whether what was done is what the event is about.
    fn happened(self, done: &Done) -> bool {
        match self {
            Event::None => *done == Done::default(),
            Event::Routes => done.changes > 0,
            Event::Status => done.asked > 0,
            Event::Reload => done.reloaded > 0,
            Event::Kill => done.killed > 0,
            Event::Upgrade => done.upgraded > 0,
            Event::All => {
                [done.changes, done.asked, done.reloaded, done.killed, done.upgraded].iter().all(|n| *n > 0)
            }
        }
    }
}

/// Of every four routes the first stays by way A, the second by way B; the others may leave by either.
fn stays(route: usize) -> Option<Way> {
    [Some(Way::A), Some(Way::B), None, None][route % 4]
}

/// How long an event may last beyond its trial, until what it began is done.
const BEYOND_S: f64 = 120.0;
/// One packet of so many goes to the address that the filter drops.
const LISTED_EVERY: usize = 64;

/// A node with its table, and what is sent through it.
pub(super) struct Bed<'a> {
    node: Node<'a>,
    routes: &'a Routes,
    options: &'a Churn,
    context: &'a Context<'a>,
    /// A host of each route that packets are sent to.
    hosts: Vec<(usize, Ipv4Addr)>,
    /// After the hosts, one that the filter drops, if there is a filter.
    lists: Option<(Lists, Ipv4Addr)>,
    moving: Vec<Prefix<u32>>,
    turns: usize,
    sender: Option<Sender>,
}

impl<'a> Bed<'a> {
    /// Makes the node; with a product its filter's list is in `folder`. Neither routes nor trielined are there yet.
    pub(super) fn create(
        product: Option<&Product>,
        folder: &Path,
        routes: &'a Routes,
        options: &'a Churn,
        context: &'a Context<'a>,
    ) -> Result<Self> {
        let all: Vec<usize> = (0..routes.len()).collect();
        let mut hosts = routes.hosts(&all, FLOWS_MAX);
        let mut lists = None;
        if product.is_some()
            && let Some((_, listed)) = hosts.pop()
        {
            lists = Some((Lists::begin(folder, listed)?, listed));
        }
        if hosts.is_empty() {
            return Err(Error::NoDestinations("IPv4"));
        }
        let moving = all.iter().filter(|route| stays(**route).is_none());
        let moving = moving.filter_map(|route| routes.prefixes.get(*route).copied()).collect();
        let node = Node::create(product, hosts.len() + 1, context)?;
        Ok(Bed { node, routes, options, context, hosts, lists, moving, turns: 0, sender: None })
    }

    pub(super) fn plane(&self) -> Plane {
        self.node.plane
    }

    /// Puts the routes into the kernel, and starts trielined, if it is to run.
    pub(super) fn fill(&mut self) -> Result<()> {
        let fork = &self.node.fork;
        let numbered = self.routes.prefixes.iter().enumerate();
        let routes = numbered.map(|(route, prefix)| fork.route(*prefix, stays(route).unwrap_or(Way::A)));
        make(&mut self.node.netlink, routes, self.context)?;
        self.node.start()
    }

    /// A trial of so many seconds.
    pub(super) fn trial(&mut self, event: Event, seconds: f64) -> Result<Counts> {
        let expected =
            |(route, _): &(usize, Ipv4Addr)| stays(*route).map_or(0, |way| self.node.fork.end(way).index);
        let devices: Vec<u32> = self.hosts.iter().map(expected).collect();
        self.node.receiver.expect(&devices)?;
        let before = self.node.verdicts()?;
        let running = self.stream(seconds + BEYOND_S)?;
        let began = Instant::now();
        let clock = Clock { until: began + Duration::from_secs_f64(seconds), context: self.context };
        let done = self.happen(event, &clock)?;
        let lasted = began.elapsed();
        if running.is_over() {
            let what = format!("{}: not done within {BEYOND_S} s beyond the trial", event.name());
            return Err(self.node.failed(what));
        }
        running.stop()?;
        let (sender, sent) = running.join()?;
        self.sender = Some(sender);
        let received = self.node.receiver.settled(sent.frames)?;
        let verdicts = self.node.verdicts()?;
        self.node.check()?;
        let (plane, name) = (self.plane().name(), event.name());
        if sent.frames == 0 || received.frames == 0 {
            return Err(self.node.failed(format!("{name}, {plane}: no frame arrived")));
        }
        if !event.happened(&done) {
            return Err(self.node.failed(format!("{name}, {plane}: the event did not happen: {done:?}")));
        }
        let forwarded = verdicts.forwarded.saturating_sub(before.forwarded);
        if self.lists.is_some() && forwarded == 0 {
            return Err(self.node.failed(format!("{name}: XDP forwarded no frame")));
        }
        let listed = if self.lists.is_some() { self.hosts.len() } else { usize::MAX };
        let leaked = received.flows.get(listed).map_or(0, |flow| flow.distinct());
        let lost = received.lost_by_flow(&sent).iter().take(listed).sum();
        let filtered = sent.flows.get(listed).map_or(0, |sent| u64::from(*sent));
        if self.lists.is_some() && filtered == 0 {
            return Err(Error::Traffic(format!("{name}: no frame was sent to the filter's address")));
        }
        Ok(Counts {
            done,
            seconds: lasted.as_secs_f64(),
            sent: sent.frames - filtered,
            lost,
            duplicated: received.duplicated(),
            wrong: received.strayed(),
            reordered: received.reordered(),
            filtered,
            leaked,
            passed: verdicts.passed.saturating_sub(before.passed),
            stalls: sent.stalls,
            ns: [0.5, 0.99, 0.999].map(|share| received.latency.quantile(share)),
            max_ns: received.latency.max(),
        })
    }

    fn stream(&mut self, seconds: f64) -> Result<Running> {
        let sender = match self.sender.take() {
            Some(sender) => sender,
            None => {
                let listed = self.lists.as_ref().map(|(_, listed)| *listed);
                let hosts = self.hosts.iter().map(|(_, host)| *host).chain(listed);
                self.node.sender(hosts, listed.map(|_| order(self.hosts.len())))?
            }
        };
        self.node.stream(sender, self.options.rate, seconds)
    }

    /// Lets it happen until the trial is over, and until it has happened once.
    fn happen(&mut self, event: Event, clock: &Clock) -> Result<Done> {
        let asker = self.node.asker().filter(|_| event.asks());
        let mut routes = self.node.fork.netlink()?;
        let Bed { node, lists, moving, turns, options, .. } = self;
        // The thread that replaces routes knows where they lead, but not the node, which another one starts and ends meanwhile.
        let ways = [Way::A, Way::B].map(|way| node.fork.next_hop(way));
        let (changes, asked, rest) = std::thread::scope(|scope| {
            let replacing = event.replaces().then(|| {
                scope.spawn(|| {
                    drive::replace(&mut routes, ways, moving, turns, options.changes, || clock.runs())
                })
            });
            let asking = asker.as_ref().map(|asker| {
                scope.spawn(|| {
                    drive::ask(asker, |asked| clock.runs() || asked == 0 && !self.context.interrupted())
                })
            });
            let rest = restart(event, node, lists.as_mut().map(|(lists, _)| lists), clock);
            while clock.runs() && rest.is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let changes = replacing.map_or(Ok(0), |thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let asked = asking
                .map_or(0, |thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            (changes, asked, rest)
        });
        self.context.check()?;
        Ok(rest?.and(Done { changes: changes?, asked, ..Done::default() }))
    }
}

/// Reloads, kills and upgrades, as the event is, until the trial is over, and each of them once at least.
fn restart(event: Event, node: &mut Node, lists: Option<&mut Lists>, clock: &Clock) -> Result<Done> {
    let mut done = Done::default();
    let (Some(lists), Some(asker)) = (lists, node.asker()) else { return Ok(done) };
    let does = |what| event == what || event == Event::All;
    if ![Event::Reload, Event::Kill, Event::Upgrade].into_iter().any(does) {
        return Ok(done);
    }
    while clock.runs() || done == Done::default() {
        if does(Event::Reload) {
            lists.reload(node, &asker)?;
            done.reloaded += 1;
        }
        if does(Event::Kill) {
            drive::kill(node)?;
            done.killed += 1;
        }
        if does(Event::Upgrade) {
            drive::upgrade(node)?;
            done.upgraded += 1;
        }
        node.check()?;
    }
    Ok(done)
}

/// All flows in turn, and the one behind them once in [`LISTED_EVERY`] places.
fn order(flows: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(flows + flows / LISTED_EVERY + 1);
    for flow in 0..flows {
        if flow % LISTED_EVERY == 0 {
            order.push(flows);
        }
        order.push(flow);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listed_address_has_its_places() {
        let order = order(130);
        assert_eq!(order.len(), 130 + 3);
        assert_eq!((order[0], order[1], order[65], order[66]), (130, 0, 130, 64));
        assert!((0..=130).all(|flow| order.contains(&flow)));
    }

    #[test]
    fn an_event_that_did_not_happen_is_seen() {
        let nothing = Done::default();
        let happened = |done: Done| Event::ALL.map(|event| event.happened(&done));
        assert_eq!(happened(nothing), [true, false, false, false, false, false, false]);
        let all = Done { changes: 1, asked: 2, reloaded: 3, killed: 4, upgraded: 5 };
        assert_eq!(happened(all), [false, true, true, true, true, true, true]);
        assert_eq!(all.and(all).upgraded, 10);
        assert!(!Event::All.happened(&Done { killed: 0, ..all }));
    }
}
