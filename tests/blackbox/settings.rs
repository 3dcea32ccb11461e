//! Settings beside the routes that change what the kernel does with a packet: MTUs of one family, IPsec policies, what outer
//! headers are made from. Each is set before the daemon starts or while it runs; packets fare as through the kernel alone.

use crate::bypass::{has, nft};
use trieline_testbed::bed::{Bed, Counts, Seen, until_counts};
use trieline_testbed::daemon::{Daemon, status};
use trieline_testbed::packets::send_ip;
use trieline_testbed::{craft, eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const MARKER: &[u8] = b"as set";

fn routed_bed() -> Bed {
    let bed = Bed::routed();
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed
}

/// Waits until a packet goes as expected: (passed, sink, side).
#[track_caller]
fn becomes(bed: &Bed, what: &str, packet: &[u8], counts: Counts) {
    until_counts(what, counts, || bed.send_ip(packet, MARKER).counts());
}

fn hex(frames: &[Vec<u8>]) -> Vec<String> {
    frames.iter().map(|frame| frame.iter().map(|byte| format!("{byte:02x}")).collect()).collect()
}

fn ipv4(destination: &str) -> Vec<u8> {
    craft::ipv4("10.0.0.2", destination, MARKER, |_| {})
}

fn ipv6(destination: &str, payload: &[u8]) -> Vec<u8> {
    craft::ipv6("fd00::2", destination, (17, &craft::udp(payload)), |_| {})
}

/// `net.ipv6.conf.DEV.mtu` is what IPv6 is forwarded by, the device's own MTU is not.
#[test]
fn the_mtu_of_ipv6_holds() {
    needs_root!();
    let bed = routed_bed();
    bed.node.ip("sr tunsrc set fd00:1::1");
    bed.node.ip("route add 10.60.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1");
    let payload =
        |len: usize| MARKER.iter().copied().chain(std::iter::repeat(0)).take(len).collect::<Vec<_>>();
    let plain = |len: usize| ipv6("fd50::1", &payload(len - 48));
    // 64 bytes of outer headers around it
    let wrapped = |len: usize| craft::ipv4("10.0.0.2", "10.60.0.1", &payload(len - 64 - 28), |_| {});
    let _daemon = Daemon::start(&bed.node, DEVICES);
    becomes(&bed, "the device's MTU", &plain(1400), (0, 1, 0));
    becomes(&bed, "the device's MTU, outer packet", &wrapped(1400), (0, 1, 0));
    bed.node.sysctl("net.ipv6.conf.n1.mtu", "1300");
    becomes(&bed, "longer than IPv6's MTU", &plain(1301), (1, 0, 0));
    becomes(&bed, "as long as IPv6's MTU", &plain(1300), (0, 1, 0));
    becomes(&bed, "outer packet longer than IPv6's MTU", &wrapped(1301), (1, 0, 0));
    becomes(&bed, "outer packet as long as IPv6's MTU", &wrapped(1300), (0, 1, 0));
    // IPv4 is not concerned, and the kernel answers a sender of too large packets.
    let long = craft::ipv4("10.0.0.2", "10.50.0.1", &payload(1400), |_| {});
    becomes(&bed, "IPv4", &long, (0, 1, 0));
    let reported = bed.generator.run("ping -n -M do -s 1400 -c 1 -W 2 fd00:1::2");
    assert!(reported.stdout.to_lowercase().contains("too big: mtu=1300"), "{reported:?}");
    bed.node.sysctl("net.ipv6.conf.n1.mtu", "1500");
    becomes(&bed, "the device's MTU again", &plain(1400), (0, 1, 0));
}

/// The MTU of an on-link route is that of the packets to its neighbours.
#[test]
fn the_mtu_of_an_on_link_route_holds() {
    needs_root!();
    let bed = Bed::routed();
    let sized = |len: usize| {
        let payload = MARKER.iter().copied().chain(std::iter::repeat(0)).take(len - 28).collect::<Vec<_>>();
        craft::ipv4("10.0.0.2", "10.1.0.2", &payload, |header| header[6] = 0x40)
    };
    let _daemon = Daemon::start(&bed.node, DEVICES);
    becomes(&bed, "the link's MTU", &sized(1400), (0, 1, 0));
    bed.node.ip("route replace 10.1.0.0/24 dev n1 src 10.1.0.1 mtu 1300");
    becomes(&bed, "longer than the route's MTU", &sized(1400), (1, 0, 0));
    becomes(&bed, "as long as it", &sized(1300), (0, 1, 0));
    // another route to the same neighbour has its own
    bed.node.ip("route add 10.1.0.2 dev n1 mtu 1450");
    becomes(&bed, "within the longer prefix's MTU", &sized(1400), (0, 1, 0));
    becomes(&bed, "longer than that", &sized(1451), (1, 0, 0));
}

/// The kernel drops what comes from an address of its own, with or without a reverse path filter, and knows of exceptions. It gets
/// all of that.
#[test]
fn packets_from_own_addresses_are_the_kernels() {
    needs_root!();
    let bed = routed_bed();
    let from = |source: &str| craft::ipv4(source, "10.50.0.1", MARKER, |_| {});
    let _daemon = Daemon::start(&bed.node, DEVICES);
    becomes(&bed, "from another's address", &from("10.1.0.9"), (0, 1, 0));
    becomes(&bed, "from the output device's", &from("10.1.0.1"), (1, 0, 0));
    becomes(&bed, "from a broadcast address", &from("10.1.0.255"), (1, 1, 0));
    bed.node.ip("addr add 10.1.0.9/32 dev lo");
    becomes(&bed, "from a new address", &from("10.1.0.9"), (1, 0, 0));
    bed.node.ip("addr del 10.1.0.9/32 dev lo");
    becomes(&bed, "from an address that was the node's", &from("10.1.0.9"), (0, 1, 0));
    // a whole prefix: then every source is looked up
    bed.node.ip("route add local 10.9.0.0/16 dev lo");
    becomes(&bed, "from a local prefix", &from("10.9.1.1"), (1, 0, 0));
    becomes(&bed, "from beside it", &from("10.8.1.1"), (0, 1, 0));
    bed.node.ip("route del local 10.9.0.0/16 dev lo");
    // A rule of netfilter for packets to that address leaves those to the kernel, and hides the address from nothing else.
    if has(&bed.node, "nft list ruleset") {
        let hook = "type filter hook forward priority 0;";
        nft(
            &bed.node,
            &format!("table ip fw {{\n chain forward {{\n {hook}\n ip daddr 10.1.0.1 drop\n }}\n}}"),
        );
        let is_known = || status(&bed.node)["bypassed"].as_array().is_some_and(|rules| !rules.is_empty());
        assert!(eventually(5.0, is_known), "{}", status(&bed.node));
        becomes(&bed, "from an address that a rule names", &from("10.1.0.1"), (1, 0, 0));
        becomes(&bed, "from a neighbour's address", &from("10.1.0.9"), (0, 1, 0));
        nft(&bed.node, "flush ruleset");
    }
    bed.node.sysctl("net.ipv4.conf.n0.accept_local", "1");
    becomes(&bed, "own addresses are accepted", &from("10.1.0.1"), (1, 1, 0));
}

/// The kernel answers for proxied addresses: neighbour solicitations that would be forwarded to them are its own, all else is not.
#[test]
fn proxied_neighbours_are_answered() {
    needs_root!();
    let bed = routed_bed();
    let asks = |destination: &str| {
        let target =
            "fd50::1".parse::<std::net::Ipv6Addr>().map(|address| address.octets()).unwrap_or_default();
        let message = [&[135, 0, 0, 0, 0, 0, 0, 0], &target[..], MARKER, &[0, 0]].concat();
        craft::ipv6("fd00::2", destination, (58, &message), |header| header[7] = 255)
    };
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.node.ip("neigh add proxy fd50::1 dev n0");
    becomes(&bed, "nothing is proxied", &asks("fd50::1"), (0, 1, 0));
    bed.node.sysctl("net.ipv6.conf.n0.proxy_ndp", "1");
    bed.node.sysctl("net.ipv6.conf.all.proxy_ndp", "1");
    becomes(&bed, "to a proxied address", &asks("fd50::1"), (1, 0, 0));
    becomes(&bed, "to another", &asks("fd50::2"), (1, 1, 0));
    becomes(&bed, "data", &ipv6("fd50::1", MARKER), (0, 1, 0));
    bed.node.sysctl("net.ipv6.conf.all.proxy_ndp", "0");
    bed.node.sysctl("net.ipv6.conf.n0.proxy_ndp", "0");
    becomes(&bed, "nothing is proxied any more", &asks("fd50::1"), (0, 1, 0));
}

/// While the kernel keeps to path MTUs that it learnt, IPv4 is its own.
#[test]
fn path_mtus_are_the_kernels() {
    needs_root!();
    let bed = routed_bed();
    let reason = |family: usize| status(&bed.node)["families"][family]["reason"].to_string();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    becomes(&bed, "by the route's MTU", &ipv4("10.50.0.1"), (0, 1, 0));
    bed.node.sysctl("net.ipv4.ip_forward_use_pmtu", "1");
    becomes(&bed, "by path MTUs", &ipv4("10.50.0.1"), (1, 1, 0));
    assert!(reason(0).contains("ip_forward_use_pmtu"), "{}", reason(0));
    becomes(&bed, "IPv6", &ipv6("fd50::1", MARKER), (0, 1, 0));
    bed.node.sysctl("net.ipv4.ip_forward_use_pmtu", "0");
    becomes(&bed, "by the route's MTU again", &ipv4("10.50.0.1"), (0, 1, 0));
}

/// Packets that IPsec policies block or encrypt must meet them: the family is the kernel's while there are any.
#[test]
fn ipsec_policies_hold() {
    needs_root!();
    let bed = routed_bed();
    if bed.node.try_ip("xfrm policy count").code != 0 {
        println!("EXPECTED SKIP: xfrm: this kernel has none");
        return;
    }
    let reason = |family: usize| status(&bed.node)["families"][family]["reason"].to_string();
    let (v4, v6) = (ipv4("10.50.0.1"), ipv6("fd50::1", MARKER));
    let block = |dir: &str, from: &str, to: &str| {
        format!("xfrm policy add src {from} dst {to} dir {dir} action block")
    };
    // (1) there before the daemon
    bed.node.ip(&block("fwd", "10.0.0.0/24", "10.50.0.0/16"));
    let _daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!(bed.send_ip(&v4, MARKER).counts(), (1, 0, 0), "a blocked packet");
    assert!(reason(0).contains("IPsec"), "{}", reason(0));
    // The other family is not concerned.
    becomes(&bed, "IPv6 beside a policy of IPv4", &v6, (0, 1, 0));
    // (2) released when it is gone
    bed.node.ip("xfrm policy flush");
    becomes(&bed, "no policies", &v4, (0, 1, 0));
    assert_eq!(reason(0), "null");
    // (3) made while the daemon runs, in the other direction and family; one for local packets does no harm
    bed.node.ip(&block("out", "fd00::/64", "fd50::/32"));
    bed.node.ip(&block("in", "10.0.0.0/24", "10.0.0.1/32"));
    becomes(&bed, "a blocked packet of IPv6", &v6, (1, 0, 0));
    becomes(&bed, "IPv4 beside a policy of IPv6", &v4, (0, 1, 0));
    bed.node.ip("xfrm policy flush");
    becomes(&bed, "no policies of IPv6", &v6, (0, 1, 0));
    // (4) no policy at all, but what none allows is blocked
    if bed.node.try_ip("xfrm policy setdefault fwd block").code == 0 {
        becomes(&bed, "blocked by default", &v4, (1, 0, 0));
        bed.node.ip("xfrm policy setdefault fwd accept");
        becomes(&bed, "allowed by default", &v4, (0, 1, 0));
    }
}

/// `rp_filter` 1 is strict; every other value than 0 is loose.
#[test]
fn reverse_path_filters_beyond_two_are_loose() {
    needs_root!();
    let bed = routed_bed();
    let spoofed = craft::ipv4("10.2.0.9", "10.50.0.1", MARKER, |_| {});
    let unrouted = craft::ipv4("192.0.2.9", "10.50.0.1", MARKER, |_| {});
    bed.node.sysctl("net.ipv4.conf.n0.rp_filter", "3");
    let arrived = || [&spoofed, &unrouted].map(|packet| bed.send_ip(packet, MARKER).sink.len());
    assert_eq!(arrived(), [1, 0], "the kernel alone: another net's source, a source without route");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!(arrived(), [1, 0], "with XDP: another net's source, a source without route");
    becomes(&bed, "an honest source", &ipv4("10.50.0.1"), (0, 1, 0));
}

/// Strict: of several ways back to the source, one by the packet's device is enough.
#[test]
fn reverse_path_filters_know_several_ways() {
    needs_root!();
    let bed = routed_bed();
    bed.warm();
    let ways = |prefix: &str, first: &str, second: &str| {
        bed.node.ip(&format!("route add {prefix} nexthop via {first} nexthop via {second}"));
    };
    ways("192.0.2.0/24", "10.0.0.2", "10.2.0.2");
    ways("198.51.100.0/24", "10.1.0.2", "10.2.0.2");
    let from = |source: &str| craft::ipv4(source, "10.50.0.1", MARKER, |_| {});
    let packets = ["192.0.2.9", "192.0.2.10", "192.0.2.11", "198.51.100.9", "198.51.100.10"].map(from);
    let seen = || packets.each_ref().map(|packet| bed.send_ip(packet, MARKER).counts());
    bed.node.sysctl("net.ipv4.conf.n0.rp_filter", "1");
    let sinks = |seen: [Counts; 5]| seen.map(|counts| counts.1);
    assert_eq!(sinks(seen()), [1, 1, 1, 0, 0], "the kernel alone");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    becomes(&bed, "an honest source", &ipv4("10.50.0.1"), (0, 1, 0));
    // The kernel drops those that no way leads back for.
    assert_eq!(seen(), [(0, 1, 0), (0, 1, 0), (0, 1, 0), (1, 0, 0), (1, 0, 0)], "with XDP");
}

/// A setting tells flows apart, and may change while the daemon runs: by addresses alone, or by ports too.
#[test]
fn flows_are_hashed_as_configured() {
    needs_root!();
    let bed = routed_bed();
    bed.node.ip("route add 10.70.0.0/16 nexthop via 10.1.0.2 nexthop via 10.2.0.2");
    bed.warm();
    let packets = (0..24).map(|port| {
        let mut packet = ipv4("10.70.0.1");
        packet[20..22].copy_from_slice(&(2000u16 + port).to_be_bytes());
        packet
    });
    let packets: Vec<_> = packets.collect();
    let counts = || {
        let seen = bed.watch(MARKER, || packets.iter().for_each(|packet| send_ip(&bed.generator, packet)));
        seen.counts()
    };
    bed.node.sysctl("net.ipv4.fib_multipath_hash_policy", "0");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    becomes(&bed, "an honest source", &ipv4("10.50.0.1"), (0, 1, 0));
    let one_way = |counts| matches!(counts, (0, 24, 0) | (0, 0, 24));
    assert!(one_way(counts()), "by addresses: {:?}", counts());
    bed.node.sysctl("net.ipv4.fib_multipath_hash_policy", "1");
    let spread = |(passed, sink, side): Counts| passed == 0 && sink + side == 24 && sink > 0 && side > 0;
    assert!(eventually(5.0, || spread(counts())), "by ports: {:?}", counts());
    bed.node.sysctl("net.ipv4.fib_multipath_hash_policy", "0");
    assert!(eventually(5.0, || one_way(counts())), "by addresses again: {:?}", counts());
}

/// Outer headers where the route or a setting decides what is in them. XDP writes the kernel's bytes or leaves it to the
/// kernel, also when the setting changes while the daemon runs.
#[test]
fn outer_headers_are_as_set() {
    needs_root!();
    let bed = routed_bed();
    // (1) a preferred source, which only packets of the node itself take
    bed.node.ip("-6 addr add fd00:99::1/128 dev lo");
    bed.node.ip("-6 route add fd00:f::/32 via fd00:1::2 dev n1 src fd00:99::1");
    bed.node.ip("route add 10.60.0.0/16 encap seg6 mode encap segs fd00:f::1 dev n1");
    // (2) hop limits: of the route, of the device, of a device that is not the daemon's
    bed.node.ip("link add d0 type veth peer name d1");
    bed.node.ip("link set d0 up");
    bed.node.ip("link set d1 up");
    bed.node.ip("-6 addr add fd00:d::1/64 dev d0 nodad");
    bed.node.sysctl("net.ipv6.conf.n1.hop_limit", "33");
    bed.node.sysctl("net.ipv6.conf.d0.hop_limit", "44");
    bed.node.ip("route add 10.61.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1 hoplimit 20");
    bed.node.ip("route add 10.62.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1");
    bed.node.ip("route add 10.63.0.0/16 encap seg6 mode encap segs fd00:e::1 dev d0");
    // (3) and IPv6, whose flow label may be the outer packet's
    bed.node.ip("-6 route add fd60::/32 encap seg6 mode encap segs fd00:e::1 dev n1");
    let labelled = |destination| {
        craft::ipv6("fd00::2", destination, (17, &craft::udp(MARKER)), |header| header[3] = 0x99)
    };
    let packets = [
        ("preferred source", ipv4("10.60.0.1")),
        ("hop limit of the route", ipv4("10.61.0.1")),
        ("hop limit of the device", ipv4("10.62.0.1")),
        ("hop limit of another device", ipv4("10.63.0.1")),
        ("IPv6 with a flow label", labelled("fd60::1")),
    ];
    let sent = || packets.each_ref().map(|(_, packet)| bed.send_ip(packet, MARKER));
    let label = |setting: &str| bed.node.sysctl("net.ipv6.seg6_flowlabel", setting);
    let kernel = ["0", "1", "-1"].map(|setting| {
        label(setting);
        (setting, sent())
    });
    // A label by hash is one, and no other than for the flow's next packet. The hash decides which one; its key is the kernel's secret.
    let reported = |setting: &str, seen: &Seen| {
        let mut frames = seen.sink.clone();
        for frame in frames.iter_mut().filter(|_| setting == "1") {
            let label = u32::from_be_bytes([0, frame[15] & 0xf, frame[16], frame[17]]);
            (frame[15], frame[16], frame[17]) = (frame[15] & 0xf0, 0, u8::from(label != 0));
        }
        hex(&frames)
    };
    let hop_limits = [32, 19, 32, 43, 63];
    assert_eq!(kernel[0].1.each_ref().map(|seen| seen.sink[0][14 + 7]), hop_limits);
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for (setting, kernel) in &kernel {
        label(setting);
        let mut xdp = None;
        // The daemon reads settings without notifications once a second.
        let equal = eventually(5.0, || {
            let seen = sent();
            let same = seen
                .iter()
                .zip(kernel)
                .all(|(xdp, kernel)| reported(setting, xdp) == reported(setting, kernel));
            xdp = Some(seen);
            same
        });
        for ((name, _), (xdp, kernel)) in packets.iter().zip(xdp.iter().flatten().zip(kernel)) {
            let (kernel, xdp) = (reported(setting, kernel), reported(setting, xdp));
            assert_eq!(kernel, xdp, "{name}, seg6_flowlabel {setting}: kernel's left");
        }
        assert!(equal);
    }
    // (4) what XDP can do it does: with a source that is set, all of them
    label("0");
    bed.node.ip("sr tunsrc set fd00:1::1");
    for ((name, packet), hop_limit) in packets.iter().zip(hop_limits) {
        becomes(&bed, name, packet, (0, 1, 0));
        assert_eq!(bed.send_ip(packet, MARKER).sink[0][14 + 7], hop_limit, "{name}: hop limit");
    }
}
