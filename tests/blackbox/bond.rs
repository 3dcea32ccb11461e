//! A bond given as a device: its ports' packets are its own. Needs the kernel's bonding module, so it runs in the test VMs.

use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, Leftovers, status};
use trieline_testbed::packets::{Tap, send_udp};
use trieline_testbed::{eventually, needs_root};

/// ```text
/// [gen] ── n0 [node] bond0 (b1, b2) ══ bond0 (c1, c2) [sink]
/// ```
fn bonded_bed() -> Bed {
    let bed = Bed::new();
    bed.warm();
    for (near, far) in [("b1", "c1"), ("b2", "c2")] {
        bed.node.ip(&format!("link add {near} type veth peer name {far} netns {}", bed.sink.name()));
    }
    for (namespace, ports, address) in
        [(&bed.node, ["b1", "b2"], "10.9.0.1"), (&bed.sink, ["c1", "c2"], "10.9.0.2")]
    {
        namespace.ip("link add bond0 type bond mode active-backup miimon 100");
        for port in ports {
            namespace.run(&format!("ethtool -K {port} tx off gro on")).ok();
            namespace.ip(&format!("link set {port} master bond0"));
            namespace.ip(&format!("link set {port} up"));
        }
        namespace.ip("link set bond0 up");
        namespace.ip(&format!("addr add {address}/24 dev bond0"));
        namespace.sysctl("net.ipv4.conf.bond0.rp_filter", "0");
    }
    for port in ["b1", "b2"] {
        bed.node.ip(&format!("link set {port} up"));
    }
    // A veth says that it takes redirected frames when its peer, which is up, gets GRO.
    for port in ["c1", "c2"] {
        bed.sink.run(&format!("ethtool -K {port} gro off")).ok();
        bed.sink.run(&format!("ethtool -K {port} gro on")).ok();
    }
    bed.node.ip("route add 10.60.0.0/16 via 10.9.0.2");
    bed.sink.ip("route add 10.0.0.0/24 via 10.9.0.1");
    let warm = eventually(10.0, || bed.node.run("ping -c 1 -W 1 10.9.0.2").code == 0);
    assert!(warm, "the bond carries nothing");
    bed
}

#[test]
#[ignore = "needs the bonding module: run in tests/vm"]
fn packets_cross_a_bond_both_ways() {
    needs_root!();
    let bed = bonded_bed();
    let daemon = Daemon::start(&bed.node, "--dev n0 --dev bond0");
    let reported = || format!("{}\n{:#}", daemon.log(), status(&bed.node));
    // (1) out by the bond
    let out = || {
        let seen = bed.send("10.60.0.1:9", "out by the bond", 5);
        (seen.passed.len(), seen.sink.is_empty())
    };
    assert!(eventually(10.0, || out() == (0, false)), "{:?}\n{}", out(), reported());
    // Packets after redirect count for the bond, and, coming in, for its ports.
    let sent = |dev: &str| {
        let devices = status(&bed.node)["after_redirect"]["devices"].as_array().cloned().unwrap_or_default();
        let device = devices.into_iter().find(|device| device["dev"] == dev).unwrap_or_default();
        device["sent"].as_u64().unwrap_or_default()
    };
    assert!(sent("bond0") >= 5, "{}", reported());
    // (2) in by the port that is active, also after the other became it
    let back = || {
        let (node, generator) = (Tap::open(&bed.node), Tap::open(&bed.generator));
        send_udp(&bed.sink, "10.0.0.2:9".parse().unwrap(), b"in by the bond", 5).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        (node.close_with(b"in by the bond").len(), generator.close_with(b"in by the bond").is_empty())
    };
    assert!(eventually(10.0, || back() == (0, false)), "{:?}\n{}", back(), reported());
    assert!(sent("n0") >= 5, "{}", reported());
    bed.node.ip("link set b1 down");
    assert!(eventually(20.0, || back() == (0, false) && out() == (0, false)), "{:?}\n{}", back(), reported());
}

/// The backup port carries the filters of its bond before packets come in by it: also where a failover meets no trielined.
#[test]
#[ignore = "needs the bonding module: run in tests/vm"]
fn filters_hold_after_a_failover_without_a_daemon() {
    needs_root!();
    let bed = bonded_bed();
    bed.generator.ip("addr add 10.0.0.66/24 dev g0");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("bad"), "10.0.0.66/32\n").expect("a file");
    let filter = "[[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"destination\"\naction = \"drop\"\n";
    let text = format!("devices = [\"n0\", \"bond0\"]\n{filter}");
    std::fs::write(path("trielined.toml"), text).expect("a file");
    let comes_out = |to: &str| {
        let generator = Tap::open(&bed.generator);
        send_udp(&bed.sink, to.parse().unwrap(), b"in by the bond", 5).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        !generator.close_with(b"in by the bond").is_empty()
    };
    assert!(eventually(10.0, || comes_out("10.0.0.66:9")), "the kernel alone does not forward it");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", path("trielined.toml").display()));
    let _leftovers = Leftovers(&bed.node);
    assert!(eventually(10.0, || !comes_out("10.0.0.66:9")), "{}", daemon.log());
    assert!(eventually(10.0, || comes_out("10.0.0.2:9")), "{}", daemon.log());
    daemon.kill();
    bed.node.ip("link set b1 down");
    assert!(eventually(20.0, || comes_out("10.0.0.2:9")), "the bond does not fail over");
    assert!(!comes_out("10.0.0.66:9"), "past the filter by the backup port");
}
