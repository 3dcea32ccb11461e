//! SRv6: decapsulation and encapsulation in XDP, byte for byte what the kernel's seg6 sends.

use trieline_tests::bed::{Bed, Seen};
use trieline_tests::daemon::Daemon;
use trieline_tests::{craft, root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const MARKER: &[u8] = b"carried inside";

/// Sends each packet through the kernel, then through XDP; the frames at the sink must be equal.
fn compare(bed: &Bed, packets: &[(&str, Vec<u8>)]) {
    // (1) through the kernel: no daemon yet
    let kernel: Vec<Seen> = packets.iter().map(|(_, packet)| bed.send_ip(packet, MARKER)).collect();
    // (2) through XDP
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for ((name, packet), kernel) in packets.iter().zip(&kernel) {
        assert_eq!(kernel.counts(), (1, 1, 0), "{name}: through the kernel");
        let xdp = bed.send_ip(packet, MARKER);
        assert_eq!(xdp.counts(), (0, 1, 0), "{name}: through XDP");
        assert_eq!(hex(&kernel.sink[0]), hex(&xdp.sink[0]), "{name}: kernel's bytes left, XDP's right");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn inner(destination: &str, set: impl FnOnce(&mut [u8])) -> Vec<u8> {
    craft::ipv4("10.0.0.2", destination, MARKER, set)
}

/// [gen] ═(IPv6)═ [node: End.DX4] ──(IPv4)── [sink]
#[test]
fn end_dx4_equals_the_kernels() {
    if !root() {
        return;
    }
    let bed = Bed::new();
    bed.warm();
    // One next hop behind a gateway (an on-link one makes the kernel resolve the inner destination), one by lookup.
    bed.node.ip("route add 10.9.9.9/32 via 10.1.0.2");
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DX4 nh4 10.9.9.9 dev n1");
    bed.node.ip("-6 route add fd00:c::2/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev n1");
    let outer = |sid: &str, next: (u8, Vec<u8>)| craft::ipv6("fd00::2", sid, (next.0, &next.1), |_| {});
    let with_srh = |sid: &str, packet: Vec<u8>| (43, craft::srh(&[sid], 0, (4, &packet)));
    compare(
        &bed,
        &[
            ("next hop, no SRH", outer("fd00:c::1", (4, inner("10.77.0.1", |_| {})))),
            ("next hop, SRH", outer("fd00:c::1", with_srh("fd00:c::1", inner("10.77.0.1", |_| {})))),
            (
                "next hop, SRH with two segments",
                outer(
                    "fd00:c::1",
                    (43, craft::srh(&["fd00:c::1", "fd00:d::1"], 0, (4, &inner("10.77.0.1", |_| {})))),
                ),
            ),
            ("table, no SRH", outer("fd00:c::2", (4, inner("10.50.0.1", |_| {})))),
            ("table, SRH", outer("fd00:c::2", with_srh("fd00:c::2", inner("10.50.0.1", |_| {})))),
            ("inner TTL 2", outer("fd00:c::1", (4, inner("10.77.0.1", |header| header[8] = 2)))),
            ("inner DSCP", outer("fd00:c::1", (4, inner("10.77.0.1", |header| header[1] = 0xb8)))),
        ],
    );
}

/// Malformed packets at End.DX4: what the kernel drops does not get through XDP either. (A segment routing header whose length
/// does not fit its last entry is *not* dropped: with no segments left the kernel takes it for none.)
#[test]
fn end_dx4_treats_malformed_as_the_kernel() {
    if !root() {
        return;
    }
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.9.9.9/32 via 10.1.0.2");
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DX4 nh4 10.9.9.9 dev n1");
    let outer = |next: (u8, Vec<u8>)| craft::ipv6("fd00::2", "fd00:c::1", (next.0, &next.1), |_| {});
    let good = || inner("10.77.0.1", |_| {});
    let broken = [
        ("segments left", outer((43, craft::srh(&["fd00:c::1", "fd00:d::1"], 1, (4, &good()))))),
        (
            "inner is not IPv4",
            outer((41, craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(MARKER)), |_| {}))),
        ),
        ("no inner header", outer((17, craft::udp(MARKER)))),
        (
            "SRH length too small for its last entry",
            outer((43, {
                let mut header = craft::srh(&["fd00:c::1"], 0, (4, &good()));
                header[4] = 9;
                header
            })),
        ),
    ];
    let kernel: Vec<_> = broken.iter().map(|(_, packet)| bed.send_ip(packet, MARKER).sink).collect();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for ((name, packet), kernel) in broken.iter().zip(kernel) {
        assert_eq!(bed.send_ip(packet, MARKER).sink, kernel, "{name}: XDP's frames left, the kernel's right");
    }
}

/// [gen] ──(IPv4)── [node: H.Encaps] ═(IPv6+SRH)═ [sink]
#[test]
fn h_encaps_equals_the_kernels() {
    if !root() {
        return;
    }
    let bed = Bed::new();
    bed.warm();
    // The first segment is behind a gateway, as in a real network.
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed.node.ip("sr tunsrc set fd00:1::1");
    bed.node.ip("route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1");
    bed.node.ip("-6 route add fd50::/32 encap seg6 mode encap segs fd00:e::2 dev n1");
    let v6 = |set: fn(&mut [u8])| craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(MARKER)), set);
    compare(
        &bed,
        &[
            ("IPv4", inner("10.50.0.1", |_| {})),
            ("IPv4, TTL 2", inner("10.50.0.1", |header| header[8] = 2)),
            ("IPv4, TTL 255", inner("10.50.0.1", |header| header[8] = 255)),
            ("IPv4, DSCP and ECN", inner("10.50.0.1", |header| header[1] = 0xbb)),
            ("IPv6", v6(|_| {})),
            ("IPv6, hop limit 2", v6(|header| header[7] = 2)),
            (
                "IPv6, traffic class and flow label",
                v6(|header| {
                    (header[0], header[1], header[3]) = (0x6b, 0x8c, 0x99);
                }),
            ),
        ],
    );
}

/// Without `ip sr tunsrc` the kernel selects the outer source address; so does trieline.
#[test]
fn h_encaps_selects_the_kernels_source() {
    if !root() {
        return;
    }
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed.node.ip("route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1");
    compare(&bed, &[("IPv4", inner("10.50.0.1", |_| {}))]);
}

/// Two segments: delivered as ever.
#[test]
fn two_segments_are_delivered() {
    if !root() {
        return;
    }
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed.node.ip("sr tunsrc set fd00:1::1");
    bed.node.ip("route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1,fd00:e::2 dev n1");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    // Delivered in any case; whether XDP or the kernel does it is trieline's choice.
    let seen = bed.send_ip(&inner("10.50.0.1", |_| {}), MARKER);
    assert_eq!((seen.sink.len(), seen.side.len()), (1, 0));
}
