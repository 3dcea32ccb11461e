//! Experiment `map-tables`: LPM_TRIE against trieline on the same tables and addresses, interleaved in one run, every answer
//! compared.

mod document;

use std::{
    hash::Hash,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use trieline_bpf::Home;
use trieline_lpm::Prefix;

pub use document::{Parameters, Row, lines};

use super::structure::{Mode, Structure, Which};
use crate::{
    Context, Error, Result,
    generator::ADDRESSES,
    in_own_thread,
    measure::{Samples, rounded},
    netns,
    report::{Document, Machine},
    tables::{
        Random, Source, Tables,
        destinations::random_host,
        generate::{self, Wide},
        reference::Reference,
        source::{BGP_FILE, data_directory},
    },
};

/// Prefixes of a full table, when one has to be generated.
pub const FULL: (usize, usize) = (901_899, 160_147);
/// A quick run begins no further round of one mode on one table after this time.
const QUICK_MODE: Duration = Duration::from_secs(6);
/// Nor any that is not a mode's first, this long after its beginning.
const QUICK_ALL: Duration = Duration::from_secs(28);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Ends within 40 s, with fewer rounds and tables.
    pub quick: bool,
    /// Measure this file instead of the standard tables.
    pub table: Option<PathBuf>,
    /// Where the standard tables are read.
    pub data: Option<PathBuf>,
    /// Seed of everything random.
    pub seed: u64,
    /// The command line, for the document.
    pub command: String,
    /// Rounds; by default 3 (quick) or 9.
    pub rounds: Option<usize>,
}

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// Runs it; blocks until the end.
pub fn run(options: &Options, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(options, context))
}

fn run_here(options: &Options, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 9 });
    let machine = Machine::here(options.command.clone(), options.seed);
    let cpu = netns::measure_here()?;
    let mut bench = Bench {
        context,
        rounds,
        quick: options.quick,
        began,
        rows: Vec::new(),
        random: Random::new(options.seed),
        before_ms: Samples::default(),
    };
    let mut data = None;
    if let Some(file) = &options.table {
        context.progress.phase("reading the table", 0);
        let tables = Tables::read(file)?;
        let name =
            file.file_name().map_or_else(|| file.display().to_string(), |n| n.to_string_lossy().into_owned());
        bench.both(&name, &name, &tables)?;
    } else {
        data = data_directory(options.data.as_deref())?;
        bench.both("bgp4", "bgp6", &internet(data.as_deref(), options.seed, context)?)?;
        let sizes: &[u32] = if options.quick { &[10_000] } else { &[10_000, 100_000, 1_000_000] };
        for &size in sizes {
            bench.table(&format!("hosts-{size}"), &generate::hosts(size), Source::Generated)?;
        }
    }
    Ok(Document {
        experiment: "map-tables",
        version: 1,
        machine,
        parameters: Parameters {
            quick: options.quick,
            table: options.table.clone(),
            data,
            rounds,
            addresses: ADDRESSES,
            cpu,
            clock: "monotonic clock at the first and the last lookup of a turn; what each call into the kernel costs is not in it",
            before_ms: rounded(bench.before_ms.median(), 1),
            empty: "the same program without the lookup: next address into the packet, headers parsed",
            values: "all distinct",
            bytes: "trieline: tables and nodes in the image; lpm_trie: what the kernel charges (memlock in fdinfo: its inner nodes \
                    are not in it)",
        },
        rows: bench.rows,
    })
}

/// The full Internet table: read where it lies, generated where not.
pub fn internet(data: Option<&Path>, seed: u64, context: &Context) -> Result<Tables> {
    match data {
        Some(directory) => {
            context.progress.phase("reading the Internet table", 0);
            Tables::read(&directory.join(BGP_FILE))
        }
        None => {
            context.progress.phase("generating an Internet table", 0);
            Ok(Tables::internet(FULL.0, FULL.1, seed))
        }
    }
}

struct Bench<'c> {
    context: &'c Context<'c>,
    rounds: usize,
    quick: bool,
    began: Instant,
    rows: Vec<Row>,
    random: Random,
    before_ms: Samples,
}

/// What one structure took, by round.
#[derive(Default)]
struct Series {
    ns: Samples,
    lookups: u32,
}

impl Bench<'_> {
    fn both(&mut self, name4: &str, name6: &str, tables: &Tables) -> Result<()> {
        if !tables.v4.is_empty() {
            self.table(name4, &tables.v4, tables.source)?;
        }
        if !tables.v6.is_empty() {
            self.table(name6, &tables.v6, tables.source)?;
        }
        Ok(())
    }

    fn table<A: Wide + Hash>(&mut self, name: &str, prefixes: &[Prefix<A>], source: Source) -> Result<()> {
        let context = self.context;
        context.check()?;
        context.progress.phase(&format!("{name}: filling"), 0);
        let addresses: Vec<A> = (0..ADDRESSES).map(|_| random_host(prefixes, &mut self.random)).collect();
        let bytes = network_order(&addresses);
        let mut structures = vec![Structure::fill(Which::LpmTrie, prefixes, &bytes)?];
        for home in [Home::Arena, Home::Array] {
            context.check()?;
            match Structure::fill(Which::Trieline(home), prefixes, &bytes) {
                Ok(structure) => structures.push(structure),
                // An older kernel has no arena: measure what it has.
                Err(error) if home == Home::Arena => {
                    context.progress.note(&format!("{name}: no arena here ({error})"))
                }
                Err(error) => return Err(error),
            }
        }
        context.progress.phase(&format!("{name}: comparing answers"), 0);
        self.check(name, prefixes, &addresses, &structures)?;
        context.progress.phase(&format!("{name}: rounds"), (self.rounds * 2 * (structures.len() + 1)) as u64);
        for mode in [Mode::Packet, Mode::Loop] {
            self.measure(name, mode, prefixes.len(), A::FAMILY, source, &structures)?;
        }
        Ok(())
    }

    /// How many answers are compared: all, but the slow rival's not in a quick run.
    fn checks(&self, which: Which) -> u64 {
        let rival = which == Which::LpmTrie && self.quick;
        (if rival { ADDRESSES / 8 } else { ADDRESSES }) as u64
    }

    /// Compares every structure's answers.
    fn check<A: Wide + Hash>(
        &self,
        name: &str,
        prefixes: &[Prefix<A>],
        addresses: &[A],
        structures: &[Structure],
    ) -> Result<()> {
        let reference = Reference::new(prefixes.iter().zip(1u32..).map(|(prefix, value)| (*prefix, value)));
        let expected: Vec<u32> = addresses.iter().map(|address| reference.lookup(*address)).collect();
        for structure in structures {
            self.context.check()?;
            let count = self.checks(structure.which) as usize;
            let answers = structure.answers(count as u32)?;
            let expected = &expected[..count];
            let differing = answers.iter().zip(expected).filter(|(got, expected)| got != expected).count();
            if differing == 0 && answers.len() == count {
                continue;
            }
            let at = answers.iter().zip(expected).position(|(got, expected)| got != expected).unwrap_or(0);
            return Err(Error::Mismatch {
                structure: format!("{} ({})", structure.which.name(), structure.which.home()),
                table: name.to_owned(),
                address: Prefix::host(addresses[at]).to_string(),
                got: answers.get(at).copied().unwrap_or(0),
                expected: expected[at],
                differing: differing as u64,
                checked: expected.len() as u64,
            });
        }
        Ok(())
    }

    fn measure(
        &mut self,
        name: &str,
        mode: Mode,
        prefixes: usize,
        family: u8,
        source: Source,
        structures: &[Structure],
    ) -> Result<()> {
        // At least a million lookups a turn; more for the fast structures, so that turns last about as long.
        let million = ADDRESSES as u32;
        let lookups = |which| match which {
            Some(Which::LpmTrie) => million,
            _ if self.quick => 2 * million,
            _ => 4 * million,
        };
        let mut empty = Samples::default();
        let mut series: Vec<Series> = structures
            .iter()
            .map(|s| Series { ns: Samples::default(), lookups: lookups(Some(s.which)) })
            .collect();
        let began = Instant::now();
        for round in 0..self.rounds {
            // A quick run keeps its promise on a slow machine too, and no table takes the others' time.
            let late = began.elapsed() > QUICK_MODE || self.began.elapsed() > QUICK_ALL;
            if self.quick && round > 0 && late {
                self.context
                    .progress
                    .note(&format!("{name}, {}: slow machine, fewer rounds than asked for", mode.name()));
                break;
            }
            self.context.check()?;
            let timed = structures[0].time_empty(mode, lookups(None))?;
            empty.push(timed.ns());
            if mode == Mode::Packet {
                self.before_ms.push(timed.span.before.as_secs_f64() * 1e3);
            }
            self.context.progress.advance(1);
            for (structure, series) in structures.iter().zip(&mut series) {
                self.context.check()?;
                series.ns.push(structure.time(mode, series.lookups)?.ns());
                self.context.progress.advance(1);
            }
        }
        for (structure, own) in structures.iter().zip(&series) {
            let ratio = own.ns.ratio_of(&series[0].ns);
            self.rows.push(Row {
                table: name.to_owned(),
                family,
                structure: structure.which.name(),
                home: structure.which.home(),
                mode,
                traffic: "prefix",
                source,
                ns: rounded(own.ns.median(), 2),
                ns_min: rounded(own.ns.min(), 2),
                ns_max: rounded(own.ns.max(), 2),
                ns_empty: rounded(empty.median(), 2),
                ratio: rounded(ratio.median(), 2),
                ratio_min: rounded(ratio.min(), 2),
                ratio_max: rounded(ratio.max(), 2),
                bytes: structure.bytes,
                prefixes,
                fill_ms: rounded(structure.fill_ms, 1),
                checked: self.checks(structure.which),
                lookups: own.lookups,
                rounds: own.ns.len(),
            });
        }
        Ok(())
    }
}

fn network_order<A: Wide>(addresses: &[A]) -> Vec<u8> {
    let width = usize::from(A::WIDTH / 8);
    addresses.iter().flat_map(|address| address.widen().to_be_bytes().into_iter().take(width)).collect()
}
