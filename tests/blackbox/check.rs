//! `trieline node check`: go, warnings and no-go, each with the command that mends it; nothing is attached or left.

use serde_json::Value;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Answer, binary_path, run};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::needs_root;

fn check(bed: &Bed, words: &str) -> (Answer, Value) {
    let answer = trieline(&bed.node, &format!("-j node check {words}"));
    let document = serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    (answer, document)
}

/// The command that mends the no-go about `about` that has this word.
#[track_caller]
fn no_go(document: &Value, about: &str, word: &str) -> String {
    let findings = document["findings"].as_array().expect("findings");
    let is = |finding: &&Value| {
        finding["level"] == "no-go"
            && finding["about"] == about
            && finding["what"].as_str().is_some_and(|what| what.contains(word))
    };
    let found =
        findings.iter().find(is).unwrap_or_else(|| panic!("no no-go of {about} with {word}: {document:#}"));
    found["mend"].as_str().expect("a command").to_owned()
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
    assert_eq!(no_go(&document, "n2", "br0"), "ip link set dev n2 nomaster");
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
