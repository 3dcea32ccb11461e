//! Messages as they leave, as pcap-ng: what the tracer holds of each, and its times as the comment.
//!
//! The tracer sees messages, not frames: so a packet is Wireshark's exported PDU (`LINKTYPE_WIRESHARK_UPPER_PDU`), the bytes that a
//! process sent without any header of a network, and nothing is made up. Where bytes are not captured, the packet only holds the message's
//! length.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use trieline_node::pcapng::{DataLink, Direction, Packet, Section, Statistics};
use trieline_trace::{IdAt, Message, Point, Record, Transport};

use super::files::Format;
use super::outputs::About;
use super::threads::Threads;

/// Tags of an exported PDU (Wireshark, epan/exported_pdu.h), each with its length and the value, big-endian: the dissector `data`, and
/// the end of the tags.
const TAGS: [u8; 12] = [0, 12, 0, 4, b'd', b'a', b't', b'a', 0, 0, 0, 0];
/// Bytes kept of a message, at most.
const SNAP: u32 = 1 << 16;

/// A section for each file; an interface for each transport and point C.
pub struct PcapNg {
    threads: Threads,
    id: Option<IdAt>,
    cost: String,
    section: Option<Section<Vec<u8>>>,
    /// Their numbers in the file and the packets of each.
    interfaces: BTreeMap<(Transport, &'static str), (u32, u64)>,
}

impl PcapNg {
    /// Nothing is written yet.
    pub fn new(about: &About) -> PcapNg {
        PcapNg {
            threads: Threads::default(),
            id: about.id,
            cost: about.cost_text(),
            section: None,
            interfaces: BTreeMap::new(),
        }
    }

    /// The first bytes of what was sent, as far as they are known: those captured, or those of an id that it begins with.
    fn known(&self, sent: &Record, captured: &[u8]) -> Vec<u8> {
        let most = sent.bytes as usize;
        match (self.id, sent.id) {
            (Some(IdAt { sent: 0, bytes, .. }), Some(id)) => {
                id.to_le_bytes()[..most.min(bytes.into())].to_vec()
            }
            _ => captured[..most.min(captured.len())].to_vec(),
        }
    }

    /// Short: Wireshark shows 240 letters.
    fn comment(&mut self, message: &Message) -> Result<String> {
        let Message { received, sent, reads, .. } = *message;
        let mut text = format!("T2 {} ns", message.inside_ns());
        for (point, record) in [("B", received), ("C", sent)] {
            write!(
                text,
                "; {point} {}.{:09} {} {}, {} bytes",
                record.time_ns / 1_000_000_000,
                record.time_ns % 1_000_000_000,
                record.transport,
                record.point.name(),
                record.bytes,
            )?;
            if record.point == Point::Received || sent.thread != received.thread {
                let known = self.threads.get(&record);
                write!(
                    text,
                    ", thread {} {} of process {} {}",
                    record.thread, known.name, known.process, known.process_name
                )?;
            }
        }
        if reads > 1 {
            write!(text, "; {reads} reads")?;
        }
        if let Some(id) = received.id {
            write!(text, "; id {id}")?;
        }
        Ok(text)
    }

    /// Moves what was written to the file's buffer.
    fn drain(&mut self, out: &mut Vec<u8>) {
        if let Some(section) = &mut self.section {
            out.append(section.get_mut());
        }
    }
}

impl Format for PcapNg {
    fn begin(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let comment = format!(
            "Messages of processes at point C, not frames: no header of a network was captured; B and C are CLOCK_MONOTONIC. \
             {}",
            self.cost
        );
        self.section = Some(Section::begin(Vec::new(), Some(&comment))?);
        self.interfaces.clear();
        self.drain(out);
        Ok(())
    }

    fn message(&mut self, message: &Message, captured: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let comment = self.comment(message)?;
        let sent = &message.sent;
        let mut bytes = TAGS.to_vec();
        bytes.extend(self.known(sent, captured));
        let Some(section) = &mut self.section else { return Ok(()) };
        let kind = (sent.transport, sent.point.name());
        let (interface, packets) = match self.interfaces.get_mut(&kind) {
            Some(known) => known,
            None => {
                let number = section.interface(
                    &format!("{} {}", kind.0, kind.1),
                    DataLink::WIRESHARK_UPPER_PDU,
                    SNAP,
                )?;
                self.interfaces.entry(kind).or_insert((number, 0))
            }
        };
        *packets += 1;
        section.packet(&Packet {
            interface: *interface,
            time_ns: sent.time_ns,
            length: sent.bytes + TAGS.len() as u32,
            bytes: &bytes,
            direction: Direction::Outbound,
            comment: Some(&comment),
        })?;
        self.drain(out);
        Ok(())
    }

    fn ended(&mut self, thread: u32) {
        self.threads.forget(thread);
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if let Some(section) = &mut self.section {
            for (interface, written) in self.interfaces.values().copied() {
                let comment = "joined messages; the trace's report counts the lost ones";
                section.statistics(interface, &Statistics { written, comment, ..Statistics::default() })?;
            }
        }
        self.drain(out);
        Ok(())
    }
}
