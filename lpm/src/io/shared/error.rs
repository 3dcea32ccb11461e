//! Errors of an image that processes share.

use crate::Error;
use std::io;
use std::path::PathBuf;

/// The error of making, opening or reading a shared image.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The system refuses.
    #[error("{}: cannot {action} it: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another process writes the image.
    #[error("{}: another writer has it", path.display())]
    Busy {
        /// The readers' file, which the writer locks.
        path: PathBuf,
    },
    /// All reader slots are in use by readers of the image.
    #[error("{}: all {slots} reader slots are taken", path.display())]
    NoSlot {
        /// The readers' file.
        path: PathBuf,
        /// Slots in all.
        slots: u32,
    },
    /// Not a readers' file, or a damaged one.
    #[error("{}: no file of readers' slots: {what}", path.display())]
    Readers {
        /// The file.
        path: PathBuf,
        /// The defect.
        what: &'static str,
    },
    /// The image has been used with another readers' file, whose readers a writer would not know.
    #[error("{}: it is damaged, or does not belong to {}", path.display(), readers.display())]
    Unpaired {
        /// The image.
        path: PathBuf,
        /// The readers' file.
        readers: PathBuf,
    },
    /// The file holds no sound image, or none can be made as asked.
    #[error("{}: {source}", path.display())]
    Image {
        /// The image.
        path: PathBuf,
        /// The defect.
        source: Error,
    },
}
