//! The frames an experiment sends: their headers, with the destination left open for the generator.

use std::net::{Ipv4Addr, Ipv6Addr};

use trieline_testbed::craft::checksum;

use crate::topology::{ENCAP_SEGMENT, END_SID, SOURCE4, SOURCE6, VLAN};

/// Which frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UDP in IPv4.
    Ipv4,
    /// UDP in IPv4 with the 802.1Q tag of [`VLAN`].
    Tagged,
    /// UDP in IPv6.
    Ipv6,
    /// UDP in IPv4 in IPv6 with a segment routing header of one segment, this SID of the node's.
    Srv6(Ipv6Addr),
    /// The same with IPv6 inside.
    Srv6Ipv6(Ipv6Addr),
    /// UDP in IPv4 in IPv6 at the first of two segments, the node's.
    Transit,
}

/// Ethernet, at the start of a frame.
pub const ETHERNET: usize = 14;
/// Bytes of an 802.1Q tag.
const TAG: usize = 4;
/// An SRH with one segment.
pub const SRH: usize = 24;
/// An SRH with two.
const SRH2: usize = 40;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// The mark of measuring traffic: flow, run, sequence number, time.
pub(crate) const MARK: usize = 18;

/// A frame with destination and IPv4 checksum zero.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Which.
    pub kind: Kind,
    /// All its bytes, without FCS.
    pub bytes: Vec<u8>,
    /// One's complement sum of the IPv4 header's 16-bit words as they lie in memory; 0 for IPv6.
    pub sum: u32,
}

impl Kind {
    /// Shortest frame: 60 bytes for IPv4 (64 with FCS), 74 for IPv6 (78, RFC 5180), and IPv4's plus the outer headers.
    pub fn frame_bytes(self) -> usize {
        match self {
            Kind::Ipv4 => 60,
            Kind::Tagged => 60 + TAG,
            Kind::Ipv6 => 74,
            Kind::Srv6(_) => 60 + IPV6 + SRH,
            Kind::Srv6Ipv6(_) => 74 + IPV6 + SRH,
            Kind::Transit => 60 + IPV6 + SRH2,
        }
    }

    /// Shortest frame with a mark behind its UDP header: 60 bytes for IPv4 (64 with FCS), 80 for IPv6.
    pub fn marked_bytes(self) -> usize {
        self.frame_bytes().max(self.mark() + MARK)
    }

    /// Where the mark of measuring traffic starts: behind the UDP header.
    pub fn mark(self) -> usize {
        self.inner() + if self.is_ipv4() { IPV4 } else { IPV6 } + UDP
    }

    /// Whether the open destination is an IPv4 address.
    pub fn is_ipv4(self) -> bool {
        !matches!(self, Kind::Ipv6 | Kind::Srv6Ipv6(_))
    }

    /// The program that makes such frames.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Kind::Ipv4 => "ipv4",
            Kind::Tagged => "tagged",
            Kind::Ipv6 => "ipv6",
            Kind::Srv6(_) => "srv6",
            Kind::Srv6Ipv6(_) => "srv6_ipv6",
            Kind::Transit => "transit",
        }
    }

    /// Where the header with the open destination starts.
    pub fn inner(self) -> usize {
        match self {
            Kind::Ipv4 | Kind::Ipv6 => ETHERNET,
            Kind::Tagged => ETHERNET + TAG,
            Kind::Srv6(_) | Kind::Srv6Ipv6(_) => ETHERNET + IPV6 + SRH,
            Kind::Transit => ETHERNET + IPV6 + SRH2,
        }
    }

    /// Builds the shortest frame from `source` to `destination` (MAC addresses).
    pub fn frame(self, source: [u8; 6], destination: [u8; 6]) -> Frame {
        self.frame_of(self.frame_bytes(), source, destination)
    }

    /// Likewise, `total` bytes long without FCS, and never shorter than the shortest.
    pub fn frame_of(self, total: usize, source: [u8; 6], destination: [u8; 6]) -> Frame {
        let total = total.max(self.frame_bytes());
        let mut bytes = Vec::with_capacity(total);
        bytes.extend(destination);
        bytes.extend(source);
        if self == Kind::Tagged {
            bytes.extend([0x81, 0]);
            bytes.extend(VLAN.to_be_bytes());
        }
        bytes.extend(if matches!(self, Kind::Ipv4 | Kind::Tagged) { [8, 0] } else { [0x86, 0xdd] });
        let mut sum = 0;
        match self {
            Kind::Ipv4 | Kind::Tagged => sum = ipv4(&mut bytes, total),
            Kind::Ipv6 => ipv6(&mut bytes, total, 17, Ipv6Addr::UNSPECIFIED),
            // SRH: next header, 8 + 8n bytes, type 4, segments left, last entry, the last segment first (RFC 8754).
            Kind::Srv6(sid) => {
                ipv6(&mut bytes, total, 43, sid);
                bytes.extend([4, 2, 4, 0, 0, 0, 0, 0]);
                bytes.extend(sid.octets());
                sum = ipv4(&mut bytes, total);
            }
            Kind::Srv6Ipv6(sid) => {
                ipv6(&mut bytes, total, 43, sid);
                bytes.extend([41, 2, 4, 0, 0, 0, 0, 0]);
                bytes.extend(sid.octets());
                ipv6(&mut bytes, total, 17, Ipv6Addr::UNSPECIFIED);
            }
            Kind::Transit => {
                ipv6(&mut bytes, total, 43, END_SID);
                bytes.extend([4, 4, 4, 1, 1, 0, 0, 0]);
                bytes.extend(ENCAP_SEGMENT.octets());
                bytes.extend(END_SID.octets());
                sum = ipv4(&mut bytes, total);
            }
        }
        let udp = (total - bytes.len()) as u16;
        bytes.extend(9000u16.to_be_bytes());
        bytes.extend(9u16.to_be_bytes()); // discard
        bytes.extend(udp.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.resize(total, 0x5a);
        Frame { kind: self, bytes, sum }
    }
}

impl Frame {
    /// The frame as the generator completes it for an address.
    pub fn towards4(&self, destination: Ipv4Addr) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let ip = self.kind.inner();
        bytes[ip + 16..ip + 20].copy_from_slice(&destination.octets());
        let sum = checksum(&bytes[ip..ip + IPV4]);
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Likewise for IPv6.
    pub fn towards6(&self, destination: Ipv6Addr) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let ip = self.kind.inner();
        bytes[ip + 24..ip + 40].copy_from_slice(&destination.octets());
        bytes
    }
}

fn ipv4(bytes: &mut Vec<u8>, total: usize) -> u32 {
    let start = bytes.len();
    let length = (total - start) as u16;
    bytes.extend([0x45, 0]);
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]); // don't fragment, TTL 64, UDP
    bytes.extend(SOURCE4.octets());
    bytes.extend([0; 4]);
    bytes[start..].chunks(2).map(|w| u32::from(u16::from_ne_bytes([w[0], w[1]]))).sum()
}

fn ipv6(bytes: &mut Vec<u8>, total: usize, next_header: u8, destination: Ipv6Addr) {
    let payload = (total - bytes.len() - IPV6) as u16;
    bytes.extend([0x60, 0, 0, 0]);
    bytes.extend(payload.to_be_bytes());
    bytes.extend([next_header, 64]);
    bytes.extend(SOURCE6.octets());
    bytes.extend(destination.octets());
}

/// Bytes that encapsulation with one segment adds.
pub const ENCAPSULATION: usize = IPV6 + SRH;

const _: () =
    assert!(ETHERNET + IPV6 + SRH + IPV6 + UDP <= 128 && ETHERNET + IPV6 + SRH2 + IPV4 + UDP <= 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_length_and_a_checksum_that_adds_up() {
        let sid = Ipv6Addr::LOCALHOST;
        let all = [Kind::Ipv4, Kind::Tagged, Kind::Ipv6, Kind::Srv6(sid), Kind::Srv6Ipv6(sid), Kind::Transit];
        for kind in all {
            let frame = kind.frame([2; 6], [4; 6]);
            assert_eq!(frame.bytes.len(), kind.frame_bytes());
            if !matches!(kind, Kind::Ipv6 | Kind::Srv6Ipv6(_)) {
                let done = frame.towards4(Ipv4Addr::new(203, 0, 113, 77));
                let ip = kind.inner();
                assert_eq!(checksum(&done[ip..ip + 20]), 0, "{kind:?}");
            }
        }
    }
}
