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
use trieline_testbed::{eventually, needs_root, skip};

/// Lines that one kind of event may bring at once, as `cli/src/log/limit.rs` limits them, and those that follow within a minute.
const LINES: usize = 20 + 6;

/// A route that comes and goes, a link that goes down and up, an exit that closes and opens, and a client that reloads again and again.
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
    // (1) 10^4 changes of one route a second, for some seconds
    let mut flap = String::new();
    for _ in 0..2000 {
        let _ = writeln!(flap, "route add 10.70.0.0/16 via 10.1.0.2\nroute del 10.70.0.0/16 via 10.1.0.2");
    }
    let (begun, mut changes) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(3) {
        bed.node.ip_batch(&[], &flap).ok();
        changes += 4000;
    }
    let rate = f64::from(changes) / begun.elapsed().as_secs_f64();
    eprintln!("{rate:.0} changes of a route a second");
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
