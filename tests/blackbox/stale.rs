//! The daemon is gone, or hangs: XDP forwards for `max_stale`, then leaves everything to the kernel; what the kernel must not get is dropped.

use std::time::{Duration, Instant};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::run;
use trieline_testbed::daemon::{Daemon, Leftovers, status, trieline};
use trieline_testbed::{craft, eventually, needs_root};

const MARKER: &[u8] = b"stale-marker";

/// ```text
///  [gen] ── n0 [node] n1 ── [sink]     n2 is of tenant red: its packets are not the kernel's
///                     n2 ── [side]
/// ```
#[test]
fn a_dead_or_hanging_daemon_leaves_packets_to_the_kernel() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2 table 100");
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DT6 table main dev n1");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("bad"), "203.0.113.0/24\n").expect("a file");
    std::fs::write(path("inside"), "2001:db8:bad::/48\n").expect("a file");
    let config = |max_stale: &str| {
        let text = format!(
            "devices = [\"n0\", \"n1\", \"n2\"]\nmax_stale = \"{max_stale}\"\n\
             [[vrf]]\nname = \"red\"\ntable = 100\ndevices = [\"n2\"]\n\
             [[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n\
             [[filter]]\nname = \"inside\"\nfile = \"inside\"\nmatch = \"source\"\naction = \"drop\"\n\
             [[sid_hook]]\nname = \"clean\"\nsid = \"fd00:c::1\"\nfilters = [\"inside\"]\n"
        );
        std::fs::write(path("trielined.toml"), text).expect("a file");
        format!("--config {}", path("trielined.toml").display())
    };
    let plain = || bed.send("10.50.0.1:9", "plain", 5).counts();
    let filtered = craft::ipv4("203.0.113.9", "10.50.0.1", &craft::udp(MARKER), |_| {});
    let inner = craft::ipv6("2001:db8:bad::1", "fd50::1", (17, &craft::udp(MARKER)), |_| {});
    let sid = craft::ipv6("fd00::2", "fd00:c::1", (41, &inner), |_| {});
    // Packets that must come out nowhere, fresh or stale: filtered, by a SID's filter, and of a tenant.
    let kept = |when: &str| {
        for (what, packet) in [("filtered", &filtered), ("SID", &sid)] {
            assert_eq!(bed.send_ip(packet, MARKER).counts(), (0, 0, 0), "{when}: {what}");
        }
        let of_tenant = trieline_testbed::packets::Tap::open(&bed.sink);
        let to = "10.60.0.1:9".parse().expect("an address");
        trieline_testbed::packets::send_udp(&bed.side, to, MARKER, 5).expect("sent");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(of_tenant.close_with(MARKER).len(), 0, "{when}: a tenant's packets left by main's routes");
    };
    bed.node.ip("route add 10.60.0.0/16 via 10.1.0.2");
    // (1) it runs: forwarded, longer than the limit
    let daemon = Daemon::start(&bed.node, &config("2s"));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(plain(), (0, 5, 0));
    kept("fresh");
    // (2) it hangs, in its loop, not dead: everything is the kernel's, and again XDP's when it goes on
    run(&format!("kill -STOP {}", daemon.pid())).ok();
    assert_eq!(plain(), (0, 5, 0), "within the limit XDP forwards");
    assert!(eventually(6.0, || plain() == (5, 5, 0)), "a daemon that hangs for longer than max_stale");
    kept("hangs");
    run(&format!("kill -CONT {}", daemon.pid())).ok();
    assert!(eventually(5.0, || plain() == (0, 5, 0)), "it goes on");
    // (3) it is dead: likewise, and `node status` says so; a change of the routes is obeyed
    daemon.kill();
    let _leftovers = Leftovers(&bed.node);
    assert_eq!(status(&bed.node)["stale"], false);
    assert!(eventually(6.0, || plain() == (5, 5, 0)), "dead for longer than max_stale");
    kept("dead");
    let reported = status(&bed.node);
    assert_eq!((&reported["stale"], &reported["max_stale"]), (&true.into(), &2.0.into()), "{reported:#}");
    let text = trieline(&bed.node, "node status").ok();
    assert!(text.contains("passes all packets to the kernel") && text.contains("stale"), "{text}");
    let counted = reported["counters"].as_array().expect("counters").iter().find(|c| c["name"] == "stale");
    assert!(counted.is_some_and(|c| c["kind"] == "pass" && c["packets"].as_u64() > Some(0)), "{reported:#}");
    bed.node.ip("route replace 10.50.0.0/16 via 10.2.0.2");
    assert_eq!(plain(), (5, 0, 5), "the kernel's new route counts");
    // (4) it comes back: its tables first, then XDP
    let daemon = Daemon::start(&bed.node, &config("2s"));
    assert_eq!(plain(), (0, 0, 5));
    assert!(daemon.log().contains("no trielined has run for longer than max_stale"), "{}", daemon.log());
    // (5) a reload changes the limit: without one XDP forwards on
    config("none");
    trieline(&bed.node, "node reload").ok();
    assert!(eventually(3.0, || status(&bed.node)["max_stale"].is_null()));
    daemon.kill();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        assert_eq!(plain(), (0, 0, 5), "max_stale = none: forwards without end");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(status(&bed.node)["stale"], false);
}
