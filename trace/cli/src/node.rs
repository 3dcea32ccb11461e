//! `trieline trace node`: when messages come to a trieline node and leave it, as its XDP sees them, for `trieline trace join`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use serde_json::json;
use trieline_router::api::instance::Instance;
use trieline_router::{CAPTURE_ALL, Capture, CaptureOptions, Captured, SNAP_MAX};
use trieline_trace::{By, Event, Flags, IdAt, Kind, Point, Record, Seen, StampAt, Transport};

use crate::records::RecordWriter;
use trieline_router::api::client::{claim_capture, open};
use trieline_terminal::{Output, interrupt_flag};

/// A few tens of thousands of packets.
const RING: u32 = 16 << 20;
/// Between the readings.
const WAIT: Duration = Duration::from_millis(100);
/// Headers before a message: a VLAN tag, IPv6, a segment routing header of eight segments, IPv6, UDP.
const HEADERS: u32 = 18 + 40 + 8 + 8 * 16 + 40 + 8;

/// Note messages over UDP in this node's XDP
///
/// It notes when they come and when XDP sends them on, for `trieline trace join`.
#[derive(Args, Debug)]
pub struct NodeArgs {
    /// Note messages to or from this port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Read the messages' id at this place
    #[arg(long, value_name = "OFFSET:BYTES", required_unless_present = "stamp")]
    id: Option<IdAt>,
    /// Read the messages' stamp at this place
    #[arg(long, value_name = "OFFSET[:HEX]", conflicts_with = "id")]
    stamp: Option<StampAt>,
    /// Write this file
    #[arg(long, value_name = "FILE")]
    records: PathBuf,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = crate::args::seconds)]
    duration: Option<Duration>,
}

/// Runs `trieline trace node`.
pub fn run(args: &NodeArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let stamped = args.stamp.map(|at| IdAt { received: at.offset, sent: at.offset, bytes: 8 });
    let Some(id) = args.id.or(stamped) else { bail!("expected --id or --stamp") };
    let snap = HEADERS + id.received.max(id.sent) + u32::from(id.bytes);
    if snap > SNAP_MAX {
        bail!(
            "id at offset {}: expected one in the first {SNAP_MAX} bytes of a frame",
            id.received.max(id.sent)
        );
    }
    let instance = Instance::current()?;
    open(&instance)?;
    let _held = claim_capture(&instance)?;
    let interrupt = interrupt_flag()?;
    let mut records = RecordWriter::create(&args.records)?;
    let options = CaptureOptions { ifindex: None, sid: None, snap, rate: None, ring_bytes: RING };
    let mut capture = Capture::start(&instance.pins(), CAPTURE_ALL, &options)?;
    records.begin(By::Id, true)?;
    let started = Instant::now();
    let (mut arrived, mut forwarded) = (0u64, 0u64);
    loop {
        let is_over = interrupt.load(Ordering::Relaxed)
            || args.duration.is_some_and(|duration| started.elapsed() >= duration);
        let packets = if is_over {
            capture.stop();
            capture.rest()?
        } else {
            capture.poll(WAIT)?
        };
        for packet in &packets {
            let Some(record) = record(packet, args.port, id) else { continue };
            *if record.point == Point::Arrived { &mut arrived } else { &mut forwarded } += 1;
            records.take(&Event::Passed(record));
        }
        if is_over {
            break;
        }
    }
    let lost = capture.counts().lost;
    records.finish(Seen { lost, ..Seen::default() })?;
    if output.json {
        output.document(&json!({ "arrived": arrived, "forwarded": forwarded, "lost": lost }))?;
    } else {
        output.text(&format!("{arrived} arrived, {forwarded} forwarded by XDP; {lost} records lost\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A message in a packet; `None`: the packet is not of the port, or is not sent on.
fn record(packet: &Captured, port: u16, id: IdAt) -> Option<Record> {
    let (from, to, payload) = datagram(&packet.frame)?;
    if from != port && to != port {
        return None;
    }
    let is_towards = to == port;
    let offset = if is_towards { id.received } else { id.sent } as usize;
    let mut bytes = [0; 8];
    let found = payload.get(offset..offset + usize::from(id.bytes));
    found.iter().for_each(|found| bytes[..found.len()].copy_from_slice(found));
    Some(Record {
        time_ns: packet.time,
        socket: 0,
        id: found.map(|_| u64::from_le_bytes(bytes)),
        thread: 0,
        process: 0,
        bytes: payload.len() as u32,
        point: if packet.verdict.is_some() { Point::Forwarded } else { Point::Arrived },
        transport: Transport::Udp,
        kind: Kind::Message,
        position: 0,
        flags: Flags(0).of_client(is_towards),
    })
}

/// Ports and payload of the UDP datagram in a frame, whatever it is wrapped into.
fn datagram(frame: &[u8]) -> Option<(u16, u16, &[u8])> {
    const VLAN: [u8; 2] = [0x81, 0x00];
    const IPV4: u8 = 4;
    const UDP: u8 = 17;
    const IPV6: u8 = 41;
    const ROUTING: u8 = 43;
    let mut rest = frame.get(12..)?;
    if rest.starts_with(&VLAN) {
        rest = rest.get(4..)?;
    }
    let mut protocol = match rest.first_chunk()? {
        [0x08, 0x00] => IPV4,
        [0x86, 0xdd] => IPV6,
        _ => return None,
    };
    rest = &rest[2..];
    loop {
        let bytes;
        (protocol, bytes) = match protocol {
            // A later fragment has no header of UDP.
            IPV4 if rest.get(6)? & 0x1f | rest.get(7)? == 0 => {
                (*rest.get(9)?, usize::from(rest.first()? & 15) * 4)
            }
            IPV6 => (*rest.get(6)?, 40),
            ROUTING => (*rest.first()?, usize::from(*rest.get(1)?) * 8 + 8),
            UDP => {
                let port = |at: usize| Some(u16::from_be_bytes(*rest.get(at..)?.first_chunk()?));
                return Some((port(0)?, port(2)?, rest.get(8..)?));
            }
            _ => return None,
        };
        rest = rest.get(bytes..)?;
    }
}
