//! The running kernel's answers about a veth's offloads are understood.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;
use trieline_node::instance::enter_namespace;
use trieline_node::kernel::ethtool::{self, Offload, Offloads};

#[path = "../../tests/src/skip.rs"]
mod no_skip;

fn run(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn offloads_are_told() {
    if !rustix::process::geteuid().is_root() {
        no_skip::skip("needs root");
        return;
    }
    let name = format!("tlnd-{}-offload", std::process::id());
    run(&format!("ip netns add {name}"));
    let inside = name.clone();
    let reported = std::thread::spawn(move || {
        enter_namespace(&inside).unwrap();
        run("ip link add n0 type veth peer name p0");
        let index: u32 = run("ip -o link show n0").split(':').next().unwrap().parse().unwrap();
        let reported = || Offloads::default().in_the_way([index].into_iter()).unwrap();
        let on = reported();
        run("ethtool -K n0 rxvlan off");
        assert!(ethtool::finishes_checksums(index).unwrap());
        run("ethtool -K n0 tx off");
        assert!(!ethtool::finishes_checksums(index).unwrap());
        (index, on, reported(), Offloads::default().in_the_way([u32::MAX >> 1].into_iter()).unwrap())
    })
    .join();
    run(&format!("ip netns del {name}"));
    let (index, on, off, gone) = reported.unwrap();
    assert_eq!(on, [(index, Offload::RxVlan)]);
    assert_eq!((off, gone), (Vec::new(), Vec::new()));
}
