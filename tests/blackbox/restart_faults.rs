//! Faults at a restart: calls of bpf(2) that fail for want of memory, and devices that refuse the new program.

use crate::restart::DEVICES;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use trieline_tests::bed::Bed;
use trieline_tests::command::run;
use trieline_tests::daemon::{Daemon, Leftovers};
use trieline_tests::packets::{UdpSink, UdpStream};
use trieline_tests::{eventually, root};

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

/// Starts a daemon whose n-th call of bpf(2) fails for want of memory, and waits until it forwards. The file `calls` beside `log` has them.
fn start_short_of_memory(bed: &Bed, args: &str, nth: usize, log: &Path) -> Traced {
    let fault = format!("inject=bpf:error=ENOMEM:when={nth}");
    let strace = Command::new("strace")
        .args(["-f", "-e", "trace=bpf", "-e", &fault, "-o"])
        .arg(log.with_file_name("calls"))
        .arg(trieline_tests::command::binary("trielined"))
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
    // A probe of libbpf's that fails tells it that the kernel lacks a feature: this is not a want of memory. The next call, then.
    let calls = std::fs::read_to_string(log.with_file_name("calls")).unwrap_or_default();
    let is_probe = |line: &str| line.contains("(INJECTED)") && line.contains("\"libbpf_");
    if calls.lines().any(is_probe) {
        let _ = traced.strace.wait();
        return start_short_of_memory(bed, args, nth + 1, log);
    }
    let reported = trieline_tests::daemon::status(&bed.node);
    traced.daemon = reported["pid"].as_u64();
    assert!(traced.daemon.is_some(), "call {nth}: it ended: {}", text());
    traced
}

/// A device whose driver refuses the program of the new daemon goes on with the one of before, is named, and is tried again.
#[test]
fn a_device_that_refuses_the_new_program_keeps_its_own() {
    if !root() {
        return;
    }
    let bed = Bed::routed();
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    Daemon::start(&bed.node, DEVICES).kill();
    let _leftovers = Leftovers(&bed.node);
    drop(start_short_of_memory(&bed, DEVICES, 50_000, &log));
    let calls = std::fs::read_to_string(log.with_file_name("calls")).expect("strace's file");
    let main = calls.split_whitespace().next().expect("a call").to_owned();
    let calls = calls.lines().filter(|line| line.starts_with(&main));
    let updates = calls.enumerate().filter(|(_, line)| line.contains("bpf(BPF_LINK_UPDATE,"));
    let nth = updates.map(|(n, _)| n + 1).nth(1).expect("devices get the new program");
    let _traced = start_short_of_memory(&bed, DEVICES, nth, &log);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(text().contains("the device refuses the new program"), "{}", text());
    bed.becomes("beside it", "10.50.0.1:9", (0, 5, 0));
    let problems = || trieline_tests::daemon::status(&bed.node)["problems"].to_string();
    assert!(eventually(5.0, || problems() == "[]"), "{}", problems());
}

/// New tables (of another size) fail at any call for want of memory: the daemon follows the kernel all the same, by these or by those of
/// before, and says so. Not one packet is lost.
#[test]
fn without_memory_for_new_tables_the_old_ones_stay() {
    if !root() {
        return;
    }
    let bed = Bed::routed();
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    let address: SocketAddr = "10.50.0.1:7000".parse().unwrap();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let sink = UdpSink::open(&bed.sink, address);
    Daemon::start(&bed.node, &format!("{DEVICES} --image 16M")).kill();
    let _leftovers = Leftovers(&bed.node);
    let stream = UdpStream::start(&bed.generator, address, 1000);
    // Which calls there are: a start without a fault.
    drop(start_short_of_memory(&bed, &format!("{DEVICES} --image 32M"), 50_000, &log));
    let calls = std::fs::read_to_string(log.with_file_name("calls")).expect("strace's file");
    let main = calls.split_whitespace().next().expect("a call").to_owned();
    let calls: Vec<&str> = calls.lines().filter(|line| line.starts_with(&main)).collect();
    // strace counts from 1, the calls of each thread apart.
    let nths = |command: &str| {
        let is = |line: &&str| line.contains(&format!("bpf({command},"));
        calls.iter().enumerate().filter(|(_, line)| is(line)).map(|(n, _)| n + 1).collect::<Vec<_>>()
    };
    let [maps, programs, pins_made, links] =
        ["BPF_MAP_CREATE", "BPF_PROG_LOAD", "BPF_OBJ_PIN", "BPF_LINK_UPDATE"].map(nths);
    // libbpf's own probes of the kernel come first.
    let of = |calls: &[usize], share: usize| calls[(calls.len() - 1) * share / 8];
    let faults = [of(&maps, 5), of(&maps, 8), of(&programs, 8), of(&pins_made, 4), of(&links, 8)];
    Daemon::start(&bed.node, &format!("{DEVICES} --image 16M")).kill();
    let mut kept = 0;
    for (round, nth) in faults.iter().copied().enumerate() {
        let traced = start_short_of_memory(&bed, &format!("{DEVICES} --image 32M"), nth, &log);
        let reported = trieline_tests::daemon::status(&bed.node);
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let is_old = reported["image"]["bytes"] == 16 << 20;
        assert_eq!(text.contains("goes on with the tables in force"), is_old, "call {nth}: {text}");
        assert_eq!(
            reported["problems"].as_array().map(Vec::len),
            Some(usize::from(is_old)),
            "call {nth}: {reported:#}"
        );
        kept += u32::from(is_old);
        bed.node.ip(&format!("route replace 10.60.0.0/16 via 10.{}.0.2", 1 + round % 2));
        let expected = if round % 2 == 0 { (0, 5, 0) } else { (0, 0, 5) };
        let there = || bed.send("10.60.0.1:9", "follows", 5).counts() == expected;
        assert!(eventually(5.0, there), "call {nth}: {text}");
        drop(traced);
        if !is_old {
            Daemon::start(&bed.node, &format!("{DEVICES} --image 16M")).kill();
        }
    }
    assert!(kept >= 1, "none of {faults:?} hit the new tables");
    let sent = stream.stop();
    assert_eq!(sink.close(), sent, "packets lost");
}
