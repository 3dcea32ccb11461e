//! Copies of the last good file of each filter, which outlive maps and reboots. They are for a start that finds the file bad and no set
//! in force.

use super::rule::FilterRule;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The folder where systemd does not name one (`StateDirectory=`).
const FOLDER: &str = "/var/lib/trieline";

/// The copy of a file of this path; its name is the path, `/` and `%` as in URLs.
fn place(file: &Path) -> PathBuf {
    let folder = std::env::var_os("STATE_DIRECTORY").map_or_else(|| FOLDER.into(), PathBuf::from);
    let file = std::path::absolute(file).unwrap_or_else(|_| file.into());
    let name = file.to_string_lossy().replace('%', "%25").replace('/', "%2F");
    folder.join("filters").join(name)
}

/// Keeps a copy of a filter's file, which has just been read without an error.
pub fn keep(rule: &FilterRule) {
    let Some(file) = &rule.file else { return };
    if let Err(error) = copy(file, &place(file)) {
        tracing::warn!(
            filter = rule.name,
            "cannot keep a copy of {}: {error}; if the file is bad at a start without a set in force, trielined refuses",
            file.display()
        );
    }
}

fn copy(file: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut copy = tempfile::NamedTempFile::new_in(folder)?;
        io::copy(&mut fs::File::open(file)?, &mut copy)?;
        copy.persist(to)?;
    }
    Ok(())
}

/// The same filter with the copy of its file, if there is one.
pub fn of(rule: &FilterRule) -> Option<FilterRule> {
    let file = place(rule.file.as_ref()?);
    file.exists().then(|| FilterRule { file: Some(file), ..rule.clone() })
}
