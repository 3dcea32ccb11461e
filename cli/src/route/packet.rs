//! `trieline route get --packet`: a packet through the program that the devices have, over the tables that they have.

use super::{Way, answers, text};
use crate::capture::device;
use crate::dissect;
use crate::look::{Names, open};
use crate::output::{List, Output};
use anyhow::{Context, anyhow, bail};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::process::ExitCode;
use trieline_dataplane::{Kind, Port, View};
use trieline_node::instance::Instance;

/// First bytes of files: pcap-ng; the same of pcap in its four forms (byte order, resolution).
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0xc3, 0xd4], [0x4d, 0x3c, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d]];

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A port that packets can come in by.
struct Entry {
    ifindex: u32,
    vlan: Option<u16>,
    port: Port,
}

/// Runs each packet of `packet`, hexadecimal digits or a file, as if it came in by `iif` (the first port when none is said).
pub fn run(
    packet: &str,
    iif: Option<&str>,
    instance: &Instance,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let packets = read(packet)?;
    let view = open(instance)?;
    let entry = entry(&view, iif)?;
    let trial = view.trial()?;
    let mut names = Names::default();
    let mut list = List::new(output, output.stdout());
    let mut all = true;
    for packet in packets {
        let frame = framed(packet, &entry);
        if frame.len() < ETHERNET {
            bail!("packet: {} bytes; expected at least {ETHERNET}, an Ethernet header", frame.len());
        }
        let outcome = trial.run(entry.ifindex, &frame)?;
        let layers = dissect::frame(&frame);
        let mut told = Map::new();
        told.insert("iif".into(), names.get(entry.ifindex).into());
        if let Some(to) = dissect::destination(&layers) {
            let way = Way::of_port(dissect::source(&layers), &entry.port);
            let route = answers(&[to], &way, &view, instance, &mut names)?.into_iter().next();
            told.insert("route".into(), route.map(Value::Object).unwrap_or_default());
        }
        told.insert("in".into(), json!({ "packet": hex(&frame), "layers": layers }));
        told.insert("action".into(), outcome.verdict.kind.to_string().into());
        told.insert("verdict".into(), outcome.verdict.name.into());
        if outcome.verdict.kind == Kind::Forward {
            let out = outcome.out.map(|ifindex| names.get(ifindex));
            let layers = dissect::frame(&outcome.frame);
            told.insert("oif".into(), out.into());
            told.insert("out".into(), json!({ "packet": hex(&outcome.frame), "layers": layers }));
        }
        all &= outcome.verdict.kind == Kind::Forward;
        list.push(&Value::Object(told), lines)?;
    }
    list.finish()?;
    // "The answer is no": XDP does not forward one of them.
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What became of a packet, for people.
fn lines(told: &Value) -> String {
    let word = |key: &str| told.get(key).and_then(Value::as_str).unwrap_or_default();
    let layers =
        |key: &str| told[key]["layers"].as_array().map(|list| dissect::text(list)).unwrap_or_default();
    let mut lines = format!("in {}\n{}", word("iif"), layers("in"));
    if let Some(route) = told.get("route") {
        lines += &format!("route {}\n", text(route));
    }
    lines += &format!("{} {}", word("action"), word("verdict"));
    if told.get("out").is_some() {
        lines += &format!("\nout {}\n{}", word("oif"), layers("out").trim_end());
    }
    lines
}

/// The port named `iif`, or the first.
fn entry(view: &View, iif: Option<&str>) -> anyhow::Result<Entry> {
    let wanted = iif.map(device).transpose()?;
    let ports = view.ports()?;
    let found = ports.into_iter().find(|(ifindex, vlan, port)| match wanted {
        Some(wanted) => port.ifindex == wanted,
        None => port.ifindex == *ifindex && vlan.is_none(),
    });
    let (ifindex, vlan, port) = found.ok_or_else(|| match iif {
        Some(name) => {
            anyhow!("{name} is no device that trieline takes packets from (`trieline node status`)")
        }
        None => anyhow!("trieline takes packets from no device"),
    })?;
    Ok(Entry { ifindex, vlan, port })
}

/// A packet that begins with its IP header gets an Ethernet header: to the port, with its tag.
fn framed(packet: Vec<u8>, entry: &Entry) -> Vec<u8> {
    let length = |at: usize| packet.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    let kind: [u8; 2] = match packet.first().map(|byte| byte >> 4) {
        Some(4) if length(2) == Some(packet.len()) => [0x08, 0x00],
        Some(6) if packet.len() >= 40 && length(4) == Some(packet.len() - 40) => [0x86, 0xdd],
        _ => return packet,
    };
    let mut frame = entry.port.mac.to_vec();
    frame.extend([0x02, 0, 0, 0, 0, 0]);
    if let Some(vlan) = entry.vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(kind);
    frame.extend(packet);
    frame
}

/// Hexadecimal digits, or the packets of a pcap or pcap-ng file.
fn read(text: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    if !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit()) {
        if !digits.len().is_multiple_of(2) {
            bail!("packet: {} hexadecimal digits; expected two a byte", digits.len());
        }
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
        let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>();
        return Ok(vec![bytes.context("packet")?]);
    }
    let packets = read_file(text).with_context(|| text.to_owned())?;
    if packets.is_empty() {
        bail!("{text}: no packets; expected at least one");
    }
    Ok(packets)
}

fn read_file(path: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let bytes = {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut File::open(path)?, &mut bytes)?;
        bytes
    };
    let mut packets = Vec::new();
    if bytes.starts_with(&PCAPNG) {
        let mut reader = PcapNgReader::new(bytes.as_slice())?;
        while let Some(block) = reader.next_block() {
            match block? {
                Block::EnhancedPacket(packet) => packets.push(packet.data.into_owned()),
                Block::SimplePacket(packet) => packets.push(packet.data.into_owned()),
                _ => {}
            }
        }
    } else if PCAP.iter().any(|magic| bytes.starts_with(magic)) {
        let mut reader = PcapReader::new(bytes.as_slice())?;
        while let Some(packet) = reader.next_packet() {
            packets.push(packet?.data.into_owned());
        }
    } else {
        bail!("neither hexadecimal digits nor a pcap or pcap-ng file");
    }
    Ok(packets)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
