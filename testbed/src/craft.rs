//! Packets written byte by byte, from the IP header on, and the frames around them. Lengths and IPv4 checksums are filled in.

use std::net::{Ipv4Addr, Ipv6Addr};

/// IPv4 with a UDP payload. `set` may change any byte of the header before the checksum is made.
pub fn ipv4(source: &str, destination: &str, payload: &[u8], set: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let source: Ipv4Addr = source.parse().expect("an IPv4 address");
    let destination: Ipv4Addr = destination.parse().expect("an IPv4 address");
    let body = udp(payload);
    let mut packet = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, 17, 0, 0];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let length = (packet.len() + body.len()) as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    set(&mut packet);
    packet[10..12].fill(0);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    packet
}

/// IPv6 around `next` (its protocol number and bytes). `set` may change any byte of the header.
pub fn ipv6(source: &str, destination: &str, next: (u8, &[u8]), set: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let source: Ipv6Addr = source.parse().expect("an IPv6 address");
    let destination: Ipv6Addr = destination.parse().expect("an IPv6 address");
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next.0, 64];
    packet[4..6].copy_from_slice(&(next.1.len() as u16).to_be_bytes());
    packet.extend(source.octets());
    packet.extend(destination.octets());
    set(&mut packet);
    packet.extend(next.1);
    packet
}

/// A segment routing header (RFC 8754) in front of `next`, segments in wire order (last first).
pub fn srh(segments: &[&str], segments_left: u8, next: (u8, &[u8])) -> Vec<u8> {
    let mut header =
        vec![next.0, (segments.len() * 2) as u8, 4, segments_left, (segments.len() - 1) as u8, 0, 0, 0];
    for segment in segments {
        header.extend(segment.parse::<Ipv6Addr>().expect("a SID").octets());
    }
    header.extend(next.1);
    header
}

/// A UDP datagram from port 4000 to port 9. Routers do not look at its checksum; 0xffff stands for any.
pub fn udp(payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x0f, 0xa0, 0, 9, 0, 0, 0xff, 0xff];
    datagram[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    datagram.extend(payload);
    datagram
}

/// Ethernet header, 802.1Q tags (TCI, outermost first), packet. Without `ether_type` it is that of the packet's IP version.
pub fn link(
    destination: [u8; 6],
    source: [u8; 6],
    vlans: &[u16],
    ether_type: Option<u16>,
    packet: &[u8],
) -> Vec<u8> {
    let mut frame = [destination, source].concat();
    for tci in vlans {
        frame.extend([0x81, 0x00]);
        frame.extend(tci.to_be_bytes());
    }
    let by_version = if packet.first().is_some_and(|b| b >> 4 == 6) { 0x86dd } else { 0x0800 };
    frame.extend(ether_type.unwrap_or(by_version).to_be_bytes());
    frame.extend(packet);
    frame
}

/// The frame with tags (EtherType, TCI) put in front of its EtherType, outermost first.
pub fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|(kind, tci)| [kind.to_be_bytes(), tci.to_be_bytes()].concat());
    frame[..12].iter().copied().chain(tags).chain(frame[12..].iter().copied()).collect()
}

/// Changes bytes of a packet with an IPv4 header of 20 bytes and makes its checksum right again.
pub fn edit_ipv4(mut packet: Vec<u8>, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    edit(&mut packet);
    packet[10..12].fill(0);
    let sum = checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The Internet checksum (RFC 1071) of a header whose own checksum field is zero; 0 if the field is right.
pub fn checksum(header: &[u8]) -> u16 {
    let mut sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
