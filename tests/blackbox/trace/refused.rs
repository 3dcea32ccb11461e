//! Messages that cannot be traced, or not wholly: named and counted, never a silent zero.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use trieline_testbed::command::{Answer, Running, binary, binary_path, copy_program, run, run_with};
use trieline_testbed::{eventually, linux, needs_root, skip};

use super::{broker, relay};

/// A trace that says that it has begun: by the first of its views.
pub(super) fn start(arguments: &[&str]) -> Child {
    let mut trace = Command::new(binary_path("trieline"))
        .args(["-j", "trace", "--no-cost", "--live", "--interval", "0.1"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    trace.stderr.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    trace
}

/// Ends a trace as Ctrl-C does; its exit code, its report if there is one, and what it said.
pub(super) fn end(trace: Child) -> (i32, Value, String) {
    let pid = rustix::process::Pid::from_child(&trace);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let output = trace.wait_with_output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"))
}

/// Sends so many messages of 64 bytes through a broker.
fn send(from: &UnixDatagram, to: &UnixDatagram, messages: u64) {
    for _ in 0..messages {
        from.send(&[7; 64]).unwrap();
        assert_eq!(to.recv(&mut [0; 128]).unwrap(), 64);
    }
}

fn datagrams(folder: &Path) -> (Running, UnixDatagram, UnixDatagram) {
    let (from, input) = UnixDatagram::pair().unwrap();
    let (output, to) = UnixDatagram::pair().unwrap();
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (broker(folder, OwnedFd::from(input), OwnedFd::from(output)), from, to)
}

#[test]
fn a_ring_that_overflows_loses_a_number_that_is_known() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (mut broker, from, to) = datagrams(folder.path());
    let process = broker.id().to_string();
    let strict = start(&["-p", &process, "--ring", "16", "--strict"]);
    let lenient = start(&["-p", &process, "--ring", "16"]);
    const MESSAGES: u64 = 20_000;
    send(&from, &to, MESSAGES);

    let (code, report, _) = end(lenient);
    let lost = number(&report, "lost");
    assert!(code == 0 && lost > 0, "{report}");
    // Every event is in a record that was read, or left beside a gap, or lost. A receive that waits already may be seen by no hook.
    let named = ["received", "sent", "discarded", "missed"].map(|name| number(&report, name));
    let events = named.iter().sum::<u64>() + lost;
    assert!((2 * MESSAGES - 1..=2 * MESSAGES).contains(&events), "{report}");
    let (code, report, printed) = end(strict);
    let (lost, missed) = (number(&report, "lost"), number(&report, "missed"));
    let words = format!("{lost} records were lost and {missed} events missed (--strict)");
    assert!(code == 1 && printed.contains(&words), "{code} {printed}");
    broker.kill().unwrap();
    broker.wait().unwrap();
}

#[test]
fn messages_that_end_before_their_id_are_counted() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (mut broker, from, to) = datagrams(folder.path());
    let trace = start(&["-p", &broker.id().to_string(), "--id", "60:8"]);
    send(&from, &to, 100);
    let (code, report, _) = end(trace);
    assert_eq!((code, number(&report, "matched")), (0, 0), "{report}");
    assert!((199..=200).contains(&number(&report, "short")), "{report}");
    broker.kill().unwrap();
    broker.wait().unwrap();
}

#[test]
fn a_process_that_ends_ends_the_trace() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (mut broker, from, to) = relay(folder.path());
    let mut trace = start(&["-p", &broker.id().to_string()]);
    drop((from, to));
    broker.wait().unwrap();
    assert!(eventually(10.0, || trace.try_wait().unwrap().is_some()));
    let (code, report, _) = end(trace);
    assert_eq!(code, 3);
    assert_eq!(report["notes"][0], "the trace ended as all named processes have ended", "{report}");
    let gone = run(&format!("{} trace --no-cost -p {}", binary_path("trieline"), broker.id()));
    gone.fails(1, &[&format!("no process {}", broker.id()), "PID namespace"]);
}

/// Lines on a trace's standard error, as they come.
fn lines(trace: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(trace.stderr.take().unwrap()).lines().map(Result::unwrap)
}

#[test]
fn a_name_without_process_is_waited_for() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let name = format!("tr-{}", std::process::id());
    let program = folder.path().join(&name);
    copy_program("/bin/sleep", &program);
    let mut trace = Command::new(binary_path("trieline"))
        .args(["-j", "trace", "--no-cost", "--comm", &name])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = lines(&mut trace);
    let waits = format!("trieline: no process is called {name}: waiting (Ctrl-C ends the trace)");
    assert!(printed.next().unwrap().starts_with("trieline: tracing by hooks at "));
    assert_eq!(printed.next().unwrap(), waits);
    let mut process = Command::new(program).arg("1000").spawn().unwrap();
    assert_eq!(printed.next().unwrap(), "trieline: a process to trace is there again");
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(printed.next().unwrap(), waits);
    let (code, report, _) = end(trace);
    assert_eq!(code, 3);
    assert_eq!(report["notes"][0], format!("at the end no process is called {name}"), "{report}");
}

/// Only if `trieline-trace` is missing, the error names the package: another cause has its own words.
#[test]
fn the_error_has_the_reason_why_the_tracer_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let [program, tracer] = ["trieline", "trieline-trace"].map(|name| folder.path().join(name));
    copy_program(binary("trieline"), &program);
    let trace = || run_with("env", &["PATH=/usr/bin:/bin", program.to_str().unwrap(), "trace"], "");
    trace().fails(1, &["cannot run trieline-trace", "No such file", "a package of its own"]);
    copy_program(binary("trieline-trace"), &tracer);
    let written = fs::OpenOptions::new().append(true).open(&tracer).unwrap();
    let answer = trace();
    answer.fails(1, &["cannot run", "Text file busy"]);
    assert!(!answer.stderr.contains("package"), "{answer:?}");
    drop(written);
}

#[test]
fn traces_without_rights_are_refused() {
    needs_root!();
    // Where anybody may run it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("trieline");
    for name in ["trieline", "trieline-trace"] {
        copy_program(binary(name), folder.path().join(name));
    }
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    for cost in ["", " --no-cost"] {
        run(&format!("{nobody} {} trace{cost} --comm absent", program.display()))
            .fails(1, &["tracing needs root"]);
    }
    let inside = format!("unshare --pid --fork --mount-proc {} trace --no-cost", program.display());
    for number in ["-p 1", "--comm absent --client 1", "--client 1"] {
        run(&format!("{inside} {number}")).fails(1, &["a PID namespace of its own", "--comm or --port"]);
    }
    run(&format!("unshare --cgroup {} trace --no-cost --cgroup /", program.display()))
        .fails(1, &["a cgroup namespace of its own", "--comm or --port"]);
    let seen = run(&format!("{inside} --comm absent --duration 0.1"));
    assert!(seen.code == 3 && seen.stdout.contains("no message was seen"), "{seen:?}");
}

/// The report of a trace that saw no message.
fn silent(answer: Answer) -> Value {
    assert!(answer.code == 3, "{answer:?}");
    serde_json::from_str(&answer.stdout).unwrap()
}

/// Where lockdown forbids hooks at functions, its mode is named. The file system that tells it need not be mounted, so it is here.
#[test]
fn lockdown_is_named() {
    needs_root!();
    let security = "/sys/kernel/security";
    let inside = |command: &str| {
        let script = format!("mount -t securityfs none {security}; {command}");
        run_with("unshare", &["--mount", "sh", "-c", &script], "")
    };
    let modes = inside(&format!("cat {security}/lockdown")).stdout;
    let Some(mode) = modes.split(['[', ']']).nth(1).filter(|mode| *mode != "none") else {
        return println!("EXPECTED SKIP: this kernel is not locked down");
    };
    let trace = format!("{} -j trace --no-cost --port 1 --duration 0.1", binary_path("trieline"));
    let report = silent(inside(&trace));
    let refusal = &report["refused"][0];
    let reason = format!("the kernel refuses them even to root (EPERM; lockdown is `{mode}`)");
    assert_eq!(
        (&refusal["hooks"], &refusal["reason"]),
        (&"functions".into(), &reason.as_str().into()),
        "{report}"
    );
    inside(&format!("{trace} --hooks functions")).fails(1, &["cannot attach any hook", &reason]);
}

#[test]
fn hooks_that_the_kernel_refuses_are_named_with_the_reason() {
    needs_root!();
    let trace = |arguments: &str| {
        run(&format!(
            "{} -j trace --no-cost --comm absent --duration 0.1 {arguments}",
            binary_path("trieline")
        ))
    };
    let report = silent(trace(""));
    let refused = report["refused"].as_array().unwrap();
    for refusal in refused {
        let (name, reason) = (refusal["hooks"].as_str().unwrap(), refusal["reason"].as_str().unwrap());
        assert!(
            ["the kernel refuses them even to root", "this kernel"]
                .iter()
                .any(|words| reason.contains(words)),
            "{refusal}"
        );
        // Asked for by name it is an error, as there is nothing else to fall back on.
        trace(&format!("--hooks {name}")).fails(1, &["cannot attach any hook", name, reason]);
    }
    if linux() < (6, 3) {
        trace("--hooks sockets").fails(1, &["this kernel has no tracepoints in sockets (Linux 6.3)"]);
    }
    let used = report["hooks"].as_str().unwrap();
    assert_eq!(silent(trace(&format!("--hooks {used}")))["hooks"], used);
}

/// Where the unified hierarchy of cgroups is mounted.
fn cgroups() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("a cgroup2 mount");
    line.split(' ').nth(4).unwrap().into()
}

#[test]
fn a_containers_and_a_units_messages_are_found_by_their_names() {
    needs_root!();
    let id = format!("{:016x}{:048x}", std::process::id(), 0xfeed);
    let names = [format!("docker-{id}.scope"), format!("trieline-test-{}.service", std::process::id())];
    let folder = tempfile::tempdir().unwrap();
    for (name, option, wanted) in
        [(&names[0], "--container", &id[..20]), (&names[1], "--unit", names[1].trim_end_matches(".service"))]
    {
        let group = cgroups().join(name);
        if fs::create_dir(&group).is_err() {
            return skip("no cgroup can be made here");
        }
        let (mut broker, from, to) = datagrams(folder.path());
        fs::write(group.join("cgroup.procs"), broker.id().to_string()).unwrap();
        let mut trace = start(&[option, wanted]);
        let mut printed = lines(&mut trace);
        // The rest of the first view.
        printed.next().unwrap();
        send(&from, &to, 50);
        broker.kill().unwrap();
        broker.wait().unwrap();
        let waits = format!("no process is in the cgroup {}", group.display());
        let mut views = printed.map(|line| serde_json::from_str::<Value>(&line).unwrap());
        assert!(views.by_ref().take(100).any(|view| view["waiting"] == waits));
        // The kernel lets go of the process a moment later.
        assert!(eventually(10.0, || fs::remove_dir(&group).is_ok()));
        let gone = format!("the cgroup {} is gone", group.display());
        assert!(views.by_ref().take(100).any(|view| view["waiting"] == gone));
        // Started again, it is in another cgroup of the same name.
        fs::create_dir(&group).unwrap();
        assert!(views.by_ref().take(100).any(|view| view["waiting"] == waits));
        let (mut broker, from, to) = datagrams(folder.path());
        fs::write(group.join("cgroup.procs"), broker.id().to_string()).unwrap();
        assert!(views.by_ref().take(100).any(|view| view["waiting"].is_null()));
        send(&from, &to, 50);
        drop(views);
        broker.kill().unwrap();
        broker.wait().unwrap();
        let (code, report, _) = end(trace);
        assert!(code == 0 && (98..=100).contains(&number(&report, "matched")), "{report}");
        let notes = report["notes"].to_string();
        assert!(notes.contains("trieline traces its new cgroup"), "{report}");
        assert!(eventually(10.0, || fs::remove_dir(&group).is_ok()));
    }
    let trieline = |arguments: &str| run(&format!("{} trace --no-cost {arguments}", binary_path("trieline")));
    trieline(&format!("--container {id}")).fails(1, &["no container"]);
    trieline("--unit no-such").fails(1, &["no running unit no-such.service"]);
}
