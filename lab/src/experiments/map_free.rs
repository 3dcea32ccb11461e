//! Experiment `map-free`: what it costs to free LPM_TRIE and trieline, all of it and one table beside a live one: CPU time, and the
//! longest stall of a CPU.

mod cost;
mod document;
mod kthreads;
mod memory;
mod stall;
mod text;

use std::time::{Duration, Instant};

use trieline_bpf::{ImageMap, ImageMapType, ReaderGrace};

pub use cost::{Case, Cost};
pub use document::{Parameters, Row, stalls, times};
pub use memory::{Held, What};

use super::{
    Options,
    structure::{Which, failed, image_bytes},
};
use crate::{
    Context, Error, Result, in_own_thread,
    measure::{Samples, rounded},
    published,
    report::{Document, Machine},
    tables::kinds::numbered,
};

/// Sizes of a run.
const SIZES: [usize; 5] = [10_000, 100_000, 1_000_000, 4_000_000, 10_000_000];
/// Entries of the table that stays.
const LIVE: usize = 10_000;
/// More than it takes.
const LIVE_BYTES: u64 = 1 << 20;
/// Most entries: the memory of an LPM_TRIE of so many is 6 GiB.
pub const MOST: usize = 50_000_000;
/// Readings of one freeing before it is given up.
const TRIES: usize = 4;
/// A quick run begins no further round after this time, nor a size but the first after the other.
const QUICK_ROUNDS: Duration = Duration::from_secs(10);
const QUICK_SIZES: Duration = Duration::from_secs(20);

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// Runs it; blocks until the end.
pub fn run(options: &Options, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(options, context))
}

fn run_here(options: &Options, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let rounds = options.rounds.unwrap_or(if options.quick { 2 } else { 3 });
    let standard = if options.quick { &SIZES[..3] } else { &SIZES[..] };
    let sizes = if options.entries.is_empty() { standard } else { &options.entries[..] };
    if let Some(size) = sizes.iter().find(|size| !(1..=MOST).contains(*size)) {
        return Err(Error::Size { what: "entries to free", value: *size, least: 1, most: MOST });
    }
    let mut bench =
        Bench { context, grace: ReaderGrace::new().map_err(failed)?, discarded: 0, rows: Vec::new() };
    let machine = Machine::here(options.command.clone(), options.seed);
    for &size in sizes {
        if options.quick && !bench.rows.is_empty() && began.elapsed() > QUICK_SIZES {
            context.progress.note(&format!("{size} entries: left out, this machine is slow"));
            continue;
        }
        bench.size(size, rounds, |round| options.quick && round > 0 && began.elapsed() > QUICK_ROUNDS)?;
    }
    Ok(Document {
        experiment: "map-free",
        version: 1,
        machine,
        parameters: Parameters {
            quick: options.quick,
            rounds,
            tables: "/32, dense keys, as the kernel's bench has them",
            cpu: "this process's time, and that of the kernel's workers for the queue in which it frees maps (events_unbound) until they are \
                  quiet, less theirs in the same time without a freeing",
            stall: "longest time between two readings of the clock by a thread of its own on each CPU, in another freeing",
            live: LIVE,
            discarded: bench.discarded,
        },
        rows: bench.rows,
    })
}

struct Bench<'c> {
    context: &'c Context<'c>,
    grace: ReaderGrace,
    discarded: usize,
    rows: Vec<Row>,
}

/// The results of the rounds of one case, in milliseconds.
#[derive(Default)]
struct Series {
    own: Samples,
    unmap: Samples,
    kernel: Samples,
    idle: Samples,
    stall: Samples,
    idle_stall: Samples,
    bytes: Option<u64>,
}

impl Bench<'_> {
    fn size(&mut self, size: usize, rounds: usize, late: impl Fn(usize) -> bool) -> Result<()> {
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
        let mut series: Vec<Series> = cases.iter().map(|_| Series::default()).collect();
        progress.phase(&format!("{size} entries: rounds"), (rounds * cases.len()) as u64);
        for round in 0..rounds {
            if late(round) {
                progress.note(&format!("{size} entries: slow machine, fewer rounds than asked for"));
                break;
            }
            for ((which, what), series) in cases.iter().zip(&mut series) {
                let live = if *what == What::Table { &live[..] } else { &[] };
                let case = Case { what: *what, gone: &entries, live };
                self.round(*which, bytes, &case, series)?;
                progress.advance(1);
            }
        }
        let (_, published) = published::operations()?;
        let published = published.iter().find(|of| of.name == "free" && size == 10_000);
        for ((which, what), series) in cases.iter().zip(&series) {
            let published = published.filter(|_| *which == Which::LpmTrie);
            self.rows.push(series.row(size, *which, *what, published.map(|of| of.ns / 1e6)));
        }
        Ok(())
    }

    /// A reading of each kind.
    fn round(&mut self, which: Which, bytes: u64, case: &Case, series: &mut Series) -> Result<()> {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let cost = self.reading(which, bytes, case, |held, context| {
            series.bytes = held.bytes();
            case.cost(held, context)
        })?;
        series.own.push(ms(cost.own));
        series.kernel.push(ms(cost.kernel));
        series.idle.push(ms(cost.idle));
        if let Some(unmap) = cost.unmap {
            series.unmap.push(ms(unmap));
        }
        let stall = self.reading(which, bytes, case, |held, context| case.stall(held, context))?;
        series.stall.push(ms(stall.freeing));
        series.idle_stall.push(ms(stall.idle));
        Ok(())
    }

    /// Fills and frees until a reading counts.
    fn reading<T>(
        &mut self,
        which: Which,
        bytes: u64,
        case: &Case,
        mut read: impl FnMut(Held, &Context) -> Result<Option<T>>,
    ) -> Result<T> {
        for _ in 0..TRIES {
            self.context.check()?;
            let held = Held::fill(which, bytes, case.gone, case.live, &self.grace)?;
            if let Some(reading) = read(held, self.context)? {
                return Ok(reading);
            }
            self.discarded += 1;
        }
        Err(Error::Busy(TRIES))
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

impl Series {
    fn row(&self, entries: usize, which: Which, what: What, published_ms: Option<f64>) -> Row {
        let idle = self.idle.median();
        let parts = self.own.values().iter().zip(self.kernel.values());
        let cpu: Samples = parts.map(|(own, kernel)| own + (kernel - idle).max(0.0)).collect();
        Row {
            entries,
            structure: which.name(),
            map_type: which.map_type(),
            what,
            cpu_ms: rounded(cpu.median(), 3),
            cpu_ms_min: rounded(cpu.min(), 3),
            cpu_ms_max: rounded(cpu.max(), 3),
            own_ms: rounded(self.own.median(), 3),
            unmap_ms: (!self.unmap.is_empty()).then(|| rounded(self.unmap.median(), 3)),
            idle_ms: rounded(idle, 3),
            stall_ms: rounded(self.stall.median(), 3),
            stall_ms_max: rounded(self.stall.max(), 3),
            idle_stall_ms: rounded(self.idle_stall.median(), 3),
            idle_stall_ms_max: rounded(self.idle_stall.max(), 3),
            published_ms,
            bytes: self.bytes,
            rounds: cpu.len(),
        }
    }
}
