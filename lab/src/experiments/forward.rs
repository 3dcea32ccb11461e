//! Experiment `forward`: IPv4, IPv6, decapsulation and encapsulation through the kernel and through XDP, and XDP with and without
//! filters, interleaved in one run.

mod bench;
mod filtered;
mod rows;
mod text;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::Serialize;

pub use filtered::{Hosts, hosts};
pub use rows::{Plane, Row, lines};
pub use text::{delivered, plane, source};

use bench::Bench;
use filtered::Filtered;
use rows::Series;

use super::traffic;
use crate::{
    Context, Error, Result,
    daemon::Product,
    in_own_thread,
    measure::rounded,
    netns,
    report::{Document, Machine},
    sinks::Sinks,
    tables::{Source, Tables, source as tables_source},
    topology::Topology,
};

/// The options of a run.
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
    /// Lists of hosts, each for a node that filters by it; measured with the product only.
    pub filters: Vec<Hosts>,
    /// Only paths whose name contains this.
    pub only: Option<String>,
    /// Rounds; by default 5 (quick) or 12.
    pub rounds: Option<usize>,
    /// Frames a turn; by default 150,000 (quick) or 1,000,000.
    pub frames: Option<u64>,
}

/// The parameters, for the document.
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
    /// The daemon's own status (`trieline -j node status`).
    pub status: Option<serde_json::Value>,
}

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// Runs it as a command asks for it.
pub fn run_asked(asked: &super::Options, context: &Context) -> Result<Outcome> {
    let data = tables_source::data_directory(asked.data.as_deref())?;
    let (table, tables) = match &asked.table {
        Some(file) => (Some(file.clone()), Tables::read(file)?),
        // A quick run has no time to load a million routes into the kernel.
        None if asked.quick && asked.data.is_none() => (None, Tables::internet(80_000, 20_000, asked.seed)),
        None => {
            let file = data.as_ref().map(|d| d.join(tables_source::BGP_FILE));
            (file, super::map_tables::internet(data.as_deref(), asked.seed, context)?)
        }
    };
    let mut filters = hosts(data.as_deref(), asked.seed)?;
    if let Some(only) = &asked.only {
        filters.retain(|list| list.path.contains(only));
    }
    let options = Options {
        quick: asked.quick,
        tables,
        table,
        seed: asked.seed,
        command: asked.command.clone(),
        product: Some(Product::beside_me()?),
        filters,
        only: asked.only.clone(),
        rounds: asked.rounds,
        frames: asked.frames,
    };
    run(&options, context)
}

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
    let (generator, mut paths) = traffic::generator(&options.tables, topology.has_vrf, options.seed)?;
    if let Some(only) = &options.only {
        paths.retain(|path| path.name().contains(only));
        if paths.is_empty() && options.filters.is_empty() {
            return Err(Error::NoCase(only.clone()));
        }
    }
    let sinks = Sinks::attach(&topology)?;
    let mut bench = Bench { topology: &topology, generator: &generator, sinks, context };
    let nodes = filtered::nodes(options, context)?;
    let unlisted = filtered::generator(options)?;
    let mut mirror = None;
    let daemon = match &options.product {
        Some(product) => {
            let (daemon, came_up) = bench.start(product, &paths, None)?;
            mirror = Some(came_up);
            Some(daemon)
        }
        None => None,
    };
    let mut filtered = Filtered::start(options, &nodes, &unlisted, context)?;
    // Not before the daemon runs: it would inherit both.
    let cpu = netns::measure_here()?;
    let mut planes = vec![Plane::Kernel, Plane::KernelTcSink];
    if daemon.is_some() {
        planes.push(Plane::Xdp);
    }
    let mut series = Series::new(&paths, &planes);
    let turns = paths.len() * (planes.len() + 1) + 1 + filtered.turns();
    context.progress.phase("warming up", turns as u64);
    let few = (frames / 16).max(1024);
    bench.round(&paths, &planes, few, None)?;
    filtered.round(few, false)?;
    context.progress.phase("rounds", (rounds * turns) as u64);
    let mut done = 0;
    for round in 0..rounds {
        // A quick run keeps its promise on a slow machine too.
        if options.quick && round >= 3 && began.elapsed() > Duration::from_secs(28) {
            context.progress.note("slow machine: fewer rounds than asked for");
            break;
        }
        bench.round(&paths, &planes, frames, Some(&mut series))?;
        filtered.round(frames, true)?;
        done += 1;
    }
    drop(daemon);
    let mut rows = series.rows(routes);
    rows.extend(filtered.rows());
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
        rows,
    })
}
