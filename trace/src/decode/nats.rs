//! The client protocol of NATS (docs.nats.io/reference/reference-protocols/nats-protocol): lines, some with a payload behind them.
//!
//! A message is known by its subject and its payload, with its headers.

use super::id::Hash;
use super::protocol::{CAPTURE, Decoder, Direction, End, Found, Id, Part, Protocol, is_enough};
use crate::record::Kind;

/// The decoder.
pub(super) static DECODER: Decoder = Decoder {
    name: "nats",
    about: "the client protocol of NATS",
    capture: CAPTURE,
    open: |_| Box::new(Nats),
    #[cfg(test)]
    examples: tests::EXAMPLES,
};

#[derive(Debug)]
struct Nats;

/// The kind of a line.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Control,
    /// With so many bytes of payload behind it.
    Message(&'a [u8], u64),
}

/// The first line of some bytes: its kind, and its own bytes with its end. `None`: it has no end yet.
fn line(bytes: &[u8]) -> Option<(Option<Line<'_>>, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let mut words = bytes[..end].split(|byte| b" \t\r".contains(byte)).filter(|word| !word.is_empty());
    let verb = words.next().unwrap_or_default().to_ascii_uppercase();
    let says = match verb.as_slice() {
        // The last word is the whole length, also with headers, whose own comes before.
        b"PUB" | b"HPUB" | b"MSG" | b"HMSG" => {
            let subject = words.next();
            let bytes = words.next_back().and_then(|word| str::from_utf8(word).ok()?.parse().ok());
            subject
                .zip(bytes)
                .filter(|(_, bytes)| *bytes <= u32::MAX.into())
                .map(|(s, b)| Line::Message(s, b))
        }
        b"INFO" | b"CONNECT" | b"PING" | b"PONG" | b"SUB" | b"UNSUB" | b"+OK" | b"-ERR" => {
            Some(Line::Control)
        }
        _ => None,
    };
    Some((says, end + 1))
}

impl Protocol for Nats {
    fn part(&mut self, _: Direction, bytes: &[u8]) -> Part {
        match line(bytes) {
            None => Part::More,
            Some((None, _)) => Part::Malformed,
            Some((Some(Line::Control), own)) => Part::Of(own as u64),
            Some((Some(Line::Message(_, payload)), own)) => Part::Of(own as u64 + payload + 2),
        }
    }

    fn end(&mut self, _: Direction, _: u64, bytes: &[u8]) -> End {
        match line(bytes) {
            Some((Some(Line::Control), _)) => End::Message(Found::CONTROL),
            Some((Some(Line::Message(subject, length)), own)) => {
                let known = &bytes[own..];
                let payload = &known[..known.len().min(length as usize)];
                if !b"\r\n".starts_with(&known[payload.len()..]) {
                    return End::Malformed;
                }
                let hash = Hash::default().part(subject.len() as u64, subject).part(length, payload);
                let id = if is_enough(length, payload) { Id::Is(hash.id()) } else { Id::Unseen };
                End::Message(Found { kind: Kind::Publish, id })
            }
            _ => End::Malformed,
        }
    }

    fn restart(&mut self, _: Direction) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::protocol::Examples;
    use crate::decode::tests::found;

    pub(super) const EXAMPLES: Examples = Examples {
        message: |topic, payload, kind| {
            let head = match kind {
                0 => return b"PING\r\n".to_vec(),
                1 => format!("PUB {topic} {}\r\n", payload.len()),
                _ => format!("MSG {topic} 7 reply.to {}\r\n", payload.len()),
            };
            [head.as_bytes(), payload, b"\r\n"].concat()
        },
        words: &[b"PUB a ", b"\r\n"],
    };

    #[test]
    fn published_messages_match_delivered_ones() {
        let published = found(&mut Nats, b"PING\r\nPUB a.b 3\r\nxyz\r\npub a.b reply 3\r\nxyz\r\n");
        let delivered = found(&mut Nats, b"MSG a.b 1 3\r\nxyz\r\nMSG a.b 1 reply 3\r\nxyz\r\n");
        assert_eq!(published[0], Found::CONTROL);
        assert_eq!(published[1..], delivered);
        assert_ne!(delivered[..1], found(&mut Nats, b"MSG a.c 1 3\r\nxyz\r\n"));
        let headers =
            found(&mut Nats, b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\nHMSG a 9 12 13\r\nNATS/1.0\r\n\r\nx\r\n");
        assert_eq!(headers[0], headers[1]);
    }

    #[test]
    fn malformed_lines_are_refused() {
        assert_eq!(Nats.part(Direction::In, b"GET / HTTP/1.1\r\n"), Part::Malformed);
        assert_eq!(Nats.part(Direction::In, b"PUB a -1\r\n"), Part::Malformed);
        assert_eq!(Nats.part(Direction::In, b"PUB a 99999999999999999999\r\n"), Part::Malformed);
        assert_eq!(Nats.part(Direction::In, b"PUB a 1"), Part::More);
        assert_eq!(Nats.end(Direction::In, 12, b"PUB a 1\r\nxyz"), End::Malformed);
    }
}
