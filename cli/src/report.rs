//! `trieline node report`: one file for support, from commands that each may fail. Addresses are masked unless asked otherwise.

mod find;
mod mask;
mod parts;

use crate::client::count;
use clap::Args;
use mask::Mask;
use parts::{Part, Text};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trieline_terminal::Output;

/// The options.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Write to FILE or - [default: trieline-report-TIME.txt]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write IP and MAC addresses as they are
    #[arg(long)]
    no_mask: bool,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Read this file [default: /etc/trieline/trielined.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The answer: what the file has.
#[derive(Debug, Serialize)]
struct Made {
    /// The file; none on standard output.
    file: Option<PathBuf>,
    masked: bool,
    parts: usize,
    /// Titles of the parts that failed.
    failed: Vec<String>,
}

/// Runs the command.
pub fn run(args: &ReportArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let time = parts::time();
    let usual = || PathBuf::from(format!("trieline-report-{}.txt", time.replace([':', '-'], "")));
    let path = args.output.clone().unwrap_or_else(usual);
    let prints = path == Path::new("-");
    // A file that is in the way is found before the work.
    if !prints && let Ok(found) = path.symlink_metadata() {
        if !args.force {
            return Err(exists(&path));
        }
        if !found.is_file() {
            anyhow::bail!("cannot write {}: it is not a regular file; name another one", path.display());
        }
    }
    let all = parts::all(args.config.as_deref());
    let host = rustix::system::uname();
    let mask = (!args.no_mask).then(|| Mask::new(&host.nodename().to_string_lossy()));
    let how = if args.no_mask {
        "addresses as they are"
    } else {
        "IP and MAC addresses, aliases and the host's name masked: the same address has the same mask, and prefixes stay prefixes"
    };
    let mut text = format!("trieline report of {time}; {how}\n");
    for part in &all {
        text += &section(part, mask.as_ref());
    }
    if prints {
        output.text(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    write(&path, args.force, &text)?;
    let failed: Vec<String> =
        all.iter().filter(|part| part.text.is_err()).map(|part| part.title.clone()).collect();
    let made = Made { file: Some(path), masked: mask.is_some(), parts: all.len(), failed };
    if output.json {
        output.document(&made)?;
    } else {
        let file = made.file.as_deref().map(Path::display);
        let failed = match &made.failed[..] {
            [] => String::new(),
            failed => format!("; failed: {}", failed.join(", ")),
        };
        let parts = count(made.parts as u64, "part", "parts");
        output.text(&format!(
            "wrote {}: {parts}{failed}",
            file.into_iter().map(|file| file.to_string()).collect::<String>()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A part with its title, and its text or its error.
fn section(part: &Part, mask: Option<&Mask>) -> String {
    let text = match &part.text {
        Ok(Text::Plain(text)) => text.clone(),
        Ok(Text::Addresses(text)) => mask.map_or_else(|| text.clone(), |mask| mask.text(text)),
        Err(error) => {
            let error = mask.map_or_else(|| error.clone(), |mask| mask.text(error));
            format!("this part failed: {error}")
        }
    };
    format!("\n=== {}\n{}\n", part.title, text.trim_end())
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow::anyhow!("cannot write {}: it exists; name another file, or use --force", path.display())
}

/// Writes a file that only its owner can read, and replaces none unless asked. The old file stays until the new one is whole.
fn write(path: &Path, force: bool, text: &str) -> anyhow::Result<()> {
    use anyhow::Context;
    let cannot = || format!("cannot write {}", path.display());
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let written = if force { path.with_file_name(name) } else { path.to_owned() };
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&written);
    let mut file = match opened {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists(&written)),
        opened => opened.with_context(cannot)?,
    };
    let done = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let done = done.and_then(|()| if force { std::fs::rename(&written, path) } else { Ok(()) });
    if done.is_err() {
        // Half a report is worse than none.
        let _ = std::fs::remove_file(&written);
    }
    done.with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_cannot_be_written_whole_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        write(&path, false, "one").unwrap();
        assert!(write(&path, false, "two").unwrap_err().to_string().contains("exists"));
        write(&path, true, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        // A folder of this name cannot be replaced, and nothing else is left behind.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(write(&path, true, "three").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
