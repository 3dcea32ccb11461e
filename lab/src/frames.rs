//! The frames an experiment sends: their headers, with the destination left open for the generator.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::topology::{DECAP_SID, SOURCE4, SOURCE6};

/// Which frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UDP in IPv4.
    Ipv4,
    /// UDP in IPv6.
    Ipv6,
    /// UDP in IPv4 in IPv6 with a segment routing header of one segment, the node's own.
    Srv6,
}

/// Ethernet, at the start of a frame.
pub const ETHERNET: usize = 14;
/// An SRH with one segment.
pub const SRH: usize = 24;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;

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
            Kind::Ipv6 => 74,
            Kind::Srv6 => 60 + IPV6 + SRH,
        }
    }

    /// Where the header with the open destination starts.
    pub fn inner(self) -> usize {
        match self {
            Kind::Ipv4 | Kind::Ipv6 => ETHERNET,
            Kind::Srv6 => ETHERNET + IPV6 + SRH,
        }
    }

    /// Builds the frame from `source` to `destination` (MAC addresses).
    pub fn frame(self, source: [u8; 6], destination: [u8; 6]) -> Frame {
        let total = self.frame_bytes();
        let mut bytes = Vec::with_capacity(total);
        bytes.extend(destination);
        bytes.extend(source);
        bytes.extend(if self == Kind::Ipv4 { [8, 0] } else { [0x86, 0xdd] });
        let mut sum = 0;
        match self {
            Kind::Ipv4 => sum = ipv4(&mut bytes, total),
            Kind::Ipv6 => ipv6(&mut bytes, total, 17, Ipv6Addr::UNSPECIFIED),
            Kind::Srv6 => {
                ipv6(&mut bytes, total, 43, DECAP_SID);
                // Next header IPv4, 8 + 2 * 8 bytes, type 4, segments left 0, last entry 0 (RFC 8754).
                bytes.extend([4, 2, 4, 0, 0, 0, 0, 0]);
                bytes.extend(DECAP_SID.octets());
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
        bytes[ETHERNET + 24..ETHERNET + 40].copy_from_slice(&destination.octets());
        bytes
    }
}

/// RFC 1071, over a header whose checksum field is zero.
pub fn checksum(header: &[u8]) -> u16 {
    let mut sum: u32 = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
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

const _: () = assert!(ETHERNET + IPV6 + SRH + IPV4 + UDP <= 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_length_and_a_checksum_that_adds_up() {
        for kind in [Kind::Ipv4, Kind::Ipv6, Kind::Srv6] {
            let frame = kind.frame([2; 6], [4; 6]);
            assert_eq!(frame.bytes.len(), kind.frame_bytes());
            if kind != Kind::Ipv6 {
                let done = frame.towards4(Ipv4Addr::new(203, 0, 113, 77));
                let ip = kind.inner();
                assert_eq!(checksum(&done[ip..ip + 20]), 0, "{kind:?}");
            }
        }
    }
}
