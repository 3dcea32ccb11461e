//! RESP 2 and 3, the protocol of Redis (redis.io/docs/reference/protocol-spec): typed lines, some with bytes or elements behind them.
//!
//! PUBLISH and what subscribers are sent are known by channel and payload. Other commands are numbered in their connection, as their
//! replies come in the same order.

use super::id::Hash;
use super::protocol::{CAPTURE, Decoder, Direction, End, Found, Id, Part, Protocol, is_enough};
use super::replies::Replies;
use crate::record::Kind;

/// The decoder.
pub(super) static DECODER: Decoder = Decoder {
    name: "redis",
    about: "RESP 2 and 3, the protocol of Redis",
    capture: CAPTURE,
    open: |socket| Box::new(Redis::new(socket)),
    #[cfg(test)]
    examples: tests::EXAMPLES,
};

/// Of an array's elements so many are looked at.
const WORDS: usize = 4;
/// A bulk string is at most so long (proto-max-bulk-len is 512 MB).
const BULK_MAX: u64 = 1 << 32;
const ELEMENTS_MAX: u64 = 1 << 32;

/// A word of a command: its length, and its first bytes.
type Word = (u64, Vec<u8>);

/// One direction: the message under way.
#[derive(Debug, Default)]
struct Side {
    /// Elements to come; none: a message begins.
    left: u64,
    /// Its type: the first byte.
    kind: u8,
    /// Its first bulk strings.
    words: Vec<Word>,
    is_inline: bool,
}

#[derive(Debug)]
struct Redis {
    sides: [Side; 2],
    /// Whence commands come, once it is known.
    commands: Option<Direction>,
    /// Whether the reply is to a PUBLISH, and so not a message of its own.
    replies: Replies<bool>,
    /// Makes numbers of this connection's commands.
    number: Hash,
    asked: u64,
    /// To or from a replica, or one that watches: what goes by answers nothing.
    is_stream: bool,
    /// The client wants no replies; or none to so many commands.
    is_silent: bool,
    skipped: u8,
}

/// A line's type, what it announces, and its own bytes with its end.
fn line(bytes: &[u8]) -> Option<(u8, Option<i64>, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let text = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let number = text.get(1..).and_then(|rest| str::from_utf8(rest).ok()?.parse().ok());
    Some((bytes[0], number, end + 1))
}

fn is_bulk(kind: u8) -> bool {
    matches!(kind, b'$' | b'=' | b'!')
}

/// Whether a command makes of its connection a stream that goes on by itself. The stream is with a replica (whose acknowledgements have no
/// reply), or of all that clients ask.
fn is_streaming(name: &[u8]) -> bool {
    matches!(name, b"replconf" | b"psync" | b"sync" | b"monitor")
}

impl Redis {
    fn new(socket: u64) -> Redis {
        let number = Hash::default().part(socket, b"");
        Redis {
            sides: Default::default(),
            commands: None,
            replies: Replies::default(),
            number,
            asked: 0,
            is_stream: false,
            is_silent: false,
            skipped: 0,
        }
    }

    /// Whether a command has no reply, as its client has asked for (CLIENT REPLY).
    fn has_no_reply(&mut self, words: &[Word]) -> bool {
        let is =
            |at: usize, text: &[u8]| words.get(at).is_some_and(|(_, word)| word.eq_ignore_ascii_case(text));
        if is(0, b"client") && is(1, b"reply") {
            if is(2, b"skip") && !self.is_silent {
                self.skipped = 1;
                return true;
            }
            self.is_silent = is(2, b"off");
            self.skipped = 0;
            return self.is_silent;
        }
        let is_skipped = self.skipped > 0;
        self.skipped = 0;
        self.is_silent || is_skipped
    }

    /// The whole message has gone by.
    fn message(&mut self, direction: Direction) -> Found {
        let Side { kind, words, is_inline, .. } = std::mem::take(&mut self.sides[direction as usize]);
        let name = words.first().map(|(_, name)| name.to_ascii_lowercase()).unwrap_or_default();
        if words.first().is_some_and(|(length, name)| *length > name.len() as u64) {
            // The request is not known.
            self.replies.forget();
            return Found { kind: Kind::Message, id: Id::Unseen };
        }
        self.is_stream |= is_streaming(&name);
        if self.is_stream {
            return Found::CONTROL;
        }
        let is_delivery = matches!(name.as_slice(), b"message" | b"smessage" | b"pmessage");
        let is_confirmation = matches!(
            name.as_slice(),
            b"subscribe" | b"unsubscribe" | b"psubscribe" | b"punsubscribe" | b"ssubscribe" | b"sunsubscribe"
        );
        // Commands are arrays of bulk strings, or lines; whatever else is seen was sent by the server.
        let may_be_command = is_inline || (kind == b'*' && !words.is_empty() && !is_delivery);
        if !may_be_command {
            self.commands = Some(direction.other());
        } else if self.commands.is_none() {
            self.commands = Some(direction);
        }
        let id = |words: &[Word]| match words {
            [channel, payload, ..] if [channel, payload].iter().all(|word| is_enough(word.0, &word.1)) => {
                Id::Is(Hash::default().part(channel.0, &channel.1).part(payload.0, &payload.1).id())
            }
            _ => Id::Unseen,
        };
        if self.commands == Some(direction) {
            let has_no_reply = self.has_no_reply(&words);
            if matches!(name.as_slice(), b"publish" | b"spublish") && words.len() == 3 {
                if !has_no_reply {
                    self.replies.ask(Id::Absent, true);
                }
                return Found { kind: Kind::Publish, id: id(&words[1..]) };
            }
            if is_confirmation {
                return Found::CONTROL;
            }
            if has_no_reply {
                return Found { kind: Kind::Request, id: Id::Absent };
            }
            self.asked += 1;
            let id = Id::Is(self.number.part(self.asked, b"").id());
            self.replies.ask(id, false);
            return Found { kind: Kind::Request, id };
        }
        if is_delivery && matches!(kind, b'*' | b'>') {
            let from = if name == b"pmessage" { 2 } else { 1 };
            return Found { kind: Kind::Publish, id: id(words.get(from..).unwrap_or_default()) };
        }
        if is_confirmation || kind == b'>' {
            return Found::CONTROL;
        }
        let is_of_publish = self.replies.next(direction) == Some(&true);
        let reply = self.replies.answer(direction);
        if is_of_publish { Found::CONTROL } else { reply }
    }
}

impl Protocol for Redis {
    fn part(&mut self, _: Direction, bytes: &[u8]) -> Part {
        let Some((kind, number, own)) = line(bytes) else { return Part::More };
        let own = own as u64;
        match (kind, number) {
            (kind, Some(-1)) if is_bulk(kind) || kind == b'*' => Part::Of(own),
            (kind, Some(length)) if is_bulk(kind) && (0..BULK_MAX as i64).contains(&length) => {
                Part::Of(own + length as u64 + 2)
            }
            (b'*' | b'~' | b'>' | b'%' | b'|', Some(0..)) => Part::Of(own),
            (b'+' | b'-' | b':' | b',' | b'(' | b'#' | b'_', _) => Part::Of(own),
            // A command typed by hand, or the line that telnet sends first.
            (kind, _) if kind.is_ascii_alphabetic() || b"\r\n".contains(&kind) => Part::Of(own),
            _ => Part::Malformed,
        }
    }

    fn begin(&mut self, direction: Direction) {
        self.replies.message_begins(direction);
    }

    fn end(&mut self, direction: Direction, length: u64, bytes: &[u8]) -> End {
        let Some((kind, number, own)) = line(bytes) else { return End::Malformed };
        let side = &mut self.sides[direction as usize];
        let is_first = side.left == 0 && side.kind == 0;
        if is_first {
            *side = Side { left: 1, kind, ..Side::default() };
            side.is_inline = kind.is_ascii_alphabetic();
            if side.is_inline {
                let words = bytes.trim_ascii().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                side.words = words.take(WORDS).map(|word| (word.len() as u64, word.to_vec())).collect();
            } else if b"\r\n".contains(&kind) {
                *side = Side::default();
                return End::Message(Found::CONTROL);
            }
        } else if kind.is_ascii_alphabetic() || b"\r\n".contains(&kind) {
            return End::Malformed;
        }
        let elements = number.unwrap_or(0).max(0) as u64;
        let more = match kind {
            b'*' | b'~' | b'>' => elements,
            // An attribute is not what it comes before.
            b'%' => elements.saturating_mul(2),
            b'|' => elements.saturating_mul(2).saturating_add(1),
            _ => 0,
        };
        if is_bulk(kind) && number != Some(-1) && side.words.len() < WORDS {
            let known = &bytes[own..];
            let length = length - own as u64 - 2;
            let known = &known[..known.len().min(length as usize)];
            side.words.push((length, known.to_vec()));
        }
        side.left = (side.left - 1).saturating_add(more);
        match side.left {
            0 => End::Message(self.message(direction)),
            1..=ELEMENTS_MAX => End::More,
            _ => End::Malformed,
        }
    }

    fn restart(&mut self, direction: Direction) {
        self.sides[direction as usize] = Side::default();
        self.replies.forget();
    }

    fn has_forgotten(&mut self) -> bool {
        self.replies.has_forgotten()
    }

    fn rest(&mut self) {
        self.replies.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::protocol::Examples;
    use crate::decode::tests::{found, found_both};

    pub(super) const EXAMPLES: Examples = Examples {
        message: |topic, payload, kind| {
            let channel = format!("${}\r\n{topic}\r\n", topic.len());
            if kind == 0 {
                return format!("*2\r\n$3\r\nGET\r\n{channel}").into_bytes();
            }
            let head = format!("*3\r\n$7\r\nPUBLISH\r\n{channel}${}\r\n", payload.len());
            [head.as_bytes(), payload, b"\r\n"].concat()
        },
        words: &[b"*", b"$", b"%", b"|", b"\r\n"],
    };

    const PUBLISH: &[u8] = b"*3\r\n$7\r\nPUBLISH\r\n$1\r\nt\r\n$3\r\nxyz\r\n";

    #[test]
    fn published_messages_match_delivered_ones() {
        let published = found(&mut Redis::new(1), PUBLISH);
        for delivered in [
            &b"*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$3\r\nxyz\r\n"[..],
            b">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$3\r\nxyz\r\n",
            b"*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nt\r\n$3\r\nxyz\r\n",
        ] {
            assert_eq!(found(&mut Redis::new(2), delivered), published);
        }
        let inline = found(&mut Redis::new(1), b"PUBLISH t xyz\r\n");
        assert_eq!(inline, published);
    }

    #[test]
    fn replies_come_in_the_order_of_commands() {
        let asked =
            [PUBLISH, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", b"*1\r\n$4\r\nEXEC\r\n", b"PING\r\n"].concat();
        let replies = b":1\r\n$1\r\nx\r\n*2\r\n*1\r\n+OK\r\n%1\r\n+k\r\n:1\r\n|1\r\n+a\r\n+b\r\n+PONG\r\n";
        let [asked, replies] = found_both(&mut Redis::new(1), &asked, replies);
        let ids = |found: &[Found]| -> Vec<u64> {
            let of = |found: &Found| if let Id::Is(id) = found.id { id } else { 0 };
            found.iter().map(of).collect()
        };
        assert_eq!(replies[0], Found::CONTROL, "the reply to PUBLISH");
        let expected: Vec<u64> =
            ids(&asked[1..]).iter().map(|id| id ^ super::super::replies::ANSWER).collect();
        assert_eq!(ids(&replies[1..]), expected);
        assert!(replies[1..].iter().all(|found| found.kind == Kind::Response) && replies.len() == 4);
    }

    #[test]
    fn malformed_lines_are_refused() {
        let mut redis = Redis::new(1);
        for bad in [&b"\x16\x03\x01\n"[..], b"$-2\r\n", b"$x\r\n", b"*-7\r\n", b"$99999999999\r\n"] {
            assert_eq!(redis.part(Direction::In, bad), Part::Malformed, "{bad:?}");
        }
        assert_eq!(redis.part(Direction::In, b"*-1\r\n"), Part::Of(5));
        assert_eq!(redis.part(Direction::In, b"$12"), Part::More);
    }
}
