//! MQTT 3.1.1 and 5.0 (OASIS): the fixed header has the packet's type and its length.
//!
//! A PUBLISH is known by its topic and its payload; the broker gives it another packet identifier, and may change its flags. In a
//! connection whose CONNECT was not seen, packets are read as those of 3.1.1.

use super::framer::{End, Found, Id, Part, Protocol, Way, is_enough};
use super::id::Hash;
use crate::record::Kind;

const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const VERSION_5: u8 = 5;

#[derive(Debug, Default)]
pub(super) struct Mqtt {
    version: u8,
}

/// A number of seven bits a byte (1.5.5), with its own bytes; `None`: it has more than four, or does not end.
fn variable(bytes: &[u8]) -> Option<(u64, usize)> {
    let end = bytes.iter().take(4).position(|byte| byte & 0x80 == 0)?;
    let number = bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    Some((number, end + 1))
}

/// Bytes with their length before them.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

impl Mqtt {
    /// Topic and payload of what follows the fixed header; `None`: they are not in what is known.
    fn publish<'a>(&self, flags: u8, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (topic, mut rest) = counted(bytes)?;
        if flags & 6 != 0 {
            rest = rest.get(2..)?;
        }
        if self.version == VERSION_5 {
            let (properties, own) = variable(rest)?;
            rest = rest.get(own + properties as usize..)?;
        }
        Some((topic, rest))
    }
}

impl Protocol for Mqtt {
    fn part(&mut self, _: Way, bytes: &[u8]) -> Part {
        let Some((head, rest)) = bytes.split_first() else { return Part::More };
        let is_qos_3 = head >> 4 == PUBLISH && head & 6 == 6;
        if head >> 4 == 0 || is_qos_3 {
            return Part::Malformed;
        }
        match variable(rest) {
            Some((length, own)) => Part::Of(1 + own as u64 + length),
            None if rest.len() >= 4 => Part::Malformed,
            None => Part::More,
        }
    }

    fn end(&mut self, _: Way, length: u64, bytes: &[u8]) -> End {
        let Some((own, head)) = bytes.get(1..).and_then(variable).map(|(_, own)| (own, bytes[0])) else {
            return End::Malformed;
        };
        let body = &bytes[1 + own..];
        let is_whole = bytes.len() as u64 == length;
        match head >> 4 {
            CONNECT => match counted(body).and_then(|(_, rest)| rest.first()) {
                Some(version) => {
                    self.version = *version;
                    End::Message(Found::CONTROL)
                }
                None if is_whole => End::Malformed,
                None => End::Message(Found::CONTROL),
            },
            PUBLISH => {
                let id = match self.publish(head, body) {
                    Some((topic, payload)) => {
                        let bytes = length - (bytes.len() - payload.len()) as u64;
                        let hash = Hash::default().part(topic.len() as u64, topic).part(bytes, payload);
                        if is_enough(bytes, payload) { Id::Is(hash.id()) } else { Id::Unseen }
                    }
                    None if is_whole => return End::Malformed,
                    None => Id::Unseen,
                };
                End::Message(Found { kind: Kind::Publish, id })
            }
            _ => End::Message(Found::CONTROL),
        }
    }

    fn restart(&mut self, _: Way) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::tests::found;

    #[test]
    fn a_publish_is_its_topic_and_payload() {
        let id = |packet: &[u8]| match found(&mut Mqtt::default(), packet).as_slice() {
            [Found { kind: Kind::Publish, id: Id::Is(id) }] => *id,
            other => panic!("{other:?}"),
        };
        let plain = id(b"\x30\x05\0\x01tab");
        assert_eq!(plain, id(b"\x3b\x07\0\x01t\x12\x34ab"), "QoS 1, retained, again");
        assert_ne!(plain, id(b"\x30\x05\0\x02tab"));
        assert_ne!(plain, id(b"\x30\x05\0\x01tac"));
    }

    #[test]
    fn properties_are_passed_over_in_version_5() {
        let connect = b"\x10\x0d\0\x04MQTT\x05\x02\0\x3c\0\0\0";
        let five = [&connect[..], b"\x30\x08\0\x01t\x02\x01\x01ab"].concat();
        let [control, publish] = found(&mut Mqtt::default(), &five)[..] else { panic!() };
        assert_eq!(control, Found::CONTROL);
        assert_eq!([publish], found(&mut Mqtt::default(), b"\x30\x05\0\x01tab")[..]);
    }

    #[test]
    fn what_is_no_packet() {
        let mut mqtt = Mqtt::default();
        assert_eq!(mqtt.part(Way::In, b"\x00\x00"), Part::Malformed);
        assert_eq!(mqtt.part(Way::In, b"\x36\x00"), Part::Malformed);
        assert_eq!(mqtt.part(Way::In, b"\x30\xff\xff\xff\xff\x01"), Part::Malformed);
        assert_eq!(mqtt.part(Way::In, b"\x30\xff\xff"), Part::More);
        assert_eq!(mqtt.part(Way::In, b"\x30\xff\x01"), Part::Of(3 + 255));
        assert_eq!(mqtt.end(Way::In, 4, b"\x30\x02\0\x09"), End::Malformed);
    }
}
