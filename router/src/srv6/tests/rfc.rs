//! The golden packets of `[srv6] rfc = true`: what RFC 8986, 6040 and 2983 have otherwise than Linux. They need a port that
//! combines ECN fields.

use trieline_router::{Action, Adjacency, Endpoint, Headend, Target};

use super::cases::*;
use super::packet::*;
use super::srv6::*;

/// Hop limit of the outer headers.
const OWN: u8 = 63;
const B6: &str = "fd00:a::35";

/// Headends that follow the RFCs; endpoints are those of [`srv6_routes`].
pub fn rfc_routes(adjacency: &Adjacency) -> Vec<(String, Action)> {
    let encaps = |prefix: &str, n, reduced, l2| {
        let outer = pushed(n, reduced, if l2 { 143 } else { 4 }, OWN, &[]);
        let headend = Headend { l2, rfc: true, ..Headend::default() };
        (prefix.to_owned(), Action::Encaps { adjacency: adjacency.clone(), outer, headend })
    };
    let headend = Headend { rfc: true, ..Headend::default() };
    let outer = pushed(3, false, 41, OWN, &[]);
    vec![
        encaps("10.8.0.0/24", 2, false, false),
        encaps("10.8.1.0/24", 1, true, false),
        encaps("10.8.2.0/24", 2, false, true),
        encaps("10.8.3.0/24", 16, true, false),
        encaps("2001:db8:a00::/48", 2, false, false),
        encaps("2001:db8:a01::/48", 1, true, false),
        encaps("2001:db8:a02::/48", 2, false, true),
        encaps("2001:db8:a03::/48", 16, true, false),
        (
            B6.into(),
            Action::endpoint(
                Endpoint::EndB6Encaps,
                Target::Encaps { adjacency: adjacency.clone(), outer, headend },
            ),
        ),
    ]
}

/// An IPv6 packet with this traffic class.
fn classed(mut packet: Vec<u8>, class: u8) -> Vec<u8> {
    packet[0] = 0x60 | class >> 4;
    packet[1] = class << 4 | packet[1] & 0x0f;
    packet
}

fn frame(packet: &[u8]) -> Vec<u8> {
    Frame::new(packet.to_vec()).bytes()
}

/// Headends.
pub fn rfc_headend_cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (kind, n, reduced, l2) in
        [(0, 2, false, false), (1, 1, true, false), (2, 2, false, true), (3, 16, true, false)]
    {
        for class in [0x00, 0x01, 0x02, 0x03, 0xb8, 0xbb, 0xff] {
            let outer_class = if l2 { class & 0xfc } else { class };
            let v4 = edit_ipv4(ipv4(SOURCE4, &format!("10.8.{kind}.9"), 64), |p| p[1] = class);
            let v6 = classed(ipv6(SOURCE6, &format!("2001:db8:a0{kind}::9"), 17), class);
            for (packet, next, verdict) in [(v4, 4, "h_encaps_ipv4"), (v6, 41, "h_encaps_ipv6")] {
                let (inner, next, verdict) =
                    if l2 { (frame(&packet), 143, "h_encaps_l2") } else { (hop(&packet), next, verdict) };
                let mut out = classed(pushed(n, reduced, next, OWN, &inner), outer_class);
                if packet[0] >> 4 == 6 {
                    out[1] |= packet[1] & 0x0f;
                    out[2..4].copy_from_slice(&packet[2..4]);
                }
                let description = format!("RFC: headend {kind}, class {class:#x}, {verdict}");
                list.push(sends(description.leak(), frame(&packet), verdict, sent(&[], &out)));
            }
        }
    }
    let to = |destination, ttl| frame(&ipv4(SOURCE4, destination, ttl));
    list.push(case("RFC: TTL that ends at the headend", to("10.8.0.9", 1), "ipv4_ttl"));
    let v4 = ipv4(SOURCE4, "10.8.0.9", 2);
    let out = sent(&[], &pushed(2, false, 4, OWN, &hop(&v4)));
    list.push(sends("RFC: the last TTL but one", frame(&v4), "h_encaps_ipv4", out));
    let v4 = ipv4(SOURCE4, "10.8.2.9", 1);
    let out = sent(&[], &pushed(2, false, 143, OWN, &frame(&v4)));
    list.push(sends("RFC: a frame's TTL is its own", frame(&v4), "h_encaps_l2", out));
    let v6 = frame(&ipv6(SOURCE6, "2001:db8:a00::9", 1));
    list.push(case("RFC: hop limit that ends at the headend", v6, "ipv6_hop_limit"));
    let path = vec![B6.to_owned(), "fd00:2::a1".into(), "fd00:2::a2".into()];
    let packet = classed(at(B6, &path, 2, 4, 40, &ipv4(SOURCE4, "198.51.100.1", 64)), 0x2a);
    let inner = classed(at("fd00:2::a1", &path, 1, 4, 39, &packet[40 + 56..]), 0x2a);
    let out = classed(pushed(3, false, 41, OWN, &inner), 0x2a);
    list.push(sends("RFC: End.B6.Encaps", frame(&packet), "end_b6_encaps", sent(&[], &out)));
    list
}

/// Decapsulation: inner and outer ECN fields in all combinations, and what becomes of the inner one.
pub fn rfc_decap_cases() -> Vec<Case> {
    // RFC 6040, figure 4, written a second time: (inner, outer) that change the inner field.
    let changed = |inner, outer| match (inner, outer) {
        (1 | 2, 3) => 3,
        (2, 1) => 1,
        _ => inner,
    };
    let mut list = Vec::new();
    let sids4 = [(SID, "end_dx4"), ("fd00:a::23", "end_dt4"), ("fd00:a::24", "end_dt4")];
    let sids6 = [("fd00:a::20", "end_dx6"), ("fd00:a::22", "end_dt6"), ("fd00:a::24", "end_dt6")];
    for ((four, verdict4), (six, verdict6)) in sids4.into_iter().zip(sids6) {
        for (inner, outer_ecn) in (0..16).map(|both| (both >> 2, both & 3)) {
            // Another DSCP than the inner one, which stays.
            let around =
                |sid, next, packet: &[u8]| classed(outer(SOURCE6, sid, next, 64, packet), 0x50 | outer_ecn);
            let v4 = |ecn| edit_ipv4(ipv4(SOURCE4, "198.51.100.1", 64), |p| p[1] = 0xb8 | ecn);
            let v6 = |ecn| classed(ipv6(SOURCE6, "2001:db8:1::1", 64), 0xb8 | ecn);
            for (sid, next, verdict, before, after) in [
                (four, 4, verdict4, v4(inner), v4(changed(inner, outer_ecn))),
                (six, 41, verdict6, v6(inner), v6(changed(inner, outer_ecn))),
            ] {
                let description = format!("RFC: {sid}, IP in {next}, ECN {inner} in {outer_ecn}").leak();
                let input = frame(&around(sid, next, &before));
                list.push(match (inner, outer_ecn) {
                    (0, 3) => case(description, input, "ecn"),
                    _ => sends(description, input, verdict, sent(&[], &hop(&after))),
                });
            }
        }
    }
    list
}
