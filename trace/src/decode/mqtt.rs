//! MQTT 3.1.1 and 5.0 (OASIS): the fixed header has the packet's type and its length.
//!
//! A PUBLISH is known by its topic and its payload; the broker gives it another packet identifier, and may change its flags. In 5.0 it
//! may say by a number which topic of the same connection and direction it means (3.3.2.3.4). If a connection's CONNECT was not seen, its
//! packets are read as those of 3.1.1. That ends when another connection carries the message that one of them is if it is read as 5.0.

use std::collections::HashMap;

use super::id::Hash;
use super::protocol::{CAPTURE, Decoder, Direction, End, Found, Id, Part, Protocol, is_enough};
use crate::record::Kind;

/// The decoder.
pub(super) static DECODER: Decoder = Decoder {
    name: "mqtt",
    about: "MQTT 3.1.1 and 5.0",
    capture: CAPTURE,
    open: |_| Box::new(Mqtt::default()),
    #[cfg(test)]
    examples: tests::EXAMPLES,
};

const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const VERSION_3: u8 = 4;
const VERSION_5: u8 = 5;
/// Property: Topic Alias.
const TOPIC_ALIAS: u8 = 0x23;

#[derive(Debug, Default)]
struct Mqtt {
    /// 0: not known.
    version: u8,
    /// The last message's id if it is of version 5, where that is not known.
    other: Option<u64>,
    /// Of each direction the topics that have a number, as the beginnings of ids.
    topics: [HashMap<u16, Hash>; 2],
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

/// The Topic Alias among a PUBLISH's properties (2.2.2.2); `Err`: they are none.
fn topic_alias(mut properties: &[u8]) -> Result<Option<u16>, ()> {
    while let Some((kind, rest)) = properties.split_first() {
        let after = match kind {
            0x01 => rest.get(1..),
            0x02 => rest.get(4..),
            0x03 | 0x08 | 0x09 => counted(rest).map(|(_, rest)| rest),
            0x0b => variable(rest).and_then(|(_, own)| rest.get(own..)),
            0x26 => counted(rest).and_then(|(_, rest)| counted(rest)).map(|(_, rest)| rest),
            &TOPIC_ALIAS => {
                return rest.first_chunk().map(|alias| Some(u16::from_be_bytes(*alias))).ok_or(());
            }
            _ => None,
        };
        properties = after.ok_or(())?;
    }
    Ok(None)
}

/// A PUBLISH behind its fixed header.
#[derive(Debug)]
struct Publish<'a> {
    topic: &'a [u8],
    properties: &'a [u8],
    payload: &'a [u8],
}

impl Mqtt {
    /// `None`: it does not end in what is known.
    fn publish<'a>(&self, flags: u8, bytes: &'a [u8]) -> Option<Publish<'a>> {
        let (topic, mut rest) = counted(bytes)?;
        if flags & 6 != 0 {
            rest = rest.get(2..)?;
        }
        let mut properties = &rest[..0];
        if self.version == VERSION_5 {
            let (length, own) = variable(rest)?;
            (properties, rest) = rest.get(own..)?.split_at_checked(length as usize)?;
        }
        Some(Publish { topic, properties, payload: rest })
    }

    /// The id of a PUBLISH if it is of version 5; `length`: its own behind the fixed header, with the first bytes in `body`.
    fn id_of_5(&self, direction: Direction, flags: u8, body: &[u8], length: u64) -> Option<u64> {
        let mut five = Mqtt { version: VERSION_5, other: None, topics: Default::default() };
        let publish = five.publish(flags, body)?;
        let bytes = length - (body.len() - publish.payload.len()) as u64;
        let topic = five.topic(direction, &publish).ok()??;
        is_enough(bytes, publish.payload).then(|| topic.part(bytes, publish.payload).id())
    }

    /// The beginning of the id: the topic that is written, or that the number stands for; `Ok(None)`: that one was set unseen.
    fn topic(&mut self, direction: Direction, publish: &Publish) -> Result<Option<Hash>, ()> {
        let topics = &mut self.topics[direction as usize];
        let alias = topic_alias(publish.properties)?;
        let written = Hash::default().part(publish.topic.len() as u64, publish.topic);
        match (publish.topic, alias) {
            ([], Some(alias)) => Ok(topics.get(&alias).copied()),
            ([], None) if self.version == VERSION_5 => Err(()),
            (_, alias) => {
                alias.map(|alias| topics.insert(alias, written));
                Ok(Some(written))
            }
        }
    }
}

impl Protocol for Mqtt {
    fn part(&mut self, _: Direction, bytes: &[u8]) -> Part {
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

    fn end(&mut self, direction: Direction, length: u64, bytes: &[u8]) -> End {
        let Some((own, head)) = bytes.get(1..).and_then(variable).map(|(_, own)| (own, bytes[0])) else {
            return End::Malformed;
        };
        let body = &bytes[1 + own..];
        let is_whole = bytes.len() as u64 == length;
        match head >> 4 {
            CONNECT => match counted(body).and_then(|(_, rest)| rest.first()) {
                Some(version) => {
                    *self = Mqtt { version: *version, ..Mqtt::default() };
                    End::Message(Found::CONTROL)
                }
                None if is_whole => End::Malformed,
                None => End::Message(Found::CONTROL),
            },
            PUBLISH => {
                if self.version == 0 {
                    self.other =
                        self.id_of_5(direction, head, body, length - (bytes.len() - body.len()) as u64);
                    if self.other.is_none() && is_whole {
                        self.version = VERSION_3;
                    }
                }
                let id = match self.publish(head, body) {
                    Some(publish) => {
                        let Ok(topic) = self.topic(direction, &publish) else { return End::Malformed };
                        let bytes = length - (bytes.len() - publish.payload.len()) as u64;
                        let is_known = is_enough(bytes, publish.payload);
                        let topic = topic.filter(|_| is_known);
                        topic.map_or(Id::Unseen, |topic| Id::Is(topic.part(bytes, publish.payload).id()))
                    }
                    None if is_whole => return End::Malformed,
                    None => {
                        // It may have given any number to its topic.
                        self.topics[direction as usize].clear();
                        Id::Unseen
                    }
                };
                End::Message(Found { kind: Kind::Publish, id })
            }
            _ => End::Message(Found::CONTROL),
        }
    }

    fn restart(&mut self, direction: Direction) {
        self.topics[direction as usize].clear();
    }

    fn other_id(&mut self) -> Option<u64> {
        self.other.take()
    }

    fn read_otherwise(&mut self) {
        if self.version == 0 {
            self.version = VERSION_5;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::protocol::Examples;
    use crate::decode::tests::found;

    pub(super) const EXAMPLES: Examples = Examples {
        message: |topic, payload, kind| {
            if kind == 0 {
                return vec![0xc0, 0];
            }
            let identifier: &[u8] = if kind == 1 { b"" } else { b"\x12\x34" };
            let mut rest = 2 + topic.len() + identifier.len() + payload.len();
            let mut packet = vec![0x30 | (kind - 1) << 1];
            while rest > 127 {
                packet.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            packet.extend([rest as u8, 0, topic.len() as u8]);
            [&packet[..], topic.as_bytes(), identifier, payload].concat()
        },
        words: &[b"\x30", b"\x10", b"\0", b"\xff"],
    };

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

    /// A PUBLISH of version 5 with these properties.
    fn publish(topic: &[u8], properties: &[u8], payload: &[u8]) -> Vec<u8> {
        let body =
            [&(topic.len() as u16).to_be_bytes()[..], topic, &[properties.len() as u8], properties, payload]
                .concat();
        [&[0x30, body.len() as u8], &body[..]].concat()
    }

    #[test]
    fn a_number_stands_for_the_topic_that_had_it_last_in_this_direction() {
        let mut mqtt = Mqtt { version: VERSION_5, ..Mqtt::default() };
        let mut id = |direction, packet: Vec<u8>| match mqtt.end(direction, packet.len() as u64, &packet) {
            End::Message(Found { kind: Kind::Publish, id }) => id,
            other => panic!("{other:?}"),
        };
        let [tab, uab] = [b"t", b"u"].map(|topic| id(Direction::In, publish(topic, b"", b"ab")));
        assert!(tab != uab && matches!(tab, Id::Is(_)));
        // Before the number others: of a byte, of four, text, a pair of texts, a number of one or more bytes.
        let others = b"\x01\x01\x02\0\0\0\x09\x08\0\x01r\x26\0\x01k\0\x01v\x0b\x81\x01";
        let seven = [&others[..], b"\x23\0\x07"].concat();
        assert_eq!(id(Direction::In, publish(b"", &seven, b"ab")), Id::Unseen, "not set yet");
        assert_eq!(
            id(Direction::In, publish(b"t", &seven, b"xy")),
            id(Direction::In, publish(b"t", b"", b"xy"))
        );
        assert_eq!(id(Direction::In, publish(b"", &seven, b"ab")), tab);
        assert_eq!(id(Direction::Out, publish(b"", &seven, b"ab")), Id::Unseen, "the other direction");
        assert_eq!(id(Direction::In, publish(b"u", &seven, b"ab")), uab);
        assert_eq!(id(Direction::In, publish(b"", &seven, b"ab")), uab, "it is another's now");

        // A packet without captured properties may have changed any.
        let cut = publish(b"t", &seven, b"ab");
        assert!(matches!(mqtt.end(Direction::In, cut.len() as u64, &cut[..8]), End::Message(_)));
        let again = publish(b"", &seven, b"ab");
        assert_eq!(
            mqtt.end(Direction::In, again.len() as u64, &again),
            End::Message(Found { kind: Kind::Publish, id: Id::Unseen })
        );
        let neither = publish(b"", others, b"ab");
        assert_eq!(mqtt.end(Direction::In, neither.len() as u64, &neither), End::Malformed);
        let unknown = publish(b"t", b"\x77\x01", b"ab");
        assert_eq!(mqtt.end(Direction::In, unknown.len() as u64, &unknown), End::Malformed);
    }

    #[test]
    fn malformed_packets_are_refused() {
        let mut mqtt = Mqtt::default();
        assert_eq!(mqtt.part(Direction::In, b"\x00\x00"), Part::Malformed);
        assert_eq!(mqtt.part(Direction::In, b"\x36\x00"), Part::Malformed);
        assert_eq!(mqtt.part(Direction::In, b"\x30\xff\xff\xff\xff\x01"), Part::Malformed);
        assert_eq!(mqtt.part(Direction::In, b"\x30\xff\xff"), Part::More);
        assert_eq!(mqtt.part(Direction::In, b"\x30\xff\x01"), Part::Of(3 + 255));
        assert_eq!(mqtt.end(Direction::In, 4, b"\x30\x02\0\x09"), End::Malformed);
    }
}
