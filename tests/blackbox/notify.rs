//! Notifications of trielined to systemd: its state in one line, at each change, and not more than once a second.

use std::fmt::Write;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{eventually, needs_root};

/// The states that came so far, by `STATUS=`.
struct States {
    socket: UnixDatagram,
    seen: Vec<String>,
}

impl States {
    /// Reads what is there.
    fn read(&mut self) {
        let mut message = [0; 1024];
        while let Ok(length) = self.socket.recv(&mut message) {
            let text = String::from_utf8_lossy(&message[..length]).into_owned();
            self.seen.extend(text.lines().filter_map(|line| Some(line.strip_prefix("STATUS=")?.to_owned())));
        }
    }

    /// Waits until the last state is one that holds.
    #[track_caller]
    fn becomes(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let found = eventually(20.0, || {
            self.read();
            self.seen.last().is_some_and(|state| holds(state))
        });
        assert!(found, "{what}: {:#?}", self.seen);
    }
}

#[test]
fn the_state_is_one_line_at_each_change() {
    needs_root!();
    let bed = Bed::routed();
    let (_daemon, socket) = Daemon::spawn(&bed.node, "--dev n0 --dev n1 --dev n2");
    let mut states = States { socket, seen: Vec::new() };
    // (1) it forwards, with the number of routes that `node status` has
    states.becomes("start", |state| {
        state.starts_with("forwarding; ") && state.ends_with(" routes, 3 of 3 devices")
    });
    let status = trieline_testbed::daemon::status(&bed.node);
    let families = status["families"].as_array().expect("families");
    let count = |key: &str| families.iter().filter_map(|family| family[key].as_u64()).sum::<u64>();
    let routes = count("main") + count("local") + count("others");
    states.becomes("routes", |state| state == format!("forwarding; {routes} routes, 3 of 3 devices"));
    // (2) a family that the kernel has, and a device that goes
    bed.node.sysctl("net.ipv4.ip_forward", "0");
    states.becomes("no IPv4", |state| state.starts_with("forwarding IPv6 only; "));
    bed.node.sysctl("net.ipv4.ip_forward", "1");
    states.becomes("IPv4 again", |state| state.starts_with("forwarding; "));
    bed.node.ip("link del n2");
    states.becomes("a device goes", |state| state.ends_with(" 2 of 3 devices"));
    // (3) routes that come and go bring one state a second at most; without a change none comes
    std::thread::sleep(Duration::from_secs(3));
    states.read();
    let before = states.seen.len();
    std::thread::sleep(Duration::from_secs(3));
    states.read();
    assert_eq!(states.seen.len(), before, "a state that did not change: {:#?}", states.seen);
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        let mut changes = String::new();
        for _ in 0..50 {
            number += 1;
            let _ = writeln!(changes, "route add 10.70.{}.{}/32 via 10.1.0.2", number / 250, number % 250);
        }
        bed.node.ip_batch(&[], &changes).ok();
        states.read();
    }
    let (came, seconds) = (states.seen.len() - before, begun.elapsed().as_secs() as usize);
    assert!((2..=seconds + 2).contains(&came), "{came} states in {seconds} s: {:#?}", states.seen);
    // (4) detached
    trieline(&bed.node, "node detach").ok();
    states.becomes("detached", |state| state.starts_with("detached: the kernel forwards alone; "));
}
