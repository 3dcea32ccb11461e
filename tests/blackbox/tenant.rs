//! Tenants declared in the configuration, on a kernel without VRF and VLAN devices. A table of their own alone decides for
//! their packets, and what it does not decide goes nowhere.

use serde_json::Value;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary_path, run};
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::{craft, eventually, needs_root, packets};

const TENANTS: &str = r#"
devices = ["n0", "n1", "n2"]
[[vrf]]
name = "red"
table = 100
devices = ["n0"]
[[vrf]]
name = "cluster"
table = 200
[[vlan]]
name = "v7"
device = "n0"
id = 7
table = 300
[[vlan]]
name = "v200"
device = "n1"
id = 200
"#;

/// A directory with the file, and the daemon's arguments.
fn configured(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trielined.toml");
    std::fs::write(&file, text).expect("a file");
    (directory, format!("--config {}", file.display()))
}

/// The bed with a tenant's tables; `cluster`, `v7` and `v200` are ends of veth pairs that lead nowhere.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.warm();
    for name in ["cluster", "v7", "v200"] {
        bed.node.ip(&format!("link add {name} type veth peer name {name}x"));
        bed.node.ip(&format!("link set {name}x up"));
        bed.node.ip(&format!("link set {name} up"));
    }
    for line in [
        "route add 10.50.0.0/16 via 10.2.0.2",
        "route add 10.60.0.0/16 via 10.2.0.2",
        "route add 10.50.0.0/16 via 10.1.0.2 table 100",
        "route add default dev cluster table 100",
        "-6 route add fd50::/32 via fd00:2::2",
        "-6 route add fd60::/32 via fd00:2::2",
        "-6 route add fd50::/32 via fd00:1::2 table 100",
        "-6 route add default dev cluster table 100",
        "route add 10.70.0.0/16 via 10.1.0.2 table 200",
        "-6 route add fd70::/32 via fd00:1::2 table 200",
        "addr add 10.200.0.1/24 dev v200",
        "neigh add 10.200.0.2 lladdr 02:00:00:00:00:11 dev v200 nud permanent",
        "route add 10.71.0.0/16 via 10.200.0.2 dev v200 table 200",
        "route add 10.50.0.0/16 via 10.1.0.2 table 300",
    ] {
        bed.node.ip(line);
    }
    bed
}

fn dropped(bed: &Bed) -> u64 {
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    let tenant = counters.iter().find(|counter| counter["name"] == "tenant");
    tenant.and_then(|counter| counter["packets"].as_u64()).unwrap_or_default()
}

#[test]
fn a_declared_table_alone_decides() {
    needs_root!();
    let bed = bed();
    let (directory, args) = configured(TENANTS);
    let daemon = Daemon::start(&bed.node, &args);
    // (1) the tenant's routes, not main's
    bed.becomes("own route", "10.50.0.1:9", (0, 5, 0));
    bed.becomes("own route", "[fd50::1]:9", (0, 5, 0));
    // a next hop that is forgotten is asked for, though the kernel gets no packet
    bed.node.ip("neigh del 10.1.0.2 dev n1");
    bed.becomes("next hop asked for", "10.50.0.1:9", (0, 5, 0));
    // (2) what it has no route for, though main has, goes nowhere
    let before = dropped(&bed);
    for to in ["10.60.0.1:9", "[fd60::1]:9"] {
        bed.becomes("main's route", to, (0, 0, 0));
    }
    assert!(dropped(&bed) >= before + 10, "not counted: {before}, then {}", dropped(&bed));
    // nor what the kernel would take a special address for, and forward
    let main = |from| craft::ipv4(from, "10.60.0.1", b"spoofed", |_| {});
    for packet in [main("240.1.1.1"), craft::ipv6("::2", "fd60::1", (17, &craft::udp(b"spoofed")), |_| {})] {
        assert_eq!(bed.send_ip(&packet, b"spoofed").counts(), (0, 0, 0));
    }
    // (3) its default route leads to another tenant's table, there to a device or a VLAN
    bed.becomes("cluster", "10.70.0.1:9", (0, 5, 0));
    bed.becomes("cluster", "[fd70::1]:9", (0, 5, 0));
    bed.becomes("cluster's VLAN", "10.71.0.1:9", (0, 5, 0));
    let reported = trieline(&bed.node, "-j route get 10.71.0.1 --iif n0").json();
    assert_eq!(
        (&reported[0]["table"], &reported[0]["vlan"], &reported[0]["through"], &reported[0]["action"]),
        (&Value::from("200"), &Value::from(200), &Value::from("vrf"), &Value::from("forward")),
        "{reported}"
    );
    // (4) frames with a tag are the VLAN's
    let tagged =
        |packet: Vec<u8>| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x81, 0, 0, 7, 8, 0][..], &packet].concat();
    let marker = b"with a tag";
    let send = |frame: &[u8]| packets::send_frames(&bed.generator, "g0", &[frame.to_vec()]);
    for (to, counts) in [("10.50.0.9", (0, 1, 0)), ("10.60.0.9", (0, 0, 0))] {
        let frame = tagged(craft::ipv4("10.7.0.2", to, marker, |_| {}));
        let seen = bed.watch(marker, || send(&frame));
        assert_eq!(seen.counts(), counts, "tagged to {to}");
    }
    // what asks tells of the drop, and of what the tables say
    let reported = trieline(&bed.node, "-j route get 10.9.9.9 --iif v7");
    let reported: Value = serde_json::from_str(&reported.stdout).expect("JSON");
    assert_eq!(
        (&reported[0]["action"], &reported[0]["reason"], &reported[0]["first_reason"]),
        (&"drop".into(), &"tenant".into(), &"no_route".into()),
        "{reported}"
    );
    let frame = tagged(craft::ipv4("10.7.0.2", "10.9.9.9", marker, |_| {}));
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let reported = trieline(&bed.node, &format!("-j route get --packet {hex} --iif n0"));
    let reported: Value = serde_json::from_str(&reported.stdout).expect("JSON");
    assert_eq!(
        (&reported[0]["verdict"], &reported[0]["first_verdict"], &reported[0]["route"]["action"]),
        (&"tenant".into(), &"no_route".into(), &"drop".into()),
        "{reported}"
    );
    let file = directory.path().join("tenant.pcapng");
    let capture = std::process::Command::new(binary_path("trieline"))
        .args(["-n", bed.node.name(), "capture", "--dev", "n0", "-w"])
        .arg(&file)
        .spawn()
        .expect("trieline starts");
    let held = || std::fs::read(&file).unwrap_or_default();
    let written = eventually(10.0, || {
        send(&frame);
        held().windows(29).any(|window| window == b"drop tenant, for no_route (pa")
    });
    run(&format!("kill -INT {}", capture.id())).ok();
    capture.wait_with_output().expect("trieline ends");
    assert!(written, "no such comment");
    // (5) other devices are as ever
    let shown = trieline(&bed.node, "route show --vrf red").ok();
    assert!(shown.contains("10.50.0.0/16 via 10.1.0.2") && !shown.contains("10.60"), "{shown}");
    assert!(trieline(&bed.node, "route show --table 200").ok().contains("10.71.0.0/16"));
    trieline(&bed.node, "route show --vrf absent").fails(1, &["invalid VRF \"absent\"", "expected"]);
    // (6) reloaded without: main decides; a bad file changes nothing; and with again
    let file = directory.path().join("trielined.toml");
    let reload = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        run(&format!("kill -HUP {}", daemon.pid())).ok();
    };
    reload("devices = [\"n0\", \"n1\", \"n2\"]\n");
    bed.becomes("no tenants", "10.50.0.1:9", (0, 0, 5));
    bed.becomes("no tenants", "10.60.0.1:9", (0, 0, 5));
    reload(&TENANTS.replace("table = 100", "table = 254"));
    assert!(
        eventually(5.0, || daemon.log().contains("line 5: invalid 254 for table: expected a number")),
        "{}",
        daemon.log()
    );
    reload(&TENANTS.replace("\"n2\"", "\"n9\""));
    assert!(eventually(5.0, || daemon.log().contains("n9: no such device")), "{}", daemon.log());
    bed.becomes("as it was", "10.50.0.1:9", (0, 0, 5));
    reload(TENANTS);
    bed.becomes("tenants again", "10.50.0.1:9", (0, 5, 0));
    bed.becomes("tenants again", "10.60.0.1:9", (0, 0, 0));
}

/// Default routes for the packets of tenants do not stop a tenant's headend, nor the way into a tenant. The node's segments are looked up in
/// none of them.
#[test]
fn tenants_with_default_routes_keep_their_srv6() {
    needs_root!();
    let bed = bed();
    for line in [
        "sr tunsrc set fd00:1::1",
        "-6 route add fd00:e::/32 via fd00:1::2",
        "route add 10.80.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1 table 100",
        "-6 route add fd80::/32 encap seg6 mode encap segs fd00:e::1 dev n1 table 100",
        "-6 route add default via fd00:2::2 table 200",
        "route add default via 10.2.0.2 table 300",
        // into the tenant `cluster`
        "route add 10.99.0.1 dev cluster",
        "-6 route add fd00:c::4 encap seg6local action End.DX4 nh4 10.99.0.1 dev n2",
    ] {
        bed.node.ip(line);
    }
    let (_directory, args) = configured(TENANTS);
    let _daemon = Daemon::start(&bed.node, &args);
    bed.becomes("a tenant's headend", "10.80.0.1:9", (0, 5, 0));
    bed.becomes("a tenant's headend", "[fd80::1]:9", (0, 5, 0));
    let marker = b"into the tenant";
    let inside = craft::ipv4("10.7.0.9", "10.70.0.1", marker, |_| {});
    let packet = craft::ipv6("fd00:2::2", "fd00:c::4", (4, &inside), |_| {});
    let frame = [&[2, 0, 0, 0, 0, 0x20, 2, 0, 0, 0, 0, 0x21, 0x86, 0xdd][..], &packet].concat();
    let seen = bed.watch(marker, || packets::send_frames(&bed.side, "t0", std::slice::from_ref(&frame)));
    assert_eq!(seen.sink.len(), 1, "{:?}", seen.counts());
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    assert!(counters.iter().any(|counter| counter["name"] == "end_dx4"), "{counters:?}");
}

/// A daemon that takes over finds tables and rules of the one before, and never mixes them up with its own.
#[test]
fn a_successor_keeps_tenants_apart() {
    needs_root!();
    let bed = bed();
    bed.node.ip("rule add pref 10 from 10.2.0.0/24 to 10.50.0.0/16 lookup 200");
    let (_directory, args) = configured(TENANTS);
    let mut daemon = Daemon::start(&bed.node, &args);
    for round in 0..3 {
        bed.becomes("own route", "10.50.0.1:9", (0, 5, 0));
        bed.becomes("main's route", "10.60.0.1:9", (0, 0, 0));
        bed.becomes("cluster's VLAN", "10.71.0.1:9", (0, 5, 0));
        // another table on top: numbers are given out in another order
        let table = 50 - round;
        bed.node.ip(&format!("route add 10.50.0.0/16 via 10.2.0.2 table {table}"));
        bed.node.ip(&format!("rule add pref {table} from 192.0.2.1 lookup {table}"));
        daemon.kill();
        daemon = Daemon::start(&bed.node, &args);
    }
    drop(daemon);
}
