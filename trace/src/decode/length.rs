//! Messages with their length before them, as many binary protocols have it.

use std::str::FromStr;

use super::id::{Hash, written};
use super::pattern::Pattern;
use super::protocol::{Direction, End, Found, Id, Part, Protocol, is_enough};
use crate::record::{IdAt, Kind};

/// No message is longer: a larger number is not a length.
const BYTES_MAX: u64 = 1 << 30;

/// The place of the length, and the bytes that it counts: `length:OFFSET:WIDTH[:le][:+N|-N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Bytes before it.
    pub offset: usize,
    /// Its own: one to eight.
    pub width: usize,
    /// Its lowest byte is the first; else the last one is.
    pub is_little: bool,
    /// The message has so many bytes more than are before it, it has itself, and it says: less than nothing where it counts those, too.
    pub more: i64,
}

impl FromStr for Length {
    type Err = String;

    /// Without the word `length:`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "length `{text}`: expected OFFSET:WIDTH, as in 0:4, with a width of 1 to 8; `:le` if its lowest byte is first; `:+N` or \
                 `:-N` if the message is N bytes longer or shorter than the length says"
            )
        };
        let mut words = text.split(':');
        let mut number = || words.next().and_then(|word| word.parse::<u16>().ok()).map(usize::from);
        let (offset, width) = number().zip(number()).ok_or_else(wrong)?;
        if offset > 1024 || !(1..=8).contains(&width) {
            return Err(wrong());
        }
        let mut length = Length { offset, width, is_little: false, more: 0 };
        for word in words {
            match word {
                "le" => length.is_little = true,
                "be" => {}
                _ if word.starts_with(['+', '-']) => {
                    length.more = word.parse::<i32>().map_err(|_| wrong())?.into();
                }
                _ => return Err(wrong()),
            }
        }
        Ok(length)
    }
}

/// The place of a message's id.
#[derive(Clone, Debug)]
pub enum MessageId {
    /// At an offset.
    At(IdAt),
    /// A pattern finds it.
    Pattern(Pattern),
}

impl FromStr for MessageId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("regex:") {
            Some(pattern) => pattern.parse().map(MessageId::Pattern),
            None => text.parse().map(MessageId::At),
        }
    }
}

#[derive(Debug)]
pub(super) struct Lengths {
    pub(super) at: Length,
    /// Else a message is known by its length and its first bytes.
    pub(super) id: Option<MessageId>,
}

impl Lengths {
    fn id(&self, direction: Direction, length: u64, bytes: &[u8]) -> Id {
        let is_whole = bytes.len() as u64 == length;
        let missing = if is_whole { Id::Absent } else { Id::Unseen };
        match &self.id {
            None if is_enough(length, bytes) => Id::Is(Hash::default().part(length, bytes).id()),
            None => Id::Unseen,
            Some(MessageId::At(at)) => {
                let offset = if direction == Direction::In { at.received } else { at.sent } as usize;
                let id = bytes.get(offset..offset + usize::from(at.bytes));
                id.map_or(missing, |id| Id::Is(written(id)))
            }
            Some(MessageId::Pattern(pattern)) => {
                pattern.find(bytes, is_whole).map_or(missing, |id| Id::Is(written(id)))
            }
        }
    }
}

impl Protocol for Lengths {
    fn part(&mut self, _: Direction, bytes: &[u8]) -> Part {
        let Length { offset, width, is_little, more } = self.at;
        let head = (offset + width) as u64;
        let Some(field) = bytes.get(offset..offset + width) else { return Part::More };
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let says = if is_little { field.iter().rev().fold(0, add) } else { field.iter().fold(0, add) };
        match says.checked_add_signed(more).and_then(|bytes| bytes.checked_add(head)) {
            Some(length) if (head..=BYTES_MAX).contains(&length) => Part::Of(length),
            _ => Part::Malformed,
        }
    }

    fn end(&mut self, direction: Direction, length: u64, bytes: &[u8]) -> End {
        End::Message(Found { kind: Kind::Message, id: self.id(direction, length, bytes) })
    }

    fn restart(&mut self, _: Direction) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_they_are_written() {
        let part = |text: &str, bytes: &[u8]| {
            Lengths { at: text.parse().unwrap(), id: None }.part(Direction::In, bytes)
        };
        assert_eq!(part("0:4", &[0, 0, 1, 2, 9]), Part::Of(4 + 0x102));
        assert_eq!(part("0:4", &[0, 0, 1]), Part::More);
        assert_eq!(part("1:2:le", &[9, 1, 2]), Part::Of(3 + 0x201));
        assert_eq!(part("0:2:-2", &[0, 2]), Part::Of(2), "counts itself");
        assert_eq!(part("0:2:-2", &[0, 1]), Part::Malformed);
        assert_eq!(part("0:1:+4", &[3]), Part::Of(8));
        assert_eq!(part("0:8", &[255; 8]), Part::Malformed);
        for bad in ["", "0", "0:0", "0:9", "0:4:x", "-1:4", "0:4:+x", "2000:4"] {
            assert!(bad.parse::<Length>().unwrap_err().contains("OFFSET:WIDTH"), "{bad}");
        }
    }

    #[test]
    fn ids_lie_in_the_message() {
        let id = |id: &str, direction, bytes: &[u8], length| {
            let at = "0:1".parse().unwrap();
            Lengths { at, id: Some(id.parse().unwrap()) }.id(direction, length, bytes)
        };
        assert_eq!(id("1/2:2", Direction::In, &[3, 1, 2, 3], 4), Id::Is(0x201));
        assert_eq!(id("1/2:2", Direction::Out, &[3, 1, 2, 3], 4), Id::Is(0x302));
        assert_eq!(id("3:2", Direction::In, &[3, 1, 2, 3], 4), Id::Absent);
        assert_eq!(id("3:2", Direction::In, &[3, 1, 2, 3], 9), Id::Unseen);
        assert_eq!(id("regex:b+", Direction::In, b"abbc", 9), Id::Is(written(b"bb")));
        assert_eq!(id("regex:b+", Direction::In, b"abb", 9), Id::Unseen);
    }
}
