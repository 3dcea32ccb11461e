//! The texts of errors that several outputs have.

use std::path::Path;

/// The error of a file that cannot be written.
pub fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
