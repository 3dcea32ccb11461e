//! VRF devices, where the kernel has them (the virtual machines of tests/vm do). Tables by device, one VRF behind another, and the
//! kernel's word for thousands of addresses.

use serde_json::Value;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary_path, run};
use trieline_testbed::daemon::{Daemon, trieline, trieline_with};
use trieline_testbed::random::Random;
use trieline_testbed::{eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const ADDRESSES: usize = 500;

/// n0 belongs to `red`, whose default route leads to `cluster`, where n1 is; n2 is in no VRF.
fn bed() -> Bed {
    let bed = Bed::new();
    for (name, table) in [("red", 100), ("cluster", 200)] {
        bed.node.ip(&format!("link add {name} type vrf table {table}"));
        bed.node.ip(&format!("link set {name} up"));
    }
    bed.node.ip("link set n0 master red");
    bed.node.ip("link set n1 master cluster");
    // A device that joins a VRF loses its IPv6 addresses.
    bed.node.ip("-6 addr replace fd00:0::1/64 dev n0 nodad");
    bed.node.ip("-6 addr replace fd00:1::1/64 dev n1 nodad");
    for line in [
        "route add 10.50.0.0/16 via 10.1.0.2 table 200",
        "-6 route add fd50::/32 via fd00:1::2 table 200",
        "route add default dev cluster table 100",
        "-6 route add default dev cluster table 100",
        "route add unreachable 10.51.0.0/16 table 100",
        "route add 10.52.0.0/16 via 10.0.0.2 table 100",
        "route add 10.50.0.0/16 via 10.2.0.2",
        "route add 10.60.0.0/16 via 10.2.0.2",
        "-6 route add fd50::/32 via fd00:2::2",
    ] {
        bed.node.ip(line);
    }
    for (vrf, address) in
        [("red", "10.0.0.2"), ("cluster", "10.1.0.2"), ("red", "fd00:0::2"), ("cluster", "fd00:1::2")]
    {
        let answers = || bed.node.run(&format!("ping -c 1 -W 2 -I {vrf} {address}")).code == 0;
        assert!(eventually(20.0, answers), "{address} does not answer in {vrf}");
    }
    bed.node.run("ping -c 1 -W 2 10.2.0.2").ok();
    bed
}

#[test]
#[ignore = "needs VRF devices: run in tests/vm"]
fn the_lab_sends_through_vrfs() {
    needs_root!();
    let table = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&table, "20.0.0.0/8\n2a00::/12\n").unwrap();
    for (only, paths) in
        [("decap-dt4", &["decap-dt4"][..]), ("cap-vrf", &["encap-vrf", "decap-vrf", "decap-vrf-dt4"])]
    {
        // Fewer frames than a queue of the kernel's holds: none overflows on an emulated processor that others keep busy.
        let lab = format!(
            "{} -j lab run --busy forward --quick --rounds 1 --frames 200 --only {only} --table {}",
            binary_path("trieline"),
            table.path().display()
        );
        let outcome = run(&lab).json();
        for path in paths {
            let rows = outcome["rows"].as_array().unwrap().iter().filter(|row| row["path"] == *path);
            let planes: Vec<_> = rows.map(|row| row["plane"].as_str().unwrap()).collect();
            assert_eq!(planes, ["kernel", "kernel-tc-sink", "xdp"], "{path}");
        }
        for row in outcome["rows"].as_array().unwrap() {
            assert_eq!((&row["delivered"], &row["frames"]), (&200.into(), &200.into()), "{row}");
        }
    }
}

#[test]
#[ignore = "needs VRF devices: run in tests/vm"]
fn a_vrf_behind_a_vrf() {
    needs_root!();
    let bed = bed();
    // (1) through the kernel, as many as through XDP then
    for to in ["10.50.0.1:9", "[fd50::1]:9"] {
        assert_eq!(bed.send(to, "through the kernel", 5).sink.len(), 5, "to {to}");
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for to in ["10.50.0.1:9", "[fd50::1]:9"] {
        bed.becomes("red, then cluster", to, (0, 5, 0));
    }
    // (2) the same prefix is another tenant's, or nobody's
    let reported = trieline(&bed.node, "-j route get 10.50.0.1 --iif n2").json();
    assert_eq!(
        (&reported[0]["dev"], &reported[0]["action"]),
        (&Value::from("n2"), &Value::from("forward")),
        "{reported}"
    );
    // (3) routes of the VRF behind are followed, and where the one in front leads
    bed.node.ip("route del 10.50.0.0/16 table 200");
    // Neither table has it now; main is asked last, as in the kernel.
    let kernel = bed.send("10.50.0.1:9", "what the kernel says", 5);
    println!("without the route: {:?}", kernel.counts());
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2 table 200");
    bed.becomes("back again", "10.50.0.1:9", (0, 5, 0));
    // (4) a device leaves its VRF
    bed.node.ip("link set n0 nomaster");
    bed.node.run("ping -c 1 -W 2 10.0.0.2").ok();
    bed.becomes("no VRF", "10.50.0.1:9", (0, 0, 5));
    assert!(trieline(&bed.node, "route show --vrf cluster").ok().contains("10.50.0.0/16"));
}

/// `ip route get … iif n0` against `trieline route get … --iif n0`.
#[test]
#[ignore = "needs VRF devices: run in tests/vm"]
fn a_vrf_answers_as_the_kernel() {
    needs_root!();
    let bed = bed();
    let mut rng = Random::new(3);
    for _ in 0..40 {
        let (third, length) = (rng.below(4), [16, 20, 24][rng.below(3)]);
        let (table, via) = if rng.below(2) == 0 { (100, "10.0.0.2") } else { (200, "10.1.0.2") };
        // Some are there already.
        bed.node.try_ip(&format!("route add 10.{}.0.0/{length} via {via} table {table}", 53 + third));
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let addresses: Vec<String> = (0..ADDRESSES)
        .map(|_| format!("10.{}.{}.{}", 50 + rng.below(10), rng.below(32), rng.below(256)))
        .collect();
    let lines: String = addresses.iter().map(|to| format!("route get {to} from 10.0.0.2 iif n0\n")).collect();
    let kernel = bed.node.ip_batch(&["-o", "-force"], &lines);
    let mut routes = kernel.stdout.lines().filter(|line| line.contains(" from "));
    let refused: std::collections::BTreeSet<usize> = kernel
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("Command failed -:")?.trim().parse::<usize>().ok())
        .collect();
    let answer =
        trieline_with(&bed.node, "-j route get - --from 10.0.0.2 --iif n0", &(addresses.join("\n") + "\n"));
    let ours: Vec<Value> = serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"));
    let mut compared = 0;
    for (index, (address, ours)) in addresses.iter().zip(&ours).enumerate() {
        let forwards = ours["action"] == "forward";
        if refused.contains(&(index + 1)) {
            assert!(!forwards, "{address}: the kernel has no route, XDP {ours}");
            continue;
        }
        let route = routes.next().expect("an answer for every address");
        assert!(route.starts_with(address.as_str()), "{address}: {route}");
        // Through the VRF behind, the kernel says the VRF's device first: it looks again when it sends.
        if route.contains(" dev cluster ") {
            assert!(ours["through"] == "vrf", "{address}: kernel {route}, XDP {ours}");
            continue;
        }
        let dev = ours["dev"].as_str().unwrap_or_default();
        assert!(route.contains(&format!(" dev {dev} ")), "{address}: kernel {route}, XDP {ours}");
        compared += 1;
    }
    assert!(compared > 20, "only {compared} of {ADDRESSES} addresses tell");
}
