//! Cuts one direction of a socket into messages: several in one call, or one over many, by the protocol's lengths.
//!
//! A message is one part or several; the first bytes of each give its length. Of what a call moved only the first bytes
//! may be known: lengths lead over what is not. Where a length itself is not known, the next call is taken to begin with a message.

use super::protocol::{Direction, End, Found, KEPT, Part, Protocol};
use crate::record::Record;

/// Counts of unread bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Calls with bytes that are not of the protocol; what follows them in the call is passed over.
    pub malformed: u64,
    /// Calls in which a message began behind the captured bytes, so that its length is not known.
    pub unseen: u64,
    /// Bytes of both kinds of calls that were passed over. The number of their messages is not known.
    pub bytes: u64,
}

/// Receives a message: its record, its kind and id, and how many bytes of the call lie behind it.
type Each<'a> = dyn FnMut(Record, Found, u64) + 'a;

/// The state between two calls.
#[derive(Debug, Default)]
pub(super) struct Framer {
    /// First bytes of the part.
    head: Vec<u8>,
    /// Bytes behind `head` were not seen.
    is_cut: bool,
    /// Bytes of the part so far.
    have: u64,
    length: Option<u64>,
    /// Bytes of the message in parts before this one.
    before: u64,
    /// The record with the message's first byte.
    first: Option<Record>,
    is_lost: bool,
}

impl Framer {
    /// The next call is taken to begin with a message. The protocol knows at once: what comes the other way meanwhile is not lost.
    pub(super) fn lose(&mut self, protocol: &mut dyn Protocol, direction: Direction) {
        self.is_lost = true;
        protocol.restart(direction);
    }

    /// Whether the rest of the last call was passed over.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether a message has begun and not ended.
    pub(super) fn is_inside(&self) -> bool {
        self.first.is_some()
    }

    /// The bytes that a call moved: `record.bytes`, with the first ones in `seen`. Each message that ends in it goes to `each`.
    pub(super) fn feed(
        &mut self,
        protocol: &mut dyn Protocol,
        direction: Direction,
        record: &Record,
        seen: &[u8],
        decoded: &mut Decoded,
        each: &mut Each<'_>,
    ) {
        if self.is_lost {
            *self = Framer::default();
        }
        let total = u64::from(record.bytes);
        let mut at = 0;
        while at < total {
            let rest = seen.get(at as usize..).unwrap_or_default();
            let first = *self.first.get_or_insert_with(|| {
                protocol.begin(direction);
                *record
            });
            let Some(length) = self.length else {
                if rest.is_empty() {
                    decoded.unseen += 1;
                    decoded.bytes += total - at;
                    return self.lose(protocol, direction);
                }
                let old = self.head.len();
                self.head.extend(rest.iter().take(KEPT - old));
                let added = self.head.len() - old;
                let used = match protocol.part(direction, &self.head) {
                    Part::More if added > 0 => added,
                    Part::Of(length) if length > old as u64 => {
                        self.length = Some(length);
                        added.min((length - old as u64).try_into().unwrap_or(usize::MAX))
                    }
                    // Longer than anything that has to be read at once.
                    Part::Malformed | Part::More | Part::Of(_) => {
                        decoded.malformed += 1;
                        decoded.bytes += total - at;
                        return self.lose(protocol, direction);
                    }
                };
                self.head.truncate(old + used);
                self.have += used as u64;
                at += used as u64;
                if !self.end_part(protocol, direction, decoded, &mut |found, bytes| {
                    each(message(record, first, direction, bytes), found, total - at);
                }) {
                    decoded.bytes += total - at;
                    return;
                }
                continue;
            };
            let step = (length - self.have).min(total - at);
            if !self.is_cut {
                let room = KEPT - self.head.len();
                let known = rest.len().min(step as usize);
                self.head.extend(&rest[..known.min(room)]);
                self.is_cut = (known as u64) < step || known > room;
            }
            self.have += step;
            at += step;
            if !self.end_part(protocol, direction, decoded, &mut |found, bytes| {
                each(message(record, first, direction, bytes), found, total - at);
            }) {
                decoded.bytes += total - at;
                return;
            }
        }
    }

    /// Ends the part if it is whole; false if what was in it makes no sense.
    fn end_part(
        &mut self,
        protocol: &mut dyn Protocol,
        direction: Direction,
        decoded: &mut Decoded,
        each: &mut dyn FnMut(Found, u64),
    ) -> bool {
        let Some(length) = self.length.filter(|length| *length == self.have) else { return true };
        let end = protocol.end(direction, length, &self.head);
        self.head.clear();
        self.is_cut = false;
        self.have = 0;
        self.length = None;
        self.before = self.before.saturating_add(length);
        match end {
            End::More => {}
            End::Message(found) => {
                each(found, self.before);
                self.before = 0;
                self.first = None;
            }
            End::Malformed => {
                decoded.malformed += 1;
                self.lose(protocol, direction);
                return false;
            }
        }
        true
    }
}

/// A message's record: it is received with its last byte, and sent with its first.
fn message(last: &Record, first: Record, direction: Direction, bytes: u64) -> Record {
    let bytes = bytes.try_into().unwrap_or(u32::MAX);
    match direction {
        Direction::In => Record { bytes, ..*last },
        Direction::Out => Record { bytes, time_ns: first.time_ns, point: first.point, ..*last },
    }
}
