//! A second description of the program: in plain Rust, over slices, with the longest match found by looking at every route. Nothing here is
//! shared with the program but the actions' meaning.

use trieline_lpm::IpPrefix;
use trieline_router::{Action, Adjacency, PassReason};

use super::LO;

/// The answer for a packet: the verdict's name, and the frame that leaves if it was forwarded.
pub type Answer = (&'static str, Option<Vec<u8>>);

/// A step of the journey: the packet goes on, or this verdict ends it.
pub(super) type Step<T> = Result<T, &'static str>;

/// Routes of one port that forwards everything, given as an untagged port and, with the same settings, as VLANs.
pub struct Model {
    pub(super) routes: Vec<(IpPrefix, Action)>,
    pub(super) mac: [u8; 6],
    pub(super) vlans: Vec<u16>,
    /// The port combines ECN fields.
    pub ecn: bool,
}

impl Model {
    pub fn new(routes: &[(&str, Action)], mac: [u8; 6], vlans: &[u16]) -> Self {
        let routes = routes.iter().map(|(prefix, action)| (prefix.parse().unwrap(), action.clone()));
        Self { routes: routes.collect(), mac, vlans: vlans.to_vec(), ecn: false }
    }

    pub fn answer(&self, frame: &[u8]) -> Answer {
        self.journey(frame).map_or_else(|verdict| (verdict, None), |(verdict, out)| (verdict, Some(out)))
    }

    fn journey(&self, frame: &[u8]) -> Step<(&'static str, Vec<u8>)> {
        let packet = self.link(frame)?;
        let type_at = frame.len() - packet.len() - 2;
        match frame[type_at..type_at + 2] {
            [0x08, 0x00] => self.ipv4(&frame[..type_at + 2], packet),
            [0x86, 0xdd] => self.ipv6(&frame[..type_at + 2], packet),
            _ => Err("not_ip"),
        }
    }

    /// The part behind the link header.
    fn link<'f>(&self, frame: &'f [u8]) -> Step<&'f [u8]> {
        let (mac, mut rest) = (frame.get(..6).ok_or("not_ip")?, frame.get(14..).ok_or("not_ip")?);
        // Tags with id 0 come off, one with another id leads to its VLAN; more than four are the kernel's.
        let (mut vlan, mut last) = (0, &frame[12..14]);
        let mut tags = 0;
        while last == [0x81, 0x00] || last == [0x88, 0xa8] {
            let id = rest.get(..2).map(|tci| u16::from_be_bytes([tci[0], tci[1]]) & 0xfff);
            let whole = rest.len() >= 4 && tags < 4;
            let id = id.filter(|_| whole).ok_or_else(|| self.on_port(vlan).err().unwrap_or("not_ip"))?;
            if id != 0 && (vlan != 0 || last != [0x81, 0x00]) {
                return Err("no_port");
            }
            vlan += id;
            last = &rest[2..4];
            rest = &rest[4..];
            tags += 1;
        }
        self.on_port(vlan)?;
        if mac == self.mac { Ok(rest) } else { Err("mac_mismatch") }
    }

    fn on_port(&self, vlan: u16) -> Step<()> {
        if vlan == 0 || self.vlans.contains(&vlan) { Ok(()) } else { Err("no_port") }
    }

    fn route(&self, matches: impl Fn(&IpPrefix) -> Option<u16>) -> Option<&Action> {
        let matching = self.routes.iter().filter_map(|(prefix, action)| Some((matches(prefix)?, action)));
        matching.max_by_key(|(len, _)| *len).map(|(_, action)| action)
    }

    pub(super) fn route4(&self, destination: u32) -> Option<&Action> {
        self.route(|prefix| match prefix {
            IpPrefix::V4(prefix) if prefix.contains(destination) => Some(prefix.len()),
            _ => None,
        })
    }

    pub(super) fn route6(&self, destination: u128) -> Option<&Action> {
        self.route(|prefix| match prefix {
            IpPrefix::V6(prefix) if prefix.contains(destination) => Some(prefix.len()),
            _ => None,
        })
    }

    /// No packet from outside has an own address as its source.
    pub(super) fn foreign(&self, source: u32) -> Step<()> {
        let own = matches!(self.route4(source), Some(Action::Pass(PassReason::Local)));
        if own { Err("reverse_path") } else { Ok(()) }
    }

    fn ipv4(&self, link: &[u8], data: &[u8]) -> Step<(&'static str, Vec<u8>)> {
        let header = data.get(..20).ok_or("not_ip")?;
        match (header[0] >> 4, header[0] & 15) {
            (4, 5) => {}
            (4, 6..) => return Err("ipv4_options"),
            _ => return Err("ipv4_header"),
        }
        if ones_complement(header) != 0xffff {
            return Err("ipv4_checksum");
        }
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if len == 0 && data.len() > 0xffff {
            return Err("too_big");
        }
        if len < 20 || len > data.len() {
            return Err("ipv4_length");
        }
        let [source, destination] = addresses4(header);
        if special4(source) || special4(destination) {
            return Err("ipv4_special_purpose");
        }
        self.foreign(source)?;
        let action = self.route4(destination).ok_or("no_route")?;
        match action {
            Action::Pass(reason) => Err(reason.name()),
            Action::Drop(reason) => Err(reason.name()),
            Action::Forward(adjacency) => {
                if header[8] <= 1 {
                    return Err("ipv4_ttl");
                }
                fits(adjacency, len)?;
                Ok(("ipv4", framed(adjacency, 0x0800, &cut(next_hop4(data), len))))
            }
            Action::Encaps { adjacency, outer, headend } => {
                let (verdict, next, mut inner) = if headend.l2 {
                    ("h_encaps_l2", 143, carried(link, &data[..len])?)
                } else {
                    ("h_encaps_ipv4", 4, data[..len].to_vec())
                };
                if headend.rfc && !headend.l2 {
                    if header[8] <= 1 {
                        return Err("ipv4_ttl");
                    }
                    inner = next_hop4(&inner);
                }
                fits(adjacency, outer.len() + inner.len())?;
                let mut packet = pushed(outer, next, &inner);
                if headend.rfc {
                    let class = if headend.l2 { header[1] & 0xfc } else { header[1] };
                    packet[0] |= class >> 4;
                    packet[1] |= class << 4;
                }
                Ok((verdict, framed(adjacency, 0x86dd, &packet)))
            }
            _ => Err("no_action"),
        }
    }

    fn ipv6(&self, link: &[u8], data: &[u8]) -> Step<(&'static str, Vec<u8>)> {
        let header = data.get(..40).ok_or("not_ip")?;
        if header[0] >> 4 != 6 {
            return Err("ipv6_header");
        }
        if header[6] == 0 {
            return Err("ipv6_hop_by_hop");
        }
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if payload == 0 && data.len() > 40 + 0xffff {
            return Err("too_big");
        }
        if 40 + payload > data.len() {
            return Err("ipv6_length");
        }
        if 40 + payload > 0xffff {
            return Err("too_big");
        }
        let [source, destination] = addresses6(header);
        if special6(source) || special6(destination) {
            return Err("ipv6_special_purpose");
        }
        let (len, action) = (40 + payload, self.route6(destination).ok_or("no_route")?);
        match action {
            Action::Pass(reason) => Err(reason.name()),
            Action::Drop(reason) => Err(reason.name()),
            Action::Forward(adjacency) => {
                let out = next_hop6(data)?;
                fits(adjacency, len)?;
                Ok(("ipv6", framed(adjacency, 0x86dd, &cut(out, len))))
            }
            action => self.seg6(action, link, data, len),
        }
    }
}

pub(super) fn fits(adjacency: &Adjacency, len: usize) -> Step<()> {
    match adjacency {
        _ if len > usize::from(adjacency.mtu) => Err("too_big"),
        _ if adjacency.ifindex != LO => Err("no_device"),
        _ => Ok(()),
    }
}

/// The packet without what follows it.
pub(super) fn cut(mut packet: Vec<u8>, len: usize) -> Vec<u8> {
    packet.truncate(len);
    packet
}

pub(super) fn framed(adjacency: &Adjacency, ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [adjacency.destination, adjacency.source].concat();
    if let Some(vlan) = adjacency.vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    frame
}

/// The frame that H.Encaps.L2 carries.
pub(super) fn carried(link: &[u8], packet: &[u8]) -> Step<Vec<u8>> {
    if link.len() == 14 { Ok([link, packet].concat()) } else { Err("seg6_link") }
}

/// `inner` under the ready-made outer header.
pub(super) fn pushed(outer: &[u8], next_header: u8, inner: &[u8]) -> Vec<u8> {
    let mut packet = [outer, inner].concat();
    let payload = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
    packet[if outer.len() == 40 { 6 } else { 40 }] = next_header;
    packet
}

/// One hop on. The checksum is changed by what the TTL is changed by, so that a wrong one stays wrong by as much.
pub(super) fn next_hop4(data: &[u8]) -> Vec<u8> {
    let mut packet = data.to_vec();
    packet[8] -= 1;
    // RFC 1141, with Linux's two ways to write zero.
    let sum = u32::from(u16::from_be_bytes([packet[10], packet[11]])) + 0x0100;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = if sum == 0xffff { 0 } else { sum };
    packet[10..12].copy_from_slice(&(sum as u16).to_be_bytes());
    packet
}

pub(super) fn next_hop6(data: &[u8]) -> Step<Vec<u8>> {
    let mut packet = data.to_vec();
    packet[7] = packet[7].checked_sub(1).filter(|limit| *limit > 0).ok_or("ipv6_hop_limit")?;
    Ok(packet)
}

pub(super) fn ones_complement(bytes: &[u8]) -> u32 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

pub(super) fn addresses4(header: &[u8]) -> [u32; 2] {
    [12, 16].map(|at| u32::from_be_bytes(header[at..at + 4].try_into().unwrap()))
}

pub(super) fn addresses6(header: &[u8]) -> [u128; 2] {
    [8, 24].map(|at| u128::from_be_bytes(header[at..at + 16].try_into().unwrap()))
}

pub(super) fn special4(addr: u32) -> bool {
    matches!(addr >> 24, 0 | 127 | 224..)
}

/// ::/64 holds the unspecified, the loopback and the v4-mapped addresses.
pub(super) fn special6(addr: u128) -> bool {
    addr >> 64 == 0 || addr >> 118 == 0xfe80 >> 6 || addr >> 120 == 0xff
}
