//! The test bed itself: if packets do not cross it through the kernel alone, no other result means anything.

use trieline_testbed::bed::Bed;
use trieline_testbed::namespace::{End, Namespace, veth};

/// [gen] ── [node] ── [sink]: the kernel forwards, and the taps see what they should.
#[test]
fn kernel_alone_forwards() {
    trieline_testbed::needs_root!();
    // (1) neighbours resolve
    let bed = Bed::new();
    bed.warm();
    // (2) both families cross the node
    bed.ping("10.1.0.2", 3).ok();
    bed.ping("fd00:1::2", 3).ok();
    // (3) every packet is seen by the node's kernel and at the sink, with the TTL one less
    let seen = bed.send("10.1.0.2:9", "through the kernel", 10);
    assert_eq!(seen.counts(), (10, 10, 0));
    assert_eq!((seen.passed[0][22], seen.sink[0][22]), (64, 63));
    let seen = bed.send("[fd00:2::2]:9", "the other way out", 10);
    assert_eq!(seen.counts(), (10, 0, 10));
}

/// A node with so many veths, their other ends, and the daemon's arguments that name all of them.
pub fn with_devices(count: u8) -> (Namespace, Namespace, String) {
    let (node, far) = (Namespace::new("node"), Namespace::new("far"));
    node.sysctl("net.ipv4.ip_forward", "1");
    let mut args = String::new();
    for number in 0..count {
        let (near, peer) = (format!("n{number}"), format!("f{number}"));
        let end = |namespace, device, side| End { namespace, device, mac: [2, 0, 0, 0, side, number] };
        veth(end(&node, near.as_str(), 0), end(&far, peer.as_str(), 1)).expect("a veth");
        node.ip(&format!("addr add 10.{number}.0.1/24 dev {near}"));
        node.ip(&format!("link set {near} up"));
        far.ip(&format!("link set {peer} up"));
        args += &format!(" --dev {near}");
    }
    (node, far, args.trim().to_owned())
}
