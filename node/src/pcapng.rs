//! Captured packets as pcap-ng (draft-ietf-opsawg-pcapng): one interface a device, the verdict as each packet's comment, and at the end
//! what was left out.

use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trieline_dataplane::{CaptureCounts, Captured};

/// Packets that wait for what becomes of them; more are written without it.
const WAITING: usize = 4096;
/// Times are in nanoseconds.
const NANOSECONDS: u8 = 9;
/// `epb_flags`: direction.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes captured packets to a file.
///
/// A packet comes in and, often, leaves: two records with one number. What is known when it leaves is said of both.
pub struct Writer<W: Write> {
    out: PcapNgWriter<W>,
    snap: u32,
    /// Nanoseconds from the clock of the records to 1970.
    epoch: u64,
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

fn failed(error: pcap_file::PcapError) -> io::Error {
    match error {
        pcap_file::PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

impl<W: Write> Writer<W> {
    /// Begins a file of packets of which at most `snap` bytes were kept.
    pub fn new(out: W, snap: u32) -> io::Result<Self> {
        let application = concat!("trieline ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            options: vec![SectionHeaderOption::UserApplication(application.into())],
            ..Default::default()
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let clock = Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32);
        Ok(Self {
            out: PcapNgWriter::with_section_header(out, section).map_err(failed)?,
            snap,
            epoch: since.saturating_sub(clock).as_nanos() as u64,
            interfaces: HashMap::new(),
            waiting: BTreeMap::new(),
            written: 0,
        })
    }

    /// Takes a record. `name` gives a device's name.
    pub fn record(&mut self, record: Captured, name: &mut dyn FnMut(u32) -> String) -> io::Result<()> {
        let Some(verdict) = record.verdict else {
            while self.waiting.len() >= WAITING {
                let Some((_, oldest)) = self.waiting.pop_first() else { break };
                self.packet(&oldest, None, INBOUND, name)?;
            }
            self.waiting.insert(record.number, record);
            return Ok(());
        };
        let comment = format!("{} {} (packet {})", verdict.kind, verdict.name, record.number);
        if let Some(came) = self.waiting.remove(&record.number) {
            self.packet(&came, Some(&comment), INBOUND, name)?;
        }
        if record.frame.is_empty() {
            return Ok(());
        }
        self.packet(&record, Some(&comment), OUTBOUND, name)
    }

    /// Hands what was written on to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.get_mut().flush()
    }

    /// A record of a packet as it came in, without what becomes of it.
    pub fn frame(&mut self, record: &Captured, name: &mut dyn FnMut(u32) -> String) -> io::Result<()> {
        self.packet(record, None, INBOUND, name)
    }

    /// Frames written; a packet that is forwarded is two.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn packet(
        &mut self,
        record: &Captured,
        comment: Option<&str>,
        direction: u32,
        name: &mut dyn FnMut(u32) -> String,
    ) -> io::Result<()> {
        let interface_id = self.interface(record.ifindex, name)?;
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        options.extend(comment.map(|comment| EnhancedPacketOption::Comment(comment.into())));
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(self.epoch + record.time),
            original_len: record.bytes,
            data: record.frame.as_slice().into(),
            options,
        };
        self.out.write_block(&block.into_block()).map_err(failed)?;
        self.written += 1;
        Ok(())
    }

    /// A device's number in the file.
    fn interface(&mut self, ifindex: u32, name: &mut dyn FnMut(u32) -> String) -> io::Result<u32> {
        if let Some((id, packets)) = self.interfaces.get_mut(&ifindex) {
            *packets += 1;
            return Ok(*id);
        }
        let id = self.interfaces.len() as u32;
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: self.snap,
            options: vec![
                InterfaceDescriptionOption::IfName(name(ifindex).into()),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.out.write_block(&block.into_block()).map_err(failed)?;
        self.interfaces.insert(ifindex, (id, 1));
        Ok(id)
    }

    /// Writes what still waits and, as statistics of each interface, what was left out.
    pub fn finish(mut self, counts: CaptureCounts, name: &mut dyn FnMut(u32) -> String) -> io::Result<W> {
        for (_, came) in std::mem::take(&mut self.waiting) {
            self.packet(&came, None, INBOUND, name)?;
        }
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = self.epoch + Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32).as_nanos() as u64;
        let comment = format!(
            "of all interfaces: {} packets left out for the rate, {} records for want of room",
            counts.limited, counts.lost
        );
        let mut interfaces: Vec<_> = self.interfaces.values().copied().collect();
        interfaces.sort_unstable();
        for (interface_id, packets) in interfaces {
            let block = InterfaceStatisticsBlock {
                interface_id,
                // The file has the high half first, whatever the byte order; the crate writes one 64-bit number.
                timestamp: if cfg!(target_endian = "little") { now.rotate_left(32) } else { now },
                options: vec![
                    InterfaceStatisticsOption::IsbIfDrop(counts.lost),
                    InterfaceStatisticsOption::IsbOsDrop(counts.limited),
                    InterfaceStatisticsOption::IsbUsrDeliv(packets),
                    InterfaceStatisticsOption::Comment(comment.as_str().into()),
                ],
            };
            self.out.write_block(&block.into_block()).map_err(failed)?;
        }
        let mut out = self.out.into_inner();
        out.flush()?;
        Ok(out)
    }
}
