//! Captured packets as pcap-ng (draft-ietf-opsawg-pcapng): one interface a device, the verdict as each packet's comment, and at the end
//! what was left out.

mod section;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use crate::capture::ring::{CaptureCounts, Captured};
pub use pcap_file::DataLink;
pub use section::{Direction, Packet, Section, Statistics, epoch_ns};

/// Packets that wait for what becomes of them; more are written without it.
const WAITING: usize = 4096;

/// Writes captured packets to a file.
///
/// A packet comes in and, often, leaves: two records with one number. The second record's findings are written to both.
pub struct Writer<W: Write> {
    out: Section<W>,
    snap: u32,
    /// Packets of the other direction are left out.
    only: Option<Direction>,
    /// Numbers in the file of devices, and packets written of each.
    interfaces: HashMap<u32, (u32, u64)>,
    waiting: BTreeMap<u64, Captured>,
    written: u64,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("written", &self.written).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Begins a file of packets, each cut to at most `snap` bytes.
    pub fn new(out: W, snap: u32) -> io::Result<Self> {
        Ok(Self {
            out: Section::begin(out, None)?,
            snap,
            only: None,
            interfaces: HashMap::new(),
            waiting: BTreeMap::new(),
            written: 0,
        })
    }

    /// Writes only packets of this direction from now on.
    pub fn only(&mut self, direction: Direction) {
        self.only = Some(direction);
    }

    /// Takes a record. `filter` is the name of the filter that decided. `name` gives a device's name.
    pub fn record(
        &mut self,
        record: Captured,
        filter: Option<&str>,
        name: &mut dyn FnMut(u32) -> String,
    ) -> io::Result<()> {
        let Some(verdict) = record.verdict else {
            while self.waiting.len() >= WAITING {
                let Some((_, oldest)) = self.waiting.pop_first() else { break };
                self.packet(&oldest, None, Direction::Inbound, name)?;
            }
            self.waiting.insert(record.number, record);
            return Ok(());
        };
        let first = record.first.map(|first| format!(", for {}", first.name)).unwrap_or_default();
        let filter = filter.map(|filter| format!(" by {filter}")).unwrap_or_default();
        let comment = format!("{} {}{first}{filter} (packet {})", verdict.kind, verdict.name, record.number);
        if let Some(came) = self.waiting.remove(&record.number) {
            self.packet(&came, Some(&comment), Direction::Inbound, name)?;
        }
        if record.frame.is_empty() {
            return Ok(());
        }
        self.packet(&record, Some(&comment), Direction::Outbound, name)
    }

    /// Hands what was written on to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.get_mut().flush()
    }

    /// A record of a packet as it came in, without what becomes of it.
    pub fn frame(&mut self, record: &Captured, name: &mut dyn FnMut(u32) -> String) -> io::Result<()> {
        self.packet(record, None, Direction::Inbound, name)
    }

    /// Frames written; a packet that is forwarded is two.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn packet(
        &mut self,
        record: &Captured,
        comment: Option<&str>,
        direction: Direction,
        name: &mut dyn FnMut(u32) -> String,
    ) -> io::Result<()> {
        if self.only.is_some_and(|only| only != direction) {
            return Ok(());
        }
        let interface = self.interface(record.ifindex, name)?;
        let bytes = record.frame.as_slice();
        let packet =
            Packet { interface, time_ns: record.time, length: record.bytes, bytes, direction, comment };
        self.out.packet(&packet)?;
        self.written += 1;
        Ok(())
    }

    /// A device's number in the file.
    fn interface(&mut self, ifindex: u32, name: &mut dyn FnMut(u32) -> String) -> io::Result<u32> {
        if let Some((id, packets)) = self.interfaces.get_mut(&ifindex) {
            *packets += 1;
            return Ok(*id);
        }
        let id = self.out.interface(&name(ifindex), DataLink::ETHERNET, self.snap)?;
        self.interfaces.insert(ifindex, (id, 1));
        Ok(id)
    }

    /// Writes what still waits and, as statistics of each interface, what was left out.
    pub fn finish(mut self, counts: CaptureCounts, name: &mut dyn FnMut(u32) -> String) -> io::Result<W> {
        for (_, came) in std::mem::take(&mut self.waiting) {
            self.packet(&came, None, Direction::Inbound, name)?;
        }
        let comment = format!(
            "of all interfaces: {} packets left out for the rate, {} records for want of room",
            counts.limited, counts.lost
        );
        let mut interfaces: Vec<_> = self.interfaces.values().copied().collect();
        interfaces.sort_unstable();
        for (interface, written) in interfaces {
            let statistics =
                Statistics { written, lost: counts.lost, left_out: counts.limited, comment: &comment };
            self.out.statistics(interface, &statistics)?;
        }
        let mut out = self.out.into_inner();
        out.flush()?;
        Ok(out)
    }
}
