//! Experiment `forward`: IPv4, IPv6, decapsulation and encapsulation through the kernel and through XDP, interleaved in one run.

mod rows;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::Serialize;

pub use rows::{Plane, Row, lines};

use rows::{Series, Turn};

use super::traffic::{self, Path};
use crate::{
    Context, Result,
    daemon::{Daemon, Product},
    frames::Kind,
    generator::Generator,
    in_own_thread,
    measure::rounded,
    netns,
    report::{Document, Machine},
    sinks::{Sink, Sinks},
    tables::{Source, Tables},
    topology::{Device, Topology},
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Ends within 40 s, with fewer frames and rounds.
    pub quick: bool,
    /// The routes.
    pub tables: Tables,
    /// File they come from.
    pub table: Option<PathBuf>,
    /// Seed of everything random.
    pub seed: u64,
    /// The command line, for the document.
    pub command: String,
    /// The product; without it only the kernel and the bare redirect are measured.
    pub product: Option<Product>,
    /// Rounds; by default 5 (quick) or 12.
    pub rounds: Option<usize>,
    /// Frames a turn; by default 150,000 (quick) or 1,000,000.
    pub frames: Option<u64>,
}

/// What was asked for, as the document says it.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// File of the routes.
    pub table: Option<PathBuf>,
    /// Read or generated.
    pub source: Source,
    /// Routes of each family in the kernel.
    pub routes4: usize,
    /// IPv6.
    pub routes6: usize,
    /// Frames a turn.
    pub frames: u64,
    /// Interleaved rounds.
    pub rounds: usize,
    /// CPU that generates, forwards and sinks.
    pub cpu: u32,
    /// Seconds that `ip -batch` took to load the routes.
    pub load_s: f64,
    /// How it was timed.
    pub clock: &'static str,
    /// How the mirror came up; none without the product.
    pub mirror: Option<Mirror>,
}

/// How long the product took to forward what the kernel knew.
#[derive(Clone, Debug, Serialize)]
pub struct Mirror {
    /// From the daemon's start to the first frame that XDP forwarded, probed every ~25 ms.
    pub start_to_first_forwarded_ms: f64,
    /// From its start until all paths were forwarded by XDP.
    pub start_to_all_paths_ms: f64,
    /// What the daemon itself says (`trieline -j node status`).
    pub status: Option<serde_json::Value>,
}

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// Runs it; blocks until the end, and cleans up whatever happens.
pub fn run(options: &Options, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(options, context))
}

fn run_here(options: &Options, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let frames = options.frames.unwrap_or(if options.quick { 150_000 } else { 1_000_000 });
    let rounds = options.rounds.unwrap_or(if options.quick { 5 } else { 12 });
    let machine = Machine::here(options.command.clone(), options.seed);
    netns::remove_leftovers(options.product.as_ref(), &|text| context.progress.note(text));
    let topology = Topology::create(context)?;
    let load = Instant::now();
    let routes = traffic::load_routes(&topology, &options.tables, options.seed, context)?;
    let load_s = rounded(load.elapsed().as_secs_f64(), 2);
    context.progress.phase("destinations", 0);
    let (generator, paths) = traffic::generator(&options.tables, options.seed)?;
    let sinks = Sinks::attach(&topology)?;
    let mut bench = Bench { topology: &topology, generator: &generator, sinks, context };
    let mut mirror = None;
    let daemon = match &options.product {
        Some(product) => {
            let (daemon, came_up) = bench.start(product, &paths)?;
            mirror = Some(came_up);
            Some(daemon)
        }
        None => None,
    };
    // Not before the daemon runs: it would inherit both.
    let cpu = netns::measure_here()?;
    let mut planes = vec![Plane::Kernel, Plane::KernelTcSink];
    if daemon.is_some() {
        planes.push(Plane::Xdp);
    }
    let mut series = Series::new(&paths, &planes);
    let turns = paths.len() * (planes.len() + 1) + 1;
    context.progress.phase("warming up", turns as u64);
    bench.round(&paths, &planes, (frames / 16).max(1024), None)?;
    context.progress.phase("rounds", (rounds * turns) as u64);
    let mut done = 0;
    for round in 0..rounds {
        // A quick run keeps its promise on a slow machine too.
        if options.quick && round >= 3 && began.elapsed() > Duration::from_secs(28) {
            context.progress.note("slow machine: fewer rounds than asked for");
            break;
        }
        bench.round(&paths, &planes, frames, Some(&mut series))?;
        done += 1;
    }
    drop(daemon);
    Ok(Document {
        experiment: "forward",
        version: 1,
        machine,
        parameters: Parameters {
            quick: options.quick,
            table: options.table.clone(),
            source: options.tables.source,
            routes4: options.tables.v4.len(),
            routes6: options.tables.v6.len(),
            frames,
            rounds: done,
            cpu,
            load_s,
            clock: "monotonic clock at the first and the last frame of a turn",
            mirror,
        },
        rows: series.rows(routes),
    })
}

/// A topology with everything attached.
struct Bench<'t> {
    topology: &'t Topology,
    generator: &'t Generator,
    sinks: Sinks<'t>,
    context: &'t Context<'t>,
}

impl Bench<'_> {
    /// One turn of every path and plane.
    fn round(
        &mut self,
        paths: &[Path],
        planes: &[Plane],
        frames: u64,
        mut series: Option<&mut Series>,
    ) -> Result<()> {
        let r0 = self.topology.r0.clone();
        let redirect = self.turn("encap", Kind::Ipv4, &r0, Sink::Xdp, frames)?;
        if let Some(series) = &mut series {
            series.redirect.push(redirect);
        }
        for (p, path) in paths.iter().enumerate() {
            let ns = self.generator_alone(*path, frames)?;
            if let Some(series) = &mut series {
                series.generator[p].push(ns);
            }
            for (q, plane) in planes.iter().enumerate() {
                let (ingress, sink) = match plane {
                    Plane::Kernel => (self.topology.k0.clone(), Sink::Xdp),
                    Plane::KernelTcSink => (self.topology.k0.clone(), Sink::Tc),
                    Plane::Xdp => (self.topology.n0.clone(), Sink::Xdp),
                };
                let turn = self.turn(path.name(), path.kind(), &ingress, sink, frames)?;
                if let Some(series) = &mut series {
                    series.turns[p][q].push(turn);
                }
            }
        }
        Ok(())
    }

    fn turn(&mut self, name: &str, kind: Kind, ingress: &Device, sink: Sink, frames: u64) -> Result<Turn> {
        self.context.check()?;
        self.sinks.set_tc(sink == Sink::Tc)?;
        self.sinks.clear(sink)?;
        let out = self.topology.towards(ingress);
        let frame = kind.frame(out.mac, ingress.mac);
        let sent = self.generator.run(name, &self.topology.source, out.index, &frame, frames, false)?;
        let delivered = self.sinks.settled(sink, sent.frames)?.frames;
        self.context.progress.advance(1);
        Ok(Turn { ns: sent.ns(), sent: sent.frames, delivered })
    }

    fn generator_alone(&mut self, path: Path, frames: u64) -> Result<f64> {
        self.context.check()?;
        let out = &self.topology.g0;
        let frame = path.kind().frame(out.mac, self.topology.n0.mac);
        let sent = self.generator.run(path.name(), &self.topology.source, out.index, &frame, frames, true)?;
        self.context.progress.advance(1);
        Ok(sent.ns())
    }

    /// Starts the product and waits until XDP forwards every path. The tc sink stops what the kernel still forwards, so only
    /// XDP's frames reach s0.
    fn start(&mut self, product: &Product, paths: &[Path]) -> Result<(Daemon, Mirror)> {
        const PATIENCE: Duration = Duration::from_secs(60);
        self.context.progress.phase("mirroring", 0);
        self.sinks.set_tc(true)?;
        self.sinks.clear(Sink::Xdp)?;
        let n0 = self.topology.n0.clone();
        let mut daemon = Daemon::start(product, &self.topology.node, &[n0.name, self.topology.n1.name])?;
        let mut first_ns = 0;
        let mut missing = paths.to_vec();
        while let Some(path) = missing.first().copied() {
            self.context.check()?;
            daemon.check()?;
            if daemon.age() > PATIENCE {
                let names: Vec<_> = missing.iter().map(|path| path.name()).collect();
                return Err(daemon.failed(format!(
                    "after {} s XDP does not forward {} (probes of 64 frames, the kernel's forwarding stopped)",
                    PATIENCE.as_secs(),
                    names.join(", ")
                )));
            }
            let before = self.sinks.seen(Sink::Xdp)?;
            let out = self.topology.towards(&n0);
            let frame = path.kind().frame(out.mac, n0.mac);
            let sent =
                self.generator.run(path.name(), &self.topology.source, out.index, &frame, 64, false)?;
            std::thread::sleep(Duration::from_millis(2));
            let after = self.sinks.seen(Sink::Xdp)?;
            if first_ns == 0 {
                first_ns = after.first_ns;
            }
            if after.frames - before.frames == sent.frames {
                missing.remove(0);
            }
        }
        let all = daemon.age();
        self.sinks.set_tc(false)?;
        let mirror = Mirror {
            start_to_first_forwarded_ms: rounded(
                first_ns.saturating_sub(daemon.started_ns()) as f64 / 1e6,
                1,
            ),
            start_to_all_paths_ms: rounded(all.as_secs_f64() * 1e3, 1),
            status: daemon.status(),
        };
        Ok((daemon, mirror))
    }
}
