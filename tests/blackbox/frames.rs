//! Frames that the program does not read as a port's: with tags of others, without Ethernet header, passed in generic mode. And packets that
//! belong to the link, which lists of bogons leave alone.

use std::os::unix::net::UnixStream;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary_path, run_with};
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::packets::send_frames;
use trieline_testbed::{craft, eventually, needs_root};

const MARKER: &[u8] = b"of frames";
const BOGONS: &str =
    "[[filter]]\nname = \"bogons\"\nfile = \"bogons\"\nmatch = \"source\"\naction = \"drop\"\n";

/// A folder with a configuration and a filter's file, and the daemon's arguments.
fn configured(text: &str, bogons: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("bogons"), bogons).expect("a file");
    let file = folder.path().join("trielined.toml");
    std::fs::write(&file, text).expect("a file");
    let args = format!("--config {}", file.display());
    (folder, args)
}

fn counted(bed: &Bed, verdict: &str) -> u64 {
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    let found = counters.iter().find(|counter| counter["name"] == verdict);
    found.and_then(|counter| counter["packets"].as_u64()).unwrap_or_default()
}

/// A kernel's headend of whole frames gets packets that XDP passes with their Ethernet header, as without any program.
#[test]
fn passed_packets_keep_their_ethernet_header() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed.node.ip("sr tunsrc set fd00:1::1");
    bed.node.ip("-6 route add fd50::/32 encap seg6 mode l2encap segs fd00:e::1 dev n1");
    let packet = craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(MARKER)), |_| {});
    let kernel = bed.send_ip(&packet, MARKER).sink;
    assert_eq!(kernel.len(), 1);
    // The way out is not trieline's: the kernel has to do it.
    for args in ["--dev n0", "--generic --dev n0"] {
        let daemon = Daemon::start(&bed.node, args);
        assert_eq!(bed.send_ip(&packet, MARKER).sink, kernel, "{args}: left, right by the kernel alone");
        // A start in the other mode gives the devices the other program.
        daemon.stop();
    }
}

/// A bridge takes frames with a tag that no device has: the filters of its port hold for them.
#[test]
fn tags_of_others_pass_no_filter() {
    needs_root!();
    let bed = Bed::new();
    bed.node.ip("link add br0 type bridge");
    for device in ["n0", "n1"] {
        bed.node.ip(&format!("link set {device} master br0"));
    }
    bed.node.ip("link set br0 up");
    let tagged = |source: &str| {
        let packet = craft::ipv4(source, "10.1.0.2", MARKER, |_| {});
        craft::link([2, 0, 0, 0, 0, 0x11], [2, 0, 0, 0, 0, 0], &[77], None, &packet)
    };
    let crossed = |source: &str| {
        bed.watch(MARKER, || send_frames(&bed.generator, "g0", &vec![tagged(source); 5])).sink.len()
    };
    assert!(eventually(60.0, || crossed("10.0.0.66") == 5), "the bridge forwards");
    for mode in ["", "generic = true\n"] {
        let (_folder, args) =
            configured(&format!("devices = [\"n0\", \"n2\"]\n{mode}{BOGONS}"), "10.0.0.66\n");
        let daemon = Daemon::start(&bed.node, &args);
        assert_eq!((crossed("10.0.0.66"), crossed("10.0.0.67")), (0, 5), "{mode}");
        assert!(counted(&bed, "filtered") >= 5);
        daemon.stop();
        trieline(&bed.node, "node detach").ok();
    }
}

/// A device whose frames have no Ethernet header is refused by its name, and counted as what it is.
#[test]
fn devices_without_ethernet_are_refused() {
    needs_root!();
    let bed = Bed::new();
    bed.node.ip("tuntap add dev tun0 mode tun");
    bed.node.ip("link set tun0 up");
    Daemon::refused(&bed.node, "--generic --dev n0 --dev tun0").fails(1, &["tun0", "Ethernet"]);
    let daemon = Daemon::start(&bed.node, "--generic --dev n0 --dev n1");
    daemon.stop();
    let daemon = Daemon::start(&bed.node, "--generic --dev n0 --dev n1 --dev tun0");
    assert!(daemon.log().contains("2 of 3"), "{}", daemon.log());
    let refused = &status(&bed.node)["refused"][0];
    assert_eq!(refused["dev"], "tun0");
    assert!(refused["reason"].as_str().is_some_and(|why| why.contains("Ethernet")), "{refused}");
}

/// A list with fe80::/10 and 10/8 in it stops neither neighbour discovery nor what routers say to each other.
#[test]
fn bogons_do_not_stop_the_link() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    for (namespace, device, address) in
        [(&bed.node, "n0", "fe80::1"), (&bed.generator, "g0", "fe80::2"), (&bed.node, "n1", "fe80::1")]
    {
        namespace.ip(&format!("-6 addr add {address}/64 dev {device} nodad"));
    }
    bed.node.ip("-6 route add fd50::/32 via fe80::2 dev n0");
    let (folder, args) = configured(
        &format!("devices = [\"n0\", \"n1\", \"n2\"]\n{BOGONS}"),
        "8000::/1\n10.0.0.0/8\n169.254.0.0/16\n",
    );
    let daemon = Daemon::start(&bed.node, &args);
    let blocked = |packet: Vec<u8>| bed.send_ip(&packet, MARKER).counts() == (0, 0, 0);
    // (1) what is routed meets the list
    assert!(blocked(craft::ipv4("10.0.0.2", "10.1.0.2", MARKER, |_| {})), "a routed packet");
    // (2) the node finds neighbours, and they find it, by unicast, too
    let neighbour = || bed.node.run("ping -c 1 -W 1 fe80::2%n0").code == 0;
    assert!(eventually(10.0, neighbour), "a neighbour's answers");
    bed.generator.ip("-6 neigh flush dev g0");
    bed.node.ip("-6 neigh flush dev n0");
    assert!(bed.generator.run("ping -c 2 -W 2 fe80::1%g0").code == 0, "the node's answers");
    // (3) routers' protocols between link-local addresses, and OSPF, reach the node
    let udp = craft::udp(MARKER);
    let passed = |packet: &[u8]| bed.send_ip(packet, MARKER).passed.len() == 1;
    assert!(passed(&craft::ipv6("fe80::2", "fe80::1", (17, &udp), |_| {})), "between link-local addresses");
    let ospf = |to: &str, ttl: u8| craft::ipv4("10.0.0.2", to, MARKER, |ip| (ip[8], ip[9]) = (ttl, 89));
    assert!(passed(&ospf("10.0.0.1", 1)), "OSPF");
    // (4) nothing of that gets through the node
    assert!(blocked(ospf("10.1.0.2", 1)) && blocked(ospf("10.1.0.2", 255)), "OSPF to another");
    let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], MARKER].concat();
    let nd = craft::ipv6("fd00::2", "fd00:1::2", (58, &solicitation), |ip| ip[7] = 255);
    let before = counted(&bed, "filtered");
    assert_eq!(bed.send_ip(&nd, MARKER).counts(), (0, 0, 0), "a solicitation to another");
    assert_eq!(counted(&bed, "filtered"), before + 1);
    // (5) a list may hold them, too
    let asked = BOGONS.replace("action", "link = true\naction");
    let text = format!("devices = [\"n0\", \"n1\", \"n2\"]\n{asked}");
    std::fs::write(folder.path().join("trielined.toml"), text).expect("a file");
    daemon.reload();
    let is_asked = || trieline(&bed.node, "-j filter show").json()[0]["link"] == true;
    assert!(eventually(10.0, is_asked));
    assert!(blocked(ospf("10.0.0.1", 1)), "OSPF, asked for");
}

/// RFC 5635: with a reverse path filter, a blackhole route of the source drops packets from it, in XDP.
#[test]
fn sources_with_a_blackhole_route_are_dropped() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.sysctl("net.ipv4.conf.n0.rp_filter", "2");
    bed.node.ip("route add blackhole 198.51.100.0/24");
    bed.node.ip("route add 192.0.2.0/24 via 10.0.0.2");
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1");
    let from =
        |source: &str, to: &str| bed.send_ip(&craft::ipv4(source, to, MARKER, |_| {}), MARKER).counts();
    assert_eq!(from("192.0.2.9", "10.50.0.1"), (0, 1, 0), "another source");
    assert_eq!(from("198.51.100.9", "10.50.0.1"), (0, 0, 0));
    assert!(eventually(5.0, || counted(&bed, "source_blackhole") == 1));
    // The kernel takes what a connection of its own gets, or drops it itself.
    assert_eq!(from("198.51.100.9", "10.0.0.1"), (1, 0, 0), "to the node itself");
    bed.node.sysctl("net.ipv4.conf.n0.rp_filter", "0");
    let off = || from("198.51.100.9", "10.50.0.1") == (0, 1, 0);
    assert!(eventually(10.0, off), "without the filter, sources do not count");
}

/// A name of a device that means nothing is said, in each key of the configuration that names one.
#[test]
fn a_wrong_name_of_a_device_is_said() {
    let vrf = "[[vrf]]\nname = \"red\"\ntable = 100\ndevices = [\"NAME\"]\n";
    let vlan = "[[vlan]]\nname = \"v7\"\ndevice = \"NAME\"\nid = 7\n";
    let text =
        |tables: &str, name: &str| format!("devices = [\"n0\", \"n1\"]\n{}", tables.replace("NAME", name));
    let check = |text: &str| {
        let (folder, args) = configured(text, "");
        let words: Vec<&str> = ["--check"].into_iter().chain(args.split_whitespace()).collect();
        (run_with(&binary_path("trielined"), &words, ""), folder)
    };
    for tables in [vrf, vlan] {
        check(&text(tables, "n0")).0.ok();
        check(&text(tables, "typo0")).0.fails(1, &["typo0", "expected", "devices"]);
    }
    check(&text(&format!("{vrf}{}", vlan.replace("NAME", "n1")), "v7")).0.ok();
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    // Of `devices`, and of a VLAN's own name, a device may come later: it is listed and logged until then.
    let text = text(vlan, "n1").replace("\"n0\"", "\"n0\", \"typo1\"");
    let (_folder, args) = configured(&text, "");
    let daemon = Daemon::start(&bed.node, &args);
    assert_eq!(status(&bed.node)["missing"], serde_json::json!(["typo1", "v7"]));
    for name in ["typo1", "v7"] {
        assert!(daemon.log().contains(name), "{name}: {}", daemon.log());
    }
}

/// Connections that ask nothing take no place of one that does.
#[test]
fn idle_connections_do_not_keep_others_out() {
    needs_root!();
    let bed = Bed::new();
    let daemon = Daemon::start(&bed.node, "--dev n0");
    let socket = format!("/run/trieline/netns-{}.sock", bed.node.inode());
    let connect = || UnixStream::connect(&socket);
    let held: Vec<_> = (0..300)
        .map(|number| connect().unwrap_or_else(|error| panic!("connection {number}: {error}")))
        .collect();
    let mut command = std::process::Command::new("timeout");
    command.args(["15", &binary_path("trieline"), "-n", bed.node.name(), "-j", "node", "status"]);
    let answer = command.output().expect("it runs");
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    drop((held, daemon));
}
