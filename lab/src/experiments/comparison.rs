//! LPM_TRIE and trieline's map types side by side on one table: filled, compared with the oracle and timed in interleaved rounds. Shared by
//! the experiments whose names begin with `map-`.

use std::time::{Duration, Instant};

use trieline_bpf::ImageMapType;
use trieline_lpm::Prefix;
use trieline_plot::curve::{Point, Stroke};

use super::{
    options::Run,
    structure::{Looked, Mode, Structure, Which, image_bytes},
};
use crate::{
    Context, Error, Result,
    generator::ADDRESSES,
    measure::Samples,
    tables::{kinds::Entry, reference::Reference},
};

/// The colour of a structure's curve, by its map type.
pub fn series(map_type: &str) -> usize {
    ["map", "arena", "array"].iter().position(|of| *of == map_type).unwrap_or(0)
}

/// A point of the curve of what was published for LPM_TRIE.
pub fn published_point(entries: f64, figure: f64) -> ((String, usize, Stroke), Point) {
    (("lpm_trie, published".into(), 4, Stroke::Dotted), Point::exact(entries, figure))
}

/// How much is done.
#[derive(Clone, Copy)]
pub struct Comparison<'c> {
    /// Receives progress, and may stop the comparison.
    pub context: &'c Context<'c>,
    /// The options of the experiment, with its account.
    pub run: &'c Run,
    /// Rounds.
    pub rounds: usize,
    /// Fewer lookups, and fewer rounds when time runs out.
    pub quick: Option<Quick>,
}

/// The time limit of a quick run.
#[derive(Clone, Copy, Debug)]
pub struct Quick {
    /// Its beginning.
    pub began: Instant,
    /// No further round of one mode on one table is begun after this time.
    pub mode: Duration,
    /// Nor any that is not a mode's first, this long after the run's beginning.
    pub all: Duration,
}

/// The results of the rounds of one mode.
pub struct Rounds {
    /// Nanoseconds of the program without its lookup.
    pub empty: Samples,
    /// Milliseconds between a call of it and its first packet.
    pub before_ms: Samples,
    /// Of each structure.
    pub series: Vec<Series>,
}

impl Rounds {
    /// LPM_TRIE's ns over a structure's, by round; empty without a series of LPM_TRIE.
    pub fn ratio(&self, own: &Series) -> Samples {
        let rival = self.series.iter().find(|series| series.which == Which::LpmTrie);
        rival.map(|rival| own.ns.ratio_of(&rival.ns)).unwrap_or_default()
    }
}

/// The results of one structure, by round.
pub struct Series {
    /// Whose.
    pub which: Which,
    /// Nanoseconds a lookup.
    pub ns: Samples,
    /// Lookups a round.
    pub lookups: u32,
}

impl Comparison<'_> {
    /// Lets LPM_TRIE lose its rows of a table if it failed; an error of trieline's ends the run.
    fn lose(&self, which: Which, name: &str, error: Error) -> Result<()> {
        match which {
            Which::LpmTrie => self.run.lose(self.context, which.name(), name, error),
            Which::Trieline(_) => Err(error),
        }
    }

    /// LPM_TRIE first, unless it cannot be filled, then trieline in each of `map_types` that this machine has, all filled.
    pub fn fill<A: Looked>(
        &self,
        name: &str,
        map_types: &[ImageMapType],
        entries: &[Entry<A>],
        addresses: &[A],
    ) -> Result<Vec<Structure>> {
        self.context.check()?;
        self.context.progress.phase(&format!("{name}: filling"), 0);
        let mut structures = Vec::new();
        match Structure::lpm_trie(entries, addresses) {
            Ok(structure) => structures.push(structure),
            Err(error) => self.lose(Which::LpmTrie, name, error)?,
        }
        let size = image_bytes(entries, 0)?;
        for &map_type in map_types {
            self.context.check()?;
            if size > map_type.max_bytes() {
                let note = format!("{name}: {} MiB are too large for an {map_type}", size >> 20);
                self.context.progress.note(&note);
                continue;
            }
            match Structure::trieline(map_type, size, entries, addresses) {
                Ok(structure) => structures.push(structure),
                // An older kernel has no arena: measure what it has.
                Err(error) if map_type == ImageMapType::Arena => {
                    self.context.progress.note(&format!("{name}: no arena here ({error})"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(structures)
    }

    /// How many answers are compared: all, but the slow rival's not in a quick run.
    pub fn checks(&self, which: Which) -> usize {
        let rival = which == Which::LpmTrie && self.quick.is_some();
        if rival { ADDRESSES / 8 } else { ADDRESSES }
    }

    /// Compares every structure's answers for `addresses`, which its programs look up over and over, with the oracle's. Returns the
    /// sum of the answers of one turn through all that the programs have. An LPM_TRIE that differs leaves `structures`.
    pub fn check<A: Looked>(
        &self,
        name: &str,
        entries: &[Entry<A>],
        addresses: &[A],
        structures: &mut Vec<Structure>,
    ) -> Result<u64> {
        self.context.progress.phase(&format!("{name}: comparing answers"), 0);
        let reference = Reference::new(entries.iter().copied());
        let expected: Vec<u32> = addresses.iter().map(|address| reference.lookup(*address)).collect();
        let mut right = Vec::new();
        for structure in structures.drain(..) {
            self.context.check()?;
            match compare(name, &structure, self.checks(structure.which), addresses, &expected) {
                Ok(()) => right.push(structure),
                Err(error) => self.lose(structure.which, name, error)?,
            }
        }
        *structures = right;
        Ok(expected.iter().cycle().take(ADDRESSES).map(|answer| u64::from(*answer)).sum())
    }

    /// Times all in interleaved rounds. The sum of a turn's answers must be `sum` for every turn through the addresses; without `structures` there
    /// is nothing to time.
    pub fn rounds(&self, name: &str, mode: Mode, structures: &[Structure], sum: u64) -> Result<Rounds> {
        // At least a million lookups a turn; more for the fast structures, so that turns last about as long.
        let million = ADDRESSES as u32;
        let lookups = |which| match which {
            Some(Which::LpmTrie) => million,
            _ if self.quick.is_some() => 2 * million,
            _ => 4 * million,
        };
        let mut all = Rounds { empty: Samples::default(), before_ms: Samples::default(), series: Vec::new() };
        let Some(first) = structures.first() else { return Ok(all) };
        let began = Instant::now();
        // A quick run keeps its promise on a slow machine too, and no table takes the others' time.
        let late = || {
            self.quick.is_some_and(|quick| began.elapsed() > quick.mode || quick.began.elapsed() > quick.all)
        };
        let mut lost = vec![false; structures.len()];
        let mut take = |case: usize| -> Result<(f64, f64)> {
            let Some(at) = case.checked_sub(1) else {
                let timed = first.time_empty(mode, lookups(None))?;
                return Ok((timed.ns(), timed.span.before.as_secs_f64() * 1e3));
            };
            if lost[at] {
                return Ok((f64::NAN, f64::NAN));
            }
            let timed = self.turn(name, mode, &structures[at], lookups(Some(structures[at].which)), sum);
            match timed {
                Ok(ns) => Ok((ns, f64::NAN)),
                Err(error) => {
                    self.lose(structures[at].which, name, error)?;
                    lost[at] = true;
                    Ok((f64::NAN, f64::NAN))
                }
            }
        };
        let (title, count) = (format!("{name}, {}", mode.name()), (self.rounds, structures.len() + 1));
        let rounds = self.run.take(self.context, &title, count, late, |case, _| take(case))?;
        all.empty = rounds.samples(0, |(ns, _)| *ns);
        all.before_ms = rounds.samples(0, |(_, before)| *before);
        for (at, structure) in structures.iter().enumerate().filter(|(at, _)| !lost[*at]) {
            let ns = rounds.samples(at + 1, |(ns, _)| *ns);
            all.series.push(Series { which: structure.which, ns, lookups: lookups(Some(structure.which)) });
        }
        Ok(all)
    }

    /// Nanoseconds a lookup in one turn, whose answers must have the right sum.
    fn turn(&self, name: &str, mode: Mode, structure: &Structure, lookups: u32, sum: u64) -> Result<f64> {
        let timed = structure.time(mode, lookups)?;
        let expected = sum * u64::from(lookups / ADDRESSES as u32);
        if timed.sum == expected {
            return Ok(timed.ns());
        }
        Err(Error::Sum {
            structure: format!("{} ({})", structure.which.name(), structure.which.map_type()),
            table: name.to_owned(),
            what: mode.name().to_owned(),
            got: timed.sum,
            expected,
        })
    }
}

/// Compares the first `count` answers of a structure with those expected of `addresses`, over and over.
pub fn compare<A: Looked>(
    name: &str,
    structure: &Structure,
    count: usize,
    addresses: &[A],
    expected: &[u32],
) -> Result<()> {
    let answers = structure.answers(count as u32)?;
    let differs = |(n, got): &(usize, &u32)| **got != expected[n % expected.len()];
    let differing = answers.iter().enumerate().filter(differs).count();
    if differing == 0 && answers.len() == count {
        return Ok(());
    }
    let at = answers.iter().enumerate().find(differs).map_or(0, |(n, _)| n);
    Err(Error::Mismatch {
        structure: format!("{} ({})", structure.which.name(), structure.which.map_type()),
        table: name.to_owned(),
        address: Prefix::host(addresses[at % addresses.len()]).to_string(),
        got: answers.get(at).copied().unwrap_or(0),
        expected: expected[at % expected.len()],
        differing: differing as u64,
        checked: count as u64,
    })
}
