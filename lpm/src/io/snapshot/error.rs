//! The errors of a snapshot's file, and the numbers by which its section is known.

use crate::Error;
use std::path::PathBuf;
use std::string::String;

/// The section's first bytes: "TRIS".
pub const MAGIC: u32 = 0x5349_5254;
/// The section's version.
pub const VERSION: u16 = 1;

/// The error of saving or opening a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The image cannot be made or is none.
    #[error("{}: {source}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// The image's error.
        source: Error,
    },
    /// The section is not what it should be.
    #[error("{}: damaged snapshot: {what} at byte {at}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect.
        what: String,
        /// The offset in the file.
        at: u64,
    },
    /// The section is of another version.
    #[error("{}: snapshot version {found}, this program reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u16,
    },
    /// The file is an image without the prefixes it was made from.
    #[error("{}: an image alone, without the prefixes it was made from; expected a snapshot", path.display())]
    NoPrefixes {
        /// The file.
        path: PathBuf,
    },
    /// The table does not exist.
    #[error("{}: no table {id} with keys of {key_bits} bits", path.display())]
    NoTable {
        /// The file.
        path: PathBuf,
        /// The id asked for.
        id: u32,
        /// Width of the keys asked for.
        key_bits: u16,
    },
}
