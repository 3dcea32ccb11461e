//! Plain forwarding: what XDP forwards leaves exactly as the kernel would send it, and what it must not touch reaches the
//! kernel.

use crate::status;
use trieline_testbed::bed::{Bed, Seen};
use trieline_testbed::daemon::Daemon;
use trieline_testbed::{craft, eventually, linux, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// A bed whose node knows its neighbours and has a route of each kind.
fn routed_bed() -> Bed {
    let bed = Bed::new();
    bed.warm();
    for line in [
        "route add 10.50.0.0/16 via 10.1.0.2",
        "route add 10.50.128.0/17 via 10.2.0.2",
        "-6 route add fd50::/32 via fd00:1::2",
        "-6 route add fd50:0:8000::/33 via fd00:2::2",
        "route add blackhole 10.51.0.0/16",
        "route add unreachable 10.52.0.0/16",
        "route add prohibit 10.53.0.0/16",
        "-6 route add blackhole fd51::/32",
        "-6 route add unreachable fd52::/32",
        "-6 route add prohibit fd53::/32",
        // One IPv4 prefix behind an IPv6 next hop (RFC 5549).
        "route add 10.54.0.0/16 via inet6 fd00:1::2",
    ] {
        bed.node.ip(line);
    }
    bed
}

/// [gen] ── [node] ── [sink], [side]: whole packets, with every forwarder's business done.
#[test]
fn packets_are_forwarded_in_xdp() {
    needs_root!();
    let bed = routed_bed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let before = status::forwarded(&bed.node);
    // (1) routes through a gateway, the longer prefix first
    for (to, expected) in [
        ("10.50.1.1:9", (0, 20, 0)),
        ("10.50.200.1:9", (0, 0, 20)),
        ("[fd50::1]:9", (0, 20, 0)),
        ("[fd50:0:8000::1]:9", (0, 0, 20)),
        ("10.54.1.1:9", (0, 20, 0)),
    ] {
        let seen = bed.send(to, "routed by trieline", 20);
        assert_eq!(seen.counts(), expected, "passed, sink, side to {to}");
    }
    // (2) neighbours on the node's own links
    for (to, expected) in [("10.1.0.2:9", (0, 20, 0)), ("[fd00:2::2]:9", (0, 0, 20))] {
        assert_eq!(bed.send(to, "on the link", 20).counts(), expected, "passed, sink, side to {to}");
    }
    // (3) there and back again
    let between = status::forwarded(&bed.node);
    bed.ping("10.1.0.2", 5).ok();
    bed.ping("fd00:1::2", 5).ok();
    // (4) the counters agree: 5 pings of either family, both ways; before them 7 × 20, and the neighbours' answers without a listener
    assert_eq!(status::forwarded(&bed.node) - between, 2 * 2 * 5);
    assert!(between - before >= 7 * 20, "{} packets counted as forwarded", between - before);
}

/// The same packet through the kernel and through XDP leaves the node with the same bytes.
#[test]
fn frames_equal_the_kernels() {
    needs_root!();
    let bed = routed_bed();
    let marker = b"one packet, two ways";
    let v4 = |set: fn(&mut [u8])| craft::ipv4("10.0.0.2", "10.50.1.1", marker, set);
    let v6 = |set: fn(&mut [u8])| craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(marker)), set);
    let packets = [
        ("IPv4", v4(|_| {})),
        ("IPv4, don't fragment", v4(|header| header[6] = 0x40)),
        ("IPv4, DSCP 46 and ECN 3", v4(|header| header[1] = 0xbb)),
        ("IPv4, TTL 2", v4(|header| header[8] = 2)),
        (
            "IPv4, TTL 255, identification 0xffff",
            v4(|header| (header[4], header[5], header[8]) = (255, 255, 255)),
        ),
        ("IPv4, more fragments", v4(|header| header[6] = 0x20)),
        ("IPv4, unknown protocol", v4(|header| header[9] = 253)),
        ("IPv6", v6(|_| {})),
        (
            "IPv6, traffic class and flow label",
            v6(|header| (header[0], header[1], header[3]) = (0x6b, 0x8c, 0x99)),
        ),
        ("IPv6, hop limit 2", v6(|header| header[7] = 2)),
        ("IPv6, unknown next header", v6(|header| header[6] = 253)),
    ];
    // (1) through the kernel
    let kernel: Vec<Seen> = packets.iter().map(|(_, packet)| bed.send_ip(packet, marker)).collect();
    // (2) through XDP
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for ((name, packet), kernel) in packets.iter().zip(&kernel) {
        let xdp = bed.send_ip(packet, marker);
        assert_eq!(kernel.counts(), (1, 1, 0), "{name}: through the kernel");
        assert_eq!(xdp.counts(), (0, 1, 0), "{name}: through XDP");
        assert_eq!(hex(&kernel.sink[0]), hex(&xdp.sink[0]), "{name}: kernel's bytes left, XDP's right");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Other packets reach the kernel, which answers as it always does.
#[test]
fn the_rest_reaches_the_kernel() {
    needs_root!();
    let bed = routed_bed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    // (1) local addresses, also those of other devices
    for address in ["10.0.0.1", "10.1.0.1", "fd00::1", "fd00:1::1"] {
        bed.ping(address, 3).ok();
    }
    // (2) a blackhole swallows without a word
    assert_eq!(bed.send("10.51.1.1:9", "swallowed", 5).counts(), (0, 0, 0));
    assert_eq!(bed.send("[fd51::1]:9", "swallowed", 5).counts(), (0, 0, 0));
    // (3) the kernel says why
    for (address, answer) in [
        ("10.52.1.1", "Host Unreachable"),
        ("10.53.1.1", "Packet filtered"),
        ("fd52::1", "No route"),
        ("fd53::1", "Administratively prohibited"),
    ] {
        // The kernel limits how fast it says so.
        let mut ping = None;
        let reported = eventually(10.0, || ping.insert(bed.ping(address, 1)).stdout.contains(answer));
        assert!(reported, "expected `{answer}`: {ping:?}");
    }
    // (4) a hop limit that ends here
    let ping = bed.generator.run("ping -n -c 1 -W 2 -t 1 10.50.1.1");
    assert!(ping.stdout.contains("Time to live exceeded"), "{ping:?}");
    let ping = bed.generator.run("ping -n -c 1 -W 2 -t 1 fd50::1");
    assert!(ping.stdout.contains("Hop limit"), "{ping:?}");
    // (5) larger than the next link
    bed.node.ip("link set n1 mtu 1300");
    let reported = eventually(5.0, || {
        bed.generator.run("ping -n -c 1 -W 1 -M do -s 1400 10.50.1.1").stdout.contains("Frag needed")
    });
    assert!(reported, "no `fragmentation needed` for a packet over the MTU");
    let reported = eventually(5.0, || {
        let ping = bed.generator.run("ping -n -c 1 -W 1 -M do -s 1400 fd50::1");
        ping.stdout.contains("Packet too big") || ping.stderr.contains("message too long")
    });
    assert!(reported, "no `packet too big` for a packet over the MTU");
}

/// The image's map type: chosen by the kernel's abilities, or configured; packets do not see the difference.
#[test]
fn either_map_type_forwards() {
    needs_root!();
    let bed = routed_bed();
    let has_arena = linux() >= (6, 9);
    // (1) what it chooses by itself
    let daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!(status::map_type(&bed.node), if has_arena { "arena" } else { "array" });
    drop(daemon);
    // (2) the array, which every kernel has
    let daemon = Daemon::start(&bed.node, &format!("{DEVICES} --map-type array"));
    assert_eq!(status::map_type(&bed.node), "array");
    assert_eq!(bed.send("10.50.1.1:9", "from the array", 5).counts(), (0, 5, 0));
    drop(daemon);
    // (3) the arena, or why not
    if has_arena {
        let _daemon = Daemon::start(&bed.node, &format!("{DEVICES} --map-type arena"));
        assert_eq!(bed.send("10.50.1.1:9", "from the arena", 5).counts(), (0, 5, 0));
    } else {
        Daemon::refused(&bed.node, &format!("{DEVICES} --map-type arena")).fails(1, &["arena", "6.9"]);
    }
}
