//! The document that an experiment yields: machine, parameters and rows, as scripts read it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

pub use trieline_plot::Picture;

use crate::{
    error::{During, Result},
    load::Load,
};

/// Where and how something was measured.
#[derive(Clone, Debug, Serialize)]
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
    /// Commit it was built from, `-dirty` when files differed.
    pub git: String,
    /// UTC, RFC 3339.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Other load on the machine.
    pub load: Load,
}

impl Machine {
    /// This machine, now; `command` is the line a user would type to repeat the measurement.
    pub fn here(command: String, seed: u64) -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo
            .lines()
            .find(|line| line.starts_with("model name") || line.starts_with("CPU part"))
            .and_then(|line| line.split_once(':'))
            .map_or("unknown", |(_, name)| name.trim());
        Machine {
            cpu: cpu.to_owned(),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get()),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            compiler: env!("LAB_COMPILERS").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git: env!("LAB_GIT").to_owned(),
            date: rfc3339(SystemTime::now()),
            command,
            seed,
            load: Load::start(),
        }
    }
}

impl Machine {
    /// Where and when, and the command on a line of its own.
    pub fn caption(&self) -> String {
        format!(
            "{}, {} cores, Linux {}, commit {}, {}{}\n{}",
            self.cpu,
            self.cores,
            self.kernel,
            self.git,
            self.date,
            self.load.caption(),
            self.command
        )
    }
}

/// An experiment's result. The field names are an interface: `version` grows when one changes its meaning.
#[derive(Clone, Debug, Serialize)]
pub struct Document<P, R> {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Of this form.
    pub version: u32,
    /// Where and how.
    pub machine: Machine,
    /// The parameters.
    pub parameters: P,
    /// The results.
    pub rows: Vec<R>,
}

impl<P, R> Document<P, R> {
    /// Where and when, and the command on a line of its own: what stands under a picture.
    pub fn caption(&self) -> String {
        self.machine.caption()
    }
}

/// The presentation of an experiment's document.
pub trait Report {
    /// The rows as a table, and what they mean.
    fn text(&self) -> String;

    /// The pictures.
    fn pictures(&self) -> Result<Vec<Picture>> {
        Ok(Vec::new())
    }

    /// A page of Markdown for the docs, which is written beside the document, where there is one.
    fn page(&self) -> Option<String> {
        None
    }
}

/// A document of any form.
pub trait Measured: Serialize {
    /// Name of the experiment.
    fn experiment(&self) -> &'static str;
    /// Where and how.
    fn machine(&self) -> &Machine;
}

impl<P: Serialize, R: Serialize> Measured for Document<P, R> {
    fn experiment(&self) -> &'static str {
        self.experiment
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// An experiment's document with what it shows, whichever experiment it was.
pub trait Finished: Report {
    /// Name of the experiment.
    fn experiment(&self) -> &'static str;
    /// Where and how.
    fn machine(&self) -> &Machine;
    /// The document.
    fn json(&self, pretty: bool) -> Result<String>;
    /// Writes `directory/NAME.json`; its path.
    fn save(&self, directory: &Path) -> Result<PathBuf>;
}

impl<D: Measured + Report> Finished for D {
    fn experiment(&self) -> &'static str {
        Measured::experiment(self)
    }

    fn machine(&self) -> &Machine {
        Measured::machine(self)
    }

    fn json(&self, pretty: bool) -> Result<String> {
        let text = if pretty { serde_json::to_string_pretty(self) } else { serde_json::to_string(self) };
        text.map_err(std::io::Error::other).during(|| "cannot serialise the result".into())
    }

    fn save(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory).during(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join(format!("{}.json", Measured::experiment(self)));
        let text = self.json(true)? + "\n";
        fs::write(&path, text).during(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// The first row of a table.
pub(crate) fn heading<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(String::from).to_vec()
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
