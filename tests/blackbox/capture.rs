//! `trieline capture`, `route get --packet`, `top`: what XDP does is seen, since tcpdump sees nothing of it.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary_path, run, run_with};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{craft, eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

fn routed_bed() -> Bed {
    let bed = Bed::routed();
    bed.node.ip("route add 10.60.0.0/16 encap seg6 mode encap segs fd50::e dev n1");
    bed.node.ip("route add blackhole 10.51.0.0/16");
    bed
}

/// A capture in the background, until it ends by itself or is dropped.
struct Running(Child);

impl Running {
    fn start(bed: &Bed, args: &str, file: &Path) -> Self {
        let file = file.display().to_string();
        let child = Command::new(binary_path("trieline"))
            .args(["-n", bed.node.name(), "-j", "capture"])
            .args(args.split_whitespace())
            .args(["-w", &file])
            .stderr(Stdio::piped())
            .spawn()
            .expect("trieline starts");
        // The file is there before the capture is on.
        assert!(eventually(5.0, || Path::new(&file).exists()), "no file {file}");
        std::thread::sleep(Duration::from_millis(300));
        Self(child)
    }

    /// Its JSON at the end.
    fn end(self) -> Value {
        let output = self.0.wait_with_output().expect("trieline ends");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{printed}");
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("no JSON ({error}): {printed}"))
    }

    fn interrupt(self) -> Value {
        run(&format!("kill -INT {}", self.0.id())).ok();
        self.end()
    }
}

/// The packets that tcpdump reads in a file: one a line.
fn lines(file: &Path, expression: &str) -> Vec<String> {
    let file = file.display().to_string();
    let mut words = vec!["-nn", "-e", "-t", "-r", &file];
    words.extend(expression.split_whitespace());
    run_with("tcpdump", &words, "").ok().lines().map(str::to_owned).collect()
}

/// Whether a file has these bytes: comments, which tcpdump does not show.
fn holds(file: &Path, text: &str) -> bool {
    let bytes = std::fs::read(file).expect("the file");
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Forwarded packets stand in the file as they came and as they left, dropped ones once; other programs read it.
#[test]
fn a_capture_has_packets_in_and_out() {
    needs_root!();
    let bed = routed_bed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("all.pcapng");
    let capture = Running::start(&bed, "", &file);
    for to in ["10.50.0.1:9", "10.60.0.1:9", "10.51.0.1:9", "[fd50::1]:9"] {
        bed.send(to, "captured", 3);
    }
    let printed = capture.interrupt();
    assert_eq!((&printed["limited"], &printed["lost"]), (&Value::from(0), &Value::from(0)));
    let of = |expression: &str| lines(&file, expression);
    let both = of("dst 10.50.0.1 and udp port 9");
    assert_eq!(both.len(), 6, "{both:#?}");
    assert_eq!(both.iter().filter(|line| line.contains("02:00:00:00:00:10 > 02:00:00:00:00:11")).count(), 3);
    assert_eq!(of("dst 10.51.0.1").len(), 3);
    assert_eq!(of("ip6 dst fd50::e").len(), 3);
    assert_eq!(of("dst fd50::1 and udp port 9").len(), 6);
    for comment in ["forward ipv4 (", "forward h_encaps_ipv4 (", "drop blackhole (", "left out for the rate"]
    {
        assert!(holds(&file, comment), "no comment {comment:?}");
    }
    for name in ["n0", "n1"] {
        assert!(holds(&file, name), "no interface {name}");
    }
    // Ended, it takes nothing, and the next can begin; two at once cannot be.
    let capture = Running::start(&bed, "--sid fd50::e --snap 60", &folder.path().join("sid.pcapng"));
    let file = folder.path().join("second.pcapng");
    let second = format!("capture -w {}", file.display());
    trieline(&bed.node, &second)
        .fails(1, &["another capture runs", &format!("process {}", capture.0.id()), "one at a time"]);
    bed.send("[fd50::e]:9", "to the segment", 4);
    bed.send("[fd50::1]:9", "elsewhere", 4);
    capture.interrupt();
    let file = folder.path().join("sid.pcapng");
    assert_eq!(lines(&file, "").len(), 8, "{:#?}", lines(&file, ""));
}

/// The rate holds, the count ends it, and what was left out is said and written.
#[test]
fn a_capture_counts_left_out_packets() {
    needs_root!();
    let bed = routed_bed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rate.pcapng");
    let capture = Running::start(&bed, "--dev n0 --rate 1/s", &file);
    bed.send("10.50.0.1:9", "too many", 200);
    let printed = capture.interrupt();
    let (packets, limited) =
        (printed["packets"].as_u64().unwrap_or(0), printed["limited"].as_u64().unwrap_or(0));
    assert!(packets >= 1 && limited >= 150 && packets + limited >= 200, "{printed}");
    assert!(holds(&file, &format!("{limited} packets left out for the rate")));
    let file = folder.path().join("count.pcapng");
    // By destination: neighbour discovery of the hosts may come at any time, and would count.
    let capture = Running::start(&bed, "--sid fd50::e --count 5", &file);
    bed.send("[fd50::e]:9", "enough", 50);
    assert_eq!(capture.end()["packets"], 5);
    assert_eq!(lines(&file, "udp port 9").len(), 10);
    for (args, expected_text) in [
        ("--rate 0 -w x", "rate"),
        ("--snap 13 -w x", "snap"),
        ("--sid 10.0.0.1 -w x", "sid"),
        ("", "--write"),
    ] {
        trieline(&bed.node, &format!("capture {args}")).fails(2, &[expected_text]);
    }
    trieline(&bed.node, "capture --dev nothing -w -").fails(1, &["nothing: no such device"]);
    trieline(&bed.node, "capture --dev lo -w -")
        .fails(1, &["invalid device lo: trieline is not attached to it"]);
}

/// A packet through the program, from hexadecimal digits and from a file, with every header that leaves.
#[test]
fn a_packet_is_tried() {
    needs_root!();
    let bed = routed_bed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let hex = |packet: &[u8]| packet.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let packet = |to: &str| craft::ipv4("10.0.0.2", to, b"tried", |_| {});
    let before = crate::status::forwarded(&bed.node);
    let get = |args: &str| trieline(&bed.node, &format!("-j route get --packet {args}"));
    let reported = get(&hex(&packet("10.60.0.1"))).json()[0].clone();
    assert_eq!(
        (&reported["verdict"], &reported["action"]),
        (&"h_encaps_ipv4".into(), &"forward".into()),
        "{reported}"
    );
    assert_eq!(
        (&reported["iif"], &reported["oif"], &reported["route"]["encap"]),
        (&"n0".into(), &"n1".into(), &"seg6".into())
    );
    let names: Vec<_> =
        reported["out"]["layers"].as_array().unwrap().iter().map(|layer| &layer["layer"]).collect();
    assert_eq!(names, ["Ethernet", "IPv6", "SRH", "IPv4", "UDP", "payload"]);
    assert_eq!(reported["out"]["layers"][2]["segs"][0], "fd50::e");
    assert_eq!(reported["out"]["layers"][0]["dst"], "02:00:00:00:00:11");
    let answer = get(&hex(&packet("10.51.0.1")));
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stdout.contains("\"blackhole\""), "{answer:?}");
    let text =
        trieline(&bed.node, &format!("route get --packet {} --iif n2", hex(&packet("10.50.0.1")))).ok();
    for part in [
        "in n2",
        "route 10.50.0.1 in 10.50.0.0/16",
        "forward ipv4\nout n1",
        "IPv4 src 10.0.0.2 dst 10.50.0.1 ttl 63",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(crate::status::forwarded(&bed.node), before, "a trial was counted");
    // From a file, as `capture` wrote it.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("one.pcapng");
    let capture = Running::start(&bed, "--dev n0", &file);
    bed.send("10.50.0.1:9", "captured and tried", 3);
    capture.interrupt();
    let answers: Value = serde_json::from_str(&get(&file.display().to_string()).stdout).expect("JSON");
    // Neighbour discovery of the hosts may be among them.
    let of_ipv4 = |answers: &Value, iif: &str| {
        let answers = answers.as_array().expect("a list");
        answers.iter().filter(|answer| answer["verdict"] == "ipv4" && answer["iif"] == iif).count()
    };
    assert_eq!(of_ipv4(&answers, "n0"), 3, "what left the node is not tried: {answers}");
    // Each packet comes in by its own device.
    let file = folder.path().join("side.pcapng");
    let capture = Running::start(&bed, "--dev n2", &file);
    bed.side.run("ping -c 1 -W 2 10.50.0.1");
    capture.interrupt();
    let answers: Value = serde_json::from_str(&get(&file.display().to_string()).stdout).expect("JSON");
    assert_eq!(of_ipv4(&answers, "n2"), 1, "{answers}");
    // Raw IP, as of a tunnel, gets an Ethernet header; `tcpdump -i any` writes records that are not frames.
    let bytes = packet("10.50.0.1");
    let pcap = |link: u32| {
        let length = bytes.len() as u32;
        let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link, 1, 0, length, length];
        let mut file: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        file.extend(&bytes);
        let name = folder.path().join(format!("{link}.pcap"));
        std::fs::write(&name, file).expect("a file");
        name.display().to_string()
    };
    assert_eq!(get(&pcap(101)).json()[0]["verdict"], "ipv4");
    get(&pcap(276)).fails(1, &["LINUX_SLL2", "expected Ethernet or raw IP"]);
    assert_eq!(get(&format!("0x{}", hex(&bytes))).json()[0]["verdict"], "ipv4");
    get(&format!("{} --from 10.0.0.2", hex(&bytes))).fails(2, &["--from", "--packet"]);
    get(&hex(&bytes[..16])).fails(1, &["16 bytes", "IP header", "whole packet"]);
    get("45").fails(1, &["1 bytes", "whole packet"]);
    get("0200").fails(1, &["2 bytes", "at least 14"]);
    // the example of docs/operation.md
    bed.node.ip("route add 192.0.2.0/24 via 10.1.0.2");
    assert!(eventually(5.0, || trieline(&bed.node, "route get 192.0.2.1").stdout.contains("[forward")));
    assert_eq!(get("4500001c000000004011aece0a000002c00002010009000900080000").json()[0]["verdict"], "ipv4");
    get("45000").fails(1, &["5 hexadecimal digits", "two a byte"]);
    get("/etc/hostname").fails(1, &["/etc/hostname", "pcap"]);
    get(&format!("{} --iif lo", hex(&packet("10.50.0.1")))).fails(1, &["lo", "expected one that trieline"]);
}

/// Rates of one interval.
#[test]
fn top_shows_rates() {
    needs_root!();
    let bed = routed_bed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let stream = trieline_testbed::packets::UdpStream::start(
        &bed.generator,
        "10.50.0.1:9".parse().expect("an address"),
        1000,
    );
    let reported = trieline(&bed.node, "-j top --once --interval 0.5").json();
    let text = trieline(&bed.node, "top --once --interval 0.5").ok();
    stream.stop();
    let n0 = reported["devices"].as_array().unwrap().iter().find(|device| device["dev"] == "n0").unwrap();
    assert!(n0["forward"].as_f64().unwrap() > 300.0, "{reported}");
    assert_eq!(reported["verdicts"][0]["name"], "ipv4", "{reported}");
    assert!(text.contains("forward ipv4") && text.contains("n0"), "{text}");
}
