//! The document that an experiment yields: machine, parameters and rows, as scripts read it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

pub use trieline_plot::Picture;
use trieline_terminal::aligned;

use crate::{
    account::{Account, Calibration, Refusal},
    error::{During, Result},
    load::Load,
};

/// The mark in the title of a document, of its pictures, and of pages with it.
pub const BUSY: &str = "BUSY MACHINE: ";

/// The version of documents that this program writes and reads.
pub const VERSION: u32 = 1;

/// The machine and its system.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
}

impl Host {
    pub(crate) fn here() -> Host {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            cpuinfo.lines().filter_map(|line| line.split_once(':')).find(|(field, _)| field.trim() == name)
        };
        let [name, family, model] = [&["model name", "CPU part"][..], &["cpu family"], &["model"]]
            .map(|names| names.iter().find_map(|name| field(name)).map(|(_, value)| value.trim()));
        let name = name.unwrap_or("unknown");
        // Hosts of virtual machines leave the generation out of the name.
        let generation =
            family.zip(model).map(|(family, model)| format!(" (family {family}, model {model})"));
        Host {
            cpu: format!("{name}{}", generation.unwrap_or_default()),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get()),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }
}

/// Where and how something was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the CPU.
    pub cpu: String,
    /// CPUs that may be used.
    pub cores: usize,
    /// Release of the running kernel.
    pub kernel: String,
    /// Compilers of this program and of its BPF objects.
    pub compiler: String,
    /// Version of the product.
    pub version: String,
    /// Commit it was built from; with `-dirty-` and a hash of the changes when files differed.
    pub git: String,
    /// UTC, RFC 3339.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Other load on the machine.
    pub load: Load,
    /// The samples by the calibration loop.
    pub calibration: Calibration,
    /// Where the run was interrupted; null of a whole one.
    pub interrupted: Option<String>,
    /// Of the run; its end is in the other fields.
    #[serde(skip)]
    pub account: Account,
}

impl Machine {
    /// This machine, now; `command` is the line a user would type to repeat the measurement.
    pub fn here(command: &str, seed: u64, account: Account) -> Machine {
        let Host { cpu, cores, kernel } = Host::here();
        Machine {
            cpu,
            cores,
            kernel,
            compiler: env!("LAB_COMPILERS").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git: env!("LAB_GIT").to_owned(),
            date: rfc3339(SystemTime::now()),
            command: command.to_owned(),
            seed,
            load: Load::start(),
            calibration: Calibration::default(),
            interrupted: None,
            account,
        }
    }
}

impl Machine {
    /// The doubts about the figures, for captions: a busy machine, slow samples, an interrupted run. Empty without any.
    pub fn doubts(&self) -> String {
        let cut = self.interrupted.as_ref().map(|at| format!("; INTERRUPTED {at}")).unwrap_or_default();
        self.load.caption() + &self.calibration.caption() + &cut
    }

    /// The mark that a title begins with: figures of a busy machine are not for anybody's comparison. Empty for a quiet one.
    pub fn mark(&self) -> &'static str {
        if self.load.is_busy() { BUSY } else { "" }
    }

    /// Where and when, and the command on a line of its own.
    pub fn caption(&self) -> String {
        format!(
            "{}, {} cores, Linux {}, commit {}, {}{}\n{}",
            self.cpu,
            self.cores,
            self.kernel,
            self.git,
            self.date,
            self.doubts(),
            self.command
        )
    }
}

/// An experiment's result. The field names are an interface: `version` grows when one changes its meaning.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document<P, R, M = ()> {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Of this form.
    pub version: u32,
    /// Its name, behind the mark of a busy machine.
    pub title: String,
    /// Where and how.
    pub machine: Machine,
    /// The parameters.
    pub parameters: P,
    /// The results.
    pub rows: Vec<R>,
    /// Rivals without rows, with the reason.
    pub refused: Vec<Refusal>,
    /// Results of other kinds, each with a key of its own.
    #[serde(flatten)]
    pub more: M,
}

impl<P, R> Document<P, R> {
    /// Of rows alone, at the end of the run: with the account of its samples and of rivals that failed.
    pub fn new(experiment: &'static str, machine: Machine, parameters: P, rows: Vec<R>) -> Self {
        let (calibration, refused) = (machine.account.calibration(), machine.account.refused());
        let machine = Machine { calibration, interrupted: machine.account.was_cut(), ..machine };
        let title = format!("{}{experiment}", machine.mark());
        Document { experiment, version: VERSION, title, machine, parameters, rows, refused, more: () }
    }

    /// With results of other kinds.
    pub fn with<M>(self, more: M) -> Document<P, R, M> {
        let Document { experiment, version, title, machine, parameters, rows, refused, more: () } = self;
        Document { experiment, version, title, machine, parameters, rows, refused, more }
    }
}

impl<P, R, M> Document<P, R, M> {
    /// Where and when, and the command on a line of its own: what stands under a picture.
    pub fn caption(&self) -> String {
        self.machine.caption()
    }
}

/// The presentation of an experiment's document.
pub trait Report {
    /// The rows, as tables.
    fn tables(&self) -> Vec<Table>;

    /// The meaning of the tables, and how it was measured: lines of text.
    fn notes(&self) -> String;

    /// The tables that have rows, then the notes.
    fn text(&self) -> String {
        let tables = self.tables();
        let tables = tables.iter().filter(|table| !table.rows.is_empty()).map(Table::text);
        let parts: Vec<String> = tables.chain([self.notes()]).collect();
        parts.join("\n")
    }

    /// The pictures.
    fn pictures(&self) -> Result<Vec<Picture>> {
        Ok(Vec::new())
    }
}

/// An experiment's document with what it shows, whichever experiment it was.
pub trait Finished: Report {
    /// Name of the experiment.
    fn experiment(&self) -> &'static str;
    /// Its name, behind the mark of a busy machine.
    fn title(&self) -> &str;
    /// Its pictures, with that mark in their titles.
    fn marked_pictures(&self) -> Result<Vec<Picture>>;
    /// Where and how.
    fn machine(&self) -> &Machine;
    /// Rivals without rows.
    fn refused(&self) -> &[Refusal];
    /// The document.
    fn json(&self, pretty: bool) -> Result<String>;
    /// Writes `directory/NAME.json`; its path.
    fn save(&self, directory: &Path) -> Result<PathBuf>;
}

impl<P: Serialize, R: Serialize, M: Serialize> Finished for Document<P, R, M>
where
    Self: Report,
{
    fn experiment(&self) -> &'static str {
        self.experiment
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn marked_pictures(&self) -> Result<Vec<Picture>> {
        let mark = self.machine.mark();
        Ok(self.pictures()?.into_iter().map(|picture| picture.marked(mark)).collect())
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    fn json(&self, pretty: bool) -> Result<String> {
        let text = if pretty { serde_json::to_string_pretty(self) } else { serde_json::to_string(self) };
        text.map_err(std::io::Error::other).during(|| "cannot serialise the result".into())
    }

    fn save(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory).during(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join(format!("{}.json", self.experiment));
        let text = self.json(true)? + "\n";
        // Under another name first: a document is whole, or it is not there.
        let unfinished = path.with_extension("json.unfinished");
        fs::write(&unfinished, text)
            .and_then(|()| fs::rename(&unfinished, &path))
            .during(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// A column of a table: its heading, and the cell of a row.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// A table of a document: its cells as they are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its title; empty for the table of the rows.
    pub title: &'static str,
    /// The columns' headings.
    pub heading: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// How many columns have words, which stand on the left.
    pub left: usize,
}

/// The rows as a table. Words in the first `left` columns stand on the left.
pub fn table<R>(rows: &[R], left: usize, columns: &[Column<R>]) -> Table {
    let heading = columns.iter().map(|(heading, _)| *heading).collect();
    let cells = |row| columns.iter().map(|(_, cell)| cell(row)).collect();
    Table { title: "", heading, rows: rows.iter().map(cells).collect(), left }
}

impl Table {
    /// With a title.
    pub fn titled(self, title: &'static str) -> Table {
        Table { title, ..self }
    }

    /// The table for a terminal, its columns aligned.
    pub fn text(&self) -> String {
        let title = if self.title.is_empty() { String::new() } else { format!("{}:\n\n", self.title) };
        let heading = self.heading.iter().map(|&heading| heading.to_owned()).collect();
        let lines: Vec<Vec<String>> = std::iter::once(heading).chain(self.rows.iter().cloned()).collect();
        title + &aligned(&lines, self.left)
    }
}

/// A number with so many decimals, or an empty cell.
pub fn decimals(value: impl Into<Option<f64>>, decimals: usize) -> String {
    value.into().map(|value| format!("{value:.decimals$}")).unwrap_or_default()
}

/// A factor such as `1.5x`, or an empty cell.
pub fn factor(factor: Option<f64>, decimals: usize) -> String {
    factor.map(|factor| format!("{factor:.decimals$}x")).unwrap_or_default()
}

/// A cell, `-` without a value.
pub fn dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

/// Bytes as MiB.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Civil from days, with years that begin in March so that the leap day comes last.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
