//! The audit says "differs" only where a packet would go otherwise.

use crate::audit::{audit, number};
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2 --map-type array --image 4M";

fn start(bed: &Bed) -> Daemon {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    std::fs::write(&config, "[audit]\nrate = 3000\n").expect("a file");
    Daemon::start(&bed.node, &format!("{DEVICES} --config {}", config.display()))
}

/// Rounds of samples go by without a difference. An audit of everything finds none either.
#[track_caller]
fn stays_equal(bed: &Bed, daemon: &Daemon, what: &str) {
    let rounds = || number(&audit(bed)["rounds"]);
    let begun = rounds();
    assert!(eventually(10.0, || rounds() > begun + 3), "{what}: {}", audit(bed));
    std::thread::sleep(Duration::from_secs(1));
    let now = audit(bed);
    let found = (number(&now["differences"]), number(&now["suspects"]), number(&now["repairs"]));
    assert_eq!(found, (0, 0, 0), "{what}: {now}\n{}", daemon.log());
    trieline(&bed.node, "node audit --no-repair").ok();
}

/// Rules behind main answer where main has no route, with an error of their kind.
#[test]
fn rules_behind_main_are_no_difference() {
    needs_root!();
    let bed = Bed::routed();
    let daemon = start(&bed);
    for kind in ["prohibit", "blackhole", "unreachable"] {
        for family in ["-4", "-6"] {
            bed.node.ip(&format!("{family} rule add pref 33000 {kind}"));
        }
        stays_equal(&bed, &daemon, kind);
        for family in ["-4", "-6"] {
            bed.node.ip(&format!("{family} rule del pref 33000 {kind}"));
        }
    }
    // A table behind main, with a route that answers with an error.
    bed.node.ip("route add prohibit default table 253");
    bed.node.ip("-6 rule add pref 33000 lookup 253");
    bed.node.ip("-6 route add blackhole default table 253");
    stays_equal(&bed, &daemon, "table default");
}

/// The kernel changes some of a route without a message; a forwarded packet goes the same way.
#[test]
fn changes_that_no_packet_meets_are_no_difference() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 addr add fd00:1::77/64 dev n1 nodad");
    bed.node.ip("-6 route add fd61::/32 via fd00:1::2 src fd00:1::77");
    let daemon = start(&bed);
    bed.node.ip("-6 addr del fd00:1::77/64 dev n1");
    stays_equal(&bed, &daemon, "a preferred source that went");
}
