//! `trieline trace --arrivals` and `trace node`: a message's way between two hosts, split at every device that it passes.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Running, binary_path, run};
use trieline_testbed::daemon::Daemon;
use trieline_testbed::namespace::Namespace;
use trieline_testbed::{eventually, needs_root};

const MESSAGES: u64 = 50;
const PORT: u16 = 4321;

/// A trace that has begun: its file says so.
fn trace(namespace: &Namespace, arguments: &str, records: &str) -> Child {
    let trace = Command::new(binary_path("trieline"))
        .args(["-j", "-n", namespace.name(), "trace"])
        .args(arguments.split(' '))
        .args(["--port", &PORT.to_string(), "--stamp", "8", "--records", records])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = || fs::metadata(records).is_ok_and(|file| file.len() > 0);
    assert!(eventually(20.0, begun), "{arguments}: the trace does not begin");
    trace
}

fn end(trace: Child) -> Value {
    run(&format!("kill -INT {}", trace.id())).ok();
    let output = trace.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stages(report: &Value) -> BTreeMap<&str, u64> {
    let stages = report["stages"].as_array().unwrap().iter();
    stages.map(|row| (row["stage"].as_str().unwrap(), row["messages"].as_u64().unwrap())).collect()
}

/// ```text
/// [gen] g0 ── n0 [node] n1 ── s0 [sink]
///  client <─────────────────> broker
/// ```
#[test]
fn a_way_is_split_at_the_node_and_at_the_receiver() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/relay.c");
    run(&format!("cc -O2 -o {} {source}", file("relay"))).ok();
    let client = bed.generator.enter(|| UdpSocket::bind("10.0.0.2:0").unwrap());
    let broker = bed.sink.enter(|| UdpSocket::bind(("10.1.0.2", PORT)).unwrap());
    client.connect(broker.local_addr().unwrap()).unwrap();
    broker.connect(client.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut relay = Command::new(file("relay"));
    relay.arg("recv").stderr(Stdio::null());
    relay.stdin(Stdio::from(OwnedFd::from(broker.try_clone().unwrap())));
    relay.stdout(Stdio::from(OwnedFd::from(broker)));
    let mut relay = Running(bed.sink.enter(move || relay.spawn().unwrap()));

    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let hosts = [
        trace(
            &bed.generator,
            &format!("--no-cost --arrivals --comm absent --client {}", name.trim_end()),
            &file("client"),
        ),
        trace(&bed.sink, &format!("--no-cost --arrivals -p {}", relay.id()), &file("broker")),
        trace(&bed.node, "node", &file("node")),
    ];
    let mut message = [7; 64];
    message[8..16].fill(0);
    for _ in 0..MESSAGES {
        client.send(&message).unwrap();
        assert_eq!(client.recv(&mut [0; 128]).unwrap(), 64);
    }
    let [sender, receiver, node] = hosts.map(end);
    assert_eq!(
        (&node["arrived"], &node["forwarded"]),
        (&(2 * MESSAGES).into(), &(2 * MESSAGES).into()),
        "{node}"
    );
    assert_eq!(stages(&sender), BTreeMap::from([("R→D", MESSAGES)]), "{sender}");
    assert_eq!(stages(&receiver), BTreeMap::from([("B→C", MESSAGES), ("R→B", MESSAGES)]), "{receiver}");
    for report in [&sender, &receiver] {
        assert_eq!(report["arrivals"], serde_json::json!({ "matched": MESSAGES, "unmatched": 0 }));
    }

    let files = ["client", "broker", "node"].map(file).join(" ");
    let joined = run(&format!("{} -j trace join {files}", binary_path("trieline"))).ok();
    let joined: Value = serde_json::from_str(&joined).unwrap();
    let whole = ["A→B", "B→C", "C→D"].map(|part| (part, MESSAGES));
    let first = ["A→R", "R→B", "C→R", "R→D"].map(|part| (part, MESSAGES));
    let both = ["R→Q", "Q→R"].map(|part| (part, 2 * MESSAGES));
    let expected = whole.into_iter().chain(first).chain(both).collect();
    assert_eq!(stages(&joined), expected, "{joined}");
    assert_eq!(joined["devices"], serde_json::json!({ "matched": 6 * MESSAGES, "unmatched": 0 }));
    relay.kill().unwrap();
    relay.wait().unwrap();
}

#[test]
fn arrivals_need_a_port_and_an_id() {
    needs_root!();
    let trieline = |arguments: &str| run(&format!("{} trace {arguments}", binary_path("trieline")));
    trieline("--comm absent --arrivals --id 0:8").fails(2, &["--port"]);
    trieline("--no-cost --port 1 --arrivals").fails(1, &["by their port and id"]);
    trieline("node --port 1 --records /nonexistent/file").fails(2, &["--id"]);
    let namespace = Namespace::new("bare");
    run(&format!(
        "{} -n {} trace node --port 1 --id 0:8 --records x",
        binary_path("trieline"),
        namespace.name()
    ))
    .fails(1, &["trielined"]);
}
