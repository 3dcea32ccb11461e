//! LPM_TRIE and trieline's map types side by side on one table: filled, compared with the oracle and timed in interleaved rounds. Shared by
//! the experiments whose names begin with `map-`.

use std::time::{Duration, Instant};

use trieline_bpf::ImageMapType;
use trieline_lpm::Prefix;

use super::structure::{Looked, Mode, Structure, Which, image_bytes};
use crate::{
    Context, Error, Result,
    generator::ADDRESSES,
    measure::Samples,
    tables::{kinds::Entry, reference::Reference},
};

/// How much is done.
#[derive(Clone, Copy)]
pub struct Comparison<'c> {
    /// Receives progress, and may stop the comparison.
    pub context: &'c Context<'c>,
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

/// The results of one structure, by round.
pub struct Series {
    /// Nanoseconds a lookup.
    pub ns: Samples,
    /// Lookups a round.
    pub lookups: u32,
}

impl Comparison<'_> {
    /// LPM_TRIE first, then trieline in each of `map_types` that this machine has, all filled.
    pub fn fill<A: Looked>(
        &self,
        name: &str,
        map_types: &[ImageMapType],
        entries: &[Entry<A>],
        addresses: &[A],
    ) -> Result<Vec<Structure>> {
        self.context.check()?;
        self.context.progress.phase(&format!("{name}: filling"), 0);
        let mut structures = vec![Structure::lpm_trie(entries, addresses)?];
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

    /// Compares every structure's answers for `addresses`, which its programs look up over and over, with the oracle's; the sum of
    /// the answers of one turn through all that the programs have.
    pub fn check<A: Looked>(
        &self,
        name: &str,
        entries: &[Entry<A>],
        addresses: &[A],
        structures: &[Structure],
    ) -> Result<u64> {
        self.context.progress.phase(&format!("{name}: comparing answers"), 0);
        let reference = Reference::new(entries.iter().copied());
        let expected: Vec<u32> = addresses.iter().map(|address| reference.lookup(*address)).collect();
        for structure in structures {
            self.context.check()?;
            compare(name, structure, self.checks(structure.which), addresses, &expected)?;
        }
        Ok(expected.iter().cycle().take(ADDRESSES).map(|answer| u64::from(*answer)).sum())
    }

    /// Times all in interleaved rounds. The sum of a turn's answers must be `sum` for every turn through the addresses.
    pub fn rounds(&self, name: &str, mode: Mode, structures: &[Structure], sum: u64) -> Result<Rounds> {
        // At least a million lookups a turn; more for the fast structures, so that turns last about as long.
        let million = ADDRESSES as u32;
        let lookups = |which| match which {
            Some(Which::LpmTrie) => million,
            _ if self.quick.is_some() => 2 * million,
            _ => 4 * million,
        };
        let series = structures
            .iter()
            .map(|s| Series { ns: Samples::default(), lookups: lookups(Some(s.which)) })
            .collect();
        let mut all = Rounds { empty: Samples::default(), before_ms: Samples::default(), series };
        let began = Instant::now();
        for round in 0..self.rounds {
            // A quick run keeps its promise on a slow machine too, and no table takes the others' time.
            let late = |quick: Quick| began.elapsed() > quick.mode || quick.began.elapsed() > quick.all;
            if round > 0 && self.quick.is_some_and(late) {
                let note = format!("{name}, {}: slow machine, fewer rounds than asked for", mode.name());
                self.context.progress.note(&note);
                break;
            }
            self.context.check()?;
            let timed = structures[0].time_empty(mode, lookups(None))?;
            all.empty.push(timed.ns());
            all.before_ms.push(timed.span.before.as_secs_f64() * 1e3);
            self.context.progress.advance(1);
            for (structure, series) in structures.iter().zip(&mut all.series) {
                self.context.check()?;
                let timed = structure.time(mode, series.lookups)?;
                let expected = sum * u64::from(series.lookups / ADDRESSES as u32);
                if timed.sum != expected {
                    return Err(Error::Sum {
                        structure: format!("{} ({})", structure.which.name(), structure.which.map_type()),
                        table: name.to_owned(),
                        what: mode.name().to_owned(),
                        got: timed.sum,
                        expected,
                    });
                }
                series.ns.push(timed.ns());
                self.context.progress.advance(1);
            }
        }
        Ok(all)
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
