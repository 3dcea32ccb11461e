//! The packets to try: hexadecimal digits, or those of a pcap or pcap-ng file, one by one, however large the file is.

use crate::client::count;
use anyhow::{Context, bail};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::fs::File;
use std::io::{BufReader, Seek};

/// First bytes of files: pcap-ng; the same of pcap in its four forms (byte order, resolution).
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0xc3, 0xd4], [0x4d, 0x3c, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d]];

/// `epb_flags`.
const DIRECTION: u32 = 3;
const OUTBOUND: u32 = 2;
/// The longest frame that a link can carry, and more: a length above it is not to be believed.
const LONGEST: usize = 128 << 10;

/// A packet to be tried.
#[derive(Debug)]
pub(super) struct Packet {
    /// Of a packet that the file has in part, the rest is zeros: no verdict depends on it.
    pub(super) bytes: Vec<u8>,
    /// It begins with its IP header; `None`: not said.
    pub(super) ip: Option<bool>,
    /// Name of the device that it came in by.
    pub(super) iif: Option<String>,
    /// Its number in the file, from 1.
    pub(super) number: u64,
}

/// The source of packets.
enum Source {
    Digits(Option<Vec<u8>>),
    Pcap(PcapReader<BufReader<File>>, bool),
    PcapNg(PcapNgReader<BufReader<File>>, Vec<(DataLink, Option<String>)>),
}

/// The packets that came in; others are counted.
pub(super) struct Packets {
    name: String,
    source: Source,
    number: u64,
    /// Packets that left a device.
    left: u64,
}

impl Packets {
    /// Packets of hexadecimal digits or of a file.
    pub(super) fn open(text: &str) -> anyhow::Result<Self> {
        let source = match digits(text)? {
            Some(bytes) => Source::Digits(Some(bytes)),
            None => open(text).with_context(|| text.to_owned())?,
        };
        Ok(Self { name: text.to_owned(), source, number: 0, left: 0 })
    }

    /// The next packet that came in.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Packet>> {
        let read = self.read();
        read.with_context(|| format!("{}: packet {}", self.name, self.number))
    }

    /// The last packet's place, for errors.
    pub(super) fn place(&self) -> String {
        match self.source {
            Source::Digits(_) => "packet".to_owned(),
            _ => format!("{}: packet {}", self.name, self.number),
        }
    }

    /// Packets that left a device.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// After the last one: tells which packets were left out, and refuses a file from which none came.
    pub(super) fn end(&self, tried: usize) -> anyhow::Result<()> {
        if self.left > 0 {
            let left = count(self.left, "packet", "packets");
            eprintln!("trieline: {}: {left} left out: they left a device", self.name);
        }
        if tried == 0 {
            bail!("{}: no packets that came in; expected at least one", self.name);
        }
        Ok(())
    }

    fn read(&mut self) -> anyhow::Result<Option<Packet>> {
        match &mut self.source {
            Source::Digits(bytes) => {
                self.number += 1;
                Ok(bytes.take().map(|bytes| Packet { bytes, ip: None, iif: None, number: 1 }))
            }
            Source::Pcap(reader, ip) => {
                self.number += 1;
                let Some(packet) = reader.next_packet() else { return Ok(None) };
                let packet = packet?;
                let bytes = whole(packet.data.into_owned(), packet.orig_len);
                Ok(Some(Packet { bytes, ip: Some(*ip), iif: None, number: self.number }))
            }
            Source::PcapNg(reader, interfaces) => loop {
                self.number += 1;
                let Some(block) = reader.next_block() else { return Ok(None) };
                let (id, data, length, options) = match block? {
                    Block::SectionHeader(_) => {
                        interfaces.clear();
                        self.number -= 1;
                        continue;
                    }
                    Block::InterfaceDescription(interface) => {
                        let name = interface.options.iter().find_map(|option| match option {
                            InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                            _ => None,
                        });
                        interfaces.push((interface.linktype, name));
                        self.number -= 1;
                        continue;
                    }
                    Block::EnhancedPacket(packet) => {
                        (packet.interface_id, packet.data, packet.original_len, packet.options)
                    }
                    Block::SimplePacket(packet) => (0, packet.data, packet.original_len, Vec::new()),
                    _ => {
                        self.number -= 1;
                        continue;
                    }
                };
                let (link, name) =
                    interfaces.get(id as usize).context("invalid packet: expected one of an interface")?;
                let ip = begins_with_ip(*link)?;
                let is_out = |option: &EnhancedPacketOption<'_>| matches!(option, EnhancedPacketOption::Flags(flags) if flags & DIRECTION == OUTBOUND);
                if options.iter().any(is_out) {
                    self.left += 1;
                    continue;
                }
                let (bytes, iif) = (whole(data.into_owned(), length), name.clone());
                return Ok(Some(Packet { bytes, ip: Some(ip), iif, number: self.number }));
            },
        }
    }
}

/// A packet in its full length.
fn whole(mut bytes: Vec<u8>, length: u32) -> Vec<u8> {
    if (bytes.len()..=LONGEST).contains(&(length as usize)) {
        bytes.resize(length as usize, 0);
    }
    bytes
}

/// The bytes of hexadecimal digits; `None`: it is the name of a file.
fn digits(text: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits);
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Ok(None);
    }
    if !digits.len().is_multiple_of(2) {
        bail!("packet: {} hexadecimal digits; expected two a byte", digits.len());
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>();
    Ok(Some(bytes.context("packet")?))
}

fn open(name: &str) -> anyhow::Result<Source> {
    let mut file = File::open(name).context("neither hexadecimal digits nor a file")?;
    let mut magic = [0; 4];
    let known = std::io::Read::read_exact(&mut file, &mut magic).is_ok();
    file.rewind()?;
    let file = BufReader::with_capacity(1 << 16, file);
    if known && magic == PCAPNG {
        return Ok(Source::PcapNg(PcapNgReader::new(file)?, Vec::new()));
    }
    if known && PCAP.contains(&magic) {
        let reader = PcapReader::new(file)?;
        let ip = begins_with_ip(reader.header().datalink)?;
        return Ok(Source::Pcap(reader, ip));
    }
    bail!("neither hexadecimal digits nor a pcap or pcap-ng file")
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
