//! Other programs, which may hang: each has so much time.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Between two looks whether a program has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// A program's end.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub errors: String,
}

impl Ended {
    /// The first line of what it says about a failure.
    pub fn cause(&self) -> &str {
        self.errors.lines().chain(self.out.lines()).next().unwrap_or("failed without a message")
    }
}

/// Runs a program without input. After `patience` it is ended, which is an error.
pub fn run_within(program: &str, arguments: &[&str], patience: Duration) -> Result<Ended, String> {
    let name =
        std::path::Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy());
    let line = format!("{name} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run `{line}`: {error}"))?;
    let read = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Bytes that were read before an error count, too.
            let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|stream| Box::new(stream) as _));
    let errors = read(child.stderr.take().map(|stream| Box::new(stream) as _));
    let end = Instant::now() + patience;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(PAUSE),
            _ => break None,
        }
    };
    let Some(status) = status else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("`{line}` took longer than {} s", patience.as_secs_f32()));
    };
    Ok(Ended { status, out: out.join().unwrap_or_default(), errors: errors.join().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended() {
        let begun = Instant::now();
        let error = run_within("sleep", &["60"], Duration::from_millis(200)).unwrap_err();
        assert!(
            begun.elapsed() < Duration::from_secs(30) && error == "`sleep 60` took longer than 0.2 s",
            "{error}"
        );
        let ended =
            run_within("sh", &["-c", "echo out; echo why >&2; exit 3"], Duration::from_secs(60)).unwrap();
        assert_eq!((ended.status.code(), &ended.out[..], ended.cause()), (Some(3), "out\n", "why"));
    }
}
