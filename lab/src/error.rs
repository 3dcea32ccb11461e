//! Errors in an experiment, each with the operation that failed. An error's text holds its cause, so none is named as
//! `source`: callers that print the chain would say it twice.

use std::{io, path::PathBuf};

/// An experiment that could not be done, or whose result would have been wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{what}: {cause}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The system's answer.
        cause: io::Error,
    },
    /// A command of the system failed.
    #[error("`{command}` failed{}: {stderr}", code.map(|c| format!(" with exit code {c}")).unwrap_or_default())]
    Command {
        /// The command line.
        command: String,
        /// Its exit code, none when a signal ended it.
        code: Option<i32>,
        /// Its text on stderr.
        stderr: String,
    },
    /// A command is not installed.
    #[error("`{0}` is not installed (Debian: packages iproute2, ethtool)")]
    NoCommand(String),
    /// The kernel or libbpf refused something.
    #[error("{what}: {cause}")]
    Bpf {
        /// The operation that failed.
        what: String,
        /// libbpf's error.
        cause: libbpf_rs::Error,
    },
    /// The lab's own BPF object lacks something: a defect of the build.
    #[error("the compiled object `{object}` has no {part}")]
    Object {
        /// Name of the object.
        object: &'static str,
        /// The program, map or section that is missing.
        part: String,
    },
    /// Not allowed.
    #[error("experiments make network namespaces and load BPF programs: run as root")]
    NotRoot,
    /// An experiment of that name does not exist.
    #[error("no experiment `{0}`: `trieline lab list` shows them")]
    NoExperiment(String),
    /// Of an experiment's cases none was left to measure.
    #[error("no table of this experiment has `{0}` in its name, or none was there to measure")]
    NoCase(String),
    /// The caller's flag was raised (Ctrl-C).
    #[error("interrupted")]
    Interrupted,
    /// A program of the product did not do what it was started for.
    #[error("{what}{}", if stderr.is_empty() { String::new() } else { format!("; it said:\n{stderr}") })]
    Daemon {
        /// The expectation that failed.
        what: String,
        /// The end of what it wrote on stderr.
        stderr: String,
    },
    /// Two lookups disagree.
    #[error(
        "{structure} answers {got} for {address} in table {table}, the oracle {expected} ({differing} of {checked} differ)"
    )]
    Mismatch {
        /// Whose answer.
        structure: String,
        /// In which table.
        table: String,
        /// The first address that differs.
        address: String,
        /// The answer; 0 = none.
        got: u32,
        /// The oracle's.
        expected: u32,
        /// How many addresses differ.
        differing: u64,
        /// How many were compared.
        checked: u64,
    },
    /// The sum of a round's answers is not that of the answers that were compared.
    #[error("{structure}: the answers of {what} in table {table} sum to {got}, expected {expected}")]
    Sum {
        /// Whose answers.
        structure: String,
        /// In which table.
        table: String,
        /// Which traffic, and how it was looked up.
        what: String,
        /// Their sum.
        got: u64,
        /// The sum of the right ones.
        expected: u64,
    },
    /// A structure did not take a change.
    #[error("{structure} refuses {count} changes that it should take")]
    Refused {
        /// Which.
        structure: String,
        /// How many.
        count: usize,
    },
    /// A number outside what an experiment can do.
    #[error("{value} {what}: expected {least} to {most}")]
    Size {
        /// Of what.
        what: &'static str,
        /// The number given.
        value: usize,
        /// Smallest.
        least: usize,
        /// Largest.
        most: usize,
    },
    /// The kernel's threads had other work.
    #[error(
        "cannot measure freeing: the kernel's threads were not quiet in {0} tries; try again on a quieter machine"
    )]
    Busy(usize),
    /// The reference and the sweep that the sums come from disagree: a defect of the lab.
    #[error("the lab's two ways to find the right answers disagree in table {0}")]
    References(String),
    /// The product's tracer failed.
    #[error("{0}")]
    Trace(trieline_trace::Error),
    /// Hooks did not see what was sent: what they cost would be a wrong figure.
    #[error("{hooks}: of {sent} messages {seen}: every one was expected")]
    Unseen {
        /// Which.
        hooks: String,
        /// Messages.
        sent: u64,
        /// The messages that the hooks noted.
        seen: String,
    },
    /// There is one processor only.
    #[error("this experiment needs two processors: sender and receiver on one, the broker on the other")]
    OneProcessor,
    /// A message did not come back.
    #[error("message {id} over {transport} did not come back from the broker within a second{reading}")]
    Gone {
        /// Which.
        id: u64,
        /// By which way.
        transport: &'static str,
        /// The broker's message, if it has ended.
        reading: String,
    },
    /// The kernel's text is not of the form that it is read by.
    #[error("{path} does not say {expected}")]
    Unread {
        /// Where it stands.
        path: String,
        /// The pattern that is missing.
        expected: &'static str,
    },
    /// A table file could not be used.
    #[error("{0}")]
    Import(trieline_lpm::io::ImportError),
    /// A table file or data directory holds nothing to use.
    #[error("{}: {why}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// A program of the product is not where this one is.
    #[error("cannot find {}: install it in this program's directory", .0.display())]
    NoProduct(PathBuf),
    /// The product's table did not take the prefixes.
    #[error("cannot build the image: {0}")]
    Image(String),
    /// A picture could not be drawn.
    #[error(transparent)]
    Picture(trieline_plot::Error),
    /// The program's readings of the clock do not lie between its caller's.
    #[error(
        "timing {what}: called at {called}, first packet at {first}, last at {last}, returned at {returned} ns: not in this order"
    )]
    Clock {
        /// The operation that was timed.
        what: String,
        /// The caller's reading before.
        called: u64,
        /// The program's at the first packet.
        first: u64,
        /// The program's at the last.
        last: u64,
        /// The caller's after.
        returned: u64,
    },
    /// Nothing to send to: every address drawn from the table lies in a network that this topology or the standards use.
    #[error("the table has no {0} prefix that traffic can be sent to")]
    NoDestinations(&'static str),
}

/// Result of the lab.
pub type Result<T> = std::result::Result<T, Error>;

impl From<trieline_plot::Error> for Error {
    fn from(error: trieline_plot::Error) -> Error {
        Error::Picture(error)
    }
}

impl From<trieline_trace::Error> for Error {
    fn from(error: trieline_trace::Error) -> Error {
        Error::Trace(error)
    }
}

/// Adds what was being done to a system error.
pub(crate) trait During<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::Io { what: what(), cause })
    }
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| Error::Io { what: what(), cause: errno.into() })
    }
}

impl<T> During<T> for std::result::Result<T, libbpf_rs::Error> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::Bpf { what: what(), cause })
    }
}
