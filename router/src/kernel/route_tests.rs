//! Route messages as Linux 6.18 wrote them for the `ip route` commands beside them; integers are little-endian.

use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn one(hex: &str) -> (u8, u32, NexthopGroup) {
    let payload = bytes(hex);
    let route = decode(&payload).unwrap();
    (route.prefix_len, route.metric, route.nhg())
}

pub(crate) const GATEWAY: &str =
    "02100000 fe030001 00000000 0800 0f00 fe000000 0800 0100 0a090000 0800 0600 4d000000
    0c00 0800 0800 0200 78050000 0800 0500 0a010002 0800 0400 03000000";

/// `ip route add 10.9.0.0/16 via 10.1.0.2 metric 77 mtu 1400`
#[test]
fn gateway_metric_mtu() {
    let (len, metric, nhg) = one(GATEWAY);
    assert_eq!((len, metric, nhg.kind, nhg.protocol, nhg.mtu), (16, 77, kind::UNICAST, 3, 1400));
    let hop = Nexthop {
        ifindex: 3,
        gateway: "10.1.0.2".parse().ok(),
        onlink: false,
        weight: 1,
        dead: false,
        encap: None,
    };
    assert_eq!(nhg.hops, [hop]);
    let payload = bytes(GATEWAY);
    let route = decode(&payload).unwrap();
    assert_eq!((route.family, route.table, route.destination), (2, 254, &[10, 9, 0, 0][..]));
}

/// The metrics of [`GATEWAY`] with `hoplimit 20` in place of the MTU.
#[test]
fn hop_limit() {
    let (_, _, nhg) = one(&GATEWAY.replace("0800 0200 78050000", "0800 0a00 14000000"));
    assert_eq!((nhg.mtu, nhg.hop_limit), (0, 20));
}

/// `ip route add 10.10.0.0/16 nexthop via 10.1.0.2 weight 2 nexthop via 10.1.0.3`
#[test]
fn multipath() {
    let (_, _, nhg) = one("02100000 fe030001 00000000 0800 0f00 fe000000 0800 0100 0a0a0000
        2400 0900 1000 00 01 03000000 0800 0500 0a010002 1000 00 00 03000000 0800 0500 0a010003");
    let hops: Vec<_> =
        nhg.hops.iter().map(|hop| (hop.gateway.unwrap().to_string(), hop.weight, hop.ifindex)).collect();
    assert_eq!(hops, [("10.1.0.2".to_owned(), 2, 3), ("10.1.0.3".to_owned(), 1, 3)]);
}

/// `ip route add 10.11.0.0/16 via inet6 fe80::9 dev n0`
#[test]
fn gateway_of_the_other_family() {
    let (_, _, nhg) = one("02100000 fe030001 00000000 0800 0f00 fe000000 0800 0100 0a0b0000
        1600 1200 0a00 fe800000000000000000000000000009 0000 0800 0400 03000000");
    assert_eq!(nhg.hops[0].gateway, "fe80::9".parse().ok());
}

/// `ip route add 10.12.0.0/16 encap seg6 mode encap segs fd00:1::c dev n0`
#[test]
fn seg6_encap() {
    let (_, _, nhg) =
        one("02100000 fe03fd01 00000000 0800 0f00 fe000000 0800 0100 0a0c0000 0800 0400 03000000
        2400 1600 2000 0100 01000000 00020400 00000000 fd00000100000000000000000000000c 0600 1500 0500 0000");
    let Some(Encap::Seg6 { mode, list: seg6::SegmentList { srh, segments } }) = &nhg.hops[0].encap else {
        panic!("{nhg:?}")
    };
    assert_eq!((*mode, &segments[..]), (seg6::Mode::Encap, &["fd00:1::c".parse::<Ipv6Addr>().unwrap()][..]));
    assert_eq!((srh.len(), &srh[..8]), (24, &[0, 2, 4, 0, 0, 0, 0, 0][..]));
}

/// `ip -6 route add fd00:f::/64 encap seg6 mode inline segs fd00:1::c,fd00:1::d dev n0`: the segments are visited in the
/// order given. They are written the other way round, the packet's own destination last.
#[test]
fn segments_in_the_order_of_visit() {
    let (_, _, nhg) =
        one("0a400000 fe030001 00000000 0800 0f00 fe000000 1400 0100 fd00000f000000000000000000000000
        0800 0600 00040000 0800 0400 03000000 4400 1600 4000 0100 00000000 00060402 02000000
        00000000000000000000000000000000 fd00000100000000000000000000000d fd00000100000000000000000000000c
        0600 1500 0500 0000");
    let Some(Encap::Seg6 { list: seg6::SegmentList { segments, .. }, mode: seg6::Mode::Inline }) =
        &nhg.hops[0].encap
    else {
        panic!("{nhg:?}")
    };
    let names: Vec<_> = segments.iter().map(Ipv6Addr::to_string).collect();
    assert_eq!(names, ["fd00:1::c", "fd00:1::d", "::"]);
}

pub(crate) const END_DX4: &str =
    "0a400000 fe030001 00000000 0800 0f00 fe000000 1400 0100 fd00000d000000000000000000000000
    0800 0600 00040000 0800 0400 03000000 1400 1600 0800 0100 06000000 0800 0400 0a010002 0600 1500 0700 0000
    2400 0c00 0000000000000000 00000000 00000000 00000000 00000000 0000000000000000 0500 1400 00 000000";

/// `ip -6 route add fd00:d::/64 encap seg6local action End.DX4 nh4 10.1.0.2 dev n0`; and with `count`.
#[test]
fn end_dx4() {
    let (_, metric, nhg) = one(END_DX4);
    let behaviour = seg6::Behaviour {
        endpoint: seg6::Endpoint::EndDx4,
        flavours: seg6::Flavours::default(),
        operand: seg6::Operand::NextHop(Ipv4Addr::new(10, 1, 0, 2).into()),
    };
    assert_eq!((metric, &nhg.hops[0].encap), (1024, &Some(Encap::Seg6Local(behaviour))));
    let (_, _, counted) =
        one("0a400000 fe030001 00000000 0800 0f00 fe000000 1400 0100 fd00000e000000000000000000000000
        0800 0600 00040000 0800 0400 03000000 3c00 1600 0800 0100 06000000 0800 0400 0a010002
        2800 0a80 0c00 0200 0000000000000000 0c00 0300 0000000000000000 0c00 0400 0000000000000000
        0600 1500 0700 0000");
    let counted_behaviour = seg6::Behaviour {
        endpoint: seg6::Endpoint::EndDx4,
        flavours: seg6::Flavours::default(),
        operand: seg6::Operand::NextHop(Ipv4Addr::new(10, 1, 0, 2).into()),
    };
    assert_eq!(counted.hops[0].encap, Some(Encap::Seg6Local(counted_behaviour)));
}

/// `ip route add 10.13.0.0/16 via 172.16.0.1 dev n0 onlink`, `ip route add blackhole 10.14.0.0/16`, and an own address
#[test]
fn other_kinds() {
    let (_, _, onlink) = one("02100000 fe030001 04000000 0800 0f00 fe000000 0800 0100 0a0d0000
        0800 0500 ac100001 0800 0400 03000000");
    assert!(onlink.hops[0].onlink);
    let (_, _, blackhole) = one("02100000 fe030006 00000000 0800 0f00 fe000000 0800 0100 0a0e0000");
    assert_eq!((blackhole.kind, blackhole.hops.len()), (kind::BLACKHOLE, 0));
    let (len, _, own) =
        one("02200000 ff02fe02 00000000 0800 0f00 ff000000 0800 0100 0a010001 0800 0700 0a010001
        0800 0400 03000000");
    assert_eq!((len, own.kind, own.preferred), (32, kind::LOCAL, "10.1.0.1".parse().ok()));
}

/// A message with one more attribute at its end.
pub(crate) fn with(payload: &[u8], kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute =
        Request::new(0, 0, &[]).attribute(kind, value).finish(0).split_off(super::super::attribute::HEADER);
    [payload, &attribute].concat()
}

/// An unknown part of a route makes it the kernel's; a harmless one does not.
#[test]
fn unknown_parts_are_noticed() {
    let plain = bytes(GATEWAY);
    let unknown = |payload: &[u8]| decode(payload).unwrap().nhg().unknown;
    for kind in 1..=40 {
        let known = [1, 2, 4, 5, 6, 7, 8, 9, 11, 12, 15, 18, 20, 21, 22, 24, 30].contains(&kind);
        let expected = (!known).then_some(Unknown::Attribute(kind));
        assert_eq!(decode_nhg(&with(&plain, kind, &[])).unknown, expected, "attribute {kind}");
    }
    let metric = |kind, value: u32| {
        let metric = with(&[], kind, &value.to_ne_bytes());
        unknown(&with(&bytes("02100000 fe030001 00000000"), 8, &metric))
    };
    assert!((1..=17).all(|kind| metric(kind, 1).is_none()));
    assert_eq!(metric(18, 1), Some(Unknown::Metric(18)));
    assert_eq!(metric(12, 8), Some(Unknown::Features(8)), "allfrag");
    for (bit, known) in (0..32).map(|at| (1u32 << at, at < 7 || (8..16).contains(&at) || at == 29)) {
        let mut flagged = plain.clone();
        flagged[8..12].copy_from_slice(&bit.to_ne_bytes());
        match decode(&flagged) {
            None => assert_eq!(bit, RTM_F_CLONED),
            Some(route) => {
                assert_eq!(route.nhg().unknown, (!known).then_some(Unknown::Flags(bit)), "{bit:#x}")
            }
        }
    }
}

/// The same of the next hops of a multipath route.
#[test]
fn unknown_parts_of_next_hops_are_noticed() {
    let hop = |flags: u8, attributes: &[u8]| {
        let len = (8 + attributes.len()) as u16;
        [&len.to_ne_bytes()[..], &[flags, 0], &3u32.to_ne_bytes(), attributes].concat()
    };
    let gateway = with(&[], 5, &[10, 1, 0, 2]);
    let unknown = |second: &[u8]| {
        let hops = [&hop(0, &gateway), second].concat();
        decode_nhg(&with(&bytes("02100000 fe030001 00000000"), 9, &hops)).unknown
    };
    assert_eq!(unknown(&hop(0x7f, &gateway)), None);
    assert_eq!(unknown(&hop(0x80, &gateway)), Some(Unknown::Flags(0x80)));
    assert_eq!(unknown(&hop(0, &with(&gateway, 11, &[0; 4]))), None, "realms");
    assert_eq!(unknown(&hop(0, &with(&gateway, 19, &[0; 4]))), Some(Unknown::HopAttribute(19)));
    assert_eq!(unknown(&hop(0, &gateway)[..9]), Some(Unknown::Damaged));
    let mut key = [Vec::new(), Vec::new()];
    for (key, flags) in key.iter_mut().zip([0x00, 0x80]) {
        let payload = with(&bytes("02100000 fe030001 00000000"), 9, &hop(flags, &gateway));
        decode(&payload).unwrap().nhg_key(key);
    }
    assert_ne!(key[0], key[1]);
}

/// Cut anywhere, a message is refused or read in part, never beyond its end.
#[test]
fn cut_messages() {
    for whole in [bytes(GATEWAY), bytes(END_DX4)] {
        for len in 0..whole.len() {
            if let Some(route) = decode(&whole[..len]) {
                let mut key = Vec::new();
                route.nhg_key(&mut key);
                assert!(route.nhg().hops.len() <= 1);
            }
        }
        for at in 0..whole.len() {
            for value in [0, 1, 4, 5, 8, 255] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                if let Some(route) = decode(&damaged) {
                    route.nhg_key(&mut Vec::new());
                    let _ = route.nhg();
                }
            }
        }
    }
}
