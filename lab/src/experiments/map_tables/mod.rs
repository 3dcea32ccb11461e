//! Experiment `map-tables`: LPM_TRIE against trieline on the same tables and addresses, interleaved in one run, every answer
//! compared.

mod document;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use clap::Args;
use trieline_bpf::ImageMapType;
use trieline_lpm::Prefix;

pub use document::{Outcome, Parameters, Row};

use super::{
    comparison::{Comparison, Quick},
    experiment::{Compared, Experiment, Figure},
    options::{Only, Run, Table, internet},
    structure::{Looked, Mode, Structure, Which},
};
use crate::{
    Context, Result,
    generator::ADDRESSES,
    in_own_thread,
    measure::{Samples, known, rounded},
    netns,
    report::Document,
    tables::{
        Random, Source, Tables, generate,
        kinds::{self, COUNTRIES, Entry, THREATS, Values},
    },
};

/// A quick run begins no further round of one mode on one table after this time.
const QUICK_MODE: Duration = Duration::from_secs(6);
/// Nor another table.
const QUICK_TABLES: Duration = Duration::from_secs(22);
/// Nor any round that is not a mode's first, this long after its beginning.
const QUICK_ALL: Duration = Duration::from_secs(28);

const MODES: [Mode; 7] =
    [Mode::Packet, Mode::Loop, Mode::Batch1, Mode::Batch2, Mode::Batch4, Mode::Batch8, Mode::Struct];

/// Its options.
#[derive(Args, Clone, Debug, Default)]
pub struct MapTables {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which table.
    #[command(flatten)]
    pub table: Table,
    /// Which cases.
    #[command(flatten)]
    pub only: Only,
}

impl Experiment for MapTables {
    const NAME: &'static str = "map-tables";
    const PURPOSE: &'static str = "LPM_TRIE against trieline on the same tables, per packet and in a loop";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["table", "family", "structure", "map_type", "mode"],
        figures: &[Figure::lower("ns")],
    }];
    const CODE: &'static [&'static str] = &["lpm/src", "lpm/include", "bpf/src"];
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| run_here(self, context))
    }
}

fn run_here(asked: &MapTables, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let rounds = asked.run.rounds(3, 9);
    let machine = asked.run.machine();
    let cpu = netns::measure_here()?;
    let quick = asked.run.quick.then_some(Quick { began, mode: QUICK_MODE, all: QUICK_ALL });
    let mut bench = Bench {
        comparison: Comparison { context, run: &asked.run, rounds, quick },
        only: &asked.only,
        seed: asked.run.seed,
        rows: Vec::new(),
        before_ms: Samples::default(),
    };
    let mut data = None;
    let part = if let Some((tables, name)) = asked.table.read(context)? {
        bench.both(&name, &name, &tables)
    } else {
        data = asked.table.data.directory()?;
        bench.standard(data.as_deref())
    };
    asked.run.ends(context, part, !bench.rows.is_empty())?;
    let rows = asked.only.some(bench.rows)?;
    let parameters = Parameters {
        quick: asked.run.quick,
        table: asked.table.file.clone(),
        data,
        rounds,
        addresses: ADDRESSES,
        cpu,
        clock: "monotonic clock at the first and the last lookup of a turn; what each call into the kernel costs is not in it",
        before_ms: rounded(bench.before_ms.median(), 1),
        empty: "the same program without the lookup: next address into the packet, headers parsed",
        values: "all distinct; of a table whose name ends in -64 one of 64 at random",
        bytes: "trieline: tables and nodes in the image; lpm_trie: what the kernel charges (memlock in fdinfo: its inner nodes \
                    are not in it)",
    };
    Ok(Document::new(MapTables::NAME, machine, parameters, rows))
}

/// SRv6 segments of a node, and where they lie (RFC 9602).
const SIDS: u128 = 64;
const SID_BLOCK: u128 = 0x5f00 << 112 | 1 << 80;

struct Bench<'c> {
    comparison: Comparison<'c>,
    only: &'c Only,
    seed: u64,
    rows: Vec<Row>,
    before_ms: Samples,
}

impl Bench<'_> {
    fn both(&mut self, name4: &str, name6: &str, tables: &Tables) -> Result<()> {
        if !tables.v4.is_empty() {
            self.table(name4, &tables.v4, Values::Distinct, tables.source)?;
        }
        if !tables.v6.is_empty() {
            self.table(name6, &tables.v6, Values::Distinct, tables.source)?;
        }
        Ok(())
    }

    /// The tables that come with the experiment; a quick run takes the first of each kind that it has time for.
    fn standard(&mut self, data: Option<&Path>) -> Result<()> {
        let full = self.comparison.quick.is_none();
        self.made("hosts-10000", |_| generate::hosts(10_000))?;
        if ["bgp4", "bgp4-64", "bgp6", "bgp6-sids"].iter().any(|name| self.only.takes(name)) {
            let internet = internet(data, self.seed, self.comparison.context)?;
            self.both("bgp4", "bgp6", &internet)?;
            self.table("bgp4-64", &internet.v4, Values::NextHops, internet.source)?;
            if full && !internet.v6.is_empty() {
                // Packets to a node's own segments, in whose table the Internet is as well.
                let sids = (1..=SIDS).map(|n| Prefix::host(SID_BLOCK | n << 64));
                let sids: Vec<Prefix<u128>> = sids.collect();
                let all: Vec<_> = internet.v6.iter().chain(&sids).copied().collect();
                self.table_asked("bgp6-sids", &all, &sids, Values::Distinct, internet.source)?;
            }
        }
        self.rules(data)?;
        if full {
            for size in [100_000, 1_000_000, 10_000_000] {
                self.made(&format!("hosts-{size}"), |_| generate::hosts(size))?;
            }
            self.made("random-hosts-1000000", |random| kinds::random_hosts(1_000_000, random))?;
            self.made("ipport-1000000", |random| kinds::endpoints4(1_000_000, random))?;
        } else {
            self.made("ipport-10000", |random| kinds::endpoints4(10_000, random))?;
        }
        Ok(())
    }

    /// Real rules, where they lie.
    fn rules(&mut self, data: Option<&Path>) -> Result<()> {
        for (file, v4, v6) in [(THREATS, "threat", None), (COUNTRIES, "country4", Some("country6"))] {
            // A quick run has time for the smaller one.
            let skipped = self.comparison.quick.is_some() && v6.is_some() && self.only.part.is_none();
            if skipped || ![Some(v4), v6].into_iter().flatten().any(|name| self.only.takes(name)) {
                continue;
            }
            let Some(path) = data.map(|data| data.join(file)).filter(|path| path.is_file()) else {
                self.comparison.context.progress.note(&format!("no {file} in the data directory: left out"));
                continue;
            };
            let (rules4, rules6) = kinds::rules(&path)?;
            self.table(v4, &prefixes(&rules4), Values::Distinct, Source::File)?;
            if let Some(v6) = v6 {
                self.table(v6, &prefixes(&rules6), Values::Distinct, Source::File)?;
            }
        }
        Ok(())
    }

    /// A table whose prefixes are made only when it is asked for.
    fn made<A: Looked>(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut Random) -> Vec<Prefix<A>>,
    ) -> Result<()> {
        if !self.only.takes(name) {
            return Ok(());
        }
        self.comparison.context.check()?;
        self.comparison.context.progress.phase(&format!("{name}: generating"), 0);
        let prefixes = make(&mut Random::new(self.seed));
        self.table(name, &prefixes, Values::Distinct, Source::Generated)
    }

    fn table<A: Looked>(
        &mut self,
        name: &str,
        prefixes: &[Prefix<A>],
        values: Values,
        source: Source,
    ) -> Result<()> {
        self.table_asked(name, prefixes, prefixes, values, source)
    }

    /// A table whose addresses lie inside some prefixes only.
    fn table_asked<A: Looked>(
        &mut self,
        name: &str,
        prefixes: &[Prefix<A>],
        asked: &[Prefix<A>],
        values: Values,
        source: Source,
    ) -> Result<()> {
        if prefixes.is_empty() || !self.only.takes(name) {
            return Ok(());
        }
        if self.comparison.quick.is_some_and(|quick| quick.began.elapsed() > QUICK_TABLES) {
            self.comparison.context.progress.note(&format!("{name}: left out, this machine is slow"));
            return Ok(());
        }
        let mut random = Random::new(self.seed);
        let entries = values.of(prefixes, &mut random);
        let inside = |random: &mut Random| A::inside(&asked[random.below(asked.len())], random);
        let addresses: Vec<A> = (0..ADDRESSES).map(|_| inside(&mut random)).collect();
        let comparison = self.comparison;
        let mut structures =
            comparison.fill(name, &[ImageMapType::Arena, ImageMapType::Array], &entries, &addresses)?;
        let sum = comparison.check(name, &entries, &addresses, &mut structures)?;
        let modes: &[Mode] = match A::FAMILY {
            // Several at once are looked up of addresses, and not in a hurry.
            4 | 6 if comparison.quick.is_none() && entries.len() < ADDRESSES => &MODES,
            4 | 6 if comparison.quick.is_none() => &MODES[..6],
            _ => &MODES[..2],
        };
        if modes.contains(&Mode::Struct) {
            structures.iter().try_for_each(Structure::fill_structs)?;
        }
        let steps = comparison.rounds * modes.len() * (structures.len() + 1);
        comparison.context.progress.phase(&format!("{name}: rounds"), steps as u64);
        for &mode in modes {
            let has_empty = matches!(mode, Mode::Packet | Mode::Struct | Mode::Loop);
            let rounds = comparison.rounds(name, mode, &structures, sum)?;
            if mode == Mode::Packet {
                self.before_ms.extend(&rounds.before_ms);
            }
            let empty = rounds.empty.median();
            let rival = rounds.series.iter().find(|series| series.which == Which::LpmTrie);
            for own in &rounds.series {
                let Some(structure) = structures.iter().find(|one| one.which == own.which) else { continue };
                let ratio = rounds.ratio(own);
                let [ns, ns_min, ns_max] = own.ns.spread(2);
                let [median, ratio_min, ratio_max] = ratio.spread(2).map(known);
                let net = rival.filter(|_| has_empty && own.ns.median() > empty);
                let net = net.map(|rival| (rival.ns.median() - empty) / (own.ns.median() - empty));
                self.rows.push(Row {
                    table: name.to_owned(),
                    family: A::FAMILY,
                    structure: structure.which.name(),
                    map_type: structure.which.map_type(),
                    mode,
                    traffic: "prefix",
                    source,
                    ns,
                    ns_min,
                    ns_max,
                    ns_ci: own.ns.interval(2),
                    ns_empty: has_empty.then(|| rounded(empty, 2)),
                    ratio: median,
                    ratio_min,
                    ratio_max,
                    ratio_ci: ratio.interval(2),
                    ratio_net: net.map(|net| rounded(net, 2)),
                    bytes: structure.bytes,
                    prefixes: prefixes.len(),
                    fill_ms: rounded(structure.fill_ms, 1),
                    checked: comparison.checks(structure.which) as u64,
                    lookups: own.lookups,
                    rounds: own.ns.len(),
                });
            }
        }
        Ok(())
    }
}

fn prefixes<A: Copy>(entries: &[Entry<A>]) -> Vec<Prefix<A>> {
    entries.iter().map(|(prefix, _)| *prefix).collect()
}

#[cfg(test)]
mod tests;
