//! The experiments by name.

pub mod comparison;
pub mod engines;
pub mod forward;
pub mod map_curve;
pub mod map_free;
pub mod map_ops;
pub mod map_tables;
mod probed;
pub mod structure;
pub mod structures;
pub mod trace_hooks;
pub mod trace_overhead;
pub mod traffic;
pub mod tries;

use std::path::PathBuf;

use crate::{Context, Result, report::Finished};

/// The options of an experiment. Each takes the fields that concern it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Ends soon: fewer and shorter rounds, smaller tables.
    pub quick: bool,
    /// Measures only what contains this.
    pub only: Option<String>,
    /// Reads prefixes from this file.
    pub table: Option<PathBuf>,
    /// Folder of the real tables.
    pub data: Option<PathBuf>,
    /// Entries of the tables; empty for the experiment's own numbers.
    pub entries: Vec<usize>,
    /// Frames a turn (`forward`).
    pub frames: Option<u64>,
    /// Microseconds from one message to the next (`trace-overhead`).
    pub gap: Option<u64>,
    /// Addresses of a round (`engines`).
    pub addresses: Option<usize>,
    /// The program that has the command `broker` (`trace-overhead`); this one if unset.
    pub program: Option<PathBuf>,
    /// Seed of everything random.
    pub seed: u64,
    /// Interleaved rounds; the experiment's own number if unset.
    pub rounds: Option<usize>,
    /// The command line, for the document.
    pub command: String,
}

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose, in a line.
    pub purpose: &'static str,
    /// Runs it to the end.
    pub run: fn(&Options, &Context) -> Result<Box<dyn Finished>>,
}

/// An entry of [`LIST`].
macro_rules! experiment {
    ($name:expr, $run:path, $purpose:expr) => {
        Experiment {
            name: $name,
            purpose: $purpose,
            run: |options, context| Ok(Box::new($run(options, context)?)),
        }
    };
}

/// All experiments.
pub const LIST: [Experiment; 10] = [
    experiment!(
        "engines",
        engines::run,
        "trieline's tables in user space against Poptrie, DPDK's FIBs, DIR-24-8 and Rust crates"
    ),
    experiment!(
        "map-curve",
        map_curve::run,
        "lookups in LPM_TRIE and trieline by the number of entries, with the published curve"
    ),
    experiment!(
        "map-free",
        map_free::run,
        "CPU time and longest stall of freeing LPM_TRIE and trieline, whole and one table of two"
    ),
    experiment!(
        "map-ops",
        map_ops::run,
        "lookup, update, delete and free of LPM_TRIE and trieline with the published figures"
    ),
    experiment!(
        "map-tables",
        map_tables::run,
        "LPM_TRIE against trieline on the same tables, per packet and in a loop"
    ),
    experiment!(
        "structures",
        structures::run,
        "every candidate for the image's structure on every kind of table: memory, time, lines touched"
    ),
    experiment!(
        "trace-hooks",
        trace_hooks::run,
        "the cost of a hook on messages by its kind, by its work, and for other processes"
    ),
    experiment!(
        trace_overhead::NAME,
        trace_overhead::run,
        "ways to take times inside a broker and what each adds to a message's way: the paper's experiment"
    ),
    experiment!(
        "tries",
        tries::run,
        "the classic tries by their thresholds against the kernel's routes and trieline, one core"
    ),
    experiment!(
        "forward",
        forward::run_asked,
        "IPv4, IPv6, decapsulation and encapsulation through the kernel and through XDP"
    ),
];
