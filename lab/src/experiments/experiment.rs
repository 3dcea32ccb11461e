//! An experiment is a struct of its options, which runs.

use clap::Args;
use serde::Deserialize;

use crate::{Context, Result, report::Finished};

/// Whether more or less of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A rate.
    Higher,
    /// A time, a memory.
    Lower,
}

/// A figure of rows: the key of its median.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The key.
    pub key: &'static str,
    /// Which is better.
    pub better: Better,
    /// The keys of its interval's ends; without them `KEY_ci`, or the range of enough rounds.
    pub ends: Option<[&'static str; 2]>,
    /// The keys of the least and the greatest round; without them `KEY_min` and `KEY_max`.
    pub range: Option<[&'static str; 2]>,
}

impl Figure {
    /// A figure that is better when it is lower.
    pub const fn lower(key: &'static str) -> Figure {
        Figure { key, better: Better::Lower, ends: None, range: None }
    }

    /// A figure that is better when it is higher.
    pub const fn higher(key: &'static str) -> Figure {
        Figure { key, better: Better::Higher, ends: None, range: None }
    }

    /// With other keys for the ends of its interval.
    pub const fn within(self, low: &'static str, high: &'static str) -> Figure {
        Figure { ends: Some([low, high]), ..self }
    }

    /// With other keys for the least and the greatest round.
    pub const fn from_to(self, least: &'static str, greatest: &'static str) -> Figure {
        Figure { range: Some([least, greatest]), ..self }
    }
}

/// A list of a document, as `lab compare` reads it.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The list's key.
    pub list: &'static str,
    /// The keys that name a row together.
    pub names: &'static [&'static str],
    /// The figures to compare.
    pub figures: &'static [Figure],
}

/// An experiment: a struct of its options, which runs.
pub trait Experiment: Args {
    /// Its name on the command line.
    const NAME: &'static str;
    /// Its purpose, in a line.
    const PURPOSE: &'static str;
    /// How its documents are compared.
    const COMPARED: &'static [Compared] = &[];
    /// Folders of the product that it measures: a document is old once they have changed. Its own folder counts by itself.
    const CODE: &'static [&'static str];
    /// Seconds that a quick run takes, roughly: for the time left of a run of all.
    const QUICK_SECONDS: u64 = 30;
    /// Seconds that a full run takes, roughly.
    const FULL_SECONDS: u64 = 600;
    /// Its result.
    type Outcome: Finished + Deserialize<'static> + 'static;

    /// Whether only root can run it with these options.
    fn needs_root(&self) -> bool {
        true
    }

    /// Whether it measures anything with these options: only then other work on the machine matters.
    fn measures(&self) -> bool {
        true
    }

    /// Runs it; blocks until the end.
    fn run(&self, context: &Context) -> Result<Self::Outcome>;
}
