//! Experiment `tries`: the classic tries by the threshold at which their nodes double, as in Asama's talk of 2014, beside the product's table
//! and the kernel's own routes, every answer checked.

mod document;
mod kernel;
mod target;
mod text;

use std::time::{Duration, Instant};

use trieline_lpm::{
    Prefix,
    classic::{Binary, Fib, LcTrie, Patricia, Relaxed, relaxed::Threshold},
};

pub use document::{Figure, MEMORY, NODES, Parameters, RATE, Row, series};
pub use kernel::Statistics;

use self::{
    kernel::Kernel,
    target::{Classic, Made, Target, Trieline},
};
use super::{Options, map_tables::internet};
use crate::{
    Context, Error, Result, heap, in_own_thread,
    measure::{Samples, rounded},
    netns,
    report::{Document, Machine},
    tables::{
        Random,
        kinds::{Entry, Values},
        reference::Reference,
        source::data_directory,
    },
};

/// Addresses of a round: the talk's 20 million, in full turns of the kernel's program.
const LOOKUPS: usize = 20 << 20;
const QUICK_LOOKUPS: usize = 1 << 20;
/// Those whose walks are counted.
const WALKS: usize = 1 << 17;
/// The talk's thresholds, percent.
const THRESHOLDS: [u32; 7] = [0, 20, 40, 60, 80, 100, 120];
/// Prefixes of the generated table, and of a quick run's.
const GENERATED: usize = 901_899;
const QUICK_GENERATED: usize = 60_000;
/// Key bits that a node may reach at 0 %: 2^26 slots, 256 MiB.
const WITHIN: u16 = 26;
const QUICK_WITHIN: u16 = 22;
/// First octets above unicast's.
const MULTICAST: u32 = 0xe0;
/// A quick run begins no further round after this time.
const QUICK_ALL: Duration = Duration::from_secs(25);

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// Runs it; blocks until the end.
pub fn run(options: &Options, context: &Context) -> Result<Outcome> {
    in_own_thread(|| {
        heap::huge_pages(true);
        let outcome = run_here(options, context);
        heap::huge_pages(false);
        outcome
    })
}

fn run_here(options: &Options, context: &Context) -> Result<Outcome> {
    let machine = Machine::here(options.command.clone(), options.seed);
    let cpu = netns::measure_here()?;
    let data = data_directory(options.data.as_deref())?;
    let lookups = if options.quick { QUICK_LOOKUPS } else { LOOKUPS };
    let mut random = Random::new(options.seed);
    let unicast = std::iter::from_fn(|| Some(random.bits() as u32)).filter(|addr| addr >> 24 < MULTICAST);
    let mut bench = Bench {
        context,
        rounds: options.rounds.unwrap_or(if options.quick { 2 } else { 5 }),
        quick: options.quick,
        addresses: unicast.take(lookups).collect(),
        began: Instant::now(),
        rows: Vec::new(),
    };
    let wants = |name: &str| options.only.as_deref().is_none_or(|part| name.contains(part));
    let valued = |prefixes: &[Prefix<u32>]| Values::NextHops.of(prefixes, &mut Random::new(options.seed));
    // A quick run has no time to put a million routes into the kernel.
    if let Some(directory) = data.as_deref().filter(|_| wants("bgp4") && !options.quick) {
        let real = internet(Some(directory), options.seed, context)?;
        bench.table("bgp4", &valued(&real.v4))?;
    }
    if wants("generated") {
        context.progress.phase("generating an Internet table", 0);
        let size = if options.quick { QUICK_GENERATED } else { GENERATED };
        bench.table("generated", &valued(&crate::tables::generate::internet(size, options.seed)))?;
    }
    if wants("default-route") {
        bench.table("default-route", &[(Prefix::truncated(0, 0), 1)])?;
    }
    if bench.rows.is_empty() {
        return Err(Error::NoCase(options.only.clone().unwrap_or_default()));
    }
    Ok(Document {
        experiment: "tries",
        version: 1,
        machine,
        parameters: Parameters {
            quick: options.quick,
            data: data.filter(|_| !options.quick),
            rounds: bench.rounds,
            lookups,
            cpu,
            addresses: "uniform below 224.0.0.0, one stream for all; independent lookups in a loop",
            clock: "CPU time of the thread around a round's lookups; kernel: monotonic clock inside the program, around each 2^20 of them",
            bytes: "nodes, slots and prefixes by the layout of trieline_lpm::classic, fib and kernel by the kernel's sizes (fib_triestat); \
                    trieline: table header, root and nodes",
            kernel: "bpf_fib_lookup in a loop inside one program, in a namespace with nothing but these routes: the rate has the helper's \
                     other work in it, the rest is /proc/net/fib_triestat",
        },
        rows: bench.rows,
    })
}

struct Bench<'c> {
    context: &'c Context<'c>,
    rounds: usize,
    quick: bool,
    addresses: Vec<u32>,
    began: Instant,
    rows: Vec<Row>,
}

/// A structure to measure.
struct Case {
    structure: &'static str,
    /// Of all nodes and of the root.
    thresholds: Option<(u32, u32)>,
    limit: Option<String>,
    target: Box<dyn Target>,
}

impl Bench<'_> {
    fn table(&mut self, table: &'static str, entries: &[Entry<u32>]) -> Result<()> {
        let cases = self.fill(table, entries)?;
        self.context.progress.phase(&format!("{table}: reference"), 0);
        let reference = Reference::new(entries.iter().copied());
        let walked = &self.addresses[..WALKS.min(self.addresses.len())];
        let expected: Vec<u32> = walked.iter().map(|address| reference.lookup(*address)).collect();
        let sum = self.addresses.iter().map(|address| u64::from(reference.lookup(*address))).sum();
        let rates = self.rounds(table, &cases, sum)?;
        self.context.progress.phase(&format!("{table}: counting"), cases.len() as u64);
        let mut made: Vec<Made> = Vec::new();
        for case in &cases {
            self.context.check()?;
            made.push(case.target.made_of()?);
        }
        let fib = cases.iter().zip(&made).find(|(case, _)| case.structure == "fib");
        let fib = fib.and_then(|(_, made)| made.figures.clone());
        for ((case, made), rates) in cases.iter().zip(made).zip(rates) {
            let lines = case.target.lines(walked, &expected)?;
            let figures = made.figures.as_ref().or(made.statistics.as_ref().map(|parsed| &parsed.figures));
            self.rows.push(Row {
                structure: case.structure,
                threshold: case.thresholds.map(|(inner, _)| inner),
                root_threshold: case.thresholds.map(|(_, root)| root),
                limit: case.limit.clone(),
                table,
                prefixes: entries.len(),
                lookups_per_s: rates.median().round(),
                lookups_per_s_min: rates.min().round(),
                lookups_per_s_max: rates.max().round(),
                nodes: made.nodes,
                bytes: made.bytes,
                depth_mean: made.depth_mean.map(|depth| rounded(depth, 4)),
                depth_max: made.depth_max,
                lines_mean: lines.map(|lines| rounded(lines, 2)),
                leaves: figures.map(|figures| figures.leaves),
                slots: figures.map(|figures| figures.slots),
                empty: figures.map(|figures| figures.empty),
                sizes: figures.map(|figures| figures.sizes.clone()),
                differences: made.statistics.zip(fib.as_ref()).map(|(parsed, fib)| parsed.differences(fib)),
                checked: self.addresses.len(),
                rounds: rates.len(),
            });
            self.context.progress.advance(1);
        }
        Ok(())
    }

    /// Every structure with the table, filled in the order of `entries`.
    fn fill(&self, table: &str, entries: &[Entry<u32>]) -> Result<Vec<Case>> {
        let progress = self.context.progress;
        progress.phase(&format!("{table}: filling"), entries.len() as u64);
        let mut cases = Vec::new();
        let mut add = |structure, thresholds, limit, target| -> Result<()> {
            cases.push(Case { structure, thresholds, limit, target });
            self.context.check()
        };
        let default = Threshold::default();
        let both = |rule: Threshold| Some((rule.inner, rule.root));
        add("fib", both(default), None, Classic::filled(Fib::default(), entries))?;
        add("relaxed", both(default), None, Classic::filled(Relaxed::new(default), entries))?;
        for percent in THRESHOLDS {
            let mut rule = Threshold::all(percent);
            let mut limit = None;
            if percent == 0 {
                rule.within = if self.quick { QUICK_WITHIN } else { WITHIN };
                limit =
                    Some(format!("no node reaches across key bit {0}: 2^{0} slots, not 2^32", rule.within));
            }
            add("relaxed", both(rule), limit, Classic::filled(Relaxed::new(rule), entries))?;
        }
        add("lctrie", None, None, Classic::filled(LcTrie::default(), entries))?;
        add("patricia", None, None, Classic::filled(Patricia::default(), entries))?;
        add("binary", None, None, Classic::filled(Binary::default(), entries))?;
        add("kernel", both(default), None, Box::new(Kernel::load(entries, self.context)?))?;
        add("trieline", None, None, Trieline::filled(entries)?)?;
        Ok(cases)
    }

    /// Times all in interleaved rounds; lookups a second of each, by round. The sum of the answers must be the reference's every time.
    fn rounds(&self, table: &str, cases: &[Case], expected: u64) -> Result<Vec<Samples>> {
        let steps = self.rounds * cases.len();
        self.context.progress.phase(&format!("{table}: rounds"), steps as u64);
        let mut rates = vec![Samples::default(); cases.len()];
        for round in 0..self.rounds {
            if round > 0 && self.quick && self.began.elapsed() > QUICK_ALL {
                self.context.progress.note(&format!("{table}: slow machine, fewer rounds than asked for"));
                break;
            }
            for (case, rates) in cases.iter().zip(&mut rates) {
                self.context.check()?;
                let (seconds, got) = case.target.turn(&self.addresses)?;
                if got != expected {
                    return Err(Error::Sum {
                        structure: case.structure.into(),
                        table: table.into(),
                        what: "a round".into(),
                        got,
                        expected,
                    });
                }
                rates.push(self.addresses.len() as f64 / seconds);
                self.context.progress.advance(1);
            }
        }
        Ok(rates)
    }
}
