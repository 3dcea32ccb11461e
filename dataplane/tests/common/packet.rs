//! Frames as the tests need them: small, whole, with correct checksums unless a test breaks them.

use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder};

use super::PORT_MAC;

pub const SENDER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub const NEXT_HOP_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
pub const OUT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];

/// Parts of a frame that a test may change.
#[derive(Clone)]
pub struct Frame {
    pub destination: [u8; 6],
    /// Tags, outermost first.
    pub vlans: Vec<u16>,
    pub ether_type: Option<u16>,
    pub packet: Vec<u8>,
}

impl Frame {
    pub fn new(packet: Vec<u8>) -> Self {
        Self { destination: PORT_MAC, vlans: vec![], ether_type: None, packet }
    }

    pub fn to(mut self, destination: [u8; 6]) -> Self {
        self.destination = destination;
        self
    }

    pub fn vlan(mut self, tci: u16) -> Self {
        self.vlans.push(tci);
        self
    }

    pub fn ether_type(mut self, ether_type: u16) -> Self {
        self.ether_type = Some(ether_type);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        link(self.destination, SENDER_MAC, &self.vlans, self.ether_type, &self.packet)
    }
}

/// Ethernet header, tags, packet.
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

/// An Ethernet frame as it leaves towards the next hop.
pub fn sent(vlans: &[u16], packet: &[u8]) -> Vec<u8> {
    link(NEXT_HOP_MAC, OUT_MAC, vlans, None, packet)
}

/// UDP over IPv4.
pub fn ipv4(source: &str, destination: &str, ttl: u8) -> Vec<u8> {
    ipv4_of(source, destination, ttl, 18)
}

/// UDP over IPv4 with `payload` bytes.
pub fn ipv4_of(source: &str, destination: &str, ttl: u8, payload: usize) -> Vec<u8> {
    let ip = |s: &str| s.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let builder = PacketBuilder::ipv4(ip(source), ip(destination), ttl).udp(1234, 53);
    let mut packet = Vec::new();
    builder.write(&mut packet, &pattern(payload)).unwrap();
    packet
}

/// UDP over IPv6, traffic class 0xb8 and flow label 0x12345.
pub fn ipv6(source: &str, destination: &str, hop_limit: u8) -> Vec<u8> {
    ipv6_of(source, destination, hop_limit, 10)
}

/// UDP over IPv6 with `payload` bytes.
pub fn ipv6_of(source: &str, destination: &str, hop_limit: u8, payload: usize) -> Vec<u8> {
    let ip = |s: &str| s.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let header = Ipv6Header {
        traffic_class: 0xb8,
        flow_label: Ipv6FlowLabel::try_new(0x12345).unwrap(),
        hop_limit,
        source: ip(source),
        destination: ip(destination),
        payload_length: 0,
        next_header: IpNumber::UDP,
    };
    let builder = PacketBuilder::ip(etherparse::IpHeaders::Ipv6(header, Default::default())).udp(1234, 53);
    let mut packet = Vec::new();
    builder.write(&mut packet, &pattern(payload)).unwrap();
    packet
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| i as u8).collect()
}

/// Outer IPv6 header over `inner`, without extension headers.
pub fn outer(source: &str, destination: &str, next_header: u8, hop_limit: u8, inner: &[u8]) -> Vec<u8> {
    let ip = |s: &str| s.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((inner.len() as u16).to_be_bytes());
    packet.extend([next_header, hop_limit]);
    packet.extend(ip(source));
    packet.extend(ip(destination));
    packet.extend(inner);
    packet
}

/// SRH (RFC 8754) over `inner`.
pub fn srh(next_header: u8, segments_left: u8, segments: &[&str], inner: &[u8]) -> Vec<u8> {
    let mut header =
        vec![next_header, 2 * segments.len() as u8, 4, segments_left, segments.len() as u8 - 1, 0, 0, 0];
    for segment in segments {
        header.extend(segment.parse::<std::net::Ipv6Addr>().unwrap().octets());
    }
    header.extend(inner);
    header
}

/// Changes bytes of an IPv4 header and makes its checksum right again.
pub fn edit_ipv4(mut packet: Vec<u8>, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    edit(&mut packet);
    packet[10..12].fill(0);
    let mut sum: u32 =
        packet[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

/// The packet one hop on: TTL or hop limit one less, checksum right.
pub fn hop(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        let (mut header, _) = Ipv4Header::from_slice(&packet).unwrap();
        header.time_to_live -= 1;
        header.header_checksum = header.calc_header_checksum();
        let bytes = header.to_bytes();
        packet[..bytes.len()].copy_from_slice(&bytes);
    } else {
        packet[7] -= 1;
    }
    packet
}
