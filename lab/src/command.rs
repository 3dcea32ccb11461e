//! Runs the system's commands (`ip`, `ethtool`) and turns their failures into errors that say what was run.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use crate::{
    Context,
    error::{During, Error, Result},
};

/// A command in a process group of its own: Ctrl-C is for us, who may need it for cleaning up just then.
fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).process_group(0);
    command
}

/// Runs a command to its end; its stdout.
pub fn run(program: &str, args: &[&str]) -> Result<String> {
    let output = command(program, args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| cannot_start(program, args, error))?;
    finish(program, args, output)
}

/// Runs `ip`.
pub fn ip(args: &[&str]) -> Result<String> {
    run("ip", args)
}

/// Runs `ip -batch -`, writing `lines` to it while telling the caller how many are through.
pub fn ip_batch(args: &[&str], lines: impl Iterator<Item = String>, context: &Context) -> Result<()> {
    let mut all = args.to_vec();
    all.extend(["-batch", "-"]);
    let mut child = command("ip", &all)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_start("ip", &all, error))?;
    let mut written = Ok(());
    if let Some(stdin) = child.stdin.take() {
        // A small buffer: the pipe's 64 KiB are all that the count runs ahead of the kernel.
        let mut stdin = io::BufWriter::with_capacity(8 << 10, stdin);
        for (n, line) in lines.enumerate() {
            written = writeln!(stdin, "{line}");
            if written.is_err() || (n % 1024 == 0 && context.interrupted()) {
                break;
            }
            if n % 1024 == 1023 {
                context.progress.advance(1024);
            }
        }
        if written.is_ok() {
            written = stdin.flush();
        }
    }
    let output = child.wait_with_output().during(|| "cannot wait for ip -batch".into())?;
    context.check()?;
    finish("ip", &all, output)?;
    written.during(|| "cannot write to ip -batch".into())
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
