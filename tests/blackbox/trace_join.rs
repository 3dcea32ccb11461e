//! `trieline trace join`: what was noted on two hosts is put together, their clocks compared; files that cannot be are refused by line.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use trieline_testbed::command::{Running, binary_path, run};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::needs_root;

const MESSAGES: u64 = 100;
/// How far the second host's clock is made to be ahead.
const AHEAD_NS: i64 = 7_000_000_000;

/// A connection by an address that is not loopback's, so that it could be one of two hosts.
fn connection(namespace: &Namespace) -> (TcpStream, TcpStream) {
    namespace.enter(|| {
        let listener = TcpListener::bind("192.0.2.1:0").unwrap();
        let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        from.set_nodelay(true).unwrap();
        (from, listener.accept().unwrap().0)
    })
}

/// A trace that has begun.
fn trace(what: &str, records: &str) -> Child {
    let trace = Command::new(binary_path("trieline"))
        .args(["-j", "trace", "--no-cost", "--transport", "tcp", "--records", records])
        .args(what.split(' '))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while fs::metadata(records).map_or(0, |file| file.len()) == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: the trace does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    trace
}

#[test]
fn two_hosts_are_joined() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/relay.c");
    run(&format!("cc -O2 -o {} {source}", file("relay"))).ok();
    let namespace = Namespace::new("join");
    namespace.ip("address add 192.0.2.1/32 dev lo");
    let (mut from, input) = connection(&namespace);
    let (output, mut to) = connection(&namespace);
    let broker = Command::new(file("relay"))
        .arg("recv")
        .stdin(Stdio::from(OwnedFd::from(input)))
        .stdout(Stdio::from(OwnedFd::from(output)))
        .stderr(Stdio::null())
        .spawn();
    let mut broker = Running(broker.unwrap());

    let traces = [
        trace(&format!("--client {}", std::process::id()), &file("client")),
        trace(&format!("-p {}", broker.id()), &file("broker")),
    ];
    // The broker waits in a receive that began before the trace did; where hooks are on functions it is not seen.
    for number in 0..MESSAGES {
        let mut message = [0; 64];
        message[8..16].copy_from_slice(&number.to_ne_bytes());
        from.write_all(&message).unwrap();
        to.read_exact(&mut [0; 64]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(20));
    for mut trace in traces {
        run(&format!("kill -INT {}", trace.id())).ok();
        assert!(trace.wait().unwrap().success());
    }
    drop(from);
    broker.wait().unwrap();

    let join = |files: &str| run(&format!("{} -j trace join {files}", binary_path("trieline")));
    let found = |files: &str| -> Value { serde_json::from_str(&join(files).ok()).unwrap() };
    let check = |report: &Value| {
        assert_eq!(report["hops"]["matched"], 2 * MESSAGES, "{report}");
        assert_eq!((&report["untimed"], &report["hops"]["unmatched"]), (&0.into(), &0.into()), "{report}");
        // Every receive and every send is in a count, here as in a trace.
        let sum = |keys: &[&str]| keys.iter().map(|key| report[key].as_u64().expect(key)).sum::<u64>();
        let received = [
            "matched",
            "more_reads",
            "ambiguous",
            "unmatched_received",
            "cut_off",
            "shared",
            "given_up",
            "streamed",
        ];
        let sent = ["matched", "more_sends", "copies", "aside", "undecided", "unmatched_sent", "streamed"];
        assert_eq!((sum(&received), sum(&sent)), (sum(&["received"]), sum(&["sent"])), "{report}");
        let stages: Vec<_> = report["stages"].as_array().unwrap().iter().collect();
        let parts: Vec<_> = stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
        assert_eq!(parts, ["A→B", "B→C", "C→D"], "{report}");
        assert!(stages.iter().all(|stage| stage["messages"] == MESSAGES), "{report}");
    };
    let one_clock = found(&format!("{} {}", file("client"), file("broker")));
    check(&one_clock);
    assert_eq!(one_clock["files"][1]["offset_ns"], 0);

    // The same as from another machine, whose clock is ahead.
    let text = fs::read_to_string(file("broker")).unwrap();
    let shifted: Vec<String> = text
        .lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            if line["line"] == "trace" {
                line["machine"] = "another".into();
            }
            if let Some(time) = line["t"].as_i64() {
                line["t"] = (time + AHEAD_NS).into();
            }
            line.to_string()
        })
        .collect();
    fs::write(file("other"), shifted.join("\n")).unwrap();
    let two_clocks = found(&format!("{} {}", file("client"), file("other")));
    check(&two_clocks);
    let of = |key: &str| two_clocks["files"][1][key].as_i64().unwrap();
    let (offset, bound) = (of("offset_ns"), of("offset_bound_ns"));
    assert!((offset - AHEAD_NS).abs() <= bound && bound < 10_000_000, "{offset} {bound}");

    // One host's records alone say nothing of the way.
    let alone = found(&file("broker"));
    assert_eq!((&alone["matched"], &alone["hops"]["matched"]), (&MESSAGES.into(), &0.into()), "{alone}");

    let mut lines = shifted.clone();
    lines.swap(4, 6);
    fs::write(file("backwards"), lines.join("\n")).unwrap();
    join(&file("backwards")).fails(1, &["backwards:6: the clock goes backwards", "in the order of time"]);
    fs::write(file("cut"), &text[..text.len() - 10]).unwrap();
    let number = text.lines().count();
    join(&file("cut")).fails(1, &[&format!("cut:{number}: expected a line of trieline trace --records")]);
    fs::write(file("wrong"), text.replace("\"received\"", "\"seen\"")).unwrap();
    join(&file("wrong")).fails(1, &["`seen`: expected one of received, queued, sent"]);
    fs::write(file("empty"), "").unwrap();
    join(&file("empty")).fails(1, &["empty: expected a file of trieline trace --records"]);
    join(&file("none")).fails(1, &["cannot read ", "none"]);
}
