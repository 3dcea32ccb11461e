//! Devices that take no redirected frames: a veth whose peer has neither GRO nor XDP loses them without a word, so packets to it
//! must stay with the kernel. (Linux tells since 6.3; the VM of 6.1 does not run this.)

use trieline_tests::bed::Bed;
use trieline_tests::daemon::{Daemon, status};
use trieline_tests::{eventually, root};

/// [gen] ── [node] n1 ── s0 [sink], whose GRO goes off and on.
#[test]
fn a_device_that_takes_no_redirected_frames() {
    if !root() {
        return;
    }
    let bed = Bed::new();
    bed.warm();
    bed.sink.run("ethtool -K s0 gro off").ok();
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2");
    // (1) from the start: the kernel forwards to it, XDP to the others
    assert_eq!(bed.send("10.1.0.2:9", "no place to go", 5).counts(), (5, 5, 0));
    assert_eq!(bed.send("10.2.0.2:9", "elsewhere", 5).counts(), (0, 0, 5));
    assert!(status(&bed.node).to_string().contains("no-exit"), "status does not say so");
    // (2) it takes them: noticed within seconds
    bed.sink.run("ethtool -K s0 gro on").ok();
    assert!(
        eventually(5.0, || bed.send("10.1.0.2:9", "now there is", 5).counts() == (0, 5, 0)),
        "does not become fast"
    );
    // (3) and no more: the kernel again, nothing lost for good
    bed.sink.run("ethtool -K s0 gro off").ok();
    assert!(
        eventually(5.0, || bed.send("10.1.0.2:9", "gone again", 5).counts() == (5, 5, 0)),
        "packets to a device that takes none are lost"
    );
}
