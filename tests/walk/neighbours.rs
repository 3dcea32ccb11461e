//! The hosts at the other end of a node's links: they answer ARP and neighbour solicitations, and nothing else.

use crate::twin::macs;

/// The last byte of addresses that never answer.
const SILENT: u8 = 9;

/// The answer of the host at the other end of `link` to a frame; none when it has nothing to say.
pub(crate) fn answer(link: usize, frame: &[u8]) -> Option<Vec<u8>> {
    let mut at = 12;
    while frame.get(at..at + 2)? == [0x81, 0x00] {
        at += 4;
    }
    let [_, me] = macs(link);
    let packet = frame.get(at + 2..)?;
    let body = match frame.get(at..at + 2)? {
        [0x08, 0x06] => arp(packet, me)?,
        [0x86, 0xdd] => advertisement(packet, me)?,
        _ => return None,
    };
    let mut reply = [frame.get(6..12)?, &me, &frame[12..at + 2]].concat();
    reply.extend(body);
    Some(reply)
}

fn arp(packet: &[u8], me: [u8; 6]) -> Option<Vec<u8>> {
    let (sender, target) = (packet.get(14..18)?, packet.get(24..28)?);
    let is_question = packet.get(6..8)? == [0, 1] && sender != [0; 4] && sender != target;
    if !is_question || target[3] == SILENT {
        return None;
    }
    Some([&packet[..6], &[0, 2], &me, target, &packet[8..18]].concat())
}

fn advertisement(packet: &[u8], me: [u8; 6]) -> Option<Vec<u8>> {
    let (source, target) = (packet.get(8..24)?, packet.get(48..64)?);
    let is_question = packet.get(6) == Some(&58) && packet.get(40) == Some(&135);
    if !is_question || source == [0; 16] || target[15] == SILENT {
        return None;
    }
    // Solicited, overrides; then the target and its link-layer address.
    let mut message = [&[136, 0, 0, 0, 0x60, 0, 0, 0], target, &[2, 1], &me].concat();
    let length = (message.len() as u16).to_be_bytes();
    let pseudo = [target, source, &[0, 0], &length, &[0, 0, 0, 58], &message].concat();
    let sum = trieline_testbed::craft::checksum(&pseudo);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut reply = vec![0x60, 0, 0, 0, length[0], length[1], 58, 255];
    reply.extend(target);
    reply.extend(source);
    reply.extend(message);
    Some(reply)
}
