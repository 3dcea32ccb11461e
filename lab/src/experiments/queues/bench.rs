//! One turn of a case: senders on the CPUs of the queues, and what came out behind the node.

use std::{
    os::unix::process::CommandExt,
    process::Command,
    time::{Duration, Instant},
};

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use trieline_testbed::daemon::{Daemon, Programs};

use super::{
    rows::{Case, Handoff, Plane, Turn, Variant},
    settings::{Handing, set_tx_queues, two_rx_queues},
};
use crate::{
    Context,
    error::{During, Error, Result},
    experiments::options::Run,
    flow_sender::FlowSender,
    generator::Sent,
    measure::monotonic_ns,
    netns,
    object::{self, Compiled, compiled, get, types},
    topology::{Device, Topology},
    xdp_fib::XdpFib,
};

const COMPILED: fn() -> Compiled = || compiled!("queues");
/// Frames that a CPU map's queue holds.
const CPUMAP_QUEUE: u32 = 2048;
/// From now until the senders begin: each call of the kernel's sleeps 5 to 20 ms before its first frame.
const START: Duration = Duration::from_millis(30);
/// How long the product may take until it forwards.
const PATIENCE: Duration = Duration::from_secs(30);

/// The frames of each queue for one plane, and the share of the packets that each gets.
pub struct Load {
    /// A sender for each queue.
    pub senders: [FlowSender; 2],
    /// Share of the packets of the first queue, 0 to 1.
    pub share: f64,
}

/// The topology with the sink, and the product if there is one.
pub struct Bench<'t> {
    topology: &'t Topology,
    context: &'t Context<'t>,
    object: Object,
    cpus: [usize; 2],
    daemon: Option<Daemon>,
    /// Plane `fib`, where the kernel takes its program.
    fib: Option<XdpFib>,
    /// TX queues of the egress; 0 before they are set.
    tx_queues: usize,
    /// The planes that were seen to forward since then.
    ready: Vec<Plane>,
    sink: Option<Link>,
}

impl<'t> Bench<'t> {
    /// Makes the queues, fills the CPU map, and starts the product. If plane `fib` cannot be had, it loses its rows.
    pub fn new(
        topology: &'t Topology,
        product: Option<&Programs>,
        cpus: [usize; 2],
        run: &Run,
        context: &'t Context<'t>,
    ) -> Result<Bench<'t>> {
        let compiled = COMPILED();
        let object = compiled.load(compiled.open()?)?;
        let other = cpus[1] as u32;
        let value = [CPUMAP_QUEUE.to_ne_bytes(), 0u32.to_ne_bytes()].concat();
        compiled
            .map(&object, "cpus")?
            .update(&other.to_ne_bytes(), &value, MapFlags::ANY)
            .during(|| format!("cannot put CPU {other} into the CPU map"))?;
        object::write(&compiled.map(&object, ".bss.to")?, &other.to_ne_bytes())?;
        two_rx_queues(topology)?;
        let fib = match XdpFib::attach(topology) {
            Ok(fib) => Some(fib),
            Err(error) => {
                run.lose(context, Plane::Fib.name(), "all", error)?;
                None
            }
        };
        let mut daemon = None;
        if let Some(programs) = product {
            context.progress.phase("mirroring", 0);
            let arguments = |command: &mut Command| {
                command.args(["--dev", topology.n0.name, "--dev", topology.n1.name]);
                // A group of its own: Ctrl-C reaches us, and we end it.
                command.process_group(0);
            };
            let mut started = Daemon::launch(programs.clone(), &topology.node, arguments)?;
            started.ready(PATIENCE, || !context.interrupted())?;
            daemon = Some(started);
        }
        Ok(Bench {
            topology,
            context,
            object,
            cpus,
            daemon,
            fib,
            tx_queues: 0,
            ready: Vec::new(),
            sink: None,
        })
    }

    /// Whether it has a plane.
    pub fn has(&self, plane: Plane) -> bool {
        plane != Plane::Fib || self.fib.is_some()
    }

    /// Frames so far that plane `fib` left to the kernel.
    fn passed(&self) -> Result<u64> {
        self.fib.as_ref().map_or(Ok(0), XdpFib::passed)
    }

    /// The device by which packets come to a plane.
    pub fn ingress(&self, plane: Plane) -> &'t Device {
        match plane {
            Plane::Kernel => &self.topology.k0,
            Plane::Fib => &self.topology.f0,
            Plane::Xdp => &self.topology.n0,
        }
    }

    /// Sends `frames` through a case, after its settings.
    pub fn turn(&mut self, case: &Case, load: &Load, frames: u64) -> Result<Turn> {
        self.context.check()?;
        let ingress = self.ingress(case.plane);
        if self.tx_queues != case.tx_queues() {
            self.set_tx_queues(case.tx_queues())?;
        }
        if !self.ready.contains(&case.plane) {
            self.wait(case.plane, &load.senders[0])?;
        }
        let _handing = Handing::begin(&self.topology.node, ingress.name, case.handoff, self.cpus[1])?;
        let _steering = if case.handoff == Handoff::Cpumap { Some(self.steer(ingress)?) } else { None };
        let is_shared = u32::from(case.variant == Variant::SharedCounter);
        object::write(&COMPILED().map(&self.object, ".bss.is_shared")?, &is_shared.to_ne_bytes())?;
        self.clear()?;
        let (forwarded, passed) = (self.forwarded(case.plane)?, self.passed()?);
        let first = if case.queues == 1 { frames } else { (frames as f64 * load.share).round() as u64 };
        let sent = self.send(ingress, load, [first.min(frames), frames - first.min(frames)])?;
        let by_cpu = self.settled(frames)?;
        let delivered = by_cpu.iter().sum::<u64>();
        self.check(case, &by_cpu, delivered, frames)?;
        if case.plane == Plane::Fib && self.passed()? > passed {
            let (what, got) = (format!("{}: left to the kernel", case.name()), self.passed()? - passed);
            return Err(Error::Packets { what, got, expected: 0 });
        }
        if case.plane == Plane::Xdp {
            // XDP forwarded the frames that came out, not the kernel.
            let got = self.forwarded(case.plane)? - forwarded;
            if got < delivered || got > frames {
                let what = format!("{}: forwarded by XDP, by its own counters", case.name());
                return Err(Error::Packets { what, got, expected: delivered });
            }
        }
        let longest = sent.iter().map(|sent| sent.elapsed.as_secs_f64()).fold(0.0, f64::max);
        Ok(Turn { sent: frames, delivered, mpps: delivered as f64 / longest / 1e6 })
    }

    /// Sets the egress's queues, and puts the sink behind all of them.
    fn set_tx_queues(&mut self, count: usize) -> Result<()> {
        self.sink = None;
        set_tx_queues(self.topology, count, self.cpus)?;
        let _inside = self.topology.sink.enter_here()?;
        let program = COMPILED().program_mut(&self.object, "count")?;
        let index = self.topology.s0.index as i32;
        self.sink = Some(program.attach_xdp(index).during(|| "cannot attach the sink to s0".into())?);
        self.tx_queues = count;
        self.ready.clear();
        Ok(())
    }

    /// Sends so many frames for each queue, each on its CPU and all from the same moment.
    fn send(&self, ingress: &Device, load: &Load, counts: [u64; 2]) -> Result<Vec<Sent>> {
        let out = self.topology.towards(ingress).index;
        let together = counts.iter().all(|count| *count > 0);
        let start = together.then(|| monotonic_ns() + START.as_nanos() as u64);
        let from = &self.topology.source;
        std::thread::scope(|scope| {
            let queues = load.senders.iter().zip(self.cpus).zip(counts).filter(|(_, count)| *count > 0);
            let threads: Vec<_> = queues
                .map(|((sender, cpu), count)| {
                    scope.spawn(move || {
                        netns::pin_to(cpu)?;
                        netns::insist_here()?;
                        sender.send(from, out, count, start)
                    })
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<Result<Sent>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        })
    }

    /// Puts the program that hands frames to the other CPU on a device.
    fn steer(&self, device: &Device) -> Result<Link> {
        let _inside = self.topology.node.enter_here()?;
        let program = COMPILED().program_mut(&self.object, "hand_over")?;
        program
            .attach_xdp(device.index as i32)
            .during(|| format!("cannot attach the CPU map's program to {}", device.name))
    }

    fn clear(&self) -> Result<()> {
        for section in [".bss.by_cpu", ".bss.shared"] {
            object::write(&COMPILED().map(&self.object, section)?, &[])?;
        }
        Ok(())
    }

    /// Frames at the sink, by CPU; those of the shared word come last.
    fn seen(&self) -> Result<Vec<u64>> {
        let by_cpu = object::read(&COMPILED().map(&self.object, ".bss.by_cpu")?)?;
        let shared = object::read(&COMPILED().map(&self.object, ".bss.shared")?)?;
        let frames = |bytes: &[u8]| get!(bytes, lab_count.frames);
        let counts = by_cpu.chunks(size_of::<types::lab_count>()).map(frames);
        Ok(counts.chain([frames(&shared)]).collect())
    }

    /// As [`Bench::seen`], once all frames have arrived or none has for a moment.
    fn settled(&self, frames: u64) -> Result<Vec<u64>> {
        let sum = |seen: &[u64]| seen.iter().sum::<u64>();
        let mut seen = self.seen()?;
        let mut since = Instant::now();
        while sum(&seen) < frames && since.elapsed() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(2));
            let now = self.seen()?;
            if sum(&now) > sum(&seen) {
                (seen, since) = (now, Instant::now());
            }
        }
        Ok(seen)
    }

    /// An error unless the CPUs did the work that the case says.
    fn check(&self, case: &Case, by_cpu: &[u64], delivered: u64, frames: u64) -> Result<()> {
        if delivered == 0 {
            let what = format!("{}: behind the node", case.name());
            return Err(Error::Packets { what, got: 0, expected: frames });
        }
        // The shared ring and the shared word do not show which CPU did the work.
        if matches!(case.variant, Variant::SharedCounter | Variant::OneTxQueue) {
            return Ok(());
        }
        let works = match (case.handoff, case.variant, case.queues) {
            (Handoff::None, Variant::OneTunnel, _) | (Handoff::None, _, 1) => [true, false],
            (Handoff::None, ..) => [true, true],
            _ => [false, true],
        };
        for (cpu, works) in self.cpus.into_iter().zip(works) {
            let got = by_cpu.get(cpu).copied().unwrap_or_default();
            if works != (got > delivered / 10) {
                let what = format!("{}: sunk on CPU {cpu}, which {}", case.name(), role(works));
                return Err(Error::Packets { what, got, expected: if works { delivered } else { 0 } });
            }
        }
        Ok(())
    }

    /// Packets that the product's XDP program says it forwarded.
    fn forwarded(&self, plane: Plane) -> Result<u64> {
        let Some(daemon) = self.daemon.as_ref().filter(|_| plane == Plane::Xdp) else { return Ok(0) };
        let status = daemon.status().ok_or_else(|| daemon.failed("trielined does not answer".into()))?;
        let counters = status["counters"].as_array().cloned().unwrap_or_default();
        let forwarded = counters.iter().filter(|counter| counter["kind"] == "forward");
        Ok(forwarded.filter_map(|counter| counter["packets"].as_u64()).sum())
    }

    /// Waits until the plane forwards: a veth whose queues change loses its carrier for a moment.
    fn wait(&mut self, plane: Plane, sender: &FlowSender) -> Result<()> {
        const PROBES: u64 = 64;
        let out = self.topology.towards(self.ingress(plane)).index;
        let until = Instant::now() + PATIENCE;
        loop {
            self.context.check()?;
            if let Some(daemon) = &mut self.daemon {
                daemon.check()?;
            }
            let (before, passed) = (self.forwarded(plane)?, self.passed()?);
            self.clear()?;
            sender.send(&self.topology.source, out, PROBES, None)?;
            let came = self.settled(PROBES)?.iter().sum::<u64>();
            let by_xdp = match plane {
                Plane::Kernel => PROBES,
                Plane::Fib => PROBES.saturating_sub(self.passed()? - passed),
                Plane::Xdp => self.forwarded(plane)? - before,
            };
            if came == PROBES && by_xdp == PROBES {
                self.ready.push(plane);
                return Ok(());
            }
            if Instant::now() > until {
                let plane = plane.name();
                let what = format!("forwarded of each probe of 64 by {plane}, for 30 s ({by_xdp} by XDP)");
                return Err(Error::Packets { what, got: came, expected: PROBES });
            }
        }
    }
}

fn role(works: bool) -> &'static str {
    if works { "forwards" } else { "has no work" }
}
