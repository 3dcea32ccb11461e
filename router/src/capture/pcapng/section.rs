//! A pcap-ng file of one section: its interfaces, their packets with comments, and at the end what is known of each interface.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness};

/// Times are in nanoseconds.
const NANOSECONDS: u8 = 9;

/// `epb_flags`: which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It came in.
    Inbound = 1,
    /// It left.
    Outbound = 2,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The interface's number in the file.
    pub interface: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Its length on the wire; `bytes` holds the first of them.
    pub length: u32,
    /// Those that were kept.
    pub bytes: &'a [u8],
    /// Which way it went.
    pub direction: Direction,
    /// A remark on the packet.
    pub comment: Option<&'a str>,
}

/// Counts of an interface's packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics<'a> {
    /// Packets in the file.
    pub written: u64,
    /// Lost for want of room.
    pub lost: u64,
    /// Left out on purpose.
    pub left_out: u64,
    /// The same in words.
    pub comment: &'a str,
}

/// The section, as it is written.
pub struct Section<W: Write> {
    out: PcapNgWriter<W>,
    /// Nanoseconds from the clock of the packets to 1970.
    epoch: u64,
    interfaces: u32,
}

impl<W: Write> std::fmt::Debug for Section<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").field("interfaces", &self.interfaces).finish_non_exhaustive()
    }
}

fn failed(error: pcap_file::PcapError) -> io::Error {
    match error {
        pcap_file::PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

fn monotonic() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32)
}

/// Nanoseconds from `CLOCK_MONOTONIC` to 1970, as both clocks are now.
pub fn epoch_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.saturating_sub(monotonic()).as_nanos() as u64
}

impl<W: Write> Section<W> {
    /// Begins the file; `comment` is about all of it.
    pub fn begin(out: W, comment: Option<&str>) -> io::Result<Self> {
        let application = concat!("trieline ", env!("CARGO_PKG_VERSION"));
        let mut options = vec![SectionHeaderOption::UserApplication(application.into())];
        options.extend(comment.map(|comment| SectionHeaderOption::Comment(comment.to_owned().into())));
        // Wireshark reads a pipe only in the byte order of its own processor.
        let endianness = Endianness::native();
        let section = SectionHeaderBlock { endianness, options, ..Default::default() };
        let out = PcapNgWriter::with_section_header(out, section).map_err(failed)?;
        Ok(Self { out, epoch: epoch_ns(), interfaces: 0 })
    }

    /// Where it is written to.
    pub fn get_mut(&mut self) -> &mut W {
        self.out.get_mut()
    }

    /// Adds an interface whose packets are of this kind and cut to `snap` bytes; its number.
    pub fn interface(&mut self, name: &str, linktype: DataLink, snap: u32) -> io::Result<u32> {
        let block = InterfaceDescriptionBlock {
            linktype,
            snaplen: snap,
            options: vec![
                InterfaceDescriptionOption::IfName(name.into()),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.out.write_block(&block.into_block()).map_err(failed)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Adds a packet.
    pub fn packet(&mut self, packet: &Packet) -> io::Result<()> {
        let mut options = vec![EnhancedPacketOption::Flags(packet.direction as u32)];
        options.extend(packet.comment.map(|comment| EnhancedPacketOption::Comment(comment.into())));
        let block = EnhancedPacketBlock {
            interface_id: packet.interface,
            timestamp: Duration::from_nanos(self.epoch + packet.time_ns),
            original_len: packet.length,
            data: packet.bytes.into(),
            options,
        };
        self.out.write_block(&block.into_block()).map_err(failed)?;
        Ok(())
    }

    /// Writes the counts of an interface's packets.
    pub fn statistics(&mut self, interface_id: u32, statistics: &Statistics) -> io::Result<()> {
        let now = self.epoch + monotonic().as_nanos() as u64;
        let block = InterfaceStatisticsBlock {
            interface_id,
            // The file has the high half first, whatever the byte order; the crate writes one 64-bit number.
            timestamp: if cfg!(target_endian = "little") { now.rotate_left(32) } else { now },
            options: vec![
                InterfaceStatisticsOption::IsbIfDrop(statistics.lost),
                InterfaceStatisticsOption::IsbOsDrop(statistics.left_out),
                InterfaceStatisticsOption::IsbUsrDeliv(statistics.written),
                InterfaceStatisticsOption::Comment(statistics.comment.into()),
            ],
        };
        self.out.write_block(&block.into_block()).map_err(failed)?;
        Ok(())
    }

    /// The stream that it was written to.
    pub fn into_inner(self) -> W {
        self.out.into_inner()
    }
}
