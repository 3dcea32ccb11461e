//! SRv6: decapsulation and encapsulation in XDP, byte for byte what the kernel's seg6 sends.

use trieline_testbed::bed::{Bed, Seen};
use trieline_testbed::daemon::Daemon;
use trieline_testbed::{craft, eventually, linux, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
/// Part of each packet.
pub const MARKER: &[u8] = b"carried inside";

/// Sends each packet through the kernel, then through XDP; the frames at sink and side must be equal.
pub fn compare(bed: &Bed, packets: &[(&str, Vec<u8>)]) {
    // (1) through the kernel: no daemon yet
    let kernel: Vec<Seen> = packets.iter().map(|(_, packet)| bed.send_ip(packet, MARKER)).collect();
    // (2) through XDP
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for ((name, packet), kernel) in packets.iter().zip(&kernel) {
        let counts = kernel.counts();
        assert!(matches!(counts, (1, 1, 0) | (1, 0, 1)), "{name}: through the kernel: {counts:?}");
        let xdp = bed.send_ip(packet, MARKER);
        assert_eq!(xdp.counts(), (0, counts.1, counts.2), "{name}: through XDP");
        let left =
            |seen: &Seen| seen.sink.iter().chain(&seen.side).map(|frame| hex(frame)).collect::<Vec<_>>();
        assert_eq!(left(kernel), left(&xdp), "{name}: kernel's bytes left, XDP's right");
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn inner(destination: &str, set: impl FnOnce(&mut [u8])) -> Vec<u8> {
    craft::ipv4("10.0.0.2", destination, MARKER, set)
}

/// [gen] ═(IPv6)═ [node: End.DX4] ──(IPv4)── [sink]
#[test]
fn end_dx4_equals_the_kernels() {
    needs_root!();
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
    needs_root!();
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
    needs_root!();
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
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed.node.ip("route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1");
    compare(&bed, &[("IPv4", inner("10.50.0.1", |_| {}))]);
}

/// Every headend: [gen] ──(IPv4 or IPv6)── [node] ═(IPv6 with the segments)═ [sink]
#[test]
fn headends_equal_the_kernels() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed.node.ip("sr tunsrc set fd00:1::1");
    let lists = ["fd00:e::1", "fd00:e::1,fd00:e::2", "fd00:e::1,fd00:e::2,fd00:e::3,fd00:e::4,fd00:e::5"];
    let modes = ["encap", "encap.red", "l2encap", "l2encap.red", "inline"];
    let mut packets = Vec::new();
    for (m, mode) in modes.iter().enumerate() {
        for (n, list) in lists.iter().enumerate() {
            if *mode != "inline" {
                bed.node.ip(&format!("route add 10.5{m}.{n}.0/24 encap seg6 mode {mode} segs {list} dev n1"));
                packets.push((format!("{mode} {list}, IPv4"), inner(&format!("10.5{m}.{n}.1"), |_| {})));
            }
            bed.node.ip(&format!("-6 route add fd5{m}:{n}::/32 encap seg6 mode {mode} segs {list} dev n1"));
            let packet = craft::ipv6("fd00::2", &format!("fd5{m}:{n}::1"), (17, &craft::udp(MARKER)), |_| {});
            packets.push((format!("{mode} {list}, IPv6"), packet));
        }
    }
    let packets: Vec<_> = packets.iter().map(|(name, packet)| (name.as_str(), packet.clone())).collect();
    compare(&bed, &packets);
}

/// Every endpoint that a kernel without VRFs has: [gen] ═(IPv6 with the segments)═ [node] ── [sink]
#[test]
fn endpoints_equal_the_kernels() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    for prefix in ["fd00:e::/32", "fd00:b::/32", "fd00:77::/64", "fd60::/32"] {
        bed.node.ip(&format!("-6 route add {prefix} via fd00:1::2"));
    }
    bed.node.ip("sr tunsrc set fd00:1::1");
    // PSP, and NEXT-C-SID of both behaviours.
    let has_flavours = linux() >= (6, 6);
    for (sid, action) in [
        ("fd00:c::10", "End count"),
        ("fd00:c::11", "End flavors psp"),
        ("fd00:c::12", "End.X nh6 fd00:77::1"),
        ("fd00:c::13", "End.X nh6 fd00:1::2"),
        ("fd00:c::14", "End.T table 254"),
        ("fd00:b:1::/48", "End flavors next-csid"),
        ("fd00:b:2::/48", "End.X nh6 fd00:77::1 flavors next-csid lblen 32 nflen 16"),
        ("fd00:c::20", "End.DX6 nh6 fd00:77::1"),
        ("fd00:c::21", "End.DX6 nh6 ::"),
        ("fd00:c::22", "End.DT6 table 254"),
        ("fd00:c::25", "End.DX2 oif n1"),
        ("fd00:c::30", "End.B6 srh segs fd00:e::1,fd00:e::2"),
        ("fd00:c::31", "End.B6.Encaps srh segs fd00:e::1,fd00:e::2"),
    ] {
        if has_flavours || !action.contains("flavors") {
            bed.node.ip(&format!("-6 route add {sid} encap seg6local action {action} dev n1"));
        }
    }
    let to = |sid: &str, next: (u8, &[u8])| craft::ipv6("fd00::2", sid, next, |_| {});
    let left = |sid: &str, left: u8| {
        to(sid, (43, &craft::srh(&["fd00:e::9", "fd00:e::8", sid], left, (4, &inner("10.77.0.1", |_| {})))))
    };
    let six = craft::ipv6("fd00::2", "fd60::1", (17, &craft::udp(MARKER)), |_| {});
    let frame = [&[2, 0, 0, 0, 0, 0x11, 2, 0, 0, 0, 0, 9, 8, 0][..], &inner("10.77.0.1", |_| {})].concat();
    let last = |sid: &str, next: (u8, &[u8])| to(sid, (43, &craft::srh(&[sid, "fd00:e::9"], 0, next)));
    let mut packets = vec![
        ("End, two left", left("fd00:c::10", 2)),
        ("End, one left", left("fd00:c::10", 1)),
        ("PSP, two left", left("fd00:c::11", 2)),
        ("PSP, one left", left("fd00:c::11", 1)),
        ("End.X through a gateway", left("fd00:c::12", 2)),
        ("End.X on-link", left("fd00:c::13", 2)),
        ("End.T", left("fd00:c::14", 2)),
        ("NEXT-C-SID", to("fd00:b:1:7:8::", (4, &inner("10.77.0.1", |_| {})))),
        ("NEXT-C-SID without argument", left("fd00:b:1::", 2)),
        ("NEXT-C-SID of End.X", to("fd00:b:2:7:8::", (41, &six))),
        ("End.DX6 with a next hop", to("fd00:c::20", (41, &six))),
        ("End.DX6 with a next hop, SRH", last("fd00:c::20", (41, &six))),
        ("End.DX6 by the table", to("fd00:c::21", (41, &six))),
        ("End.DT6", to("fd00:c::22", (41, &six))),
        ("End.DT6, SRH", last("fd00:c::22", (41, &six))),
        ("End.DX2", to("fd00:c::25", (143, &frame))),
        ("End.B6", left("fd00:c::30", 2)),
        ("End.B6.Encaps", left("fd00:c::31", 2)),
    ];
    packets.retain(|(name, _)| has_flavours || !name.starts_with("PSP") && !name.starts_with("NEXT-C-SID"));
    compare(&bed, &packets);
}

/// Two ways of weights 3 and 1: each flow keeps its way, and the ways get their share. By routes and by a group of next hops.
#[test]
fn flows_share_the_ways_by_weight() {
    needs_root!();
    const FLOWS: usize = 200;
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.60.0.0/16 nexthop via 10.1.0.2 weight 3 nexthop via 10.2.0.2 weight 1");
    bed.node.ip("-6 route add fd60::/32 nexthop via fd00:1::2 weight 3 nexthop via fd00:2::2 weight 1");
    bed.node.ip("nexthop add id 1 via 10.1.0.2 dev n1");
    bed.node.ip("nexthop add id 2 via 10.2.0.2 dev n2");
    bed.node.ip("nexthop add id 10 group 1,3/2,1");
    bed.node.ip("route add 10.61.0.0/16 nhid 10");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for kind in ["10.60.0.", "10.61.0.", "fd60::"] {
        let send_all = || {
            let packets = (1..=FLOWS).map(|flow| {
                let to = format!("{kind}{flow}");
                if kind.contains(':') {
                    craft::ipv6("fd00::2", &to, (17, &craft::udp(MARKER)), |_| {})
                } else {
                    inner(&to, |_| {})
                }
            });
            let packets: Vec<_> = packets.collect();
            let seen = bed.watch(MARKER, || {
                packets.iter().for_each(|packet| trieline_testbed::packets::send_ip(&bed.generator, packet));
            });
            assert_eq!((seen.passed.len(), seen.sink.len() + seen.side.len()), (0, FLOWS), "{kind}");
            let destination = |frame: &Vec<u8>| frame[14..54].to_vec();
            let mut sink: Vec<_> = seen.sink.iter().map(destination).collect();
            sink.sort();
            sink
        };
        let first = send_all();
        assert_eq!(first, send_all(), "{kind}: a flow changed its way");
        // 3/4 of 200, within five standard deviations (30): the hash has a random key in each run.
        assert!(
            (120..=180).contains(&first.len()),
            "{kind}: {} of {FLOWS} by the way of weight 3",
            first.len()
        );
    }
}

/// `[srv6] rfc`: [gen] ──(IPv4)── [node: H.Encaps, End.DX4] ── [sink], as Linux, as the RFCs, and as Linux again.
#[test]
fn the_rfcs_are_followed_when_configured() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed.node.ip("sr tunsrc set fd00:1::1");
    bed.node.ip("route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1");
    bed.node.ip("route add 10.9.9.9/32 via 10.1.0.2");
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DX4 nh4 10.9.9.9 dev n1");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trielined.toml");
    let configure = |more: &str| {
        std::fs::write(&file, format!("devices = [\"n0\", \"n1\", \"n2\"]\n{more}")).expect("a file");
    };
    configure("");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", file.display()));
    let over = inner("10.50.0.1", |header| header[1] = 0xb9);
    let marked = |tos: u8| {
        let packet = inner("10.77.0.1", |header| header[1] = tos);
        craft::ipv6("fd00::2", "fd00:c::1", (4, &packet), |header| header[1] = 0x30)
    };
    // Class of the outer header, TTL of the inner one; ECN after decapsulation of CE over ECT(1), and whether CE over Not-ECT comes out.
    let becomes = |what: &str, expected: (u8, u8, u8, bool)| {
        let mut last = None;
        let equal = eventually(5.0, || {
            let sent = bed.send_ip(&over, MARKER).sink;
            let inside = bed.send_ip(&marked(1), MARKER).sink;
            let unknowing = bed.send_ip(&marked(0), MARKER);
            let [sent, inside] =
                [sent, inside].map(|frames| frames.into_iter().next().unwrap_or_else(|| vec![0; 128]));
            let class = sent[14] << 4 | sent[15] >> 4;
            last = Some((class, sent[14 + 40 + 24 + 8], inside[15] & 3, !unknowing.sink.is_empty()));
            unknowing.passed.is_empty() && last == Some(expected)
        });
        assert!(equal, "{what}: expected {expected:?}, last seen {last:?} (class, TTL, ECN, came out)");
    };
    becomes("as Linux", (0, 64, 1, true));
    for (more, what, expected) in [
        ("[srv6]\nrfc = true\n", "as the RFCs", (0xb9, 63, 3, false)),
        ("[srv6]\n", "as Linux again", (0, 64, 1, true)),
    ] {
        configure(more);
        trieline_testbed::command::run(&format!("kill -HUP {}", daemon.pid())).ok();
        becomes(what, expected);
    }
}
