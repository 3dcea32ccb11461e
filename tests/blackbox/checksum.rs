//! Senders behind a veth leave the checksum to a device that never comes: what they send still arrives whole.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, status};
use trieline_testbed::packets::{UdpSink, UdpStream, send_frames};
use trieline_testbed::{craft, eventually, needs_root};

/// How the program is attached: natively, or in generic mode, where the mark stays with the packet and the way out may not obey it.
const MODES: [&str; 2] = ["--dev n0 --dev n1", "--generic --dev n0 --dev n1"];

fn counted(bed: &Bed, verdict: &str) -> u64 {
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    let found = counters.iter().find(|counter| counter["name"] == verdict);
    found.and_then(|counter| counter["packets"].as_u64()).unwrap_or_default()
}

/// Sends UDP from the generator to an address of the sink until all has arrived; how many datagrams.
fn datagrams(bed: &Bed, to: SocketAddr, what: &str) -> u64 {
    let sink = UdpSink::open(&bed.sink, to);
    let stream = UdpStream::start(&bed.generator, to, 500);
    assert!(eventually(5.0, || stream.sent() >= 200));
    let sent = stream.stop();
    let received = sink.close();
    assert_eq!(received, sent, "UDP to {to}, {what}");
    sent
}

/// ```text
/// [gen] g0 (tx on) ── n0 [node] n1 ── s0 [sink]
/// ```
/// UDP and TCP of both families with unfinished checksums take the kernel's way; finished ones are forwarded.
#[test]
fn unfinished_checksums_are_the_kernels() {
    needs_root!();
    for mode in MODES {
        let bed = Bed::new();
        bed.warm();
        let _daemon = Daemon::start(&bed.node, mode);
        for (tx, verdict) in [("on", "csum_partial"), ("off", "")] {
            bed.generator.run(&format!("ethtool -K g0 tx {tx}")).ok();
            let what = format!("tx {tx}, {mode}");
            for to in ["10.1.0.2:4000", "[fd00:1::2]:4000"] {
                let to = to.parse().expect("an address");
                let before = counted(&bed, "csum_partial");
                let sent = datagrams(&bed, to, &what);
                let passed = counted(&bed, "csum_partial") - before;
                // One finished checksum in 65,535 looks unfinished.
                let expected = if verdict.is_empty() { passed < 5 } else { passed >= sent };
                assert!(expected, "{passed} of {sent} were passed to {to}, {what}");
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
                assert_eq!(server.join().expect("the server ends").len(), 100_000, "TCP to {to}, {what}");
            }
        }
    }
}

/// The kernel cuts a packet that stands for several and fits the MTU.
#[test]
fn packets_for_several_segments_are_cut() {
    needs_root!();
    const BYTES: usize = 900;
    for mode in MODES {
        let bed = Bed::new();
        bed.warm();
        // The sink takes segments of 300 bytes; a write of 900 is one packet of the sender's.
        bed.sink.ip("route change default via 10.1.0.1 advmss 300");
        bed.generator.run("ethtool -K g0 tx on tso on gso on").ok();
        let _daemon = Daemon::start(&bed.node, mode);
        let to: SocketAddr = "10.1.0.2:4000".parse().expect("an address");
        let listener = bed.sink.enter(move || TcpListener::bind(to).expect("a port"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = [0; BYTES];
            while stream.read_exact(&mut bytes).is_ok() {
                stream.write_all(b"!").expect("an answer");
            }
        });
        bed.generator.enter(move || {
            let patience = Some(Duration::from_secs(10));
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(10)).expect("it connects");
            stream.set_read_timeout(patience).expect("a timeout");
            for round in 0..20 {
                stream.write_all(&[b'x'; BYTES]).expect("it is sent");
                let mut answer = [0];
                stream
                    .read_exact(&mut answer)
                    .unwrap_or_else(|error| panic!("round {round}, {mode}: {error}"));
            }
        });
        server.join().expect("the server ends");
    }
}

/// A sender that builds its own tunnel leaves the checksum inside unfinished; SCTP leaves none at all.
#[test]
fn unfinished_checksums_in_tunnels_and_of_sctp_are_the_kernels() {
    needs_root!();
    for mode in MODES {
        let bed = Bed::routed();
        bed.sink.ip("addr add 10.50.0.1/32 dev lo");
        bed.node.ip("route add 10.9.9.9/32 via 10.1.0.2");
        bed.node.ip("-6 route add fd00:a::1/128 encap seg6local action End.DX4 nh4 10.9.9.9 dev n1");
        bed.generator.sysctl("net.ipv6.conf.all.seg6_enabled", "1");
        bed.generator.ip("route add 10.50.0.0/16 encap seg6 mode encap segs fd00:a::1 via 10.0.0.1 dev g0");
        bed.generator.run("ethtool -K g0 tx on").ok();
        let _daemon = Daemon::start(&bed.node, mode);
        let before = counted(&bed, "csum_partial");
        let sent = datagrams(&bed, "10.50.0.1:4000".parse().expect("an address"), mode);
        let passed = counted(&bed, "csum_partial") - before;
        assert!(passed >= sent, "{passed} of {sent} were passed, {mode}");
        let before = counted(&bed, "csum_partial");
        let packet = craft::ipv4("10.0.0.2", "10.1.0.2", &[0; 20], |ip| ip[9] = 132);
        let frame = craft::link([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0], &[], None, &packet);
        let mut finished = frame.clone();
        // The checksum stands behind ports and tag.
        let at = 14 + 20 + 8;
        finished[at..at + 4].fill(0);
        let unfinished = finished.clone();
        finished[at] = 1;
        send_frames(&bed.generator, "g0", &vec![unfinished; 10]);
        send_frames(&bed.generator, "g0", &vec![finished; 10]);
        assert!(eventually(5.0, || counted(&bed, "csum_partial") - before == 10), "SCTP, {mode}");
        assert!(eventually(5.0, || counted(&bed, "ipv4") >= 10), "SCTP that is finished, {mode}");
    }
}
