//! Faults at a restart: calls of bpf(2) that fail for want of memory, and devices that refuse the new program.

use crate::restart::DEVICES;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::run;
use trieline_testbed::daemon::{Daemon, Leftovers};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{eventually, needs_root};

/// A daemon under strace, killed when dropped.
struct Traced {
    strace: std::process::Child,
    daemon: Option<u64>,
}

impl Drop for Traced {
    fn drop(&mut self) {
        match self.daemon {
            Some(daemon) => drop(run(&format!("kill -KILL {daemon}"))),
            None => drop(self.strace.kill()),
        }
        let _ = self.strace.wait();
    }
}

/// Starts a daemon whose `nth` call of bpf(2) fails for want of memory, and waits until it forwards or ends. Returns it, and its calls.
fn start_short_of_memory(bed: &Bed, args: &str, nth: usize, log: &Path) -> (Traced, Vec<String>) {
    let fault = format!("inject=bpf:error=ENOMEM:when={nth}");
    let file = log.with_file_name("calls");
    let strace = Command::new("strace")
        .args(["-f", "-e", "trace=bpf", "-e", &fault, "-o"])
        .arg(&file)
        .arg(trieline_testbed::command::binary("trielined"))
        .args(["-n", bed.node.name()])
        .args(args.split_whitespace())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(log).expect("a log"))
        .spawn()
        .expect("strace starts");
    let mut traced = Traced { strace, daemon: None };
    let text = || std::fs::read_to_string(log).unwrap_or_default();
    let ended = |traced: &mut Traced| !matches!(traced.strace.try_wait(), Ok(None));
    let is_over = eventually(20.0, || text().contains("ready_ms=") || ended(&mut traced));
    assert!(is_over, "call {nth}: {}", text());
    traced.daemon = trieline_testbed::daemon::status(&bed.node)["pid"].as_u64();
    // strace counts from 1, the calls of each thread apart: those of the first one are meant.
    let calls = std::fs::read_to_string(file).expect("strace's file");
    let main = calls.split_whitespace().next().expect("a call").to_owned();
    (traced, calls.lines().filter(|line| line.starts_with(&main)).map(str::to_owned).collect())
}

/// A text that the calls in question contain, and a choice from their number.
type Fault = (&'static str, fn(usize) -> usize);

/// Starts a daemon with one failing call of bpf(2), for want of memory: `which` chooses it from the number of calls with `what` in them.
/// Each try follows a daemon with the arguments `before`. Where the machine is busy a start makes other calls (libbpf repeats loads). So
/// there may be several tries until the fault is that of the call which is meant.
fn start_with_fault(bed: &Bed, (before, args): (&str, &str), (what, which): Fault, log: &Path) -> Traced {
    let mut nth = 50_000;
    for _ in 0..50 {
        Daemon::start(&bed.node, before).kill();
        let (traced, calls) = start_short_of_memory(bed, args, nth, log);
        if calls.iter().any(|line| line.contains("(INJECTED)") && line.contains(what)) {
            assert!(traced.daemon.is_some(), "{what}: it ended: {}", std::fs::read_to_string(log).unwrap());
            return traced;
        }
        let places: Vec<_> =
            calls.iter().enumerate().filter(|(_, line)| line.contains(what)).map(|(n, _)| n + 1).collect();
        if let Some(place) = places.get(which(places.len())) {
            nth = *place;
        }
    }
    panic!("fifty starts, and none whose fault was at {what}");
}

/// A device whose driver refuses the program of the new daemon goes on with the previous one, is named, and is tried again.
#[test]
fn a_device_that_refuses_the_new_program_keeps_its_own() {
    needs_root!();
    let bed = Bed::routed();
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let _leftovers = Leftovers(&bed.node);
    let _traced = start_with_fault(&bed, (DEVICES, DEVICES), ("BPF_LINK_UPDATE,", |_| 1), &log);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(text().contains("device refuses the new program"), "{}", text());
    bed.becomes("beside it", "10.50.0.1:9", (0, 5, 0));
    let problems = || trieline_testbed::daemon::status(&bed.node)["problems"].to_string();
    assert!(eventually(5.0, || problems() == "[]"), "{}", problems());
}

/// New tables (of another size) fail at any call for want of memory. The daemon follows the kernel all the same, by these or by those of
/// before, and says so. Not one packet is lost.
#[test]
fn without_memory_for_new_tables_the_old_ones_stay() {
    needs_root!();
    let bed = Bed::routed();
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    let address: SocketAddr = "10.50.0.1:7000".parse().unwrap();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let sink = UdpSink::open(&bed.sink, address);
    let (old, new) = (format!("{DEVICES} --image 16M"), format!("{DEVICES} --image 32M"));
    Daemon::start(&bed.node, &old).kill();
    let _leftovers = Leftovers(&bed.node);
    let stream = UdpStream::start(&bed.generator, address, 1000);
    let faults: [Fault; 5] = [
        ("map_name=\"groups\"", |_| 0),
        ("map_name=\"devices\"", |_| 0),
        ("prog_name=\"trieline\"", |_| 0),
        ("BPF_OBJ_PIN,", |count| count / 2),
        ("BPF_LINK_UPDATE,", |count| count - 1),
    ];
    let mut kept = 0;
    for (round, fault) in faults.into_iter().enumerate() {
        let traced = start_with_fault(&bed, (&old, &new), fault, &log);
        let what = fault.0;
        let reported = trieline_testbed::daemon::status(&bed.node);
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let is_old = reported["image"]["bytes"] == 16 << 20;
        assert_eq!(text.contains("goes on with the tables in force"), is_old, "{what}: {text}");
        // A device that refused the program is tried again each second.
        let problems = || trieline_testbed::daemon::status(&bed.node)["problems"].as_array().map(Vec::len);
        assert!(eventually(5.0, || problems() == Some(usize::from(is_old))), "{what}: {reported:#}");
        kept += u32::from(is_old);
        bed.node.ip(&format!("route replace 10.60.0.0/16 via 10.{}.0.2", 1 + round % 2));
        let expected = if round % 2 == 0 { (0, 5, 0) } else { (0, 0, 5) };
        let there = || bed.send("10.60.0.1:9", "follows", 5).counts() == expected;
        assert!(eventually(5.0, there), "{what}: {text}");
        drop(traced);
    }
    assert!(kept >= 1, "none of the faults hit the new tables");
    let sent = stream.stop();
    assert_eq!(sink.close(), sent, "packets lost");
}
