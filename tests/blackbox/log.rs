//! The log: no flap and no client fills it, its last line about a thing is the thing's state, and the journal gets fields.

use serde_json::Value;
use std::fmt::Write;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Running, binary_path, run_with};
use trieline_testbed::daemon::{Daemon, Programs, status, trieline};
use trieline_testbed::random::Random;
use trieline_testbed::socket::RawSocket;
use trieline_testbed::{craft, eventually, needs_root, patience, skip};

/// Lines that one kind of event may bring at once, as `cli/src/log/limit.rs` limits them, and those that follow within a minute.
const LINES: usize = 20 + 6;

/// Changes of a route in one second.
const CHANGES: u32 = 10_000;

/// A route comes and goes, a link goes down and up, an exit closes and opens, and a client reloads again and again.
#[test]
fn flaps_do_not_flood_the_log() {
    needs_root!();
    let bed = Bed::routed();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    std::fs::write(&config, "devices = [\"n0\", \"n1\", \"n2\"]\nreceive_buffer = \"8K\"\n").expect("a file");
    // Also lines for debugging.
    let daemon = Daemon::start(&bed.node, &format!("--verbose --config {}", config.display()));
    let before = daemon.log().lines().count();
    // (1) 10^4 changes of one route a second, for three seconds
    let mut flap = String::new();
    for _ in 0..CHANGES / 2 {
        let _ = writeln!(flap, "route add 10.70.0.0/16 via 10.1.0.2\nroute del 10.70.0.0/16 via 10.1.0.2");
    }
    // A busy machine gets more time; seconds in which fewer changes came do not count.
    let (begun, mut quick, mut fastest) = (Instant::now(), 0, f64::MAX);
    while quick < 3 && begun.elapsed().as_secs_f64() < 30.0 * patience() {
        let batch = Instant::now();
        bed.node.ip_batch(&[], &flap).ok();
        let took = batch.elapsed().as_secs_f64();
        fastest = fastest.min(took);
        quick += u32::from(took <= 1.0);
        std::thread::sleep(Duration::from_secs_f64((1.0 - took).max(0.0)));
    }
    eprintln!("up to {:.0} changes of a route a second", f64::from(CHANGES) / fastest);
    assert_eq!(quick, 3, "fewer than {CHANGES} changes a second: the fastest took {fastest} s");
    assert!(status(&bed.node)["overruns"].as_u64().is_some_and(|count| count > 0));
    // (2) a link
    let link = "link set n2 down\nlink set n2 up\n".repeat(100);
    bed.node.ip_batch(&[], &link).ok();
    // (3) what the daemon logs of a device: it takes frames, and does not
    let flaps = |count| {
        for _ in 0..count {
            for state in ["off", "on"] {
                bed.generator.run(&format!("ethtool -K g0 gro {state}")).ok();
            }
        }
    };
    flaps(100);
    // (4) a client
    for _ in 0..100 {
        trieline(&bed.node, "node reload").ok();
    }
    bed.generator.run("ethtool -K g0 gro off").ok();
    // The last state is logged, and is the last line about the device.
    let closed = "the device takes no redirected frames";
    let last = || {
        let log = daemon.log();
        log.lines().rfind(|line| line.contains("redirected frames") && line.contains("n0")).map(str::to_owned)
    };
    assert!(eventually(30.0, || last().is_some_and(|line| line.contains(closed))), "{:?}", last());
    std::thread::sleep(Duration::from_secs(11));
    assert!(last().is_some_and(|line| line.contains(closed)), "{:?}", last());
    let log = daemon.stop();
    assert!(log.contains("more like this left out"), "{log}");
    for (what, limit) in [("(ENOBUFS)", LINES), ("redirected frames", 2 * LINES), ("reloaded", LINES)] {
        let lines = log.lines().filter(|line| line.contains(what)).count();
        assert!((1..=limit).contains(&lines), "{what}: {lines} lines\n{log}");
    }
    let lines = log.lines().count() - before;
    assert!(lines <= 10 * LINES, "{lines} lines\n{log}");
}

/// Frames of the flood.
const ODD: u64 = 50_000;

/// Packets that are cut, mutated, have options, extension headers or segment lists, or come from where they may not. The program counts
/// them, and the daemon logs none.
#[test]
fn odd_packets_do_not_flood_the_log() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DT6 table main dev n1");
    let daemon = Daemon::start(&bed.node, "--verbose --dev n0 --dev n1 --dev n2");
    let before = daemon.log().lines().count();
    // Frames to the node's own MAC address, as all that it routes.
    let inner = craft::ipv4("10.0.0.2", "10.50.0.1", b"inside", |_| {});
    let packets = [
        inner.clone(),
        craft::ipv4("10.0.0.2", "10.50.0.1", b"last hop", |header| header[8] = 1),
        craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(b"inside")), |_| {}),
        craft::ipv6("fd00::2", "fd00:c::1", (43, &craft::srh(&["fd00:c::1"], 0, (4, &inner))), |_| {}),
        craft::ipv6(
            "fd00::2",
            "fd00:c::1",
            (43, &craft::srh(&["fd50::1", "fd00:c::1"], 7, (4, &inner))),
            |_| {},
        ),
    ];
    let mut random = Random::new(1);
    let socket = RawSocket::sender(&bed.generator, "g0");
    for _ in 0..ODD {
        let packet = random.pick(&packets);
        let ether_type: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0], &ether_type[..], &packet].concat();
        for _ in 0..random.below(4) {
            let at = 12 + random.below(frame.len() - 12);
            frame[at] = random.bits() as u8;
        }
        if random.one_in(8) {
            frame.truncate(14 + random.below(frame.len() - 14));
        }
        socket.send(&frame);
    }
    // All of them came in, and ended in many ways.
    let counts = || {
        let status = status(&bed.node);
        let devices = status["devices"].as_array().expect("devices").clone();
        let n0 = devices.into_iter().find(|device| device["dev"] == "n0").expect("n0");
        n0["counters"].as_array().expect("counters").clone()
    };
    let packets = || counts().iter().filter_map(|counter| counter["packets"].as_u64()).sum::<u64>();
    assert!(eventually(20.0, || packets() >= ODD * 9 / 10), "{} packets: {:#?}", packets(), counts());
    assert!(counts().len() >= 8, "{:#?}", counts());
    let log = daemon.stop();
    let lines = log.lines().count() - before;
    assert!(lines <= LINES, "{lines} lines\n{log}");
}

/// A journal of its own, in a mount namespace of its own: the real journald, which needs no systemd.
struct Journal(Running);

impl Journal {
    fn start() -> Self {
        let script = "mkdir -p /run/systemd /run/log && mount -t tmpfs none /run/systemd && mount -t tmpfs none /run/log && \
                      mkdir -p /run/systemd/journal && exec /lib/systemd/systemd-journald";
        let child = Command::new("unshare").args(["--mount", "sh", "-c", script]).spawn();
        let journal = Self(Running(child.expect("unshare starts")));
        let socket = journal.path("run/systemd/journal/stdout");
        assert!(eventually(10.0, || Path::new(&socket).exists()), "journald makes its sockets");
        journal
    }

    /// A path of the mount namespace.
    fn path(&self, path: &str) -> String {
        format!("/proc/{}/root/{path}", self.0.id())
    }

    /// A script that runs trielined with standard error as a stream to the journal, as systemd does it.
    fn script(&self, folder: &Path) -> PathBuf {
        let script = folder.join("trielined");
        let text = format!(
            "#!/bin/sh\n[ -n \"$IN_JOURNAL\" ] || IN_JOURNAL=1 exec nsenter --mount=/proc/{}/ns/mnt -- systemd-cat \"$0\" \"$@\"\n\
             JOURNAL_STREAM=$(stat -Lc %d:%i /dev/stderr) exec {} \"$@\"\n",
            self.0.id(),
            binary_path("trielined")
        );
        std::fs::write(&script, text).expect("a script");
        std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("a script to run");
        script
    }

    /// The entries of trielined so far.
    fn entries(&self) -> Vec<Value> {
        let logs = self.path("run/log/journal");
        let words = ["--directory", &logs, "--output=json", "--no-pager", "SYSLOG_IDENTIFIER=trielined"];
        let entries = run_with("journalctl", &words, "").ok();
        entries.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// In the journal each value is a field, the message is the whole line without a time, and the level is the priority.
#[test]
fn the_journal_gets_fields() {
    needs_root!();
    if !Path::new("/lib/systemd/systemd-journald").exists() {
        skip("systemd-journald is not installed");
        return;
    }
    let bed = Bed::routed();
    let journal = Journal::start();
    let folder = tempfile::tempdir().expect("a folder");
    let programs = Programs { trielined: journal.script(folder.path()), ..Programs::built() };
    let devices = |command: &mut Command| {
        command.args(["--dev", "n0", "--dev", "n1"]);
    };
    let mut daemon = Daemon::launch(programs, &bed.node, devices).expect("a daemon");
    daemon.ready(Duration::from_secs(60), || true).expect("ready");
    bed.generator.run("ethtool -K g0 gro off").ok();
    let about = |what: &str| {
        journal
            .entries()
            .into_iter()
            .find(|entry| entry["MESSAGE"].as_str().is_some_and(|text| text.contains(what)))
    };
    assert!(eventually(10.0, || about("takes no redirected frames").is_some()), "{:#?}", journal.entries());
    let refused = about("takes no redirected frames").expect("an entry");
    assert_eq!((&refused["TRIELINE_DEV"], &refused["PRIORITY"]), (&"n0".into(), &"4".into()), "{refused:#}");
    let text = refused["MESSAGE"].as_str().unwrap_or_default();
    assert!(text.starts_with("the device takes") && text.ends_with("dev=\"n0\""), "{text}");
    let forwarding = about("forwarding routes=").expect("an entry");
    assert!(forwarding["TRIELINE_ROUTES"].is_string() && forwarding["PRIORITY"] == "6", "{forwarding:#}");
    daemon.stop();
    assert!(about("forwarding stays on").is_some(), "{:#?}", journal.entries());
}
