//! `trieline trace --stamp`: ids written into messages that have none, on real packets between two hosts. All other bytes stay, checksums
//! hold, and whatever was not stamped is counted.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use trieline_testbed::command::{Running, binary_path, run};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::{eventually, needs_root};

const MESSAGES: usize = 50;

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Two sockets that are connected with each other.
fn connected(left: &Namespace, right: &Namespace, from: &str, to: &str) -> (UdpSocket, UdpSocket) {
    let bind = |namespace: &Namespace, address: &str| {
        let address = format!("{address}:0");
        namespace.enter(move || UdpSocket::bind(address).unwrap())
    };
    let (from, to) = (bind(left, from), bind(right, to));
    from.connect(to.local_addr().unwrap()).unwrap();
    to.connect(from.local_addr().unwrap()).unwrap();
    from.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // A message that waits for its neighbour's address is not noted.
    for (from, to) in [(&from, &to), (&to, &from)] {
        from.send(&[0]).unwrap();
        to.recv(&mut [0]).unwrap();
    }
    (from, to)
}

/// A trace that has begun: its file says so.
fn trace(namespace: &Namespace, arguments: &str, records: &str) -> Child {
    let _ = fs::remove_file(records);
    let trace = Command::new(binary_path("trieline"))
        .args(["-j", "-n", namespace.name(), "trace", "--no-cost", "--strict", "--transport", "udp"])
        .args(["--records", records])
        .args(arguments.split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = || fs::metadata(records).is_ok_and(|file| file.len() > 0);
    assert!(eventually(20.0, begun), "{arguments}: the trace does not begin");
    trace
}

fn end(trace: Child) -> Value {
    run(&format!("kill -INT {}", trace.id())).ok();
    let output = trace.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stamp(message: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(*message[offset..].first_chunk().unwrap())
}

/// ```text
/// [left] l0 192.0.2.1, 2001:db8::1 ── r0 192.0.2.2, 2001:db8::2 [right]
///   client ──────────────────────────────> broker
///          <──────────────────────────────
/// ```
/// The client's messages are stamped as they leave; the broker passes them on as they are. Without the devices' help (tx off) checksums
/// are made before the stamp and looked at by the receiver's kernel.
#[test]
fn stamped_messages_are_joined_between_hosts() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/relay.c");
    run(&format!("cc -O2 -o {} {source}", file("relay"))).ok();
    let (left, right) = (Namespace::new("left"), Namespace::new("right"));
    left.ip(&format!("link add l0 type veth peer name r0 netns {}", right.name()));
    for (namespace, device, host) in [(&left, "l0", 1), (&right, "r0", 2)] {
        namespace.ip(&format!("link set {device} up"));
        namespace.ip(&format!("address add 192.0.2.{host}/24 dev {device}"));
        namespace.ip(&format!("address add 2001:db8::{host}/64 dev {device} nodad"));
    }
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    for (tx, ends, offset) in [
        ("off", ["192.0.2.1", "192.0.2.2"], 8),
        ("off", ["[2001:db8::1]", "[2001:db8::2]"], 13),
        ("on", ["192.0.2.1", "192.0.2.2"], 13),
    ] {
        left.run(&format!("ethtool -K l0 tx {tx}")).ok();
        right.run(&format!("ethtool -K r0 tx {tx}")).ok();
        let (from, input) = connected(&left, &right, ends[0], ends[1]);
        let port = input.local_addr().unwrap().port();
        let mut broker = Command::new(file("relay"));
        broker.arg("recv").stderr(Stdio::null());
        broker.stdin(Stdio::from(OwnedFd::from(input.try_clone().unwrap())));
        broker.stdout(Stdio::from(OwnedFd::from(input)));
        let mut broker = Running(right.enter(move || broker.spawn().unwrap()));
        let traces = [
            trace(
                &left,
                &format!("--client {} --comm absent --port {port} --stamp {offset}", name.trim_end()),
                &file("left"),
            ),
            trace(&right, &format!("-p {} --stamp {offset}", broker.id()), &file("right")),
        ];

        let mut message = [0x5a; 64];
        message[offset..offset + 8].fill(0);
        let mut stamps = vec![0];
        let pass = |message: &[u8]| {
            let mut back = [0; 4000];
            from.send(message).unwrap();
            let bytes = from.recv(&mut back).unwrap();
            back[..bytes].to_vec()
        };
        for _ in 0..MESSAGES {
            let before = now();
            let mut back = pass(&message);
            let stamp = stamp(&back, offset);
            assert!(before <= stamp && stamp <= now() && Some(&stamp) > stamps.last(), "{before} {stamp}");
            stamps.push(stamp);
            back[offset..offset + 8].fill(0);
            assert_eq!(back, message);
        }
        // A message without a place for a stamp comes as it was sent.
        for other in [&message[..offset + 7], &[7; 64], &[0; 3000]] {
            assert_eq!(pass(other), other);
        }
        let [sender, receiver] = traces.map(end);
        let counted = |written: usize, taken: usize, short: usize, several: usize| {
            serde_json::json!({
                "written": written, "taken": taken, "short": short, "several": several, "failed": 0
            })
        };
        assert_eq!(sender["stamps"], counted(MESSAGES, 1, 1, 3), "{sender}");
        assert_eq!(receiver["stamps"], counted(0, MESSAGES + 1, 1, 3), "{receiver}");
        let joined =
            run(&format!("{} -j trace join {} {}", binary_path("trieline"), file("left"), file("right")));
        let joined: Value = serde_json::from_str(&joined.ok()).unwrap();
        assert_eq!(joined["hops"]["matched"], 2 * MESSAGES as u64 + 2, "{joined}");
        assert_eq!(joined["matched"], MESSAGES as u64 + 1, "{joined}");
        assert_eq!(
            (&joined["hops"]["unmatched"], &joined["hops"]["ambiguous"]),
            (&0.into(), &0.into()),
            "{joined}"
        );
        broker.kill().unwrap();
        broker.wait().unwrap();
    }
}

#[test]
fn stamps_that_cannot_be_written_are_refused() {
    needs_root!();
    let trieline = |arguments: &str| run(&format!("{} {arguments}", binary_path("trieline")));
    trieline("trace --port 1 --stamp 8:ff").fails(2, &["stamp `8:ff`", "OFFSET:BYTES"]);
    trieline("trace --port 1 --stamp 8 --done").fails(2, &["--done"]);
    trieline("trace --no-cost --port 1 --stamp 8 --transport tcp").fails(1, &["over UDP"]);
    let namespace = Namespace::new("stamp");
    let own = std::process::id();
    trieline(&format!("-n {} trace --no-cost -p {own} --stamp 8", namespace.name()))
        .fails(1, &[&format!("process {own} is in another network namespace"), "trieline -n NETNS"]);
}
