//! Finds messages and their ids in the bytes that hooks have captured.

mod id;
mod pattern;

use crate::record::{Point, Record, Transport};
pub use pattern::Pattern;

/// What is looked for in the messages' bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Decode {
    /// An id in what each call moved.
    Pattern(Pattern),
}

/// Decoding under way.
#[derive(Debug)]
pub(crate) struct Decoding(Decode);

impl Decoding {
    pub(crate) fn new(decode: Decode) -> Decoding {
        Decoding(decode)
    }

    /// Passes on the record, as it is found to be by its message's first bytes.
    pub(crate) fn take(&mut self, record: Record, seen: &[u8], each: &mut impl FnMut(Record)) {
        // A segment at the device's queue gives its time to the send that follows, whose bytes are seen.
        if (record.point, record.transport) == (Point::Queued, Transport::Tcp) {
            return each(record);
        }
        match &self.0 {
            Decode::Pattern(pattern) => each(pattern.identify(record, seen)),
        }
    }
}
