//! `trieline route get --packet`: a packet through the program that the devices have, over the tables that they have.

use super::answer::answers;
use super::ingress::Ingress;
use super::packets::{Packet, Packets};
use super::text::text;
use crate::capture::device;
use crate::client::{Names, open};
use crate::dissect;
use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use trieline_router::api::instance::Instance;
use trieline_router::{Kind, Port};
use trieline_terminal::{List, Output};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const DOT1Q: [u8; 2] = [0x81, 0x00];
/// Those by which hexadecimal digits are known for a frame: also ARP and 802.1ad.
const ETHERTYPES: [[u8; 2]; 5] = [IPV4, IPV6, DOT1Q, [0x08, 0x06], [0x88, 0xa8]];
/// A port that packets can come in by: device, VLAN, settings.
pub(super) type Entry = (u32, Option<u16>, Port);

/// Runs each packet of `packet`: hexadecimal digits or a file. Each runs as if it came in by `iif`, by the device that the file names,
/// or by the first port.
pub fn run(
    packet: &str,
    iif: Option<&str>,
    instance: &Instance,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let mut packets = Packets::open(packet)?;
    let pinned = open(instance)?;
    let ports = pinned.ports()?;
    let test_run = pinned.test_run()?;
    let mut names = Names::default();
    let mut list = List::new(output, output.stdout());
    let mut all = true;
    while let Some(packet) = packets.next()? {
        let entry = entry(&ports, iif, packet.iif.as_deref(), &mut names)?;
        let at = packets.place();
        let frame = framed(packet, entry).with_context(|| at.clone())?;
        let outcome = test_run.run(entry.0, &frame).context(at)?;
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
    let tried = list.finish()?;
    packets.end(tried)?;
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
pub(super) fn framed(packet: Packet, entry: &Entry) -> anyhow::Result<Vec<u8>> {
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
