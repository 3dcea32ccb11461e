//! Senders behind a veth leave the checksum to a device that never comes: what they send still arrives whole.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, status};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{eventually, needs_root};

fn counted(bed: &Bed, verdict: &str) -> u64 {
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    let found = counters.iter().find(|counter| counter["name"] == verdict);
    found.and_then(|counter| counter["packets"].as_u64()).unwrap_or_default()
}

/// ```text
/// [gen] g0 (tx on) ── n0 [node] n1 ── s0 [sink]
/// ```
/// UDP and TCP of both families with unfinished checksums take the kernel's way; finished ones are forwarded.
#[test]
fn unfinished_checksums_are_the_kernels() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1");
    for (tx, verdict) in [("on", "csum_partial"), ("off", "")] {
        bed.generator.run(&format!("ethtool -K g0 tx {tx}")).ok();
        for to in ["10.1.0.2:4000", "[fd00:1::2]:4000"] {
            let to = to.parse().expect("an address");
            let before = counted(&bed, "csum_partial");
            let sink = UdpSink::open(&bed.sink, to);
            let stream = UdpStream::start(&bed.generator, to, 500);
            assert!(eventually(5.0, || stream.sent() >= 200));
            let sent = stream.stop();
            let received = sink.close();
            assert_eq!(received, sent, "UDP to {to}, tx {tx}");
            let passed = counted(&bed, "csum_partial") - before;
            // One finished checksum in 65,535 looks unfinished.
            let expected = if verdict.is_empty() { passed < 5 } else { passed >= sent };
            assert!(expected, "{passed} of {sent} were passed with tx {tx} to {to}");
            let listener = bed.sink.enter(move || TcpListener::bind(to).expect("a port"));
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut text = String::new();
                stream.read_to_string(&mut text).expect("its text");
                text
            });
            bed.generator.enter(move || {
                let mut stream =
                    TcpStream::connect_timeout(&to, Duration::from_secs(10)).expect("it connects");
                stream.write_all(&[b'x'; 100_000]).expect("it is sent");
            });
            assert_eq!(server.join().expect("the server ends").len(), 100_000, "TCP to {to}, tx {tx}");
        }
    }
}
