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
    os::unix::process::CommandExt,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Pid;
use trieline_testbed::{
    command,
    daemon::{Daemon, Programs},
    namespace::Namespace,
};

use super::{
    case::{Case, Path, Plane, Traffic},
    counters::{Counters, Places},
    devices::OwnDevice,
};
use crate::{
    Context,
    error::{During, Error, Result},
    experiments::queues::{Handoff, settings::Handing},
    netns,
    sinks::Redirect,
    topology::{Device, ENCAP_SEGMENT, Topology, gateway4},
    traffic::{Load, Receiver, Sender},
    xdp_fib::XdpFib,
};

/// Room for the largest frame with outer headers.
const MTU: &str = "1700";
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

/// Where a plane's frames are sent, and where they come back.
struct Way<'t> {
    plane: Plane,
    /// None: the calling thread's.
    from: Option<&'t Namespace>,
    out: u32,
    near: [u8; 6],
    far: [u8; 6],
    /// The thread of the kernel's that polls the node's ingress.
    napi: Option<i32>,
    watched: Vec<Watched<'t>>,
}

/// A device whose counters say where frames were lost.
struct Watched<'t> {
    namespace: Option<&'t Namespace>,
    device: String,
    role: Role,
}

/// The meaning of a full TX ring, or a drop by XDP, at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The generator's device.
    Generator,
    /// The node's.
    Node,
    /// The receiver's: its program drops what arrives, too.
    End,
}

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
    _redirect: Option<Redirect>,
    _threads: Vec<Handing<'t>>,
}

impl<'t> Bench<'t> {
    /// The lab's own topology, with these planes.
    pub fn veth(
        topology: &'t Topology,
        product: Option<&Programs>,
        (planes, traffic): (&[Plane], &[Traffic]),
        cpus: [usize; 2],
        context: &'t Context<'t>,
    ) -> Result<Bench<'t>> {
        let Topology { source, node, sink, n1, s0, .. } = topology;
        let ingress = |plane: Plane| match plane {
            Plane::Kernel | Plane::Device => &topology.k0,
            Plane::Fib => &topology.f0,
            Plane::Xdp => &topology.n0,
            Plane::Redirect => &topology.r0,
        };
        let ends = planes.iter().map(|plane| ingress(*plane));
        let ends = ends.flat_map(|end| [(source, topology.towards(end)), (node, end)]);
        for (namespace, device) in ends.chain([(node, n1), (sink, s0)]) {
            namespace.ip_words(&["link", "set", device.name, "mtu", MTU])?;
        }
        for words in traffic.iter().filter_map(route) {
            node.ip_words(&words.split(' ').collect::<Vec<_>>())?;
        }
        {
            // Its NAPI, which gets a thread, is there before any XDP program is.
            let _inside = node.enter_here()?;
            for plane in planes {
                command::output("ethtool", &["-K", ingress(*plane).name, "gro", "on"])?;
            }
        }
        let has = |plane| planes.contains(&plane);
        let fib = has(Plane::Fib).then(|| XdpFib::attach(topology)).transpose()?;
        let redirect = has(Plane::Redirect).then(|| Redirect::attach(topology)).transpose()?;
        let mut receiver = Receiver::new(flows(traffic))?;
        receiver.attach(sink, s0.index)?;
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
        let (mut ways, mut threads) = (Vec::new(), Vec::new());
        for plane in planes.iter().copied() {
            let ingress = ingress(plane);
            let out = topology.towards(ingress);
            let handing = Handing::begin(node, ingress.name, Handoff::ThreadedNapi, cpus[1])?;
            for thread in handing.threads.iter().filter_map(|thread| Pid::from_raw(*thread)) {
                rustix::process::setpriority_process(Some(thread), -20)
                    .during(|| format!("cannot raise the priority of the NAPI thread of {}", ingress.name))?;
            }
            let napi = handing.threads.first().copied();
            threads.push(handing);
            let watched = |device: &Device| Watched {
                namespace: Some(node),
                device: device.name.to_owned(),
                role: Role::Node,
            };
            let watched = vec![watched(ingress), watched(n1)];
            let (near, far) = (out.mac, ingress.mac);
            ways.push(Way { plane, from: Some(source), out: out.index, near, far, napi, watched });
        }
        let (sender, cpu, total) = (None, cpus[0] as u32, Total::default());
        let (_redirect, _threads) = (redirect, threads);
        Ok(Bench { context, ways, receiver, sender, cpu, total, daemon, fib, _redirect, _threads })
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
        let watched = |device: &String, role| Watched { namespace: None, device: device.clone(), role };
        let mut all = vec![watched(&tx.name, Role::Generator), watched(&rx.name, Role::End)];
        all.extend(node.iter().map(|device| watched(device, Role::Node)));
        let (near, far) = (tx.mac, to.unwrap_or(rx.mac));
        let way =
            Way { plane: Plane::Device, from: None, out: tx.index, near, far, napi: None, watched: all };
        let (sender, cpu, total) = (None, netns::cpus_here()?.0 as u32, Total::default());
        let (ways, daemon, fib, _redirect, _threads) = (vec![way], None, None, None, Vec::new());
        let bench = Bench { context, ways, receiver, sender, cpu, total, daemon, fib, _redirect, _threads };
        // Losses cannot be placed without counters.
        bench.counters(Plane::Device)?;
        Ok(bench)
    }

    /// Sends and measures a case once, for so many seconds at so many frames a second; none: as fast as possible.
    fn once(&mut self, case: &Case, seed: u64, rate: Option<f64>, frames: u64) -> Result<Trial> {
        self.context.check()?;
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
    /// times; then the loss counts.
    pub fn trial(&mut self, case: &Case, seed: u64, rate: f64, seconds: f64) -> Result<Trial> {
        let frames = (rate * seconds).ceil().max(1.0) as u64;
        let mut disturbed = 0;
        loop {
            let trial = self.once(case, seed, Some(rate), frames)?;
            disturbed += trial.disturbed;
            if trial.lost == 0 || trial.disturbed == 0 || disturbed > AGAIN {
                return Ok(Trial { disturbed, ..trial });
            }
        }
    }

    /// Frames a second that the generator sends without a pace, and those that the node delivers then.
    pub fn overload(&mut self, case: &Case, seed: u64, frames: u64) -> Result<(f64, f64)> {
        let trial = self.once(case, seed, None, frames)?;
        Ok((trial.rate, trial.rate * (trial.sent - trial.lost) as f64 / trial.sent.max(1) as f64))
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

    /// Frames so far that plane `fib` left to the kernel.
    pub fn left_to_the_kernel(&self, plane: Plane) -> Result<u64> {
        self.fib.as_ref().filter(|_| plane == Plane::Fib).map_or(Ok(0), XdpFib::passed)
    }

    /// The counters of all devices of a plane's way.
    pub fn counters(&self, plane: Plane) -> Result<Vec<Counters>> {
        let read = |one: &Watched| {
            let _inside = one.namespace.map(Namespace::enter_here).transpose()?;
            Counters::read(&one.device)
        };
        way(&self.ways, plane)?.watched.iter().map(read).collect()
    }

    /// Where the frames of `total` were lost since, and the counters that say so.
    pub fn placed(
        &self,
        plane: Plane,
        before: &[Counters],
        total: Total,
    ) -> Result<(Places, BTreeMap<String, u64>)> {
        let (mut places, mut names) = (Places::default(), BTreeMap::new());
        let after = self.counters(plane)?;
        for ((one, before), after) in way(&self.ways, plane)?.watched.iter().zip(before).zip(after) {
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
            names.extend(new.losses().map(|(name, count)| (format!("{} {name}", one.device), count)));
        }
        Ok((places.within(total.lost), names))
    }
}

fn way<'a, 't>(ways: &'a [Way<'t>], plane: Plane) -> Result<&'a Way<'t>> {
    let why = || Error::Traffic(format!("no way leads through plane {}", plane.name()));
    ways.iter().find(|way| way.plane == plane).ok_or_else(why)
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
