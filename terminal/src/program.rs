//! `trieline trace …` runs the program `trieline-trace`, as git runs its commands.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Replaces this process by the program `name`: the one in this program's folder, else the first one in PATH.
///
/// Returns only if that fails.
pub fn run_program(name: &str, arguments: impl IntoIterator<Item = OsString>) -> anyhow::Error {
    let beside = env::current_exe().ok().and_then(|me| me.parent().map(|folder| folder.join(name)));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(name));
    let error = Command::new(&program).args(arguments).exec();
    let hint = match error.kind() {
        ErrorKind::NotFound => {
            "; it is a package of its own: expected it in the folder of trieline or in PATH"
        }
        _ => "",
    };
    anyhow::anyhow!("cannot run {}: {error}{hint}", program.display())
}
