//! Experiment `structures`: what the image could have been. Every candidate structure is built from the same prefixes, answers the same
//! addresses, and is timed in interleaved rounds; one file a candidate in `structures/`.

mod bench;
mod bitmap;
mod dir24;
mod document;
mod flat;
mod hash;
mod intervals;
mod markdown;
mod poptrie;
mod space;
mod spread;
mod tables;
mod text;
mod treebitmap;
mod trieline;

use std::time::Instant;

use trieline_lpm::{Address, Prefix};

pub use bench::{Recorder, Touched, touched_by_trieline};
pub use document::{Family, Figure, Measured, Parameters, Row, panels};
pub use markdown::markdown;

use self::{
    bench::{Engine, Order, Queries, build_all, has_popcount},
    space::{Refused, Space, Touch},
};
use super::Options;
use crate::{
    Context, Error, Result,
    measure::{Samples, rounded},
    netns,
    report::{Document, Machine},
    tables::{
        Random,
        generate::{self, hosts},
        kinds::{self, COUNTRIES, Drawn, Entry, THREATS, Values},
        reference::Reference,
        source::data_directory,
    },
};

/// A structure to choose from: static, built from a sorted list into flat memory.
pub(crate) trait Candidate<A: Address>: Sized {
    /// Its name in results.
    const NAME: &'static str;
    /// Builds one table; `entries` are sorted and distinct.
    fn build(space: &mut Space, entries: &[Entry<A>]) -> std::result::Result<Self, Refused>;
    /// Longest match; 0 = none. `touch` receives every load and every node below the root.
    fn lookup<T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32;
}

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// No structure may be larger than this.
const LIMIT: u64 = 2 << 30;
/// A quick run begins no case but the smallest after so many seconds, a full one no further round of a case.
const QUICK_UNTIL: f64 = 35.0;
const FULL_UNTIL: f64 = 400.0;

/// Runs it; blocks until the end. It needs no root, but without it other programs disturb more.
pub fn run(options: &Options, context: &Context) -> Result<Outcome> {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run_here(options, context));
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn run_here(options: &Options, context: &Context) -> Result<Outcome> {
    // Before the pinning, or the machine would have one core.
    let machine = Machine::here(options.command.clone(), options.seed);
    let cpu = netns::pin_here()?;
    if netns::insist_here().is_err() {
        context.progress.note("not root: other programs may run on this CPU meanwhile");
    }
    let data = data_directory(options.data.as_deref())?;
    let queries = if options.quick { 1 << 18 } else { 1 << 19 };
    let mut bench = Bench {
        context,
        rounds: options.rounds.unwrap_or(if options.quick { 3 } else { 5 }),
        quick: options.quick,
        only: options.only.as_deref(),
        queries,
        limit: LIMIT,
        began: Instant::now(),
        seed: options.seed,
        rows: Vec::new(),
    };
    bench.standard(data.as_deref())?;
    if bench.rows.is_empty() {
        return Err(Error::NoCase(options.only.clone().unwrap_or_default()));
    }
    Ok(Document {
        experiment: "structures",
        version: 1,
        machine,
        parameters: Parameters {
            quick: options.quick,
            data,
            rounds: bench.rounds,
            queries,
            cpu,
            limit: LIMIT,
            popcount: has_popcount(),
            seconds: bench.began.elapsed().as_secs().max(1),
            clock: "CPU time of the measuring thread around all queries of a turn",
            lines: "distinct cache lines and 4 KiB pages that a lookup loads from, root included; an image's header and directory, which \
                    all lookups share, are not counted; the largest also over uniformly random keys",
        },
        rows: bench.rows,
    })
}

struct Bench<'c> {
    context: &'c Context<'c>,
    rounds: usize,
    quick: bool,
    only: Option<&'c str>,
    queries: usize,
    limit: u64,
    began: Instant,
    seed: u64,
    rows: Vec<Row>,
}

/// The series of each structure.
const SERIES: [(bool, Order, bool); 4] = [
    (true, Order::Independent, true),
    (false, Order::Independent, true),
    (true, Order::Dependent, true),
    (true, Order::Independent, false),
];

impl Bench<'_> {
    /// Whether a case is asked for.
    fn wants(&self, table: &str) -> bool {
        self.only.is_none_or(|part| table.contains(part))
    }

    fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// All cases, by family.
    fn standard(&mut self, data: Option<&std::path::Path>) -> Result<()> {
        let full = !self.quick;
        if ["bgp4-64", "bgp4-distinct", "bgp6-64", "bgp6-distinct"].iter().any(|name| self.wants(name)) {
            let real = super::map_tables::internet(data, self.seed, self.context)?;
            self.list("bgp4-64", &real.v4, Values::NextHops)?;
            self.list("bgp6-64", &real.v6, Values::NextHops)?;
            if full {
                self.list("bgp4-distinct", &real.v4, Values::Distinct)?;
                self.list("bgp6-distinct", &real.v6, Values::Distinct)?;
            }
        }
        for (v4, v6, count4, count6) in [
            ("internet4-1M", "internet6-250k", 1_000_000, 250_000),
            ("internet4-2M", "internet6-1M", 2_000_000, 1_000_000),
        ] {
            if full {
                self.made(v4, Values::NextHops, |bench| generate::internet::<u32>(count4, bench.seed))?;
                self.made(v6, Values::NextHops, |bench| generate::internet::<u128>(count6, bench.seed))?;
            }
        }
        let sizes: &[(&str, u32)] = &[
            ("hosts-10K", 10_000),
            ("hosts-100K", 100_000),
            ("hosts-1M", 1_000_000),
            ("hosts-10M", 10_000_000),
        ];
        for &(name, count) in &sizes[..if full { 4 } else { 2 }] {
            self.made(name, Values::Distinct, |_| hosts(count))?;
        }
        if full {
            self.made("random-hosts-1M", Values::Distinct, |bench| {
                kinds::random_hosts(1_000_000, &mut bench.random())
            })?;
        }
        self.rules(data)?;
        let tenants = "tenants-10000x10";
        if self.wants(tenants) {
            let sets = tables::tenants(10_000, &mut self.random());
            self.case(Family::Ipv4, tenants, "distinct", sets)?;
        }
        if full {
            self.made("endpoints-48", Values::Distinct, |bench| {
                kinds::endpoints4(1_000_000, &mut bench.random())
            })?;
            self.made("endpoints-144", Values::Distinct, |bench| {
                kinds::endpoints6(1_000_000, &mut bench.random())
            })?;
        }
        Ok(())
    }

    /// Real rules, where they lie.
    fn rules(&mut self, data: Option<&std::path::Path>) -> Result<()> {
        for (file, v4, v6) in [(THREATS, "threat-hosts", ""), (COUNTRIES, "countries4", "countries6")] {
            if !self.wants(v4) && (v6.is_empty() || !self.wants(v6)) {
                continue;
            }
            let Some(path) = data.map(|data| data.join(file)).filter(|path| path.is_file()) else {
                self.context.progress.note(&format!("no {file} in the data directory: left out"));
                continue;
            };
            let (entries4, entries6) = kinds::rules(&path)?;
            for (name, entries) in [(v4, Some(entries4)), (v6, None)] {
                if let Some(entries) = entries.filter(|entries| self.wants(name) && !entries.is_empty()) {
                    self.case(Family::Ipv4, name, "file", vec![entries])?;
                }
            }
            if !v6.is_empty() && self.wants(v6) && !entries6.is_empty() {
                self.case(Family::Ipv6, v6, "file", vec![entries6])?;
            }
        }
        Ok(())
    }

    /// A case whose prefixes are made only when it is asked for.
    fn made<A: Drawn>(
        &mut self,
        name: &'static str,
        values: Values,
        make: impl FnOnce(&Self) -> Vec<Prefix<A>>,
    ) -> Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        self.context.check()?;
        self.context.progress.phase(&format!("{name}: generating"), 0);
        let prefixes = make(self);
        self.list(name, &prefixes, values)
    }

    fn list<A: Drawn>(&mut self, name: &'static str, prefixes: &[Prefix<A>], values: Values) -> Result<()> {
        if prefixes.is_empty() || !self.wants(name) {
            return Ok(());
        }
        let entries = values.of(prefixes, &mut self.random());
        let family = match A::FAMILY {
            4 => Family::Ipv4,
            6 => Family::Ipv6,
            _ => Family::Keys,
        };
        let values = if values == Values::NextHops { "64" } else { "distinct" };
        self.case(family, name, values, vec![entries])
    }

    /// Builds, checks, counts and times every structure on the tables `sets`.
    fn case<A: Drawn>(
        &mut self,
        family: Family,
        table: &'static str,
        values: &'static str,
        sets: Vec<Vec<Entry<A>>>,
    ) -> Result<()> {
        let context = self.context;
        if self.quick && self.began.elapsed().as_secs_f64() > QUICK_UNTIL {
            context.progress.note(&format!("{table}: left out, this machine is slow"));
            return Ok(());
        }
        context.progress.phase(&format!("{table}: building"), 9);
        let outcomes = build_all(&sets, self.limit, |_| {
            context.progress.advance(1);
            context.check()
        })?;
        let mut random = self.random();
        let inside = tables::queries(&sets, self.queries, true, &mut random);
        let anywhere = tables::queries(&sets, self.queries, false, &mut random);
        context.progress.phase(&format!("{table}: comparing answers"), 0);
        let engines: Vec<&dyn Engine<A>> =
            outcomes.iter().filter_map(|(_, built)| built.as_ref().ok().map(|engine| &**engine)).collect();
        let checked = self.check(table, &sets, &engines, [&inside, &anywhere])?;
        let mut series = self.measure(table, &engines, [&inside, &anywhere])?.into_iter();
        for (structure, built) in &outcomes {
            let measured = match built {
                Err(_) => None,
                Ok(engine) => {
                    let touched = [&inside, &anywhere].map(|queries| engine.touched(queries, CHECKED));
                    let samples = series.next().unwrap_or_default();
                    let rounds = samples[0].len();
                    let [prefix, rand, dependent, arithmetic] = samples.map(|series| Figure::new(&series));
                    Some(Measured {
                        bytes: engine.bytes(),
                        build_ms: rounded(engine.build_ms(), 1),
                        prefix,
                        rand,
                        dependent,
                        arithmetic,
                        lines: rounded(touched[0].lines, 2),
                        lines_max: touched[0].lines_max.max(touched[1].lines_max),
                        pages: rounded(touched[0].pages, 2),
                        pages_max: touched[0].pages_max.max(touched[1].pages_max),
                        steps_max: touched[0].steps_max.max(touched[1].steps_max),
                        checked,
                        rounds,
                    })
                }
            };
            self.rows.push(Row {
                family,
                table,
                values,
                tables: sets.len(),
                prefixes: sets.iter().map(Vec::len).sum(),
                structure,
                measured,
                refused: built.as_ref().err().map(Refused::to_string),
            });
        }
        Ok(())
    }

    /// Compares every structure's answers with those of a reference; how many.
    fn check<A: Drawn>(
        &self,
        table: &'static str,
        sets: &[Vec<Entry<A>>],
        engines: &[&dyn Engine<A>],
        all: [&Queries<A>; 2],
    ) -> Result<u64> {
        let mut checked = 0;
        let references: Vec<Reference<A>> =
            sets.iter().map(|entries| Reference::new(entries.iter().copied())).collect();
        for queries in all {
            let count = CHECKED.min(queries.addresses.len());
            let expected: Vec<u32> = (0..count)
                .map(|n| {
                    let of = queries.tables.get(n).map_or(0, |table| *table as usize);
                    references[of].lookup(queries.addresses[n])
                })
                .collect();
            for engine in engines {
                self.context.check()?;
                if let Some((n, got)) = engine.check(queries, &expected) {
                    return Err(Error::Mismatch {
                        structure: engine.name().into(),
                        table: table.into(),
                        address: Prefix::host(queries.addresses[n]).to_string(),
                        got,
                        expected: expected[n],
                        differing: 1,
                        checked: n as u64 + 1,
                    });
                }
            }
            checked += count as u64;
        }
        Ok(checked)
    }

    /// Times every structure in interleaved rounds: for each the nanoseconds of each of [`SERIES`].
    fn measure<A: Drawn>(
        &self,
        table: &'static str,
        engines: &[&dyn Engine<A>],
        [inside, anywhere]: [&Queries<A>; 2],
    ) -> Result<Vec<[Samples; 4]>> {
        let mut all: Vec<[Samples; 4]> = engines.iter().map(|_| Default::default()).collect();
        let turns = self.rounds * SERIES.len() * engines.len();
        self.context.progress.phase(&format!("{table}: rounds"), turns as u64);
        let (least, until) = if self.quick { (1, QUICK_UNTIL) } else { (2, FULL_UNTIL) };
        for round in 0..self.rounds {
            // A run keeps its promise on a slow machine too.
            if round >= least && self.began.elapsed().as_secs_f64() > until {
                self.context
                    .progress
                    .note(&format!("{table}: fewer rounds than asked for, this machine is slow"));
                break;
            }
            for (number, (is_inside, order, popcount)) in SERIES.into_iter().enumerate() {
                let queries = if is_inside { inside } else { anywhere };
                for (engine, samples) in engines.iter().zip(&mut all) {
                    self.context.check()?;
                    let took = engine.time(queries, order, popcount);
                    samples[number].push(took.as_nanos() as f64 / queries.addresses.len() as f64);
                    self.context.progress.advance(1);
                }
            }
        }
        Ok(all)
    }
}

/// Addresses of each traffic that are compared with the reference and whose loads are counted.
const CHECKED: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::{kinds::Endpoint6, *};
    use std::sync::atomic::AtomicBool;

    /// Prefixes that nest, touch and overlap, some of one value; and addresses at and beside every edge.
    fn crowded<A: Drawn>(count: usize, seed: u64) -> (Vec<Entry<A>>, Vec<A>) {
        let mut random = Random::new(seed);
        let mut prefixes: Vec<Prefix<A>> = Vec::new();
        for _ in 0..count {
            let len = random.below(usize::from(A::WIDTH) + 1) as u16;
            // Half inside one that is there already, so that chains get deep.
            let base = match prefixes.get(random.below(2 * count)) {
                Some(outer) if outer.len() < len => A::inside(outer, &mut random),
                _ => A::anywhere(&mut random),
            };
            prefixes.push(Prefix::truncated(base, len));
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        let edges =
            prefixes.iter().flat_map(|prefix| [prefix.addr(), prefix.last(), A::inside(prefix, &mut random)]);
        let edges: Vec<A> = edges.collect();
        (prefixes.iter().map(|prefix| (*prefix, 1 + random.below(5) as u32)).collect(), edges)
    }

    fn all_agree<A: Drawn>(counts: &[usize]) {
        for &count in counts {
            for seed in 0..2 {
                let (entries, addresses) = crowded::<A>(count, seed);
                let reference = Reference::new(entries.iter().copied());
                let expected: Vec<u32> = addresses.iter().map(|address| reference.lookup(*address)).collect();
                let queries = Queries { addresses, tables: Vec::new() };
                for (name, built) in build_all(&[entries], LIMIT, |_| Ok(())).unwrap() {
                    match built {
                        Ok(engine) => {
                            assert_eq!(
                                engine.check(&queries, &expected),
                                None,
                                "{name}, {count} prefixes, seed {seed}"
                            );
                            assert!(engine.bytes() > 0);
                        }
                        Err(why) => assert!(
                            matches!(why, Refused::Unfit(_)) && name != "trieline" && name != "bitmap6",
                            "{name}: {why}"
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn every_structure_answers_as_the_reference_ipv4() {
        all_agree::<u32>(&[1, 300, 3000]);
    }

    #[test]
    fn every_structure_answers_as_the_reference_ipv6() {
        all_agree::<u128>(&[1, 300, 3000]);
    }

    #[test]
    fn a_case_of_many_tables_yields_a_row_for_each_structure() {
        let interrupt = AtomicBool::new(false);
        let context = Context { progress: &crate::Quiet, interrupt: &interrupt };
        let mut bench = Bench {
            context: &context,
            rounds: 1,
            quick: true,
            only: None,
            queries: 1 << 12,
            limit: 64 << 20,
            began: Instant::now(),
            seed: 1,
            rows: Vec::new(),
        };
        let sets = tables::tenants(20, &mut bench.random());
        bench.case(Family::Ipv4, "tenants", "distinct", sets).unwrap();
        assert_eq!(bench.rows.len(), 9);
        let ours = bench.rows.iter().find(|row| row.structure == "trieline").unwrap();
        let measured = ours.measured.as_ref().unwrap();
        assert!(
            measured.lines >= 1.0
                && measured.lines_max >= measured.lines as usize
                && measured.prefix.ns > 0.0
        );
        assert_eq!((ours.tables, ours.prefixes), (20, 200));
        // The large direct tables of so many do not fit.
        let refused: Vec<_> =
            bench.rows.iter().filter(|row| row.refused.is_some()).map(|row| row.structure).collect();
        assert_eq!(refused, ["bitmap8+hash40", "flat-20-4-4-4", "dir-24-8"]);
    }

    #[test]
    fn endpoints_are_distinct_sorted_and_of_all_kinds() {
        let all = kinds::endpoints6(2000, &mut Random::new(1));
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all.len() >= 2000);
        let hosts = all.iter().filter(|prefix| prefix.len() == Endpoint6::WIDTH).count();
        assert!((2000..2150).contains(&hosts), "{hosts}");
        assert!(all.iter().any(|prefix| prefix.len() <= 64) && all.iter().any(|prefix| prefix.len() == 128));
    }
}
