//! One node under test: trials through it at a rate, and where its counters say that frames were lost.
//!
//! On veth the generator has a CPU of its own. The ring of the node's ingress, 256 frames, is the hand-off to the other CPU, on which the node and
//! the sink work to completion:
//!
//! ```text
//!   CPU A               CPU B
//!   generator, g0 ───── n0 or k0 (NAPI thread), node, n1 ───── s0, receiver
//! ```

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Pid;
use trieline_testbed::{
    daemon::{Daemon, Programs},
    namespace::Namespace,
};

use super::{
    case::{Case, Path, Plane, Traffic},
    counters::{Counters, Places},
    devices::OwnDevice,
    ways::{self, Nodes, Role, Watched, Way, way},
};
use crate::{
    Context,
    error::{During, Error, Result},
    experiments::{
        forward::flowtable::Rules,
        options::Run,
        queues::{Handoff, settings::Handing},
    },
    netns,
    redirects::{Errors, Redirects},
    sinks::{Egress, Redirect},
    topology::{Device, ENCAP_SEGMENT, Topology, gateway4},
    traffic::{Load, Receiver, Sender},
    xdp_fib::XdpFib,
};

/// How long trielined may take until it forwards.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long frames may take that a node is warmed up with.
const WARM_UP: Duration = Duration::from_secs(30);
const PROBES: u64 = 64;
/// So long a part of a run leaves at once at most.
const BATCH_S: f64 = 10e-6;
const BATCH_MAX: f64 = 64.0;
/// Frames that a veth's ring takes.
const RING: f64 = 256.0;
/// A trial that the machine disturbed is made again so often.
const AGAIN: usize = 3;

/// One trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// Frames a second that were sent.
    pub rate: f64,
    pub sent: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    /// Nanoseconds from the generator to the receiver: p50, p99, p99.9.
    pub latency: [u64; 3],
    /// The machine took the node's CPU away meanwhile, in this trial and in those made for it again.
    pub disturbed: usize,
}

/// Frames of several trials, also of those that were made again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    pub sent: u64,
    pub lost: u64,
}

/// The devices, the receiver and the product.
pub(super) struct Bench<'t> {
    context: &'t Context<'t>,
    ways: Vec<Way<'t>>,
    receiver: Receiver,
    /// Of the last trial's case.
    sender: Option<(Case, Sender)>,
    cpu: u32,
    /// Frames of all trials so far.
    pub total: Total,
    daemon: Option<Daemon>,
    fib: Option<XdpFib>,
    /// The rules of plane `flowtable`'s node.
    rules: Option<Rules<'t>>,
    /// None if the kernel does not show redirect errors.
    redirects: Option<Redirects>,
    /// The egress of the node, which plane `kernel-tc-sink` ends at.
    last: Option<(&'t Namespace, u32)>,
    egress: Option<Egress<'t>>,
    _redirect: Option<Redirect>,
    _threads: Vec<Handing<'t>>,
}

/// The counters of a plane's way before a search.
pub(super) struct Before {
    counters: Vec<Counters>,
    errors: Option<Errors>,
}

/// Where frames were lost, and by which counters.
pub(super) struct Placed {
    pub places: Places,
    pub counters: BTreeMap<String, u64>,
    /// Frames that XDP redirected in vain; none if the kernel does not show them.
    pub redirect_errors: Option<u64>,
}

impl<'t> Bench<'t> {
    /// The lab's own topologies, with these planes. Rivals that cannot be had lose their rows.
    pub fn veth(
        nodes: &Nodes<'t>,
        product: Option<&Programs>,
        (planes, traffic): (&[Plane], &[Traffic]),
        cpus: [usize; 2],
        run: &Run,
        context: &'t Context<'t>,
    ) -> Result<Bench<'t>> {
        let topology = nodes.own;
        let Topology { node, sink, n1, s0, .. } = topology;
        let mut planes = planes.to_vec();
        let mut lose = |plane: Plane, why: &str| {
            run.account.refuse(plane.name(), "all", why);
            context.progress.note(&format!("no rows of {}: {why}", plane.name()));
            planes.retain(|one| *one != plane);
        };
        let rules = match nodes.ruled.map(Rules::set).transpose() {
            Ok(rules) => rules,
            Err(why) => {
                lose(Plane::Flowtable, &why);
                None
            }
        };
        let ways: Vec<(Plane, &Topology, &Device)> =
            planes.iter().filter_map(|plane| ways::ingress(*plane, nodes)).collect();
        for (_, topology, ingress) in &ways {
            ways::widen(topology, ingress)?;
        }
        for topology in [Some(topology), nodes.ruled].into_iter().flatten() {
            for words in traffic.iter().filter_map(route) {
                topology.node.ip_words(&words.split(' ').collect::<Vec<_>>())?;
            }
        }
        let has = |plane| ways.iter().any(|(of, ..)| *of == plane);
        let (mut fib, mut redirect, mut lost) = (None, None, Vec::new());
        if has(Plane::Fib) {
            match XdpFib::attach(topology) {
                Ok(attached) => fib = Some(attached),
                Err(error) => lost.push((Plane::Fib, error)),
            }
        }
        if has(Plane::Redirect) {
            match Redirect::attach(topology) {
                Ok(attached) => redirect = Some(attached),
                Err(error) => lost.push((Plane::Redirect, error)),
            }
        }
        for (plane, error) in &lost {
            run.account.refuse(plane.name(), "all", &error.to_string());
            context.progress.note(&format!("no rows of {}: {error}", plane.name()));
        }
        let mut receiver = Receiver::new(flows(traffic))?;
        receiver.attach(sink, s0.index)?;
        if let Some(ruled) = nodes.ruled.filter(|_| rules.is_some()) {
            receiver.attach(&ruled.sink, ruled.s0.index)?;
        }
        let mut daemon = None;
        if let Some(programs) = product {
            context.progress.phase("mirroring", 0);
            let arguments = |command: &mut Command| {
                command.args(["--dev", topology.n0.name, "--dev", n1.name]);
                // A group of its own: Ctrl-C reaches us, and we end it.
                command.process_group(0);
            };
            let started = daemon.insert(Daemon::launch(programs.clone(), node, arguments)?);
            let ready = started.ready(PATIENCE, || !context.interrupted());
            context.check()?;
            ready?;
        }
        let (mut threads, mut made) = (Vec::new(), Vec::new());
        for (plane, topology, ingress) in ways {
            if lost.iter().any(|(of, _)| *of == plane) {
                continue;
            }
            // Two planes come in by the kernel's device.
            let napi = match made.iter().find(|way: &&Way| way.is_by(topology, ingress)) {
                Some(way) => way.napi,
                None => {
                    let handing =
                        Handing::begin(&topology.node, ingress.name, Handoff::ThreadedNapi, cpus[1])?;
                    for thread in handing.threads.iter().filter_map(|thread| Pid::from_raw(*thread)) {
                        rustix::process::setpriority_process(Some(thread), -20).during(|| {
                            format!("cannot raise the priority of the NAPI thread of {}", ingress.name)
                        })?;
                    }
                    let napi = handing.threads.first().copied();
                    threads.push(handing);
                    napi
                }
            };
            made.push(Way::veth(plane, topology, ingress, napi));
        }
        Ok(Bench {
            context,
            ways: made,
            receiver,
            sender: None,
            cpu: cpus[0] as u32,
            total: Total::default(),
            daemon,
            fib,
            rules,
            redirects: redirects(node.inode(), context),
            last: Some((node, n1.index)),
            egress: None,
            _redirect: redirect,
            _threads: threads,
        })
    }

    /// Frames leave by one device of this machine and come back by another. Those of `node` have counters of a node on this machine.
    pub fn devices(
        tx: &OwnDevice,
        rx: &OwnDevice,
        to: Option<[u8; 6]>,
        node: &[String],
        traffic: &[Traffic],
        context: &'t Context<'t>,
    ) -> Result<Bench<'t>> {
        rx.receives()?;
        let mut receiver = Receiver::new(flows(traffic))?;
        receiver.attach_here(rx.index)?;
        // A veth sends only if its peer has a program: therefore not before.
        tx.sends()?;
        let here = fs::metadata("/proc/thread-self/ns/net").during(|| "cannot name this namespace".into())?;
        let bench = Bench {
            context,
            ways: vec![Way::devices(tx, rx, to, node)],
            receiver,
            sender: None,
            cpu: netns::cpus_here()?.0 as u32,
            total: Total::default(),
            daemon: None,
            fib: None,
            rules: None,
            redirects: redirects(here.ino(), context),
            last: None,
            egress: None,
            _redirect: None,
            _threads: Vec::new(),
        };
        // Losses cannot be placed without counters.
        bench.before(Plane::Device)?;
        Ok(bench)
    }

    /// Sends and measures a case once, for so many seconds at so many frames a second; none: as fast as possible.
    fn once(&mut self, case: &Case, seed: u64, rate: Option<f64>, frames: u64) -> Result<Trial> {
        self.context.check()?;
        self.set_egress(case.plane)?;
        let way = way(&self.ways, case.plane)?;
        let held = || way.napi.map_or(Ok(Duration::ZERO), waited);
        let sender = match self.sender.take() {
            Some((of, sender)) if of == *case => sender,
            _ => Sender::new(&case.traffic.frames(way.near, way.far), &case.traffic.flows(seed))?,
        };
        let load = rate.map_or_else(|| Load::unpaced(frames), |rate| Load::paced(rate, frames));
        let batch = rate.map_or(load.batch, |rate| (rate * BATCH_S).clamp(1.0, BATCH_MAX) as u32);
        let load = Load { pattern: case.traffic.pattern(), batch, ..load }.on(self.cpu);
        self.receiver.begin(load.tag)?;
        let before = held()?;
        let running = match way.from {
            Some(namespace) => sender.start(namespace, way.out, load)?,
            None => sender.start_here(way.out, load)?,
        };
        while !running.is_over() {
            self.context.check()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        let (sender, sent) = running.join()?;
        self.sender = Some((case.clone(), sender));
        let received = self.receiver.settled(sent.frames)?;
        let held = held()?.saturating_sub(before);
        self.context.check()?;
        let lost = received.lost(&sent);
        self.total.sent += sent.frames;
        self.total.lost += lost;
        let whole = case.traffic.bytes_behind(sent.frames);
        if lost == 0 && received.duplicated() == 0 && received.bytes != whole {
            let what = format!("{}: bytes behind the node (counted in bytes)", case.name());
            return Err(Error::Packets { what, got: received.bytes, expected: whole });
        }
        Ok(Trial {
            rate: sent.rate(),
            sent: sent.frames,
            lost,
            duplicated: received.duplicated(),
            reordered: received.reordered(),
            latency: [0.5, 0.99, 0.999].map(|share| received.latency.quantile(share)),
            disturbed: usize::from(is_held_up(held, sent.rate(), lost)),
        })
    }

    /// A trial of so many seconds. If the machine took the node's CPU away for so long that this explains the loss, it is made again, a few
    /// times. Then the loss counts.
    pub fn trial(&mut self, case: &Case, seed: u64, rate: f64, seconds: f64) -> Result<Trial> {
        let frames = (rate * seconds).ceil().max(1.0) as u64;
        let mut disturbed = 0;
        loop {
            let trial = self.once(case, seed, Some(rate), frames)?;
            trial.insist(case)?;
            disturbed += trial.disturbed;
            if trial.lost == 0 || trial.disturbed == 0 || disturbed > AGAIN {
                return Ok(Trial { disturbed, ..trial });
            }
        }
    }

    /// Frames a second that the generator sends without a pace, and those that the node delivers then.
    pub fn overload(&mut self, case: &Case, seed: u64, frames: u64) -> Result<(f64, f64)> {
        let trial = self.once(case, seed, None, frames)?;
        trial.insist(case)?;
        Ok((trial.rate, trial.rate * (trial.sent - trial.lost) as f64 / trial.sent.max(1) as f64))
    }

    /// Puts the receiver on the node's egress for plane `kernel-tc-sink`, and takes it away for all others.
    fn set_egress(&mut self, plane: Plane) -> Result<()> {
        match (plane == Plane::KernelTcSink, self.egress.take(), self.last) {
            (true, None, Some((node, device))) => {
                self.egress = Some(self.receiver.attach_egress(node, device)?);
            }
            (true, egress, _) => self.egress = egress,
            (false, Some(egress), _) => egress.detach()?,
            (false, None, _) => {}
        }
        Ok(())
    }

    /// Whether it has a plane.
    pub fn has(&self, plane: Plane) -> bool {
        self.ways.iter().any(|way| way.plane == plane)
    }

    /// Waits until a case's frames come through its plane, all of a few.
    pub fn warm_up(&mut self, case: &Case, seed: u64) -> Result<()> {
        let until = Instant::now() + WARM_UP;
        loop {
            let before = self.forwarded(case.plane)?;
            let trial = self.once(case, seed, Some(1e4), PROBES)?;
            let by_xdp = self.forwarded(case.plane)? - before;
            if trial.lost == 0 && (case.plane != Plane::Xdp || by_xdp >= PROBES) {
                return Ok(());
            }
            if Instant::now() > until {
                let seconds = WARM_UP.as_secs();
                let what =
                    format!("{}: of each {PROBES} probes for {seconds} s ({by_xdp} by XDP)", case.name());
                return Err(Error::Packets { what, got: PROBES - trial.lost, expected: PROBES });
            }
            if let Some(daemon) = &mut self.daemon {
                daemon.check()?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Packets that the product's XDP program says it forwarded.
    pub fn forwarded(&self, plane: Plane) -> Result<u64> {
        let Some(daemon) = self.daemon.as_ref().filter(|_| plane == Plane::Xdp) else { return Ok(0) };
        let status = daemon.status().ok_or_else(|| daemon.failed("trielined does not answer".into()))?;
        let counters = status["counters"].as_array().cloned().unwrap_or_default();
        let forwarded = counters.iter().filter(|counter| counter["kind"] == "forward");
        Ok(forwarded.filter_map(|counter| counter["packets"].as_u64()).sum())
    }

    /// Frames so far that a plane did not forward as it should: `fib` left them to the kernel, or the flowtable to its rules.
    pub fn astray(&self, plane: Plane) -> Result<u64> {
        match (plane, &self.fib, &self.rules) {
            (Plane::Fib, Some(fib), _) => fib.passed(),
            (Plane::Flowtable, _, Some(rules)) => rules.slow(),
            _ => Ok(0),
        }
    }

    /// The counters of all devices of a plane's way.
    pub fn before(&self, plane: Plane) -> Result<Before> {
        let counters = way(&self.ways, plane)?.watched.iter().map(Watched::read).collect::<Result<_>>()?;
        Ok(Before { counters, errors: self.redirects.as_ref().map(Redirects::errors).transpose()? })
    }

    /// Where the frames of `total` were lost since, and the counters that say so.
    pub fn placed(&self, plane: Plane, before: &Before, total: Total) -> Result<Placed> {
        let (mut places, mut counters) = (Places::default(), BTreeMap::new());
        let after = self.before(plane)?;
        let watched = &way(&self.ways, plane)?.watched;
        for ((one, before), after) in watched.iter().zip(&before.counters).zip(after.counters) {
            let new = after.since(before);
            let Places { rx_ring, xdp, tx_ring, .. } = new.places();
            places.add(match one.role {
                Role::Generator => Places { generator: tx_ring, ..Places::default() },
                Role::Node => Places { rx_ring, xdp, tx_ring, ..Places::default() },
                Role::End => {
                    let xdp = xdp.saturating_sub(total.sent - total.lost);
                    Places { rx_ring, xdp, ..Places::default() }
                }
            });
            counters.extend(new.losses().map(|(name, count)| (format!("{} {name}", one.device), count)));
        }
        let errors = after.errors.zip(before.errors).map(|(after, before)| after.since(before));
        let redirect_errors = errors.map(Errors::all);
        // The generator's frames on a device leave by redirection, too; its own place has them.
        if let Some(errors) = errors.filter(|_| plane != Plane::Device) {
            places = places.with(errors);
        }
        let named = errors.map(|errors| [("refused", errors.refused), ("dropped", errors.dropped)]);
        let named = named.into_iter().flatten().filter(|(_, count)| *count > 0);
        counters.extend(named.map(|(name, count)| (format!("redirect {name}"), count)));
        Ok(Placed { places: places.within(total.lost), counters, redirect_errors })
    }
}

impl Trial {
    /// An error if no frame arrived: a rate would say nothing.
    fn insist(&self, case: &Case) -> Result<()> {
        if self.sent > 0 && self.lost == self.sent {
            let what = format!("{}: behind the node", case.name());
            return Err(Error::Packets { what, got: 0, expected: self.sent });
        }
        Ok(())
    }
}

/// Counts redirect errors in a namespace. Without the kernel's tracepoints they are not known.
fn redirects(namespace: u64, context: &Context) -> Option<Redirects> {
    Redirects::count(namespace)
        .inspect_err(|error| context.progress.note(&format!("redirect errors are not known: {error}")))
        .ok()
}

/// Flows that a receiver of all traffic has to know.
fn flows(traffic: &[Traffic]) -> usize {
    traffic.iter().map(|one| one.flows).max().unwrap_or(1)
}

/// The words of `ip` that make the route of the traffic's path. Decapsulation has a route already, that of its SID.
fn route(traffic: &Traffic) -> Option<String> {
    let network = traffic.network;
    match traffic.path {
        Path::Ipv4 => Some(format!("route replace {network}/24 via {} dev n1", gateway4(1))),
        Path::Encap => {
            Some(format!("route replace {network}/24 encap seg6 mode encap segs {ENCAP_SEGMENT} dev n1"))
        }
        Path::Decap => None,
    }
}

/// Whether the time for which the node's CPU was taken away explains a loss. The frames that were due meanwhile must be as many as were lost:
/// all others the node lost by itself. Below half a ring they explain nothing, since the ring takes them.
fn is_held_up(held: Duration, rate: f64, lost: u64) -> bool {
    held.as_secs_f64() * rate >= (lost as f64).max(RING / 2.0)
}

/// How long a thread has waited for its CPU so far (`/proc/ID/schedstat`).
fn waited(thread: i32) -> Result<Duration> {
    let path = format!("/proc/{thread}/schedstat");
    let text = fs::read_to_string(&path).during(|| format!("cannot read {path}"))?;
    let waited = text.split(' ').nth(1).and_then(|ns| ns.parse().ok());
    waited
        .map(Duration::from_nanos)
        .ok_or(Error::Unread { path, expected: "the time that the thread waited" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_the_machines_only_if_so_many_frames_were_due_while_it_held_the_node() {
        let held = |us, lost| is_held_up(Duration::from_micros(us), 1e6, lost);
        // The ring takes what comes in a short pause: such a loss is the node's.
        assert!(!held(31, 1) && !held(127, 0) && held(128, 1) && held(128, 0));
        // 500 frames were due, 501 lost.
        assert!(held(500, 500) && !held(500, 501));
        // At a low rate the same pause explains less.
        assert!(!is_held_up(Duration::from_micros(500), 1e5, 1));
        assert!(!is_held_up(Duration::ZERO, f64::NAN, 0));
    }
}
