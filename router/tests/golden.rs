//! Golden packets: frame in, verdict, frame out, counter, for both map types.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;

use common::cases::*;
use common::packet::*;
use common::rfc::*;
use common::srv6::*;
use common::*;
use trieline_router::{
    Action, Endpoint, Filter, FilterAction, FilterMatch, FilterRule, Headend, ImageMapType, Kind, PortFlags,
    SidHook, Target, VERDICTS,
};
use trieline_testbed::needs_root;

fn check(bench: &Bench, case: &Case) {
    let outcome = bench.run(&case.input);
    let kind = VERDICTS.iter().find(|v| v.name == case.verdict).map(|v| v.kind);
    let action = match kind {
        Some(Kind::Forward) => XDP_REDIRECT,
        Some(Kind::Pass) => XDP_PASS,
        Some(Kind::Drop) => XDP_DROP,
        None => panic!("{}: no verdict is named {}", case.description, case.verdict),
    };
    assert_eq!(outcome.counted, case.verdict, "{}", case.description);
    assert_eq!(outcome.action, action, "{}", case.description);
    // The kernel gets the frame that came in.
    let expected = case.output.as_ref().unwrap_or(&case.input);
    assert_eq!(
        &outcome.output, expected,
        "{}\n got {:02x?}\nwant {expected:02x?}",
        case.description, outcome.output
    );
}

/// Ports with something off, tags, and broken maps; these need their own settings.
fn special_cases(bench: &mut Bench) -> Vec<&'static str> {
    let mut seen = Vec::new();
    let v4 = ipv4(SOURCE4, "198.51.100.1", 64);
    let v6 = ipv6(SOURCE6, "2001:db8:1::1", 64);
    let encap = Frame::new(ipv4(SOURCE4, "10.1.2.3", 64)).bytes();
    let decap = Frame::new(outer(SOURCE6, SID, 4, 64, &v4)).bytes();
    let mut run = |bench: &mut Bench, flags: PortFlags, case: Case| {
        bench.dataplane.set_port(LO, None, port(flags)).unwrap();
        check(bench, &case);
        seen.push(case.verdict);
    };
    let plain4 = Frame::new(v4.clone()).bytes();
    let plain6 = Frame::new(v6.clone()).bytes();
    let no4 = PortFlags { forward4: false, ..ALL };
    let no6 = PortFlags { forward6: false, ..ALL };
    let no_seg6 = PortFlags { seg6: false, ..ALL };
    let loose = PortFlags { rpf_loose: true, ..ALL };
    let strict = PortFlags { rpf_strict: true, ..ALL };
    run(bench, no4, case("IPv4 forwarding off", plain4.clone(), "forwarding_off"));
    run(bench, no6, case("IPv6 forwarding off", plain6.clone(), "forwarding_off"));
    run(bench, no4, case("no forwarding after decapsulation", decap.clone(), "forwarding_off"));
    run(bench, no_seg6, case("no decapsulation", decap.clone(), "seg6_off"));
    run(bench, no_seg6, case("no encapsulation", encap.clone(), "seg6_off"));
    run(bench, no6, case("no IPv6, no encapsulation", encap, "seg6_off"));
    let from = |source: &str| Frame::new(ipv4(source, "198.51.100.1", 64)).bytes();
    let out = |source: &str| sent(&[], &hop(&ipv4(source, "198.51.100.1", 64)));
    run(bench, loose, case("source has no route", from("8.8.8.8"), "reverse_path"));
    for (filter, source) in
        [(loose, "203.0.113.6"), (strict, "203.0.113.6"), (loose, "203.0.113.2"), (strict, "203.0.113.3")]
    {
        run(bench, filter, case("source has a route that rejects", from(source), "source_blackhole"));
        let own = Frame::new(ipv4(source, "203.0.113.1", 64)).bytes();
        run(bench, filter, case("a connection of the node's own may have it", own, "reverse_path"));
    }
    run(bench, loose, sends("source is routed", from("198.51.100.9"), "ipv4", out("198.51.100.9")));
    run(bench, loose, sends("elsewhere", from("203.0.113.8"), "ipv4", out("203.0.113.8")));
    run(bench, strict, case("source is routed elsewhere", from("203.0.113.8"), "reverse_path"));
    run(bench, strict, case("source is routed by a VLAN", from("198.51.100.200"), "reverse_path"));
    run(bench, strict, sends("source is routed here", from("198.51.100.9"), "ipv4", out("198.51.100.9")));
    let from6 = |source: &str| Frame::new(ipv6(source, "2001:db8:1::1", 64)).bytes();
    let out6 = sent(&[], &hop(&ipv6("2001:db8:ffff::1", "2001:db8:1::1", 64)));
    run(bench, strict, sends("IPv6 has no filter", from6("2001:db8:ffff::1"), "ipv6", out6));
    let inner_from =
        |s: &str| Frame::new(outer("2001:db8:1::2", SID, 4, 64, &ipv4(s, "198.51.100.1", 64))).bytes();
    run(bench, loose, case("inner source has no route", inner_from("8.8.8.8"), "reverse_path"));
    run(
        bench,
        loose,
        sends("inner source is routed", inner_from("198.51.100.9"), "end_dx4", out("198.51.100.9")),
    );

    // Filters; tests/filter.rs has the rest.
    let by = |action: FilterAction| Filter {
        rule: FilterRule::new(action.to_string(), FilterMatch::Source, action),
        table4: Some(2),
        table6: None,
        counter: 0,
    };
    trieline_lpm::Table::<u32>::create(&mut bench.image, 2, [("192.0.2.9/32".parse().unwrap(), 1)]).unwrap();
    let filter = PortFlags { filter: true, ..ALL };
    bench.dataplane.filters().set(&[vec![by(FilterAction::Drop)]]).unwrap();
    run(bench, filter, case("a filter drops", plain4.clone(), "filtered"));
    run(bench, ALL, sends("a port without filters", plain4.clone(), "ipv4", sent(&[], &hop(&v4))));
    bench.dataplane.filters().set(&[vec![by(FilterAction::Pass)]]).unwrap();
    run(bench, filter, case("a filter passes", plain4.clone(), "filter"));
    bench.dataplane.filters().set(&[]).unwrap();

    // SID hooks; tests/sid_hook.rs has the rest.
    let sid_hook = PortFlags { sid_hook: true, ..ALL };
    let bound = std::collections::BTreeMap::from([(SID.parse().unwrap(), SidHook::Program(1))]);
    bench.dataplane.sid_hooks().set(&bound).unwrap();
    run(bench, sid_hook, case("no program is there", decap.clone(), "sid_hook_missing"));
    for (value, verdict) in
        [(1, "sid_hook_drop"), (2, "sid_hook_pass"), (4, "sid_hook_redirect"), (0, "sid_hook_bad_return")]
    {
        let path = bench.fs.path().join(verdict);
        program::pin(&program::returning(value, true), &path);
        bench.dataplane.sid_hooks().set_program(1, &path).unwrap();
        run(bench, sid_hook, case("a program of the user's", decap.clone(), verdict));
    }
    let filtered = std::collections::BTreeMap::from([(SID.parse().unwrap(), SidHook::Filter(2))]);
    bench.dataplane.sid_hooks().set(&filtered).unwrap();
    let later_fragment = [&[4, 0, 0, 8, 0, 0, 0, 1], &v4[..]].concat();
    let hidden = Frame::new(outer(SOURCE6, SID, 44, 64, &later_fragment)).bytes();
    run(bench, sid_hook, case("what is inside cannot be seen", hidden, "sid_hook_headers"));
    bench.dataplane.sid_hooks().set(&Default::default()).unwrap();

    // tests/guard.rs has the rest.
    let mpls = Frame::new(v4.clone()).ether_type(0x8847).bytes();
    run(bench, filter, case("what filters do not see", mpls, "uninspectable"));

    // A tagged port.
    bench.dataplane.set_port(LO, Some(100), port(ALL)).unwrap();
    let tagged_in = |p: &[u8], vid| Frame::new(p.to_vec()).vlan(vid).bytes();
    let to_tag = ipv4(SOURCE4, "198.51.100.200", 64);
    let over = ipv4(SOURCE4, "10.1.2.3", 64);
    run(bench, ALL, sends("a tag is taken off", tagged_in(&v4, 100), "ipv4", sent(&[], &hop(&v4))));
    run(bench, ALL, sends("with a priority", tagged_in(&v6, 0xe064), "ipv6", sent(&[], &hop(&v6))));
    run(bench, ALL, sends("a tag is changed", tagged_in(&to_tag, 100), "ipv4", sent(&[100], &hop(&to_tag))));
    run(
        bench,
        ALL,
        sends(
            "untagged encapsulation",
            tagged_in(&over, 100),
            "h_encaps_ipv4",
            sent(&[], &encapsulated(&over)),
        ),
    );
    run(
        bench,
        ALL,
        sends(
            "tagged decapsulation",
            tagged_in(&outer(SOURCE6, SID, 4, 64, &v4), 100),
            "end_dx4",
            sent(&[], &hop(&v4)),
        ),
    );
    bench.dataplane.clear_port(LO, Some(100)).unwrap();
    run(bench, ALL, case("the VLAN is gone", tagged_in(&v4, 100), "no_port"));

    // No daemon has followed the kernel's routes for long; filters are asked all the same.
    bench.dataplane.beat(Some(std::time::Duration::ZERO)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    run(bench, ALL, case("old tables", plain4.clone(), "stale"));
    run(bench, ALL, case("old tables, IPv6", plain6.clone(), "stale"));
    bench.dataplane.filters().set(&[vec![by(FilterAction::Drop)]]).unwrap();
    run(bench, filter, case("old tables, and a filter", plain4.clone(), "filtered"));
    bench.dataplane.filters().set(&[]).unwrap();
    bench.dataplane.beat(None).unwrap();

    // A tenant that the kernel does not know.
    let tenant = PortFlags { tenant: true, ..ALL };
    run(bench, tenant, sends("a tenant's packet", plain4.clone(), "ipv4", sent(&[], &hop(&v4))));
    run(bench, tenant, sends("also IPv6", plain6.clone(), "ipv6", sent(&[], &hop(&v6))));
    let to = |destination: &str| Frame::new(ipv4(SOURCE4, destination, 64)).bytes();
    run(bench, tenant, case("a tenant's packet without a route", to("8.8.8.8"), "tenant"));
    run(bench, tenant, case("an unresolved next hop", to("203.0.113.4"), "tenant"));
    run(bench, tenant, case("a blackhole is one", to("203.0.113.6"), "blackhole"));
    run(bench, tenant, case("the node's own address", to("203.0.113.1"), "local"));
    run(
        bench,
        tenant,
        case("to all on the link", [&[0xff; 6][..], &to("224.0.0.5")[6..]].concat(), "mac_mismatch"),
    );
    let four = |from: &str, to: &str| Frame::new(ipv4(from, to, 64)).bytes();
    let six = |from: &str, to: &str| Frame::new(ipv6(from, to, 64)).bytes();
    for (from, to, verdict) in [
        ("0.0.0.0", "255.255.255.255", "ipv4_special_purpose"),
        (SOURCE4, "224.0.0.5", "ipv4_special_purpose"),
        ("240.1.1.1", "198.51.100.1", "tenant"),
        ("0.1.2.3", "198.51.100.1", "tenant"),
        (SOURCE4, "240.0.0.1", "tenant"),
        ("0.1.2.3", "203.0.113.1", "ipv4_special_purpose"),
    ] {
        run(bench, tenant, case("a tenant's special address", four(from, to), verdict));
    }
    for (from, to, verdict) in [
        ("::", "ff02::1", "ipv6_special_purpose"),
        (SOURCE6, "fe80::1", "ipv6_special_purpose"),
        ("::2", "2001:db8:1::1", "tenant"),
        ("fe80::9", "2001:db8:1::1", "tenant"),
        ("fe80::9", "fd00:a::1", "tenant"),
        ("fe80::9", "2001:db8:6::1", "ipv6_special_purpose"),
    ] {
        run(bench, tenant, case("a tenant's special address, IPv6", six(from, to), verdict));
    }
    // Local by the tenant's own table is not local to the kernel.
    let own = bench.dataplane.actions().alloc().unwrap();
    bench.dataplane.actions().set(own, &Action::Pass(trieline_router::PassReason::Local)).unwrap();
    let both = ["8.8.8.8/32", "203.0.113.1/32"].map(|prefix| (prefix.parse().unwrap(), own));
    trieline_lpm::Table::<u32>::create(&mut bench.image, 3, both).unwrap();
    let apart = trieline_router::Port { table4: 3, ..port(tenant) };
    bench.dataplane.set_port(LO, None, apart).unwrap();
    check(bench, &case("local to the tenant's table only", to("8.8.8.8"), "tenant"));
    check(bench, &case("local to both", to("203.0.113.1"), "local"));
    let off = PortFlags { forward4: false, ..tenant };
    run(bench, off, case("forwarding off", to("198.51.100.1"), "tenant"));

    // No table, no action, no port.
    let nowhere = trieline_router::Port { table4: 7, table6: 1 << 30, ..port(ALL) };
    bench.dataplane.set_port(LO, None, nowhere).unwrap();
    check(bench, &case("no such table", plain4.clone(), "no_route"));
    check(bench, &case("table number out of range", plain6.clone(), "no_route"));
    bench.dataplane.set_port(LO, None, port(ALL)).unwrap();
    let id = (1..255)
        .find(|id| bench.dataplane.actions().get(*id) == Some(Action::Forward(adjacency(LO))))
        .unwrap();
    bench.dataplane.actions().release(id);
    let mut grace = bench.dataplane.grace();
    let ticket = trieline_lpm::Grace::begin(&mut grace);
    trieline_lpm::Grace::wait(&mut grace, ticket);
    bench.dataplane.actions().reclaim();
    check(bench, &case("released action", plain4.clone(), "no_action"));
    seen.push("no_action");
    bench.dataplane.clear_port(LO, None).unwrap();
    // Another port has the counters of the one that is gone.
    bench.dataplane.set_port(LO, Some(200), port(ALL)).unwrap();
    check(bench, &case("port is gone", plain4, "no_port"));
    check(bench, &case("port is gone, a tag is cut", tagged_in(&v4, 200)[..16].to_vec(), "no_port"));
    let ports = bench.dataplane.counters().unwrap().ports;
    assert_eq!(ports.len(), 1);
    assert!(ports[0].counts.iter().all(|count| count.packets == 0), "packets of no port: {ports:?}");
    bench.dataplane.clear_port(LO, Some(200)).unwrap();
    seen.push("no_port");
    seen
}

/// An outer header larger than the 256 bytes in front of a frame that is too long to be moved.
fn headroom(map_type: ImageMapType) -> [&'static str; 2] {
    let segments: Vec<String> = (1..=16).map(|i| format!("fd00:2::{i}")).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let long = outer("fd00:1::1", "fd00:2::16", 43, 63, &srh(4, 15, &segments, &[]));
    let adjacency = trieline_router::Adjacency { mtu: 9000, ..adjacency(LO) };
    let action = Action::Encaps { adjacency, outer: long, headend: Headend::default() };
    let bench = Bench::new(map_type, &[("10.1.0.0/16", action)]);
    let large = Frame::new(ipv4_of(SOURCE4, "10.1.2.3", 64, 2100)).bytes();
    check(&bench, &case("no room for the outer header", large.clone(), "no_headroom"));
    let padded = [large, vec![0xee; 14]].concat();
    check(&bench, &case("nor is its padding cut then", padded, "no_headroom"));
    // A damaged length, beyond the longest header there can be: room is made, then nothing can be written there.
    let used = (0..256).find(|index| bench.element("adjacencies", *index)[6..8] != [0, 0]).unwrap();
    let mut record = bench.element("adjacencies", used);
    record[6..8].copy_from_slice(&570_u16.to_ne_bytes());
    bench.set_element("adjacencies", used, &record);
    let small = Frame::new(ipv4(SOURCE4, "10.1.2.3", 64)).bytes();
    assert_eq!(bench.run(&small).counted, "rewrite_failed");
    ["no_headroom", "rewrite_failed"]
}

/// Frames of several buffers: the program sees only the first, and must not lose the rest.
fn jumbo(bench: &Bench) -> &'static str {
    let large = |destination| ipv4_of(SOURCE4, destination, 64, 8000);
    let (plain, over) = (large("198.18.0.1"), large("198.19.0.1"));
    let v6 = ipv6_of(SOURCE6, "2001:db8:9::1", 64, 8000);
    let frame = frame_of;
    let decap = outer(SOURCE6, "fd00:a::9", 4, 64, &plain);
    // `lo` is given, but takes frames of one buffer only.
    for packet in [&plain, &v6, &over, &decap] {
        check(bench, &case("jumbo to a device that takes none", frame(packet), "xdp_frags"));
    }
    let small = ipv4(SOURCE4, "198.18.0.1", 64);
    check(bench, &sends("one buffer", frame(&small), "ipv4", sent(&[], &hop(&small))));
    bench.set_element("jumbo_devices", LO, &LO.to_ne_bytes());
    check(bench, &sends("jumbo", frame(&plain), "ipv4", sent(&[], &hop(&plain))));
    check(bench, &sends("jumbo IPv6", frame(&v6), "ipv6", sent(&[], &hop(&v6))));
    check(
        bench,
        &sends("jumbo, encapsulated", frame(&over), "h_encaps_ipv4", sent(&[], &encapsulated(&over))),
    );
    check(bench, &sends("jumbo, decapsulated", frame(&decap), "end_dx4", sent(&[], &hop(&plain))));
    let longer = edit_ipv4(plain, |p| p[3] += 1);
    check(bench, &case("jumbo with too large a total length", frame(&longer), "ipv4_length"));
    let padded = [frame(&over), vec![0xee; 5000]].concat();
    check(bench, &sends("what follows is cut", padded, "h_encaps_ipv4", sent(&[], &encapsulated(&over))));
    let over_mtu = [frame(&small), vec![0xee; 9000]].concat();
    check(bench, &sends("what is beyond the MTU is cut", over_mtu, "ipv4", sent(&[], &hop(&small))));
    let short = ipv4(SOURCE4, "198.19.0.1", 64);
    let padded = [frame(&short), vec![0xee; 8000]].concat();
    let expected = sent(&[], &encapsulated(&short));
    check(bench, &sends("also from the first buffer on", padded, "h_encaps_ipv4", expected));
    "xdp_frags"
}

/// BIG TCP: more than the length fields can say, so they say 0.
fn beyond_the_length_field(bench: &Bench) {
    let grown = |packet: &[u8], bytes: usize| {
        let mut packet = packet.to_vec();
        packet.resize(bytes, 7);
        Frame::new(packet).bytes()
    };
    let v4 = edit_ipv4(ipv4(SOURCE4, "198.18.0.1", 64), |p| p[2..4].fill(0));
    let mut v6 = ipv6(SOURCE6, "2001:db8:9::1", 64);
    v6[4..6].fill(0);
    check(bench, &case("IPv4 of 64 KiB", grown(&v4, 65_536), "too_big"));
    check(bench, &case("IPv4 of more", grown(&v4, 70_000), "too_big"));
    check(bench, &case("IPv4 that could have said it", grown(&v4, 65_535), "ipv4_length"));
    check(bench, &case("small IPv4 without a length", grown(&v4, 46), "ipv4_length"));
    check(bench, &case("IPv6 longer than a payload length can be", grown(&v6, 65_576), "too_big"));
    check(bench, &case("IPv6 of more", grown(&v6, 70_000), "too_big"));
    let nothing = v6[..40].to_vec();
    let padded = [frame_of(&nothing), vec![0; 6]].concat();
    check(bench, &sends("IPv6 without payload", padded, "ipv6", sent(&[], &hop(&nothing))));
}

/// `[srv6] rfc = true`; and a port that does as Linux leaves the inner ECN alone.
fn by_the_rfcs(map_type: ImageMapType) -> Vec<&'static str> {
    let srv6 = [srv6_routes(&adjacency(LO), [0, 1]), rfc_routes(&adjacency(LO))].concat();
    let srv6: Vec<_> = srv6.iter().map(|(prefix, action)| (prefix.as_str(), action.clone())).collect();
    let mut bench = Bench::new(map_type, &[routes(LO), srv6].concat());
    for case in rfc_decap_cases() {
        let outcome = bench.run(&case.input);
        assert_eq!(outcome.action, XDP_REDIRECT, "{}", case.description);
        let inner = &case.input[14 + 40..];
        assert_eq!(outcome.output, sent(&[], &hop(inner)), "as Linux: {}", case.description);
    }
    bench.dataplane.set_port(LO, None, port(PortFlags { ecn: true, ..ALL })).unwrap();
    let cases = [rfc_headend_cases(), rfc_decap_cases()].concat();
    cases.iter().for_each(|case| check(&bench, case));
    cases.into_iter().map(|case| case.verdict).collect()
}

fn frame_of(packet: &[u8]) -> Vec<u8> {
    Frame::new(packet.to_vec()).bytes()
}

/// Frames larger than a page, to a device that is given.
fn jumbo_frames(map_type: ImageMapType) -> &'static str {
    let adjacency = || trieline_router::Adjacency { mtu: 9000, ..adjacency(LO) };
    let routes = [
        ("198.18.0.0/16", Action::Forward(adjacency())),
        (
            "198.19.0.0/16",
            Action::Encaps { adjacency: adjacency(), outer: template(), headend: Headend::default() },
        ),
        ("2001:db8:9::/48", Action::Forward(adjacency())),
        ("fd00:a::9", Action::endpoint(Endpoint::EndDx4, Target::Adjacency(adjacency()))),
    ];
    let bench = Bench::new(map_type, &routes);
    let seen = jumbo(&bench);
    beyond_the_length_field(&bench);
    seen
}

/// A packet with TCP or UDP behind its IP header. Its checksum is that of the pseudo header alone, as a sender leaves it to a device.
fn csum_partial(mut packet: Vec<u8>, protocol: u8) -> Vec<u8> {
    let v4 = packet[0] >> 4 == 4;
    let (l4, addresses) = if v4 { (20, 12..20) } else { (40, 8..40) };
    if v4 {
        packet = edit_ipv4(packet, |p| p[9] = protocol);
    } else {
        packet[6] = protocol;
    }
    let words = packet[addresses].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum: u32 = words.sum::<u32>() + u32::from(protocol) + (packet.len() - l4) as u32;
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    let at = l4 + if protocol == 6 { 16 } else { 6 };
    packet[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    packet
}

/// SCTP of the shortest length whose checksum is not there.
fn sctp() -> Vec<u8> {
    [&[0, 7, 0, 9, 1, 2, 3, 4][..], &[0; 4]].concat()
}

/// Packets with an unfinished checksum further behind, which is the last of each.
fn around_checksums() -> Vec<(&'static str, Vec<u8>)> {
    let to6 = "2001:db8:1::1";
    let behind =
        |kind: u8, header: &[u8], payload: &[u8]| outer(SOURCE6, to6, kind, 64, &[header, payload].concat());
    // UDP of eight bytes, its checksum that of the pseudo header: to the last address, without the headers before it.
    let udp4 = csum_partial(ipv4_of(SOURCE4, "198.51.100.1", 64, 0), 17);
    let udp6 = |to: &str| csum_partial(ipv6_of(SOURCE6, to, 64, 0), 17);
    let datagram = |to: &str| udp6(to)[40..].to_vec();
    let around4 = |protocol: u8, payload: &[u8]| {
        let packet = [&ipv4(SOURCE4, "198.51.100.1", 64)[..20], payload].concat();
        let length = packet.len() as u16;
        edit_ipv4(packet, |p| {
            p[2..4].copy_from_slice(&length.to_be_bytes());
            p[9] = protocol;
        })
    };
    let ethernet = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    let gre = |flags: u8, kind: [u8; 2], payload: &[u8]| {
        let words = usize::try_from((flags & 0xb0).count_ones()).unwrap();
        around4(47, &[&[flags, 0, kind[0], kind[1]][..], &vec![0; 4 * words], payload].concat())
    };
    let tagged = [&ethernet(&udp4)[..12], &[0x81, 0, 0, 7], &ethernet(&udp4)[12..]].concat();
    vec![
        ("SCTP", around4(132, &sctp())),
        ("SCTP over IPv6", behind(132, &[], &sctp())),
        ("behind destination options", behind(60, &[17, 0, 1, 4, 0, 0, 0, 0], &datagram(to6))),
        (
            "behind two of them",
            behind(60, &[60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0], &datagram(to6)),
        ),
        ("SCTP behind them", behind(60, &[132, 0, 1, 4, 0, 0, 0, 0], &sctp())),
        ("behind an SRH at its end", outer(SOURCE6, to6, 43, 64, &srh(17, 0, &[to6], &datagram(to6)))),
        (
            "to the last segment",
            outer(SOURCE6, to6, 43, 64, &srh(17, 1, &["fd00:9::9", to6], &datagram("fd00:9::9"))),
        ),
        ("IPv4 in IPv4", around4(4, &udp4)),
        ("IPv6 in IPv4", around4(41, &udp6(to6))),
        ("IPv4 in IPv6", behind(4, &[], &udp4)),
        ("under an SRH", outer(SOURCE6, to6, 43, 64, &srh(4, 0, &[to6], &udp4))),
        ("a frame", behind(143, &[], &ethernet(&udp4))),
        ("a tagged frame", behind(143, &[], &tagged)),
        ("GRE", gre(0, [8, 0], &udp4)),
        ("GRE with all fields", gre(0xb0, [0x86, 0xdd], &udp6(to6))),
        ("a frame in GRE", gre(0x20, [0x65, 0x58], &ethernet(&udp4))),
    ]
}

/// A port where senders may be near: what they have not finished is passed, and only there.
fn checksums(bench: &mut Bench) -> &'static str {
    let flags = PortFlags { csum_partial: true, ..ALL };
    for (tag, marked) in [(None, true), (Some(300), true), (None, false)] {
        let flags = if marked { flags } else { ALL };
        bench.dataplane.set_port(LO, tag, port(flags)).unwrap();
        let frame = |packet: &[u8]| match tag {
            Some(tag) => Frame::new(packet.to_vec()).vlan(tag).bytes(),
            None => frame_of(packet),
        };
        let v4 = || ipv4_of(SOURCE4, "198.51.100.1", 64, 40);
        let v6 = || ipv6_of(SOURCE6, "2001:db8:1::1", 64, 40);
        for (packet, verdict) in [(v4(), "ipv4"), (v6(), "ipv6")] {
            for protocol in [6, 17] {
                let left = csum_partial(packet.clone(), protocol);
                let expected = if marked { "csum_partial" } else { verdict };
                assert_eq!(bench.run(&frame(&left)).counted, expected, "csum_partial");
                let mut other = left;
                let last = if protocol == 6 { 17 } else { 7 } + if verdict == "ipv4" { 20 } else { 40 };
                other[last] ^= 1;
                assert_eq!(bench.run(&frame(&other)).counted, verdict, "finished");
            }
            assert_eq!(bench.run(&frame(&packet)).counted, verdict, "as it is");
        }
        let unfinished = |verdict| if marked { "csum_partial" } else { verdict };
        for (what, packet) in around_checksums() {
            let verdict = if packet[0] >> 4 == 4 { "ipv4" } else { "ipv6" };
            assert_eq!(bench.run(&frame(&packet)).counted, unfinished(verdict), "{what}");
            let mut finished = packet;
            let last = finished.len() - 1;
            finished[last] ^= 1;
            assert_eq!(bench.run(&frame(&finished)).counted, verdict, "{what}, finished");
        }
        for (port, verdict) in
            [(4789, unfinished("ipv4")), (8472, unfinished("ipv4")), (6081, unfinished("ipv4")), (53, "ipv4")]
        {
            let mut overlay = v4();
            overlay[22..24].copy_from_slice(&u16::to_be_bytes(port));
            assert_eq!(bench.run(&frame(&overlay)).counted, verdict, "to port {port}");
        }
        let fragment = |word: [u8; 2]| edit_ipv4(csum_partial(v4(), 17), |p| p[6..8].copy_from_slice(&word));
        assert_eq!(bench.run(&frame(&fragment([0x20, 0]))).counted, "ipv4", "a fragment");
        assert_eq!(bench.run(&frame(&fragment([0, 1]))).counted, "ipv4", "a later one");
        let cut = edit_ipv4(ipv4_of(SOURCE4, "198.51.100.1", 64, 0), |p| p[9] = 6);
        assert_eq!(bench.run(&frame(&cut)).counted, "ipv4", "too short for TCP");
        let local = csum_partial(ipv4_of(SOURCE4, "203.0.113.1", 64, 40), 17);
        assert_eq!(bench.run(&frame(&local)).counted, "local", "for the node itself");
    }
    bench.dataplane.clear_port(LO, Some(300)).unwrap();
    "csum_partial"
}

/// Packets that the kernel has something to say about. They go back to where a sender on the link could reach the next hop itself, or
/// ask for a neighbour. Packets that it would not answer are forwarded.
fn answered(map_type: ImageMapType) -> [&'static str; 2] {
    let srv6 = srv6_routes(&adjacency(LO), [0, 1]);
    let srv6: Vec<_> = srv6.iter().map(|(prefix, action)| (prefix.as_str(), action.clone())).collect();
    let on_link = [SOURCE4, SOURCE6, "2001:db8::5"].map(|source| (source, Action::Deliver(adjacency(LO))));
    let mut bench = Bench::new(map_type, &[routes(LO), srv6, on_link.to_vec()].concat());
    let set = |bench: &mut Bench, flags| bench.dataplane.set_port(LO, None, port(flags)).unwrap();
    let cases = [cases(), srv6_cases()].concat();
    cases.iter().for_each(|case| check(&bench, case));
    set(&mut bench, PortFlags { redirects4: true, redirects6: true, ..ALL });
    let forwarded =
        || VERDICTS.iter().filter(|verdict| verdict.kind == Kind::Forward).map(|verdict| verdict.name);
    let mut redirected = BTreeSet::new();
    for case in cases {
        let outcome = bench.run(&case.input);
        if outcome.counted == "redirect" {
            assert_eq!((outcome.action, &outcome.output), (XDP_PASS, &case.input), "{}", case.description);
            redirected.extend(forwarded().find(|name| *name == case.verdict));
        } else {
            assert_eq!(outcome.counted, case.verdict, "{}", case.description);
        }
    }
    let own = ["end", "end_b6", "end_dt4", "end_dt6", "end_dx4", "end_dx6", "end_t", "end_x", "h_insert"];
    assert_eq!(redirected, BTreeSet::from_iter(own.into_iter().chain(["ipv4", "ipv6"])));
    let from = |source: &str, to: &str| frame_of(&ipv4(source, to, 64));
    for (source, to, verdict) in [
        ("10.9.9.9", "198.51.100.1", "ipv4"),        // from nowhere
        ("198.51.100.9", "198.51.100.1", "ipv4"),    // from behind a gateway
        ("203.0.113.4", "198.51.100.1", "redirect"), // from a neighbour that is not known yet
        (SOURCE4, "198.51.100.129", "ipv4"),         // into a VLAN
    ] {
        assert_eq!(bench.run(&from(source, to)).counted, verdict, "{source} to {to}");
    }
    let asks = |kind: u8, headers: &[u8], next: u8| {
        let message = [headers, &[kind, 0, 0, 0, 0, 0, 0, 0]].concat();
        frame_of(&[&ipv6_of(SOURCE6, "2001:db8:1::1", 255, message.len() - 8)[..40], &message].concat())
            .into_iter()
            .enumerate()
            .map(|(at, byte)| if at == 14 + 6 { next } else { byte })
            .collect::<Vec<u8>>()
    };
    let options = [58, 0, 1, 4, 0, 0, 0, 0];
    for (proxy_ndp, verdict) in [(true, "proxy_ndp"), (false, "ipv6")] {
        set(&mut bench, PortFlags { proxy_ndp, ..ALL });
        for kind in 133..=137 {
            assert_eq!(bench.run(&asks(kind, &[], 58)).counted, verdict, "{kind}");
            assert_eq!(bench.run(&asks(kind, &options, 60)).counted, verdict, "{kind} behind options");
        }
        for kind in [128, 132, 138] {
            assert_eq!(bench.run(&asks(kind, &[], 58)).counted, "ipv6", "{kind}");
        }
        assert_eq!(bench.run(&asks(135, &[], 17)).counted, "ipv6", "UDP");
        let decapsulated = if proxy_ndp { verdict } else { "end_dx6" };
        let inside = frame_of(&outer(SOURCE6, "fd00:a::21", 41, 64, &asks(135, &[], 58)[14..54 + 8]));
        assert_eq!(bench.run(&inside).counted, decapsulated);
    }
    ["redirect", "proxy_ndp"]
}

#[test]
fn golden_packets() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = Bench::new(map_type, &routes(LO));
        let mut seen = BTreeSet::new();
        for case in cases() {
            check(&bench, &case);
            seen.insert(case.verdict);
        }
        let routes_ = srv6_routes(&adjacency(LO), [0, 1]);
        let routes_: Vec<_> =
            routes_.iter().map(|(prefix, action)| (prefix.as_str(), action.clone())).collect();
        let srv6 = Bench::new(map_type, &[routes(LO), routes_].concat());
        for case in srv6_cases() {
            check(&srv6, &case);
            seen.insert(case.verdict);
        }
        seen.extend(by_the_rfcs(map_type));
        seen.insert(jumbo_frames(map_type));
        seen.extend(headroom(map_type));
        seen.extend(answered(map_type));
        seen.insert(checksums(&mut bench));
        seen.extend(special_cases(&mut bench));
        let untested: Vec<_> = VERDICTS.iter().map(|v| v.name).filter(|name| !seen.contains(name)).collect();
        assert!(untested.is_empty(), "{map_type}: no golden packet ends as {untested:?}");
    }
}
