//! The fate of a frame: the frames that left because of it, byte for byte, and the ICMP errors about it.

use std::collections::BTreeSet;
use trieline_testbed::wire::Caught;

/// Stands before the number of a frame, again and again in its payload: each fragment has it.
pub(crate) const MARK: &[u8; 4] = b"tlwk";

/// A frame that left: the link that it came by, and its bytes without its number.
pub(crate) type Out = (usize, Vec<u8>);

/// The end of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    /// Frames that left, in order of link and bytes.
    pub(crate) out: Vec<Out>,
    /// ICMP errors and echo replies (version of IP, type, code). Their bytes depend on the moment.
    pub(crate) icmp: BTreeSet<(u8, u8, u8)>,
}

impl Fate {
    /// Adds what was caught.
    pub(crate) fn add(&mut self, link: usize, seen: Seen) {
        match seen {
            Seen::Packet(bytes) => {
                self.out.push((link, bytes));
                self.out.sort();
            }
            // Neighbours that do not answer are reported when the kernel gives up, which may be any time.
            Seen::Icmp(4, 3, 1) | Seen::Icmp(6, 1, 3) | Seen::Noise => {}
            Seen::Icmp(version, kind, code) => {
                self.icmp.insert((version, kind, code));
            }
        }
    }

    /// In words, for a report.
    pub(crate) fn describe(&self) -> String {
        let mut lines: Vec<String> =
            self.out.iter().map(|(link, bytes)| format!("leaves by n{link}: {}", hex(bytes))).collect();
        lines.extend(self.icmp.iter().map(|(version, kind, code)| format!("ICMPv{version} {kind}/{code}")));
        if lines.is_empty() {
            lines.push("nothing leaves".into());
        }
        lines.join("\n    ")
    }
}

/// Bytes as text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A caught frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A packet of the walk, with its number taken out.
    Packet(Vec<u8>),
    /// An ICMP error that quotes a packet of the walk, or an echo reply.
    Icmp(u8, u8, u8),
    /// Something that the node says now and then, such as a redirect.
    Noise,
}

/// The number of a frame, and what it is; none when it is not of the walk.
pub(crate) fn recognise(caught: &Caught) -> Option<(u32, Seen)> {
    let mut bytes = caught.frame.clone();
    let mut number = None;
    let mut at = 0;
    while at + 8 <= bytes.len() {
        if &bytes[at..at + 4] == MARK {
            number.get_or_insert_with(|| {
                u32::from_be_bytes([bytes[at + 4], bytes[at + 5], bytes[at + 6], bytes[at + 7]])
            });
            bytes[at + 4..at + 8].fill(0);
            at += 8;
        } else {
            at += 1;
        }
    }
    // The rest of a number that the packet's end cuts off.
    if let Some(start) = bytes.len().checked_sub(7).filter(|_| number.is_some()) {
        let cut = (start..bytes.len()).find(|&at| bytes[at..].starts_with(MARK));
        if let Some(cut) = cut {
            bytes[cut + 4..].fill(0);
        }
    }
    let seen = ethernet(&bytes).unwrap_or_else(|| Seen::Packet(bytes.clone()));
    number.map(|number| (number, seen))
}

fn ethernet(frame: &[u8]) -> Option<Seen> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
        at += 4;
    }
    match frame.get(at..at + 2)? {
        [0x08, 0x00] => ipv4(frame.get(at + 2..)?),
        [0x86, 0xdd] => ipv6(frame.get(at + 2..)?),
        _ => None,
    }
}

fn ipv4(packet: &[u8]) -> Option<Seen> {
    let header = usize::from(packet.first()? & 15) * 4;
    if packet.len() < 20 || (u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff) != 0 {
        return None;
    }
    let inside = packet.get(header..)?;
    match packet[9] {
        1 => match *inside.first()? {
            kind @ (0 | 3 | 11 | 12) => Some(Seen::Icmp(4, kind, *inside.get(1)?)),
            5 => Some(Seen::Noise),
            _ => None,
        },
        next => inner(next, inside),
    }
}

fn ipv6(packet: &[u8]) -> Option<Seen> {
    let mut next = *packet.get(6)?;
    let mut at = 40;
    for _ in 0..8 {
        let header = packet.get(at..)?;
        match next {
            0 | 43 | 60 => {
                next = *header.first()?;
                at += (usize::from(*header.get(1)?) + 1) * 8;
            }
            44 if u16::from_be_bytes([*header.get(2)?, *header.get(3)?]) & 0xfff8 == 0 => {
                next = *header.first()?;
                at += 8;
            }
            // The rest of an error that the node sent in fragments.
            44 if *header.first()? == 58 => return Some(Seen::Noise),
            58 => {
                return match *header.first()? {
                    kind @ (1..=4 | 129) => Some(Seen::Icmp(6, kind, *header.get(1)?)),
                    133..=137 => Some(Seen::Noise),
                    _ => None,
                };
            }
            other => return inner(other, header),
        }
    }
    None
}

fn inner(protocol: u8, packet: &[u8]) -> Option<Seen> {
    match protocol {
        4 => ipv4(packet),
        41 => ipv6(packet),
        143 => ethernet(packet),
        _ => None,
    }
}
