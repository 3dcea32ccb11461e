//! Packets between the stations of one link, which lists of what does not belong into the Internet hold, too.

use super::*;

/// An own address of the bench's routes, of each family.
const OWN4: &str = "203.0.113.1";
const OWN6: &str = "2001:db8:6::1";

/// ICMPv6 of a type, with this hop limit.
fn icmp6(from: &str, to: &str, kind: u8, limit: u8) -> Vec<u8> {
    outer(from, to, 58, limit, &[kind, 0, 0, 0, 0, 0, 0, 0])
}

/// IPv4 of a protocol with a TTL.
fn of4(from: &str, to: &str, protocol: u8, ttl: u8) -> Vec<u8> {
    edit_ipv4(ipv4(from, to, ttl), |p| p[9] = protocol)
}

/// UDP between two ports.
fn udp(from: &str, to: &str, ports: [u16; 2]) -> Vec<u8> {
    edit_ipv4(ipv4(from, to, 64), |p| {
        p[20..24].copy_from_slice(&[ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat())
    })
}

/// Packets that a filter of all addresses leaves alone, with their verdict, and others like them that it drops: these could go on.
fn packets() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let (private, global, far4, far6) = ("10.0.0.9", "2001:db8::9", "198.51.100.1", "2001:db8:1::1");
    let special4 = "ipv4_special_purpose";
    let special6 = "ipv6_special_purpose";
    let gone = "filtered";
    let options = edit_ipv4(of4(private, OWN4, 89, 1), |p| p[0] = 0x46);
    let fragment = edit_ipv4(udp(private, OWN4, [67, 68]), |p| p[6] = 0x20);
    vec![
        ("solicitation from the neighbour's address", icmp6(global, OWN6, 135, 255), "local"),
        ("solicitation through this node", icmp6(global, far6, 135, 255), gone),
        ("one that was forwarded", icmp6(global, OWN6, 135, 254), gone),
        ("a ping with the highest hop limit", icmp6(global, OWN6, 128, 255), gone),
        ("advertisement between link-local addresses", icmp6("fe80::9", "fe80::1", 136, 255), special6),
        ("BGP between link-local addresses", ipv6("fe80::9", "fe80::1", 64), special6),
        ("from the end of link-local", ipv6("febf::9", "febf::1", 64), special6),
        ("beyond it", ipv6("fec0::9", "fe80::1", 64), gone),
        ("from a link-local address through this node", ipv6("fe80::9", far6, 64), gone),
        ("from a link-local address to a global one of this node", ipv6("fe80::9", OWN6, 64), gone),
        ("to a link-local address from a global one", ipv6(global, "fe80::1", 64), gone),
        (
            "another packet between link-local addresses",
            outer("fe80::9", "fe80::1", 41, 64, &ipv6(global, far6, 64)),
            gone,
        ),
        (
            "a routing header between them",
            outer("fe80::9", "fe80::1", 43, 64, &srh(17, 1, &[far6, "fe80::1"], &[0; 8])),
            gone,
        ),
        ("to a group of the link", ipv6(global, "ff02::5", 64), special6),
        ("a report of MLD", icmp6("fe80::9", "ff05::9", 131, 1), special6),
        ("to a group beyond the link", icmp6("fe80::9", "ff05::9", 131, 2), gone),
        ("OSPF", of4(private, OWN4, 89, 1), "local"),
        ("OSPF, guarded by its TTL", of4(private, OWN4, 89, 255), "local"),
        ("OSPF over routers", of4(private, OWN4, 89, 64), gone),
        ("OSPF through this node", of4(private, far4, 89, 1), gone),
        ("OSPF with options", options, gone),
        ("a report of IGMP", of4(private, "239.1.1.1", 2, 1), special4),
        ("to a group beyond the link, IPv4", of4(private, "239.1.1.1", 17, 1), gone),
        ("DHCP to a client", udp(private, OWN4, [67, 68]), "local"),
        ("DHCP to a relay", udp(private, OWN4, [67, 67]), "local"),
        ("DHCP through this node", udp(private, far4, [67, 68]), gone),
        ("to a port of DHCP", udp(private, OWN4, [53, 68]), gone),
        ("from a port of DHCP", udp(private, OWN4, [67, 53]), gone),
        ("a fragment of it", fragment, gone),
        ("IPv4 between link-local addresses", ipv4("169.254.0.9", "169.254.0.1", 64), "local"),
        ("IPv4 link-local, not this node's", ipv4("169.254.0.9", "169.254.0.2", 64), gone),
        ("IPv4 link-local through this node", ipv4("169.254.0.9", far4, 64), gone),
        ("another packet between them", of4("169.254.0.9", "169.254.0.1", 4, 64), gone),
        ("to a group of the link, IPv4", ipv4(private, "224.0.0.5", 1), special4),
        ("DHCP to all", udp("0.0.0.0", "255.255.255.255", [68, 67]), special4),
    ]
}

#[test]
fn what_belongs_to_the_link_is_left_alone() {
    needs_root!();
    for map_type in map_types() {
        let mut all = routes(LO);
        all.push(("169.254.0.1", trieline_router::Action::Pass(trieline_router::PassReason::Local)));
        let mut bench = Bench::new(map_type, &all);
        write_set(&mut bench, 0, &["0.0.0.0/0", "::/0"]);
        let filtered = trieline_router::PortFlags { filter: true, ..ALL };
        // The kernel knows nothing of a declared tenant: its own addresses count.
        for tenant in [false, true] {
            bench
                .dataplane
                .set_port(LO, None, port(trieline_router::PortFlags { tenant, ..filtered }))
                .unwrap();
            let bogons = filter("bogons", 0, FilterAction::Drop);
            bench.dataplane.filters().set(&[vec![bogons.clone()]]).unwrap();
            for (what, packet, verdict) in packets() {
                let verdict = if tenant && (what.contains("MLD") || what.contains("IGMP")) {
                    "tenant"
                } else {
                    verdict
                };
                expect(&bench, what, &packet, verdict);
                let elsewhere = Frame::new(packet.clone()).to([2, 0, 0, 0, 0, 77]).bytes();
                let left =
                    if verdict == "filtered" || verdict == "tenant" { verdict } else { "mac_mismatch" };
                assert_eq!(bench.run(&elsewhere).counted, left, "{what}, to another MAC address");
            }
            let asked = FilterRule { link: true, ..bogons.rule.clone() };
            let asked = Filter { rule: asked, ..bogons };
            bench.dataplane.filters().set(&[vec![asked.clone()]]).unwrap();
            assert_eq!(bench.dataplane.filters().list(0), [asked]);
            for (what, packet, _) in packets() {
                expect(&bench, what, &packet, "filtered");
            }
        }
    }
}
