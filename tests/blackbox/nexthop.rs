//! Ways out that are more than a gateway: next hop objects, next hops of the other family, `onlink`, MTUs of routes. Also
//! neighbours that only XDP uses.

use trieline_testbed::bed::{Bed, until_counts};
use trieline_testbed::daemon::{Daemon, status};
use trieline_testbed::{craft, eventually, needs_root, packets};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const ROUTES: u32 = 5000;

/// An object that is replaced moves all of its routes, with no dump; whether routes tell their next hops or only the object's
/// number.
#[test]
fn objects_move_their_routes() {
    needs_root!();
    for compat in ["1", "0"] {
        let bed = Bed::new();
        bed.warm();
        bed.node.sysctl("net.ipv4.nexthop_compat_mode", compat);
        for line in ["nexthop add id 1 via 10.1.0.2 dev n1", "-6 nexthop add id 2 via fd00:1::2 dev n1"] {
            bed.node.ip(line);
        }
        let mut lines = String::new();
        for n in 0..ROUTES {
            lines += &format!("route add 10.{}.{}.0/24 nhid 1\n", 40 + (n >> 8), n & 255);
        }
        bed.node.ip_batch(&[], &lines).ok();
        bed.node.ip("-6 route add fd50::/32 nhid 2");
        bed.node.ip("route add 10.90.0.0/16 nhid 2");
        let _daemon = Daemon::start(&bed.node, DEVICES);
        for to in ["10.50.0.1:9", "10.40.9.1:9", "[fd50::1]:9", "10.90.0.1:9"] {
            bed.becomes("by object", to, (0, 5, 0));
        }
        // (1) another way out, for all that use it
        let dumps = status(&bed.node)["resyncs"].clone();
        bed.node.ip("nexthop replace id 1 via 10.2.0.2 dev n2");
        bed.node.ip("-6 nexthop replace id 2 via fd00:2::2 dev n2");
        for to in ["10.50.0.1:9", "10.40.9.1:9", "[fd50::1]:9", "10.90.0.1:9"] {
            bed.becomes("replaced", to, (0, 0, 5));
        }
        // (2) as a group's member
        bed.node.ip("nexthop add id 9 group 1");
        bed.node.ip("route add 10.91.0.0/16 nhid 9");
        bed.becomes("group", "10.91.0.1:9", (0, 0, 5));
        bed.node.ip("nexthop replace id 1 via 10.1.0.2 dev n1");
        bed.becomes("member replaced", "10.91.0.1:9", (0, 5, 0));
        bed.becomes("replaced again", "10.40.9.1:9", (0, 5, 0));
        assert_eq!(status(&bed.node)["resyncs"], dumps, "compat {compat}: trielined dumped the routes again");
        // (3) gone, with its routes
        bed.node.ip("nexthop del id 1");
        bed.becomes("deleted", "10.40.9.1:9", (5, 0, 0));
    }
}

#[test]
fn next_hops_of_every_kind() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    for line in [
        "route add 10.52.0.0/16 via inet6 fd00:1::2",
        "route add 10.53.0.0/16 via 10.9.9.9 dev n2 onlink",
        "neigh add 10.9.9.9 lladdr 02:00:00:00:00:21 dev n2 nud permanent",
        "route add 10.54.0.0/16 via 10.1.0.2 mtu 1000",
        "-6 route add fd54::/32 via fd00:1::2 mtu 1300",
    ] {
        bed.node.ip(line);
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("IPv6 next hop", "10.52.0.1:9", (0, 5, 0));
    bed.becomes("onlink", "10.53.0.1:9", (0, 0, 5));
    let marker = b"so long";
    let payload =
        |len: usize| marker.iter().copied().chain(std::iter::repeat(0)).take(len).collect::<Vec<_>>();
    for (len, passed) in [(1000, 0), (1001, 1)] {
        let packet = craft::ipv4("10.0.0.2", "10.54.0.1", &payload(len - 28), |_| {});
        assert_eq!(bed.send_ip(&packet, marker).passed.len(), passed, "IPv4, {len} bytes");
        let packet = craft::ipv6("fd00::2", "fd54::1", (17, &craft::udp(&payload(len + 300 - 48))), |_| {});
        assert_eq!(bed.send_ip(&packet, marker).passed.len(), passed, "IPv6, {} bytes", len + 300);
    }
}

/// The kernel sees none of the packets, and keeps the neighbour all the same: it asks again and again whether it is there.
#[test]
fn neighbours_that_only_xdp_uses_stay() {
    needs_root!();
    let bed = Bed::new();
    // Before there are neighbours: the first confirmation lasts as long as was set when it came.
    for (family, device) in [("ipv4", "n1"), ("ipv6", "n1")] {
        for (key, value) in
            [("base_reachable_time_ms", "1000"), ("gc_stale_time", "1"), ("delay_first_probe_time", "1")]
        {
            bed.node.sysctl(&format!("net.{family}.neigh.{device}.{key}"), value);
        }
    }
    bed.warm();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    bed.node.ip("-6 route add fd50::/32 via fd00:1::2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let confirmed =
        |address: &str| bed.node.run(&format!("ip neigh show {address} dev n1 nud reachable")).stdout;
    for (address, to) in [("10.1.0.2", "10.50.0.1:9"), ("fd00:1::2", "[fd50::1]:9")] {
        let mut turns = 0;
        let mut reachable = false;
        // It is confirmed, goes stale and is confirmed again, three times.
        let kept = eventually(30.0, || {
            packets::send_udp(&bed.generator, to.parse().unwrap(), b"in use", 1).unwrap();
            let now = !confirmed(address).trim().is_empty();
            turns += u32::from(now && !reachable);
            reachable = now;
            turns >= 3
        });
        assert!(kept, "{address}: confirmed {turns} times");
    }
    for to in ["10.50.0.1:9", "[fd50::1]:9"] {
        assert_eq!(bed.send(to, "still there", 5).counts(), (0, 5, 0), "to {to}");
    }
}

/// An object changes, and the kernel sends no new routes (`nexthop_compat_mode` off). A group loses the member whose link was down, without
/// a message; a tunnel replaces a link; an endpoint gets another table.
#[test]
fn objects_that_become_something_else() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.sysctl("net.ipv4.nexthop_compat_mode", "0");
    for line in [
        "nexthop add id 1 via 10.1.0.2 dev n1",
        "nexthop add id 2 via 10.2.0.2 dev n2",
        "nexthop add id 10 group 1/2",
        "route add 10.50.0.0/16 nhid 10",
        "nexthop add id 5 dev n2",
        "route add 10.2.0.0/25 nhid 5",
        "-6 route add fd00:e::/32 via fd00:2::2",
        "-6 route add fd50::/32 via fd00:1::2 table 100",
        "-6 route add fd50::/32 via fd00:2::2 table 200",
        "-6 nexthop add id 6 encap seg6local action End.DT6 table 100 dev n2",
        "-6 route add fd00:a::1/128 nhid 6",
        "sr tunsrc set fd00:2::1",
    ] {
        bed.node.ip(line);
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let marker = b"which way";
    // (1) an endpoint's table
    let inner = craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(marker)), |_| {});
    let packet = craft::ipv6("fd00::2", "fd00:a::1", (41, &inner), |_| {});
    until_counts("table 100", (0, 1, 0), || bed.send_ip(&packet, marker).counts());
    bed.node.ip("-6 nexthop replace id 6 encap seg6local action End.DT6 table 200 dev n2");
    until_counts("table 200", (0, 0, 1), || bed.send_ip(&packet, marker).counts());
    // (2) a link becomes a tunnel, also for neighbours that are known
    let packet = craft::ipv4("10.0.0.2", "10.2.0.2", marker, |_| {});
    let kinds = || bed.send_ip(&packet, marker).side.iter().map(|frame| frame[12]).collect::<Vec<_>>();
    assert!(eventually(5.0, || kinds() == [0x08]), "on link: {:x?}", kinds());
    bed.node.ip("nexthop replace id 5 encap seg6 mode encap segs fd00:e::1 dev n2");
    assert!(eventually(5.0, || kinds() == [0x86]), "encapsulated: {:x?}", kinds());
    // (3) a member of a group goes with its link, and does not come back with it
    bed.node.ip("link set n1 down");
    bed.node.ip("link set n1 up");
    assert!(bed.node.ip("nexthop show id 10").contains("group 2 "), "the kernel keeps the member");
    assert!(eventually(5.0, || bed.node.run("ping -c 1 -W 1 10.1.0.2").code == 0), "n1 is not up again");
    for n in 1..=16 {
        bed.becomes("one member left", &format!("10.50.0.{n}:9"), (0, 0, 5));
    }
}
