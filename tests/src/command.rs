//! Running programs and keeping everything they said, so that a failing test shows it.

use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
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
