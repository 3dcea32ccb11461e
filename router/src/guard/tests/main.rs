//! Packets that may pass to the kernel from a port with tenants, filters or SID hooks, which the kernel does not know. The tests run for
//! both map types.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/mod.rs"]
mod common;
mod foreign;
mod tunnels;

use std::collections::BTreeMap;

use common::cases::*;
use common::filters::*;
use common::packet::*;
use common::program::{pin, returning};
use common::srv6::*;
use common::*;
use trieline_lpm::Table;
use trieline_router::{
    Action, CsidMap, Csids, Endpoint, Filter, FilterAction, Flavours, PassReason, PortFlags, SidHook, Steps,
    Target,
};
use trieline_testbed::needs_root;

const FILTERED: PortFlags = PortFlags { filter: true, ..ALL };
const SID_HOOKS: PortFlags = PortFlags { sid_hook: true, ..ALL };
const TENANT: PortFlags = PortFlags { tenant: true, ..ALL };
const ALL_HOSTS: [u8; 6] = [0xff; 6];

/// Routes of a node with SIDs; set 0 holds what filters drop, by source.
fn bench(map_type: trieline_router::ImageMapType) -> Bench {
    let srv6 = srv6_routes(&adjacency(LO), [0, 1]);
    let mut all = routes(LO);
    all.extend(srv6.iter().map(|(prefix, action)| (prefix.as_str(), action.clone())));
    all.extend([
        ("fd00:b::1", Action::endpoint(Endpoint::End, Target::Port)),
        (
            "fd00:c:1::/48",
            Action::Endpoint {
                endpoint: Endpoint::End,
                flavours: Flavours::next_csid(4, 2),
                target: Target::Port,
            },
        ),
        ("fd00:b::6", Action::endpoint(Endpoint::EndDt6, Target::Lookup(1))),
        ("fd00:b::7", Action::endpoint(Endpoint::EndDt6, Target::Lookup(1))),
        ("fd00:b::8", Action::Pass(PassReason::Unsupported)),
        ("2001:db8:6::2", Action::Pass(PassReason::Local)),
    ]);
    let mut bench = Bench::new(map_type, &all);
    write_set(&mut bench, 0, &["192.0.2.9", "2001:db8:bad::/48"]);
    write_set(&mut bench, 1, &[SOURCE6]);
    bench
}

fn dropping() -> Filter {
    filter("bad", 0, FilterAction::Drop)
}

#[track_caller]
fn expect(bench: &mut Bench, flags: PortFlags, what: &str, frame: &[u8], verdict: &str) {
    bench.dataplane.set_port(LO, None, port(flags)).unwrap();
    let outcome = bench.run(frame);
    assert_eq!(outcome.counted, verdict, "{what}");
    if outcome.action == XDP_PASS {
        assert_eq!(outcome.output, frame, "{what}");
    }
}

/// Tags with id 0 lead to the packet as in the kernel, and to the filters, however many there are.
#[test]
fn tags_hide_nothing() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type);
        bench.dataplane.filters().set(&[vec![dropping()]]).unwrap();
        let bad4 = Frame::new(ipv4(SOURCE4, "203.0.113.1", 64)).bytes();
        let bad6 = Frame::new(ipv6("2001:db8:bad::1", "2001:db8:6::1", 64)).bytes();
        let good = Frame::new(ipv4("192.0.2.7", "203.0.113.1", 64)).bytes();
        for count in 0..8 {
            for kind in [0x8100, 0x88a8] {
                let tags = vec![(kind, 0xe000); count];
                let few = count <= 4;
                let reported = |verdict| if few { verdict } else { "uninspectable" };
                for (frame, verdict) in [(&bad4, "filtered"), (&bad6, "filtered"), (&good, "local")] {
                    let frame = tagged(frame, &tags);
                    expect(&mut bench, FILTERED, "filters", &frame, reported(verdict));
                }
                let frame = tagged(&Frame::new(ipv4(SOURCE4, "8.8.8.8", 64)).bytes(), &tags);
                expect(&mut bench, TENANT, "a tenant", &frame, "tenant");
                let frame = tagged(&good, &tags);
                expect(&mut bench, TENANT, "a tenant", &frame, if few { "local" } else { "tenant" });
                expect(&mut bench, SID_HOOKS, "sid_hooks", &frame, reported("local"));
                expect(&mut bench, ALL, "no guard", &frame, if few { "local" } else { "not_ip" });
            }
        }
        for bytes in 14..22 {
            let cut = &tagged(&good, &[(0x8100, 0), (0x88a8, 0)])[..bytes];
            expect(&mut bench, FILTERED, "cut tags", cut, "uninspectable");
            expect(&mut bench, TENANT, "cut tags", cut, "tenant");
        }
        // In a VLAN, too; another VLAN within it is the kernel's own device.
        bench.dataplane.set_port(LO, Some(100), port(FILTERED)).unwrap();
        for (tags, verdict) in [
            (&[(0x8100, 100)][..], "filtered"),
            (&[(0x8100, 0), (0x8100, 100)], "filtered"),
            (&[(0x8100, 100), (0x88a8, 0), (0x8100, 0)], "filtered"),
            (&[(0x8100, 100), (0x8100, 0), (0x8100, 0), (0x8100, 0), (0x8100, 0)], "uninspectable"),
            (&[(0x8100, 100), (0x8100, 7)], "no_port"),
            (&[(0x88a8, 100)], "no_port"),
        ] {
            expect(&mut bench, ALL, &format!("{tags:x?}"), &tagged(&bad4, tags), verdict);
        }
    }
}

/// Other EtherTypes than those of the link are not passed: the kernel may find packets in them.
#[test]
fn link_protocols_are_passed() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type);
        let v4 = ipv4(SOURCE4, "198.51.100.1", 64);
        for (kind, link) in [
            (0x0026, true), // a length: spanning tree, IS-IS
            (0x0806, true),
            (0x8809, true),
            (0x888e, true),
            (0x88cc, true),
            (0x88f7, true),
            (0x8847, false), // MPLS
            (0x8848, false),
            (0x8863, false), // PPPoE
            (0x8864, false),
            (0x88e5, false), // MACsec
            (0x894f, false), // NSH
            (0x6558, false), // bridged Ethernet
            (0x9100, false), // a tag that Linux does not know
        ] {
            for group in [PORT_MAC, ALL_HOSTS, [1, 0x80, 0xc2, 0, 0, 0]] {
                let frame = Frame::new(v4.clone()).ether_type(kind).to(group).bytes();
                let passed = if group == PORT_MAC { "not_ip" } else { "mac_mismatch" };
                for (flags, dropped) in
                    [(FILTERED, "uninspectable"), (SID_HOOKS, "uninspectable"), (TENANT, "tenant")]
                {
                    let verdict = if link { passed } else { dropped };
                    expect(&mut bench, flags, &format!("{kind:#x}"), &frame, verdict);
                }
                expect(&mut bench, ALL, &format!("{kind:#x}"), &frame, passed);
            }
        }
    }
}

/// Frames to other MAC addresses meet the filters, but for what is for all on the link.
#[test]
fn other_mac_addresses_hide_nothing() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type);
        bench.dataplane.filters().set(&[vec![dropping()]]).unwrap();
        for mac in [ALL_HOSTS, [1, 0, 0x5e, 1, 1, 1], [0x33, 0x33, 0, 0, 0, 1], [2, 0, 0, 0, 0, 77]] {
            let frame = |packet: Vec<u8>| Frame::new(packet).to(mac).bytes();
            for (source, to, filtered, tenant) in [
                (SOURCE4, "203.0.113.1", "filtered", "mac_mismatch"),
                ("192.0.2.7", "203.0.113.1", "mac_mismatch", "mac_mismatch"),
                ("192.0.2.7", "198.51.100.1", "mac_mismatch", "tenant"),
                (SOURCE4, "239.1.1.1", "filtered", "tenant"),
                (SOURCE4, "224.0.0.5", "mac_mismatch", "mac_mismatch"),
                (SOURCE4, "255.255.255.255", "mac_mismatch", "mac_mismatch"),
            ] {
                let frame = frame(ipv4(source, to, 64));
                expect(&mut bench, FILTERED, to, &frame, filtered);
                expect(&mut bench, TENANT, to, &frame, tenant);
            }
            let bad = "2001:db8:bad::1";
            for (source, to, filtered, tenant) in [
                (bad, "2001:db8:6::1", "filtered", "mac_mismatch"),
                (SOURCE6, "2001:db8:1::1", "mac_mismatch", "tenant"),
                (bad, "ff0e::1", "filtered", "tenant"),
                (bad, "ff05::2", "filtered", "tenant"),
                (bad, "ff02::1", "mac_mismatch", "mac_mismatch"),
            ] {
                let frame = frame(ipv6(source, to, 64));
                expect(&mut bench, FILTERED, to, &frame, filtered);
                expect(&mut bench, TENANT, to, &frame, tenant);
            }
            // A group of the link is not one to whom a tunnel's packets go unasked; routers' protocols do.
            for (protocol, verdict) in [
                (4, "filtered"),
                (41, "filtered"),
                (47, "filtered"),
                (89, "mac_mismatch"),
                (103, "mac_mismatch"),
            ] {
                let to_group = edit_ipv4(ipv4(SOURCE4, "224.0.0.5", 64), |p| p[9] = protocol);
                expect(&mut bench, FILTERED, &format!("protocol {protocol}"), &frame(to_group), verdict);
                let to_group = outer(bad, "ff02::5", protocol, 64, &[0; 40]);
                expect(&mut bench, FILTERED, &format!("next header {protocol}"), &frame(to_group), verdict);
            }
            // A SID, which the kernel would do.
            bench.dataplane.filters().set(&[vec![], vec![], vec![], vec![dropping()]]).unwrap();
            let bound = BTreeMap::from([("fd00:b::6".parse().unwrap(), SidHook::Filter(3))]);
            bench.dataplane.sid_hooks().set(&bound).unwrap();
            let inner = ipv6(bad, "2001:db8:1::1", 64);
            let to_sid = frame(outer(SOURCE6, "fd00:b::6", 41, 64, &inner));
            expect(&mut bench, SID_HOOKS, "a SID", &to_sid, "filtered");
            // A filter of the port that passes the packet says nothing of the one inside.
            let passing = filter("management", 1, FilterAction::Pass);
            let lists = [vec![passing], vec![], vec![], vec![dropping()]];
            bench.dataplane.filters().set(&lists).unwrap();
            let both = PortFlags { filter: true, ..SID_HOOKS };
            expect(&mut bench, both, "a SID, from a source that is passed", &to_sid, "filtered");
            let harmless = frame(outer(SOURCE6, "fd00:b::6", 41, 64, &ipv6(SOURCE6, "2001:db8:1::1", 64)));
            expect(&mut bench, both, "a SID with a harmless packet", &harmless, "filter");
            bench.dataplane.filters().set(&[vec![dropping()]]).unwrap();
        }
        // An address that is local in the kernel's own tables alone is not the tenant's, whatever else is odd about it.
        let apart = trieline_router::Port { table4: 4, table6: 5, ..port(TENANT) };
        let (four, six): ([(_, u32); 0], [(_, u32); 0]) = ([], []);
        Table::<u32>::create(&mut bench.image, 4, four).unwrap();
        Table::<u128>::create(&mut bench.image, 5, six).unwrap();
        bench.dataplane.set_port(LO, None, apart).unwrap();
        for mac in [PORT_MAC, ALL_HOSTS] {
            for packet in [
                ipv4(SOURCE4, "203.0.113.1", 64),
                ipv4("240.1.1.1", "203.0.113.1", 64),
                ipv6(SOURCE6, "2001:db8:6::1", 64),
                ipv6("fe80::9", "2001:db8:6::1", 64),
            ] {
                let frame = Frame::new(packet).to(mac).bytes();
                assert_eq!(bench.run(&frame).counted, "tenant", "{frame:02x?}");
            }
        }
    }
}

/// A tenant reaches no other router by way of the node's own addresses.
#[test]
fn nothing_is_routed_out_of_a_tenants_local_packets() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type);
        let own6 = "2001:db8:6::1";
        let payload = ipv6(SOURCE6, "2001:db8:1::1", 64);
        let segments = |left| srh(58, left, &["2001:db8:1::1", own6], &[0; 8]);
        let options = |next: u8, rest: &[u8]| [&[next, 0, 1, 4, 0, 0, 0, 0], rest].concat();
        for (what, packet, verdict) in [
            ("plain", ipv6(SOURCE6, own6, 64), "local"),
            ("behind options", outer(SOURCE6, own6, 60, 64, &options(58, &[0; 8])), "local"),
            ("a later fragment", outer(SOURCE6, own6, 44, 64, &[43, 0, 0, 8, 0, 0, 0, 1, 9, 9]), "local"),
            ("a segment left", outer(SOURCE6, own6, 43, 64, &segments(1)), "tenant"),
            ("behind options", outer(SOURCE6, own6, 60, 64, &options(43, &segments(1))), "tenant"),
            ("to link-local", outer(SOURCE6, "fe80::1", 43, 64, &segments(1)), "tenant"),
            ("IPv6 inside", outer(SOURCE6, own6, 41, 64, &payload), "tenant"),
            ("GRE", outer(SOURCE6, own6, 47, 64, &[0, 0, 0x86, 0xdd]), "tenant"),
            ("first fragment of SRH", outer(SOURCE6, own6, 44, 64, &[43, 0, 0, 1, 0, 0, 0, 1]), "tenant"),
            ("cut options", outer(SOURCE6, own6, 60, 64, &[]), "tenant"),
        ] {
            expect(&mut bench, TENANT, what, &Frame::new(packet).bytes(), verdict);
        }
        for protocol in [4, 41, 47, 103, 108, 115, 137] {
            for to in ["203.0.113.1", "224.0.0.13"] {
                let packet = edit_ipv4(ipv4(SOURCE4, to, 64), |p| p[9] = protocol);
                expect(&mut bench, TENANT, "a tunnel", &Frame::new(packet).bytes(), "tenant");
            }
            let packet = outer(SOURCE6, own6, protocol, 64, &payload);
            expect(&mut bench, TENANT, "a tunnel", &Frame::new(packet).bytes(), "tenant");
        }
        // Groups beyond the link, which a multicast router forwards.
        for (packet, verdict) in [
            (ipv4(SOURCE4, "224.0.0.5", 1), "ipv4_special_purpose"),
            (ipv4(SOURCE4, "224.0.1.1", 64), "tenant"),
            (ipv4(SOURCE4, "239.255.255.250", 64), "tenant"),
            (ipv6(SOURCE6, "ff02::5", 1), "ipv6_special_purpose"),
            (ipv6(SOURCE6, "ff12::5", 1), "ipv6_special_purpose"),
            (ipv6(SOURCE6, "ff05::1", 64), "tenant"),
            (ipv6(SOURCE6, "ff0e::1", 64), "tenant"),
            (ipv6(SOURCE6, "ff3e::1", 64), "tenant"),
        ] {
            expect(&mut bench, TENANT, "a group", &Frame::new(packet).bytes(), verdict);
        }
    }
}

/// The kernel cuts packets to their length and puts fragments together: what follows the packet in its frame says nothing. So a first
/// fragment has to hold all headers.
#[test]
fn a_trailer_hides_nothing() {
    needs_root!();
    let (own, bound) = ("2001:db8:6::1", "fd00:b::6");
    let frame = |packet: Vec<u8>| Frame::new(packet).bytes();
    // A packet of this much, and what follows it.
    let short = |packet: Vec<u8>, payload: usize| {
        [&packet[..4], &(payload as u16).to_be_bytes(), &packet[6..]].concat()
    };
    let options = |next: u8, eights: u8| {
        let mut header = vec![next, eights, 1, 4, 0, 0, 0, 0];
        header.resize(8 + 8 * usize::from(eights), 0);
        header
    };
    let fragment = |next: u8, offset: u16, more: u8| {
        [&[next, 0][..], &(offset | u16::from(more)).to_be_bytes(), &[0, 0, 0, 1]].concat()
    };
    let icmp = vec![128, 0, 0, 0, 0, 1, 0, 1];
    // The second fragment has a second header that leads to an SRH; the trailer has one that leads nowhere.
    let harmless = [fragment(60, 0, 1), options(60, 1), options(58, 0), icmp.clone()].concat();
    let whole = [fragment(60, 0, 1), options(58, 0), icmp.clone()].concat();
    let via = srh(58, 1, &[bound, own], &icmp);
    let six = |next: u8, rest: &[u8]| outer(SOURCE6, own, next, 64, rest);
    let no_length = [options(58, 0), icmp.clone()].concat();
    let cases = [
        // The answers for tenants, and for functions.
        ("a header goes on in the next fragment", short(six(44, &harmless), 16), "tenant", "uninspectable"),
        ("a header begins in it", short(six(44, &harmless), 24), "tenant", "uninspectable"),
        ("the protocol begins in it", short(six(44, &whole), 16), "tenant", "uninspectable"),
        ("all are in the first", short(six(44, &whole), 24), "local", "local"),
        (
            "not a fragment, cut",
            short(six(60, &[options(58, 1), icmp.clone()].concat()), 8),
            "tenant",
            "uninspectable",
        ),
        (
            "an SRH behind the packet",
            short(six(60, &[options(43, 0), via.clone()].concat()), 8),
            "tenant",
            "uninspectable",
        ),
        ("the end of an SRH behind it", short(six(43, &via), 24), "tenant", "uninspectable"),
        ("a later fragment", six(44, &[fragment(60, 8, 0), options(43, 0)].concat()), "local", "local"),
        ("more than the frame has", short(six(60, &no_length), 400), "ipv6_length", "ipv6_length"),
        ("no length, hop by hop", short(six(0, &no_length), 0), "local", "local"),
        ("no length, an SRH", short(six(0, &[options(43, 0), via].concat()), 0), "tenant", "uninspectable"),
        (
            "no length, a first fragment",
            short(six(0, &[options(44, 0), fragment(0, 0, 1), options(17, 0)].concat()), 0),
            "tenant",
            "uninspectable",
        ),
        ("no length, other options", short(six(60, &no_length), 0), "tenant", "uninspectable"),
    ];
    for map_type in map_types() {
        let mut bench = bench(map_type);
        bench.dataplane.filters().set(&[vec![], vec![], vec![], vec![dropping()]]).unwrap();
        // A program: whatever reaches the SID from inside is dropped.
        bench
            .dataplane
            .sid_hooks()
            .set(&BTreeMap::from([(bound.parse().unwrap(), SidHook::Program(1))]))
            .unwrap();
        for (what, packet, tenant, sid_hook) in &cases {
            let passed = |verdict: &'static str| match (verdict, packet[6]) {
                ("local", 0) => "ipv6_hop_by_hop",
                (verdict, _) => verdict,
            };
            let verdict = if passed(tenant) == "ipv6_hop_by_hop" { "tenant" } else { tenant };
            expect(&mut bench, TENANT, what, &frame(packet.clone()), verdict);
            expect(&mut bench, SID_HOOKS, what, &frame(packet.clone()), passed(sid_hook));
        }
        // The segment itself: behind the packet it is not read.
        let mut far = srh(58, 1, &[own], &[]);
        far[3] = 2;
        far.extend(bound.parse::<std::net::Ipv6Addr>().unwrap().octets());
        for (payload, verdict) in [(24, "uninspectable"), (32, "uninspectable"), (40, "uninspectable")] {
            expect(&mut bench, SID_HOOKS, "a far segment", &frame(short(six(43, &far), payload)), verdict);
        }
        // Packets inside: none ends later than what is around it, and Linux does not look at their version.
        bench
            .dataplane
            .sid_hooks()
            .set(&BTreeMap::from([(bound.parse().unwrap(), SidHook::Filter(3))]))
            .unwrap();
        let bad = ipv6("2001:db8:bad::1", "2001:db8:1::1", 64);
        let nested = |sid: &str, inner: &[u8]| outer(SOURCE6, sid, 41, 64, inner);
        let to_bound = nested(bound, &bad);
        let mut version = to_bound.clone();
        version[0] = 0x45;
        for (what, packet, verdict) in [
            ("an inner packet", nested("fd00:b::7", &to_bound), "filtered"),
            ("of another version", nested("fd00:b::7", &version), "filtered"),
            ("that says it is shorter", nested("fd00:b::7", &short(to_bound.clone(), 0)), "uninspectable"),
            ("that says it is longer", nested("fd00:b::7", &short(to_bound.clone(), 900)), "filtered"),
            ("cut by the outer one", short(nested("fd00:b::7", &to_bound), 60), "uninspectable"),
            ("cut in its header", short(nested("fd00:b::7", &to_bound), 30), "uninspectable"),
            ("behind the packet", short(nested(bound, &bad), 0), "sid_hook_headers"),
            ("half behind the packet", short(nested(bound, &bad), 20), "sid_hook_headers"),
        ] {
            expect(&mut bench, SID_HOOKS, what, &frame(packet), verdict);
        }
    }
}

/// A SID's hook also holds for packets that reach the SID from within the kernel.
#[test]
fn sid_hooks_hold_for_sids_reached_from_inside() {
    needs_root!();
    let bound = "fd00:b::6";
    let inner = |source: &str| ipv6(source, "2001:db8:1::1", 64);
    let frame = |packet: Vec<u8>| Frame::new(packet).bytes();
    let via = |sids: &[&str], left: u8, inner: &[u8]| {
        outer(SOURCE6, sids.last().unwrap(), 43, 64, &srh(41, left, sids, inner))
    };
    let nested = |sid: &str, inner: &[u8]| outer(SOURCE6, sid, 41, 64, inner);
    let options = |packet: &[u8]| {
        let mut with = outer(SOURCE6, "fd00:b::1", 60, 64, &[packet[6], 0, 1, 4, 0, 0, 0, 0]);
        with.extend(&packet[40..]);
        let payload = (with.len() - 40) as u16;
        with[4..6].copy_from_slice(&payload.to_be_bytes());
        with
    };
    // The verdict without a hook.
    let cases = |source: &str| {
        let inner = inner(source);
        vec![
            ("End, then the SID", via(&[bound, "fd00:b::1"], 1, &inner), "seg6_next"),
            ("two Ends", via(&[bound, "fd00:b::1", "fd00:b::1"], 2, &inner), "seg6_next"),
            ("a local address, then the SID", via(&[bound, "2001:db8:6::1"], 1, &inner), "local"),
            ("a SID of the kernel's", via(&[bound, "fd00:b::8"], 1, &inner), "unsupported"),
            ("nested", nested("fd00:b::7", &nested(bound, &inner)), "seg6_inner_no_route"),
            (
                "nested behind an SRH",
                via(&["fd00:b::7", "fd00:b::1"], 0, &nested(bound, &inner)),
                "no_segment",
            ),
            (
                "nested, then End",
                nested("fd00:b::7", &via(&[bound, "fd00:b::1"], 1, &inner)),
                "seg6_inner_no_route",
            ),
            (
                "twice nested",
                nested("fd00:b::7", &nested("fd00:b::7", &nested(bound, &inner))),
                "seg6_inner_no_route",
            ),
            ("hidden by options", options(&via(&[bound, "fd00:b::1"], 1, &inner)), "seg6_headers"),
        ]
    };
    let csid = |source: &str| {
        let mut packet = nested("fd00:b::1", &inner(source));
        // The step leads to fd00:c:6::, which is bound.
        let to: std::net::Ipv6Addr = "fd00:c:1:6::".parse().unwrap();
        packet[24..40].copy_from_slice(&to.octets());
        packet
    };
    for map_type in map_types() {
        let mut bench = bench(map_type);
        let lists = [vec![], vec![], vec![], vec![dropping()]];
        bench.dataplane.filters().set(&lists).unwrap();
        for (sid_hook, bad, good) in [
            (None, None, None),
            (Some(SidHook::Filter(3)), Some("filtered"), None),
            (Some(SidHook::Program(1)), Some("uninspectable"), Some("uninspectable")),
            (Some(SidHook::Pcap(5)), None, None),
        ] {
            let map = |sid: &str| sid_hook.map(|sid_hook| (sid.parse().unwrap(), sid_hook)).into_iter();
            let map = map(bound).chain(map("fd00:c:6::")).collect();
            bench.dataplane.sid_hooks().set(&map).unwrap();
            if sid_hook == Some(SidHook::Program(1)) {
                let path = bench.fs.path().join(format!("goes-on-{map_type}"));
                pin(&returning(64, true), &path);
                bench.dataplane.sid_hooks().set_program(1, &path).unwrap();
            }
            for (source, reported) in [("2001:db8:bad::1", bad), (SOURCE6, good)] {
                for (what, packet, free) in cases(source) {
                    // A drop is what it was.
                    let reported = reported.filter(|_| free != "no_segment").unwrap_or(free);
                    expect(&mut bench, SID_HOOKS, what, &frame(packet), reported);
                }
                let reported = reported.unwrap_or("seg6_next");
                expect(&mut bench, SID_HOOKS, "NEXT-C-SID", &frame(csid(source)), reported);
            }
        }
        // Packets that cannot be followed to their end are dropped; plain ones are not.
        let map = BTreeMap::from([(bound.parse().unwrap(), SidHook::Filter(3))]);
        bench.dataplane.sid_hooks().set(&map).unwrap();
        let deep = (0..12).fold(inner(SOURCE6), |packet, _| nested("fd00:b::7", &packet));
        let far: Vec<&str> = std::iter::repeat_n("fd00:b::1", 50).collect();
        let other = srh(41, 1, &["2001:db8:6::1", "2001:db8:6::1"], &inner(SOURCE6));
        let mut other = outer(SOURCE6, "2001:db8:6::1", 43, 64, &other);
        other[42] = 3;
        for (what, packet, verdict) in [
            ("nested too often", deep, "seg6_inner_no_route"),
            ("too many segments", via(&far, 49, &inner(SOURCE6)), "uninspectable"),
            ("another routing header", other, "uninspectable"),
            ("a local packet", ipv6(SOURCE6, "2001:db8:6::1", 64), "local"),
            (
                "a later fragment",
                outer(SOURCE6, "2001:db8:6::1", 44, 64, &[17, 0, 0, 8, 0, 0, 0, 1]),
                "local",
            ),
        ] {
            expect(&mut bench, SID_HOOKS, what, &frame(packet), verdict);
        }
    }
}

/// The kernel makes the steps of NEXT-C-SID whatever the XDP program may do with the SID. The SID is in another table, or left to the
/// kernel.
#[test]
fn steps_of_next_csid_are_known_without_their_route() {
    needs_root!();
    let bad = "2001:db8:bad::1";
    let to = |address: &str, source: &str| {
        Frame::new(outer(SOURCE6, address, 41, 64, &ipv6(source, "2001:db8:1::1", 64))).bytes()
    };
    let prefix = |text: &str| text.parse::<trieline_lpm::Prefix<u128>>().unwrap();
    let steps = |block, node_function| Steps::Next { block, node_function };
    for map_type in map_types() {
        let mut bench = bench(map_type);
        bench.dataplane.filters().set(&[vec![], vec![], vec![], vec![dropping()]]).unwrap();
        let bound = BTreeMap::from([("fd00:d:6::".parse().unwrap(), SidHook::Filter(3))]);
        bench.dataplane.sid_hooks().set(&bound).unwrap();
        let addresses = ["fd00:d:1:6::", "fd00:d:1:2:6::", "fd00:d:1:1:1:6::"];
        for (known, said) in [
            (vec![], ["no_route"; 3]),
            (vec![("fd00:d:1::/48", steps(4, 2))], ["filtered", "no_route", "filtered"]),
            (vec![("fd00:d:1::/48", steps(4, 2)), ("fd00:d:2::/48", steps(4, 2))], ["filtered"; 3]),
            (vec![("fd00:d:1::/48", steps(4, 4))], ["no_route", "filtered", "no_route"]),
            // The longest prefix; and what is not known leads anywhere.
            (
                vec![("fd00:d:1::/48", steps(4, 2)), ("fd00:d:1:1::/64", Steps::Unknown)],
                ["filtered", "no_route", "uninspectable"],
            ),
            (vec![("::/0", Steps::Unknown)], ["uninspectable"; 3]),
        ] {
            let known: CsidMap = known.into_iter().map(|(text, steps)| (prefix(text), steps)).collect();
            bench.dataplane.csids().set(&known).unwrap();
            for (address, said) in addresses.iter().zip(said) {
                expect(&mut bench, SID_HOOKS, address, &to(address, bad), said);
                let good = if said == "filtered" { "no_route" } else { said };
                expect(&mut bench, SID_HOOKS, address, &to(address, SOURCE6), good);
                expect(&mut bench, ALL, address, &to(address, bad), "no_route");
            }
        }
        // More than there is room for: nothing is known of any address but those of the link.
        let many = (0..=Csids::MAX as u128).map(|number| trieline_lpm::Prefix::host(number << 64));
        bench.dataplane.csids().set(&many.map(|prefix| (prefix, steps(4, 2))).collect()).unwrap();
        for (address, said) in [
            ("fd00:d:9::", "uninspectable"),
            ("2001:db8:6::1", "uninspectable"),
            ("ff02::1", "ipv6_special_purpose"),
        ] {
            let frame = Frame::new(ipv6(SOURCE6, address, 64)).bytes();
            expect(&mut bench, SID_HOOKS, address, &frame, said);
        }
        bench.dataplane.csids().set(&CsidMap::new()).unwrap();
        expect(&mut bench, SID_HOOKS, "none again", &to("fd00:d:1:6::", bad), "no_route");
    }
}
