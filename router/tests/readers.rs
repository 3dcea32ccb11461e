//! Independent readers: tshark reads the packets that the program sends, and scapy takes them apart and puts them together again.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::cases::*;
use common::rfc::*;
use common::srv6::*;
use common::*;
use trieline_router::PortFlags;
use trieline_testbed::needs_root;

/// Debian's own: its packages of scapy are for this one.
const PYTHON: &str = "/usr/bin/python3";

/// Frames that came in broken where Linux, and so the program, does not look: they are as broken when they leave.
const BROKEN: [&str; 1] = ["the inner checksum is not looked at"];

/// The frames as a capture file (pcap, Ethernet, microseconds), removed at the end.
struct Capture(PathBuf);

impl Capture {
    fn of<'a>(frames: impl Iterator<Item = &'a [u8]>) -> Self {
        let path = std::env::temp_dir().join(format!("trieline-readers-{}.pcap", std::process::id()));
        let mut file = vec![];
        for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 1 << 18, 1] {
            file.extend(word.to_le_bytes());
        }
        for frame in frames {
            for word in [0, 0, frame.len() as u32, frame.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
        fs::write(&path, file).unwrap();
        Self(path)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

/// The lines that a reader writes, one a frame. Its complaints are shown when it fails.
fn lines(command: &mut Command, input: &str) -> Vec<String> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The errors that tshark finds in each frame, by its own dissectors and checksums; empty if none.
fn tshark(capture: &Path) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    command.args(["--disable-protocol", "dns"]); // the test's payload is none
    command.args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=a"]);
    for field in ["_ws.malformed", "_ws.expert.severity", "_ws.expert.message", "frame.protocols"] {
        command.args(["-e", field]);
    }
    let error = 0x0080_0000u32;
    let judge = |line: String| {
        let mut fields = line.split('|');
        let mut next = || fields.next().unwrap_or_default();
        let (malformed, severities, messages, protocols) = (next(), next(), next(), next());
        let wrong = severities.split(',').any(|text| text.parse().is_ok_and(|level: u32| level >= error));
        let known = protocols.starts_with("eth:ethertype:");
        if malformed.is_empty() && !wrong && known {
            String::new()
        } else {
            format!("{messages} ({protocols})")
        }
    };
    lines(&mut command, "").into_iter().map(judge).collect()
}

/// Takes every frame apart, has scapy compute all lengths, counts and checksums, and compares.
const REBUILD: &str = r#"
import sys
from scapy.all import Ether, Raw, rdpcap
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
COMPUTED = {IP: ["len", "chksum", "ihl"], UDP: ["len", "chksum"], IPv6: ["plen"],
            IPv6ExtHdrSegmentRouting: ["len", "lastentry"]}
for packet in rdpcap(sys.argv[1]):
    frame, layer, names = bytes(packet), packet, []
    while layer.payload:
        names.append(layer.name)
        for field in COMPUTED.get(type(layer), []):
            layer.delfieldval(field)
        layer = layer.payload
    again = bytes(packet)
    padding = len(frame) - len(again)
    where = [n for n, (a, b) in enumerate(zip(frame, again)) if a != b]
    print("" if not where and padding == 0 else f"{names}: bytes {where} differ, {padding} more")
"#;

#[test]
fn tshark_and_scapy_read_forwarded_frames() {
    needs_root!();
    let plain = routes(LO).into_iter().map(|(prefix, action)| (prefix.to_owned(), action));
    let routes: Vec<_> =
        plain.chain(srv6_routes(&adjacency(LO), [0, 1])).chain(rfc_routes(&adjacency(LO))).collect();
    let routes: Vec<_> = routes.iter().map(|(prefix, action)| (prefix.as_str(), action.clone())).collect();
    let mut bench = Bench::new(map_types().pop().unwrap(), &routes);
    bench.dataplane.set_port(LO, None, port(PortFlags { ecn: true, ..ALL })).unwrap();
    let run = |case: Case| (case.description, bench.run(&case.input));
    let sent: Vec<_> = cases()
        .into_iter()
        .chain(srv6_cases())
        .chain(rfc_headend_cases())
        .chain(rfc_decap_cases())
        .map(run)
        .filter(|(_, out)| out.action == XDP_REDIRECT)
        .collect();
    // Two that they must find fault with: an SRH whose last entry is beyond its length, and a wrong checksum.
    let mut last_entry = encapsulation().remove(0).output.unwrap();
    last_entry[14 + 40 + 4] += 1;
    let mut checksum = cases().into_iter().find(|case| case.verdict == "ipv4").unwrap().output.unwrap();
    checksum[14 + 10] ^= 1;
    let bad = [last_entry, checksum];
    let frames = sent.iter().map(|(_, out)| &out.output).chain(&bad);
    let capture = Capture::of(frames.map(|frame| &frame[..]));
    let by_tshark = tshark(&capture.0);
    let by_scapy = lines(Command::new(PYTHON).args(["-c", REBUILD]).arg(&capture.0), "");
    assert_eq!((by_tshark.len(), by_scapy.len()), (sent.len() + bad.len(), sent.len() + bad.len()));
    for at in sent.len()..by_scapy.len() {
        assert!(!by_scapy[at].is_empty(), "scapy finds no fault with {:02x?}", bad[at - sent.len()]);
    }
    assert!(!by_tshark[by_tshark.len() - 1].is_empty(), "tshark finds no fault with a wrong checksum");
    let mut wrong = BTreeMap::new();
    for (((description, out), tshark), scapy) in sent.iter().zip(&by_tshark).zip(&by_scapy) {
        let read = tshark.is_empty() && scapy.is_empty();
        if !read && !BROKEN.contains(description) {
            wrong.insert(*description, format!("tshark: {tshark}; scapy: {scapy}; {:02x?}", out.output));
        }
    }
    println!("{} frames read by tshark and scapy", sent.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(sent.len() >= 400);
}
