//! The documents that a page shows, and which figure has which of them.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::figures::{FIGURES, Figure};
use crate::{
    Error, Result,
    error::During,
    experiments::LIST,
    report::{Finished, Picture},
    results::Saved,
};

/// A document of an experiment.
pub(super) struct Entry {
    /// With its tables and pictures.
    pub(super) finished: Box<dyn Finished>,
    /// As JSON.
    pub(super) document: Value,
    /// Its pictures.
    pub(super) pictures: Vec<Picture>,
}

/// The documents that a page shows.
#[derive(Default)]
pub struct Page {
    /// The documents, one an experiment, in the order of [`LIST`].
    pub(super) entries: Vec<Entry>,
    /// Experiments that failed, and why.
    failed: Vec<(&'static str, String)>,
}

/// Whether a figure has its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// `F1` to `F9`.
    pub figure: &'static str,
    /// The experiment that measures it.
    pub experiment: &'static str,
    /// Whether there is a document of it.
    pub measured: bool,
}

impl Page {
    /// The documents `NAME.json` in a directory, as `lab run NAME --save` writes them. Other files there are left alone.
    ///
    /// # Errors
    /// [`Error::Document`], with the file: it cannot be read, or is not a document of the experiment in this version.
    pub fn read(directory: &Path) -> Result<Page> {
        let mut page = Page::default();
        for listed in &LIST {
            let path = directory.join(format!("{}.json", listed.name));
            if !path.exists() {
                continue;
            }
            let saved = Saved::read(&path)?;
            let refuse = |why: String| Error::Document { path: path.clone(), why };
            if saved.experiment != listed.name {
                let (found, name) = (&saved.experiment, listed.name);
                return Err(refuse(format!(
                    "a document of experiment `{found}`; expected one of `{name}`, as the file's name says"
                )));
            }
            let finished = listed.read(saved.document.clone()).map_err(|error| {
                refuse(format!("not a document of `{}`: {error}; measure again", listed.name))
            })?;
            page.push(finished, saved.document)?;
        }
        Ok(page)
    }

    /// Adds what an experiment found.
    ///
    /// # Errors
    /// It cannot be serialised or drawn.
    pub fn add(&mut self, finished: Box<dyn Finished>) -> Result<()> {
        let text = finished.json(false)?;
        let document = serde_json::from_str(&text)
            .map_err(std::io::Error::other)
            .during(|| "cannot read the result back".into())?;
        self.push(finished, document)
    }

    fn push(&mut self, finished: Box<dyn Finished>, document: Value) -> Result<()> {
        let pictures = finished.marked_pictures()?;
        self.entries.push(Entry { finished, document, pictures });
        Ok(())
    }

    /// Notes that an experiment failed: its figures show why.
    pub fn fail(&mut self, experiment: &'static str, reason: impl Into<String>) {
        self.failed.push((experiment, reason.into()));
    }

    /// Whether it has no document.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The figures, and whether each has its document.
    pub fn states(&self) -> Vec<State> {
        let state = |figure: &Figure| State {
            figure: figure.number,
            experiment: figure.experiment,
            measured: self.entry(figure.experiment).is_some(),
        };
        FIGURES.iter().map(state).collect()
    }

    /// The pictures of all documents.
    pub fn pictures(&self) -> impl Iterator<Item = &Picture> {
        self.entries.iter().flat_map(|entry| &entry.pictures)
    }

    pub(super) fn entry(&self, experiment: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.finished.experiment() == experiment)
    }

    /// The page's title, behind the mark of a busy machine if one of its documents has it.
    pub(super) fn title(&self) -> String {
        let mark =
            self.entries.iter().map(|entry| entry.finished.machine().mark()).find(|mark| !mark.is_empty());
        format!("{}The published figures, measured again", mark.unwrap_or_default())
    }

    /// How many figures have their documents, in words.
    pub(super) fn summary(&self) -> String {
        let measured = self.states().iter().filter(|state| state.measured).count();
        let is_busy = |entry: &&Entry| !entry.finished.machine().mark().is_empty();
        let busy = match self.entries.iter().filter(is_busy).count() {
            0 => String::new(),
            count => format!(
                " Other work ran on the machine during {count} of them: their titles say so, and their figures are worth little."
            ),
        };
        format!(
            "{measured} of {} published figures, measured again. {} experiments in all.{busy}",
            FIGURES.len(),
            self.entries.len()
        )
    }

    /// Why a figure has no document, and how to make it.
    pub(super) fn missing(&self, figure: &Figure) -> Missing {
        let name = figure.experiment;
        let is_known = LIST.iter().any(|listed| listed.name == name);
        let why = match self.failed.iter().find(|(failed, _)| *failed == name) {
            Some((_, error)) => format!("Experiment {name} failed: {error}."),
            None if is_known => format!("The report has no document of experiment {name}."),
            None => format!("This version has no experiment {name}."),
        };
        Missing { why, command: is_known.then(|| format!("trieline lab run {name} --save")) }
    }
}

/// Why a figure has no document.
pub(super) struct Missing {
    /// In words.
    pub(super) why: String,
    /// None if this version lacks the experiment.
    pub(super) command: Option<String>,
}

impl Entry {
    /// The pictures that a figure shows, in the figure's order.
    pub(super) fn pictures_of(&self, figure: &Figure) -> impl Iterator<Item = &Picture> {
        let of = |prefix: &'static str| self.pictures.iter().filter(move |one| one.name.starts_with(prefix));
        figure.pictures.iter().flat_map(move |prefix| of(prefix))
    }

    /// The pictures that no figure shows.
    pub(super) fn other_pictures(&self) -> impl Iterator<Item = &Picture> {
        let own = |figure: &&Figure| figure.experiment == self.finished.experiment();
        let prefixes: Vec<&str> =
            FIGURES.iter().filter(own).flat_map(|figure| figure.pictures).copied().collect();
        self.pictures.iter().filter(move |picture| !prefixes.iter().any(|of| picture.name.starts_with(of)))
    }

    /// The mark before the title of a figure: of a busy machine.
    pub(super) fn mark(&self) -> &'static str {
        self.finished.machine().mark()
    }

    /// Where, when and by which command, each with its name.
    pub(super) fn origin(&self) -> [(&'static str, String); 4] {
        let machine = self.finished.machine();
        [
            ("Machine", format!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel)),
            ("Command", machine.command.clone()),
            ("Date", machine.date.clone()),
            ("Commit", format!("{}, seed {}{}", machine.git, machine.seed, machine.doubts())),
        ]
    }
}
