//! Makes a change while a stream runs, and waits until each watched route carries a frame by the new way.

use std::{net::Ipv4Addr, time::Duration};

use super::events::{Event, Sending};
use crate::{
    Context, Error, Result,
    experiments::forked::{Node, Product, Verdicts},
    fork::{Routes, Way},
    traffic::{FlowSeen, Running, Sender},
};

/// Routes whose packets are watched, at most.
pub(super) const PROBES: usize = 256;
/// A stream's length at most: how long a change may take.
const PATIENCE_S: f64 = 120.0;
/// Between two looks at what has arrived.
const LOOK: Duration = Duration::from_millis(2);

/// One change.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// From the first message to the frame that left by the new way as the last watched route's first, in milliseconds.
    pub(super) last_ms: f64,
    /// To the first frame of any of them.
    pub(super) first_ms: f64,
    /// To the kernel's acknowledgement of the last message.
    pub(super) acknowledged_ms: f64,
    /// Of each watched route: from its own message to its frame.
    pub(super) lags_ms: Vec<f64>,
}

/// The fate of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    /// Changes of a route's way beyond the one that was made.
    pub(super) wrong: u64,
    /// Frames that XDP left to the kernel.
    pub(super) passed: u64,
}

/// A node with its table.
pub(super) struct Bed<'a> {
    node: Node<'a>,
    routes: &'a Routes,
    rate: u32,
    way: Way,
    watched: Option<Watched>,
    context: &'a Context<'a>,
}

/// The stream of an event: an address of each watched route, and their sender.
struct Watched {
    event: Event,
    probes: Vec<(usize, Ipv4Addr)>,
    sender: Sender,
}

impl<'a> Bed<'a> {
    /// Makes the node, without routes.
    pub(super) fn create(
        product: Option<&Product>,
        routes: &'a Routes,
        rate: u32,
        context: &'a Context<'a>,
    ) -> Result<Self> {
        let mut node = Node::create(product, PROBES, context)?;
        node.start()?;
        Ok(Bed { node, routes, rate, way: Way::A, watched: None, context })
    }

    /// Brings the kernel into the state that an event begins from.
    pub(super) fn prepare(&mut self, event: Event) -> Result<()> {
        self.way = Way::A;
        event.prepare(&self.node.fork, self.routes, &mut self.node.netlink, self.context)
    }

    /// Makes an event's changes one after the other in one stream; with the stream's frames.
    pub(super) fn measure(&mut self, event: Event) -> Result<(Vec<Sample>, Counts)> {
        let Watched { probes, sender, .. } = match self.watched.take().filter(|of| of.event == event) {
            Some(watched) => watched,
            None => self.watch(event)?,
        };
        let running = self.node.stream(sender, self.rate, PATIENCE_S)?;
        self.arrive(&running, probes.len(), self.way, event)?;
        let before = self.node.verdicts()?;
        let mut samples = Vec::new();
        let mut wrong = 0;
        for _ in 0..event.turns() {
            let sample = self.change(event, &probes, &running, &mut wrong)?;
            samples.push(sample);
        }
        let (mut sender, mut counts) = self.finish(running, before)?;
        counts.wrong = wrong;
        if event.is_link() {
            event.restore(&self.node.fork, self.routes, &mut self.node.netlink, self.context)?;
            // The part that trielined still has to follow is not part of the next round.
            let running = self.node.stream(sender, self.rate, PATIENCE_S)?;
            self.arrive(&running, probes.len(), Way::A, event)?;
            running.stop()?;
            sender = running.join()?.0;
            self.way = Way::A;
        }
        self.watched = Some(Watched { event, probes, sender });
        Ok((samples, counts))
    }

    /// Chooses the routes to watch.
    fn watch(&mut self, event: Event) -> Result<Watched> {
        let changed: Vec<usize> = (0..event.routes(self.routes.len())).collect();
        let mut probes = self.routes.hosts(&changed, PROBES);
        if event == Event::LinkMultipath {
            probes = self.by_way_a(probes)?;
        }
        if probes.is_empty() {
            return Err(Error::NoDestinations("IPv4"));
        }
        let sender = self.node.sender(probes.iter().map(|(_, host)| *host), None)?;
        Ok(Watched { event, probes, sender })
    }

    /// Of these, those whose packets leave by way A; each plane has a hash of its own.
    fn by_way_a(&mut self, probes: Vec<(usize, Ipv4Addr)>) -> Result<Vec<(usize, Ipv4Addr)>> {
        let sender = self.node.sender(probes.iter().map(|(_, host)| *host), None)?;
        let running = self.node.stream(sender, self.rate, PATIENCE_S)?;
        let device = self.node.fork.end(Way::A).index;
        let mut found = Vec::new();
        for (flow, probe) in probes.into_iter().enumerate() {
            let seen = self.wait(&running, flow, |seen| seen.received > 0, "a frame arrives")?;
            if seen.device == device {
                found.push(probe);
            }
        }
        Ok(found)
    }

    /// Waits until a flow is seen so.
    fn wait(
        &mut self,
        running: &Running,
        flow: usize,
        is_so: impl Fn(&FlowSeen) -> bool,
        what: &str,
    ) -> Result<FlowSeen> {
        loop {
            let seen = self.node.receiver.flow(flow)?;
            if is_so(&seen) {
                return Ok(seen);
            }
            self.node.check()?;
            if running.is_over() {
                let plane = self.node.plane.name();
                let what = format!("{plane}: not within {PATIENCE_S} s: {what} (flow {flow}, {seen:?})");
                return Err(self.node.failed(what));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until each flow arrives by a way.
    fn arrive(&mut self, running: &Running, flows: usize, way: Way, event: Event) -> Result<()> {
        let device = self.node.fork.end(way).index;
        let what = format!("before {} all arrive by way {way:?}", event.name());
        for flow in 0..flows {
            self.wait(running, flow, |seen| seen.received > 0 && seen.device == device, &what)?;
        }
        Ok(())
    }

    /// Makes one change, and waits for each watched route's frame by the new way.
    fn change(
        &mut self,
        event: Event,
        probes: &[(usize, Ipv4Addr)],
        running: &Running,
        wrong: &mut u64,
    ) -> Result<Sample> {
        let to = self.way.other();
        let device = self.node.fork.end(to).index;
        let changes = |node: &Node| {
            let flow = |flow| Ok(node.receiver.flow(flow)?.changes);
            (0..probes.len()).map(flow).collect::<Result<Vec<u64>>>()
        };
        let before = changes(&self.node)?;
        let Node { fork, netlink, .. } = &mut self.node;
        let sending = event.change(fork, self.routes, netlink, to, self.context)?;
        self.way = to;
        let what = format!("{}: all arrive by way {to:?}", event.name());
        let mut seen = Vec::with_capacity(probes.len());
        for (flow, before) in before.iter().enumerate() {
            let by_the_new_way = |seen: &FlowSeen| seen.device == device && seen.changes > *before;
            seen.push(self.wait(running, flow, by_the_new_way, &what)?.since_ns);
        }
        // A lap later it is still so.
        std::thread::sleep(Duration::from_secs_f64(probes.len() as f64 / f64::from(self.rate)));
        let after = changes(&self.node)?;
        *wrong += after.iter().zip(&before).map(|(after, before)| after - before - 1).sum::<u64>();
        Ok(Sample::new(event, &sending, probes, &seen))
    }

    /// Ends a stream: what became of its frames.
    fn finish(&mut self, running: Running, before: Verdicts) -> Result<(Sender, Counts)> {
        running.stop()?;
        let (sender, sent) = running.join()?;
        let received = self.node.receiver.settled(sent.frames)?;
        let verdicts = self.node.verdicts()?;
        if received.frames == 0 {
            return Err(Error::Traffic(format!("{}: no frame arrived", self.node.plane.name())));
        }
        if self.node.asker().is_some() && verdicts.forwarded == before.forwarded {
            return Err(self.node.failed("XDP forwarded no frame".into()));
        }
        let counts = Counts {
            sent: sent.frames,
            lost: received.lost(&sent),
            duplicated: received.duplicated(),
            wrong: 0,
            passed: verdicts.passed.saturating_sub(before.passed),
        };
        Ok((sender, counts))
    }
}

impl Sample {
    /// From the times at which the watched routes' frames first left by the new way.
    fn new(event: Event, sending: &Sending, probes: &[(usize, Ipv4Addr)], seen: &[u64]) -> Sample {
        // A frame may have been on its way when the message was sent: then the difference is 0.
        let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        let began = sending.began_ns();
        let first = seen.iter().min().copied().unwrap_or(began);
        let last = seen.iter().max().copied().unwrap_or(began);
        let lag = |(probe, seen): (&(usize, Ipv4Addr), &u64)| ms(sending.of_route(event, probe.0), *seen);
        Sample {
            last_ms: ms(began, last),
            first_ms: ms(began, first),
            acknowledged_ms: ms(began, sending.acknowledged_ns),
            lags_ms: probes.iter().zip(seen).map(lag).collect(),
        }
    }
}
