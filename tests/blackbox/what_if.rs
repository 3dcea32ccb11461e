//! `trieline route get --packet FILE --against FILE`: exactly the packets whose fate another configuration or other routes would change.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Answer, Running, binary_path, run};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{craft, eventually, needs_root};

const CONFIG: &str = "devices = [\"n0\", \"n1\", \"n2\"]\n";

/// A capture of packets from two sources to two prefixes; the second source sends every third one.
fn captured(bed: &Bed, folder: &Path) -> PathBuf {
    let file = folder.join("yesterday.pcapng");
    let capture = Command::new(binary_path("trieline"))
        .args(["-n", bed.node.name(), "capture", "--dev", "n0", "-w", &file.display().to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("trieline starts");
    let mut capture = Running(capture);
    // A file header is there once the capture is on; the ring some moments later.
    assert!(eventually(5.0, || file.exists()));
    std::thread::sleep(std::time::Duration::from_millis(300));
    for number in 0..30_u16 {
        let source = if number % 3 == 0 { "10.0.0.9" } else { "10.0.0.2" };
        let to = if number % 2 == 0 { "10.50.0.1" } else { "10.70.0.1" };
        bed.send_ip(&craft::ipv4(source, to, &craft::udp(b"yesterday"), |_| {}), b"yesterday");
    }
    run(&format!("kill -INT {}", capture.id())).ok();
    capture.wait().expect("the capture ends");
    file
}

fn against(bed: &Bed, file: &Path, words: &str) -> Answer {
    trieline(&bed.node, &format!("-j route get --packet {} {words}", file.display()))
}

/// The changed packets of an answer, and its summary.
fn parts(answer: &Answer) -> (Vec<Value>, Value) {
    let mut list: Vec<Value> =
        serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    let summary = list.pop().expect("a summary");
    (list, summary)
}

fn udp(changes: &[Value]) -> Vec<&Value> {
    changes.iter().filter(|change| change["protocol"] == "udp").collect()
}

#[test]
fn exactly_the_packets_that_change_are_named() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.70.0.0/16 via 10.1.0.2");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    write("now.toml", CONFIG);
    let daemon = Daemon::start(&bed.node, &format!("--config {}", path("now.toml").display()));
    bed.side.run("ping -c 1 -W 2 10.2.0.1").ok();
    let file = captured(&bed, folder.path());
    let ask = |words: &str| against(&bed, &file, words);
    // (1) the same configuration changes nothing, and neither do the kernel's own routes
    let answer = ask(&format!("--against {}", path("now.toml").display()));
    assert_eq!(answer.code, 0, "{answer:?}");
    let (changes, summary) = parts(&answer);
    assert_eq!((changes.len(), &summary["changed"]), (0, &0.into()), "{answer:?}");
    assert!(summary["packets"].as_u64() >= Some(30) && summary["left_out"].as_u64() >= Some(30), "{summary}");
    let routes = |name: &str, text: &str| {
        write(name, text);
        format!("--against {}", path(name).display())
    };
    let own = bed.node.run("ip -j route show table all").ok();
    let answer = ask(&routes("own.json", &own));
    assert_eq!(answer.code, 0, "{answer:?}");
    let own6 = bed.node.run("ip -j -6 route").ok();
    assert_eq!(ask(&routes("own6.json", &own6)).code, 0);
    // (2) a filter that drops one source
    write("sources", "10.0.0.9\n");
    write(
        "filter.toml",
        &format!(
            "{CONFIG}[[filter]]\nname = \"one\"\nfile = \"sources\"\nmatch = \"source\"\naction = \"drop\"\n"
        ),
    );
    let answer = ask(&format!("--against {}", path("filter.toml").display()));
    assert_eq!(answer.code, 1, "{answer:?}");
    let (changes, summary) = parts(&answer);
    let changed = udp(&changes);
    assert_eq!((changed.len(), &summary["changed"]), (10, &10.into()), "{changes:#?}");
    for change in &changed {
        assert_eq!((&change["src"], &change["iif"]), (&"10.0.0.9".into(), &"n0".into()), "{change}");
        assert_eq!((&change["before"]["verdict"], &change["before"]["oif"]), (&"ipv4".into(), &"n1".into()));
        assert_eq!((&change["after"]["action"], &change["after"]["filter"]), (&"drop".into(), &"one".into()));
        assert_eq!(change["before"]["nexthop"], "10.1.0.2");
    }
    // As tshark numbers packets: outgoing ones count.
    let numbers: Vec<u64> = changed.iter().filter_map(|change| change["packet"].as_u64()).collect();
    let tshark = format!("tcpdump -nn -t -# -r {} src 10.0.0.9", file.display());
    let shown = run(&tshark).ok();
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers.len() * 2 == shown.lines().count(),
        "{shown}"
    );
    let pair = serde_json::json!({ "before": "forward ipv4", "after": "drop filtered", "packets": 10 });
    assert!(summary["verdicts"].as_array().is_some_and(|pairs| pairs.contains(&pair)), "{summary:#}");
    // (3) routes that move one prefix to another next hop
    let moved = own.replace(
        "\"dst\":\"10.70.0.0/16\",\"gateway\":\"10.1.0.2\",\"dev\":\"n1\"",
        "\"dst\":\"10.70.0.0/16\",\"gateway\":\"10.2.0.2\",\"dev\":\"n2\"",
    );
    assert_ne!(moved, own, "{own}");
    let answer = ask(&routes("moved.json", &moved));
    assert_eq!(answer.code, 1, "{answer:?}");
    let (changes, _) = parts(&answer);
    let changed = udp(&changes);
    assert_eq!(changed.len(), 15, "{changes:#?}");
    for change in changed {
        assert_eq!(
            (&change["dst"], &change["after"]["oif"]),
            (&"10.70.0.1".into(), &"n2".into()),
            "{change}"
        );
        assert_eq!(change["after"]["nexthop"], "10.2.0.2");
    }
    let text = trieline(
        &bed.node,
        &format!("route get --packet {} {}", file.display(), routes("moved.json", &moved)),
    );
    assert!(
        text.stdout.contains("udp 10.0.0.2:") && text.stdout.contains("-> forward ipv4 out n2 via 10.2.0.2"),
        "{text:?}"
    );
    // (4) nothing that runs has changed
    assert_eq!(bed.send("10.70.0.1:9", "today", 5).counts(), (0, 5, 0));
    let sums = parts(&ask("--summary")).1;
    assert!(
        sums["verdicts"].as_array().is_some_and(|sums| sums
            .iter()
            .any(|sum| sum["before"] == "forward ipv4" && sum["packets"] == 30)),
        "{sums:#}"
    );
    assert_eq!(daemon.stop().matches("more like this").count(), 0);
}

#[test]
fn broken_files_are_named() {
    needs_root!();
    let bed = Bed::routed();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2");
    let file = captured(&bed, folder.path());
    let bytes = std::fs::read(&file).expect("a file");
    // A packet that ends too soon; a file without a device; what is neither.
    let cut = path("cut.pcapng");
    std::fs::write(&cut, &bytes[..bytes.len() * 2 / 3]).expect("a file");
    against(&bed, &cut, "--summary").fails(1, &["cut.pcapng: packet "]);
    let packet = craft::ipv4("10.0.0.2", "10.50.0.1", b"raw", |_| {});
    let length = packet.len() as u32;
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 101, 1, 0, length, length];
    let mut raw: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    raw.extend(&packet);
    std::fs::write(path("raw.pcap"), raw).expect("a file");
    against(&bed, &path("raw.pcap"), "--summary").fails(1, &["raw.pcap: packet 1", "--iif"]);
    assert_eq!(against(&bed, &path("raw.pcap"), "--summary --iif n0").code, 0);
    let refused = |name: &str, text: &str, words: &[&str]| {
        write(name, text);
        against(&bed, &file, &format!("--against {}", path(name).display())).fails(1, words);
    };
    refused("empty.json", "[]", &["empty.json", "no routes", "ip -j route"]);
    refused("bad.json", "[{\"dst\":\"10.0.0.0/8\"", &["bad.json", "line 1 column"]);
    refused(
        "dev.json",
        "[{\"dst\":\"10.0.0.0/8\",\"dev\":\"eth9\"}]",
        &["route 1 (10.0.0.0/8): eth9: no such device"],
    );
    refused("key.toml", "devices = [\"n0\"]\nfiltre = 1\n", &["key.toml: line 2", "filtre"]);
    refused(
        "gone.toml",
        &format!(
            "{CONFIG}[[filter]]\nname = \"x\"\nfile = \"gone\"\nmatch = \"source\"\naction = \"drop\"\n"
        ),
        &["gone"],
    );
    write("other.txt", "");
    against(&bed, &file, &format!("--against {}", path("other.txt").display()))
        .fails(2, &["expected FILE.toml"]);
    trieline(&bed.node, "route get --against x.toml").fails(2, &["--packet"]);
}
