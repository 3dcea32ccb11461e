//! A decoder: the protocol's name, and how it cuts bytes into messages with ids.
//!
//! A new one is a file of this folder with a `static DECODER`, and its entry in [`super::DECODERS`].

use super::id::LOOKED_AT;
use crate::record::Kind;

/// Bytes of a part that are kept; what must be read to know its length cannot be longer.
pub(super) const KEPT: usize = 8192;
/// Bytes of a call that are captured, unless a decoder or the user wants others.
pub(super) const CAPTURE: u32 = 256;

/// A protocol whose messages the tracer reads.
#[derive(Debug)]
pub struct Decoder {
    /// The name on the command line.
    pub name: &'static str,
    /// The protocol and its versions, in a few words.
    pub about: &'static str,
    /// Bytes of a call that are captured by default.
    pub capture: u32,
    /// Begins a socket, which has this number.
    pub(super) open: fn(u64) -> Box<dyn Protocol>,
    /// Messages for the property tests.
    #[cfg(test)]
    pub(super) examples: Examples,
}

/// The messages of a protocol that property tests make.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Examples {
    /// A message with this topic and payload. The number is the kind: 0 to 2, whatever those are.
    pub(super) message: fn(&str, &[u8], u8) -> Vec<u8>,
    /// Words that the decoder looks for.
    pub(super) words: &'static [&'static [u8]],
}

/// How a protocol cuts its messages. One for each socket, as what goes one way may tell what comes back the other.
pub(super) trait Protocol: std::fmt::Debug {
    /// The part that begins with these bytes; called again with more of them after [`Part::More`].
    fn part(&mut self, direction: Direction, bytes: &[u8]) -> Part;
    /// A message begins.
    fn begin(&mut self, _way: Direction) {}
    /// The part has ended. `bytes`: its first ones, [`KEPT`] or as many as are known.
    fn end(&mut self, direction: Direction, length: u64, bytes: &[u8]) -> End;
    /// The next bytes begin with a message, whatever came before.
    fn restart(&mut self, direction: Direction);
    /// Nothing went either way for a long time.
    fn rest(&mut self) {}
    /// Whether requests were forgotten since the last call: those before now will have no answer.
    fn has_forgotten(&mut self) -> bool {
        false
    }
    /// The id of the last message if it is read in another way, where the socket's bytes leave two.
    fn other_id(&mut self) -> Option<u64> {
        None
    }
    /// Messages are to be read in that other way from now on.
    fn read_otherwise(&mut self) {}
}

/// Direction, as the traced process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

impl Direction {
    pub(super) fn other(self) -> Direction {
        if self == Direction::In { Direction::Out } else { Direction::In }
    }
}

/// Facts about a part by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nothing yet.
    More,
    /// It has so many bytes, those included: at least one.
    Of(u64),
    /// No part begins so.
    Malformed,
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The message goes on.
    More,
    /// Its message ends with it.
    Message(Found),
    /// Its content makes no sense.
    Malformed,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) id: Id,
}

impl Found {
    /// A message that is not passed on: of the connection, or an acknowledgement.
    pub(super) const CONTROL: Found = Found { kind: Kind::Control, id: Id::Absent };
}

/// A message's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Is(u64),
    /// It has none.
    Absent,
    /// It lies where the bytes are not known.
    Unseen,
    /// An answer began before its request had come to its end: it is one of the two.
    Early,
}

/// Whether of `length` bytes as many are known as ids are made of.
pub(super) fn is_enough(length: u64, known: &[u8]) -> bool {
    known.len() as u64 >= length.min(LOOKED_AT as u64)
}
