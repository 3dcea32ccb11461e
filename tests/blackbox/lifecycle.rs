//! The daemon comes and goes; forwarding stays until `node detach` removes it.

use crate::status;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary, run};
use trieline_testbed::daemon::{Daemon, Leftovers, Programs, trieline};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{eventually, needs_root, patience};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// A bed with a route into the sink, where an address inside it listens.
fn streamed_bed() -> (Bed, SocketAddr) {
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    (bed, "10.50.0.1:7000".parse().expect("an address"))
}

fn rest(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds * patience()));
}

/// kill -9 and restart, several times, under a stream: not one packet is lost.
#[test]
fn kill_and_restart_lose_nothing() {
    needs_root!();
    let (bed, address) = streamed_bed();
    let sink = UdpSink::open(&bed.sink, address);
    let mut daemon = Daemon::start(&bed.node, DEVICES);
    let stream = UdpStream::start(&bed.generator, address, 2000);
    for round in 0..5 {
        rest(0.2);
        // (1) killed: forwarding stays, in XDP
        let before = status::forwarded(&bed.node);
        daemon.kill();
        let went_on = eventually(20.0, || status::forwarded(&bed.node) > before + 50);
        assert!(went_on, "round {round}: nothing is forwarded in XDP while the daemon is dead");
        // (2) a route that changed meanwhile is followed after the restart
        bed.node.ip(&format!("route add 10.60.{round}.0/24 via 10.2.0.2"));
        daemon = Daemon::start(&bed.node, DEVICES);
    }
    rest(0.2);
    let sent = stream.stop();
    let received = sink.close();
    assert!(sent > 500, "only {sent} packets were sent");
    assert_eq!(received, sent, "packets lost");
    assert_eq!(bed.send("10.60.4.1:9", "learnt after restart", 5).counts(), (0, 0, 5));
}

/// Packages have one program. Called `trielined`, by a link or by its caller's word, it is the daemon, and the kernel shows that name.
#[test]
fn the_program_called_trielined_is_the_daemon() {
    needs_root!();
    let bed = Bed::new();
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("trielined");
    std::os::unix::fs::symlink(binary("trieline"), &link).expect("a link");
    for (program, called) in [(link, None), (binary("trieline"), Some("trielined"))] {
        let programs = Programs { trielined: program, ..Programs::built() };
        let daemon = Daemon::launch(programs, &bed.node, |command| {
            command.args(["--dev", "n0"]);
            if let Some(called) = called {
                command.arg0(called);
            }
        })
        .expect("a process");
        let shown = || fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).unwrap_or_default();
        let runs = || trieline(&bed.node, "-j node status").stdout.contains("\"running\":true");
        assert!(eventually(10.0, || shown() == "trielined\n" && runs()), "{}: {}", shown(), daemon.log());
    }
}

/// SIGTERM: no packet lost, forwarding stays, `node detach` ends it, the kernel goes on.
#[test]
fn stopping_leaves_forwarding_on() {
    needs_root!();
    let (bed, address) = streamed_bed();
    let sink = UdpSink::open(&bed.sink, address);
    let daemon = Daemon::start(&bed.node, DEVICES);
    let stream = UdpStream::start(&bed.generator, address, 2000);
    rest(0.2);
    // (1) stopped
    let _leftovers = Leftovers(&bed.node);
    daemon.stop();
    assert_eq!(bed.send("10.50.0.1:9", "unanswered", 5).counts(), (0, 5, 0));
    assert!(bed.node.ip("link show dev n0").contains("xdp"), "the program is gone");
    // (2) route get answers from the image alone
    trieline(&bed.node, "route get 10.50.0.1").ok();
    // (3) detached: the kernel forwards
    trieline(&bed.node, "node detach").ok();
    assert!(!bed.node.ip("link show dev n0").contains("xdp"), "the program is still there");
    assert_eq!(bed.send("10.50.0.1:9", "kernel again", 5).counts(), (5, 5, 0));
    let pins = format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode());
    assert!(!std::path::Path::new(&pins).exists(), "{pins} is left");
    // (4) once more: it is a success to find nothing to do
    trieline(&bed.node, "node detach").ok();
    // (5) nothing was lost on the way
    rest(0.2);
    let sent = stream.stop();
    assert_eq!(sink.close(), sent, "packets lost");
}

/// Two daemons for one namespace or one device: the second says so and leaves the first alone.
#[test]
fn a_second_daemon_is_refused() {
    needs_root!();
    let (bed, _) = streamed_bed();
    let daemon = Daemon::start(&bed.node, DEVICES);
    let refusal = Daemon::refused(&bed.node, DEVICES);
    refusal.fails(1, &[]);
    assert!(
        refusal.stderr.contains(&daemon.pid().to_string()) || refusal.stderr.contains("already"),
        "{refusal:?}"
    );
    assert_eq!(bed.send("10.50.0.1:9", "the first goes on", 5).counts(), (0, 5, 0));
}

/// Another XDP program sits on the device: its owner keeps it.
#[test]
fn a_taken_device_is_refused() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    // Another instance's pins are as foreign as any. A test cannot attach from a second namespace's point of view, so leave a program
    // behind, hide its pins, and start again.
    let pins = format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode());
    let hidden = format!("{pins}-hidden");
    Daemon::start(&bed.node, "--dev n0").kill();
    std::fs::rename(&pins, &hidden).expect("the pins can be moved");
    let refusal = Daemon::refused(&bed.node, "--dev n0");
    let _ = trieline(&bed.node, "node detach");
    for entry in std::fs::read_dir(&hidden).expect("the moved pins").flatten() {
        std::fs::remove_file(entry.path()).expect("unpinned");
    }
    std::fs::remove_dir(&hidden).expect("an empty directory");
    refusal.fails(1, &["n0"]);
}

/// A daemon asked to end by SIGINT or SIGTERM while it starts leaves nothing half done.
#[test]
fn an_interrupted_start_can_be_repeated() {
    needs_root!();
    let (bed, _) = streamed_bed();
    let _leftovers = Leftovers(&bed.node);
    let program = trieline_testbed::command::binary_path("trielined");
    for milliseconds in ["0.02", "0.05", "0.1", "0.2"] {
        run(&format!("timeout -s INT -k 5 {milliseconds} {program} -n {} {DEVICES}", bed.node.name()));
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!(bed.send("10.50.0.1:9", "after all", 5).counts(), (0, 5, 0));
}

/// SIGHUP: devices are read from the file again; a file that is wrong changes nothing.
#[test]
fn a_reload_follows_the_file() {
    needs_root!();
    let (bed, _) = streamed_bed();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_string_lossy().into_owned();
    let reload = |daemon: &Daemon, content: &str| {
        std::fs::write(&path, content).expect("written");
        run(&format!("kill -HUP {}", daemon.pid())).ok();
    };
    std::fs::write(&path, "devices = [\"n0\"]\n").expect("written");
    let daemon = Daemon::start(&bed.node, &format!("--config {path}"));
    // (1) n1 is not among the devices: packets towards it are the kernel's
    assert_eq!(bed.send("10.50.0.1:9", "one device", 5).counts(), (5, 5, 0));
    // (2) now it is
    reload(&daemon, "devices = [\"n0\", \"n1\"]\n");
    assert!(
        eventually(5.0, || bed.send("10.50.0.1:9", "two", 5).counts() == (0, 5, 0)),
        "the new device is not used"
    );
    // (3) nonsense: said, and nothing else
    reload(&daemon, "devises = []\n");
    assert!(eventually(5.0, || daemon.log().contains("devises")), "nothing is said about the bad file");
    assert_eq!(bed.send("10.50.0.1:9", "nonsense", 5).counts(), (0, 5, 0));
    // (4) and gone again
    reload(&daemon, "devices = [\"n0\"]\n");
    assert!(
        eventually(5.0, || bed.send("10.50.0.1:9", "one", 5).counts() == (5, 5, 0)),
        "the device is still used"
    );
    assert!(!bed.node.ip("link show dev n1").contains("xdp"), "n1 still has a program");
}

/// Ctrl-C in the middle of the demo: no namespace and no daemon stays behind.
#[test]
fn an_interrupted_demo_cleans_up() {
    needs_root!();
    let program = trieline_testbed::command::binary_path("trieline");
    for seconds in ["1", "4"] {
        let mut demo = std::process::Command::new("timeout")
            .args(["-s", "INT", "-k", "20", seconds, &program, "demo"])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the demo starts");
        // The demo is timeout's child: its namespaces carry its process id.
        let parent = demo.id();
        let mut child = String::new();
        let found = eventually(2.0, || {
            child = run(&format!("cat /proc/{parent}/task/{parent}/children")).stdout.trim().to_owned();
            !child.is_empty()
        });
        assert!(found, "the demo has no process");
        demo.wait().expect("the demo ends");
        let left = run("ip netns list").ok();
        assert!(!left.contains(&format!("-{child}")), "after {seconds} s namespaces are left:\n{left}");
    }
}

/// A table that fills more than half of the image: a restarted daemon cannot build the new one beside the old one.
#[test]
fn a_restart_in_a_tight_image() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    let mut lines = String::new();
    for number in 0..30_000u32 {
        let address = std::net::Ipv4Addr::from(0x1400_0000 + (number << 7));
        let gateway = if number % 2 == 0 { "10.1.0.2" } else { "10.2.0.2" };
        lines += &format!("route add {address}/26 via {gateway}\n");
    }
    bed.node.ip_batch(&[], &lines).ok();
    let args = format!("{DEVICES} --image 1M");
    let first = Daemon::start(&bed.node, &args);
    assert_eq!(status::full(&bed.node), 0, "{}", first.log());
    first.kill();
    let daemon = Daemon::start(&bed.node, &args);
    // (1) it forwards again, and status agrees
    assert_eq!(bed.send("20.0.0.1:9", "again", 5).counts(), (0, 5, 0), "{}", daemon.log());
    assert_eq!(status::full(&bed.node), 0);
}

/// A namespace that is deleted takes its devices along; the next daemon removes what was pinned for them.
#[test]
fn pins_of_a_dead_namespace_are_removed() {
    needs_root!();
    let pins = |bed: &Bed| format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode());
    let gone = Bed::new();
    Daemon::start(&gone.node, DEVICES).stop();
    let left = pins(&gone);
    let beside = ["lock", "capture"].map(|kind| format!("/run/trieline/netns-{}.{kind}", gone.node.inode()));
    std::fs::write(&beside[1], "").expect("the lock of a capture");
    assert!([&left, &beside[0]].iter().all(|path| std::path::Path::new(path).exists()));
    let bed = Bed::new();
    // (1) not those of a namespace that lives
    Daemon::start(&bed.node, DEVICES).stop();
    assert!([&left, &beside[0]].iter().all(|path| std::path::Path::new(path).exists()));
    // (2) but those of one that does not
    drop(gone);
    let removed = eventually(10.0, || {
        Daemon::start(&bed.node, DEVICES).stop();
        !std::path::Path::new(&left).exists()
    });
    assert!(removed, "{left} is still there");
    assert!(
        beside.iter().all(|path| !std::path::Path::new(path).exists()),
        "one of {beside:?} is still there"
    );
}

/// A daemon that closes without an answer, or gives one that this version does not understand, is not in the way of `node detach`.
#[test]
fn detach_needs_no_answer_of_the_daemon() {
    needs_root!();
    for answer in ["", "{\"pid\":1,\"counters\":[{\"name\":\"new\",\"kind\":\"mirror\",\"packets\":1}]}\n"] {
        let (bed, _) = streamed_bed();
        Daemon::start(&bed.node, DEVICES).kill();
        let socket = PathBuf::from(format!("/run/trieline/netns-{}.sock", bed.node.inode()));
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a fake daemon");
        let answers = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("a fake daemon");
                let mut request = [0; 64];
                let _ = stream.read(&mut request).expect("a fake daemon");
                stream.write_all(answer.as_bytes()).expect("a fake daemon");
            }
        });
        let status = trieline(&bed.node, "-j node status");
        assert_eq!(status.code, 0, "{status:?}");
        assert_eq!(status.json()["devices"].as_array().expect("devices").len(), 3);
        let detached = trieline(&bed.node, "node detach");
        assert_eq!(detached.code, 0, "{detached:?}");
        assert!(detached.stdout.contains("detached from 3 devices"), "{detached:?}");
        answers.join().expect("a fake daemon");
    }
}

/// A supervisor that never reads its socket: the daemon goes on when the socket's queue is full.
#[test]
fn a_supervisor_that_does_not_read_stops_nothing() {
    needs_root!();
    let (bed, _) = streamed_bed();
    let (_daemon, unread) = Daemon::spawn(&bed.node, DEVICES);
    assert!(eventually(30.0, || trieline(&bed.node, "node status").code == 0), "no daemon");
    let filler = UnixDatagram::unbound().expect("a socket");
    filler.set_nonblocking(true).expect("a socket");
    let path = unread.local_addr().expect("an address").as_pathname().expect("a path").to_owned();
    while filler.send_to(b"X=1", &path).is_ok() {}
    // There is a notification every second at least.
    rest(4.0);
    bed.node.ip("route add 10.70.0.0/16 via 10.2.0.2");
    bed.becomes("a route after it", "10.70.0.1:9", (0, 0, 5));
}
