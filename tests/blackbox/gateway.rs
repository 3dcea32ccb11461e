//! SRv6 beside policy rules and tables. First segments and next hops are looked up as the kernel looks them up for the packets of the
//! route.

use crate::srv6::{MARKER, compare};
use trieline_testbed::bed::{Bed, until_counts};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{craft, eventually, needs_root, packets};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

fn four(to: &str) -> Vec<u8> {
    craft::ipv4("10.0.0.2", to, MARKER, |_| {})
}

fn six(to: &str) -> Vec<u8> {
    craft::ipv6("fd00::2", to, (17, &craft::udp(MARKER)), |_| {})
}

/// A packet at its SID, with two segments left or none.
fn at(sid: &str, left: u8, next: (u8, &[u8])) -> Vec<u8> {
    let list = if left == 0 { vec![sid, "fd00:e::9"] } else { vec!["fd00:e::9", "fd00:e::8", sid] };
    craft::ipv6("fd00::2", sid, (43, &craft::srh(&list, left, next)), |_| {})
}

/// The bed with its neighbours resolved, and these commands of `ip` in the node.
fn bed(commands: &[&str]) -> Bed {
    let bed = Bed::new();
    bed.warm();
    commands.iter().for_each(|command| drop(bed.node.ip(command)));
    bed
}

/// Headends, cross-connects and bindings, and a packet for each.
const ROUTES: [&str; 12] = [
    "-6 route add fd00:e::/32 via fd00:1::2",
    "-6 route add fd00:77::/64 via fd00:1::2",
    "route add 10.9.9.9/32 via 10.1.0.2",
    "sr tunsrc set fd00:1::1",
    "route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1",
    "-6 route add fd50::/32 encap seg6 mode encap segs fd00:e::1,fd00:e::2 dev n1",
    "-6 route add fd51::/32 encap seg6 mode inline segs fd00:e::1 dev n1",
    "-6 route add fd00:c::12 encap seg6local action End.X nh6 fd00:77::1 dev n1",
    "-6 route add fd00:c::20 encap seg6local action End.DX6 nh6 fd00:77::1 dev n1",
    "-6 route add fd00:c::21 encap seg6local action End.DX4 nh4 10.9.9.9 dev n1",
    "-6 route add fd00:c::30 encap seg6local action End.B6 srh segs fd00:e::1,fd00:e::2 dev n1",
    "-6 route add fd00:c::31 encap seg6local action End.B6.Encaps srh segs fd00:e::1,fd00:e::2 dev n1",
];

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    let inner = four("10.77.0.1");
    vec![
        ("H.Encaps of IPv4", four("10.50.0.1")),
        ("H.Encaps of IPv6", six("fd50::1")),
        ("H.Insert", six("fd51::1")),
        ("End.X", at("fd00:c::12", 2, (4, &inner))),
        ("End.DX6", at("fd00:c::20", 0, (41, &six("fd60::1")))),
        ("End.DX4", at("fd00:c::21", 0, (4, &inner))),
        ("End.B6", at("fd00:c::30", 2, (4, &inner))),
        ("End.B6.Encaps", at("fd00:c::31", 2, (4, &inner))),
    ]
}

/// Other tables have routes to everything: no rule asks them, or none for these packets.
#[test]
fn tables_that_no_rule_asks_change_nothing() {
    needs_root!();
    let bed = bed(&ROUTES);
    for command in [
        "route add default via 10.2.0.2 table 100",
        "-6 route add default via fd00:2::2 table 100",
        "route add default via 10.2.0.2 table 101",
        "-6 route add default via fd00:2::2 table 101",
        "rule add pref 101 to 10.77.0.0/16 lookup 101",
        "-6 rule add pref 101 to fd77::/16 lookup 101",
        // another device's packets go no further than table 101
        "rule add pref 102 iif n2 lookup 101",
        "-6 rule add pref 102 iif n2 lookup 101",
    ] {
        bed.node.ip(command);
    }
    compare(&bed, &cases());
    // They come to the SIDs of main, once it has no default route, and from there to other next hops than those of n0.
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let packet = at("fd00:c::21", 0, (4, &four("10.77.0.1")));
    let becomes = |what: &str, passed: usize| {
        until_counts(what, (passed, 1, 0), || bed.send_ip(&packet, MARKER).counts());
    };
    becomes("with a default route", 0);
    bed.node.ip("-6 route del default table 101");
    becomes("without it", 1);
    bed.node.ip("-6 route add default via fd00:2::2 table 101");
    becomes("with it again", 0);
}

/// Rules send outer packets another way than main's, by their destination or by their source, which is known.
#[test]
fn outer_packets_follow_the_rules() {
    needs_root!();
    let bed = bed(&ROUTES);
    for command in [
        "-6 route add default via fd00:2::2 table 100",
        "route add default via 10.2.0.2 table 100",
        "-6 rule add pref 100 to fd00:e::1/128 lookup 100",
        "-6 rule add pref 101 to fd00:77::/64 lookup 100",
        "rule add pref 101 to 10.9.9.9 lookup 100",
        // by source: some outer packets
        "-6 route add fd00:f::/32 via fd00:1::2",
        "-6 rule add pref 102 from fd00:1::1/128 to fd00:f::/32 lookup 100",
        "route add 10.52.0.0/16 encap seg6 mode encap segs fd00:f::1 dev n1",
        "-6 route add fd52::/32 encap seg6 mode encap.red segs fd00:f::1 dev n1",
    ] {
        bed.node.ip(command);
    }
    let mut cases = cases();
    cases.extend([("by the outer source", four("10.52.0.1")), ("likewise, over IPv6", six("fd52::1"))]);
    compare(&bed, &cases);
}

/// The usual steering by source: a customer's packets meet a table of their own, and what is made of them does not.
#[test]
fn customers_are_steered_by_source() {
    needs_root!();
    let bed = bed(&[
        "-6 route add fd00:e::/32 via fd00:1::2",
        "sr tunsrc set fd00:1::1",
        "rule add pref 100 from 10.0.0.0/24 lookup 100",
        "-6 rule add pref 100 from fd00::/64 lookup 100",
        "route add default encap seg6 mode encap segs fd00:e::1 dev n1 table 100",
        "-6 route add default encap seg6 mode encap segs fd00:e::2 dev n1 table 100",
    ]);
    compare(&bed, &[("IPv4", four("10.50.0.1")), ("IPv6", six("fd50::1"))]);
}

/// Whose packets go which way is not known beforehand: they are the kernel's, and everything says why.
#[test]
fn ways_that_depend_on_the_packet_are_the_kernels() {
    needs_root!();
    let bed = bed(&ROUTES);
    for command in [
        "-6 route add default via fd00:2::2 table 100",
        "-6 rule add pref 100 from fd00::/64 to fd00:77::/64 lookup 100",
        // the kernel looks this one up on the link that a packet came in by
        "-6 route add fd00:c::40 encap seg6local action End.X nh6 fe80::77 dev n1",
    ] {
        bed.node.ip(command);
    }
    let packet = at("fd00:c::12", 2, (4, &four("10.77.0.1")));
    let kernel = bed.send_ip(&packet, MARKER);
    assert_eq!(kernel.counts(), (1, 0, 1));
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let xdp = bed.send_ip(&packet, MARKER);
    assert_eq!((xdp.counts(), &xdp.side), (kernel.counts(), &kernel.side));
    let strict = bed.send_ip(&at("fd00:c::40", 2, (4, &four("10.77.0.1"))), MARKER);
    assert_eq!(strict.counts(), (1, 0, 0));
    let shown = trieline(&bed.node, "-6 route show").ok();
    for expected in [
        "[pass unsupported rules choose the route to fd00:77::1 by the packets' source",
        "[pass unsupported Linux looks fe80::77 up on the link that a packet came in by",
    ] {
        assert!(shown.contains(expected), "{expected}: not in {shown}");
    }
}

/// An IPv6 route by the loopback rejects its packets, whatever it encapsulates. So XDP forwards none of them either.
#[test]
fn routes_by_the_loopback_reject() {
    needs_root!();
    let bed = bed(&["-6 route add fd00:e::/32 via fd00:1::2", "-6 route add fd60::/32 via fd00:1::2"]);
    bed.node.ip("sr tunsrc set fd00:1::1");
    for (prefix, encap) in [
        ("fd50::/32", "seg6 mode encap segs fd00:e::1"),
        ("fd00:c::10", "seg6local action End"),
        ("fd00:c::12", "seg6local action End.X nh6 fd00:1::2"),
        ("fd00:c::14", "seg6local action End.T table 254"),
        ("fd00:c::20", "seg6local action End.DX6 nh6 fd00:1::2"),
        ("fd00:c::22", "seg6local action End.DT6 table 254"),
    ] {
        bed.node.ip(&format!("-6 route add {prefix} encap {encap} dev lo"));
    }
    // IPv4 has no such rule
    bed.node.ip("route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1 dev lo");
    let on = |sid| at(sid, 2, (4, &four("10.77.0.1")));
    let inside = |sid| at(sid, 0, (41, &six("fd60::1")));
    let rejected = [
        six("fd50::1"),
        on("fd00:c::10"),
        on("fd00:c::12"),
        on("fd00:c::14"),
        inside("fd00:c::20"),
        inside("fd00:c::22"),
    ];
    for packet in &rejected {
        assert_eq!(bed.send_ip(packet, MARKER).counts(), (1, 0, 0), "through the kernel");
    }
    compare(&bed, &[("IPv4", four("10.50.0.1"))]);
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for packet in &rejected {
        assert_eq!(bed.send_ip(packet, MARKER).counts(), (1, 0, 0), "with XDP");
    }
    let shown = trieline(&bed.node, "-6 route show").ok();
    let count = shown.matches("[pass unreachable an IPv6 route by the loopback rejects its packets").count();
    assert_eq!(count, rejected.len(), "{shown}");
}

/// One of two ways is by a device that is not given to trielined: all flows are the kernel's, and so keep their shares.
#[test]
fn ways_beside_one_of_the_kernels_keep_their_shares() {
    needs_root!();
    const FLOWS: u8 = 100;
    let bed = bed(&[
        "route add 10.60.0.0/16 nexthop via 10.1.0.2 nexthop via 10.2.0.2",
        "route add 10.61.0.0/16 nexthop via 10.1.0.2 nexthop via 10.1.0.3 dev n1",
        "neigh add 10.1.0.3 lladdr 02:00:00:00:00:11 dev n1 nud permanent",
    ]);
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1");
    let counts = |net: &str| {
        let packets: Vec<_> = (1..=FLOWS).map(|flow| four(&format!("{net}.{flow}"))).collect();
        let send = || packets.iter().for_each(|packet| packets::send_ip(&bed.generator, packet));
        bed.watch(MARKER, send).counts()
    };
    assert!(eventually(5.0, || counts("10.61.0") == (0, FLOWS.into(), 0)), "{:?}", counts("10.61.0"));
    let (passed, sink, side) = counts("10.60.0");
    assert_eq!((passed, sink + side), (FLOWS.into(), FLOWS.into()));
    let why = "one of several ways is the kernel's, and so are all, for flows to keep their shares";
    assert!(trieline(&bed.node, "route show").ok().contains(why));
    assert!(trieline(&bed.node, "node status").ok().contains(why));
}
