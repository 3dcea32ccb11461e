//! Packets that leave by the device they came in by. The kernel tells a sender on the link of a shorter way, so it gets them. XDP forwards
//! the others.

use trieline_testbed::bed::{Bed, Counts, until_counts};
use trieline_testbed::daemon::{Daemon, status};
use trieline_testbed::{craft, needs_root};

const MARKER: &[u8] = b"back again";

#[track_caller]
fn becomes(bed: &Bed, what: &str, packet: &[u8], counts: Counts) {
    until_counts(what, counts, || bed.send_ip(packet, MARKER).counts());
}

fn counted(bed: &Bed, verdict: &str) -> u64 {
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    let found = counters.iter().find(|counter| counter["name"] == verdict);
    found.and_then(|counter| counter["packets"].as_u64()).unwrap_or_default()
}

/// ICMP redirects that the node sent, IPv4.
fn redirects(bed: &Bed) -> u64 {
    let text = bed.node.run("cat /proc/net/snmp").ok();
    let mut icmp = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, values) = (icmp.next().unwrap_or_default(), icmp.next().unwrap_or_default());
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs
        .find(|(name, _)| *name == "OutRedirects")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or_default()
}

#[test]
fn senders_on_the_link_get_redirects() {
    needs_root!();
    let bed = Bed::routed();
    let settings = ["all", "n0"].map(|device| format!("net.ipv4.conf.{device}.send_redirects"));
    let send_redirects = |value| settings.iter().for_each(|setting| bed.node.sysctl(setting, value));
    send_redirects("1");
    bed.node.ip("neigh replace 10.0.0.3 lladdr 02:00:00:00:00:77 dev n0 nud permanent");
    bed.node.ip("neigh replace fe80::3 lladdr 02:00:00:00:00:77 dev n0 nud permanent");
    bed.node.ip("route add 10.70.0.0/16 via 10.0.0.3");
    bed.node.ip("-6 route add fd70::/32 via fe80::3 dev n0");
    // a net behind the generator
    bed.node.ip("route add 10.71.0.0/16 via 10.0.0.2");
    bed.node.ip("-6 route add fd71::/32 via fd00::2");
    let v4 = |source: &str| craft::ipv4(source, "10.70.0.1", MARKER, |_| {});
    let v6 = |source: &str| craft::ipv6(source, "fd70::1", (17, &craft::udp(MARKER)), |_| {});
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2");
    let before = redirects(&bed);
    becomes(&bed, "from the link", &v4("10.0.0.2"), (1, 0, 0));
    assert!(redirects(&bed) > before && counted(&bed, "redirect") > 0);
    becomes(&bed, "from the link, IPv6", &v6("fd00::2"), (1, 0, 0));
    becomes(&bed, "from a neighbour that is not known", &v4("10.0.0.9"), (1, 0, 0));
    // XDP sends packets that the kernel would not answer, back to the generator's link.
    let (sent, reported) = (counted(&bed, "ipv4") + counted(&bed, "ipv6"), redirects(&bed));
    becomes(&bed, "from behind a gateway", &v4("10.71.0.1"), (0, 0, 0));
    becomes(&bed, "from behind a gateway, IPv6", &v6("fd71::1"), (0, 0, 0));
    assert!(counted(&bed, "ipv4") + counted(&bed, "ipv6") >= sent + 2);
    assert_eq!(redirects(&bed), reported);
    let onward = craft::ipv4("10.0.0.2", "10.50.0.1", MARKER, |_| {});
    becomes(&bed, "onward", &onward, (0, 1, 0));
    send_redirects("0");
    becomes(&bed, "nothing is to be said", &v4("10.0.0.2"), (0, 0, 0));
    bed.node.sysctl(&settings[1], "1");
    becomes(&bed, "the device's own setting", &v4("10.0.0.2"), (1, 0, 0));
}
