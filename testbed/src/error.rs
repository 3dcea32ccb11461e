//! Errors of the bed, each with the operation that failed. An error's text holds its cause, so none is named as `source`: callers that
//! print the chain would say it twice.

use std::io;
use std::path::PathBuf;

/// A bed that could not be made, or a program that did not do what it was started for.
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
    /// A program of the product is not where this one is.
    #[error("cannot find {}: install it in this program's directory", .0.display())]
    NoProgram(PathBuf),
    /// A program of the product did not do what it was started for.
    #[error("{what}{}", if stderr.is_empty() { String::new() } else { format!("; its output:\n{stderr}") })]
    Daemon {
        /// The expectation that failed.
        what: String,
        /// The end of what it wrote on stderr.
        stderr: String,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds what was being done to a system error.
pub(crate) trait During<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for std::result::Result<T, E> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::Io { what: what(), cause: cause.into() })
    }
}
