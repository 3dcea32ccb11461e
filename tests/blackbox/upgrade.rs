//! An upgrade and a downgrade between two builds of the daemon: one has a verdict that the other does not know.

use crate::status;
use std::net::SocketAddr;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::binary;
use trieline_testbed::daemon::{Daemon, Leftovers, Programs};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{craft, eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
/// The type of service whose packets the other build counts by its own verdict: `build_next` in `dev`.
const TOS: u8 = 0xfc;

/// Packets with the other build's verdict, by the daemon's status; `None`: the daemon does not know it.
fn next_build(daemon: &Daemon) -> Option<u64> {
    let status = daemon.status()?;
    let known = status["counters"].as_array()?.iter().find(|counter| counter["name"] == "next_build")?;
    known["packets"].as_u64()
}

/// The pins stay, all counters go on, and no packet is lost: forth, back and forth again, after a stop and after a kill.
#[test]
fn an_upgrade_and_a_downgrade_lose_no_packet_and_no_counter() {
    needs_root!();
    let bed = Bed::routed();
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    let address: SocketAddr = "10.50.0.1:7000".parse().expect("an address");
    let sink = UdpSink::open(&bed.sink, address);
    let this = || Daemon::start(&bed.node, DEVICES);
    let next = || {
        let programs = Programs { trielined: binary("trielined-next"), ..Programs::built() };
        Daemon::start_of(programs, &bed.node, DEVICES)
    };
    let marked = || {
        let packet = craft::ipv4("10.0.0.2", "10.50.0.2", b"for the next build", |header| header[1] = TOS);
        bed.send_ip(&packet, b"for the next build").counts()
    };
    let mut before = 0;
    let mut goes_on = |daemon: &Daemon, what: &str| {
        assert!(!daemon.log().contains("the old tables"), "{what}: the pins were replaced: {}", daemon.log());
        let now = status::forwarded(&bed.node);
        assert!(now >= before, "{what}: {now} packets forwarded, before it {before}");
        assert!(eventually(5.0, || status::forwarded(&bed.node) > now + 50), "{what}: XDP does not forward");
        before = status::forwarded(&bed.node);
    };
    let _leftovers = Leftovers(&bed.node);
    let daemon = this();
    let stream = UdpStream::start(&bed.generator, address, 2000);
    goes_on(&daemon, "this build");
    assert_eq!((marked(), next_build(&daemon)), ((0, 1, 0), None), "this build forwards such packets");
    daemon.kill();
    let daemon = next();
    goes_on(&daemon, "an upgrade after a kill");
    assert_eq!(marked(), (1, 1, 0), "the next build passes such packets");
    assert!(eventually(3.0, || next_build(&daemon) == Some(1)), "{:?}", daemon.status());
    daemon.kill();
    let daemon = this();
    goes_on(&daemon, "a downgrade");
    assert_eq!((marked(), next_build(&daemon)), ((0, 1, 0), None), "after the downgrade");
    daemon.kill();
    let daemon = next();
    goes_on(&daemon, "the second upgrade");
    assert_eq!(
        next_build(&daemon),
        Some(1),
        "a counter that the older build does not know is kept: {:?}",
        daemon.status()
    );
    let sent = stream.stop();
    assert_eq!(sink.close(), sent, "packets lost");
}
