//! Next hops come and go: unresolved, resolved, with a new MAC address, behind a link that goes down.

use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::Daemon;
use trieline_testbed::packets::Tap;
use trieline_testbed::{eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// A neighbour that has not been resolved yet: the kernel resolves it with the first packets, then XDP forwards.
#[test]
fn unresolved_passes_then_is_fast() {
    needs_root!();
    let bed = Bed::new();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    bed.node.ip("-6 route add fd50::/32 via fd00:2::2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for (to, slow, fast) in [
        ("10.50.0.1:9", (1, 1, 0), (0, 5, 0)),
        ("[fd50::1]:9", (1, 0, 1), (0, 0, 5)),
        ("10.2.0.2:9", (1, 0, 1), (0, 0, 5)),
    ] {
        // (1) the first packet takes the kernel's way and arrives
        assert_eq!(bed.send(to, "who is there", 1).counts(), slow, "first packet to {to}");
        // (2) later ones do not
        assert!(
            eventually(5.0, || bed.send(to, "there you are", 5).counts() == fast),
            "{to} never becomes fast"
        );
    }
}

/// The neighbour's MAC address changes (a failover); packets follow.
#[test]
fn a_new_mac_is_followed() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!(bed.send("10.50.0.1:9", "first", 5).counts(), (0, 5, 0));
    // (1) the sink takes another address and tells by asking for the node's
    bed.sink.ip("link set s0 address 02:00:00:00:00:99");
    bed.sink.ip("neigh flush dev s0");
    bed.sink.run("ping -c 1 -W 2 10.1.0.1").ok();
    // (2) frames carry it, still without the kernel
    let followed = eventually(5.0, || {
        let seen = bed.send("10.50.0.1:9", "second", 5);
        seen.counts() == (0, 5, 0) && seen.sink.iter().all(|frame| frame.starts_with(&[2, 0, 0, 0, 0, 0x99]))
    });
    assert!(followed, "the new MAC address is not used");
    // (3) a neighbour deleted: the kernel resolves it again and packets become fast again
    bed.node.ip("neigh del 10.1.0.2 dev n1");
    assert!(
        eventually(5.0, || bed.send("10.50.0.1:9", "third", 5).counts() == (0, 5, 0)),
        "does not recover"
    );
}

/// [gen] ── [node] ══ [sink] metric 100, [side] metric 200: a link goes down and comes back.
#[test]
fn a_link_down_moves_traffic() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    for line in [
        "route add 10.50.0.0/16 via 10.1.0.2 metric 100",
        "route add 10.50.0.0/16 via 10.2.0.2 metric 200",
        "-6 route add fd50::/32 via fd00:1::2 metric 100",
        "-6 route add fd50::/32 via fd00:2::2 metric 200",
    ] {
        bed.node.ip(line);
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let goes = |what: &str, counts: (usize, usize, usize)| {
        for to in ["10.50.0.1:9", "[fd50::1]:9"] {
            let mut last = None;
            let arrived = eventually(10.0, || {
                last = Some(bed.send(to, what, 5).counts());
                last == Some(counts)
            });
            assert!(arrived, "{what}: to {to} expected {counts:?}, last seen {last:?} (passed, sink, side)");
        }
    };
    // (1) the better metric
    goes("both up", (0, 5, 0));
    // (2) down: the kernel removes its IPv4 routes without a message
    bed.node.ip("link set n1 down");
    goes("n1 down", (0, 0, 5));
    // (3) up again, routes given again
    bed.node.ip("link set n1 up");
    bed.node.ip("-6 addr replace fd00:1::1/64 dev n1 nodad");
    bed.node.ip("route replace 10.50.0.0/16 via 10.1.0.2 metric 100");
    assert!(
        eventually(5.0, || bed.node.try_ip("-6 route replace fd50::/32 via fd00:1::2 metric 100").code == 0),
        "the IPv6 route cannot be added again"
    );
    goes("n1 up", (0, 5, 0));
}

/// Multipath: a flow takes one of the hops that are alive.
#[test]
fn multipath_leaves_dead_hops_out() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.50.0.0/16 nexthop via 10.1.0.2 nexthop via 10.2.0.2");
    bed.node.ip("-6 route add fd50::/32 nexthop via fd00:1::2 nexthop via fd00:2::2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    // (1) both alive
    for to in ["10.50.0.1:9", "[fd50::1]:9"] {
        let seen = bed.send(to, "either hop", 5).counts();
        assert!([(0, 5, 0), (0, 0, 5)].contains(&seen), "to {to}: {seen:?}");
    }
    // (2) the first is gone
    bed.node.ip("link set n1 down");
    for to in ["10.50.0.1:9", "[fd50::1]:9"] {
        let moved = eventually(10.0, || bed.send(to, "second hop", 5).counts() == (0, 0, 5));
        assert!(moved, "to {to}: the second hop is not used");
    }
}

/// The node's requests for a neighbour's MAC address while some seconds pass.
fn probes(bed: &Bed, work: impl FnOnce()) -> usize {
    let tap = Tap::open(&bed.sink);
    work();
    // ARP: Ethernet, IPv4, a request, from n1.
    tap.close_with(&[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0x10]).len()
}

/// The kernel probes a stale neighbour when it has packets for it. It sees none that XDP forwards: the daemon tells it of those, and of
/// nothing else.
#[test]
fn only_a_neighbour_in_use_is_probed() {
    needs_root!();
    let bed = Bed::new();
    for (key, value) in [("base_reachable_time_ms", "2000"), ("delay_first_probe_time", "1")] {
        bed.node.sysctl(&format!("net.ipv4.neigh.n1.{key}"), value);
    }
    bed.warm();
    let daemon = Daemon::start(&bed.node, &format!("{DEVICES} -v"));
    let state = || bed.node.ip("neigh show 10.1.0.2 dev n1");
    let sent = bed.send("10.1.0.2:9", "used", 5).counts();
    assert_eq!(sent, (0, 5, 0));
    // (1) Without packets there are no probes, once those for the packets before are through. A daemon that takes every stale neighbour for
    // one in use causes some in any eight seconds.
    let quiet = || probes(&bed, || std::thread::sleep(Duration::from_secs(8))) == 0;
    assert!(
        (0..3).any(|_| quiet()),
        "probes for a neighbour that no packet goes to: {}\n{}",
        state(),
        daemon.log()
    );
    // (2) with packets, all of them XDP's, it is probed and stays known
    let in_use = || {
        for _ in 0..20 {
            assert_eq!(bed.send("10.1.0.2:9", "in use", 1).counts(), (0, 1, 0));
        }
    };
    assert!((0..10).any(|_| probes(&bed, in_use) > 0), "no probes for a neighbour in use: {}", state());
}
