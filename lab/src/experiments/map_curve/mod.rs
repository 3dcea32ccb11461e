//! Experiment `map-curve`: lookups in LPM_TRIE and trieline by the number of entries, at the points of the published curve. It counts the
//! cache lines and pages that a lookup touches, too.

mod counters;
mod document;
mod trie;

use std::time::{Duration, Instant};

use clap::Args;
use trieline_bpf::ImageMapType;

pub use counters::Misses;
pub use document::{Order, Outcome, Parameters, Row};

use self::{counters::Counters, trie::Trie};
use super::{
    comparison::{Comparison, Quick},
    experiment::{Compared, Experiment, Figure},
    options::{Entries, Run},
    structure::{Mode, Structure, Which},
    touched::Touched,
};
use crate::{
    Context, Error, Result,
    generator::ADDRESSES,
    in_own_thread,
    measure::{known, rounded},
    netns, published,
    report::Document,
    tables::{
        Random,
        kinds::{Entry, numbered},
    },
};

/// Points of a quick run.
const QUICK_POINTS: [usize; 6] = [1, 10, 100, 1000, 10_000, 100_000];
/// A quick run begins no further round of one mode of one point after this time.
const QUICK_MODE: Duration = Duration::from_secs(1);
/// Nor any round that is not a mode's first, nor another point, this long after its beginning.
const QUICK_ALL: Duration = Duration::from_secs(22);
/// Addresses whose walks are counted.
const WALKS: usize = 1 << 17;

/// Its options.
#[derive(Args, Clone, Debug, Default)]
pub struct MapCurve {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// How many entries.
    #[command(flatten)]
    pub entries: Entries,
}

impl Experiment for MapCurve {
    const NAME: &'static str = "map-curve";
    const PURPOSE: &'static str =
        "lookups in LPM_TRIE and trieline by the number of entries, with the published curve";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["entries", "structure", "map_type", "mode", "order"],
        figures: &[Figure::lower("ns")],
    }];
    const CODE: &'static [&'static str] = &["lpm/src", "lpm/include", "bpf/src"];
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| run_here(self, context))
    }
}

fn run_here(asked: &MapCurve, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let (source, curve) = published::curve()?;
    let (rounds, is_quick) = (asked.run.rounds(2, 5), asked.run.quick);
    let points = if is_quick {
        asked.entries.or(QUICK_POINTS)
    } else {
        asked.entries.or(curve.iter().map(|point| point.entries as usize))
    };
    let machine = asked.run.machine();
    let cpu = netns::measure_here()?;
    let counters = Counters::open();
    let quick = is_quick.then_some(Quick { began, mode: QUICK_MODE, all: QUICK_ALL });
    let mut bench = Bench {
        comparison: Comparison { context, run: &asked.run, rounds, quick },
        map_types: if is_quick {
            &[ImageMapType::Arena]
        } else {
            &[ImageMapType::Arena, ImageMapType::Array]
        },
        counters: counters.as_ref().ok(),
        random: Random::new(asked.run.seed),
        rows: Vec::new(),
    };
    for &entries in &points {
        if is_quick && !bench.rows.is_empty() && began.elapsed() > QUICK_ALL {
            context.progress.note(&format!("{entries} entries: left out, this machine is slow"));
            continue;
        }
        let published = curve.iter().find(|point| point.entries as usize == entries).map(|point| point.ns);
        let part = bench.point(entries, published);
        if asked.run.ends(context, part, !bench.rows.is_empty())? {
            break;
        }
    }
    let parameters = Parameters {
        quick: is_quick,
        rounds,
        cpu,
        tables: "/32, dense keys: 0 to entries - 1, each stored little-endian, as the kernel's bench has them",
        clock: "monotonic clock at the first and the last lookup of a turn",
        lines: "distinct cache lines of 64 bytes and pages of 4 KiB, by a walk of the structure. Of trieline: of the image, root included, \
                    without its header and directory, which all lookups share. Of lpm_trie: of the nodes that the kernel's source makes of \
                    the same entries in the same order, a line each. Pages are those of an ideal slab that is filled in the order of allocation",
        no_counters: counters.as_ref().err().cloned(),
        published: source,
    };
    Ok(Document::new(MapCurve::NAME, machine, parameters, bench.rows))
}

struct Bench<'c> {
    comparison: Comparison<'c>,
    map_types: &'static [ImageMapType],
    counters: Option<&'c Counters>,
    random: Random,
    rows: Vec<Row>,
}

impl Bench<'_> {
    fn point(&mut self, entries: usize, published_ns: Option<f64>) -> Result<()> {
        let table = numbered(entries);
        let sequence: Vec<u32> = table.iter().map(|(prefix, _)| prefix.addr()).collect();
        let random: Vec<u32> = (0..ADDRESSES).map(|_| sequence[self.random.below(sequence.len())]).collect();
        let name = format!("{entries} entries");
        let mut structures = self.comparison.fill(&name, self.map_types, &table, &sequence)?;
        // The n-th host has the value n + 1.
        let walked = &random[..WALKS.min(random.len())];
        let expected: Vec<u32> = walked.iter().map(|address| address.swap_bytes() + 1).collect();
        let by_trie = touched_by_trie(&table, walked, &expected)?;
        let by_trieline = Touched::by_trieline(&table, walked, &expected)?;
        for (order, addresses) in [(Order::Sequence, &sequence), (Order::Random, &random)] {
            for structure in &structures {
                structure.look_up(addresses)?;
            }
            let sum = self.comparison.check(&name, &table, addresses, &mut structures)?;
            let steps = self.comparison.rounds * (structures.len() + 1) * 2;
            self.comparison
                .context
                .progress
                .phase(&format!("{name}, {}: rounds", order.name()), steps as u64);
            for mode in [Mode::Packet, Mode::Loop] {
                let rounds = self.comparison.rounds(&name, mode, &structures, sum)?;
                for own in &rounds.series {
                    let Some(structure) = structures.iter().find(|one| one.which == own.which) else {
                        continue;
                    };
                    let touched = if structure.which == Which::LpmTrie { by_trie } else { by_trieline };
                    let [ns, ns_min, ns_max] = own.ns.spread(2);
                    self.rows.push(Row {
                        entries,
                        structure: structure.which.name(),
                        map_type: structure.which.map_type(),
                        mode,
                        order,
                        ns,
                        ns_min,
                        ns_max,
                        ns_ci: own.ns.interval(2),
                        ns_empty: rounded(rounds.empty.median(), 2),
                        published_ns,
                        ratio: known(rounded(rounds.ratio(own).median(), 2)),
                        lines: rounded(touched.lines, 2),
                        lines_max: touched.lines_max,
                        pages: rounded(touched.pages, 2),
                        pages_max: touched.pages_max,
                        counters: self.misses(structure, mode, own.lookups)?,
                        bytes: structure.bytes,
                        checked: self.comparison.checks(structure.which) as u64,
                        lookups: own.lookups,
                        rounds: own.ns.len(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The processor's counts, in a turn of their own.
    fn misses(&self, structure: &Structure, mode: Mode, lookups: u32) -> Result<Option<Misses>> {
        match self.counters {
            Some(counters) => counters.around(u64::from(lookups), || structure.time(mode, lookups)),
            None => Ok(None),
        }
    }
}

/// The memory that lookups of `addresses` in an LPM_TRIE touch; an error unless their answers are `expected`.
fn touched_by_trie(entries: &[Entry<u32>], addresses: &[u32], expected: &[u32]) -> Result<Touched> {
    let trie = Trie::new(entries);
    Touched::count(addresses, expected, |address, recorder| trie.lookup(address, recorder))
        .ok_or_else(|| Error::References(format!("of {} entries (model of LPM_TRIE)", entries.len())))
}

#[cfg(test)]
mod tests;
