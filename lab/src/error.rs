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
    /// A namespace, a command or the daemon failed.
    #[error(transparent)]
    Testbed(#[from] trieline_testbed::Error),
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
    /// Measuring traffic that cannot be sent.
    #[error("{0}")]
    Traffic(String),
    /// Not allowed.
    #[error("experiments make network namespaces and load BPF programs: run as root")]
    NotRoot,
    /// Of an experiment's cases none was left to measure.
    #[error("no table of this experiment has `{0}` in its name, or none was there to measure")]
    NoCase(String),
    /// The caller's flag was raised (Ctrl-C).
    #[error("interrupted")]
    Interrupted,
    /// A program of the product did not do what it was started for.
    #[error("{what}{}", if stderr.is_empty() { String::new() } else { format!("; its output:\n{stderr}") })]
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
    #[error("this experiment needs two processors")]
    OneProcessor,
    /// Packets did not arrive where and as often as they must.
    #[error("{what}: {got} packets, expected {expected}")]
    Packets {
        /// Which, and where.
        what: String,
        /// How many came.
        got: u64,
        /// How many should have.
        expected: u64,
    },
    /// There is one CPU only, and the experiment was not asked to share it.
    #[error("this experiment needs two CPUs; `--one-cpu` sends and receives on one")]
    OneCpu,
    /// A receiver has no figure.
    #[error("{0}")]
    Receiver(String),
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
    /// The product's table did not take the prefixes.
    #[error("cannot build the image: {0}")]
    Image(String),
    /// A saved document cannot be used.
    #[error("{}: {why}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Other work runs on the machine.
    #[error(
        "cannot measure: other work takes {cpus:.1} of {cores} CPUs; end it, or add --busy (the document then records a busy machine)"
    )]
    BusyMachine {
        /// CPUs that other work takes.
        cpus: f64,
        /// CPUs of the machine.
        cores: usize,
    },
    /// The machine was slow too often.
    #[error(
        "cannot trust the figures: the machine was slow in {slow} of {samples} samples, after {rejected} others were rejected; try again when it is quiet, or add --busy"
    )]
    NoisyMachine {
        /// Slow samples.
        slow: usize,
        /// All samples that were kept.
        samples: usize,
        /// Samples that were taken again.
        rejected: usize,
    },
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

impl Error {
    /// Whether a structure or method under test failed, and not the lab, the product or the caller: a rival then loses its rows only.
    pub fn is_of_a_structure(&self) -> bool {
        matches!(
            self,
            Error::Refused { .. }
                | Error::Mismatch { .. }
                | Error::Sum { .. }
                | Error::Bpf { .. }
                | Error::Unread { .. }
                | Error::Unseen { .. }
        )
    }
}

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
