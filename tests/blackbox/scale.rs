//! The number of the daemon's requests to the kernel does not grow with the number of devices.

use std::time::Duration;
use trieline_testbed::daemon::{Daemon, status};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::needs_root;

/// Requests by netlink until the daemon forwards, and in three seconds after, with `count` pairs of devices.
fn requests(count: usize) -> (u64, u64) {
    let node = Namespace::new("many");
    let lines: String = (0..count)
        .map(|i| format!("link add d{i} type veth peer name p{i}\nlink set d{i} up\nlink set p{i} up\n"))
        .collect();
    assert_eq!(node.ip_batch(&[], &lines).code, 0);
    // Addresses of the links are settled.
    std::thread::sleep(Duration::from_secs(3));
    let devices: Vec<String> = (0..count).map(|i| format!("--dev d{i}")).collect();
    let _daemon = Daemon::start(&node, &devices.join(" "));
    let asked = || status(&node)["mirror"]["requests"].as_u64().expect("a count of requests");
    // It is ready before it has looked at every device's offloads, which it does once.
    std::thread::sleep(Duration::from_secs(2));
    let ready = asked();
    std::thread::sleep(Duration::from_secs(3));
    (ready, asked() - ready)
}

#[test]
fn requests_do_not_grow_with_devices() {
    needs_root!();
    let (few, many) = std::thread::scope(|scope| {
        let few = scope.spawn(|| requests(4));
        (few.join().expect("four"), requests(64))
    });
    assert!(few.0 > 0 && few.1 > 0, "requests are not counted: {few:?}");
    // 58f550a asked for all links some 4 × 64 × 64 times at its start, and 3 × 64 times a second.
    // Now each device has a few of its own, once: its program, its offloads, and those of a veth's peer.
    assert!(many.0 < 2 * few.0 + 4 * 64, "until it forwards: {few:?} with 4 devices, {many:?} with 64");
    assert!(many.1 < 2 * few.1 + 32, "in three seconds: {few:?} with 4 devices, {many:?} with 64");
}

/// The log's lines about written actions and read settings, in their order.
#[test]
fn a_dead_links_actions_are_written_before_anything_is_looked_at() {
    needs_root!();
    let bed = trieline_testbed::bed::Bed::routed();
    let daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2 -v");
    bed.becomes("before", "10.50.0.1:9", (0, 5, 0));
    let (written, looked) =
        ("trielined rewrites actions", "read the settings that the kernel does not notify");
    let before = daemon.log().len();
    bed.node.ip("link set n1 down");
    let after = || daemon.log().split_off(before);
    assert!(trieline_testbed::eventually(5.0, || after().contains(looked)), "{}", after());
    let log = after();
    let (written, looked) = (log.find(written), log.find(looked));
    assert!(written.is_some() && written < looked, "{log}");
}
