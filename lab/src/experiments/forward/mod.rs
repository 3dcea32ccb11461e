//! Experiment `forward`: IPv4, IPv6, decapsulation and encapsulation through the kernel and through XDP, and XDP with and without
//! filters, interleaved in one run.

mod bench;
mod case;
mod document;
mod filtered;
pub(super) mod flowtable;
mod path;
mod rows;
mod setup;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use trieline_testbed::daemon::Programs;

pub use case::Plane;
pub use document::{Mirror, Outcome, Parameters, delivered, source};
pub use filtered::hosts;
pub use path::Path;
pub use rows::Row;
pub use setup::{Forward, Hosts, Setup};

use bench::Bench;
use case::{Case, Sample};
use filtered::Filtered;
use flowtable::Flowtable;
use rows::Series;

use super::{
    experiment::{Compared, Experiment, Figure},
    options::{BGP_FILE, internet},
};
use crate::{
    Context, Error, Result, in_own_thread, measure::rounded, netns, report::Document, sinks::Sinks,
    tables::Tables, topology::Topology, xdp_fib::XdpFib,
};

/// A quick run begins no further round after this time.
const QUICK: Duration = Duration::from_secs(28);

impl Experiment for Forward {
    const NAME: &'static str = "forward";
    const PURPOSE: &'static str =
        "IPv4, IPv6, decapsulation and encapsulation through the kernel and through XDP";
    const COMPARED: &'static [Compared] =
        &[Compared { list: "rows", names: &["path", "plane"], figures: &[Figure::lower("ns")] }];
    const CODE: &'static [&'static str] = &["router/src", "lpm/src", "lpm/include", "bpf/src"];
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        let (mut options, seed) = (self.clone(), self.run.seed);
        let data = self.table.data.directory()?;
        let tables = match &self.table.file {
            Some(file) => Tables::read(file)?,
            // A quick run has no time to load a million routes into the kernel.
            None if self.run.quick && self.table.data.directory.is_none() => {
                Tables::internet(80_000, 20_000, seed)
            }
            None => {
                options.table.file = data.as_ref().map(|directory| directory.join(BGP_FILE));
                internet(data.as_deref(), seed, context)?
            }
        };
        let mut filters = hosts(data.as_deref(), seed)?;
        filters.retain(|list| self.only.takes(list.path));
        run(&Setup { options, tables, product: Some(Programs::beside_me()?), filters }, context)
    }
}

/// Runs it; blocks until the end, and cleans up whatever happens.
pub fn run(setup: &Setup, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(setup, context))
}

fn run_here(setup: &Setup, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let Setup { options, tables, .. } = setup;
    let (run, seed) = (&options.run, options.run.seed);
    let frames = options.frames.unwrap_or(if run.quick { 150_000 } else { 1_000_000 });
    let rounds = run.rounds(5, 12);
    let machine = run.machine();
    netns::remove_leftovers(setup.product.as_ref(), &|text| context.progress.note(text));
    let topology = Topology::create(context)?;
    let load = Instant::now();
    let routes = path::load_routes(&topology, tables, seed, context)?;
    let load_s = rounded(load.elapsed().as_secs_f64(), 2);
    context.progress.phase("destinations", 0);
    let (generator, mut paths) = path::generator(tables, topology.has_vrf, seed)?;
    paths.retain(|path| options.only.takes(path.name()));
    if setup.filters.is_empty() {
        paths = options.only.some(paths)?;
    }
    let sinks = Sinks::attach(&topology)?;
    let fib = match XdpFib::attach(&topology) {
        Ok(fib) => Some(fib),
        Err(error) => {
            run.lose(context, Plane::Fib.name(), "all paths", error)?;
            None
        }
    };
    let mut bench = Bench { topology: &topology, generator: &generator, sinks, fib, context };
    let flowtable_node = if paths.contains(&Path::Ipv4) { Some(Topology::create(context)?) } else { None };
    let mut flowtable = None;
    if let Some(node) = &flowtable_node {
        flowtable = Flowtable::start(node, &generator, run, context)?;
    }
    let nodes = filtered::nodes(setup, context)?;
    let unlisted = filtered::generator(setup)?;
    let mut mirror = None;
    let daemon = match &setup.product {
        Some(product) => {
            let (daemon, came_up) = bench.start(product, &paths, None)?;
            mirror = Some(came_up);
            Some(daemon)
        }
        None => None,
    };
    let mut filtered = Filtered::start(setup, &nodes, &unlisted, context)?;
    // Not before the daemon runs: it would inherit both.
    let cpu = netns::measure_here()?;
    let mut planes = vec![Plane::Kernel, Plane::KernelTcSink];
    planes.extend(flowtable.as_ref().map(|_| Plane::Flowtable));
    planes.extend(bench.fib.as_ref().map(|_| Plane::Fib));
    planes.extend(daemon.as_ref().map(|_| Plane::Xdp));
    for plane in &planes {
        let reasons: BTreeSet<_> = paths.iter().filter_map(|path| plane.refusal(*path)).collect();
        for why in reasons {
            let its = paths.iter().filter(|path| plane.refusal(**path) == Some(why));
            let names: Vec<_> = its.map(|path| path.name()).collect();
            run.account.refuse(plane.name(), &names.join(", "), why);
        }
    }
    let mut series = Series::new(&paths, &planes);
    let cases = Case::all(&paths, &planes);
    let count = cases.len() + filtered.cases();
    let mut turn = |at: usize, frames| {
        let taken = match (cases.get(at), &mut flowtable) {
            (Some(Case::Path(_, Plane::Flowtable)), Some(flowtable)) => flowtable.turn(frames),
            (Some(case), _) => bench.case(*case, frames),
            (None, _) => filtered.case(at - cases.len(), frames),
        };
        match (cases.get(at), taken) {
            // The rival loses its rows; the run goes on.
            (Some(Case::Path(_, plane)), Err(error)) if plane.is_rival() && !context.interrupted() => {
                Ok(Sample::failed(error.to_string()))
            }
            (_, taken) => taken,
        }
    };
    context.progress.phase("warming up", count as u64);
    let few = (frames / 16).max(1024);
    for at in 0..count {
        context.check()?;
        turn(at, few)?;
        context.progress.advance(1);
    }
    context.progress.phase("rounds", (rounds * count) as u64);
    // A quick run keeps its promise on a slow machine too.
    let late = || run.quick && began.elapsed() > QUICK;
    let taken = run.take(context, "forward", (rounds, count), late, |at, _| turn(at, frames))?;
    for round in &taken.0 {
        let (through, filters) = round.split_at(cases.len());
        series.add(&cases, through)?;
        filtered.add(filters)?;
    }
    drop(daemon);
    for lost in series.lost() {
        run.account.refuse(lost.plane.name(), lost.path, &lost.why);
    }
    for (path, why) in filtered.lost() {
        run.account.refuse(Plane::Xdp.name(), path, &why);
    }
    let mut rows = series.rows(routes);
    rows.extend(filtered.rows(&series.floor()));
    if rows.is_empty() {
        let reasons: Vec<String> = run.account.refused().into_iter().map(|one| one.reason).collect();
        return Err(Error::Traffic(format!("no path has a figure: {}", reasons.join("; "))));
    }
    let parameters = Parameters {
        quick: run.quick,
        table: options.table.file.clone(),
        source: tables.source,
        routes4: tables.v4.len(),
        routes6: tables.v6.len(),
        frames,
        rounds: taken.len(),
        cpu,
        load_s,
        clock: "monotonic clock at the first and the last frame of a turn",
        mirror,
    };
    Ok(Document::new(Forward::NAME, machine, parameters, rows))
}
