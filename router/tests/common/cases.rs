//! The golden packets: frame in, verdict, frame out. `tests/golden.rs` runs them through the program, `tests/kernel.rs` also
//! through the kernel.

use trieline_router::{Action, Adjacency, DropReason, Endpoint, Headend, PassReason, Target};

use super::packet::*;

/// One packet's story.
#[derive(Clone)]
pub struct Case {
    pub description: &'static str,
    pub input: Vec<u8>,
    /// Name of the verdict, which is the counter's.
    pub verdict: &'static str,
    /// The frame that leaves, if it differs from the input.
    pub output: Option<Vec<u8>>,
}

pub fn case(description: &'static str, input: Vec<u8>, verdict: &'static str) -> Case {
    Case { description, input, verdict, output: None }
}

pub fn sends(description: &'static str, input: Vec<u8>, verdict: &'static str, output: Vec<u8>) -> Case {
    Case { description, input, verdict, output: Some(output) }
}

/// Out by `ifindex` to the next hop.
pub fn adjacency(ifindex: u32) -> Adjacency {
    Adjacency { ifindex, mtu: 1500, destination: NEXT_HOP_MAC, source: OUT_MAC, vlan: None }
}

/// The outer header that Linux would build for `encap seg6 mode encap segs fd00:2::1`, hop limit 64 less one hop.
pub fn template() -> Vec<u8> {
    outer("fd00:1::1", "fd00:2::1", 43, 63, &srh(4, 0, &["fd00:2::1"], &[]))
}

/// Routes that the cases meet; those that forward do so by `ifindex`.
pub fn routes(ifindex: u32) -> Vec<(&'static str, Action)> {
    let adjacency = || adjacency(ifindex);
    let tagged = Adjacency { vlan: Some(100), ..adjacency() };
    let small = Adjacency { mtu: 60, ..adjacency() };
    let elsewhere = Adjacency { ifindex: 77, ..adjacency() };
    vec![
        ("198.51.100.0/24", Action::Forward(adjacency())),
        ("198.51.100.128/25", Action::Forward(tagged.clone())),
        ("203.0.113.1", Action::Pass(PassReason::Local)),
        ("203.0.113.2", Action::Pass(PassReason::Unreachable)),
        ("203.0.113.3", Action::Pass(PassReason::Prohibit)),
        ("203.0.113.4", Action::Pass(PassReason::Unresolved)),
        ("203.0.113.5", Action::Pass(PassReason::Unsupported)),
        ("203.0.113.6", Action::Drop(DropReason::Blackhole)),
        ("203.0.113.7", Action::Forward(small.clone())),
        ("203.0.113.8", Action::Forward(elsewhere)),
        ("203.0.113.9", Action::Pass(PassReason::NoXdpXmit)),
        ("203.0.113.10", Action::Pass(PassReason::NoCarrier)),
        ("203.0.113.11", Action::Pass(PassReason::TableFull)),
        ("203.0.113.12", Action::Pass(PassReason::Rule)),
        ("203.0.113.13", Action::Pass(PassReason::OnLink)),
        (
            "10.1.0.0/16",
            Action::Encaps { adjacency: adjacency(), outer: template(), headend: Headend::default() },
        ),
        (
            "10.2.0.0/16",
            Action::Encaps { adjacency: tagged.clone(), outer: template(), headend: Headend::default() },
        ),
        (
            "10.3.0.0/16",
            Action::Encaps {
                adjacency: Adjacency { mtu: 100, ..adjacency() },
                outer: template(),
                headend: Headend::default(),
            },
        ),
        ("2001:db8:1::/48", Action::Forward(adjacency())),
        ("2001:db8:2::/48", Action::Forward(tagged)),
        (
            "2001:db8:3::/48",
            Action::Encaps { adjacency: adjacency(), outer: template(), headend: Headend::default() },
        ),
        ("2001:db8:4::/48", Action::Forward(small)),
        ("2001:db8:5::/48", Action::Drop(DropReason::Blackhole)),
        ("2001:db8:6::1", Action::Pass(PassReason::Local)),
        ("fd00:a::1", Action::endpoint(Endpoint::EndDx4, Target::Adjacency(adjacency()))),
        ("fd00:a::2", Action::endpoint(Endpoint::EndDx4, Target::Port)),
        (
            "fd00:a::3",
            Action::endpoint(Endpoint::EndDx4, Target::Adjacency(Adjacency { mtu: 40, ..adjacency() })),
        ),
    ]
}

pub const SOURCE4: &str = "192.0.2.9";
pub const SOURCE6: &str = "2001:db8::9";
pub const SID: &str = "fd00:a::1";
pub const SID_TABLE: &str = "fd00:a::2";

/// Packets a port with everything on gets.
pub fn cases() -> Vec<Case> {
    let v4 = ipv4(SOURCE4, "198.51.100.1", 64);
    let v6 = ipv6(SOURCE6, "2001:db8:1::1", 64);
    let v4_to = |destination: &str| Frame::new(ipv4(SOURCE4, destination, 64)).bytes();
    let v4_from = |source: &str| Frame::new(ipv4(source, "198.51.100.1", 64)).bytes();
    let v6_to = |destination: &str| Frame::new(ipv6(SOURCE6, destination, 64)).bytes();
    let v6_from = |source: &str| Frame::new(ipv6(source, "2001:db8:1::1", 64)).bytes();
    let plain = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    let edited = |at: usize, byte: u8| plain(&edit_ipv4(v4.clone(), |p| p[at] = byte));
    let spoiled = |packet: &[u8], at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        plain(&packet)
    };
    let mut list = vec![
        // Link.
        case("ARP", Frame::new(vec![0; 28]).ether_type(0x0806).bytes(), "not_ip"),
        case("two tags", Frame::new(v4.clone()).vlan(100).vlan(200).bytes(), "no_port"),
        case(
            "two tags, the outer one only a priority",
            Frame::new(v4.clone()).vlan(0).vlan(200).bytes(),
            "no_port",
        ),
        case("IPv4 header cut", Frame::new(v4[..19].to_vec()).bytes(), "not_ip"),
        case("IPv6 header cut", Frame::new(v6[..39].to_vec()).bytes(), "not_ip"),
        case("another host's MAC", Frame::new(v4.clone()).to([2, 0, 0, 0, 0, 2]).bytes(), "mac_mismatch"),
        case("same last bytes", Frame::new(v4.clone()).to([3, 0, 0, 0, 0, 1]).bytes(), "mac_mismatch"),
        case("broadcast frame", Frame::new(v4.clone()).to([255; 6]).bytes(), "mac_mismatch"),
        case("VLAN without a port", Frame::new(v4.clone()).vlan(7).bytes(), "no_port"),
        // IPv4.
        sends("IPv4 is forwarded", plain(&v4), "ipv4", sent(&[], &hop(&v4))),
        sends(
            "priority tag is taken off",
            Frame::new(v4.clone()).vlan(0xe000).bytes(),
            "ipv4",
            sent(&[], &hop(&v4)),
        ),
        case("IPv4 in a frame marked IPv6", Frame::new(v4.clone()).ether_type(0x86dd).bytes(), "ipv6_header"),
        case("version 5", edited(0, 0x55), "ipv4_header"),
        case("header of 16 bytes", edited(0, 0x44), "ipv4_header"),
        case("options", edited(0, 0x46), "ipv4_options"),
        case("bad checksum", spoiled(&v4, 10, v4[10] ^ 1), "ipv4_checksum"),
        case("total length below the header", edited(3, 19), "ipv4_length"),
        case("total length above the frame", edited(3, v4.len() as u8 + 1), "ipv4_length"),
        case("TTL 1", plain(&ipv4(SOURCE4, "198.51.100.1", 1)), "ipv4_ttl"),
        case("TTL 0", plain(&ipv4(SOURCE4, "198.51.100.1", 0)), "ipv4_ttl"),
        case("from 0/8", v4_from("0.1.2.3"), "ipv4_special_purpose"),
        case("from 127/8", v4_from("127.0.0.1"), "ipv4_special_purpose"),
        case("from multicast", v4_from("224.0.0.1"), "ipv4_special_purpose"),
        case("to broadcast", v4_to("255.255.255.255"), "ipv4_special_purpose"),
        case("to multicast", v4_to("239.1.1.1"), "ipv4_special_purpose"),
        case("to loopback", v4_to("127.0.0.1"), "ipv4_special_purpose"),
        case("from an own address", v4_from("203.0.113.1"), "reverse_path"),
        case("no route", v4_to("8.8.8.8"), "no_route"),
        case("local", v4_to("203.0.113.1"), "local"),
        case("unreachable", v4_to("203.0.113.2"), "unreachable"),
        case("prohibit", v4_to("203.0.113.3"), "prohibit"),
        case("unresolved", v4_to("203.0.113.4"), "unresolved"),
        case("unsupported", v4_to("203.0.113.5"), "unsupported"),
        case("blackhole", v4_to("203.0.113.6"), "blackhole"),
        case("device not given", v4_to("203.0.113.8"), "no_device"),
        case("device that takes no frames", v4_to("203.0.113.9"), "no_xdp_xmit"),
        case("device that is down", v4_to("203.0.113.10"), "no_carrier"),
        case("no room", v4_to("203.0.113.11"), "table_full"),
        case("a rule", v4_to("203.0.113.12"), "rule"),
        case("End.DX4 on-link", v4_to("203.0.113.13"), "on_link"),
        case("over MTU by one", plain(&ipv4_of(SOURCE4, "203.0.113.7", 64, 60 - 28 + 1)), "too_big"),
        // IPv6.
        sends("IPv6 is forwarded", plain(&v6), "ipv6", sent(&[], &hop(&v6))),
        case("IPv6 in a frame marked IPv4", Frame::new(v6.clone()).ether_type(0x0800).bytes(), "ipv4_header"),
        case("version 7", Frame::new([&[0x7b], &v6[1..]].concat()).ether_type(0x86dd).bytes(), "ipv6_header"),
        case("payload length above the frame", spoiled(&v6, 5, v6[5] + 1), "ipv6_length"),
        case("hop-by-hop options", spoiled(&v6, 6, 0), "ipv6_hop_by_hop"),
        case("hop limit 1", plain(&ipv6(SOURCE6, "2001:db8:1::1", 1)), "ipv6_hop_limit"),
        case("from ::", v6_from("::"), "ipv6_special_purpose"),
        case("from ::1", v6_from("::1"), "ipv6_special_purpose"),
        case("from a v4-mapped address", v6_from("::ffff:192.0.2.1"), "ipv6_special_purpose"),
        case("from link-local", v6_from("fe80::1"), "ipv6_special_purpose"),
        case("from the end of link-local", v6_from("febf::1"), "ipv6_special_purpose"),
        case("from multicast", v6_from("ff02::1"), "ipv6_special_purpose"),
        case("to link-local", v6_to("fe80::1"), "ipv6_special_purpose"),
        case("to multicast", v6_to("ff02::1"), "ipv6_special_purpose"),
        case("to ::1", v6_to("::1"), "ipv6_special_purpose"),
        case("IPv6 no route", v6_to("2001:db8:ffff::1"), "no_route"),
        case("IPv6 blackhole", v6_to("2001:db8:5::1"), "blackhole"),
        case("IPv6 over MTU", plain(&ipv6_of(SOURCE6, "2001:db8:4::1", 64, 60 - 48 + 1)), "too_big"),
    ];
    let exact = ipv4_of(SOURCE4, "203.0.113.7", 64, 60 - 28);
    list.push(sends("just the MTU", plain(&exact), "ipv4", sent(&[], &hop(&exact))));
    // Bytes behind the packet do not leave, be they padding or more.
    for bytes in [1, 6, 60, 1400] {
        let followed = |packet: &[u8]| [plain(packet), vec![0xee; bytes]].concat();
        list.push(sends(
            format!("IPv4 and {bytes} bytes").leak(),
            followed(&v4),
            "ipv4",
            sent(&[], &hop(&v4)),
        ));
        list.push(sends(
            format!("IPv6 and {bytes} bytes").leak(),
            followed(&v6),
            "ipv6",
            sent(&[], &hop(&v6)),
        ));
    }
    let ack = ipv4_of(SOURCE4, "198.51.100.1", 64, 0);
    let padded = [plain(&ack), vec![0; 60 - 14 - ack.len()]].concat();
    list.push(sends("padding of the shortest frame", padded, "ipv4", sent(&[], &hop(&ack))));
    // Tags with id 0, of either kind, are taken off as Linux does it.
    for tags in [
        &[(0x88a8, 0)][..],
        &[(0x8100, 0), (0x8100, 0)],
        &[(0x8100, 0x6000), (0x88a8, 0xe000)],
        &[(0x88a8, 0), (0x8100, 0), (0x88a8, 0)],
        &[(0x8100, 0); 4],
    ] {
        for (packet, verdict) in [(&v4, "ipv4"), (&v6, "ipv6")] {
            list.push(sends(
                format!("{verdict} behind {} tags with id 0", tags.len()).leak(),
                tagged(&plain(packet), tags),
                verdict,
                sent(&[], &hop(packet)),
            ));
        }
    }
    for (tags, verdict) in [
        (&[(0x8100, 0); 5][..], "not_ip"),
        (&[(0x88a8, 100)], "no_port"),
        (&[(0x8100, 0), (0x88a8, 100)], "no_port"),
        (&[(0x8100, 0), (0x8100, 7)], "no_port"),
    ] {
        list.push(case(format!("tags {tags:x?}").leak(), tagged(&plain(&v4), tags), verdict));
    }
    for bytes in 15..24 {
        let cut = tagged(&plain(&v4), &[(0x8100, 0), (0x88a8, 0)])[..bytes].to_vec();
        list.push(case(format!("tags of {bytes} bytes").leak(), cut, "not_ip"));
    }
    let tagged = ipv4(SOURCE4, "198.51.100.200", 64);
    list.push(sends("a tag is pushed", plain(&tagged), "ipv4", sent(&[100], &hop(&tagged))));
    let tagged6 = ipv6(SOURCE6, "2001:db8:2::1", 64);
    list.push(sends("a tag is pushed, IPv6", plain(&tagged6), "ipv6", sent(&[100], &hop(&tagged6))));
    // Checksums whose update crosses 0xffff: every value of the identification's high byte.
    for high in (0..=255).step_by(5) {
        let packet = edit_ipv4(v4.clone(), |p| (p[4], p[5]) = (high, 0xff - high));
        list.push(sends("checksum update", plain(&packet), "ipv4", sent(&[], &hop(&packet))));
    }
    list.extend(encapsulation());
    list.extend(decapsulation());
    list
}

/// The template over `inner`.
pub fn encapsulated(inner: &[u8]) -> Vec<u8> {
    let next = if inner[0] >> 4 == 4 { 4 } else { 41 };
    outer("fd00:1::1", "fd00:2::1", 43, 63, &srh(next, 0, &["fd00:2::1"], inner))
}

pub fn encapsulation() -> Vec<Case> {
    let plain = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    let v4 = ipv4(SOURCE4, "10.1.2.3", 64);
    let v4_tagged = ipv4(SOURCE4, "10.2.2.3", 64);
    let last_hop = ipv4(SOURCE4, "10.1.2.3", 1);
    let v6 = ipv6(SOURCE6, "2001:db8:3::3", 33);
    let mut over_v6 = encapsulated(&v6);
    over_v6[..4].copy_from_slice(&v6[..4]); // traffic class and flow label
    over_v6[7] = 32;
    let fits = ipv4_of(SOURCE4, "10.3.0.1", 64, 100 - 64 - 28);
    let exceeds = ipv4_of(SOURCE4, "10.3.0.1", 64, 100 - 64 - 28 + 1);
    vec![
        sends(
            "IPv4 is encapsulated, its TTL stays",
            plain(&v4),
            "h_encaps_ipv4",
            sent(&[], &encapsulated(&v4)),
        ),
        sends(
            "TTL 1 as well, as in Linux",
            plain(&last_hop),
            "h_encaps_ipv4",
            sent(&[], &encapsulated(&last_hop)),
        ),
        sends("with a tag", plain(&v4_tagged), "h_encaps_ipv4", sent(&[100], &encapsulated(&v4_tagged))),
        sends(
            "padding does not travel along",
            [plain(&v4), vec![0xee; 14]].concat(),
            "h_encaps_ipv4",
            sent(&[], &encapsulated(&v4)),
        ),
        sends("IPv6 is encapsulated", plain(&v6), "h_encaps_ipv6", sent(&[], &over_v6)),
        case("IPv6 at hop limit 1", plain(&ipv6(SOURCE6, "2001:db8:3::3", 1)), "ipv6_hop_limit"),
        sends("just the MTU", plain(&fits), "h_encaps_ipv4", sent(&[], &encapsulated(&fits))),
        case("over the MTU", plain(&exceeds), "too_big"),
    ]
}

pub fn decapsulation() -> Vec<Case> {
    let plain = |packet: &[u8]| Frame::new(packet.to_vec()).bytes();
    let inner = ipv4(SOURCE4, "198.51.100.1", 64);
    let own = ipv4("203.0.113.1", "198.51.100.1", 64);
    let bare = |inner: &[u8]| plain(&outer(SOURCE6, SID, 4, 64, inner));
    let routed = |header: &[u8]| plain(&outer(SOURCE6, SID, 43, 64, header));
    let changed = |at: usize, byte: u8| {
        let mut header = srh(4, 0, &[SID], &inner);
        header[at] = byte;
        routed(&header)
    };
    let decapped = sent(&[], &hop(&inner));
    let mut bad_sum = inner.clone();
    bad_sum[11] ^= 0x10;
    let mut bad_sum_out = hop(&inner);
    bad_sum_out[11] ^= 0x10;
    let to_tagged = ipv4(SOURCE4, "198.51.100.200", 64);
    let mut with_tlv = srh(4, 0, &[SID], &[]);
    with_tlv[1] = 3;
    with_tlv.extend([4, 6, 0, 0, 0, 0, 0, 0]); // PadN
    with_tlv.extend(&inner);
    let dest_options = [[4, 0, 1, 4, 0, 0, 0, 0].as_slice(), &inner].concat();
    vec![
        sends("decapsulated", bare(&inner), "end_dx4", decapped.clone()),
        sends("outer hop limit 1", plain(&outer(SOURCE6, SID, 4, 1, &inner)), "end_dx4", decapped.clone()),
        sends("with an SRH", routed(&srh(4, 0, &[SID], &inner)), "end_dx4", decapped.clone()),
        sends(
            "with an SRH of three",
            routed(&srh(4, 0, &[SID, "fd00::1", "fd00::2"], &inner)),
            "end_dx4",
            decapped,
        ),
        sends("the inner checksum is not looked at", bare(&bad_sum), "end_dx4", sent(&[], &bad_sum_out)),
        sends(
            "by the table",
            plain(&outer(SOURCE6, SID_TABLE, 4, 64, &inner)),
            "end_dx4",
            sent(&[], &hop(&inner)),
        ),
        sends(
            "by the table, and tagged",
            plain(&outer(SOURCE6, SID_TABLE, 4, 64, &to_tagged)),
            "end_dx4",
            sent(&[100], &hop(&to_tagged)),
        ),
        case(
            "by the table, no route",
            plain(&outer(SOURCE6, SID_TABLE, 4, 64, &ipv4(SOURCE4, "8.8.8.8", 64))),
            "seg6_inner_no_route",
        ),
        case(
            "by the table, to this node",
            plain(&outer(SOURCE6, SID_TABLE, 4, 64, &ipv4(SOURCE4, "203.0.113.1", 64))),
            "seg6_inner_no_route",
        ),
        case("from an own address inside", bare(&own), "reverse_path"),
        case("the same, by the table", plain(&outer(SOURCE6, SID_TABLE, 4, 64, &own)), "reverse_path"),
        case("a segment is left", routed(&srh(4, 1, &[SID, "fd00::1"], &inner)), "segments_left"),
        case("a segment is left, reduced", routed(&srh(4, 2, &[SID, "fd00::1"], &inner)), "segments_left"),
        case(
            "more segments left than there are",
            routed(&srh(4, 3, &[SID, "fd00::1"], &inner)),
            "seg6_headers",
        ),
        case("another routing type", changed(2, 3), "seg6_headers"),
        case("SRH length wrong", changed(1, 4), "seg6_inner"),
        case("SRH longer than the packet", changed(1, 255), "seg6_inner"),
        case("flags", changed(5, 8), "seg6_headers"),
        case("IPv6 inside", changed(0, 41), "seg6_headers"),
        sends("with a TLV", routed(&with_tlv), "end_dx4", sent(&[], &hop(&inner))),
        case("SRH cut", routed(&srh(4, 0, &[SID], &[])[..7]), "seg6_headers"),
        case("UDP to the SID", plain(&ipv6(SOURCE6, SID, 64)), "seg6_headers"),
        case("destination options", plain(&outer(SOURCE6, SID, 60, 64, &dest_options)), "seg6_headers"),
        case("inner header cut", bare(&inner[..19]), "seg6_inner"),
        case("inner TTL 1", bare(&ipv4(SOURCE4, "198.51.100.1", 1)), "seg6_inner"),
        case("inner options", bare(&edit_ipv4(inner.clone(), |p| p[0] = 0x46)), "seg6_inner"),
        case("inner version 6", bare(&ipv6(SOURCE6, "2001:db8:1::1", 64)), "seg6_inner"),
        case("inner length above the outer", bare(&edit_ipv4(inner.clone(), |p| p[3] += 1)), "seg6_inner"),
        case("inner length below a header", bare(&edit_ipv4(inner.clone(), |p| p[3] = 19)), "seg6_inner"),
        case("inner to multicast", bare(&ipv4(SOURCE4, "224.0.0.5", 64)), "seg6_inner"),
        case("inner from loopback", bare(&ipv4("127.0.0.1", "198.51.100.1", 64)), "seg6_inner"),
        case("over the MTU", plain(&outer(SOURCE6, "fd00:a::3", 4, 64, &inner)), "too_big"),
    ]
}
