//! 802.1Q: tagged frames forwarded in XDP. Needs the kernel's VLAN module, so it runs in the test VMs.

use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::Daemon;
use trieline_testbed::{craft, eventually, needs_root, packets};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// ```text
/// [gen] g0.100 ── n0.100 [node] n1 ── s0 [sink]          (1) the tag is taken off
///                        [node] n1.200 ── s0.200 [sink]  (2) put on, (3) or exchanged
/// ```
#[test]
#[ignore = "needs the 8021q module: run in tests/vm"]
fn tagged_frames_are_forwarded() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    let sub = |namespace: &trieline_testbed::namespace::Namespace, device: &str, vlan: u16, address: &str| {
        namespace.ip(&format!("link add link {device} name {device}.{vlan} type vlan id {vlan}"));
        namespace.ip(&format!("addr add {address}/24 dev {device}.{vlan}"));
        namespace.ip(&format!("link set {device}.{vlan} up"));
        namespace.sysctl(&format!("net/ipv4/conf/{device}.{vlan}/rp_filter"), "0");
    };
    // With the tag in the frame, as on a wire; else a veth hands it over beside the frame, where XDP does not see it.
    bed.generator.run("ethtool -K g0 txvlan off").ok();
    sub(&bed.generator, "g0", 100, "10.100.0.2");
    sub(&bed.node, "n0", 100, "10.100.0.1");
    sub(&bed.node, "n1", 200, "10.200.0.1");
    sub(&bed.sink, "s0", 200, "10.200.0.2");
    bed.node.run("ping -c 1 -W 5 10.100.0.2").ok();
    bed.node.run("ping -c 1 -W 5 10.200.0.2").ok();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    bed.node.ip("route add 10.51.0.0/16 via 10.200.0.2");
    bed.generator.ip("route add 10.50.1.0/24 via 10.100.0.1");
    bed.generator.ip("route add 10.51.1.0/24 via 10.100.0.1");
    let cases = [
        ("untagged in, tagged out", "10.51.2.1:9"),
        ("tagged in, untagged out", "10.50.1.1:9"),
        ("another tag out", "10.51.1.1:9"),
    ];
    // (1) to (3) through the kernel, then through XDP: as many frames at the sink, none of them passed
    let kernel: Vec<_> = cases.iter().map(|(_, to)| bed.send(to, "in a VLAN", 5).sink).collect();
    for ((name, _), frames) in cases.iter().zip(&kernel) {
        assert!(frames.len() >= 5, "{name}: {} frames through the kernel", frames.len());
    }
    let daemon = Daemon::start(&bed.node, DEVICES);
    assert!(daemon.log().contains("txvlan off"), "the peer of a veth with VLANs is named: {}", daemon.log());
    for ((name, to), kernel) in cases.iter().zip(kernel) {
        let seen = bed.send(to, "in a VLAN", 5);
        assert_eq!(seen.passed.len(), 0, "{name}: passed to the kernel");
        assert_eq!(seen.sink.len(), kernel.len(), "{name}: frames at the sink");
    }
    let becomes = |what: &str, to: &str, passed: bool, arrives: bool| {
        let mut last = None;
        let equal = eventually(8.0, || {
            let seen = bed.send(to, "in a VLAN", 5);
            last = Some(seen.counts());
            (!seen.passed.is_empty(), !seen.sink.is_empty()) == (passed, arrives)
        });
        assert!(equal, "{what}: passed {passed}, arrives {arrives}; last seen {last:?} (passed, sink, side)");
    };
    // (4) a VLAN device that writes priorities into its tags is the kernel's to send by
    bed.node.ip("link set n1.200 type vlan egress-qos-map 0:5");
    becomes("priorities", "10.51.2.1:9", true, true);
    // (5) what comes in for one that is down goes nowhere, though the device below is up
    bed.generator.ip("neigh replace 10.100.0.1 lladdr 02:00:00:00:00:01 dev g0.100");
    becomes("up", "10.50.1.1:9", false, true);
    bed.node.ip("link set n0.100 down");
    becomes("down", "10.50.1.1:9", true, false);
}

/// Tags with id 0 before and behind a VLAN's lead to its device in the kernel, and to its filters in XDP.
#[test]
#[ignore = "needs the 8021q module: run in tests/vm"]
fn tags_with_id_0_hide_nothing() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("link add link n0 name n0.100 type vlan id 100");
    bed.node.ip("addr add 10.100.0.1/24 dev n0.100");
    bed.node.ip("link set n0.100 up");
    bed.node.sysctl("net/ipv4/conf/n0.100/rp_filter", "0");
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    let marker = b"behind tags";
    let frames = |source: &str| -> Vec<Vec<u8>> {
        let packet = craft::ipv4(source, "10.50.0.1", marker, |_| {});
        let tags: [&[(u16, u16)]; 6] = [
            &[(0x8100, 100)],
            &[(0x8100, 0), (0x8100, 100)],
            &[(0x88a8, 0), (0x8100, 100)],
            &[(0x8100, 100), (0x8100, 0)],
            &[(0x8100, 100), (0x88a8, 0)],
            &[(0x88a8, 0), (0x8100, 100), (0x88a8, 0)],
        ];
        let frame = |tags: &[(u16, u16)]| {
            let tags = tags.iter().flat_map(|(kind, id)| [kind.to_be_bytes(), id.to_be_bytes()].concat());
            let head = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0].into_iter().chain(tags).chain([8, 0]);
            head.chain(packet.iter().copied()).collect()
        };
        tags.map(frame).to_vec()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let sent =
        |source: &str| bed.watch(marker, || packets::send_frames(&bed.generator, "g0", &frames(source)));
    // (1) the kernel alone forwards them all, from any sender
    assert_eq!(sent("203.0.113.9").sink.len(), 6);
    // (2) XDP forwards those that no filter is about, and none of the others comes out
    std::fs::write(folder.path().join("bad"), "203.0.113.0/24\n").expect("a file");
    let config = "devices = [\"n0\", \"n1\", \"n2\"]\n\
                  [[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n";
    let file = folder.path().join("trielined.toml");
    std::fs::write(&file, config).expect("a file");
    let _daemon = Daemon::start(&bed.node, &format!("--config {}", file.display()));
    assert_eq!(sent("203.0.113.9").sink.len(), 0, "filtered");
    assert_eq!(sent("192.0.2.9").sink.len(), 6, "not filtered");
}
