//! `trieline trace`: a broker's messages found, in every form of output; what cannot be traced is said plainly.

mod ends;
mod functions;
mod outputs;
mod perfetto;
mod refused;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use trieline_testbed::command::{Running, binary_path, run};
use trieline_testbed::needs_root;

/// The broker of the tracer's own tests.
fn compiled(folder: &Path) -> PathBuf {
    // Test machines have no compiler.
    std::env::var_os("TRIELINE_RELAY").map_or_else(
        || {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/relay.c");
            let program = folder.join("relay");
            run(&format!("cc -O2 -o {} {source}", program.display())).ok();
            program
        },
        PathBuf::from,
    )
}

/// The same between two sockets.
fn broker(folder: &Path, input: OwnedFd, output: OwnedFd) -> Running {
    let mut broker = Command::new(compiled(folder));
    broker.arg("recv").stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::null());
    Running(broker.spawn().unwrap())
}

/// The same with both ends of it.
fn relay(folder: &Path) -> (Running, UnixStream, UnixStream) {
    let (from, input) = UnixStream::pair().unwrap();
    let (output, to) = UnixStream::pair().unwrap();
    (broker(folder, OwnedFd::from(input), OwnedFd::from(output)), from, to)
}

#[test]
fn a_brokers_messages_are_found() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (mut broker, mut from, mut to) = relay(folder.path());
    let mut trace = Command::new(binary_path("trieline"))
        .args(["-j", "trace", "--strict", "-p", &broker.id().to_string(), "--count", "50", "--id", "8:4"])
        .args(["--csv", &file("csv"), "--jsonl", &file("jsonl")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It measures its cost first; whatever it finds then is from here.
    let mut sent = 0u32;
    while trace.try_wait().unwrap().is_none() {
        let mut message = [0; 64];
        message[8..12].copy_from_slice(&sent.to_ne_bytes());
        from.write_all(&message).unwrap();
        to.read_exact(&mut [0; 64]).unwrap();
        sent += 1;
    }
    drop(from);
    broker.wait().unwrap();
    let output = trace.wait_with_output().unwrap();
    assert!(output.status.success());

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let matched = report["matched"].as_u64().unwrap();
    assert!((50..=u64::from(sent)).contains(&matched), "{report}");
    assert_eq!((&report["lost"], &report["ambiguous"], &report["short"]), (&0.into(), &0.into(), &0.into()));
    let stage = &report["stages"][0];
    assert_eq!((&stage["from"], &stage["left_at"]), (&"unix-stream".into(), &"sent".into()), "{report}");
    assert_eq!(stage["messages"], matched);
    own_part(&report);

    // Every line of both files is one message, in the order of their ids.
    let csv = fs::read_to_string(file("csv")).unwrap();
    let ids: Vec<u64> =
        csv.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect();
    assert_eq!(ids.len() as u64, matched);
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");
    let jsonl = fs::read_to_string(file("jsonl")).unwrap();
    for (line, id) in jsonl.lines().zip(&ids) {
        let row: Value = serde_json::from_str(line).unwrap();
        let time = |key: &str| row[key].as_u64().unwrap();
        let text = id.to_string();
        assert_eq!(
            (row["id"].as_str(), time("left_ns") - time("received_ns")),
            (Some(&text[..]), time("inside_ns"))
        );
    }
    assert_eq!(jsonl.lines().count(), ids.len());
}

/// The tracer's own part: its hooks and who pays for them, what each transport pays, its own time and memory.
fn own_part(report: &Value) {
    let hooks: Vec<&str> =
        report["attached"].as_array().unwrap().iter().map(|one| one["hook"].as_str().unwrap()).collect();
    assert!(hooks.contains(&"net_dev_queue") && hooks.contains(&"sched_process_exit"), "{report}");
    let cost = &report["cost"];
    for one in cost["transports"].as_array().into_iter().flatten() {
        assert!(one["base_ns"].as_f64().unwrap() > 100.0, "{cost}");
    }
    assert!(cost.is_null() || cost["packet_ns"].is_f64(), "{cost}");
    let of = |key: &str| report["tracer"][key].as_f64().unwrap();
    assert!(of("user_s") + of("system_s") > 0.0 && of("resident_bytes") > 1e6, "{report}");
    assert!(of("rings_bytes") <= 80e6 && of("ring_records") >= 256.0 && of("rings") >= 1.0, "{report}");
}

/// The result of `--live-cost` stands in every view and in the report, with its interval.
#[test]
fn hook_cost_is_measured_while_they_are_attached() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (mut broker, mut from, mut to) = relay(folder.path());
    let trace = |form: &[&str]| {
        Command::new(binary_path("trieline"))
            .args(form)
            .args([
                "trace",
                "--no-cost",
                "--live",
                "--interval",
                "0.2",
                "--live-cost",
                "--duration",
                "3.5",
                "-p",
            ])
            .arg(broker.id().to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let (mut json, mut text) = (trace(&["-j"]), trace(&[]));
    while json.try_wait().unwrap().is_none() || text.try_wait().unwrap().is_none() {
        from.write_all(&[7; 64]).unwrap();
        to.read_exact(&mut [0; 64]).unwrap();
    }
    drop(from);
    broker.wait().unwrap();

    let output = json.wait_with_output().unwrap();
    let views: Vec<Value> = output
        .stderr
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| {
            serde_json::from_slice(line).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(line)))
        })
        .collect();
    let pairs: Vec<u64> = views.iter().map(|view| view["live"]["pairs"].as_u64().unwrap()).collect();
    assert!(pairs[0] == 0 && views[0]["live"]["cpu_percent"].is_null(), "{:?}", views[0]);
    assert!(pairs.is_sorted() && pairs.last() >= Some(&2), "{pairs:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for found in views.iter().skip_while(|view| view["live"]["pairs"] == 0).chain([&report]) {
        let percent = &found["live"]["cpu_percent"];
        let of = |key: &str| percent[key].as_f64().unwrap();
        // Too few pairs for an interval.
        assert!(
            of("delta").is_finite() && percent["ci_low"].is_null() && percent["ci_high"].is_null(),
            "{found}"
        );
        // Unix sockets have no packets.
        assert!(
            found["live"]["packets_percent"].is_null() || found["live"]["packets_percent"]["delta"].is_f64()
        );
        assert!(found["live"]["paused_s"].as_f64().unwrap() >= 0.1, "{found}");
    }
    assert!(report["live"]["pairs"].as_u64() >= pairs.last().copied(), "{report}");

    let output = text.wait_with_output().unwrap();
    for printed in [&output.stderr, &output.stdout] {
        let printed = String::from_utf8_lossy(printed);
        let live = printed.lines().rfind(|line| line.starts_with("live: with the hooks ")).unwrap();
        let (found, rest) =
            live.split_once(" processor time a packet (median and 95 % interval of ").unwrap();
        assert!(found.contains(" % [too few for an interval]") && !rest.starts_with("0 pairs"), "{live}");
    }
}

#[test]
fn a_command_without_messages_is_reported() {
    needs_root!();
    let answer = run(&format!("{} trace --no-cost -- true", binary_path("trieline")));
    // Not 0 and not a failure's 1: a script can tell.
    answer.fails(3, &[]);
    let printed = &answer.stdout;
    assert!(printed.contains("no message was seen") && printed.contains("0 records lost"), "{printed}");
    let gone = run(&format!("{} trace --no-cost -- /nonexistent/broker", binary_path("trieline")));
    gone.fails(1, &["cannot start /nonexistent/broker", "No such file"]);
}

#[test]
fn a_command_that_goes_into_the_background_is_traced_on() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let relay = compiled(folder.path());
    let (mut near, far) = UnixStream::pair().unwrap();
    let trace = Command::new(binary_path("trieline"))
        .args(["-j", "trace", "--no-cost", "--", "sh", "-c"])
        .arg(format!("exec 3<&0; {} recv <&3 >&3 2>/dev/null &", relay.display()))
        .stdin(OwnedFd::from(far))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..20 {
        near.write_all(&[7; 64]).unwrap();
        near.read_exact(&mut [0; 64]).unwrap();
    }
    // The daemon's end is the command's.
    drop(near);
    let output = trace.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && report["matched"] == 20, "{report}");
}

#[test]
fn impossible_traces_are_refused() {
    let trieline = |arguments: &str| run(&format!("{} trace {arguments}", binary_path("trieline")));
    trieline("").fails(2, &["nothing to trace", "--comm"]);
    trieline("-p 1 --csv a --jsonl a").fails(2, &["a: expected another file for each output"]);
    trieline("-p 1 --csv -").fails(2, &["expected a file's name"]);
    trieline("-p 1 --count 0").fails(2, &["--count"]);
    trieline("-p 4194305").fails(1, &["no process 4194305"]);
    trieline("--comm a-name-of-sixteen").fails(1, &["1 to 15 bytes"]);
    trieline("--cgroup no/such/group").fails(1, &["/sys/fs/cgroup", "no/such/group"]);
    trieline("--port 1 --id 8").fails(2, &["OFFSET:BYTES"]);
    trieline("--port 1 --transport sctp").fails(2, &["udp, tcp, unix-stream"]);
    trieline("--port 1 --ring 1000").fails(2, &["power of two"]);
    trieline("--port 1 --csv /nonexistent/messages").fails(1, &["cannot write /nonexistent/messages"]);
}
