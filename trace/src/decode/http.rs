//! HTTP/1.1 (RFC 9112): heads by httparse, bodies by Content-Length or in chunks.
//!
//! A request is known by its method, its target and its body. A response is known by the request that it answers, which is the first of its
//! connection without one. So a proxy's message is known on both of its sides, whatever headers it changes.

use super::id::Hash;
use super::protocol::{Decoder, Direction, End, Found, Id, Part, Protocol, is_enough};
use super::replies::{Number, Replies};
use crate::record::Kind;

/// The decoder.
pub(super) static DECODER: Decoder = Decoder {
    name: "http",
    about: "HTTP/1.1",
    // Heads are long.
    capture: 1024,
    open: |_| Box::new(Http::default()),
    #[cfg(test)]
    examples: tests::EXAMPLES,
};

const HEADERS_MAX: usize = 128;
/// How responses begin.
const RESPONSE: &[u8] = b"HTTP/1.";

/// The next part in a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Head,
    Body(u64),
    /// A line with a chunk's length, and the chunk.
    Chunk,
    /// Lines after the last chunk, up to an empty one.
    Trailer,
    /// The body of a response to a request that was not seen, or none, if that was HEAD, and the next response.
    BodyOrHead,
    /// No more messages: another protocol, or a body without a length.
    Rest,
}

#[derive(Debug, Default)]
struct Side {
    next: Next,
    /// The message under way.
    is_request: bool,
    hash: Hash,
    /// Of the connection's requests, if it is one.
    number: Number,
}

#[derive(Debug, Default)]
struct Http {
    sides: [Side; 2],
    /// Whether the request's method is such that the response has no body (HEAD), or is the last message (CONNECT).
    replies: Replies<Method>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Other,
}

/// A message's head.
#[derive(Debug)]
struct Head {
    bytes: usize,
    /// `None`: a request.
    status: Option<u16>,
    method: Method,
    hash: Hash,
    length: Option<u64>,
    is_chunked: bool,
}

/// Reads a head; `Ok(None)`: it has no end yet.
fn head(bytes: &[u8]) -> Result<Option<Head>, ()> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let start = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
    let is_response = bytes[start..].starts_with(b"HTTP/");
    let mut response = httparse::Response::new(&mut headers);
    if is_response {
        let httparse::Status::Complete(length) = response.parse(bytes).map_err(drop)? else {
            return Ok(None);
        };
        let code = response.code.ok_or(())?;
        return finish(length, Some(code), Method::Other, Hash::default(), response.headers).map(Some);
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(bytes).map_err(drop)? else { return Ok(None) };
    let (name, target) = request.method.zip(request.path).ok_or(())?;
    let method = match name {
        "HEAD" => Method::Head,
        "CONNECT" => Method::Connect,
        _ => Method::Other,
    };
    // All of the target: numbers tend to stand at its end.
    let hash = target
        .as_bytes()
        .chunks(super::id::LOOKED_AT)
        .fold(Hash::default().part(name.len() as u64, name.as_bytes()), |hash, part| {
            hash.part(target.len() as u64, part)
        });
    finish(length, None, method, hash, request.headers).map(Some)
}

fn finish(
    bytes: usize,
    status: Option<u16>,
    method: Method,
    hash: Hash,
    headers: &[httparse::Header<'_>],
) -> Result<Head, ()> {
    let mut head = Head { bytes, status, method, hash, length: None, is_chunked: false };
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = str::from_utf8(header.value).map_err(drop)?.trim().parse().map_err(drop)?;
            if head.length.is_some_and(|known| known != length) {
                return Err(());
            }
            head.length = Some(length);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            head.is_chunked = header.value.to_ascii_lowercase().trim_ascii().ends_with(b"chunked");
        }
    }
    Ok(head)
}

/// Hexadecimal digits of a chunk's line, and its own bytes with its end.
fn chunk(bytes: &[u8]) -> Option<(Option<u64>, u64)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let digits = bytes[..end].split(|byte| b";\r".contains(byte)).next().unwrap_or_default().trim_ascii();
    let size = str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
    Some((size.and_then(|text| u64::from_str_radix(text, 16).ok()), end as u64 + 1))
}

impl Http {
    /// The message is over.
    fn message(&mut self, direction: Direction) -> Found {
        let side = &mut self.sides[direction as usize];
        if !matches!(side.next, Next::BodyOrHead | Next::Rest) {
            side.next = Next::Head;
        }
        if side.is_request {
            let id = self.replies.end(side.number, Id::Is(side.hash.id()));
            Found { kind: Kind::Request, id }
        } else {
            self.replies.answer(direction)
        }
    }

    fn end_head(&mut self, direction: Direction, head: &Head) -> End {
        let asked = self.replies.next(direction).copied();
        let side = &mut self.sides[direction as usize];
        side.is_request = head.status.is_none();
        side.hash = head.hash;
        side.next = match head.status {
            Some(101) => Next::Rest,
            // More follows of what the same request has asked for.
            Some(100..200) => {
                side.next = Next::Head;
                return End::Message(Found::CONTROL);
            }
            Some(200..300) if asked == Some(Method::Connect) => Next::Rest,
            Some(204 | 304) => Next::Head,
            Some(_) if asked == Some(Method::Head) => Next::Head,
            Some(_)
                if asked.is_none() && (head.is_chunked || head.length.is_some_and(|length| length > 0)) =>
            {
                Next::BodyOrHead
            }
            _ if head.is_chunked => Next::Chunk,
            _ => match head.length {
                Some(0) => Next::Head,
                Some(length) => Next::Body(length),
                None if side.is_request => Next::Head,
                None => Next::Rest,
            },
        };
        if head.status.is_none() {
            // Its answer may come before its end.
            side.number = self.replies.begin(head.method);
        }
        let is_rest = self.sides[direction as usize].next == Next::Rest;
        if is_rest && asked == Some(Method::Connect) || head.status == Some(101) {
            self.sides[direction.other() as usize].next = Next::Rest;
        }
        match self.sides[direction as usize].next {
            Next::Head | Next::BodyOrHead | Next::Rest => End::Message(self.message(direction)),
            _ => End::More,
        }
    }
}

impl Protocol for Http {
    fn part(&mut self, direction: Direction, bytes: &[u8]) -> Part {
        match self.sides[direction as usize].next {
            Next::Head => match head(bytes) {
                Ok(Some(head)) => Part::Of(head.bytes as u64),
                Ok(None) => Part::More,
                Err(()) => Part::Malformed,
            },
            Next::BodyOrHead if !bytes.starts_with(&RESPONSE[..bytes.len().min(RESPONSE.len())]) => {
                Part::Malformed
            }
            Next::BodyOrHead if bytes.len() < RESPONSE.len() => Part::More,
            Next::BodyOrHead => {
                self.sides[direction as usize].next = Next::Head;
                self.part(direction, bytes)
            }
            Next::Body(length) => Part::Of(length),
            Next::Rest => Part::Of(u64::MAX),
            Next::Chunk => match chunk(bytes) {
                None => Part::More,
                Some((Some(0), own)) => Part::Of(own),
                Some((Some(size), own)) => match size.checked_add(own + 2) {
                    Some(length) => Part::Of(length),
                    None => Part::Malformed,
                },
                Some((None, _)) => Part::Malformed,
            },
            Next::Trailer => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => Part::Of(end as u64 + 1),
                None => Part::More,
            },
        }
    }

    fn begin(&mut self, direction: Direction) {
        self.replies.message_begins(direction);
    }

    fn end(&mut self, direction: Direction, length: u64, bytes: &[u8]) -> End {
        let side = &mut self.sides[direction as usize];
        match side.next {
            Next::Head => match head(bytes) {
                Ok(Some(head)) => self.end_head(direction, &head),
                _ => End::Malformed,
            },
            Next::Body(_) if side.is_request => {
                side.hash = side.hash.part(length, bytes);
                side.next = Next::Head;
                let id = if is_enough(length, bytes) { Id::Is(side.hash.id()) } else { Id::Unseen };
                let id = self.replies.end(side.number, id);
                End::Message(Found { kind: Kind::Request, id })
            }
            Next::Body(_) => End::Message(self.message(direction)),
            Next::Chunk => {
                if matches!(chunk(bytes), Some((Some(0), _))) {
                    side.next = Next::Trailer;
                }
                End::More
            }
            Next::Trailer if bytes.trim_ascii().is_empty() => End::Message(self.message(direction)),
            Next::Trailer | Next::BodyOrHead | Next::Rest => End::More,
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
    use crate::decode::replies::ANSWER;
    use crate::decode::tests::{found, found_both};

    pub(super) const EXAMPLES: Examples = Examples {
        message: |topic, payload, kind| {
            let length = payload.len();
            let chunked = format!("POST /{topic} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n");
            match (kind, length) {
                (0, _) => format!("GET /{topic} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes(),
                (1, _) => {
                    let head = format!("POST /{topic} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
                    [head.as_bytes(), payload].concat()
                }
                (_, 0) => format!("{chunked}0\r\n\r\n").into_bytes(),
                _ => {
                    let head = format!("{chunked}{length:x}\r\n");
                    [head.as_bytes(), payload, b"\r\n0\r\n\r\n"].concat()
                }
            }
        },
        words: &[
            b"HTTP/1.1 200 OK",
            b"GET / HTTP/1.1",
            b"Content-Length: ",
            b"Transfer-Encoding: chunked",
            b":",
            b"fffffffffffffff0",
            b"\r\n",
        ],
    };

    fn ids(found: &[Found]) -> Vec<u64> {
        found.iter().map(|found| if let Id::Is(id) = found.id { id } else { 0 }).collect()
    }

    #[test]
    fn responses_come_in_the_order_of_requests() {
        let asked = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\nPOST /3 HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyzGET /4 HTTP/1.1\r\n\r\n";
        let replies = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na;x=y\r\n0123456789\r\n0\r\nT: x\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nx";
        let [asked, replies] = found_both(&mut Http::default(), asked, replies);
        assert_eq!((asked.len(), replies.len(), replies[2]), (4, 5, Found::CONTROL));
        let answers: Vec<u64> = ids(&asked).iter().map(|id| id ^ ANSWER).collect();
        assert_eq!([&ids(&replies)[..2], &ids(&replies)[3..]].concat(), answers);
    }

    #[test]
    fn a_proxy_may_change_headers_only() {
        let id = |text: &[u8]| ids(&found(&mut Http::default(), text));
        let plain = id(b"POST /a HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(plain, id(b"POST /a HTTP/1.0\r\nX-More: yes\r\ncontent-length: 1\r\n\r\nx"));
        assert_ne!(plain, id(b"POST /a HTTP/1.1\r\nContent-Length: 1\r\n\r\ny"));
        assert_ne!(plain, id(b"POST /b HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"));
        let long = |end: char| format!("GET /{}{end} HTTP/1.1\r\n\r\n", "x".repeat(100));
        assert_ne!(id(long('1').as_bytes()), id(long('2').as_bytes()));
    }

    #[test]
    fn the_rest_is_another_protocols() {
        let asked = b"GET /w HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x81\x05hello";
        let replies = b"HTTP/1.1 101 Switching\r\n\r\n\x81\x05HTTP/";
        let [asked, replies] = found_both(&mut Http::default(), &asked[..39], replies);
        assert_eq!((asked.len(), replies.len()), (1, 1));
        let until_closed =
            found(&mut Http::default(), b"HTTP/1.1 200 OK\r\n\r\nwhatever\r\nHTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(until_closed.len(), 1);
    }

    #[test]
    fn malformed_heads_are_refused() {
        let mut http = Http::default();
        assert_eq!(http.part(Direction::In, b"\x16\x03\x01\x02\x00"), Part::Malformed);
        assert_eq!(http.part(Direction::In, b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"), Part::Malformed);
        assert_eq!(
            http.part(Direction::In, b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            Part::Malformed
        );
        assert_eq!(http.part(Direction::In, b"GET / HTTP/1.1\r\n"), Part::More);
        assert_eq!(chunk(b"ffffffffffffffff\r\n"), Some((Some(u64::MAX), 18)));
    }
}
