//! An id by a pattern: what a regular expression finds in the first bytes of what one call moved.

use std::str::FromStr;

use regex::bytes::{Regex, RegexBuilder};

use super::id::written;
use crate::record::{Flags, Record};

/// A regular expression over bytes; the id is its first group, or all that it finds.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(text).unicode(false).build();
        built.map(Pattern).map_err(|error| format!("pattern `{text}`: {error}"))
    }
}

impl Pattern {
    /// The id in a message's first bytes. A match that ends where those do may go on behind them, unless they are all.
    pub(super) fn find<'a>(&self, seen: &'a [u8], is_whole: bool) -> Option<&'a [u8]> {
        // If the group took no part in the match, the message has no id: all of the match is not one, either.
        let group = usize::from(self.0.captures_len() > 1);
        let id = self.0.captures(seen)?.get(group)?;
        (!id.is_empty() && (is_whole || id.end() < seen.len())).then_some(id.as_bytes())
    }

    /// The record with its id; `seen`: the message's first bytes.
    pub(super) fn identify(&self, record: Record, seen: &[u8]) -> Record {
        let is_whole = seen.len() == record.bytes as usize;
        match self.find(seen, is_whole) {
            Some(id) => Record { id: Some(written(id)), flags: record.flags.with(Flags::HAS_ID), ..record },
            None if is_whole => Record { flags: record.flags.with(Flags::ABSENT), ..record },
            None => Record { flags: record.flags.with(Flags::NO_BUFFER), ..record },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;
    use crate::record::{Point, Transport};

    fn id(pattern: &str, message: &[u8], seen: usize) -> Record {
        let record =
            Record { bytes: message.len() as u32, ..record(Point::Received, Transport::Udp, 1, 1, 1) };
        pattern.parse::<Pattern>().unwrap().identify(record, &message[..seen])
    }

    #[test]
    fn the_first_group_or_all_is_the_id() {
        let text = b"x=1 id=1234; y";
        assert_eq!(id("id=([0-9]+)", text, text.len()).id, Some(written(b"1234")));
        assert_eq!(id("id=[0-9]+", text, text.len()).id, Some(written(b"id=1234")));
        assert_eq!(id("(?s-u)x.(.)", b"x\xff\xfe", 3).id, Some(0xfe));
        assert!(id("nothing", text, text.len()).flags.is_absent());
        assert!(id("y*", b"x", 1).flags.is_absent());
        assert!(id("id=([0-9]+)|ping", b"ping", 4).flags.is_absent());
    }

    #[test]
    fn an_id_cut_off_is_not_read() {
        let text = b"id=1234; y";
        assert_eq!(id("id=([0-9]+)", text, 8).id, Some(written(b"1234")));
        let cut = id("id=([0-9]+)", text, 5);
        assert!(cut.id.is_none() && cut.flags.has_no_buffer());
        assert!(id("nothing", text, 8).flags.has_no_buffer());
        assert!("(".parse::<Pattern>().unwrap_err().contains("pattern `(`"));
    }
}
