//! SID hooks hold for SIDs that a packet reaches by a tunnel of the kernel's.

use super::*;
use trieline_testbed::needs_root;

/// An IPv4 packet of a protocol around a payload.
fn around4(to: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let packet = [&ipv4("192.0.2.7", to, 64)[..20], payload].concat();
    let length = packet.len() as u16;
    edit_ipv4(packet, |p| {
        p[2..4].copy_from_slice(&length.to_be_bytes());
        p[9] = protocol;
    })
}

/// A GRE header with what its flags announce, around a payload.
fn gre(flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let words = (flags & 0xf000).count_ones() as usize;
    [&flags.to_be_bytes()[..], &kind.to_be_bytes(), &vec![0x45; 4 * words], payload].concat()
}

/// The kernel may end a tunnel: what is bound to a SID is done for packets that reach it from there.
#[test]
fn sid_hooks_hold_for_sids_reached_by_a_tunnel() {
    needs_root!();
    let (own4, own6, bound) = ("203.0.113.1", "2001:db8:6::1", "fd00:b::6");
    let frame = |packet: Vec<u8>| Frame::new(packet).bytes();
    let around6 = |to: &str, protocol: u8, payload: &[u8]| outer(SOURCE6, to, protocol, 64, payload);
    let to_sid = |source: &str| around6(bound, 41, &ipv6(source, "2001:db8:1::1", 64));
    for map_type in map_types() {
        let mut bench = bench(map_type);
        bench.dataplane.filters().set(&[vec![], vec![], vec![], vec![dropping()]]).unwrap();
        let map = BTreeMap::from([(bound.parse().unwrap(), SidHook::Filter(3))]);
        bench.dataplane.sid_hooks().set(&map).unwrap();
        for (source, verdict) in [("2001:db8:bad::1", "filtered"), (SOURCE6, "local")] {
            let inner = to_sid(source);
            let by_end = around6("fd00:b::1", 43, &srh(41, 1, &[bound, "fd00:b::1"], &inner[40..]));
            for (what, packet) in [
                ("IPv6 in IPv4", around4(own4, 41, &inner)),
                ("behind End in IPv4", around4(own4, 41, &by_end)),
                ("IPv6 in IPv4 in IPv4", around4(own4, 4, &around4(own4, 41, &inner))),
                ("GRE", around4(own4, 47, &gre(0, 0x86dd, &inner))),
                ("GRE with a key", around4(own4, 47, &gre(0x2000, 0x86dd, &inner))),
                ("GRE with all", around4(own4, 47, &gre(0xb000, 0x86dd, &inner))),
                ("IPv4 in GRE", around4(own4, 47, &gre(0, 0x0800, &around4(own4, 41, &inner)))),
                ("GRE over IPv6", around6(own6, 47, &gre(0, 0x86dd, &inner))),
                ("IPv4 in IPv6", around6(own6, 4, &around4(own4, 41, &inner))),
            ] {
                expect(&mut bench, SID_HOOKS, what, &frame(packet.clone()), verdict);
                expect(&mut bench, ALL, what, &frame(packet), "local");
            }
            // To all on the link, a tunnel ends here, too.
            let to_all = around4("224.0.0.1", 41, &inner);
            let verdict = if verdict == "local" { "mac_mismatch" } else { verdict };
            let to_all = Frame::new(to_all).to([1, 0, 0x5e, 0, 0, 1]).bytes();
            expect(&mut bench, SID_HOOKS, "to a group", &to_all, verdict);
        }
        let bad = to_sid("2001:db8:bad::1");
        let fragment = |field: u16, packet: Vec<u8>| {
            edit_ipv4(packet, |p| p[6..8].copy_from_slice(&field.to_be_bytes()))
        };
        let whole = around4(own4, 41, &bad);
        for (what, packet, verdict) in [
            ("a bridged frame in GRE", around4(own4, 47, &gre(0, 0x6558, &bad)), "uninspectable"),
            ("GRE with a route", around4(own4, 47, &gre(0x4000, 0x86dd, &bad)), "uninspectable"),
            ("PPTP", around4(own4, 47, &gre(0x2001, 0x880b, &bad)), "uninspectable"),
            ("L2TP", around4(own4, 115, &bad), "uninspectable"),
            ("L2TP over IPv6", around6(own6, 115, &bad), "uninspectable"),
            ("MPLS", around4(own4, 137, &bad), "uninspectable"),
            ("cut in the tunnel's header", around4(own4, 47, &[0, 0]), "uninspectable"),
            ("a first fragment, cut", fragment(0x2000, whole[..28].to_vec()), "ipv4_length"),
            ("a first fragment", fragment(0x2000, whole.clone()), "filtered"),
            ("a later fragment", fragment(8, whole), "local"),
            // A router's own, and what it does not end.
            ("OSPF", around4(own4, 89, &bad), "local"),
            ("PIM", around4(own4, 103, &bad), "local"),
            ("UDP", ipv4("192.0.2.7", own4, 64), "local"),
            ("L2TP of others", around6("2001:db8:99::1", 115, &bad), "no_route"),
            ("GRE of others", around6("2001:db8:99::1", 47, &gre(0, 0x6558, &bad)), "no_route"),
        ] {
            expect(&mut bench, SID_HOOKS, what, &frame(packet), verdict);
        }
    }
}
