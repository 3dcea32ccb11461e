//! The smallest frames, for runs of the program.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Ethernet frame of 64 bytes on the wire, without its checksum.
pub(crate) const FRAME: usize = 60;
const ETHER_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_IPV6: [u8; 2] = [0x86, 0xdd];

/// An Ethernet frame without anything in it.
pub(crate) fn ethernet(mac: [u8; 6], kind: [u8; 2]) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&mac);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&kind);
    frame
}

/// UDP without a checksum, as IPv4 allows.
pub(crate) fn frame4(mac: [u8; 6], to: u32, from: u32) -> [u8; FRAME] {
    let mut frame = ethernet(mac, ETHER_IPV4);
    let header = &mut frame[14..34];
    header[..2].copy_from_slice(&[0x45, 0]);
    header[2..4].copy_from_slice(&((FRAME - 14) as u16).to_be_bytes());
    (header[8], header[9]) = (64, 17);
    header[12..16].copy_from_slice(&Ipv4Addr::from_bits(from).octets());
    header[16..20].copy_from_slice(&Ipv4Addr::from_bits(to).octets());
    let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    udp(&mut frame[34..]);
    frame
}

/// IPv6 without a header behind it: with one of UDP, the frame would have 62 bytes.
pub(crate) fn frame6(mac: [u8; 6], to: u128, from: u128) -> [u8; FRAME] {
    let mut frame = ethernet(mac, ETHER_IPV6);
    frame[14] = 0x60;
    frame[18..20].copy_from_slice(&((FRAME - 54) as u16).to_be_bytes());
    // No next header: six bytes of data follow.
    (frame[20], frame[21]) = (59, 64);
    frame[22..38].copy_from_slice(&Ipv6Addr::from_bits(from).octets());
    frame[38..54].copy_from_slice(&Ipv6Addr::from_bits(to).octets());
    frame
}

fn udp(segment: &mut [u8]) {
    segment[..4].copy_from_slice(&[0x30, 0x39, 0, 9]);
    let length = segment.len() as u16;
    segment[4..6].copy_from_slice(&length.to_be_bytes());
}
