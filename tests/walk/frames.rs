//! Random frames of every kind that a router may meet, to addresses that the walk's commands are about.

use crate::outcome::MARK;
use crate::twin::macs;
use trieline_testbed::craft;
use trieline_testbed::random::Random;

/// A frame, and the link by which it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// It comes in by `nLINK`.
    pub(crate) link: usize,
    /// Its bytes, with 0 where its number goes.
    pub(crate) bytes: Vec<u8>,
    /// Offset of the source port, if a flow's hash may look at it.
    pub(crate) port_at: Option<usize>,
}

impl Frame {
    /// The frame of a report's line, which [`crate::judge::Failure`] prints.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (link, digits) = line.strip_prefix("frame into n")?.split_once(": ")?;
        let digits = digits.as_bytes().chunks(2);
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        let bytes = digits.map(byte).collect::<Option<Vec<u8>>>()?;
        Some(Self {
            link: link.parse().ok().filter(|link| *link < crate::twin::LINKS)?,
            bytes,
            port_at: None,
        })
    }

    /// The bytes with a number.
    pub(crate) fn numbered(&self, number: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let mut at = 0;
        while at + 8 <= bytes.len() {
            if &bytes[at..at + 4] == MARK {
                bytes[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
                at += 8;
            } else {
                at += 1;
            }
        }
        bytes
    }

    /// The same frame of another flow; none when no field may be changed without changing its meaning.
    pub(crate) fn of_another_flow(&self, number: u16) -> Option<Self> {
        let at = self.port_at?;
        let mut frame = self.clone();
        frame.bytes.get_mut(at..at + 2)?.copy_from_slice(&(20_000 + number * 7).to_be_bytes());
        Some(frame)
    }
}

/// Addresses of packets' ends, IPv4.
const HOSTS4: &[&str] = &[
    "10.50.0.1",
    "10.50.1.1",
    "10.50.1.5",
    "10.50.1.129",
    "10.51.0.1",
    "10.52.3.4",
    "10.48.7.7",
    "10.99.0.2",
    "10.9.0.2",
    "10.108.1.2",
    "20.0.5.1",
    "192.0.2.1",
];
const ODD4: &[&str] = &[
    "224.0.0.5",
    "239.1.1.1",
    "255.255.255.255",
    "127.0.0.1",
    "0.0.0.0",
    "240.0.0.1",
    "169.254.1.1",
    "10.1.0.255",
    "10.2.0.0",
    "10.50.255.255",
];
const HOSTS6: &[&str] = &[
    "fd50::1",
    "fd50:0:1::1",
    "fd50:0:1:5::1",
    "fd50:0:1:5::5",
    "fd51::1",
    "fd52::7",
    "fd99::2",
    "fd09::2",
    "fd08:1::2",
    "fd20:5::1",
    "2001:db8::1",
    "fd70::1",
    "fd71::2",
];
const ODD6: &[&str] =
    &["ff02::1", "ff02::5", "ff05::1", "fe80::1", "::1", "::", "::ffff:10.1.0.2", "2002:a01:2::1", "fec0::1"];

/// Sizes of whole IP packets around which devices' and routes' MTUs lie.
const SIZES: &[usize] = &[576, 1000, 1280, 1290, 1300, 1400, 1500];

/// Makes the frames of a step.
pub(crate) struct Frames {
    random: Random,
    /// MAC addresses of the node's links at this time.
    pub(crate) macs: Vec<[u8; 6]>,
    /// Segment identifiers that routes may have.
    pub(crate) sids: usize,
    /// VLANs that the node may have.
    pub(crate) vlans: bool,
}

fn payload(length: usize) -> Vec<u8> {
    let whole = [MARK.as_slice(), &[0; 4]].concat();
    whole.iter().copied().cycle().take(length.max(8)).collect()
}

impl Frames {
    pub(crate) fn new(random: Random, vlans: bool) -> Self {
        let macs = (0..crate::twin::LINKS).map(|link| macs(link)[0]).collect();
        Self { random, macs, sids: 16, vlans }
    }

    fn host4(&mut self) -> String {
        let link = self.random.below(5);
        match self.random.below(12) {
            0..6 => self.random.pick(HOSTS4).to_owned(),
            6 => self.random.pick(ODD4).to_owned(),
            7 => format!("10.{link}.0.1"),
            _ => format!("10.{link}.0.{}", self.random.pick(&[2, 3, 5, 9, 77])),
        }
    }

    fn host6(&mut self) -> String {
        let link = self.random.below(5);
        match self.random.below(14) {
            0..6 => self.random.pick(HOSTS6).to_owned(),
            6 => self.random.pick(ODD6).to_owned(),
            7 => format!("fd00:{link}::1"),
            8..11 => format!("fd80::{:x}", self.random.below(self.sids)),
            _ => format!("fd00:{link}::{}", self.random.pick(&[2, 3, 5, 9, 77])),
        }
    }

    /// A length of payload that makes the packet as long as an MTU, or a byte more.
    fn length(&mut self, headers: usize) -> usize {
        if !self.random.one_in(4) {
            return self.random.pick(&[8, 16, 32, 64, 200]);
        }
        let size = self.random.pick(SIZES) + self.random.pick(&[0, 0, 1]);
        size.min(1500).saturating_sub(headers)
    }

    fn packet4(&mut self, source: &str, to: &str) -> (Vec<u8>, bool) {
        let length = self.length(28);
        let mut packet = craft::ipv4(source, to, &payload(length), |_| {});
        let ttl = self.random.pick(&[64, 64, 64, 64, 255, 2, 1, 0]);
        let (mut fragment, mut flow) = (self.random.pick(&[0u16, 0, 0, 0x4000, 0x4000]), true);
        let mut protocol = 17;
        match self.random.below(20) {
            0 => {
                fragment = self.random.pick(&[0x2000, 0x2003, 0x0003, 0x6000]);
                flow = false;
            }
            1 => {
                // Options: nothing, record route, router alert, a length beyond the header.
                let options =
                    self.random.pick(&[[1u8, 1, 1, 0], [7, 4, 4, 0], [148, 4, 0, 0], [130, 40, 0, 0]]);
                packet.splice(20..20, options);
                packet[0] = 0x46;
                let length = packet.len() as u16;
                packet[2..4].copy_from_slice(&length.to_be_bytes());
                packet[8] = ttl;
                packet[10..12].fill(0);
                let sum = craft::checksum(&packet[..24]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
                return (packet, false);
            }
            2 => {
                protocol = self.random.pick(&[6, 50, 47, 132, 89, 4, 41]);
                flow = false;
            }
            3 => {
                // An echo request, with a right checksum so that the node answers.
                packet[20..28].copy_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0]);
                protocol = 1;
                flow = false;
            }
            _ => {}
        }
        let tos = self.random.pick(&[0, 0, 0, 0x10, 0x08, 0xb8, 0x01]);
        let identification = self.random.bits() as u16;
        packet = craft::edit_ipv4(packet, |bytes| {
            bytes[1] = tos;
            bytes[4..6].copy_from_slice(&identification.to_be_bytes());
            bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
            bytes[8] = ttl;
            bytes[9] = protocol;
        });
        match self.random.below(40) {
            0 => packet[10] ^= 0x55,
            1 => packet[0] = self.random.pick(&[0x44, 0x55, 0x65]),
            2 => {
                packet = craft::edit_ipv4(packet, |bytes| bytes[2..4].copy_from_slice(&2000u16.to_be_bytes()))
            }
            3 => packet.extend([0; 9]),
            _ => return (packet, flow),
        }
        (packet, false)
    }

    fn packet6(&mut self, source: &str, to: &str) -> (Vec<u8>, bool) {
        let length = self.length(48);
        let udp = craft::udp(&payload(length));
        let hops = self.random.pick(&[64u8, 64, 64, 64, 255, 2, 1, 0]);
        let first = self.random.pick(&[0x60u8, 0x60, 0x60, 0x6b]);
        let label = self.random.pick(&[0u16, 0, 0x1234]);
        let (mut next, mut inside, mut flow) = (17, udp, true);
        if self.random.one_in(6) {
            flow = false;
            (next, inside) = self.extended(next, inside);
        }
        let mut packet = craft::ipv6(source, to, (next, &inside), |bytes| {
            bytes[0] = first;
            bytes[2..4].copy_from_slice(&label.to_be_bytes());
            bytes[7] = hops;
        });
        match self.random.below(40) {
            0 => packet[4..6].copy_from_slice(&2000u16.to_be_bytes()),
            1 => packet.extend([0; 7]),
            2 => packet[0] = 0x40,
            3 => packet[4..6].fill(0),
            _ => return (packet, flow),
        }
        (packet, false)
    }

    /// An extension header, or another protocol, in front.
    fn extended(&mut self, next: u8, inside: Vec<u8>) -> (u8, Vec<u8>) {
        let options = |kind: [u8; 6]| [&[next, 0], kind.as_slice(), &inside].concat();
        let padded = [1, 4, 0, 0, 0, 0];
        match self.random.below(9) {
            0 => (0, options(padded)),
            1 => (0, options([5, 2, 0, 0, 1, 0])),
            2 => (0, options([0xc2, 4, 0, 0, 0, 0])),
            3 => (60, options(padded)),
            4 => (44, [&[next, 0, 0, 1, 0, 0, 0, 7], inside.as_slice()].concat()),
            5 => (44, [&[next, 0, 0, 8, 0, 0, 0, 7], inside.as_slice()].concat()),
            6 => (44, [&[next, 0, 0, 0, 0, 0, 0, 7], inside.as_slice()].concat()),
            7 => (self.random.pick(&[6, 50, 59, 132, 89]), inside),
            _ => (43, [&[next, 0, 0, 0, 0, 0, 0, 0], inside.as_slice()].concat()),
        }
    }

    /// SRv6 traffic to a SID: with and without an SRH, around IPv4, IPv6 and Ethernet.
    fn sid_packet(&mut self) -> Vec<u8> {
        let sid = format!("fd80::{:x}", self.random.below(self.sids));
        let more = format!("fd80::{:x}", self.random.below(self.sids));
        let (source4, to4, source6, to6) =
            ("10.0.0.2".to_owned(), self.host4(), "fd00:0::2".to_owned(), self.host6());
        let (next, inner) = match self.random.below(8) {
            0..3 => (4, self.packet4(&source4, &to4).0),
            3..6 => (41, self.packet6(&source6, &to6).0),
            6 => (
                143,
                craft::link(
                    [2, 0, 0, 0, 9, 9],
                    [2, 0, 0, 0, 9, 8],
                    &[],
                    None,
                    &self.packet4(&source4, &to4).0,
                ),
            ),
            _ => (17, craft::udp(&payload(64))),
        };
        let left = self.random.pick(&[0u8, 0, 1, 1, 2, 3]);
        let inside = match self.random.below(5) {
            0 => (next, inner),
            1 => (43, craft::srh(&[&sid], self.random.pick(&[0, 0, 1]), (next, &inner))),
            2 => (43, craft::srh(&["fd70::1", &sid], left.min(2), (next, &inner))),
            3 => (43, craft::srh(&[&more, "fd70::1", &sid], left, (next, &inner))),
            _ => {
                let mut header = craft::srh(&["fd71::2", &sid], 1, (next, &inner));
                let (at, value) =
                    self.random.pick(&[(1usize, 3u8), (2, 0), (4, 5), (1, 200), (5, 8), (1, 4)]);
                header[at] = value;
                (43, header)
            }
        };
        let to = if self.random.one_in(6) { format!("fd8c::{:x}:0:1", self.random.below(4)) } else { sid };
        let hops = self.random.pick(&[64u8, 64, 64, 2, 1]);
        let mut packet = craft::ipv6(&source6, &to, (inside.0, &inside.1), |bytes| bytes[7] = hops);
        packet.truncate(1500);
        packet
    }

    /// A frame to the node.
    pub(crate) fn frame(&mut self) -> Frame {
        let link = self.random.pick(&[0, 0, 0, 0, 1, 2, 3, 4]);
        let source_link = if self.random.one_in(4) { self.random.below(5) } else { link };
        let (packet, flow, version) = match self.random.below(10) {
            0..4 => {
                let to = self.host4();
                let source = match self.random.below(8) {
                    0 => self.host4(),
                    _ => format!("10.{source_link}.0.{}", self.random.pick(&[2, 2, 2, 7])),
                };
                let (packet, flow) = self.packet4(&source, &to);
                (packet, flow, 4)
            }
            4..8 => {
                let to = self.host6();
                let source = match self.random.below(8) {
                    0 => self.host6(),
                    1 => "fe80::2".to_owned(),
                    _ => format!("fd00:{source_link}::{}", self.random.pick(&[2, 2, 2, 7])),
                };
                let (packet, flow) = self.packet6(&source, &to);
                (packet, flow, 6)
            }
            _ => (self.sid_packet(), false, 6),
        };
        let kind = if version == 4 { 0x0800 } else { 0x86dd };
        let mac = match self.random.below(30) {
            0 => [0xff; 6],
            1 => [1, 0, 0x5e, 0, 0, 5],
            2 => [0x33, 0x33, 0, 0, 0, 1],
            3 => [2, 0, 0, 0, 7, 7],
            _ => self.macs[link],
        };
        let tags: &[u16] = match self.random.below(30) {
            0 => &[0],
            1 => &[0xe000],
            2 if self.vlans => &[8, 0],
            3..9 if self.vlans => &[8],
            9 if self.vlans => &[9],
            _ => &[],
        };
        let [_, end] = macs(link);
        let mut bytes = craft::link(mac, end, tags, Some(kind), &packet);
        let at = 14 + 4 * tags.len() + if version == 4 { 20 } else { 40 };
        if self.random.one_in(60) {
            bytes.truncate(self.random.pick(&[20usize, 30, 40, 60]).max(15));
        }
        let port_at = Some(at).filter(|at| flow && at + 2 <= bytes.len());
        Frame { link, bytes, port_at }
    }
}
