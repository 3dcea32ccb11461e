//! Random frames: valid ones of every kind, mutated, nested, tagged, to odd MAC addresses, with bytes behind the packet.

use super::PORT_MAC;
use super::packet::*;
use trieline_testbed::random::Random;

/// Where random numbers begin: `TRIELINE_MUTATION_SEED`, or always at the same.
pub fn seed() -> u64 {
    std::env::var("TRIELINE_MUTATION_SEED").map_or(0x7472_6965_6c69_6e65, |seed| seed.parse().unwrap())
}

/// How many frames a test runs: `TRIELINE_MUTATION_FRAMES`, or the test's default.
pub fn volume(default: u64) -> u64 {
    std::env::var("TRIELINE_MUTATION_FRAMES").map_or(default, |count| count.parse().unwrap())
}

/// One to four changes: a byte, a bit, an interesting value, a cut, a longer tail.
pub fn mutate(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(frame.len());
        match random.below(6) {
            0 => frame[at] = random.bits() as u8,
            1 => frame[at] ^= 1 << random.below(8),
            2 => frame[at] = random.pick(&[0, 1, 2, 4, 41, 43, 127, 128, 255]),
            // Lengths are where it hurts: mostly near the headers.
            3 => {
                let header = 48.min(frame.len() - 12);
                frame[12 + at % header] = random.bits() as u8;
            }
            4 => frame.truncate(14.max(at)),
            _ => frame.resize(frame.len() + random.below(64), random.bits() as u8),
        }
    }
    // The checksum is mostly right, or the rest would never be looked at.
    if frame.len() >= 34 && frame[12..14] == [8, 0] && random.below(8) != 0 {
        let packet = edit_ipv4(frame.split_off(14), |_| {});
        frame.extend(packet);
    }
}

/// The link around a packet: none to three tags of both kinds with and without ids, the port's MAC address or another, and what follows.
pub fn dress(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    if random.one_in(4) {
        let other =
            [[0xff; 6], [1, 0, 0x5e, 0, 0, 5], [0x33, 0x33, 0, 0, 0, 1], [2, 0, 0, 0, 0, 77], PORT_MAC];
        frame[..6].copy_from_slice(&random.pick(&other));
    }
    if random.one_in(3) {
        let count = 1 + random.below(3) + 3 * usize::from(random.one_in(8));
        let tag = |random: &mut Random| {
            let id = random.pick(&[0, 0, 0, 0, 100, 7]);
            (random.pick(&[0x8100, 0x8100, 0x88a8]), (random.bits() as u16 & 0xf000) | id)
        };
        let tags: Vec<_> = (0..count).map(|_| tag(random)).collect();
        frame = tagged(&frame, &tags);
    }
    if random.one_in(4) {
        let most = if random.one_in(4) { 1500 } else { 26 };
        let longer = frame.len() + 1 + random.below(most);
        frame.resize(longer, random.bits() as u8);
    }
    frame
}

/// Extension headers in front of `body`, which begins with a header of kind `next`: the kind of the first, and all of them. Fragment
/// headers are those of whole packets, of first and of later fragments.
pub fn extensions(mut next: u8, mut body: Vec<u8>, random: &mut Random) -> (u8, Vec<u8>) {
    for _ in 0..if random.one_in(4) { 1 + random.below(8) } else { 1 + random.below(3) } {
        let kind = random.pick(&[0, 60, 60, 60, 44, 44, 51]);
        let header = match kind {
            44 => {
                let [high, low] = random.pick(&[0u16, 1, 1, 1, 8, 8 | 1, 0x4000]).to_be_bytes();
                vec![next, 0, high, low, 0, 0, 0, 1]
            }
            51 => vec![next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
            _ => {
                let eights = if random.one_in(3) { random.below(3) } else { 0 };
                let mut header = vec![next, eights as u8, 1, 4, 0, 0, 0, 0];
                header.resize(8 + 8 * eights, 0);
                header
            }
        };
        body = [header, body].concat();
        next = kind;
    }
    (next, body)
}

/// The packet's length field is smaller than the packet, or larger.
pub fn mislead(packet: &mut [u8], random: &mut Random) {
    let (at, own) = if packet[0] >> 4 == 6 { (4, packet.len() - 40) } else { (2, packet.len()) };
    let len = match random.below(6) {
        0 => 0,
        1 => own + 1 + random.below(40),
        2 => random.below(own + 1),
        _ => random.below(own / 8 + 1) * 8,
    };
    packet[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
}

/// A packet within packets to these addresses, each with or without an SRH that names more of them. Now and then one has extension
/// headers, or another length.
pub fn nest(packet: Vec<u8>, addresses: &[&str], random: &mut Random) -> Vec<u8> {
    let mut packet = packet;
    for _ in 0..random.below(4) {
        let mut next = if packet[0] >> 4 == 6 { 41 } else { 4 };
        let mut source = "2001:db8::9";
        if random.one_in(6) {
            source = "2001:db8:bad::2";
        }
        let mut to = random.pick(addresses);
        if random.one_in(2) {
            let segments: Vec<&str> = (0..1 + random.below(4)).map(|_| random.pick(addresses)).collect();
            let left = random.below(segments.len() + 1);
            to = segments[left.min(segments.len() - 1)];
            packet = srh(next, left as u8, &segments, &packet);
            next = 43;
        }
        if random.one_in(5) {
            (next, packet) = extensions(next, packet, random);
        }
        packet = outer(source, to, next, 64, &packet);
        if random.one_in(10) {
            mislead(&mut packet, random);
        }
    }
    packet
}
