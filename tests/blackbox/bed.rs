//! The test bed itself: if packets do not cross it through the kernel alone, no other result means anything.

use trieline_testbed::bed::Bed;

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
