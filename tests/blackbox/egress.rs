//! Devices that take no redirected frames. A veth whose peer has neither GRO nor XDP loses them without a word, so packets to it
//! must stay with the kernel. (Linux tells since 6.3; the VM of 6.1 does not run this.)

use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::{eventually, needs_root};

/// [gen] ── [node] n1 ── s0 [sink], whose GRO goes off and on.
#[test]
fn a_device_that_takes_no_redirected_frames() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.sink.run("ethtool -K s0 gro off").ok();
    let daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2");
    // (1) from the start: the kernel forwards to it, XDP to the others
    assert_eq!(bed.send("10.1.0.2:9", "no place to go", 5).counts(), (5, 5, 0));
    assert_eq!(bed.send("10.2.0.2:9", "elsewhere", 5).counts(), (0, 0, 5));
    assert!(status(&bed.node).to_string().contains("no-xdp-xmit"), "status does not say so");
    let reported = |address: &str, why: &str, expected_text: &str| {
        let got = || trieline(&bed.node, &format!("route get {address}")).stdout;
        assert!(eventually(5.0, || got().contains(&format!("[pass {why}"))), "no {why}: {}", got());
        let text = || trieline(&bed.node, "node status").ok();
        assert!(eventually(5.0, || text().contains(expected_text)), "no {expected_text:?} in {}", text());
    };
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    reported(
        "10.50.0.1",
        "no_xdp_xmit",
        "of unicast: n1 takes no redirected frames (a veth: ethtool -K PEER gro on",
    );
    // other devices that packets cannot leave by have other reasons
    bed.node.ip("link add other0 type veth peer name other0x");
    bed.node.ip("link set other0x up");
    bed.node.ip("link set other0 up");
    bed.node.ip("route add 10.51.0.0/16 via 10.9.0.2 dev other0 onlink");
    reported("10.51.0.1", "no_device", "other0 is not one of `devices`");
    bed.node.ip("route add 10.52.0.0/16 via 10.2.0.2");
    bed.side.ip("link set t0 down");
    reported("10.52.0.1", "no_carrier", "n2 is down or without carrier");
    bed.side.ip("link set t0 up");
    // (2) it takes them: noticed within seconds
    bed.sink.run("ethtool -K s0 gro on").ok();
    assert!(
        eventually(5.0, || bed.send("10.1.0.2:9", "now there is", 5).counts() == (0, 5, 0)),
        "does not become fast"
    );
    for expected_text in
        ["ethtool -K PEER gro on", "the device takes redirected frames again; XDP forwards packets to it"]
    {
        assert!(daemon.log().contains(expected_text), "no {expected_text:?}:\n{}", daemon.log());
    }
    // (3) and no more: the kernel again, nothing lost for good
    bed.sink.run("ethtool -K s0 gro off").ok();
    assert!(
        eventually(5.0, || bed.send("10.1.0.2:9", "gone again", 5).counts() == (5, 5, 0)),
        "packets to a device that takes none are lost"
    );
}

/// ```text
/// [node] d0 ── d1 [node], both given, without GRO
/// ```
/// Like many NICs, each takes redirected frames only while a program is attached, here at its other end: the daemon attaches before
/// it asks.
#[test]
fn features_are_read_after_the_program_is_attached() {
    needs_root!();
    let bed = Bed::new();
    bed.node.ip("link add d0 type veth peer name d1");
    for device in ["d0", "d1"] {
        bed.node.run(&format!("ethtool -K {device} tx off gro off")).ok();
        bed.node.ip(&format!("link set {device} up"));
    }
    let daemon = Daemon::start(&bed.node, "--dev d0 --dev d1");
    assert!(!daemon.log().contains("takes no redirected frames"), "{}", daemon.log());
    let flags = status(&bed.node)["devices"].to_string();
    assert!(!flags.contains("no-xdp-xmit"), "{flags}");
}
