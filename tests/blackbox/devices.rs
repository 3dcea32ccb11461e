//! Devices that go, come back, are renamed or refuse; and more connections than the daemon takes.

use std::os::unix::net::UnixStream;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::run;
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::{eventually, needs_root};

fn has_program(bed: &Bed, device: &str) -> bool {
    bed.node.ip(&format!("link show dev {device}")).contains("xdp")
}

/// Deleted and made again under the same number while the daemon does not look: attached again.
#[test]
fn a_device_made_anew_under_its_number() {
    needs_root!();
    let bed = Bed::new();
    let daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2");
    let number = bed.node.ip("-o link show n2").split(':').next().unwrap_or_default().to_owned();
    run(&format!("kill -STOP {}", daemon.pid())).ok();
    bed.node.ip("link del n2");
    bed.node.ip(&format!("link add n2 index {number} type veth peer name t0 netns {}", bed.side.name()));
    run(&format!("kill -CONT {}", daemon.pid())).ok();
    assert!(eventually(5.0, || has_program(&bed, "n2")), "not attached again:\n{}", daemon.log());
}

/// A device that is missing at the start keeps nothing else from being forwarded; it is named, and taken when it comes.
#[test]
fn a_missing_device_is_waited_for() {
    needs_root!();
    let bed = Bed::routed();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let write =
        |devices: &str| std::fs::write(file.path(), format!("devices = [{devices}]\n")).expect("written");
    write(r#""n0", "n1", "late0""#);
    let daemon = Daemon::start(&bed.node, &format!("--config {}", file.path().display()));
    bed.becomes("the others forward", "10.50.0.1:9", (0, 5, 0));
    assert!(daemon.log().contains("no such device") && daemon.log().contains("late0"), "{}", daemon.log());
    let missing = || status(&bed.node)["missing"].clone();
    assert_eq!(missing(), serde_json::json!(["late0"]));
    let text = trieline(&bed.node, "node status").ok();
    assert!(text.contains("dev late0 missing: no such device"), "{text}");
    // A reload goes on waiting for it, and refuses a name that is new and nobody's.
    let reload = |devices: &str, expected_text: &str| {
        write(devices);
        run(&format!("kill -HUP {}", daemon.pid())).ok();
        assert!(
            eventually(5.0, || daemon.log().contains(expected_text)),
            "no {expected_text:?}:\n{}",
            daemon.log()
        );
    };
    reload(r#""n0", "n1", "n2", "late0""#, "n0 n1 n2 late0");
    reload(r#""n0", "n1", "n2", "late0", "typo0""#, "typo0: no such device");
    assert_eq!(missing(), serde_json::json!(["late0"]));
    bed.node.ip("link add late0 type veth peer name late0x");
    assert!(eventually(5.0, || has_program(&bed, "late0")), "not attached:\n{}", daemon.log());
    assert_eq!(missing(), serde_json::json!([]));
    bed.node.ip("link del late0");
    assert!(eventually(5.0, || missing() == serde_json::json!(["late0"])), "{}", missing());
}

/// Ways that came and went with a device are not counted for ever.
#[test]
fn ways_of_a_device_that_is_gone_are_forgotten() {
    needs_root!();
    let bed = Bed::new();
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1");
    let paths = || status(&bed.node)["nexthop_groups"].as_u64().unwrap_or_default();
    let before = paths();
    for round in 0..4 {
        bed.node.ip("link add again0 type veth peer name again0x");
        bed.node.ip("link set again0 up");
        bed.node.ip("link set again0x up");
        bed.node.ip(&format!("addr add 10.9.{round}.1/24 dev again0"));
        bed.node.ip(&format!("route add 10.8.0.0/16 via 10.9.{round}.2"));
        assert!(eventually(5.0, || paths() > before), "its routes are not followed");
        bed.node.ip("link del again0");
    }
    assert!(eventually(5.0, || paths() <= before), "{} paths, before {before}", paths());
}

/// A device that lost its configured name is left alone.
#[test]
fn a_renamed_device_is_left() {
    needs_root!();
    let bed = Bed::new();
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1");
    bed.node.ip("link set n1 down");
    bed.node.ip("link set n1 name other");
    assert!(eventually(5.0, || !has_program(&bed, "other")), "it still has a program");
    assert!(has_program(&bed, "n0"));
}

/// A reload in which one device refuses attaches to none.
#[test]
fn a_refused_reload_changes_nothing() {
    needs_root!();
    let bed = Bed::new();
    // n2 has a program of somebody else's: that of an instance whose pins were moved away
    let pins = format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode());
    let moved = format!("{pins}-moved");
    Daemon::start(&bed.node, "--dev n2").kill();
    std::fs::rename(&pins, &moved).expect("the pins can be moved");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "devices = [\"n0\"]\n").expect("written");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", file.path().display()));
    std::fs::write(file.path(), "devices = [\"n0\", \"n1\", \"n2\"]\n").expect("written");
    run(&format!("kill -HUP {}", daemon.pid())).ok();
    let printed = eventually(5.0, || daemon.log().contains("not reloaded"));
    let attached = has_program(&bed, "n1");
    for entry in std::fs::read_dir(&moved).expect("the moved pins").flatten() {
        std::fs::remove_file(entry.path()).expect("unpinned");
    }
    std::fs::remove_dir(&moved).expect("an empty directory");
    assert!(printed, "the log does not have the refusal:\n{}", daemon.log());
    assert!(!attached, "n1 was attached by a reload that failed");
}

/// Connections that ask nothing, more than the daemon takes: it does not spin, and answers when they are gone.
#[test]
fn idle_connections_cost_nothing() {
    needs_root!();
    let bed = Bed::new();
    let daemon = Daemon::start(&bed.node, "--dev n0");
    // (1) no descriptors: the daemon may open a few more only
    run(&format!("prlimit --pid {} --nofile=64", daemon.pid())).ok();
    let socket = format!("/run/trieline/netns-{}.sock", bed.node.inode());
    let idle: Vec<_> = (0..100).map(|_| UnixStream::connect(&socket).expect("queued")).collect();
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
    };
    std::thread::sleep(std::time::Duration::from_millis(200));
    let before = ticks();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let used = ticks() - before;
    assert!(used < 50, "{used} of 200 ticks of CPU time");
    // (2) they go: it answers again
    drop(idle);
    assert!(eventually(5.0, || trieline(&bed.node, "node status").code == 0), "no answer");
    assert!(status(&bed.node)["running"].as_bool().unwrap_or_default());
}
