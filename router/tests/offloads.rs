//! The running kernel's answers about a veth's offloads are understood.

#![allow(clippy::unwrap_used, reason = "a test")]

use trieline_router::kernel::ethtool::{self, Offload, Offloads};
use trieline_testbed::command::run;
use trieline_testbed::namespace::Namespace;
use trieline_testbed::needs_root;

#[test]
fn offloads_are_reported() {
    needs_root!();
    let namespace = Namespace::new("offloads");
    let (index, on, off, gone) = namespace.enter(|| {
        run("ip link add n0 type veth peer name p0").ok();
        let index = namespace.ifindex("n0").unwrap();
        let reported = || Offloads::default().in_the_way([index].into_iter()).unwrap();
        let on = reported();
        run("ethtool -K n0 rxvlan off rx-vlan-stag-hw-parse off").ok();
        assert!(ethtool::finishes_checksums(index).unwrap());
        run("ethtool -K n0 tx off").ok();
        assert!(!ethtool::finishes_checksums(index).unwrap());
        (index, on, reported(), Offloads::default().in_the_way([u32::MAX >> 1].into_iter()).unwrap())
    });
    assert_eq!(on, [(index, Offload::RxVlan), (index, Offload::RxVlanStag)]);
    assert_eq!((off, gone), (Vec::new(), Vec::new()));
}
