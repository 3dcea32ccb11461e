//! Changes of routes, rules and neighbours that the kernel does not announce, or not wholly: a row of docs/unannounced.md each. The kernel is changed; seconds later packets go as it says, and `node audit` finds nothing.

use trieline_testbed::bed::Bed;
use trieline_testbed::command::sh;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::packets::send_ip;
use trieline_testbed::{craft, eventually, linux, needs_root, skip};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const MARKER: &[u8] = b"unannounced";

/// The mirror is the kernel's.
#[track_caller]
fn audited(bed: &Bed, what: &str) {
    let mut last = None;
    let equal = eventually(10.0, || last.insert(trieline(&bed.node, "node audit --no-repair")).code == 0);
    assert!(equal, "{what}: {last:?}");
}

/// Of 32 flows to this prefix those that came to the sink and to the side.
fn flows(bed: &Bed, prefix: &str) -> (usize, usize) {
    let seen = bed.watch(MARKER, || {
        for host in 1..=32 {
            let to = format!("{prefix}{host:x}");
            let packet = if to.contains(':') {
                craft::ipv6("fd00::2", &to, (17, &craft::udp(MARKER)), |_| {})
            } else {
                craft::ipv4("10.0.0.2", &format!("{prefix}{host}"), MARKER, |_| {})
            };
            send_ip(&bed.generator, &packet);
        }
    });
    (seen.sink.len(), seen.side.len())
}

/// Waits until all flows to this prefix come to the sink, or to both.
#[track_caller]
fn flow(bed: &Bed, what: &str, prefix: &str, both: bool) {
    let mut last = (0, 0);
    let equal = eventually(10.0, || {
        last = flows(bed, prefix);
        last.0 + last.1 == 32 && (last.1 > 0) == both
    });
    assert!(equal, "{what}: {last:?} (sink, side)");
}

/// A rule by an alternative name means the device, for as long as the device keeps its own name. `--dev` takes such a name, too.
#[test]
fn alternative_names_are_names() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.50.0.0/16 via 10.2.0.2 table 100");
    bed.node.ip("route add 10.55.0.0/16 via 10.2.0.2");
    bed.node.ip("link property add dev n0 altname enp9s0");
    bed.node.ip("link property add dev n2 altname enx020000000020verylong");
    let _daemon = Daemon::start(&bed.node, "--dev enp9s0 --dev n1 --dev enx020000000020verylong");
    bed.becomes("no rule", "10.50.0.1:9", (0, 5, 0));
    bed.becomes("devices by other names", "10.55.0.1:9", (0, 0, 5));
    bed.node.ip("rule add pref 100 iif enp9s0 lookup 100");
    bed.becomes("a rule by the other name", "10.50.0.1:9", (0, 0, 5));
    // A device keeps a rule when it loses the name by which the rule found it.
    bed.node.ip("link property add dev n0 altname enp9s1");
    bed.node.ip("rule add pref 99 iif enp9s1 to 10.55.0.0/16 prohibit");
    bed.node.ip("link property del dev n0 altname enp9s1");
    bed.becomes("the name is gone", "10.55.0.1:9", (5, 0, 0));
    bed.node.ip("rule del pref 99");
    bed.becomes("the rule is gone", "10.55.0.1:9", (0, 0, 5));
    audited(&bed, "names");
    // A name that comes after the rule is not the rule's.
    bed.node.ip("rule del pref 100");
    bed.node.ip("rule add pref 100 iif enp9s2 lookup 100");
    bed.node.ip("link property add dev n0 altname enp9s2");
    bed.becomes("a rule before its name", "10.50.0.1:9", (0, 5, 0));
    // The kernel reports no names of a device that is down.
    bed.node.ip("link add d0 type veth peer name d1");
    bed.node.ip("link property add dev d0 altname enp8s0");
    bed.node.ip("rule add pref 98 iif enp8s0 lookup 100");
    audited(&bed, "a device that is down");
    bed.becomes("a rule of another device", "10.50.0.1:9", (0, 5, 0));
}

/// The kernel can have the same rule twice, and loses one at a time.
#[test]
fn equal_rules_are_counted() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.50.0.0/16 via 10.2.0.2 table 100");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.node.ip("rule add pref 100 from 10.0.0.0/24 lookup 100");
    let name = bed.node.name();
    // `ip rule add` refuses a rule that is there; FRR, and this, do not.
    sh(&format!(
        "ip -n {name} rule save > /tmp/{name}; ip -n {name} rule restore < /tmp/{name}; rm /tmp/{name}"
    ));
    assert_eq!(bed.node.ip("rule").matches("100:").count(), 2);
    bed.becomes("twice", "10.50.0.1:9", (0, 0, 5));
    bed.node.ip("rule del pref 100");
    audited(&bed, "once");
    assert_eq!(bed.send("10.50.0.1:9", "once", 5).counts(), (0, 0, 5));
    bed.node.ip("rule del pref 100");
    bed.becomes("gone", "10.50.0.1:9", (0, 5, 0));
    audited(&bed, "gone");
}

/// A loose reverse path filter is strict on a device without an IPv4 address.
#[test]
fn a_loose_filter_without_an_address_is_strict() {
    needs_root!();
    let bed = Bed::routed();
    bed.generator.ip("neigh replace 10.0.0.1 lladdr 02:00:00:00:00:01 dev g0 nud permanent");
    bed.node.sysctl("net.ipv4.conf.n0.rp_filter", "2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let arrives = |source: &str, what: &str, count: usize| {
        let packet = craft::ipv4(source, "10.50.0.1", MARKER, |_| {});
        let equal = eventually(10.0, || bed.send_ip(&packet, MARKER).sink.len() == count);
        assert!(equal, "{what}: from {source}");
    };
    arrives("10.2.0.9", "numbered", 1);
    bed.node.ip("addr flush dev n0");
    bed.node.ip("route add 10.0.0.0/24 dev n0");
    arrives("10.2.0.9", "unnumbered", 0);
    arrives("10.0.0.2", "unnumbered", 1);
    bed.node.ip("addr add 10.0.0.1/24 dev n0");
    arrives("10.2.0.9", "numbered again", 1);
}

/// Where rules by device come before table local, an own source is found by the rules of the outgoing device.
#[test]
fn own_sources_are_found_behind_rules() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add default via 10.1.0.2 table 100");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for line in ["pref 32765 table local", "pref 100 iif n0 lookup 100"] {
        bed.node.ip(&format!("rule add {line}"));
    }
    bed.node.ip("rule del pref 0");
    for source in ["10.2.0.1", "10.2.0.255"] {
        let packet = craft::ipv4(source, "10.50.0.1", MARKER, |_| {});
        assert!(eventually(10.0, || bed.send_ip(&packet, MARKER).sink.is_empty()), "from {source}");
    }
    let packet = craft::ipv4("10.0.0.2", "10.50.0.1", MARKER, |_| {});
    assert_eq!(bed.send_ip(&packet, MARKER).sink.len(), 1);
}

/// Until there is a rule, Linux looks IPv4 addresses up in tables local and main as if they were one. From then on a short prefix of table
/// local hides the routes of main below it, and so their sources are the node's own. Equal routes by TOS do not hide an own source either.
#[test]
fn sources_below_a_local_prefix_are_the_kernels() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.60.0.0/16 via 10.2.0.2");
    bed.node.ip("route add local 10.56.0.0/13 dev lo");
    bed.node.ip("route add local 10.70.0.1/32 dev lo");
    bed.node.ip("route add local 10.70.0.1/32 tos 0x10 dev lo");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let from =
        |source: &str| bed.send_ip(&craft::ipv4(source, "10.50.0.1", MARKER, |_| {}), MARKER).sink.len();
    assert_eq!(from("10.60.0.1"), 1, "the tables are one");
    bed.node.ip("rule add pref 1000 oif n2 lookup 100");
    for source in ["10.60.0.1", "10.56.0.1", "10.70.0.1"] {
        assert!(eventually(10.0, || from(source) == 0), "from {source}");
    }
    assert_eq!(from("10.0.0.2"), 1);
    audited(&bed, "local prefixes");
}

/// Table local has a unicast route here, and is a table of its own, since rules ask another one between it and main. Neighbours come and go
/// there as anywhere.
#[test]
fn neighbours_of_table_local_are_followed() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 route add fd09::/64 via fd00:1::2 table 100");
    bed.node.ip("-6 rule add pref 5 lookup 100");
    bed.node.ip("-6 route add fd77::/64 dev n1 table local");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for mac in ["02:00:00:00:77:01", "02:00:00:00:77:02"] {
        bed.node.ip(&format!("neigh replace fd77::2 lladdr {mac} dev n1 nud permanent"));
        audited(&bed, "a neighbour");
    }
    bed.node.ip("neigh del fd77::2 dev n1");
    audited(&bed, "no neighbour");
    bed.node.ip("neigh replace fd77::2 lladdr 02:00:00:00:77:03 dev n1 nud permanent");
    bed.node.ip("-6 route del fd77::/64 dev n1 table local");
    audited(&bed, "no route");
    bed.node.ip("-6 route add fd77::/64 dev n1 table local");
    audited(&bed, "the route again");
}

/// A next hop dies with the last IPv4 address of its device, and lives again with a new one.
#[test]
fn next_hops_die_with_the_last_address() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.60.0.0/16 nexthop via 10.1.0.2 dev n1 nexthop via inet6 fd00:2::2 dev n2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    flow(&bed, "alive", "10.60.0.", true);
    bed.node.ip("-4 addr flush dev n2");
    flow(&bed, "without an address", "10.60.0.", false);
    audited(&bed, "without an address");
    bed.node.ip("addr add 10.2.0.1/24 dev n2");
    flow(&bed, "with a new address", "10.60.0.", true);
    bed.node.ip("-4 addr flush dev n2");
    flow(&bed, "without an address again", "10.60.0.", false);
    bed.node.ip("link set n2 down");
    bed.node.ip("route del 10.60.0.0/16");
    audited(&bed, "the route is gone");
}

/// A route of scope host stays when its link goes down, and a shorter prefix is not asked.
#[test]
fn routes_of_scope_host_outlive_their_link() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.60.0.0/16 via 10.1.0.2");
    bed.node.ip("route add 10.60.1.0/24 dev n2 scope host");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    flow(&bed, "the shorter prefix", "10.60.0.", false);
    bed.node.ip("link set n2 down");
    audited(&bed, "down");
    assert!(bed.node.ip("route").contains("10.60.1.0/24 dev n2 scope host"));
    assert_eq!(flows(&bed, "10.60.1."), (0, 0), "the kernel sends nothing by the route");
    flow(&bed, "the shorter prefix again", "10.60.0.", false);
}

/// A next hop dies where IPv6 is switched off on its device.
#[test]
fn next_hops_die_without_ipv6() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.sysctl("net.ipv6.conf.n2.keep_addr_on_down", "1");
    bed.node.ip("-6 route add fd60::/16 nexthop via fd00:1::2 dev n1 nexthop via fd00:2::2 dev n2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    flow(&bed, "alive", "fd60::", true);
    bed.node.sysctl("net.ipv6.conf.n2.disable_ipv6", "1");
    flow(&bed, "without IPv6", "fd60::", false);
    audited(&bed, "without IPv6");
    bed.node.sysctl("net.ipv6.conf.n2.disable_ipv6", "0");
    audited(&bed, "with IPv6 again");
}

/// A smaller MTU of the device shortens those of IPv6 routes, which stay so.
#[test]
fn mtus_of_routes_follow_the_device() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 route add fd60::/16 via fd00:1::2 mtu 1400");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let payload = [MARKER, &[0; 1312][..]].concat();
    let packet = craft::ipv6("fd00::2", "fd60::1", (17, &craft::udp(&payload)), |_| {});
    let sent = || bed.send_ip(&packet, MARKER).counts();
    assert!(eventually(10.0, || sent() == (0, 1, 0)), "as long as the route's MTU");
    bed.node.ip("link set n1 mtu 1300");
    // The route's MTU follows back to 1500 only from the device's own.
    bed.node.sysctl("net.ipv6.conf.n1.mtu", "1290");
    bed.node.ip("link set n1 mtu 1500");
    assert!(eventually(10.0, || sent() == (1, 0, 0)), "the route's MTU is 1300 by now");
    audited(&bed, "MTU");
}

/// Preferred sources go and ends come with a changed address.
#[test]
fn ipv6_addresses_change_routes() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 addr add fd00:9::1/64 dev n1 nodad");
    bed.node.ip("-6 route add fd60::/16 via fd00:1::2 src fd00:9::1");
    bed.node.ip("-6 addr add fd00:a::1/64 dev n1 nodad");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    audited(&bed, "at first");
    bed.node.ip("-6 addr del fd00:9::1/64 dev n1");
    audited(&bed, "the source is gone");
    bed.node.ip("-6 addr change fd00:a::1/64 dev n1 valid_lft 1000 preferred_lft 1000");
    audited(&bed, "the prefix has an end");
}

/// `ignore_routes_with_linkdown` of all devices holds for IPv4; IPv6 has it by device.
#[test]
fn routes_without_carrier_are_passed_over() {
    needs_root!();
    let bed = Bed::routed();
    for (family, prefix, gateways) in
        [("-4", "10.61.0.0/16", ["10.1.0.2", "10.2.0.2"]), ("-6", "fd61::/16", ["fd00:1::2", "fd00:2::2"])]
    {
        bed.node.ip(&format!("{family} route add {prefix} via {} dev n1 metric 10", gateways[0]));
        bed.node.ip(&format!("{family} route add {prefix} via {} dev n2 metric 100", gateways[1]));
    }
    // table local has a route, too, which counts only while its link has a carrier
    bed.node.ip("route add 10.62.0.0/16 via 10.1.0.2 dev n1 table local");
    bed.node.ip("route add 10.62.0.0/16 via 10.2.0.2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.node.sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", "1");
    bed.node.sysctl("net.ipv6.conf.n1.ignore_routes_with_linkdown", "1");
    audited(&bed, "settings");
    bed.becomes("a carrier", "10.61.0.1:9", (0, 5, 0));
    bed.sink.ip("link set s0 down");
    for to in ["10.61.0.1:9", "[fd61::1]:9", "10.62.0.1:9"] {
        bed.becomes("no carrier", to, (0, 0, 5));
    }
    let route = trieline(&bed.node, "route get 10.61.0.1").ok();
    assert!(route.contains("via 10.2.0.2"), "{route}");
    audited(&bed, "no carrier");
    bed.sink.ip("link set s0 up");
    bed.becomes("a carrier again", "10.61.0.1:9", (0, 5, 0));
    bed.becomes("a carrier again", "10.62.0.1:9", (0, 5, 0));
    audited(&bed, "a carrier again");
}

/// IPv6 keeps the metrics of each next hop, and tells those of one: such routes are the kernel's.
#[test]
fn metrics_of_one_next_hop_are_the_kernels() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.node.ip("-6 route add fd63::/16 via fd00:1::2 mtu lock 1300");
    bed.becomes("one next hop", "[fd63::1]:9", (0, 5, 0));
    bed.node.ip("-6 route append fd63::/16 via fd00:2::2");
    let passed = || bed.send("[fd63::1]:9", "two next hops", 5).passed.len();
    assert!(eventually(10.0, || passed() == 5), "two next hops");
    let shown = trieline(&bed.node, "route show fd63::/16").ok();
    assert!(shown.contains("the metrics of each next hop"), "{shown}");
    audited(&bed, "two next hops");
    // It stays so over a dump, which has one next hop's metrics.
    bed.node.ip("addr add 10.9.0.1/24 dev n1");
    bed.node.ip("-6 addr add fd00:9::1/64 dev n1 nodad");
    audited(&bed, "after a dump");
    assert_eq!(passed(), 5, "after a dump");
    bed.node.ip("-6 route del fd63::/16 via fd00:1::2");
    bed.becomes("the other next hop", "[fd63::1]:9", (0, 0, 5));
    audited(&bed, "the other next hop");
    // A dump has the metrics of the first one, which are none here.
    bed.node.ip("-6 route add fd64::/16 via fd00:1::2");
    bed.node.ip("-6 route append fd64::/16 via fd00:2::2 mtu 9000");
    audited(&bed, "metrics of the second next hop");
}

/// Neighbours go with a device's ARP, and come again.
#[test]
fn neighbours_follow_a_device_without_arp() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("at first", "10.50.0.1:9", (0, 5, 0));
    bed.node.ip("link set n1 arp off");
    audited(&bed, "arp off");
    bed.node.ip("link set n1 arp on");
    bed.warm();
    audited(&bed, "arp on");
    bed.becomes("arp on", "10.50.0.1:9", (0, 5, 0));
}

/// The kernel has several routes that differ by nothing but what forwarded packets do not meet, and loses one at a time.
#[test]
fn routes_that_forward_alike_are_several() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.node.ip("route add 10.64.0.0/16 via 10.1.0.2");
    bed.node.ip("route append 10.64.0.0/16 via 10.1.0.2 advmss 1300");
    bed.becomes("two", "10.64.0.1:9", (0, 5, 0));
    bed.node.ip("route del 10.64.0.0/16 via 10.1.0.2 advmss 1300");
    audited(&bed, "one");
    assert_eq!(bed.send("10.64.0.1:9", "one", 5).counts(), (0, 5, 0));
    for gateway in ["fd00:1::2", "fd00:2::2"] {
        bed.node.ip(&format!("-6 route append fd65::/16 via {gateway} proto ra"));
        bed.node.ip(&format!("-6 route append fd66::/16 from fd00::/16 via {gateway}"));
    }
    flow(&bed, "joined, though of router advertisements", "fd65::", true);
    audited(&bed, "joined");
    bed.node.ip("-6 route del fd65::/16 via fd00:1::2");
    bed.node.ip("-6 route del fd66::/16 from fd00::/16 via fd00:1::2");
    audited(&bed, "parted");
    bed.becomes("parted", "[fd65::1]:9", (0, 0, 5));
    bed.node.ip("-6 route del fd66::/16 from fd00::/16 via fd00:2::2");
    audited(&bed, "gone");
}

/// `force_forwarding` of Linux 6.17: IPv6 by some devices only.
#[test]
fn ipv6_is_forwarded_where_it_is_forced() {
    needs_root!();
    if linux() < (6, 17) {
        return skip("no force_forwarding before Linux 6.17");
    }
    let bed = Bed::routed();
    bed.node.sysctl("net.ipv6.conf.all.forwarding", "0");
    bed.node.sysctl("net.ipv6.conf.n0.force_forwarding", "1");
    let daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("forced", "[fd50::1]:9", (0, 5, 0));
    assert!(!daemon.log().contains("dev=\"n0\" family=\"IPv6\" forwarding"), "{}", daemon.log());
    bed.node.sysctl("net.ipv6.conf.n0.force_forwarding", "0");
    bed.becomes("not forced", "[fd50::1]:9", (5, 0, 0));
    bed.node.sysctl("net.ipv6.conf.n0.force_forwarding", "1");
    bed.becomes("forced again", "[fd50::1]:9", (0, 5, 0));
}

/// A device that gets another name has lost its configuration, which the log says.
#[test]
fn a_renamed_device_is_logged() {
    needs_root!();
    let bed = Bed::routed();
    let daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("at first", "10.50.0.1:9", (0, 5, 0));
    bed.node.ip("link set n0 down");
    bed.node.ip("link set n0 name wan0");
    bed.node.ip("link set wan0 up");
    assert!(eventually(5.0, || daemon.log().contains("has no configured name")), "{}", daemon.log());
    bed.becomes("renamed", "10.50.0.1:9", (5, 5, 0));
}

/// A device that is down and joins a VRF loses its routes.
#[test]
#[ignore = "needs VRF devices: run in tests/vm"]
fn routes_go_with_a_device_that_is_down() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("link add red type vrf table 100");
    bed.node.ip("link set red up");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for master in ["master red", "nomaster"] {
        bed.node.ip("link set n2 down");
        bed.node.ip(&format!("link set n2 {master}"));
        audited(&bed, master);
        bed.node.ip("link set n2 up");
        audited(&bed, "up");
    }
}
