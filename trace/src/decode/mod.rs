//! Finds messages and their ids in the bytes that hooks have captured.

mod framer;
mod http;
mod id;
mod length;
mod mqtt;
mod nats;
mod pattern;
mod protocol;
mod redis;
mod replies;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::str::FromStr;

use crate::record::{Flags, Kind, Point, Record};
pub use framer::Decoded;
use framer::Framer;
use length::Lengths;
pub use length::{Length, MessageId};
pub use pattern::Pattern;
pub use protocol::Decoder;
use protocol::{CAPTURE, Direction, Found, Id, Protocol};
pub(crate) use replies::ANSWER;

/// All protocols that the tracer reads, each in a file of its own. Help, errors and property tests follow from this list.
pub const DECODERS: &[&Decoder] = &[&mqtt::DECODER, &nats::DECODER, &redis::DECODER, &http::DECODER];

/// A connection that is silent for so long has nothing open that was not seen.
const REST_NS: u64 = 10_000_000_000;
/// Ids that are kept, each with the socket whose messages can be read in two ways.
const OTHERS_MAX: usize = 1 << 12;

/// Sockets whose bytes are followed at a time; beyond it those that have been silent longest are forgotten.
const SOCKETS_MAX: usize = 1 << 16;

/// The way to read the messages' bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Decode {
    /// An id in what each call moved: a call is a message.
    Pattern(Pattern),
    /// A protocol of [`DECODERS`].
    Protocol(&'static Decoder),
    /// Messages with their length before them; without a place for the id, it is made of a message's first bytes.
    Length(Length, Option<MessageId>),
}

impl FromStr for Decode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(decoder) = DECODERS.iter().find(|decoder| decoder.name == text) {
            return Ok(Decode::Protocol(decoder));
        }
        match text.strip_prefix("length:") {
            Some(length) => Ok(Decode::Length(length.parse()?, None)),
            None => {
                let names: Vec<&str> = DECODERS.iter().map(|decoder| decoder.name).collect();
                Err(format!("decoder `{text}`: expected {} or length:OFFSET:WIDTH", names.join(", ")))
            }
        }
    }
}

impl Decode {
    /// Bytes of a call that are captured by default, where the protocol does not need others.
    pub const CAPTURE: u32 = CAPTURE;

    /// Bytes of a call that are captured by default.
    pub fn capture(&self) -> u32 {
        if let Decode::Protocol(decoder) = self { decoder.capture } else { Decode::CAPTURE }
    }

    /// Whether a message may lie in several calls, or several in one: then each socket must be distinct from the next that has its number.
    pub(crate) fn is_of_streams(&self) -> bool {
        !matches!(self, Decode::Pattern(_))
    }

    /// For one socket.
    fn protocol(&self, socket: u64) -> Option<Box<dyn Protocol>> {
        Some(match self {
            Decode::Pattern(_) => return None,
            Decode::Protocol(decoder) => (decoder.open)(socket),
            Decode::Length(at, id) => Box::new(Lengths { at: *at, id: id.clone() }),
        })
    }
}

/// A socket's two directions.
#[derive(Debug)]
struct Conversation {
    protocol: Box<dyn Protocol>,
    ways: [Framer; 2],
    last_ns: u64,
}

/// Decoding under way.
#[derive(Debug)]
pub(crate) struct Decoding {
    decode: Decode,
    sockets: HashMap<u64, Conversation>,
    /// Ids that messages had if they were read in the other way, and their sockets.
    others: HashMap<u64, u64>,
    decoded: Decoded,
}

impl Decoding {
    pub(crate) fn new(decode: Decode) -> Decoding {
        Decoding { decode, sockets: HashMap::new(), others: HashMap::new(), decoded: Decoded::default() }
    }

    /// The number is another socket's now.
    pub(crate) fn forget(&mut self, socket: u64) {
        self.sockets.remove(&socket);
    }

    /// Calls before this time may be missing, of unknown sockets: so no socket was silent until then.
    pub(crate) fn lose(&mut self, time_ns: u64) {
        for Conversation { protocol, ways, last_ns } in self.sockets.values_mut() {
            *last_ns = time_ns.max(*last_ns);
            for (framer, direction) in ways.iter_mut().zip([Direction::In, Direction::Out]) {
                framer.lose(protocol.as_mut(), direction);
            }
        }
    }

    fn shrink(&mut self) {
        let mut times: Vec<u64> = self.sockets.values().map(|socket| socket.last_ns).collect();
        let (_, middle_ns, _) = times.select_nth_unstable(SOCKETS_MAX / 2);
        let middle_ns = *middle_ns;
        self.sockets.retain(|_, socket| socket.last_ns > middle_ns);
    }

    pub(crate) fn decoded(&self) -> Decoded {
        self.decoded
    }

    /// Passes on the messages in what a call moved; `seen` are its first bytes.
    pub(crate) fn take(&mut self, record: Record, seen: &[u8], each: &mut impl FnMut(Record)) {
        if let Decode::Pattern(pattern) = &self.decode {
            return each(pattern.identify(record, seen));
        }
        if record.transport.is_stream() {
            if self.sockets.len() >= SOCKETS_MAX {
                self.shrink();
            }
            let conversation = match self.sockets.entry(record.socket) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let Some(new) = Conversation::new(&self.decode, record.socket) else { return };
                    place.insert(new)
                }
            };
            let mut ids = Vec::new();
            conversation.feed(&record, seen, &mut self.decoded, &mut |record| {
                ids.extend(record.id);
                each(record);
            });
            if let Some(id) = conversation.protocol.other_id() {
                if self.others.len() >= OTHERS_MAX {
                    self.others.clear();
                }
                self.others.insert(id, record.socket);
            }
            // If another socket carries it, the message is read as that socket's protocol wants.
            for id in ids {
                let other = self.others.get(&id).filter(|other| **other != record.socket).copied();
                if let Some(other) = other {
                    self.others.remove(&id);
                    if let Some(other) = self.sockets.get_mut(&other) {
                        other.protocol.read_otherwise();
                    }
                }
            }
        } else if record.flags.is_several() {
            each(Record { flags: record.flags.with(Flags::NO_BUFFER), ..record });
        } else if let Some(mut alone) = Conversation::new(&self.decode, record.socket) {
            // A datagram begins with a message and ends with one.
            alone.feed(&record, seen, &mut self.decoded, each);
            self.decoded.malformed += u64::from(alone.ways.iter().any(Framer::is_inside));
        }
    }
}

impl Conversation {
    /// `None`: what is looked for needs no messages to be cut.
    fn new(decode: &Decode, socket: u64) -> Option<Conversation> {
        Some(Conversation { protocol: decode.protocol(socket)?, ways: Default::default(), last_ns: 0 })
    }

    fn feed(&mut self, record: &Record, seen: &[u8], decoded: &mut Decoded, each: &mut impl FnMut(Record)) {
        let direction = if record.point == Point::Received { Direction::In } else { Direction::Out };
        let kept = record.flags.0 & (Flags::CLIENT | Flags::NO_POSITION);
        let rest = Record { id: None, flags: Flags(kept | Flags::REST), ..*record };
        if self.last_ns > 0 && record.time_ns.saturating_sub(self.last_ns) >= REST_NS {
            self.protocol.rest();
            each(Record { bytes: 0, ..rest });
        }
        self.last_ns = record.time_ns;
        let framer = &mut self.ways[direction as usize];
        if record.flags.is_several() {
            decoded.unseen += 1;
            decoded.bytes += u64::from(record.bytes);
            each(rest);
            return framer.lose(self.protocol.as_mut(), direction);
        }
        let before = decoded.bytes;
        let is_stream = record.transport.is_stream();
        let mut pass = |record: Record, Found { kind, id }: Found, behind: u64| {
            let position =
                if is_stream { record.position.wrapping_sub(behind as u32) } else { record.position };
            let (id, flag) = match id {
                Id::Is(id) => (Some(id), Flags::HAS_ID),
                Id::Absent if kind == Kind::Control => (None, 0),
                Id::Absent => (None, Flags::ABSENT),
                Id::Unseen => (None, Flags::NO_BUFFER),
                Id::Early => (None, Flags::EARLY),
            };
            each(Record { kind, id, position, flags: Flags(flag | kept), ..record });
        };
        framer.feed(self.protocol.as_mut(), direction, record, seen, decoded, &mut pass);
        if framer.is_lost() {
            let bytes = (decoded.bytes - before).try_into().unwrap_or(u32::MAX);
            each(Record { bytes, ..rest });
        }
        if self.protocol.has_forgotten() {
            each(Record { bytes: 0, ..rest });
        }
    }
}
