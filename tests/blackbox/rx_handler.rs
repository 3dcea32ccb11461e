//! Devices whose packets something takes before the kernel routes them (a receive handler): XDP leaves them alone and says so.

use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::{eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// ```text
/// [inside] upper0 10.77.0.1 ── n0 [node] n1 ── [sink], the default route
/// ```
/// The upper device is made before the daemon starts, and again while it runs. Each time it is moved to where the node's netlink does
/// not tell of it.
fn upper_gets_its_packets(link: &str, named: &str) {
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add default via 10.1.0.2");
    let inside = Namespace::new("inside");
    let add = || {
        bed.node.ip(&format!("link add link n0 name upper0 type {link}"));
        bed.node.ip(&format!("link set upper0 netns {}", inside.name()));
        inside.ip("addr add 10.77.0.1/24 dev upper0");
        inside.ip("link set upper0 up");
    };
    add();
    let daemon = Daemon::start(&bed.node, DEVICES);
    let status = || trieline(&bed.node, "node status").ok();
    let expected_text = format!("n0: {named} takes its packets before the kernel routes them");
    // (1) from the start
    let seen = bed.send("10.77.0.1:9", "to the upper device", 5);
    assert_eq!((seen.passed.len(), seen.side.len()), (5, 0), "XDP took the upper device's packets");
    assert!(daemon.log().contains(&expected_text), "no {expected_text:?} in the log:\n{}", daemon.log());
    assert!(status().contains(&expected_text), "no {expected_text:?} in {}", status());
    // (2) without it they are forwarded
    inside.ip("link del upper0");
    bed.becomes("the upper device is gone", "10.77.0.1:9", (0, 5, 0));
    assert!(!status().contains(&expected_text), "{}", status());
    // (3) while the daemon runs
    add();
    assert!(eventually(10.0, || status().contains(&expected_text)), "not noticed:\n{}", daemon.log());
    let seen = bed.send("10.77.0.1:9", "to the upper device, again", 5);
    assert_eq!(seen.passed.len(), 5, "XDP took the upper device's packets");
}

#[test]
fn by_a_macvlan_in_mode_passthru() {
    needs_root!();
    upper_gets_its_packets("macvlan mode passthru", "a macvlan in mode passthru or source");
}

#[test]
#[ignore = "needs the ipvlan module: run in tests/vm"]
fn by_an_ipvlan() {
    needs_root!();
    upper_gets_its_packets("ipvlan mode l3", "an ipvlan");
}

#[test]
#[ignore = "needs the macsec module: run in tests/vm"]
fn by_macsec() {
    needs_root!();
    upper_gets_its_packets("macsec", "MACsec");
}

/// A macvlan with a MAC address of its own (VRRP) takes only packets to it: XDP forwards the others and says why not these.
#[test]
fn a_macvlan_with_its_own_address_takes_nothing() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("link add link n0 name vrrp0 address 00:00:5e:00:01:07 type macvlan mode bridge");
    bed.node.ip("link set vrrp0 up");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("to the device's own MAC address", "10.50.0.1:9", (0, 5, 0));
    let status = trieline(&bed.node, "node status").ok();
    let expected_text = "n0: packets to 00:00:5e:00:01:07 go to macvlan vrrp0";
    assert!(status.contains(expected_text), "no {expected_text:?} in {status}");
}
