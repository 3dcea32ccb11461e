//! The kernel's receive handlers are listed, also those of links that are in other namespaces.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/mod.rs"]
mod common;

use common::netns::*;
use std::process::Command;
use trieline_router::RxHandlers;
use trieline_testbed::needs_root;

fn ip(args: &str) {
    let done = Command::new("ip").args(args.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {args}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn receive_handlers_of_a_device_are_listed() {
    needs_root!();
    let line = Line::new();
    line.within("n", || {
        let mut handlers = RxHandlers::load().unwrap();
        let (n0, n1) = (line.ifindex("n", "n0"), line.ifindex("n", "n1"));
        let mut reported = || handlers.taking().unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(reported(), []);
        // Macvlans with MAC addresses of their own take only frames to these.
        for mode in ["bridge", "vepa", "private"] {
            ip(&format!("link add link n0 name {mode} type macvlan mode {mode}"));
        }
        assert_eq!(reported(), []);
        ip("link add link n0 name source type macvlan mode source");
        let macvlan = |device| vec![(device, "macvlan_handle_frame".to_owned())];
        assert_eq!(reported(), macvlan(n0));
        ip("link del source");
        assert_eq!(reported(), []);
        // Moved to where netlink and sysfs do not tell of it.
        ip("link add link n1 name through type macvlan mode passthru");
        assert_eq!(reported(), macvlan(n1));
        ip(&format!("link set through netns {}", line.name("b")));
        assert_eq!(reported(), macvlan(n1));
        ip(&format!("-n {} link del through", line.name("b")));
        assert_eq!(reported(), []);
        ip("link add br0 type bridge");
        ip("link set n1 master br0");
        assert_eq!(reported(), [(n1, "br_handle_frame".to_owned())]);
    });
}
