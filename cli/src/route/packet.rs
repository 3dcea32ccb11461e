//! `trieline route get --packet`: a packet through the program that the devices have, over the tables that they have.

use super::answer::answers;
use super::ingress::Ingress;
use super::text::text;
use crate::capture::device;
use crate::client::{Names, count, open};
use crate::dissect;
use anyhow::{Context, anyhow, bail};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::process::ExitCode;
use trieline_router::api::instance::Instance;
use trieline_router::{Kind, Port};
use trieline_terminal::{List, Output};

/// First bytes of files: pcap-ng; the same of pcap in its four forms (byte order, resolution).
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0xc3, 0xd4], [0x4d, 0x3c, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d]];

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const DOT1Q: [u8; 2] = [0x81, 0x00];
/// Those by which hexadecimal digits are known for a frame: also ARP and 802.1ad.
const ETHERTYPES: [[u8; 2]; 5] = [IPV4, IPV6, DOT1Q, [0x08, 0x06], [0x88, 0xa8]];
/// `epb_flags`.
const DIRECTION: u32 = 3;
const OUTBOUND: u32 = 2;

/// A port that packets can come in by: device, VLAN, settings.
type Entry = (u32, Option<u16>, Port);

/// A packet to be tried.
struct Packet {
    bytes: Vec<u8>,
    /// It begins with its IP header; `None`: not said.
    ip: Option<bool>,
    /// Name of the device that it came in by.
    iif: Option<String>,
}

/// Runs each packet of `packet`, hexadecimal digits or a file, as if it came in by `iif`, by the device that the file names, or by the
/// first port.
pub fn run(
    packet: &str,
    iif: Option<&str>,
    instance: &Instance,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let packets = read(packet)?;
    let pinned = open(instance)?;
    let ports = pinned.ports()?;
    let test_run = pinned.test_run()?;
    let mut names = Names::default();
    let mut list = List::new(output, output.stdout());
    let mut all = true;
    for packet in packets {
        let entry = entry(&ports, iif, packet.iif.as_deref(), &mut names)?;
        let frame = framed(packet, entry)?;
        let outcome = test_run.run(entry.0, &frame)?;
        let layers = dissect::frame(&frame);
        let (mut reported, mut way) = (Map::new(), None);
        reported.insert("iif".into(), names.get(entry.0).into());
        if let Some(to) = dissect::destination(&layers) {
            // Frames with a tag are another port's.
            let tagged = ports.iter().find(|port| (port.0, port.1) == (entry.0, tag(&frame)));
            let ingress = Ingress::of_port(dissect::source(&layers), &tagged.unwrap_or(entry).2);
            let route = answers(&[to], &ingress, &pinned, instance, &mut names)?.into_iter().next();
            way = route.as_ref().map(text);
            reported.insert("route".into(), serde_json::to_value(route)?);
        }
        reported.insert("in".into(), json!({ "packet": hex(&frame), "layers": layers }));
        reported.insert("action".into(), outcome.verdict.kind.to_string().into());
        reported.insert("verdict".into(), outcome.verdict.name.into());
        if let Some(first) = outcome.first {
            reported.insert("first_verdict".into(), first.name.into());
        }
        if let Some(name) = outcome.filter.and_then(|counter| pinned.filter_name(counter)) {
            reported.insert("filter".into(), name.into());
        }
        if outcome.verdict.kind == Kind::Forward {
            let out = outcome.out.map(|ifindex| names.get(ifindex));
            let layers = dissect::frame(&outcome.frame);
            reported.insert("oif".into(), out.into());
            reported.insert("out".into(), json!({ "packet": hex(&outcome.frame), "layers": layers }));
        }
        all &= outcome.verdict.kind == Kind::Forward;
        list.push(&Value::Object(reported), |reported| lines(reported, way.as_deref()))?;
    }
    list.finish()?;
    // "The answer is no": XDP does not forward one of them.
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The verdict on a packet, for people.
fn lines(reported: &Value, route: Option<&str>) -> String {
    let word = |key: &str| reported.get(key).and_then(Value::as_str).unwrap_or_default();
    let layers =
        |key: &str| reported[key]["layers"].as_array().map(|list| dissect::text(list)).unwrap_or_default();
    let mut lines = format!("in {}\n{}", word("iif"), layers("in"));
    if let Some(route) = route {
        lines += &format!("route {route}\n");
    }
    lines += &format!("{} {}", word("action"), word("verdict"));
    if reported.get("first_verdict").is_some() {
        lines += &format!(" for {}", word("first_verdict"));
    }
    if reported.get("filter").is_some() {
        lines += &format!(" by filter {}", word("filter"));
    }
    if reported.get("out").is_some() {
        lines += &format!("\nout {}\n{}", word("oif"), layers("out").trim_end());
    }
    lines
}

/// The port named `iif`, else the one that the packet came in by, else the first.
fn entry<'p>(
    ports: &'p [Entry],
    iif: Option<&str>,
    came: Option<&str>,
    names: &mut Names,
) -> anyhow::Result<&'p Entry> {
    let wanted = iif.map(device).transpose()?;
    let found = match wanted {
        Some(wanted) => ports.iter().find(|(_, _, port)| port.ifindex == wanted),
        None => {
            let mut plain =
                ports.iter().filter(|(ifindex, vlan, port)| port.ifindex == *ifindex && vlan.is_none());
            let first = plain.clone().next();
            plain.find(|(ifindex, ..)| came == Some(names.get(*ifindex).as_str())).or(first)
        }
    };
    found.ok_or_else(|| match iif {
        Some(name) => {
            anyhow!("invalid device {name}: expected one that trieline takes packets from (`trieline node status`)")
        }
        None => anyhow!("trieline takes packets from no device"),
    })
}

/// The EtherType of a frame, or its TPID.
fn kind(frame: &[u8]) -> Option<[u8; 2]> {
    frame.get(12..14).and_then(|kind| kind.try_into().ok())
}

/// The VLAN of a frame.
fn tag(frame: &[u8]) -> Option<u16> {
    let tag = frame.get(14..16).filter(|_| kind(frame) == Some(DOT1Q))?;
    Some(u16::from_be_bytes([tag[0], tag[1]]) & 0xfff).filter(|vlan| *vlan != 0)
}

/// The frame to try: a packet that begins with its IP header gets an Ethernet header, to the port, with its tag.
fn framed(packet: Packet, entry: &Entry) -> anyhow::Result<Vec<u8>> {
    let (_, vlan, port) = entry;
    let Packet { bytes, ip, .. } = packet;
    let length = |at: usize| bytes.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    let (ethertype, length): ([u8; 2], _) = match bytes.first().map(|byte| byte >> 4) {
        Some(4) => (IPV4, length(2)),
        Some(6) => (IPV6, length(4).map(|payload| payload + 40)),
        _ => ([0; 2], None),
    };
    let is_whole = length == Some(bytes.len());
    // Not said, it is IP if its length is right, or if it could be nothing else.
    let is_frame = bytes.len() >= ETHERNET && kind(&bytes).is_some_and(|kind| ETHERTYPES.contains(&kind));
    if !ip.unwrap_or(is_whole || (ethertype != [0; 2] && !is_frame)) {
        if bytes.len() < ETHERNET {
            bail!("packet: {} bytes; expected at least {ETHERNET}, an Ethernet header", bytes.len());
        }
        return Ok(bytes);
    }
    if !is_whole {
        let length = length.map_or_else(|| "none".to_owned(), |length| format!("one of {length}"));
        bail!(
            "packet: {} bytes, but its IP header has the length {length}; expected a whole packet",
            bytes.len()
        );
    }
    let mut frame = port.mac.to_vec();
    frame.extend([0x02, 0, 0, 0, 0, 0]);
    if let Some(vlan) = vlan {
        frame.extend(DOT1Q);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(ethertype);
    frame.extend(bytes);
    Ok(frame)
}

/// Hexadecimal digits, or the packets of a pcap or pcap-ng file.
fn read(text: &str) -> anyhow::Result<Vec<Packet>> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits);
    if !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit()) {
        if !digits.len().is_multiple_of(2) {
            bail!("packet: {} hexadecimal digits; expected two a byte", digits.len());
        }
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
        let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>();
        return Ok(vec![Packet { bytes: bytes.context("packet")?, ip: None, iif: None }]);
    }
    let file = File::open(text).with_context(|| format!("{text}: neither hexadecimal digits nor a file"))?;
    let (packets, left) = read_file(file).with_context(|| text.to_owned())?;
    if left > 0 {
        eprintln!("trieline: {text}: {} left out: they left a device", count(left, "packet", "packets"));
    }
    if packets.is_empty() {
        bail!("{text}: no packets that came in; expected at least one");
    }
    Ok(packets)
}

/// Whether packets of a link type begin with their IP header, or with an Ethernet one.
fn begins_with_ip(link: DataLink) -> anyhow::Result<bool> {
    match link {
        DataLink::ETHERNET => Ok(false),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Ok(true),
        other => {
            bail!("link type {other:?}; expected Ethernet or raw IP (of `tcpdump -i DEVICE`, not `-i any`)")
        }
    }
}

/// The packets that came in, and how many others there are.
fn read_file(mut file: File) -> anyhow::Result<(Vec<Packet>, u64)> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes)?;
    let (mut packets, mut left) = (Vec::new(), 0);
    if bytes.starts_with(&PCAPNG) {
        let mut reader = PcapNgReader::new(bytes.as_slice())?;
        let mut interfaces: Vec<(DataLink, Option<String>)> = Vec::new();
        while let Some(block) = reader.next_block() {
            let (id, data, options) = match block? {
                Block::SectionHeader(_) => {
                    interfaces.clear();
                    continue;
                }
                Block::InterfaceDescription(interface) => {
                    let name = interface.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    });
                    interfaces.push((interface.linktype, name));
                    continue;
                }
                Block::EnhancedPacket(packet) => (packet.interface_id, packet.data, packet.options),
                Block::SimplePacket(packet) => (0, packet.data, Vec::new()),
                _ => continue,
            };
            let (link, name) =
                interfaces.get(id as usize).context("invalid packet: expected one of an interface")?;
            let ip = begins_with_ip(*link)?;
            let is_out = |option: &EnhancedPacketOption<'_>| matches!(option, EnhancedPacketOption::Flags(flags) if flags & DIRECTION == OUTBOUND);
            if options.iter().any(is_out) {
                left += 1;
                continue;
            }
            packets.push(Packet { bytes: data.into_owned(), ip: Some(ip), iif: name.clone() });
        }
    } else if PCAP.iter().any(|magic| bytes.starts_with(magic)) {
        let mut reader = PcapReader::new(bytes.as_slice())?;
        let ip = begins_with_ip(reader.header().datalink)?;
        while let Some(packet) = reader.next_packet() {
            packets.push(Packet { bytes: packet?.data.into_owned(), ip: Some(ip), iif: None });
        }
    } else {
        bail!("neither hexadecimal digits nor a pcap or pcap-ng file");
    }
    Ok((packets, left))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
