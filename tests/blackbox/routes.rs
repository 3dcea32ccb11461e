//! Attributes of routes and neighbours besides prefix and gateway. XDP forwards those that change nothing, and follows those that end to
//! their end. `node status` names those that only the kernel can follow, with a hint.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};
use trieline_testbed::bed::{Bed, Counts, until_counts};
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::{craft, eventually, needs_root, packets};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const MARKER: &[u8] = b"as routed";

/// Attributes that iproute2 can set on a route or a next hop object. Every one that changes nothing for a packet that is forwarded leaves
/// the route in XDP. So none of them is missing from the lists of what is known.
#[test]
fn harmless_attributes_stay_in_xdp() {
    needs_root!();
    let bed = Bed::routed();
    let metrics = [
        "mtu 1400",
        "mtu lock 1400",
        "advmss 1000",
        "window 1000",
        "rtt 10ms",
        "rttvar 10ms",
        "ssthresh 9",
        "cwnd lock 9",
        "initcwnd 9",
        "initrwnd 9",
        "rto_min 10ms",
        "hoplimit 20",
        "reordering 9",
        "features ecn",
        "quickack 1",
        "congctl reno",
        "fastopen_no_cookie 1",
    ];
    let v4 = ["", "metric 7", "src 10.1.0.1", "realms 5", "proto bgp", "scope site", "onlink"];
    let v6 = ["", "metric 7", "src fd00:1::1", "pref low", "pref high", "proto ra", "onlink", "expires 600"];
    let (mut lines, mut number) = (String::new(), 0);
    let mut add = |lines: &mut String, v4: bool, options: &str| {
        number += 1;
        *lines += &match v4 {
            true => format!("route add 10.60.{number}.0/24 via 10.1.0.2 dev n1 {options}\n"),
            false => format!("-6 route add fd60:{number}::/32 via fd00:1::2 dev n1 {options}\n"),
        };
    };
    v4.iter().chain(&metrics).for_each(|options| add(&mut lines, true, options));
    v6.iter().chain(&metrics).for_each(|options| add(&mut lines, false, options));
    for line in lines.lines() {
        bed.node.ip(line);
    }
    for line in [
        "nexthop add id 1 via 10.1.0.2 dev n1 onlink protocol bgp",
        "nexthop add id 2 via 10.2.0.2 dev n2",
        "nexthop add id 3 group 1,3/2,200",
        "nexthop add id 4 group 1/2 type resilient buckets 8 idle_timer 9 unbalanced_timer 9",
        "route add 10.61.1.0/24 nhid 1",
        "route add 10.61.2.0/24 nhid 3",
        "route add 10.61.3.0/24 nhid 4",
        "route add 10.61.4.0/24 nexthop via 10.1.0.2 dev n1 weight 3 realms 7 nexthop via 10.2.0.2 onlink dev n2",
        "-6 route add fd61:4::/32 nexthop via fd00:1::2 dev n1 weight 3 nexthop via fd00:2::2 dev n2",
    ] {
        bed.node.ip(line);
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let shown = trieline(&bed.node, "-j route show").json();
    let routes = shown.as_array().expect("routes");
    let ours = |dst: &str| ["10.60.", "10.61.", "fd60:", "fd61:"].iter().any(|start| dst.starts_with(start));
    let ours: Vec<_> =
        routes.iter().filter(|route| ours(route["dst"].as_str().unwrap_or_default())).collect();
    assert_eq!(ours.len(), v4.len() + v6.len() + 2 * metrics.len() + 5);
    for route in ours {
        assert!(["forward", "group"].iter().any(|action| route["action"] == *action), "{route:#}");
    }
    bed.becomes("with realms", "10.60.4.1:9", (0, 5, 0));
}

/// Neighbours that the operator set, are used as the kernel uses them.
#[test]
fn neighbours_of_every_state_are_used() {
    needs_root!();
    let bed = Bed::routed();
    for (state, host) in [("noarp", 31), ("permanent", 32), ("stale", 33), ("reachable", 34)] {
        bed.node.ip(&format!("neigh replace 10.1.0.{host} lladdr 02:00:00:00:00:11 dev n1 nud {state}"));
        bed.node.ip(&format!("neigh replace fd00:1::{host} lladdr 02:00:00:00:00:11 dev n1 nud {state}"));
        bed.node.ip(&format!("route add 10.{host}.0.0/16 via 10.1.0.{host}"));
        bed.node.ip(&format!("-6 route add fd{host}::/32 via fd00:1::{host}"));
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for host in [31, 32] {
        bed.becomes("by a neighbour", &format!("10.{host}.0.1:9"), (0, 5, 0));
        bed.becomes("by a neighbour", &format!("[fd{host}::1]:9"), (0, 5, 0));
        bed.becomes("to a neighbour", &format!("10.1.0.{host}:9"), (0, 5, 0));
    }
    for host in [33, 34] {
        bed.becomes("by a neighbour", &format!("10.{host}.0.1:9"), (0, 5, 0));
    }
}

fn ipv6(destination: &str) -> Vec<u8> {
    craft::ipv6("fd00::2", destination, (17, &craft::udp(MARKER)), |_| {})
}

fn counts(bed: &Bed, destination: &str) -> Counts {
    bed.send_ip(&ipv6(destination), MARKER).counts()
}

/// A router advertisement with this lifetime of the default route, from the sink.
fn advertise(bed: &Bed, seconds: u16) {
    let (source, all) = ("fe80::ff:fe00:11", "ff02::1");
    let mut message = [134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    message[6..8].copy_from_slice(&seconds.to_be_bytes());
    let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address").octets();
    let pseudo = [&address(source)[..], &address(all), &[0, 0, 0, 16, 0, 0, 0, 58], &message].concat();
    let sum: u32 = pseudo.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !((folded & 0xffff) + (folded >> 16)) as u16;
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    packets::send_ip(&bed.sink, &craft::ipv6(source, all, (58, &message), |header| header[7] = 255));
}

/// A default route that a router advertises is in XDP as long as it lasts. The kernel says nothing when it is prolonged: the daemon asks.
/// Near its end it is the kernel's, which knows.
#[test]
fn routes_that_end_are_followed() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.sysctl("net.ipv6.conf.n1.accept_ra", "2");
    // A neighbour that does not say that it is a router is none for long; and it is not to send packets back.
    bed.sink.ip("-6 route del default");
    bed.sink.sysctl("net.ipv6.conf.all.forwarding", "1");
    bed.node.ip("-6 route add fd61::/32 via fd00:1::2 expires 600");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    until_counts("with an end far away", (0, 1, 0), || counts(&bed, "fd61::1"));
    advertise(&bed, 9);
    let begun = Instant::now();
    until_counts("advertised", (0, 1, 0), || counts(&bed, "2001:db8::1"));
    // (1) prolonged without a word: past the first end packets are still XDP's
    std::thread::sleep(Duration::from_secs(3));
    advertise(&bed, 1800);
    let dumps = status(&bed.node)["resyncs"].clone();
    while begun.elapsed() < Duration::from_secs(11) {
        std::thread::sleep(Duration::from_millis(500));
    }
    until_counts("prolonged", (0, 1, 0), || counts(&bed, "2001:db8::1"));
    assert_ne!(status(&bed.node)["resyncs"], dumps, "the kernel was asked");
    // (2) withdrawn
    advertise(&bed, 0);
    until_counts("withdrawn", (1, 0, 0), || counts(&bed, "2001:db8::1"));
    // (3) near its end and past it the kernel decides, which keeps it a while in its table
    bed.node.ip("-6 route replace fd61::/32 via fd00:1::2 expires 2");
    until_counts("near its end", (1, 1, 0), || counts(&bed, "fd61::1"));
    std::thread::sleep(Duration::from_secs(2));
    until_counts("past its end", (1, 0, 0), || counts(&bed, "fd61::1"));
    bed.node.ip("-6 route replace fd61::/32 via fd00:1::2");
    until_counts("without an end", (0, 1, 0), || counts(&bed, "fd61::1"));
}

/// A SID that everybody writes first, and that Linux sends elsewhere: said where one looks.
#[test]
fn routes_that_only_the_kernel_follows_are_named() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 route add fd00:d::4 encap seg6local action End.DX4 nh4 10.1.0.2 dev n1");
    bed.node.ip("route add 10.62.0.0/16 tos 0x10 via 10.1.0.2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let advice = "ip route add NH4 via GATEWAY";
    assert!(eventually(5.0, || trieline(&bed.node, "sid show").ok().contains(advice)));
    let text = trieline(&bed.node, "node status").ok();
    assert!(
        text.contains(advice) && text.contains("the route selects by more than the destination"),
        "{text}"
    );
    let shown = trieline(&bed.node, "route show").ok();
    assert!(
        shown.contains("[pass unsupported the route selects by more than the destination (tos, from)]"),
        "{shown}"
    );
}
