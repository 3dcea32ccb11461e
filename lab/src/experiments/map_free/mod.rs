//! Experiment `map-free`: what it costs to free LPM_TRIE and trieline, all of it and one table beside a live one. The costs are CPU time
//! and the longest stall of a CPU.

mod cost;
mod document;
mod kthreads;
mod memory;
mod stall;

use std::time::{Duration, Instant};

use clap::Args;
use trieline_bpf::{ImageMap, ImageMapType, ReaderGrace};

pub use cost::{Case, Cost};
pub use document::{Outcome, Parameters, Row};
pub use memory::What;

use super::{
    experiment::{Compared, Experiment, Figure},
    options::{Entries, Run},
    structure::{Which, failed, image_bytes},
};
use crate::{
    Context, Result, in_own_thread,
    measure::{Samples, rounded},
    published,
    report::Document,
    tables::kinds::numbered,
};

/// Sizes of a run.
const SIZES: [usize; 5] = [10_000, 100_000, 1_000_000, 4_000_000, 10_000_000];
/// Entries of the table that stays.
const LIVE: usize = 10_000;
/// More than it takes.
const LIVE_BYTES: u64 = 1 << 20;
/// A quick run begins no further round after this time, nor a size but the first after the other.
const QUICK_ROUNDS: Duration = Duration::from_secs(10);
const QUICK_SIZES: Duration = Duration::from_secs(20);

/// Its options.
#[derive(Args, Clone, Debug, Default)]
pub struct MapFree {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// How many entries.
    #[command(flatten)]
    pub entries: Entries,
}

impl Experiment for MapFree {
    const NAME: &'static str = "map-free";
    const PURPOSE: &'static str =
        "CPU time and longest stall of freeing LPM_TRIE and trieline, whole and one table of two";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["entries", "structure", "map_type", "what"],
        figures: &[Figure::lower("cpu_ms"), Figure::lower("stall_ms")],
    }];
    const CODE: &'static [&'static str] = &["lpm/src", "lpm/include", "bpf/src"];
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| run_here(self, context))
    }
}

fn run_here(asked: &MapFree, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let (rounds, is_quick) = (asked.run.rounds(2, 3), asked.run.quick);
    let sizes = asked.entries.or(SIZES.into_iter().take(if is_quick { 3 } else { SIZES.len() }));
    let mut bench = Bench {
        context,
        run: &asked.run,
        grace: ReaderGrace::new().map_err(failed)?,
        discarded: 0,
        rows: Vec::new(),
    };
    let machine = asked.run.machine();
    for size in sizes {
        if is_quick && !bench.rows.is_empty() && began.elapsed() > QUICK_SIZES {
            context.progress.note(&format!("{size} entries: left out, this machine is slow"));
            continue;
        }
        let part = bench.size(size, rounds, || is_quick && began.elapsed() > QUICK_ROUNDS);
        if asked.run.ends(context, part, !bench.rows.is_empty())? {
            break;
        }
    }
    let parameters = Parameters {
        quick: is_quick,
        rounds,
        tables: "/32, dense keys, as the kernel's bench has them",
        cpu: "this process's time, and that of the kernel's workers for the queue in which it frees maps (events_unbound) until they are \
                  quiet; less theirs in the same time without a freeing",
        stall: "longest time between two readings of the clock by a thread of its own on each CPU, in another freeing",
        live: LIVE,
        discarded: bench.discarded,
    };
    Ok(Document::new(MapFree::NAME, machine, parameters, bench.rows))
}

struct Bench<'c> {
    context: &'c Context<'c>,
    run: &'c Run,
    grace: ReaderGrace,
    discarded: usize,
    rows: Vec<Row>,
}

/// The result of one round of one case, in milliseconds.
#[derive(Clone, Copy, Default)]
struct Reading {
    own: f64,
    unmap: Option<f64>,
    kernel: f64,
    idle: f64,
    stall: f64,
    idle_stall: f64,
    bytes: Option<u64>,
    /// Readings of either kind that did not count.
    discarded: usize,
}

impl Bench<'_> {
    fn size(&mut self, size: usize, rounds: usize, late: impl Fn() -> bool) -> Result<()> {
        let progress = self.context.progress;
        progress.phase(&format!("{size} entries: making the table"), 0);
        let (entries, live) = (numbered(size), numbered(LIVE));
        let bytes = image_bytes(&entries, LIVE_BYTES)?;
        let mut cases = vec![(Which::LpmTrie, What::Map)];
        for map_type in map_types(self.context) {
            if bytes > map_type.max_bytes() {
                progress
                    .note(&format!("{size} entries: {} MiB are too large for an {map_type}", bytes >> 20));
                continue;
            }
            cases.extend([What::Map, What::Table].map(|what| (Which::Trieline(map_type), what)));
        }
        progress.phase(&format!("{size} entries: rounds"), (rounds * cases.len()) as u64);
        let mut lost = vec![false; cases.len()];
        let name = format!("{size} entries");
        let taken = self.run.take(self.context, &name, (rounds, cases.len()), late, |at, _| {
            let (which, what) = cases[at];
            if lost[at] {
                return Ok(Reading::default());
            }
            let live = if what == What::Table { &live[..] } else { &[] };
            match self.reading(which, bytes, &Case { what, gone: &entries, live }) {
                Err(error) if which == Which::LpmTrie => {
                    self.run.lose(self.context, which.name(), &name, error)?;
                    lost[at] = true;
                    Ok(Reading::default())
                }
                reading => reading,
            }
        })?;
        self.discarded += taken.0.iter().flatten().map(|reading| reading.discarded).sum::<usize>();
        let (_, published) = published::operations()?;
        let published = published.iter().find(|of| of.name == "free" && size == 10_000);
        for (at, (which, what)) in cases.iter().enumerate().filter(|(at, _)| !lost[*at]) {
            let published = published.filter(|_| *which == Which::LpmTrie).map(|of| of.ns / 1e6);
            let readings: Vec<&Reading> = taken.0.iter().map(|round| &round[at]).collect();
            self.rows.push(row(&readings, size, *which, *what, published));
        }
        Ok(())
    }

    /// A reading of each kind.
    fn reading(&self, which: Which, bytes: u64, case: &Case) -> Result<Reading> {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let (context, grace) = (self.context, &self.grace);
        let mut reading = Reading::default();
        let (cost, spoilt) = case.read(which, bytes, grace, context, |held| {
            reading.bytes = held.bytes();
            case.cost(held, context)
        })?;
        let (stall, spoilt_stalls) =
            case.read(which, bytes, grace, context, |held| case.stall(held, context))?;
        Ok(Reading {
            own: ms(cost.own),
            unmap: cost.unmap.map(ms),
            kernel: ms(cost.kernel),
            idle: ms(cost.idle),
            stall: ms(stall.freeing),
            idle_stall: ms(stall.idle),
            discarded: spoilt + spoilt_stalls,
            ..reading
        })
    }
}

/// The map types that this machine has.
fn map_types(context: &Context) -> Vec<ImageMapType> {
    let has = |map_type: &ImageMapType| match ImageMap::create(*map_type, 1 << 16) {
        Ok(_) => true,
        Err(error) => {
            context.progress.note(&format!("no {map_type} here ({error})"));
            false
        }
    };
    [ImageMapType::Arena, ImageMapType::Array].into_iter().filter(has).collect()
}

fn row(readings: &[&Reading], entries: usize, which: Which, what: What, published_ms: Option<f64>) -> Row {
    let all = |of: fn(&Reading) -> f64| readings.iter().map(|reading| of(reading)).collect::<Samples>();
    let idle = all(|reading| reading.idle).median();
    let cpu: Samples = readings.iter().map(|one| one.own + (one.kernel - idle).max(0.0)).collect();
    let stall = all(|reading| reading.stall);
    let unmap: Samples = readings.iter().filter_map(|reading| reading.unmap).collect();
    let [cpu_ms, cpu_ms_min, cpu_ms_max] = cpu.spread(3);
    let [stall_ms, _, stall_ms_max] = stall.spread(3);
    let [idle_stall_ms, _, idle_stall_ms_max] = all(|reading| reading.idle_stall).spread(3);
    Row {
        entries,
        structure: which.name(),
        map_type: which.map_type(),
        what,
        cpu_ms,
        cpu_ms_min,
        cpu_ms_max,
        cpu_ms_ci: cpu.interval(3),
        own_ms: rounded(all(|reading| reading.own).median(), 3),
        unmap_ms: (!unmap.is_empty()).then(|| rounded(unmap.median(), 3)),
        idle_ms: rounded(idle, 3),
        stall_ms,
        stall_ms_max,
        stall_ms_ci: stall.interval(3),
        idle_stall_ms,
        idle_stall_ms_max,
        published_ms,
        bytes: readings.first().and_then(|reading| reading.bytes),
        rounds: cpu.len(),
    }
}

#[cfg(test)]
mod tests;
