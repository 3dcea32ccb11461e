//! Running programs (`ip`, `ethtool`, our own) and keeping everything they said, so that a failure shows it.

use crate::error::{During, Error, Result};
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program that runs beside a test, and no longer, however the test ends.
#[derive(Debug)]
pub struct Running(pub Child);

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer of a program.
pub struct Answer {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Answer {
    /// Panics unless the program succeeded; returns its standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.code == 0, "{self:?}");
        self.stdout
    }

    /// Panics unless the program failed with `code` and named each of `words` on standard error, without panicking.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert!(self.code == code, "expected exit code {code}: {self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        let stderr = self.stderr.to_lowercase();
        for word in words {
            assert!(stderr.contains(&word.to_lowercase()), "expected `{word}` in the message: {self:?}");
        }
    }

    /// Standard output as JSON; panics unless the program succeeded and printed JSON.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        assert!(self.code == 0, "{self:?}");
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("no JSON ({error}): {self:?}"),
        }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |text: &str| text.chars().take(4000).collect::<String>();
        write!(f, "`{}` exit code {}", self.command, self.code)?;
        write!(f, "\n--- stdout\n{}\n--- stderr\n{}", short(&self.stdout), short(&self.stderr))
    }
}

/// A command in a process group of its own: Ctrl-C is for us, who may need it for cleaning up just then.
fn apart(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).process_group(0);
    command
}

/// Runs a command to its end; its stdout. Ctrl-C does not reach it.
pub fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = apart(program, args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| cannot_start(program, args, error))?;
    finish(program, args, output)
}

/// Likewise for `ip`.
pub fn ip(args: &[&str]) -> Result<String> {
    output("ip", args)
}

/// Runs `ip ARGS -batch -` and writes `lines` to it. `written` gets the number of lines so far every 1024 of them, and says whether to go
/// on; if not, the rest is left out.
pub fn ip_batch(
    args: &[&str],
    lines: impl Iterator<Item = String>,
    mut written: impl FnMut(u64) -> bool,
) -> Result<()> {
    let args = [args, &["-batch", "-"]].concat();
    let mut child = apart("ip", &args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_start("ip", &args, error))?;
    let mut done = Ok(());
    if let Some(stdin) = child.stdin.take() {
        // A small buffer: the pipe's 64 KiB are all that the count runs ahead of the kernel.
        let mut stdin = io::BufWriter::with_capacity(8 << 10, stdin);
        for (number, line) in (1..).zip(lines) {
            done = writeln!(stdin, "{line}");
            if done.is_err() || (number % 1024 == 0 && !written(number)) {
                break;
            }
        }
        if done.is_ok() {
            done = stdin.flush();
        }
    }
    let output = child.wait_with_output().during(|| "cannot wait for ip -batch".into())?;
    finish("ip", &args, output)?;
    done.during(|| "cannot write to ip -batch".into())
}

fn cannot_start(program: &str, args: &[&str], error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::NoCommand(program.into()),
        _ => Error::Io { what: format!("cannot start `{program} {}`", args.join(" ")), cause: error },
    }
}

fn finish(program: &str, args: &[&str], output: std::process::Output) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        command: format!("{program} {}", args.join(" ")),
        code: output.status.code(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Runs a shell script that must succeed; its standard output.
#[track_caller]
pub fn sh(script: &str) -> String {
    run_with("sh", &["-ec", script], "").ok()
}

/// Runs a program to its end, with `input` on standard input.
#[track_caller]
pub fn run_with(program: &str, args: &[&str], input: &str) -> Answer {
    let command = format!("{program} {}", args.join(" "));
    let child = Command::new(program)
        .args(args)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command}: {error}"));
    let stdin = child.stdin.take();
    let input = input.to_owned();
    // Fed from a thread: a program that answers line by line would otherwise stand still with both pipes full. A program may leave its
    // input unread.
    let feeder = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("{command}: {error}"));
    let _ = feeder.join();
    Answer {
        command,
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs a command line split at blanks.
#[track_caller]
pub fn run(line: &str) -> Answer {
    let words: Vec<&str> = line.split_whitespace().collect();
    run_with(words[0], &words[1..], "")
}

/// Copies a program that is to be run at its new place.
///
/// A process of its own writes the copy. If this one did, a child that another thread starts meanwhile would inherit the open file. The
/// kernel refuses to run a file that is open for writing (ETXTBSY).
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let paths = [from.as_ref(), to.as_ref()].map(|path| path.to_string_lossy().into_owned());
    run_with("cp", &[&paths[0], &paths[1]], "").ok();
}

/// Where `trieline` and `trielined` are: `TRIELINE_BIN_DIR`, else beside the running test, else one folder up.
pub fn binary(name: &str) -> PathBuf {
    let mut places: Vec<PathBuf> =
        std::env::var_os("TRIELINE_BIN_DIR").map(PathBuf::from).into_iter().collect();
    if let Ok(this) = std::env::current_exe() {
        places.extend(this.ancestors().skip(1).take(2).map(PathBuf::from));
    }
    let found = places.iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no {name} in {places:?}: build it first (./dev test does)"))
}

/// The same as text, for command lines.
pub fn binary_path(name: &str) -> String {
    binary(name).to_string_lossy().into_owned()
}
