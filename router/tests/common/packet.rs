//! Frames as the tests need them: small, whole, with correct checksums unless a test breaks them.

use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder};

use super::PORT_MAC;
use trieline_testbed::craft;
pub use trieline_testbed::craft::{edit_ipv4, link, tagged};

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
    craft::ipv6(source, destination, (next_header, inner), |header| header[7] = hop_limit)
}

/// SRH (RFC 8754) over `inner`.
pub fn srh(next_header: u8, segments_left: u8, segments: &[&str], inner: &[u8]) -> Vec<u8> {
    craft::srh(segments, segments_left, (next_header, inner))
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
