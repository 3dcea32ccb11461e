//! Options that several experiments take. An experiment flattens those that it needs into its own.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    Context, Error, Result,
    account::Account,
    measure::{Gate, Rounds},
    report::Machine,
    tables::Tables,
};

/// Most rounds: days.
pub const ROUNDS_MAX: usize = 10_000;

/// A number within a range.
pub fn within(text: &str, range: RangeInclusive<usize>) -> std::result::Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
}

/// The options of every experiment.
#[derive(Args, Clone, Debug, Default)]
pub struct Run {
    /// End within 40 s (engines: 60 s, throughput: 120 s)
    ///
    /// With fewer and shorter rounds, and smaller tables.
    #[arg(long)]
    pub quick: bool,
    /// Set the seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run so many rounds [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 1..=ROUNDS_MAX))]
    pub rounds: Option<usize>,
    /// Write this command line into the document
    #[arg(long = "command-line", value_name = "TEXT", hide = true, default_value_t = command_line("lab "))]
    pub command: String,
    /// The account of the run.
    #[arg(skip)]
    pub account: Account,
}

impl Run {
    /// How many rounds: as asked for, or the experiment's own number in a quick run and in a full one.
    pub fn rounds(&self, quick: usize, full: usize) -> usize {
        self.rounds.unwrap_or(if self.quick { quick } else { full })
    }

    /// This machine, before the experiment begins.
    pub fn machine(&self) -> Machine {
        self.account.begin();
        Machine::here(&self.command, self.seed, self.account.clone())
    }

    /// A round: every case from 0 to `cases` - 1 has its turn, in an order that is random and the same for the same seed. A sample during which
    /// the machine was slow is taken again, within bounds. The samples by case.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::Interrupted`].
    pub fn round<S>(
        &self,
        context: &Context,
        round: usize,
        cases: usize,
        mut take: impl FnMut(usize, &mut Gate) -> Result<S>,
    ) -> Result<Vec<S>> {
        let mut is_new = vec![true; cases];
        self.account.round(self.seed, round, cases, |case, gate| {
            context.check()?;
            let sample = take(case, gate)?;
            context.progress.advance(u64::from(std::mem::take(&mut is_new[case])));
            Ok(sample)
        })
    }

    /// The cases of a round in a random order, for experiments whose samples are parts of a case ([`Run::sample`]).
    pub fn order(&self, round: usize, cases: usize) -> Vec<usize> {
        self.account.order(self.seed, round, cases)
    }

    /// One sample. If the machine was slow meanwhile, it is taken again, within bounds.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::Interrupted`].
    pub fn sample<S>(&self, context: &Context, mut take: impl FnMut(&mut Gate) -> Result<S>) -> Result<S> {
        self.account.sample(self.seed, |gate| {
            context.check()?;
            take(gate)
        })
    }

    /// Rounds of all cases ([`Run::round`]), as many as `count` unless it is `late` before, or the caller wants to stop after the first. `name` says in notes whose they are.
    ///
    /// # Errors
    /// As [`Run::round`].
    pub fn take<S>(
        &self,
        context: &Context,
        name: &str,
        (count, cases): (usize, usize),
        late: impl Fn() -> bool,
        mut take: impl FnMut(usize, &mut Gate) -> Result<S>,
    ) -> Result<Rounds<S>> {
        let mut taken = Vec::new();
        for round in context.rounds(name, count, late) {
            match self.round(context, round, cases, &mut take) {
                Ok(samples) => taken.push(samples),
                // The finished rounds stay.
                Err(_) if context.interrupted() && !taken.is_empty() => {
                    self.cut(context, &format!("{name}: after {} of {count} rounds", taken.len()));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Rounds(taken))
    }

    /// Whether a run ends with this part: the caller wants it to stop, and what was measured before stays.
    ///
    /// # Errors
    /// The part's, unless the caller's wish is the reason and the run has rows.
    pub fn ends(&self, context: &Context, part: Result<()>, has_rows: bool) -> Result<bool> {
        let is_cut = context.interrupted() && has_rows;
        match part {
            Err(_) if is_cut => self.cut(context, "before its end"),
            part => part?,
        }
        Ok(is_cut)
    }

    /// Notes that the run was interrupted, and where.
    pub fn cut(&self, context: &Context, at: &str) {
        if self.account.cut(at) {
            context.progress.note(&format!("interrupted: {at}; what was measured before is kept"));
        }
    }

    /// Lets a rival that failed lose its rows of a case, with a note; the run goes on.
    ///
    /// # Errors
    /// The error itself if it is not the rival's.
    pub fn lose(&self, context: &Context, rival: &str, case: &str, error: Error) -> Result<()> {
        let note = format!("{case}: no rows of {rival}: {error}");
        self.account.lose(rival, case, error)?;
        context.progress.note(&note);
        Ok(())
    }
}

/// The command line as a user would type it again, without the directories of this machine.
pub fn command_line(words: &str) -> String {
    let rest: Vec<String> = std::env::args().skip(1).collect();
    format!("trieline {words}{}", rest.join(" "))
}

/// A choice of cases.
#[derive(Args, Clone, Debug, Default)]
pub struct Only {
    /// Measure only cases whose name contains NAME
    ///
    /// Tables have names, paths (`decap` also takes decap-full and decap-dt6), and transports with brokers (`udp busy`).
    #[arg(long = "only", value_name = "NAME")]
    pub part: Option<String>,
}

impl Only {
    /// Whether a case is asked for.
    pub fn takes(&self, name: &str) -> bool {
        self.part.as_deref().is_none_or(|part| name.contains(part))
    }

    /// The rows; an error without any.
    pub fn some<R>(&self, rows: Vec<R>) -> Result<Vec<R>> {
        if rows.is_empty() { Err(Error::NoCase(self.part.clone().unwrap_or_default())) } else { Ok(rows) }
    }
}

/// Most entries of a table of hosts: some GiB in an LPM_TRIE.
pub const ENTRIES_MAX: usize = 10_000_000;

/// Numbers of entries.
#[derive(Args, Clone, Debug, Default)]
pub struct Entries {
    /// Set the tables' entries, with commas between
    ///
    /// By default the experiment's.
    #[arg(long = "entries", value_name = "N", value_delimiter = ',', value_parser = |text: &str| within(text, 1..=ENTRIES_MAX))]
    pub sizes: Vec<usize>,
}

impl Entries {
    /// Those asked for, or else the experiment's own.
    pub fn or(&self, own: impl IntoIterator<Item = usize>) -> Vec<usize> {
        if self.sizes.is_empty() { own.into_iter().collect() } else { self.sizes.clone() }
    }
}

/// A directory of real tables.
#[derive(Args, Clone, Debug, Default)]
pub struct Data {
    /// Find bgp-table.txt.gz in this directory
    ///
    /// By default in ../shared/data; without it, tables are generated.
    #[arg(long = "data", value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// File name of a full Internet table in a data directory.
pub const BGP_FILE: &str = "bgp-table.txt.gz";
/// Prefixes of a full table, when one has to be generated.
const FULL: (usize, usize) = (901_899, 160_147);

impl Data {
    /// The directory to use: the one asked for, or `../shared/data` when a full table lies there.
    pub fn directory(&self) -> Result<Option<PathBuf>> {
        if let Some(directory) = &self.directory {
            return if directory.join(BGP_FILE).is_file() {
                Ok(Some(directory.clone()))
            } else {
                Err(Error::Table { path: directory.clone(), why: format!("holds no {BGP_FILE}") })
            };
        }
        let beside = Path::new("../shared/data");
        Ok(beside.join(BGP_FILE).is_file().then(|| beside.to_owned()))
    }
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

/// A table of the user's instead of the experiment's.
#[derive(Args, Clone, Debug, Default)]
pub struct Table {
    /// Use the prefixes of this file
    ///
    /// `prefix [value]` lines, gzip or not, or the output of `ip route`.
    #[arg(long = "table", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The real table.
    #[command(flatten)]
    pub data: Data,
}

impl Table {
    /// The file's table and its name without directories; None without a file.
    pub fn read(&self, context: &Context) -> Result<Option<(Tables, String)>> {
        let Some(file) = &self.file else { return Ok(None) };
        context.progress.phase("reading the table", 0);
        let name =
            file.file_name().map_or_else(|| file.display().to_string(), |n| n.to_string_lossy().into_owned());
        Ok(Some((Tables::read(file)?, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cannot_be_are_mistakes() {
        assert_eq!((within("0", 0..=9), within("1", 1..=9), within("9", 1..=9)), (Ok(0), Ok(1), Ok(9)));
        for bad in ["x", "-1", "0", "10", "99999999999999999999999"] {
            assert!(within(bad, 1..=9).unwrap_err().contains("from 1 to 9"), "{bad}");
        }
    }
}
