//! Experiment `tries`: the classic tries by the threshold at which their nodes double, as in Asama's talk of 2014. The product's table and the
//! kernel's own routes are rows, too, and every answer is checked.

mod document;
mod kernel;
mod target;

use std::time::{Duration, Instant};

use clap::Args;
use trieline_lpm::Prefix;

pub use document::{Outcome, Parameters, Row};
pub use kernel::Statistics;

use self::{
    kernel::Kernel,
    target::{Classic, Made, Target, Trieline},
};
use super::{
    experiment::{Compared, Experiment, Figure},
    options::{Data, Only, Run, internet},
};
use crate::{
    Context, Error, Result, heap, in_own_thread,
    measure::{Samples, rounded},
    netns,
    report::Document,
    rivals::{Binary, Fib, LcTrie, Patricia, Relaxed, relaxed::Threshold},
    tables::{
        Random,
        kinds::{Entry, Values},
        reference::Reference,
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
/// Name of the product's row.
const OURS: &str = "trieline";
/// First octets above unicast's.
const MULTICAST: u32 = 0xe0;
/// A quick run begins no further round after this time.
const QUICK_ALL: Duration = Duration::from_secs(25);

/// Its options.
#[derive(Args, Clone, Debug, Default)]
pub struct Tries {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// The real table.
    #[command(flatten)]
    pub data: Data,
    /// Which cases.
    #[command(flatten)]
    pub only: Only,
}

impl Experiment for Tries {
    const NAME: &'static str = "tries";
    const PURPOSE: &'static str =
        "the classic tries by their thresholds against the kernel's routes and trieline, one core";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["table", "structure", "threshold", "root_threshold"],
        figures: &[Figure::higher("lookups_per_s")],
    }];
    const CODE: &'static [&'static str] = &["lpm/src"];
    const QUICK_SECONDS: u64 = 15;
    const FULL_SECONDS: u64 = 300;
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| {
            heap::huge_pages(true);
            let outcome = run_here(self, context);
            heap::huge_pages(false);
            outcome
        })
    }
}

fn run_here(asked: &Tries, context: &Context) -> Result<Outcome> {
    let (machine, seed, is_quick) = (asked.run.machine(), asked.run.seed, asked.run.quick);
    let cpu = netns::measure_here()?;
    let data = asked.data.directory()?;
    let lookups = if is_quick { QUICK_LOOKUPS } else { LOOKUPS };
    let mut random = Random::new(seed);
    let unicast = std::iter::from_fn(|| Some(random.bits() as u32)).filter(|addr| addr >> 24 < MULTICAST);
    let mut bench = Bench {
        context,
        run: &asked.run,
        rounds: asked.run.rounds(2, 5),
        quick: is_quick,
        addresses: unicast.take(lookups).collect(),
        began: Instant::now(),
        rows: Vec::new(),
    };
    let valued = |prefixes: &[Prefix<u32>]| Values::NextHops.of(prefixes, &mut Random::new(seed));
    let mut part = Ok(());
    // A quick run has no time to put a million routes into the kernel.
    if let Some(directory) = data.as_deref().filter(|_| asked.only.takes("bgp4") && !is_quick) {
        let real = internet(Some(directory), seed, context)?;
        part = bench.table("bgp4", &valued(&real.v4));
    }
    if part.is_ok() && asked.only.takes("generated") {
        context.progress.phase("generating an Internet table", 0);
        let size = if is_quick { QUICK_GENERATED } else { GENERATED };
        part = bench.table("generated", &valued(&crate::tables::generate::internet(size, seed)));
    }
    if part.is_ok() && asked.only.takes("default-route") {
        part = bench.table("default-route", &[(Prefix::truncated(0, 0), 1)]);
    }
    asked.run.ends(context, part, !bench.rows.is_empty())?;
    let rows = asked.only.some(bench.rows)?;
    let parameters = Parameters {
        quick: is_quick,
        data: data.filter(|_| !is_quick),
        rounds: bench.rounds,
        lookups,
        cpu,
        addresses: "uniform below 224.0.0.0, one stream for all; independent lookups in a loop",
        clock: "CPU time of the thread around a round's lookups; kernel: monotonic clock inside the program, around each 2^20 of them",
        bytes: "nodes, slots and prefixes by the layout of trieline_lab::rivals, fib and kernel by the kernel's sizes (fib_triestat); \
                    trieline: table header, root and nodes",
        kernel: "bpf_fib_lookup in a loop inside one program, in a namespace with nothing but these routes: the rate has the helper's \
                     other work in it, the rest is /proc/net/fib_triestat",
    };
    Ok(Document::new(Tries::NAME, machine, parameters, rows))
}

struct Bench<'c> {
    context: &'c Context<'c>,
    run: &'c Run,
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
        let (cases, rates): (Vec<Case>, Vec<Samples>) =
            cases.into_iter().zip(rates).filter_map(|(case, rates)| Some((case, rates?))).unzip();
        for case in &cases {
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
                lookups_per_s_ci: rates.interval(0),
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
        match Kernel::load(entries, self.context) {
            Ok(kernel) => add("kernel", both(default), None, Box::new(kernel))?,
            Err(error) => self.run.lose(self.context, "kernel", table, error)?,
        }
        add(OURS, None, None, Trieline::filled(entries)?)?;
        Ok(cases)
    }

    /// Times all in interleaved rounds; lookups a second of each, by round. The sum of the answers must be the reference's every time, or a
    /// structure of others loses its row.
    fn rounds(&self, table: &str, cases: &[Case], expected: u64) -> Result<Vec<Option<Samples>>> {
        let steps = self.rounds * cases.len();
        self.context.progress.phase(&format!("{table}: rounds"), steps as u64);
        let mut lost = vec![false; cases.len()];
        let late = || self.quick && self.began.elapsed() > QUICK_ALL;
        let rounds = self.run.take(self.context, table, (self.rounds, cases.len()), late, |at, _| {
            if lost[at] {
                return Ok(f64::NAN);
            }
            let turn = cases[at].target.turn(&self.addresses);
            let right = turn.and_then(|(seconds, got)| match got == expected {
                true => Ok(self.addresses.len() as f64 / seconds),
                false => Err(Error::Sum {
                    structure: cases[at].structure.into(),
                    table: table.into(),
                    what: "a round".into(),
                    got,
                    expected,
                }),
            });
            match right {
                Err(error) if cases[at].structure != OURS => {
                    self.run.lose(self.context, cases[at].structure, table, error)?;
                    lost[at] = true;
                    Ok(f64::NAN)
                }
                right => right,
            }
        })?;
        let rates = |at: usize| (!lost[at]).then(|| rounds.samples(at, |rate| *rate));
        Ok((0..cases.len()).map(rates).collect())
    }
}

#[cfg(test)]
mod tests;
