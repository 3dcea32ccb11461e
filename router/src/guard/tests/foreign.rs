//! Frames of no port: the rules of the device hold. A bridge, a receive handler or a device in another network namespace may take them.

use super::*;

/// Tags that lead to no port, and how many bytes they are.
const FOREIGN: [&[(u16, u16)]; 5] = [
    &[(0x8100, 7)],
    &[(0x8100, 0), (0x8100, 7)],
    &[(0x88a8, 100)],
    &[(0x8100, 7), (0x8100, 8)],
    &[(0x88a8, 9), (0x8100, 100), (0x8100, 0)],
];

#[test]
fn tags_without_a_port_hide_nothing() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type);
        bench.dataplane.filters().set(&[vec![dropping()], vec![], vec![], vec![dropping()]]).unwrap();
        let bound = BTreeMap::from([("fd00:b::6".parse().unwrap(), SidHook::Filter(3))]);
        bench.dataplane.sid_hooks().set(&bound).unwrap();
        let bad = "2001:db8:bad::1";
        let to_sid = |source: &str| outer(SOURCE6, "fd00:b::6", 41, 64, &ipv6(source, "2001:db8:1::1", 64));
        for tags in FOREIGN {
            for mac in [PORT_MAC, ALL_HOSTS, [2, 0, 0, 0, 0, 77]] {
                let frame = |packet: &[u8]| tagged(&Frame::new(packet.to_vec()).to(mac).bytes(), tags);
                for (what, packet, filtered, hooked) in [
                    ("IPv4", ipv4(SOURCE4, "198.51.100.1", 64), "filtered", "no_port"),
                    ("IPv6", ipv6(bad, "2001:db8:1::1", 64), "filtered", "no_port"),
                    ("another source", ipv4("192.0.2.7", "198.51.100.1", 64), "no_port", "no_port"),
                    ("to a SID", to_sid(bad), "no_port", "filtered"),
                    ("harmless, to a SID", to_sid(SOURCE6), "no_port", "no_port"),
                ] {
                    let what = format!("{what} behind {tags:x?}");
                    expect(&mut bench, FILTERED, &what, &frame(&packet), filtered);
                    expect(&mut bench, SID_HOOKS, &what, &frame(&packet), hooked);
                    expect(&mut bench, TENANT, &what, &frame(&packet), "tenant");
                    expect(&mut bench, ALL, &what, &frame(&packet), "no_port");
                }
                let arp = tagged(&Frame::new(vec![0; 28]).ether_type(0x0806).to(mac).bytes(), tags);
                let mpls = tagged(&Frame::new(vec![0; 28]).ether_type(0x8847).to(mac).bytes(), tags);
                expect(&mut bench, FILTERED, "ARP", &arp, "no_port");
                expect(&mut bench, FILTERED, "MPLS", &mpls, "uninspectable");
                expect(&mut bench, TENANT, "ARP", &arp, "no_port");
            }
        }
        let many = [(0x8100, 7); 6];
        let frame = tagged(&Frame::new(ipv4("192.0.2.7", "198.51.100.1", 64)).bytes(), &many);
        expect(&mut bench, FILTERED, "more tags than are read", &frame, "uninspectable");
        // A device without a port of its own has no rules.
        bench.dataplane.clear_port(LO, None).unwrap();
        let frame = tagged(&Frame::new(ipv4(SOURCE4, "198.51.100.1", 64)).bytes(), &[(0x8100, 7)]);
        assert_eq!(bench.run(&frame).counted, "no_port");
    }
}
