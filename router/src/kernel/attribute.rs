//! Netlink attributes: read without copying, and written into requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of `struct nlmsghdr`.
pub const HEADER: usize = 16;

/// Bits of an attribute's type that say nothing about which attribute it is (nested, network byte order).
const TYPE_MASK: u16 = 0x3fff;

/// The attributes in a run of bytes, as (type, value). Ends at the first that does not fit.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Reads the attributes in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The value of the first attribute of type `kind`.
    pub fn find(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(found, value)| (found == kind).then_some(value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let header = self.rest.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        let value = self.rest.get(4..len)?;
        self.rest = self.rest.get(aligned(len)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// `len` rounded up to netlink's alignment of four bytes.
#[inline]
pub fn aligned(len: usize) -> usize {
    (len + 3) & !3
}

/// The first byte.
pub fn read_u8(bytes: &[u8]) -> Option<u8> {
    bytes.first().copied()
}

/// The first two bytes in host order.
pub fn read_u16(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// The first four bytes in host order.
#[inline]
pub fn read_u32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// An address of four or sixteen bytes.
pub fn read_address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| IpAddr::V6(Ipv6Addr::from(v6)))
}

/// A text that ends at its first NUL.
pub fn read_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A request under construction: header, the family's fixed struct, attributes.
#[derive(Debug, Clone)]
pub struct Request {
    bytes: Vec<u8>,
}

/// The request wants an answer.
pub const FLAG_REQUEST: u16 = 0x1;
/// The request wants an acknowledgement.
pub const FLAG_ACK: u16 = 0x4;
/// The request wants every object.
pub const FLAG_DUMP: u16 = 0x300;
/// The object replaces one of the same key.
pub const FLAG_REPLACE: u16 = 0x100;
/// The object is made when there is none.
pub const FLAG_CREATE: u16 = 0x400;
/// The object stands behind those of the same key.
pub const FLAG_APPEND: u16 = 0x800;
/// A dump was interrupted by a change: it may lack objects that did not change.
pub const FLAG_DUMP_INTERRUPTED: u16 = 0x10;

impl Request {
    /// A request of message type `kind` with `fixed`, the struct that every message of this kind begins with.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | FLAG_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        bytes.resize(aligned(bytes.len()), 0);
        Self { bytes }
    }

    /// Asks for an acknowledgement too.
    pub fn acknowledged(mut self) -> Self {
        self.bytes[6] |= FLAG_ACK as u8;
        self
    }

    /// Adds an attribute.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let len = (4 + value.len()) as u16;
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self
    }

    /// The bytes to send, with length and sequence number filled in.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// The bytes of an address as netlink carries them.
pub fn address_bytes(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_attributes_are_read_back() {
        let request =
            Request::new(26, FLAG_DUMP, &[10; 5]).attribute(1, b"abc").attribute(0x8002, &[]).finish(7);
        assert_eq!(request.len(), 16 + 8 + 8 + 4);
        assert_eq!(read_u32(&request), Some(request.len() as u32));
        let found: Vec<_> = Attributes::new(&request[24..]).collect();
        assert_eq!(found, [(1, &b"abc"[..]), (2, &[][..])]);
    }

    #[test]
    fn damaged_attributes_end_the_run() {
        for bytes in [&[1, 0, 0, 0][..], &[9, 0, 1, 0, 0], &[0, 0, 0, 0], &[4], &[255, 255, 1, 0, 1]] {
            assert_eq!(Attributes::new(bytes).count(), 0, "{bytes:?}");
        }
        assert_eq!(Attributes::new(&[4, 0, 1, 0, 3, 0, 0, 0]).count(), 1);
    }
}
