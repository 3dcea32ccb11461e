//! Filters: which packets they match, what becomes of them, and what is counted, for both map types.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/mod.rs"]
mod common;
mod link;

use common::cases::*;
use common::filters::*;
use common::packet::*;
use common::*;
use trieline_router::{Filter, FilterAction, FilterCount, FilterMatch, FilterRule};
use trieline_testbed::needs_root;

fn bench(map_type: trieline_router::ImageMapType) -> Bench {
    let mut bench = Bench::new(map_type, &routes(LO));
    let filtered = trieline_router::PortFlags { filter: true, ..ALL };
    bench.dataplane.set_port(LO, None, port(filtered)).unwrap();
    bench
}

#[track_caller]
fn expect(bench: &Bench, what: &str, packet: &[u8], verdict: &str) {
    assert_eq!(bench.run(&Frame::new(packet.to_vec()).bytes()).counted, verdict, "{what}");
}

/// Addresses, both families, source and destination, and the order of the actions.
#[test]
fn the_first_that_decides_decides() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type);
        let from = |source: &str| ipv4(source, "198.51.100.1", 64);
        expect(&bench, "no filters", &from("192.0.2.66"), "ipv4");
        write_set(&mut bench, 0, &["192.0.2.0/24", "2001:db8:66::/48"]);
        write_set(&mut bench, 1, &["192.0.2.66", "2001:db8:66::1"]);
        let drop = || filter("net", 0, FilterAction::Drop);
        bench.dataplane.filters().set(&[vec![drop()]]).unwrap();
        let v6 = |source: &str| ipv6(source, "2001:db8:1::1", 64);
        for (packet, verdict) in [
            (from("192.0.2.66"), "filtered"),
            (from("192.0.3.66"), "ipv4"),
            (v6("2001:db8:66::9"), "filtered"),
            (v6("2001:db8:67::9"), "ipv6"),
            // To it is not from it.
            (ipv4("198.51.100.1", "192.0.2.66", 64), "no_route"),
        ] {
            expect(&bench, "drop", &packet, verdict);
        }
        for (action, verdict) in [
            (FilterAction::Allow, "ipv4"),
            (FilterAction::Pass, "filter"),
            (FilterAction::Count, "filtered"),
            (FilterAction::Drop, "filtered"),
        ] {
            let before = bench.dataplane.filters().count(&filter("", 0, action)).unwrap();
            bench.dataplane.filters().set(&[vec![filter("host", 1, action), drop()]]).unwrap();
            expect(&bench, &action.to_string(), &from("192.0.2.66"), verdict);
            expect(&bench, "the others", &from("192.0.2.67"), "filtered");
            let after = bench.dataplane.filters().count(&filter("", 0, action)).unwrap();
            assert_eq!(after.packets - before.packets, 1 + u64::from(action == FilterAction::Count));
        }
        // Four packets matched the host's filter; a frame has 60 bytes.
        let count = bench.dataplane.filters().count(&filter("", 1, FilterAction::Drop)).unwrap();
        assert_eq!(count, FilterCount { packets: 4, bytes: 4 * (14 + 46) });
        bench.dataplane.filters().reset(1).unwrap();
        let count = bench.dataplane.filters().count(&filter("", 1, FilterAction::Drop)).unwrap();
        assert_eq!(count, FilterCount::default());
        let to = FilterRule { address: FilterMatch::Destination, ..drop().rule };
        let to = Filter { rule: to, ..drop() };
        bench.dataplane.filters().set(&[vec![to.clone()]]).unwrap();
        assert_eq!(bench.dataplane.filters().list(0), [to]);
        expect(&bench, "to it", &ipv4("198.51.100.1", "192.0.2.66", 64), "filtered");
        expect(&bench, "from it", &from("192.0.2.66"), "ipv4");
        bench.dataplane.filters().set(&[]).unwrap();
        expect(&bench, "none again", &ipv4("198.51.100.1", "192.0.2.66", 64), "no_route");
    }
}

/// IPv4 with this protocol and fragment field; the payload begins like UDP's or TCP's.
fn other(protocol: u8, fragment: u16) -> Vec<u8> {
    edit_ipv4(ipv4("192.0.2.66", "198.51.100.1", 64), |p| {
        p[9] = protocol;
        p[6..8].copy_from_slice(&fragment.to_be_bytes());
    })
}

/// IPv6 whose UDP datagram to port 53 stands behind these headers, (kind, bytes) each.
fn behind(headers: &[(u8, &[u8])], protocol: u8) -> Vec<u8> {
    let udp = ipv6("2001:db8:66::9", "2001:db8:1::1", 64)[40..].to_vec();
    let mut packet = outer("2001:db8:66::9", "2001:db8:1::1", protocol, 64, &[]);
    let kinds = headers.iter().map(|(kind, _)| *kind).chain([protocol]);
    for (nth, (next, (_, bytes))) in kinds.clone().skip(1).zip(headers).enumerate() {
        if nth == 0 {
            packet[6] = headers[0].0;
        }
        packet.extend([&[next][..], bytes].concat());
    }
    packet.extend(udp);
    let payload = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
    packet
}

/// Protocols and ports, behind extension headers too, and what fragments meet.
#[test]
fn protocols_and_ports() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type);
        write_set(&mut bench, 0, &["192.0.2.0/24", "2001:db8:66::/48"]);
        let udp = filter("udp", 0, FilterAction::Drop);
        let udp = narrowed(udp, Some(17), &[]);
        bench.dataplane.filters().set(&[vec![udp.clone()]]).unwrap();
        let options: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
        let fragment = |field: u16| [&[0][..], &field.to_be_bytes(), &[0, 0, 0, 9]].concat();
        let ah: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (first, later) = (fragment(1), fragment(8 | 1));
        for (what, packet, by_protocol, by_port) in [
            ("UDP", other(17, 0), true, true),
            ("TCP", other(6, 0), false, false),
            ("first fragment", other(17, 0x2000), true, true),
            ("later fragment", other(17, 2), true, false),
            ("IPv6", behind(&[], 17), true, true),
            ("IPv6 TCP", behind(&[], 6), false, false),
            ("destination options", behind(&[(60, options)], 17), true, true),
            ("two headers", behind(&[(60, options), (51, ah)], 17), true, true),
            ("IPv6 first fragment", behind(&[(44, &first)], 17), true, true),
            ("IPv6 later fragment", behind(&[(60, options), (44, &later)], 17), true, false),
            ("six headers", behind(&[(60, options); 6], 17), true, true),
        ] {
            let open = if packet[0] >> 4 == 4 { "ipv4" } else { "ipv6" };
            let verdict = |hit: bool| if hit { "filtered" } else { open };
            bench.dataplane.filters().set(&[vec![udp.clone()]]).unwrap();
            expect(&bench, what, &packet, verdict(by_protocol));
            for (ports, hit) in
                [(&[53..=53][..], true), (&[1..=52, 54..=65535], false), (&[1..=5, 50..=60], true)]
            {
                let by_ports = narrowed(udp.clone(), Some(17), ports);
                bench.dataplane.filters().set(&[vec![by_ports.clone()]]).unwrap();
                expect(&bench, what, &packet, verdict(by_port && hit));
                assert_eq!(bench.dataplane.filters().list(0), [by_ports]);
            }
            // Their source port is 1234. Both kinds of ports have to match.
            for (to, from, hit) in [
                (&[][..], 1234, true),
                (&[][..], 53, false),
                (&[53..=53], 1234, true),
                (&[54..=54], 1234, false),
            ] {
                let mut by_ports = narrowed(udp.clone(), Some(17), to);
                by_ports.rule.source_ports = vec![from..=from];
                bench.dataplane.filters().set(&[vec![by_ports.clone()]]).unwrap();
                expect(&bench, what, &packet, verdict(by_port && hit));
                assert_eq!(bench.dataplane.filters().list(0), [by_ports]);
            }
        }
        // Ports of any protocol that has some, at the end of the packet.
        let any = narrowed(filter("ports", 0, FilterAction::Drop), None, &[53..=53]);
        bench.dataplane.filters().set(&[vec![any]]).unwrap();
        for protocol in [6, 17, 33, 132, 136] {
            expect(&bench, "has ports", &other(protocol, 0), "filtered");
        }
        expect(&bench, "GRE has none", &other(47, 0), "ipv4");
        let cut = edit_ipv4(other(17, 0x2000)[..22].to_vec(), |p| p[3] = 22);
        expect(&bench, "ports cut off", &cut, "uninspectable");
        // A filter needs bytes that it cannot read: the receiver may find anything when it puts the fragments together.
        let short = |packet: Vec<u8>, payload: u16| {
            [&packet[..4], &payload.to_be_bytes(), &packet[6..]].concat() // the rest is a trailer
        };
        for (what, packet) in [
            ("too many headers", behind(&[(60, options); 7], 17)),
            ("a trailer for a port", short(behind(&[], 17), 2)),
            ("a trailer for a header", short(behind(&[(60, options)], 17), 4)),
            ("a trailer for the second header", short(behind(&[(44, &first), (60, options)], 17), 8)),
            ("a trailer for half of it", short(behind(&[(44, &first), (60, options)], 17), 12)),
            ("a trailer for a fragment's port", short(behind(&[(44, &first), (60, options)], 17), 16)),
            ("IPv4 trailer", edit_ipv4(other(17, 0), |p| p[3] = 20)),
        ] {
            expect(&bench, what, &packet, "uninspectable");
        }
        bench.dataplane.filters().set(&[vec![filter("addresses", 0, FilterAction::Count)]]).unwrap();
        expect(&bench, "not asked for", &behind(&[(60, options); 7], 17), "ipv6");
    }
}

/// Packets that are passed for their headers would else bypass the filters.
#[test]
fn filters_hold_for_passed_packets() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type);
        write_set(&mut bench, 0, &["192.0.2.0/24", "2001:db8:66::/48"]);
        let by_port = narrowed(filter("dns", 0, FilterAction::Drop), None, &[53..=53]);
        bench.dataplane.filters().set(&[vec![by_port]]).unwrap();
        let plain = ipv4("192.0.2.66", "198.51.100.1", 64);
        let mut options = [&plain[..20], &[1; 4], &plain[20..]].concat();
        options[3] += 4;
        expect(&bench, "options", &edit_options(options), "filtered");
        expect(&bench, "to a multicast group", &ipv4("192.0.2.66", "239.1.1.1", 64), "filtered");
        let hop_by_hop = behind(&[(0, &[0, 1, 4, 0, 0, 0, 0])], 17);
        expect(&bench, "hop-by-hop options", &hop_by_hop, "filtered");
        expect(&bench, "wrong checksum", &[&plain[..11], &[0], &plain[12..]].concat(), "ipv4_checksum");
        let off = trieline_router::PortFlags { forward4: false, filter: true, ..ALL };
        bench.dataplane.set_port(LO, None, port(off)).unwrap();
        expect(&bench, "forwarding off", &plain, "filtered");
        expect(&bench, "of others", &ipv4("192.0.3.66", "198.51.100.1", 64), "forwarding_off");
    }
}

/// A header of 24 bytes with its checksum.
fn edit_options(mut packet: Vec<u8>) -> Vec<u8> {
    packet[0] = 0x46;
    packet
}

/// Bad lists are refused as a whole.
#[test]
fn filters_that_do_not_fit_change_nothing() {
    needs_root!();
    let mut bench = bench(map_types()[0]);
    write_set(&mut bench, 0, &["192.0.2.0/24"]);
    let good = || filter("good", 0, FilterAction::Drop);
    bench.dataplane.filters().set(&[vec![good(); 64]]).unwrap();
    let name = filter(&"x".repeat(32), 0, FilterAction::Drop);
    let ports = narrowed(good(), None, &vec![1..=1; 9]);
    for bad in [vec![good(); 65], vec![name], vec![ports]] {
        assert!(bench.dataplane.filters().set(&[bad]).is_err());
        assert_eq!(bench.dataplane.filters().list(0).len(), 64);
        expect(&bench, "still", &ipv4("192.0.2.66", "198.51.100.1", 64), "filtered");
    }
}
