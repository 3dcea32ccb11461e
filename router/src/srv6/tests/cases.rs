//! The golden packets of SRv6: behaviours × what is inside × segments × options, with the routes they need in the program
//! and in the kernel.

use trieline_lpm::IpPrefix;
use trieline_router::{Action, Adjacency, Endpoint, Flavours, Headend, Target};

use super::cases::*;
use super::packet::*;

/// Segments of the headends' routes. Ten fit into a frame's headroom, more are made room for.
const COUNTS: [usize; 9] = [1, 2, 3, 4, 5, 8, 10, 16, 32];
/// Those of routes that the kernel keeps in one netlink attribute of a page: all of them.
const SOURCE: &str = "fd00:1::1";

fn segment(i: usize) -> String {
    format!("fd00:2::{:x}", i + 1)
}

/// In the order they are visited.
pub(super) fn segments(n: usize) -> Vec<String> {
    (0..n).map(segment).collect()
}

/// SRH over `inner`: `list` in the order of visits, without its first `skip` (reduced), `left` still to go.
pub(super) fn header(next: u8, list: &[String], skip: usize, left: usize, inner: &[u8]) -> Vec<u8> {
    let reversed: Vec<&str> = list[skip..].iter().rev().map(String::as_str).collect();
    srh(next, left as u8, &reversed, inner)
}

/// The bytes that Linux pushes over `inner`, at hop limit `hop_limit`: H.Encaps, or reduced.
pub(super) fn pushed(n: usize, reduced: bool, next: u8, hop_limit: u8, inner: &[u8]) -> Vec<u8> {
    let list = segments(n);
    if reduced && n == 1 {
        return outer(SOURCE, &list[0], next, hop_limit, inner);
    }
    let srh = header(next, &list, usize::from(reduced), n - 1, inner);
    outer(SOURCE, &list[0], 43, hop_limit, &srh)
}

/// Likewise over an IPv6 packet, whose class, label and hop limit the outer header takes.
fn pushed_over_ipv6(n: usize, reduced: bool, next: u8, packet: &[u8], inner: &[u8]) -> Vec<u8> {
    let mut outer = pushed(n, reduced, next, packet[7] - 1, inner);
    outer[..4].copy_from_slice(&packet[..4]);
    outer
}

/// H.Insert: the packet's own destination becomes the last segment.
fn inserted(list: &[String], packet: &[u8]) -> Vec<u8> {
    let own = std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&packet[24..40]).unwrap()).to_string();
    let all: Vec<String> = list.iter().cloned().chain([own]).collect();
    let rest = header(packet[6], &all, 0, list.len(), &packet[40..]);
    let source = std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&packet[8..24]).unwrap()).to_string();
    let mut out = outer(&source, &list[0], 43, packet[7] - 1, &rest);
    out[..4].copy_from_slice(&packet[..4]);
    out
}

/// The record of an inserted SRH.
fn insert_template(n: usize) -> Vec<u8> {
    let all: Vec<String> = segments(n).into_iter().chain(["::".into()]).collect();
    outer(SOURCE, &segment(0), 43, 63, &header(0, &all, 0, n, &[]))
}

/// Routes of headends: (prefix of IPv4, or ""; prefix of IPv6; `mode` in the kernel; action).
fn headends(adjacency: &Adjacency) -> Vec<(String, String, String, Action)> {
    let mut routes = Vec::new();
    for n in COUNTS {
        let segs = segments(n).join(",");
        for (kind, mode, reduced, l2) in [
            (1, "encap", false, false),
            (2, "encap.red", true, false),
            (3, "l2encap", false, true),
            (4, "l2encap.red", true, true),
        ] {
            let template = pushed(n, reduced, if l2 { 143 } else { 4 }, 63, &[]);
            let action = Action::Encaps {
                adjacency: adjacency.clone(),
                outer: template,
                headend: Headend { l2, ..Headend::default() },
            };
            routes.push((
                format!("10.{}.0.0/16", 100 + n),
                format!("2001:db8:{kind}{n:02x}::/48"),
                format!("mode {mode} segs {segs}"),
                action,
            ));
            // One IPv4 prefix for each kind.
            let last = routes.last_mut().unwrap();
            last.0 = format!("10.{}.{kind}.0/24", 100 + n);
        }
        let action = Action::Insert { adjacency: adjacency.clone(), outer: insert_template(n.min(31)) };
        let segs = segments(n.min(31)).join(",");
        routes.push((
            String::new(),
            format!("2001:db8:5{n:02x}::/48"),
            format!("mode inline segs {segs}"),
            action,
        ));
    }
    routes
}

/// Routes of endpoints: (prefix, `action` in the kernel or "" where this one has it not, action).
fn endpoints(adjacency: &Adjacency, tables: [u32; 2]) -> Vec<(&'static str, String, Action)> {
    let [lookup4, lookup6] = tables;
    let hop = || adjacency.clone();
    let csid = Flavours::next_csid(4, 2);
    let wide = Flavours::next_csid(6, 4);
    let b6 = |n| segments(n).join(",");
    vec![
        ("fd00:a::10", "End".into(), Action::endpoint(Endpoint::End, Target::Port)),
        (
            "fd00:a::11",
            "End flavors psp".into(),
            Action::Endpoint { endpoint: Endpoint::End, flavours: Flavours::PSP, target: Target::Port },
        ),
        (
            "fd00:a::12",
            "End.X nh6 fd00:77::1".into(),
            Action::endpoint(Endpoint::EndX, Target::Adjacency(hop())),
        ),
        ("fd00:a::13", "End.T table 254".into(), Action::endpoint(Endpoint::EndT, Target::Lookup(lookup6))),
        (
            "fd00:b:1::/48",
            "End flavors next-csid".into(),
            Action::Endpoint { endpoint: Endpoint::End, flavours: csid, target: Target::Port },
        ),
        (
            "fd00:b:2::/48",
            "End.X nh6 fd00:77::1 flavors next-csid".into(),
            Action::Endpoint { endpoint: Endpoint::EndX, flavours: csid, target: Target::Adjacency(hop()) },
        ),
        (
            "fd00:c:1:aaaa:bbbb::/80",
            "End flavors next-csid lblen 48 nflen 32".into(),
            Action::Endpoint { endpoint: Endpoint::End, flavours: wide, target: Target::Port },
        ),
        (
            "fd00:a::20",
            "End.DX6 nh6 fd00:77::1".into(),
            Action::endpoint(Endpoint::EndDx6, Target::Adjacency(hop())),
        ),
        ("fd00:a::21", "End.DX6 nh6 ::".into(), Action::endpoint(Endpoint::EndDx6, Target::Port)),
        (
            "fd00:a::22",
            "End.DT6 table 254".into(),
            Action::endpoint(Endpoint::EndDt6, Target::Lookup(lookup6)),
        ),
        ("fd00:a::23", String::new(), Action::endpoint(Endpoint::EndDt4, Target::Lookup(lookup4))),
        (
            "fd00:a::24",
            String::new(),
            Action::endpoint(Endpoint::EndDt46, Target::Lookups { ipv4: lookup4, ipv6: lookup6 }),
        ),
        (
            "fd00:a::25",
            "End.DX2 oif n1".into(),
            Action::endpoint(Endpoint::EndDx2, Target::Device { ifindex: adjacency.ifindex, mtu: 1500 }),
        ),
        (
            "fd00:a::30",
            format!("End.B6 srh segs {}", b6(1)),
            Action::endpoint(Endpoint::EndB6, Target::Insert { adjacency: hop(), outer: insert_template(1) }),
        ),
        (
            "fd00:a::31",
            format!("End.B6 srh segs {}", b6(5)),
            Action::endpoint(Endpoint::EndB6, Target::Insert { adjacency: hop(), outer: insert_template(5) }),
        ),
        (
            "fd00:a::32",
            format!("End.B6.Encaps srh segs {}", b6(1)),
            Action::endpoint(
                Endpoint::EndB6Encaps,
                Target::Encaps {
                    adjacency: hop(),
                    outer: pushed(1, false, 41, 63, &[]),
                    headend: Headend::default(),
                },
            ),
        ),
        (
            "fd00:a::33",
            format!("End.B6.Encaps srh segs {}", b6(5)),
            Action::endpoint(
                Endpoint::EndB6Encaps,
                Target::Encaps {
                    adjacency: hop(),
                    outer: pushed(5, false, 41, 63, &[]),
                    headend: Headend::default(),
                },
            ),
        ),
        ("fd00:b::/32", "via".into(), Action::Forward(hop())),
        ("fd00:c:1::/48", "via".into(), Action::Forward(hop())),
        ("fd00:77::1", "via".into(), Action::Forward(hop())),
        ("fd00:2::/64", "via".into(), Action::Forward(hop())),
        ("fd00:3::/64", "blackhole".into(), Action::Drop(trieline_router::DropReason::Blackhole)),
    ]
}

/// Routes for the program; `tables` are those of the port.
pub fn srv6_routes(adjacency: &Adjacency, tables: [u32; 2]) -> Vec<(String, Action)> {
    let mut routes = Vec::new();
    for (four, six, _, action) in headends(adjacency) {
        if !four.is_empty() {
            routes.push((four, action.clone()));
        }
        routes.push((six, action));
    }
    let endpoints = endpoints(adjacency, tables);
    routes.extend(endpoints.into_iter().map(|(prefix, _, action)| (prefix.to_owned(), action)));
    routes
}

/// Whether the kernel has PSP and NEXT-C-SID of End and End.X: Linux 6.6 has all.
fn has_flavours() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(6))
}

/// Whether a packet goes to a SID that the kernel has not.
pub fn is_unknown_sid(input: &[u8]) -> bool {
    if has_flavours() || input[12..14] != [0x86, 0xdd] || input.len() < 54 {
        return false;
    }
    let destination = u128::from_be_bytes(input[38..54].try_into().unwrap());
    let flavoured =
        endpoints(&adjacency(1), [0, 1]).into_iter().filter(|(_, action, _)| action.contains("flavors"));
    flavoured.map(|(prefix, ..)| prefix.parse().unwrap()).any(|prefix| match prefix {
        IpPrefix::V6(prefix) => prefix.contains(destination),
        IpPrefix::V4(_) => false,
    })
}

/// The same in the kernel, as arguments of `ip route add` and `ip -6 route add`.
pub fn srv6_commands() -> Vec<String> {
    let mut commands = Vec::new();
    for (four, six, mode, _) in headends(&adjacency(1)) {
        if !four.is_empty() {
            commands.push(format!("route add {four} encap seg6 {mode} dev n1"));
        }
        commands.push(format!("-6 route add {six} encap seg6 {mode} dev n1"));
    }
    for (prefix, action, _) in endpoints(&adjacency(1), [0, 1]) {
        commands.push(match action.as_str() {
            "" => continue,
            action if action.contains("flavors") && !has_flavours() => continue,
            "via" => format!("-6 route replace {prefix} via 2001:db8:66::2"),
            "blackhole" => format!("-6 route add blackhole {prefix}"),
            action => format!("-6 route add {prefix} encap seg6local action {action} dev n1"),
        });
    }
    commands
}

/// Packets of headends.
fn headend_cases() -> Vec<Case> {
    let mut list = Vec::new();
    let frame = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    for n in COUNTS {
        for (kind, name, reduced, l2) in [
            (1, "H.Encaps", false, false),
            (2, "H.Encaps.Red", true, false),
            (3, "H.Encaps.L2", false, true),
            (4, "H.Encaps.L2.Red", true, true),
        ] {
            let v4 = ipv4(SOURCE4, &format!("10.{}.{kind}.9", 100 + n), 64);
            let inner = if l2 { frame(&v4) } else { v4.clone() };
            let verdict = if l2 { "h_encaps_l2" } else { "h_encaps_ipv4" };
            let out = sent(&[], &pushed(n, reduced, if l2 { 143 } else { 4 }, 63, &inner));
            list.push(sends(format!("{name} of {n}, IPv4").leak(), frame(&v4), verdict, out.clone()));
            let padded = [frame(&v4), vec![0xee; 9]].concat();
            list.push(sends(format!("{name} of {n}, IPv4, padded").leak(), padded, verdict, out));
            let v6 = ipv6(SOURCE6, &format!("2001:db8:{kind}{n:02x}::7"), 33);
            let inner = if l2 { frame(&v6) } else { v6.clone() };
            let verdict = if l2 { "h_encaps_l2" } else { "h_encaps_ipv6" };
            let out = sent(&[], &pushed_over_ipv6(n, reduced, if l2 { 143 } else { 41 }, &v6, &inner));
            list.push(sends(format!("{name} of {n}, IPv6").leak(), frame(&v6), verdict, out));
        }
        let v6 = ipv6(SOURCE6, &format!("2001:db8:5{n:02x}::7"), 33);
        let out = sent(&[], &inserted(&segments(n.min(31)), &v6));
        list.push(sends(format!("H.Insert of {n}").leak(), frame(&v6), "h_insert", out));
        let left: Vec<String> = vec!["2001:db8:ffff::1".into(), format!("2001:db8:5{n:02x}::7")];
        let with_srh = outer(SOURCE6, &left[1], 43, 9, &header(17, &left, 0, 0, &v6[40..]));
        let out = sent(&[], &inserted(&segments(n.min(31)), &with_srh));
        list.push(sends(format!("H.Insert of {n} before an SRH").leak(), frame(&with_srh), "h_insert", out));
    }
    for ttl in [1, 2, 255] {
        let v4 = ipv4(SOURCE4, "10.103.2.9", ttl);
        let out = sent(&[], &pushed(3, true, 4, 63, &v4));
        list.push(sends(format!("H.Encaps.Red, TTL {ttl}").leak(), frame(&v4), "h_encaps_ipv4", out));
    }
    for tos in [0x01, 0x03, 0xb8, 0xff] {
        let v4 = edit_ipv4(ipv4(SOURCE4, "10.102.2.9", 64), |p| p[1] = tos);
        let out = sent(&[], &pushed(2, true, 4, 63, &v4));
        list.push(sends(format!("H.Encaps.Red, TOS {tos}").leak(), frame(&v4), "h_encaps_ipv4", out));
    }
    list.push(case("H.Insert at hop limit 1", frame(&ipv6(SOURCE6, "2001:db8:502::7", 1)), "ipv6_hop_limit"));
    let large = ipv6_of(SOURCE6, "2001:db8:502::7", 64, 1500 - 48 - 55);
    list.push(case("H.Insert over the MTU", frame(&large), "too_big"));
    let fits = ipv6_of(SOURCE6, "2001:db8:502::7", 64, 1500 - 48 - 56);
    let out = sent(&[], &inserted(&segments(2), &fits));
    list.push(sends("H.Insert of just the MTU", frame(&fits), "h_insert", out));
    let large = ipv4_of(SOURCE4, "10.110.2.9", 64, 1500 - 28 - 192 + 1);
    list.push(case("H.Encaps.Red of 10 over the MTU", frame(&large), "too_big"));
    list
}

/// A packet of a SID: `inner` under an SRH of `list` (as visited), `left` still to go.
pub(super) fn at(sid: &str, list: &[String], left: usize, next: u8, hop_limit: u8, inner: &[u8]) -> Vec<u8> {
    outer("2001:db8::5", sid, 43, hop_limit, &header(next, list, 0, left, inner))
}

fn endpoint_cases() -> Vec<Case> {
    let mut list = Vec::new();
    let frame = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    let v4 = ipv4(SOURCE4, "198.51.100.1", 64);
    let v6 = ipv6(SOURCE6, "2001:db8:1::1", 64);
    // The checksum of what lies under no further header is over the last segment (RFC 8200, 8.1).
    let inner = |next, last: &str| match next {
        4 => v4.clone(),
        41 => v6.clone(),
        143 => frame(&v4),
        _ => ipv6("2001:db8::5", last, 64)[40..].to_vec(),
    };
    for (next, what) in [(4, "IPv4"), (41, "IPv6"), (17, "UDP"), (143, "frame")] {
        for (sid, name, verdict) in [
            ("fd00:a::10", "End", "end"),
            ("fd00:a::11", "End with PSP", "end"),
            ("fd00:a::12", "End.X", "end_x"),
            ("fd00:a::13", "End.T", "end_t"),
        ] {
            for n in [2, 3, 9, 17] {
                // The SID itself, then the others.
                let path: Vec<String> = [sid.to_owned()].into_iter().chain(segments(n - 1)).collect();
                let inner = &inner(next, &path[n - 1]);
                for left in [1, n - 1] {
                    let packet = at(sid, &path, left, next, 17, inner);
                    let to = &path[n - left];
                    let mut out = at(to, &path, left - 1, next, 16, inner);
                    if sid == "fd00:a::11" && left == 1 {
                        out = outer("2001:db8::5", to, next, 16, inner);
                    }
                    let description = format!("{name}, {left} of {n} left, {what}");
                    list.push(sends(description.leak(), frame(&packet), verdict, sent(&[], &out)));
                    if left == n - 1 {
                        break;
                    }
                }
            }
        }
    }
    for (sid, name, verdict) in [
        ("fd00:a::10", "End", "end"),
        ("fd00:a::11", "End with PSP", "end"),
        ("fd00:a::12", "End.X", "end_x"),
        ("fd00:a::13", "End.T", "end_t"),
    ] {
        let path: Vec<String> = [sid.to_owned()].into_iter().chain(segments(2)).collect();
        let two = at(sid, &path, 2, 4, 64, &v4);
        let mut say = |what: &str, packet: &[u8], verdict: &'static str| {
            list.push(case(format!("{name}: {what}").leak(), frame(packet), verdict));
        };
        let changed = |at: usize, byte: u8| {
            let mut packet = two.clone();
            packet[at] = byte;
            packet
        };
        say("no SRH", &outer("2001:db8::5", sid, 4, 64, &v4), "no_segment");
        say("no segment left", &at(sid, &path, 0, 4, 64, &v4), "no_segment");
        say("no segment left, options behind", &at(sid, &path, 0, 60, 64, &v4), "seg6_headers");
        say("options", &outer("2001:db8::5", sid, 60, 64, &v4), "seg6_headers");
        say("hop limit 1", &at(sid, &path, 2, 4, 1, &v4), "ipv6_hop_limit");
        say("another routing type", &changed(42, 3), "srh");
        say("more left than there are", &changed(43, 4), "srh");
        say("last entry beyond the header", &changed(44, 3), "srh");
        say("header longer than the packet", &changed(41, 200), "srh");
        say("header too short for its list", &changed(41, 5), "srh");
        say("HMAC", &changed(45, 8), "seg6_headers");
        say("a TLV longer than the header", &changed(44, 1), "srh");
        if name != "End.X" {
            let nowhere: Vec<String> = vec![sid.into(), "fd00:ffff::1".into(), "::1".into()];
            let dropped: Vec<String> = vec![sid.into(), "fd00:3::1".into(), "fd00:2::1".into()];
            say("to a loopback address", &at(sid, &nowhere, 1, 4, 64, &v4), "seg6_next");
            say("to nowhere", &at(sid, &nowhere, 2, 4, 64, &v4), "seg6_next");
            say("to a blackhole", &at(sid, &dropped, 2, 4, 64, &v4), "seg6_next");
        }
        // Reduced: the segment in the destination is not in the list.
        let rest = segments(2);
        let packet = outer("2001:db8::5", sid, 43, 64, &header(4, &rest, 0, 2, &v4));
        let out = outer("2001:db8::5", &rest[0], 43, 63, &header(4, &rest, 0, 1, &v4));
        list.push(sends(format!("{name}, reduced").leak(), frame(&packet), verdict, sent(&[], &out)));
        // PadN of 8 bytes, and of two.
        for tlvs in [vec![4, 6, 0, 0, 0, 0, 0, 0], [[4, 2, 0, 0], [4, 2, 0, 0]].concat()] {
            let with = |left: usize, to: &str, hop_limit: u8| {
                let mut srh = header(4, &path, 0, left, &[]);
                srh[1] += 1;
                outer("2001:db8::5", to, 43, hop_limit, &[&srh[..], &tlvs, &v4].concat())
            };
            let out = sent(&[], &with(1, &path[1], 63));
            list.push(sends(format!("{name}, TLVs").leak(), frame(&with(2, sid, 64)), verdict, out));
        }
    }
    list
}

fn csid_cases() -> Vec<Case> {
    let mut list = Vec::new();
    let frame = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    let v4 = ipv4(SOURCE4, "198.51.100.1", 64);
    let v6 = ipv6(SOURCE6, "2001:db8:1::1", 64);
    for (next, inner) in [(4, &v4), (41, &v6)] {
        for (from, to, verdict) in [
            ("fd00:b:1:5::", "fd00:b:5::", "end"),
            ("fd00:b:1:5:6:7:8:9", "fd00:b:5:6:7:8:9:0", "end"),
            ("fd00:b:1::9", "fd00:b:0:0:0:0:9:0", "end"),
            ("fd00:b:2:5::", "fd00:b:5::", "end_x"),
            ("fd00:b:2:f:e:d:c:b", "fd00:b:f:e:d:c:b:0", "end_x"),
            ("fd00:c:1:aaaa:bbbb:1:2:3", "fd00:c:1:1:2:3:0:0", "end"),
            ("fd00:c:1:aaaa:bbbb:0:0:3", "fd00:c:1:0:0:3:0:0", "end"),
        ] {
            let packet = outer("2001:db8::5", from, next, 64, inner);
            let out = outer("2001:db8::5", to, next, 63, inner);
            list.push(sends(
                format!("NEXT-C-SID {from}, {next}").leak(),
                frame(&packet),
                verdict,
                sent(&[], &out),
            ));
            // The SRH is not looked at while there is an argument.
            let path = vec![from.to_owned(), "fd00:2::1".into()];
            let packet = at(from, &path, 1, next, 64, inner);
            let mut out = packet.clone();
            out[7] -= 1;
            out[24..40].copy_from_slice(&to.parse::<std::net::Ipv6Addr>().unwrap().octets());
            list.push(sends(
                format!("NEXT-C-SID {from}, SRH, {next}").leak(),
                frame(&packet),
                verdict,
                sent(&[], &out),
            ));
        }
        for (sid, verdict) in [("fd00:b:1::", "end"), ("fd00:b:2::", "end_x")] {
            let path = vec![sid.to_owned(), "fd00:2::1".into(), "fd00:2::2".into()];
            let packet = at(sid, &path, 2, next, 64, inner);
            let out = at("fd00:2::1", &path, 1, next, 63, inner);
            list.push(sends(
                format!("{sid} without argument, {next}").leak(),
                frame(&packet),
                verdict,
                sent(&[], &out),
            ));
            let bare = outer("2001:db8::5", sid, next, 64, inner);
            list.push(case(
                format!("{sid} without argument or SRH, {next}").leak(),
                frame(&bare),
                "no_segment",
            ));
        }
    }
    list
}

fn b6_cases() -> Vec<Case> {
    let mut list = Vec::new();
    let frame = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    let v4 = ipv4(SOURCE4, "198.51.100.1", 64);
    let v6 = ipv6(SOURCE6, "2001:db8:1::1", 64);
    for (sid, n, encaps) in
        [("fd00:a::30", 1, false), ("fd00:a::31", 5, false), ("fd00:a::32", 1, true), ("fd00:a::33", 5, true)]
    {
        let name = if encaps { "End.B6.Encaps" } else { "End.B6" };
        for (next, inner) in [(4, &v4), (41, &v6)] {
            let path = vec![sid.to_owned(), "fd00:2::a1".into(), "fd00:2::a2".into()];
            let packet = at(sid, &path, 2, next, 40, inner);
            let (verdict, out) = if encaps {
                let advanced = at("fd00:2::a1", &path, 1, next, 40, inner);
                ("end_b6_encaps", pushed_over_ipv6(n, false, 41, &packet, &advanced))
            } else {
                ("end_b6", inserted(&segments(n), &packet))
            };
            list.push(sends(
                format!("{name} of {n}, {next}").leak(),
                frame(&packet),
                verdict,
                sent(&[], &out),
            ));
            let padded = [frame(&packet), vec![0xee; 7]].concat();
            list.push(sends(
                format!("{name} of {n}, {next}, padded").leak(),
                padded,
                verdict,
                sent(&[], &out),
            ));
            let none = at(sid, &path, 0, next, 64, inner);
            list.push(case(format!("{name} of {n}, {next}: no segment").leak(), frame(&none), "no_segment"));
        }
    }
    list
}

fn decap_cases() -> Vec<Case> {
    let mut list = Vec::new();
    let frame = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    let v4 = ipv4(SOURCE4, "198.51.100.1", 64);
    let v6 = ipv6(SOURCE6, "2001:db8:1::1", 64);
    let l2 = link(NEXT_HOP_MAC, [2, 0, 0, 0, 9, 8], &[], None, &v4);
    let mut add = |sid: &str, verdict: &'static str, next: u8, inner: &[u8], out: &[u8]| {
        let bare = outer("2001:db8::5", sid, next, 64, inner);
        list.push(sends(format!("{sid} over {next}").leak(), frame(&bare), verdict, out.to_vec()));
        // Bytes behind the outer packet do not leave; bytes behind the inner one within it do.
        let padded = [frame(&bare), vec![0xee; 70]].concat();
        list.push(sends(format!("{sid} over {next}, padded").leak(), padded, verdict, out.to_vec()));
        let within = [inner, &[0xee; 30][..]].concat();
        let padded = [frame(&outer("2001:db8::5", sid, next, 64, &within)), vec![0xdd; 70]].concat();
        let out_within = [out, &[0xee; 30][..]].concat();
        list.push(sends(format!("{sid} over {next}, padded twice").leak(), padded, verdict, out_within));
        let last_hop = outer("2001:db8::5", sid, next, 1, inner);
        list.push(sends(
            format!("{sid} over {next}, hop limit 1").leak(),
            frame(&last_hop),
            verdict,
            out.to_vec(),
        ));
        for n in [1, 2, 3, 8, 16] {
            let path: Vec<String> = segments(n - 1).into_iter().chain([sid.to_owned()]).collect();
            let packet = at(sid, &path, 0, next, 64, inner);
            list.push(sends(
                format!("{sid} over {next}, SRH of {n}").leak(),
                frame(&packet),
                verdict,
                out.to_vec(),
            ));
            if n > 1 {
                let packet = at(sid, &path, 1, next, 64, inner);
                list.push(case(
                    format!("{sid} over {next}, SRH of {n}, one left").leak(),
                    frame(&packet),
                    "segments_left",
                ));
            }
        }
        let cut = outer("2001:db8::5", sid, next, 64, &inner[..13]);
        let verdict = if next == 143 { "seg6_link" } else { "seg6_inner" };
        list.push(case(format!("{sid} over {next}, cut").leak(), frame(&cut), verdict));
        let other = outer("2001:db8::5", sid, 17, 64, &inner[..13]);
        list.push(case(format!("{sid} over UDP, {next}").leak(), frame(&other), "seg6_headers"));
    };
    for sid in ["fd00:a::20", "fd00:a::21"] {
        add(sid, "end_dx6", 41, &v6, &sent(&[], &hop(&v6)));
    }
    for sid in ["fd00:a::22", "fd00:a::24"] {
        add(sid, "end_dt6", 41, &v6, &sent(&[], &hop(&v6)));
    }
    for sid in ["fd00:a::23", "fd00:a::24"] {
        add(sid, "end_dt4", 4, &v4, &sent(&[], &hop(&v4)));
    }
    add("fd00:a::25", "end_dx2", 143, &l2, &l2);
    for sid in ["fd00:a::20", "fd00:a::21", "fd00:a::22"] {
        let mut say = |what: &str, inner: &[u8], verdict: &'static str| {
            let packet = outer("2001:db8::5", sid, 41, 64, inner);
            list.push(case(format!("{sid}: {what}").leak(), frame(&packet), verdict));
        };
        let changed = |at: usize, byte: u8| {
            let mut packet = v6.clone();
            packet[at] = byte;
            packet
        };
        say("inner hop limit 1", &ipv6(SOURCE6, "2001:db8:1::1", 1), "seg6_inner");
        say("inner version", &changed(0, 0x4b), "seg6_inner");
        say("inner length", &changed(5, v6[5] + 1), "seg6_inner");
        say("inner hop-by-hop options", &changed(6, 0), "seg6_inner");
        say("inner from loopback", &ipv6("::1", "2001:db8:1::1", 64), "seg6_inner");
        say("inner to multicast", &ipv6(SOURCE6, "ff0e::1", 64), "seg6_inner");
        if sid != "fd00:a::20" {
            say("inner to nowhere", &ipv6(SOURCE6, "2001:db8:ffff::1", 64), "seg6_inner_no_route");
            say("inner to a headend", &ipv6(SOURCE6, "2001:db8:101::1", 64), "seg6_inner_no_route");
        }
    }
    let mut length = l2.clone();
    length[12..14].copy_from_slice(&[0, 60]);
    let packet = outer("2001:db8::5", "fd00:a::25", 143, 64, &length);
    list.push(case("End.DX2 of an 802.3 frame", frame(&packet), "seg6_link"));
    let padded = [frame(&outer("2001:db8::5", "fd00:a::25", 143, 64, &l2)), vec![0xee; 11]].concat();
    list.push(sends("End.DX2, padded", padded, "end_dx2", l2));
    list
}

/// All packets of SRv6, for a port with everything on.
pub fn srv6_cases() -> Vec<Case> {
    [headend_cases(), endpoint_cases(), csid_cases(), b6_cases(), decap_cases()].concat()
}
