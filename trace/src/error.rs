//! Errors while tracing, each with a way out.

use std::io;
use std::path::PathBuf;

use crate::backend::Refusal;
use crate::record::Transport;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Failure of a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The filter makes no sense.
    #[error("{0}")]
    Argument(String),
    /// The process does not exist.
    #[error("no process {0} (`ps -e` lists them; its number must be that of this PID namespace)")]
    NoProcess(u32),
    /// The process may not use BPF.
    #[error("tracing needs root (or CAP_BPF and CAP_PERFMON): {0}")]
    Permission(io::Error),
    /// Process numbers of this namespace are not those that hooks see.
    #[error(
        "this shell is in a PID namespace of its own (a container): hooks see the host's process numbers; run on the host, or select by --comm or --port"
    )]
    PidNamespace,
    /// A cgroup's directory here does not show how far below the root it is, which hooks need.
    #[error(
        "this shell is in a cgroup namespace of its own (a container): hooks see the host's cgroups; run on the host, or select by --comm or --port"
    )]
    CgroupNamespace,
    /// Stamps are written at the devices of one network namespace.
    #[error(
        "process {0} is in another network namespace: stamps are written where its packets leave; run there (`trieline -n NETNS`, `nsenter -t {0} -n`)"
    )]
    OtherNamespace(u32),
    /// No backend holds.
    #[error("cannot attach any hook: {}", .0.iter().map(|r| format!("{}: {}", r.backend.name(), r.reason)).collect::<Vec<_>>().join("; "))]
    NoHooks(Vec<Refusal>),
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{operation}: {source}")]
    System {
        /// The operation that failed.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The hooks missed some of the tracer's own messages, or noted too many: their cost is not known.
    #[error(
        "cannot calibrate over {transport}: the hooks noted {received} receives and {sent} sends of {moved} messages; expected {expected} of each"
    )]
    Calibration {
        /// Over which transport.
        transport: Transport,
        /// Messages of a sample.
        moved: u64,
        /// Receives that were noted.
        received: u64,
        /// Sends.
        sent: u64,
        /// The number that was expected, of each.
        expected: u64,
    },
    /// The machine was too restless.
    #[error(
        "cannot measure: the processor's speed changed in all but {kept} of {rounds} rounds; try again on a quieter machine"
    )]
    Restless {
        /// Rounds that passed the gate.
        kept: usize,
        /// Rounds made.
        rounds: usize,
    },
}

impl Error {
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { operation, source }
    }

    pub(crate) fn bpf(operation: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
        move |error| Error::System { operation, source: io_error(&error) }
    }
}

/// The system's error inside one of libbpf-rs, which tells its number only in its text.
pub(crate) fn io_error(error: &libbpf_rs::Error) -> io::Error {
    let text = format!("{error:#}");
    let number =
        text.rsplit_once("(os error ").and_then(|(_, number)| number.trim_end_matches(')').parse().ok());
    number.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_error_is_found() {
        let error = libbpf_rs::Error::from_raw_os_error(3);
        assert_eq!(io_error(&error).raw_os_error(), Some(3));
    }
}
