//! Documents that were saved, read back as JSON: for comparisons, and to go on with a run of all experiments.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    Error, Result,
    report::{Host, VERSION},
};

/// The files that can be used.
const EXPECTED: &str = "a document that `trieline lab run NAME --save` wrote";

/// A document in a file, of the version that this program writes.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// Name of the experiment.
    pub experiment: String,
    /// The document.
    pub document: Value,
}

impl Saved {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Document`]: it cannot be read, is not a document of an experiment, or is of another version.
    pub fn read(path: &Path) -> Result<Saved> {
        let refuse = |why: String| Error::Document { path: path.to_owned(), why };
        let text = fs::read_to_string(path)
            .map_err(|error| refuse(format!("cannot read: {error}; expected {EXPECTED}")))?;
        let document: Value = serde_json::from_str(&text)
            .map_err(|error| refuse(format!("not JSON: {error}; expected {EXPECTED}")))?;
        let experiment = document["experiment"].as_str().map(str::to_owned);
        let (Some(experiment), Some(version)) = (experiment, document["version"].as_u64()) else {
            return Err(refuse(format!(
                "no `experiment` (text) or no `version` (number): expected {EXPECTED}"
            )));
        };
        if version != u64::from(VERSION) {
            return Err(refuse(format!(
                "a document of version {version}; this program reads version {VERSION}: measure again, or use the program of commit {}",
                document["machine"]["git"].as_str().unwrap_or("unknown")
            )));
        }
        Ok(Saved { path: path.to_owned(), experiment, document })
    }

    /// A text of `machine`; empty without one.
    pub fn machine(&self, key: &str) -> &str {
        self.document["machine"][key].as_str().unwrap_or_default()
    }

    /// Whether other work ran on the machine meanwhile.
    pub fn is_busy(&self) -> bool {
        self.document["machine"]["load"]["busy"].as_bool().unwrap_or(true)
    }

    /// Whether the run that wrote it was interrupted.
    pub fn was_interrupted(&self) -> bool {
        !self.document["machine"]["interrupted"].is_null()
    }

    /// Whether a quick run wrote it.
    pub fn is_quick(&self) -> bool {
        self.machine("command").split_whitespace().any(|word| word == "--quick")
    }

    /// Whether it is whole, of this commit with the same changes, of this machine and by this command. It must be quiet enough for a run that asks for that.
    pub fn is_of(&self, experiment: &str, command: &str, may_be_busy: bool) -> bool {
        let Host { cpu, cores, kernel } = Host::here();
        let texts = [("command", command), ("git", env!("LAB_GIT")), ("cpu", &cpu), ("kernel", &kernel)];
        self.experiment == experiment
            && texts.into_iter().all(|(key, value)| self.machine(key) == value)
            && self.document["machine"]["cores"] == cores
            && !self.was_interrupted()
            && (may_be_busy || !self.is_busy())
    }
}
