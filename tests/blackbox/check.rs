//! `trieline node check`: go, warnings and no-go, each with the command that mends it; nothing is attached or left.

use serde_json::Value;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Answer, binary_path, run};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{needs_root, skip};

fn check(bed: &Bed, words: &str) -> (Answer, Value) {
    let answer = trieline(&bed.node, &format!("-j node check {words}"));
    let document = serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    (answer, document)
}

/// The finding about `about` that has this word.
#[track_caller]
fn finding<'a>(document: &'a Value, level: &str, about: &str, word: &str) -> &'a Value {
    let findings = document["findings"].as_array().expect("findings");
    for finding in findings {
        // A finding that is not `go` has a command.
        assert_eq!(finding["level"] == "go", finding["mend"].is_null(), "{finding:#}");
    }
    let is = |finding: &&Value| {
        finding["level"] == level
            && finding["about"] == about
            && finding["what"].as_str().is_some_and(|what| what.contains(word))
    };
    findings.iter().find(is).unwrap_or_else(|| panic!("no {level} of {about} with {word}: {document:#}"))
}

/// The command that mends it.
#[track_caller]
fn mend(document: &Value, level: &str, about: &str, word: &str) -> String {
    finding(document, level, about, word)["mend"].as_str().expect("a command").to_owned()
}

/// The command that mends the no-go about `about` that has this word.
#[track_caller]
fn no_go(document: &Value, about: &str, word: &str) -> String {
    mend(document, "no-go", about, word)
}

#[test]
fn a_node_of_veths_may_go_with_warnings() {
    needs_root!();
    let bed = Bed::routed();
    let (answer, document) = check(&bed, "--dev n0 --dev n1");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(
        (&document["level"], &document["devices"]),
        (&"warn".into(), &serde_json::json!(["n0", "n1"]))
    );
    // The model of both families, run over the node's own routes.
    let model = document["model"].as_array().expect("a model");
    assert_eq!(model.len(), 2, "{document:#}");
    for family in model {
        let number = |key: &str| family[key].as_f64().expect("a number");
        assert!(number("ns") >= 1.0 && number("ns_low") <= number("ns") && number("ns") <= number("ns_high"));
        assert!((number("mpps") * number("ns") / 1e3 - 1.0).abs() < 0.6, "{family}");
        assert!(number("forwarded") > 0.0 && number("forwarded") <= 1.0, "{family}");
        assert_eq!(family["cores"][0]["dev"], "n0", "{family}");
    }
    // Nothing is attached, pinned or left.
    assert!(!bed.node.ip("link show").contains("xdp"));
    assert!(!std::path::Path::new(&format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode())).exists());
    // As text, with all devices that could be meant.
    let text = trieline(&bed.node, "node check").ok();
    assert!(text.contains("go, with warnings") && text.contains("n2") && text.contains("a model:"), "{text}");
}

#[test]
fn setups_that_a_start_refuses_are_no_go() {
    needs_root!();
    let bed = Bed::routed();
    // (1) a device that is not there
    let (answer, document) = check(&bed, "--dev n0 --dev late0");
    assert_eq!(answer.code, 1, "{answer:?}");
    no_go(&document, "late0", "no such device");
    // (2) a port of a bridge
    bed.node.ip("link add br0 type bridge");
    bed.node.ip("link set n2 master br0");
    let (answer, document) = check(&bed, "--dev n0 --dev n2");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(no_go(&document, "n2", "filters alone hold there").contains("--generic --dev br0"));
    bed.node.ip("link set n2 nomaster");
    // (3) a forward rule; accepted, it is a warning
    bed.node.run("nft add table inet fw").ok();
    bed.node.run("nft add chain inet fw forward { type filter hook forward priority 0 ; }").ok();
    bed.node.run("nft add rule inet fw forward udp dport 53 drop").ok();
    let (answer, document) = check(&bed, "--dev n0 --dev n1");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(no_go(&document, "netfilter", "inet fw").contains("--bypass-netfilter"));
    let (answer, _) = check(&bed, "--dev n0 --dev n1 --bypass-netfilter");
    assert_eq!(answer.code, 0, "{answer:?}");
}

/// Processing that XDP bypasses without a decision: a start warns of it, and so does the check.
#[test]
fn processing_that_a_start_accepts_is_a_warning() {
    needs_root!();
    let bed = Bed::routed();
    // (1) connection tracking, as soon as a rule asks for it
    bed.node.run("nft add table ip fw").ok();
    bed.node.run("nft add chain ip fw in { type filter hook input priority 0 ; }").ok();
    bed.node.run("nft add rule ip fw in ct state established accept").ok();
    bed.generator.run("ping -c 1 -W 2 10.0.0.1").ok();
    // (2) traffic control
    bed.node.run("tc qdisc add dev n1 root tbf rate 1gbit burst 64kb latency 50ms").ok();
    // (3) an IPsec policy, which leaves all IPv4 packets to the kernel
    bed.node.ip("xfrm policy add src 10.9.0.0/16 dst 10.8.0.0/16 dir out action block");
    let (answer, document) = check(&bed, "--dev n0 --dev n1");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(mend(&document, "warn", "conntrack", "tracks connections").contains("conntrack -L"));
    assert!(mend(&document, "warn", "tc", "n1: qdisc tbf").contains("tc qdisc show"));
    let command = mend(&document, "warn", "kernel", "IPsec");
    assert!(finding(&document, "warn", "kernel", "IPsec")["what"].to_string().contains("IPv4"));
    // (4) the command ends it
    for one in command.split("; ") {
        bed.node.run(one).ok();
    }
    bed.node.run("tc qdisc del dev n1 root").ok();
    let (_, document) = check(&bed, "--dev n0 --dev n1");
    let about: Vec<&Value> =
        document["findings"].as_array().expect("findings").iter().map(|found| &found["about"]).collect();
    assert!(!about.contains(&&"tc".into()) && !document.to_string().contains("IPsec"), "{document:#}");
}

/// A device whose driver has native XDP for frames of one buffer alone (a tap). Its MTU has a limit, and the command of the finding
/// mends it.
#[test]
fn an_mtu_above_the_drivers_limit_is_no_go() {
    needs_root!();
    let bed = Bed::routed();
    if bed.node.try_ip("tuntap add dev tap0 mode tap").code != 0 {
        return skip("tap: this kernel has none");
    }
    bed.node.ip("link set tap0 up mtu 9000");
    let (answer, document) = check(&bed, "--dev n0 --dev tap0");
    assert_eq!(answer.code, 1, "{answer:?}");
    let command = no_go(&document, "tap0", "MTU 9000 is more than 3498");
    bed.node.run(&command).ok();
    let (_, document) = check(&bed, "--dev n0 --dev tap0");
    assert!(!document.to_string().contains("is more than"), "{document:#}");
    finding(&document, "go", "tap0", "offloads: none is in the way");
}

/// Unknown is printed as unknown: a speed, the model of a node without an Ethernet device.
#[test]
fn unknown_figures_are_reported_as_unknown() {
    needs_root!();
    let bed = Bed::routed();
    if bed.node.try_ip("tuntap add dev tun0 mode tun").code != 0 {
        return skip("tun: this kernel has none");
    }
    if bed.node.try_ip("link add d0 type dummy").code != 0 {
        bed.node.ip("link add d0 type bridge");
    }
    bed.node.ip("link set d0 up");
    let (_, document) = check(&bed, "--generic --dev n0 --dev d0");
    finding(&document, "go", "d0", "speed unknown");
    let cores = document["model"][0]["cores"].as_array().expect("cores");
    let d0 = cores.iter().find(|cores| cores["dev"] == "d0").expect("d0");
    assert!(d0["speed_mbits"].is_null() && d0["cores"].is_null(), "{document:#}");
    let text = trieline(&bed.node, "node check --generic --dev n0 --dev d0").stdout;
    assert!(text.contains("d0: speed unknown, so line rate and cores are unknown"), "{text}");
    let (_, document) = check(&bed, "--generic --dev tun0");
    finding(&document, "warn", "model", "unknown: no checked device has a MAC address");
    for flags in ["--generic", ""] {
        let (_, document) = check(&bed, &format!("{flags} --dev tun0 --dev lo"));
        assert!(no_go(&document, "tun0", "no Ethernet header").contains("leave it out"), "{document:#}");
        assert!(no_go(&document, "lo", "the loopback").contains("leave it out"), "{document:#}");
        assert!(!document.to_string().contains("trielined --generic"), "{document:#}");
    }
    assert_eq!(document["model"], serde_json::json!([]));
}

/// The longest header that a route pushes, against the room in front of a frame.
#[test]
fn headers_that_do_not_fit_in_front_of_a_frame_are_a_warning() {
    needs_root!();
    let bed = Bed::routed();
    let (_, document) = check(&bed, "--dev n0 --dev n1");
    finding(&document, "go", "headroom", "up to 0 bytes");
    let segments =
        |count: u32| (1..=count).map(|number| format!("fd00:1::{number}")).collect::<Vec<_>>().join(",");
    bed.node.ip(&format!("-6 route add fd70::/32 encap seg6 mode encap segs {} dev n1", segments(10)));
    let (_, document) = check(&bed, "--dev n0 --dev n1");
    finding(&document, "go", "headroom", "up to 208 bytes");
    bed.node.ip(&format!("-6 route add fd71::/32 encap seg6 mode encap segs {} dev n1", segments(12)));
    let (_, document) = check(&bed, "--dev n0 --dev n1");
    finding(&document, "warn", "headroom", "up to 240 bytes");
}

/// A bond goes as a device; one of its ports alone is a no-go, and the command names the bond.
#[test]
#[ignore = "needs the bonding module: run in tests/vm"]
fn a_bond_goes_and_its_port_does_not() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("link add bond0 type bond mode active-backup miimon 100");
    bed.node.ip("link set n2 down");
    bed.node.ip("link set n2 master bond0");
    bed.node.ip("link set n2 up");
    bed.node.ip("link set bond0 up");
    let (answer, document) = check(&bed, "--dev n0 --dev n2");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert_eq!(no_go(&document, "n2", "a port of bond0 (bond)"), "--dev bond0 instead");
    let (_, document) = check(&bed, "--dev n0 --dev bond0");
    let of_bond =
        document["findings"].as_array().expect("findings").iter().filter(|found| found["about"] == "bond0");
    let refused: Vec<&Value> = of_bond.filter(|found| found["level"] == "no-go").collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn a_daemon_and_a_program_of_others_are_no_go() {
    needs_root!();
    let bed = Bed::routed();
    let daemon = Daemon::start(&bed.node, "--dev n2");
    let (answer, document) = check(&bed, "--dev n0 --dev n2");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(no_go(&document, "trielined", &daemon.pid().to_string()).contains("node status"));
    // The pins of its own are not somebody else's; moved away they are.
    daemon.kill();
    let (answer, _) = check(&bed, "--dev n0 --dev n2");
    assert_eq!(answer.code, 0, "{answer:?}");
    let pins = format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode());
    let moved = format!("{pins}-moved");
    std::fs::rename(&pins, &moved).expect("the pins can be moved");
    let (answer, document) = check(&bed, "--dev n0 --dev n2");
    for entry in std::fs::read_dir(&moved).expect("the moved pins").flatten() {
        std::fs::remove_file(entry.path()).expect("unpinned");
    }
    std::fs::remove_dir(&moved).expect("an empty directory");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(no_go(&document, "n2", "`trieline`").starts_with("bpftool link detach id "));
}

#[test]
fn check_without_root_lists_unchecked_items() {
    needs_root!();
    let bed = Bed::new();
    let (name, program) = (bed.node.name().to_owned(), binary_path("trieline"));
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups timeout 20";
    let answer = run(&format!("nsenter --net=/run/netns/{name} {nobody} {program} -j node check --dev n0"));
    assert_eq!(answer.code, 1, "{answer:?}");
    let document: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert!(no_go(&document, "permissions", "CAP_BPF").contains("root"));
    no_go(&document, "permissions", "not checked without root: netfilter");
    assert_eq!(document["model"], serde_json::json!([]));
    run(&format!("{program} node check --dev n0 --dev n0")).fails(2, &["named twice"]);
}
