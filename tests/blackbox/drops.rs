//! Packets that are lost after XDP forwarded them. They are counted by device and reason, with and without a daemon, and only as long
//! as this node forwards.

use crate::metrics::scraper::{Server, TEXT};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Running, binary_path, run};
use trieline_testbed::daemon::{Daemon, Leftovers, Programs, status, trieline};
use trieline_testbed::packets::UdpStream;
use trieline_testbed::{eventually, needs_root, packets};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// The fates of packets that were forwarded to a device: how many were sent, and lost for a reason.
fn after_redirect(bed: &Bed, dev: &str, reason: &str) -> (u64, u64) {
    let counts = status(&bed.node)["after_redirect"].clone();
    assert_eq!((&counts["source"], &counts["unknown"]), (&"tracepoints".into(), &Value::Null), "{counts:#}");
    let find = |list: &Value, key: &str, value: &str| -> Value {
        let list = list.as_array().cloned().unwrap_or_default();
        list.into_iter().find(|item| item[key] == value).unwrap_or_default()
    };
    let device = find(&counts["devices"], "dev", dev);
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    (number(&device["sent"]), number(&find(&device["drops"], "reason", reason)["packets"]))
}

/// Packets that XDP counted as forwarded.
fn forwarded(bed: &Bed) -> u64 {
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    let forward = counters.iter().filter(|counter| counter["kind"] == "forward");
    forward.filter_map(|counter| counter["packets"].as_u64()).sum()
}

/// The programs that count for a node, by their numbers, from the pins of their links.
fn programs(bed: &Bed) -> Vec<u32> {
    let pins = PathBuf::from(format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode()));
    let names = std::fs::read_dir(&pins).expect("pins").flatten().map(|entry| entry.path());
    let links = names
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("drops-")));
    let program = |path: PathBuf| libbpf_rs::Link::open(path).expect("a link").info().expect("facts").prog_id;
    links.map(program).collect()
}

/// [gen] ── [node] n1 ── s0 [sink], which ceases to take redirected frames while trielined cannot notice it.
#[test]
fn packets_lost_after_redirect_are_counted() {
    needs_root!();
    let bed = Bed::routed();
    let daemon = Daemon::start(&bed.node, DEVICES);
    let send = |count: usize| {
        let to = "10.50.0.1:9".parse().expect("an address");
        packets::send_udp(&bed.generator, to, b"after redirect", count).expect("sent");
    };
    // Before Linux 6.3, only the veth itself knows that its peer takes none.
    let refusal = if trieline_testbed::linux() < (6, 3) { "no_queue" } else { "no_xdp_xmit" };
    // (1) all packets are sent
    bed.becomes("forwarded", "10.50.0.1:9", (0, 5, 0));
    let (sent, lost) = after_redirect(&bed, "n1", refusal);
    assert!(sent >= 5 && lost == 0, "{sent} sent, {lost} lost");
    // (2) the device takes none, and the XDP program goes on redirecting
    run(&format!("kill -STOP {}", daemon.pid())).ok();
    bed.sink.run("ethtool -K s0 gro off").ok();
    send(7);
    std::thread::sleep(std::time::Duration::from_secs_f64(0.2 * trieline_testbed::patience()));
    run(&format!("kill -CONT {}", daemon.pid())).ok();
    assert_eq!(after_redirect(&bed, "n1", refusal), (sent, 7));
    let all: u64 = ["n0", "n1", "n2"].map(|dev| after_redirect(&bed, dev, refusal).0).iter().sum();
    assert_eq!(forwarded(&bed), all + 7, "each forwarded packet was sent or lost");
    // (3) status, metrics and top tell it
    let text = trieline(&bed.node, "node status").ok();
    assert!(text.contains(&format!("7 drop    n1 {refusal}")) && !text.contains("cannot know"), "{text}");
    let scrape = Server::start(&bed.node, &[]).scrape(TEXT);
    let drops = "trieline_drops_after_redirect_total";
    assert_eq!(scrape.value(&format!("{drops}{{iface=\"n1\",reason=\"{refusal}\"}}")), 7.0);
    assert_eq!(scrape.value(&format!("{drops}{{iface=\"n1\",reason=\"ring_full\"}}")), 0.0);
    assert_eq!(scrape.value("trieline_sent_packets_total{iface=\"n1\"}"), sent as f64);
    assert_eq!(scrape.value("trieline_drops_after_redirect_known"), 1.0);
    let picture = trieline(&bed.node, "-j top --once --interval 0.1").json();
    let egress = picture["egress"].as_array().expect("devices").iter().find(|device| device["dev"] == "n1");
    let rates = egress.expect("n1")["rates"].to_string();
    assert!(rates.contains(refusal), "{rates}");
    // (4) without a daemon the counting goes on, and the next one counts on
    bed.sink.run("ethtool -K s0 gro on").ok();
    bed.becomes("forwarded again", "10.50.0.1:9", (0, 5, 0));
    let (sent, ids) = (after_redirect(&bed, "n1", refusal).0, programs(&bed));
    assert_eq!(ids.len(), 3);
    daemon.kill();
    send(5);
    assert!(eventually(5.0, || after_redirect(&bed, "n1", refusal) == (sent + 5, 7)));
    let daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!((after_redirect(&bed, "n1", refusal), programs(&bed)), ((sent + 5, 7), ids.clone()));
    // (5) a device that is gone, though another one has its number by now: its packets are those of former devices
    bed.send("10.2.0.2:9", "to a device that goes", 3);
    assert!(eventually(5.0, || after_redirect(&bed, "n2", "ring_full").0 >= 3), "{:#}", status(&bed.node));
    let links = bed.node.try_ip("-j link show n2").json();
    let number = links[0]["ifindex"].as_u64().expect("a number");
    run(&format!("kill -STOP {}", daemon.pid())).ok();
    bed.node.ip("link del n2");
    bed.node.ip(&format!("link add n2 index {number} type veth peer name n2-far"));
    run(&format!("kill -CONT {}", daemon.pid())).ok();
    let former = || status(&bed.node)["after_redirect"]["former"]["sent"].as_u64().unwrap_or_default();
    assert!(eventually(5.0, || former() >= 3), "{:#}", status(&bed.node));
    // (6) nothing stays after a detach
    trieline(&bed.node, "node detach").ok();
    let loaded = || libbpf_rs::query::ProgInfoIter::default().any(|program| ids.contains(&program.id));
    assert!(eventually(5.0, || !loaded()), "a program counts for a node that is detached");
}

/// If other tables take the place of those in force, the counts begin together: none is sent that was not forwarded before.
#[test]
fn counts_begin_together_with_other_tables() {
    needs_root!();
    let bed = Bed::routed();
    let daemon = Daemon::start(&bed.node, &format!("{DEVICES} --image 16M"));
    bed.becomes("forwarded", "10.50.0.1:9", (0, 5, 0));
    let stream = UdpStream::start(&bed.generator, "10.50.0.1:9".parse().expect("an address"), 2000);
    let counts = || {
        let sent: u64 = ["n0", "n1", "n2"].map(|dev| after_redirect(&bed, dev, "ring_full").0).iter().sum();
        (sent, forwarded(&bed))
    };
    assert!(eventually(5.0, || counts().0 > 2000));
    daemon.kill();
    let _daemon = Daemon::start(&bed.node, &format!("{DEVICES} --image 32M"));
    assert!(eventually(5.0, || counts().0 > 200));
    stream.stop();
    let (sent, forwarded) = counts();
    assert!(sent <= forwarded && forwarded - sent < 1000, "{sent} sent, {forwarded} forwarded");
}

/// A kernel that does not describe its tracepoints: the counters of drivers are read, and the status says so.
#[test]
fn without_tracepoints_the_drivers_are_asked() {
    needs_root!();
    let bed = Bed::routed();
    // A daemon that sees no BTF of the kernel.
    let script = format!(
        "mount --bind /dev/null /sys/kernel/btf/vmlinux && exec {} -n {} {DEVICES}",
        Programs::built().trielined.display(),
        bed.node.name()
    );
    let child = Command::new("unshare")
        .args(["--mount", "sh", "-ec", &script])
        .env("STATE_DIRECTORY", bed.node.state().expect("a folder"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("unshare");
    let _daemon = Running(child);
    let _leftovers = Leftovers(&bed.node);
    let ask = || run(&format!("{} -n {} -j node status", binary_path("trieline"), bed.node.name()));
    assert!(eventually(20.0, || ask().stdout.contains("\"running\":true")), "{:?}", ask());
    bed.becomes("forwarded", "10.50.0.1:9", (0, 5, 0));
    let counts = status(&bed.node)["after_redirect"].clone();
    assert_eq!(counts["source"], "drivers", "{counts:#}");
    assert!(counts["unknown"].as_str().is_some_and(|why| why.contains("BTF")), "{counts:#}");
    let devices = counts["devices"].as_array().cloned().unwrap_or_default();
    let n1 = devices.iter().find(|device| device["dev"] == "n1").expect("n1");
    assert_eq!(n1["drops"], serde_json::json!([{ "reason": "driver", "packets": 0 }]), "{n1:#}");
    let text = trieline(&bed.node, "node status").ok();
    assert!(text.contains("as the drivers count") && text.contains("cannot know: "), "{text}");
    let scrape = Server::start(&bed.node, &[]).scrape(TEXT);
    assert_eq!(scrape.value("trieline_drops_after_redirect_known"), 0.0);
}
