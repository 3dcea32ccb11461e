//! Settings of the administrator in the kernel hold in XDP too: forwarding switched off, reverse-path filters, policy rules, routes by type
//! of service.

use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{craft, eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// The switch of a whole family, and of one device.
#[test]
fn forwarding_switched_off_is_off() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for (key, to) in [
        ("net.ipv4.ip_forward", "10.50.0.1:9"),
        ("net.ipv6.conf.all.forwarding", "[fd50::1]:9"),
        ("net.ipv4.conf.n0.forwarding", "10.50.0.1:9"),
    ] {
        bed.becomes("on", to, (0, 5, 0));
        // (1) off: the kernel gets the packets and does not forward them
        bed.node.sysctl(key, "0");
        bed.becomes("off", to, (5, 0, 0));
        let address = if to.starts_with('[') { "fd50::1" } else { "10.50.0.1" };
        let expected_text = || trieline(&bed.node, &format!("route get {address}")).stdout;
        // Off on one device is still on for the others.
        if !key.contains("n0") {
            assert!(expected_text().contains("[pass forwarding_off]"), "{}", expected_text());
        }
        // (2) on again. The kernel forgets routers' settings meanwhile, not routes.
        bed.node.sysctl(key, "1");
        bed.becomes("on again", to, (0, 5, 0));
    }
}

/// [gen] sends with an address of [side]'s net: strict filters drop it, loose ones and none do not.
#[test]
fn reverse_path_filters_hold() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let spoofed = craft::ipv4("10.2.0.9", "10.50.0.1", b"not my address", |_| {});
    let unrouted = craft::ipv4("192.0.2.9", "10.50.0.1", b"nobody's address", |_| {});
    let arrives = |packet: &[u8], marker: &[u8], expected: usize, what: &str| {
        let equal = eventually(5.0, || bed.send_ip(packet, marker).sink.len() == expected);
        assert!(equal, "{what}: expected {expected} at the sink");
    };
    for (filter, spoofed_arrives, unrouted_arrives) in [("0", 1, 1), ("1", 0, 0), ("2", 1, 0), ("0", 1, 1)] {
        bed.node.sysctl("net.ipv4.conf.n0.rp_filter", filter);
        arrives(
            &spoofed,
            b"not my address",
            spoofed_arrives,
            &format!("rp_filter {filter}, another net's source"),
        );
        arrives(
            &unrouted,
            b"nobody's address",
            unrouted_arrives,
            &format!("rp_filter {filter}, a source without route"),
        );
    }
}

/// A policy rule sends some packets elsewhere, without the kernel.
#[test]
fn policy_rules_are_followed() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.50.0.0/16 via 10.2.0.2 table 100");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("no rule", "10.50.0.1:9", (0, 5, 0));
    bed.node.ip("rule add from 10.0.0.2 table 100");
    bed.becomes("rule", "10.50.0.1:9", (0, 0, 5));
    // The answer names the rule, the table and both MAC addresses.
    let reported = trieline(&bed.node, "-j route get 10.50.0.1 --from 10.0.0.2 --iif n0").json()[0].clone();
    for (key, value) in [
        ("rule", "from 10.0.0.2/32"),
        ("table", "100"),
        ("lladdr", "02:00:00:00:00:21"),
        ("smac", "02:00:00:00:00:20"),
    ] {
        assert_eq!(reported[key].to_string().trim_matches('"'), value, "{key}: {reported}");
    }
    bed.node.ip("route change 10.50.0.0/16 via 10.1.0.2 table 100");
    bed.becomes("its route", "10.50.0.1:9", (0, 5, 0));
    bed.node.ip("route change 10.50.0.0/16 via 10.2.0.2 table 100");
    bed.becomes("its route again", "10.50.0.1:9", (0, 0, 5));
    // The other family is not concerned.
    bed.becomes("rule", "[fd50::1]:9", (0, 5, 0));
    bed.node.ip("rule del from 10.0.0.2 table 100");
    bed.becomes("no rule again", "10.50.0.1:9", (0, 5, 0));
}

/// A route for one type of service: its prefix is the kernel's, which tells the packets apart.
#[test]
fn routes_by_type_of_service_are_the_kernels() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.50.7.0/24 tos 0x10 via 10.2.0.2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let packet =
        |tos: u8| craft::ipv4("10.0.0.2", "10.50.7.1", b"which service", move |header| header[1] = tos);
    assert_eq!(bed.send_ip(&packet(0x10), b"which service").counts(), (1, 0, 1));
    assert_eq!(bed.send_ip(&packet(0), b"which service").counts(), (1, 1, 0));
    // Beside it XDP forwards.
    bed.becomes("beside", "10.50.8.1:9", (0, 5, 0));
}
