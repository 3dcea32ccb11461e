//! Errors of files of prefixes: each names the file, the place in it, the value found there and the expected text.

#[cfg(feature = "snapshot")]
use super::snapshot::SnapshotError;
use std::path::PathBuf;
use std::string::String;

/// The error of reading a file as prefixes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{}:{line}: {text:?}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The line's text.
        text: String,
        /// The error, and the expected text.
        what: String,
    },
    /// JSON is not what it should be.
    #[error("{}:{line}:{column}: {what}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Its column, from 1.
        column: usize,
        /// The error, and the expected text.
        what: String,
    },
    /// A record of an MRT file is not what it should be.
    #[error("{}: record {record} at byte {at}: {what}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Its record, from 1.
        record: u64,
        /// The offset of its first byte, in the unpacked file.
        at: u64,
        /// The error, and the expected content.
        what: String,
    },
    /// A snapshot cannot be read.
    #[cfg(feature = "snapshot")]
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The file as a whole is not what it should be.
    #[error("{}: {what}", path.display())]
    Whole {
        /// The file.
        path: PathBuf,
        /// The error, and the expected content.
        what: String,
    },
}
