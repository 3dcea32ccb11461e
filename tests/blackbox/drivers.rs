//! NICs that QEMU emulates: what their real drivers do with a native program, and with a generic one.
//!
//! Each driver has four NICs, two on a wire: `tests/vm/run` plugs them. Two of them are the node's.

use crate::status;
use std::path::Path;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{eventually, linux, needs_root};

/// The devices of a driver, in the order of their MAC addresses.
fn devices(driver: &str) -> Vec<String> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let mut found: Vec<(String, String)> = std::fs::read_dir("/sys/class/net")
        .expect("a list of devices")
        .flatten()
        .filter(|entry| {
            std::fs::read_link(entry.path().join("device/driver"))
                .is_ok_and(|link| link.file_name().is_some_and(|name| name == driver))
        })
        .map(|entry| (read(&entry.path().join("address")), entry.file_name().to_string_lossy().into_owned()))
        .collect();
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

/// ```text
/// [gen] g ══ a [node] b ══ s [sink]
/// ```
fn forwards(driver: &str, settings: &[&str], generic: bool) {
    // Those of the test before come back when the kernel has removed its namespaces.
    assert!(eventually(20.0, || devices(driver).len() == 4), "{driver}: {:?}", devices(driver));
    let names = devices(driver);
    let [g, a, b, s] = &names[..] else {
        unreachable!("{names:?}");
    };
    let [generator, node, sink] = ["gen", "node", "sink"].map(Namespace::new);
    for (namespace, device, address) in [
        (&generator, g, "10.1.0.2/24"),
        (&node, a, "10.1.0.1/24"),
        (&node, b, "10.2.0.1/24"),
        (&sink, s, "10.2.0.2/24"),
    ] {
        trieline_testbed::command::run(&format!("ip link set {device} netns {}", namespace.name())).ok();
        namespace.ip(&format!("addr add {address} dev {device}"));
        namespace.ip(&format!("link set {device} up"));
    }
    node.sysctl("net.ipv4.ip_forward", "1");
    generator.ip("route add default via 10.1.0.1");
    sink.ip("route add default via 10.2.0.1");
    for device in [a, b] {
        for setting in settings {
            node.run(&format!("ethtool -K {device} {setting}")).ok();
        }
    }
    assert!(
        eventually(10.0, || generator.run("ping -c 1 -W 2 10.2.0.2").code == 0),
        "the kernel alone does not forward"
    );

    let mode = if generic { " --generic" } else { "" };
    let daemon = Daemon::start(&node, &format!("--dev {a} --dev {b}{mode}"));
    let expected = if generic { "generic" } else { "native" };
    let shown = daemon.status().expect("a status");
    for device in shown["devices"].as_array().expect("devices") {
        assert_eq!(device["mode"], expected, "{shown:#}");
    }
    let before = status::forwarded(&node);
    let to = "10.2.0.2:9".parse().expect("an address");
    let receiver = UdpSink::open(&sink, to);
    let stream = UdpStream::start(&generator, to, 200);
    assert!(eventually(30.0, || receiver.received() >= 200), "{} arrived", receiver.received());
    let sent = stream.stop();
    let received = receiver.close_checked();
    assert_eq!((received.packets, received.twice, received.wrong), (sent, 0, 0), "of {sent} packets");
    let forwarded = status::forwarded(&node) - before;
    assert!(forwarded >= sent, "XDP forwarded {forwarded} of {sent} packets");
    // Both ways, with frames as long as the MTU lets them be.
    generator.run("ping -c 3 -W 5 -M do -s 1472 10.2.0.2").ok();
    assert!(status::forwarded(&node) >= before + sent + 6);
}

#[test]
#[ignore = "needs NICs of virtio_net: run in tests/vm"]
fn virtio_net() {
    needs_root!();
    forwards("virtio_net", &[], false);
}

/// The driver joins packets and takes VLAN tags out unless that is turned off: `node check` finds both, and its commands mend them.
#[test]
#[ignore = "needs NICs of vmxnet3: run in tests/vm"]
fn vmxnet3_offloads_are_found() {
    needs_root!();
    assert!(eventually(20.0, || devices("vmxnet3").len() == 4), "{:?}", devices("vmxnet3"));
    let device = devices("vmxnet3").swap_remove(0);
    let node = Namespace::new("node");
    trieline_testbed::command::run(&format!("ip link set {device} netns {}", node.name())).ok();
    node.ip(&format!("link set {device} up"));
    // The kernel turns LRO off where it forwards: this node does not yet.
    node.sysctl("net.ipv4.ip_forward", "0");
    node.run(&format!("ethtool -K {device} lro on rxvlan on")).ok();
    let found = || {
        let document = trieline(&node, &format!("-j node check --dev {device}")).stdout;
        let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
        let findings = document["findings"].as_array().expect("findings").clone();
        let commands = findings
            .iter()
            .filter(|found| found["level"] == "no-go")
            .filter_map(|found| found["mend"].as_str());
        commands.filter(|command| command.starts_with("ethtool -K ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut commands = found();
    commands.sort();
    assert_eq!(commands, ["lro", "rxvlan"].map(|offload| format!("ethtool -K {device} {offload} off")));
    commands.iter().for_each(|command| drop(node.run(command).ok()));
    assert_eq!(found(), Vec::<String>::new());
}

/// The driver has native XDP since Linux 6.6; before, a generic program.
#[test]
#[ignore = "needs NICs of vmxnet3: run in tests/vm"]
fn vmxnet3() {
    needs_root!();
    forwards("vmxnet3", &["lro off", "rxvlan off"], linux() < (6, 6));
}
