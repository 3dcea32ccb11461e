//! `trieline-capture`, as Wireshark runs it: real tshark lists the interface, captures by it and ends it.

use std::path::Path;
use std::process::{Command, Stdio};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Answer, Running, binary_path, run_with};
use trieline_testbed::daemon::Daemon;
use trieline_testbed::{eventually, needs_root, skip};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// A folder of extcap programs that has only this one.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let program = Path::new(&binary_path("trieline")).canonicalize().expect("trieline");
    std::os::unix::fs::symlink(program, folder.path().join("trieline-capture")).expect("a link");
    folder
}

fn answer(folder: &Path, words: &[&str]) -> Answer {
    run_with(&folder.join("trieline-capture").display().to_string(), words, "")
}

#[test]
fn tshark_captures_by_the_interface() {
    needs_root!();
    if run_with("tshark", &["--version"], "").code != 0 {
        return skip("tshark is not installed");
    }
    let (bed, folder) = (Bed::routed(), folder());
    let _daemon = Daemon::start(&bed.node, DEVICES);
    // For root, tshark looks into this folder alone: a mount namespace gives it another one.
    let folders = run_with("tshark", &["-G", "folders"], "").ok();
    let theirs = folders.lines().find_map(|line| line.strip_prefix("Extcap path:")).expect("a folder").trim();
    let tshark = |words: &[&str]| {
        let script = "mkdir -p \"$0\" && mount --bind \"$1\" \"$0\" && shift && exec tshark \"$@\"";
        let mut tshark = Command::new("unshare");
        tshark.args(["--mount", "sh", "-ec", script, theirs]).arg(folder.path()).args(words);
        tshark.stdin(Stdio::null());
        tshark
    };
    let listed = tshark(&["-D"]).output().expect("tshark");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("trieline (packets that XDP handles)"), "{listed}");
    // Only packets of one direction, of one device, in the node's namespace: options of the dialogue.
    let file = folder.path().join("captured.pcapng");
    let netns = format!("extcap.trieline.netns:{}", bed.node.name());
    let words = [
        "-i",
        "trieline",
        "-o",
        &netns,
        "-o",
        "extcap.trieline.dev:n0",
        "-o",
        "extcap.trieline.direction:in",
    ];
    let mut words = words.to_vec();
    let path = file.display().to_string();
    words.extend(["-a", "packets:6", "-a", "duration:30", "-w", &path]);
    let mut capturing =
        Running(tshark(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("tshark starts"));
    let ended = || {
        bed.send("10.50.0.1:9", "seen by Wireshark", 1);
        !matches!(capturing.try_wait(), Ok(None))
    };
    assert!(eventually(30.0, ended), "tshark goes on without packets");
    let mut printed = String::new();
    let stderr = capturing.stderr.as_mut().expect("a pipe");
    std::io::Read::read_to_string(stderr, &mut printed).expect("text");
    let read =
        tshark(&["-r", &path, "-T", "fields", "-e", "frame.comment", "-e", "ip.dst", "-e", "data.text"]);
    let read = {
        let mut read = read;
        read.output().expect("tshark")
    };
    let read = String::from_utf8_lossy(&read.stdout).into_owned();
    // The kernels of the bed may send a packet of their own meanwhile.
    let ours: Vec<_> = read.lines().filter(|line| line.contains("10.50.0.1")).collect();
    assert!(ours.len() >= 3, "{read}{printed}");
    assert!(ours.iter().all(|line| line.contains("forward ipv4")), "{read}");
}

#[test]
fn errors_reach_wireshark() {
    needs_root!();
    let (bed, folder) = (Bed::new(), folder());
    let fifo = folder.path().join("pipe").display().to_string();
    let netns = bed.node.name();
    // Without tables, there are no packets to capture.
    let refused = answer(
        folder.path(),
        &["--capture", "--extcap-interface", "trieline", "--fifo", &fifo, "--netns", netns],
    );
    assert!(refused.code == 1 && refused.stderr.contains("cannot capture"), "{refused:?}");
    let refused = answer(folder.path(), &["--capture", "--extcap-interface", "trieline"]);
    assert!(refused.code == 2 && refused.stderr.contains("expected --fifo FILE"), "{refused:?}");
    let refused = answer(
        folder.path(),
        &["--capture", "--extcap-interface", "trieline", "--fifo", &fifo, "--extcap-capture-filter", "udp"],
    );
    assert!(refused.code == 2 && refused.stderr.contains("expected a display filter"), "{refused:?}");
    // An empty field of the dialogue is an option that is not given.
    let config = answer(folder.path(), &["--extcap-interface", "trieline", "--extcap-config", "--dev", ""]);
    assert!(config.code == 0 && config.stdout.contains("{call=--snap}"), "{config:?}");
    assert!(!Path::new(&fifo).exists());
}
