//! A tracer never ends what it traces unless it is asked to. However the trace ends, and whatever output fails, the command runs on
//! and the report is printed.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};
use serde_json::Value;
use trieline_testbed::command::{binary_path, run};
use trieline_testbed::{eventually, needs_root};

use super::compiled;

/// A command that a trace has started.
struct Traced {
    trace: Child,
    process: Pid,
    /// The process itself, even if another gets its number later.
    handle: OwnedFd,
}

/// Whatever the test finds, the command ends with it.
impl Drop for Traced {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        let _ = self.trace.kill();
        let _ = self.trace.wait();
    }
}

impl Traced {
    /// A trace of a shell's script, which runs already and has nothing of the trace's standard output.
    fn start(folder: &Path, arguments: &[&str], script: &str) -> Traced {
        let file = folder.join("process");
        let _ = fs::remove_file(&file);
        let script =
            format!("exec >/dev/null 2>&1; echo $$ >{0}.new; mv {0}.new {0}; {script}", file.display());
        let trace = Command::new(binary_path("trieline"))
            .args(["-j", "trace", "--no-cost"])
            .args(arguments)
            .args(["--", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        assert!(eventually(20.0, || file.exists()), "the command has not started");
        let process = Pid::from_raw(fs::read_to_string(file).unwrap().trim().parse().unwrap()).unwrap();
        Traced { trace, process, handle: pidfd_open(process, PidfdFlags::empty()).unwrap() }
    }

    /// The trace's end: its exit code, its report, what it said, and whether the command still runs.
    fn end(mut self) -> (Option<i32>, Value, String, bool) {
        assert!(eventually(20.0, || self.trace.try_wait().unwrap().is_some()), "the trace has not ended");
        let mut report = String::new();
        self.trace.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        let mut printed = String::new();
        self.trace.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
        let code = self.trace.wait().unwrap().code();
        // No signal that does anything.
        let lives = pidfd_send_signal(&self.handle, Signal::CONT).is_ok();
        (code, serde_json::from_str(&report).unwrap_or_default(), printed, lives)
    }
}

const LONG: &str = "exec sleep 100";
/// Each subshell ends at once, and leaves a process to the trace, which ends a moment later.
const ORPHANS: &str = "for n in $(seq 50); do (sleep 0.3 &); done; exec sleep 100";
const STUBBORN: &str = "trap '' TERM; while :; do sleep 0.1; done";

/// Children of a process, and how many of them have ended and were not taken leave of.
fn children(parent: u32) -> (usize, usize) {
    let stat = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("stat")).ok();
    let stats: Vec<String> = fs::read_dir("/proc").unwrap().flatten().filter_map(stat).collect();
    let after_name = stats.iter().filter_map(|stat| stat.rsplit_once(") "));
    let of = |(_, rest): (&str, &str)| {
        let mut words = rest.split(' ').map(str::to_owned);
        Some((words.next()?, words.next()?))
    };
    let own: Vec<_> = after_name.filter_map(of).filter(|(_, of)| *of == parent.to_string()).collect();
    (own.len(), own.iter().filter(|(state, _)| state == "Z").count())
}

#[test]
fn orphans_of_a_command_that_end_are_gone() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let traced = Traced::start(folder.path(), &[], ORPHANS);
    let trace = traced.trace.id();
    assert!(eventually(10.0, || children(trace).0 > 20), "the trace has got no orphans");
    assert!(eventually(10.0, || children(trace) == (1, 0)), "{:?}", children(trace));
}

#[test]
fn a_trace_that_ends_leaves_its_command() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let expected_text = |process: Pid| format!("the command runs on as process {}", process.as_raw_nonzero());

    let traced = Traced::start(folder.path(), &["--duration", "0.2"], LONG);
    let expected = expected_text(traced.process);
    let (code, report, printed, lives) = traced.end();
    assert!(
        code == Some(3) && report["received"] == 0 && printed.contains(&expected) && lives,
        "{code:?} {printed}"
    );

    for signal in [Signal::TERM, Signal::INT] {
        let traced = Traced::start(folder.path(), &[], LONG);
        let expected = expected_text(traced.process);
        kill_process(Pid::from_child(&traced.trace), signal).unwrap();
        let (code, report, printed, lives) = traced.end();
        assert!(code == Some(3) && report["received"] == 0, "{code:?} {report} {printed}");
        assert!(printed.contains(&expected) && lives, "{printed}");
    }

    let traced = Traced::start(folder.path(), &[], LONG);
    kill_process(Pid::from_child(&traced.trace), Signal::KILL).unwrap();
    let (code, _, _, lives) = traced.end();
    assert!(code.is_none() && lives);
}

#[test]
fn end_command_ends_the_command_with_its_trace() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let asked = ["--duration", "0.2", "--end-command"];
    let (code, _, printed, lives) = Traced::start(folder.path(), &asked, LONG).end();
    assert!(code == Some(3) && !lives && printed.contains("the command ended with signal: 15"), "{printed}");
    let (code, report, printed, lives) = Traced::start(folder.path(), &asked, STUBBORN).end();
    assert!(code == Some(3) && !lives && printed.contains("did not end within 2 s of SIGTERM"), "{printed}");
    assert_eq!(report["received"], 0, "{report}");
    run(&format!("{} trace --port 1 --end-command", binary_path("trieline"))).fails(2, &["COMMAND"]);
}

/// Ctrl-C goes to the terminal's whole process group: the command ends by it, and the tracer waits for that.
#[test]
fn the_terminals_interrupt_reaches_both() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let slow = "trap 'sleep 0.3; exit 0' INT; while :; do sleep 0.05; done";
    let traced = Traced::start(folder.path(), &[], slow);
    kill_process_group(Pid::from_child(&traced.trace), Signal::INT).unwrap();
    let (code, report, printed, lives) = traced.end();
    assert!(code == Some(3) && report["received"] == 0 && !lives, "{code:?} {printed}");
    assert!(!printed.contains("runs on"), "{printed}");
}

/// A trace of a broker that is its command, with both ends of the broker's one socket. Passes messages, and goes on to do so after
/// the trace has ended.
fn with_broker(mut trace: Command, messages: usize) -> (Output, bool) {
    let (mut near, far) = UnixStream::pair().unwrap();
    near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut trace =
        trace.stdin(OwnedFd::from(far)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pass = || near.write_all(&[7; 64]).and_then(|()| near.read_exact(&mut [0; 64])).is_ok();
    for _ in 0..messages {
        assert!(pass());
    }
    // The last records take a moment.
    std::thread::sleep(Duration::from_millis(100));
    assert!(trace.try_wait().unwrap().is_none(), "the trace has ended");
    kill_process(Pid::from_child(&trace), Signal::TERM).unwrap();
    assert!(eventually(20.0, || trace.try_wait().unwrap().is_some()));
    let lives = pass();
    drop(near);
    (trace.wait_with_output().unwrap(), lives)
}

fn broker(folder: &Path) -> String {
    format!("exec 3<&0; exec {} recv <&3 >&3 2>/dev/null", compiled(folder).display())
}

/// A folder with a link to a device that is always full, for each kind of output.
#[test]
fn outputs_that_fail_are_closed_and_named() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let kinds = ["csv", "jsonl", "perfetto", "hdr", "svg"];
    let full = |kind: &str| -> PathBuf { folder.path().join(format!("full-{kind}")) };
    let good = folder.path().join("good.csv");
    for kind in kinds {
        symlink("/dev/full", full(kind)).unwrap();
    }
    let mut trace = Command::new(binary_path("trieline"));
    trace.args(["-j", "trace", "--no-cost", "--interval", "0.05"]);
    for kind in kinds {
        trace.arg(format!("--{kind}")).arg(full(kind));
    }
    trace.args(["--", "sh", "-c", &broker(folder.path())]);
    let (output, lives) = with_broker(trace, 500);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{printed}"));
    assert!(output.status.code() == Some(1) && lives && report["matched"] == 500, "{report} {printed}");
    for kind in kinds {
        let named = format!("cannot write {}: No space left on device", full(kind).display());
        assert_eq!(printed.matches(&named).count(), 1, "{kind}: {printed}");
        let notes = report["notes"].as_array().unwrap();
        assert!(notes.iter().any(|note| note.as_str().unwrap().contains(&named)), "{kind}: {report}");
    }

    // The others go on.
    let mut trace = Command::new(binary_path("trieline"));
    trace.args(["-j", "trace", "--no-cost", "--csv"]).arg(&good).arg("--jsonl").arg(full("jsonl"));
    trace.args(["--", "sh", "-c", &broker(folder.path())]);
    let (output, lives) = with_broker(trace, 500);
    assert!(output.status.code() == Some(1) && lives);
    assert_eq!(fs::read_to_string(good).unwrap().lines().count(), 501);
}

/// The hooks' records fill a small disk while the trace runs.
#[test]
fn records_that_cannot_be_written_end_nothing() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mut trace = Command::new("unshare");
    let script = "mount -t tmpfs -o size=16k none \"$1\" && exec \"$2\" -j trace --no-cost --records \"$1/r.jsonl\" -- sh -c \"$3\"";
    trace.args(["--mount", "sh", "-c", script, "sh"]);
    trace.arg(&disk).arg(binary_path("trieline")).arg(broker(folder.path()));
    let (output, lives) = with_broker(trace, 500);
    let printed = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{printed}"));
    assert!(output.status.code() == Some(1) && lives && report["matched"] == 500, "{report} {printed}");
    assert!(printed.contains("r.jsonl: No space left on device"), "{printed}");
}
