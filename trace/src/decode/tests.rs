//! Properties of every decoder: messages are the same however calls cut the bytes, and no bytes make one panic.

use proptest::prelude::*;

use super::framer::{Decoded, Direction, Found, Framer, Protocol};
use super::{Decode, Decoding};
use crate::join::tests::record;
use crate::record::{Flags, Kind, Point, Record, Transport};

/// A call: what else is in it does not matter.
pub(super) const CALL: Record = Record {
    time_ns: 1,
    socket: 1,
    id: None,
    thread: 1,
    process: 1,
    bytes: 0,
    point: Point::Received,
    transport: Transport::Tcp,
    kind: Kind::Message,
    position: 0,
    flags: Flags(0),
};

/// The messages that a decoder finds in these bytes, in one call.
pub(super) fn found(protocol: &mut dyn Protocol, bytes: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    let record = Record { bytes: bytes.len() as u32, ..record(Point::Received, Transport::Tcp, 1, 1, 1) };
    let mut decoded = Decoded::default();
    Framer::default().feed(protocol, Direction::In, &record, bytes, &mut decoded, &mut |_, message, _, _| {
        found.push(message)
    });
    assert_eq!(decoded, Decoded::default(), "{}", String::from_utf8_lossy(bytes));
    found
}

/// The same for requests one way and what answers them the other.
pub(super) fn found_both(protocol: &mut dyn Protocol, asked: &[u8], replies: &[u8]) -> [Vec<Found>; 2] {
    let asked = found(protocol, asked);
    let mut answers = Vec::new();
    let record = Record { bytes: replies.len() as u32, ..record(Point::Sent, Transport::Tcp, 1, 1, 1) };
    let mut decoded = Decoded::default();
    Framer::default().feed(
        protocol,
        Direction::Out,
        &record,
        replies,
        &mut decoded,
        &mut |_, message, _, _| answers.push(message),
    );
    assert_eq!(decoded, Decoded::default());
    [asked, answers]
}

/// Calls that move these bytes, cut at these places, with `capture` bytes of each seen: the messages, their known bytes, and counts of
/// unread ones.
fn calls(decode: &str, bytes: &[u8], cuts: &[usize], capture: usize) -> (Vec<Record>, Vec<Vec<u8>>, Decoded) {
    let mut decoding = Decoding::new(decode.parse().unwrap());
    let (mut messages, mut known) = (Vec::new(), Vec::new());
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]).collect();
    ends.sort_unstable();
    let mut start = 0;
    for (time, end) in ends.into_iter().enumerate() {
        let part = &bytes[start..end];
        start = end;
        if part.is_empty() {
            continue;
        }
        let call = record(Point::Received, Transport::Tcp, 1, 1, time as u64);
        let call = Record { bytes: part.len() as u32, ..call };
        decoding.take(call, &part[..part.len().min(capture)], &mut |record, bytes| {
            if record.flags.is_rest() {
                return;
            }
            messages.push(record);
            known.push(bytes.to_vec());
        });
    }
    (messages, known, decoding.decoded())
}

fn encoded(decoder: &str, topic: &str, payload: &[u8], kind: u8) -> Vec<u8> {
    let length = payload.len();
    let text = match (decoder, kind % 3) {
        ("mqtt", 0) => return vec![0xc0, 0],
        ("mqtt", kind) => {
            let identifier: &[u8] = if kind == 1 { b"" } else { b"\x12\x34" };
            let mut rest = 2 + topic.len() + identifier.len() + length;
            let mut packet = vec![0x30 | (kind - 1) << 1];
            while rest > 127 {
                packet.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            packet.extend([rest as u8, 0, topic.len() as u8]);
            return [&packet[..], topic.as_bytes(), identifier, payload].concat();
        }
        ("nats", 0) => "PING\r\n".into(),
        ("nats", 1) => format!("PUB {topic} {length}\r\n"),
        ("nats", _) => format!("MSG {topic} 7 reply.to {length}\r\n"),
        ("redis", 0) => format!("*2\r\n$3\r\nGET\r\n${}\r\n{topic}\r\n", topic.len()),
        ("redis", _) => format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{topic}\r\n${length}\r\n", topic.len()),
        ("http", 0) => format!("GET /{topic} HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("http", 1) => format!("POST /{topic} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"),
        ("http", _) if length == 0 => {
            format!("POST /{topic} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
        }
        ("http", _) => {
            let head = format!("POST /{topic} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n");
            return [head.as_bytes(), payload, b"\r\n0\r\n\r\n"].concat();
        }
        _ => return [&(length as u16).to_be_bytes()[..], payload].concat(),
    };
    let has_payload = matches!((decoder, kind % 3), (_, 1) | ("nats" | "redis", 2));
    let tail: &[u8] = if matches!(decoder, "nats" | "redis") { b"\r\n" } else { b"" };
    let rest = if has_payload { [payload, tail].concat() } else { Vec::new() };
    [text.as_bytes(), &rest].concat()
}

const DECODERS: [&str; 5] = ["mqtt", "nats", "redis", "http", "length:0:2"];

/// A message without its call.
fn essence(records: &[Record]) -> Vec<(Kind, Option<u64>, u32)> {
    records.iter().map(|record| (record.kind, record.id, record.bytes)).collect()
}

/// Words that decoders look for, and some that they should not trust.
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"*",
    b"$",
    b"9",
    b"-1",
    b"PUB a ",
    b"\x30",
    b"\xff",
    b"%",
    b"18446744073709551615",
    b"HTTP/1.1 200 OK",
    b"GET / HTTP/1.1",
    b"Content-Length: ",
    b":",
    b"|",
    b"Transfer-Encoding: chunked",
    b"\x10",
    b"\0",
    b"fffffffffffffff0",
];

proptest! {
    #[test]
    fn calls_do_not_matter(
        decoder in 0..DECODERS.len(),
        messages in prop::collection::vec(("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..300), any::<u8>()), 1..8),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        capture in 0usize..400,
    ) {
        let name = DECODERS[decoder];
        let each: Vec<Vec<u8>> =
            messages.iter().map(|(topic, payload, kind)| encoded(name, topic, payload, *kind)).collect();
        let bytes = each.concat();
        // Each in a call of its own.
        let mut borders = Vec::new();
        each.iter().fold(0, |end, message| { borders.push(end + message.len()); end + message.len() });
        let (expected, known, decoded) = calls(name, &bytes, &borders, usize::MAX);
        prop_assert_eq!(decoded, Decoded::default());
        prop_assert_eq!(&known, &each);
        prop_assert_eq!(expected.len(), each.len());
        for (record, message) in expected.iter().zip(&each) {
            prop_assert_eq!(record.bytes as usize, message.len());
            prop_assert!(record.id.is_some() || record.kind == Kind::Control);
        }
        let (other, known, decoded) = calls(name, &bytes, &cuts, usize::MAX);
        prop_assert_eq!(decoded, Decoded::default());
        prop_assert_eq!(&known, &each);
        prop_assert_eq!(essence(&other), essence(&expected));
        // One call with all of them: unseen parts are marked as such, and found ones are right.
        let (seen, known, decoded) = calls(name, &bytes, &[], capture);
        prop_assert!(known.iter().zip(&each).all(|(known, whole)| whole.starts_with(known)));
        prop_assert!(known.iter().map(Vec::len).sum::<usize>() <= capture);
        prop_assert!(decoded.malformed == 0 && decoded.unseen <= 1);
        prop_assert_eq!(seen.len() == expected.len(), decoded.unseen == 0);
        for (record, whole) in seen.iter().zip(&expected) {
            prop_assert_eq!(record.bytes, whole.bytes);
            let is_same = (record.kind, record.id) == (whole.kind, whole.id);
            prop_assert!(is_same || (record.id.is_none() && record.flags.has_no_buffer()));
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(
        decoder in 0..DECODERS.len(),
        text in prop::collection::vec(prop::sample::select(WORDS), 0..40),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
        capture in 0usize..100,
    ) {
        calls(DECODERS[decoder], &text.concat(), &cuts, capture);
    }
}

/// After what makes no sense, the next call that begins with a message is read.
#[test]
fn decoding_goes_on_after_nonsense() {
    let bytes = b"nonsense\r\nPUB a 1\r\nx\r\nPING\r\n";
    let (messages, _, decoded) = calls("nats", bytes, &[10], usize::MAX);
    assert_eq!((messages.len(), decoded), (2, Decoded { malformed: 1, unseen: 0, bytes: 10 }));
}

/// A received message has the time of its last byte, a sent one that of its first; where records were lost, no half is joined to another.
#[test]
fn times_and_losses() {
    let mut decoding = Decoding::new(Decode::Nats);
    let mut messages = Vec::new();
    let call = |point, time_ns, bytes: &[u8]| Record {
        bytes: bytes.len() as u32,
        ..record(point, Transport::Tcp, 1, 1, time_ns)
    };
    let mut take = |decoding: &mut Decoding, point, time, bytes: &[u8]| {
        decoding.take(call(point, time, bytes), bytes, &mut |record, _| messages.push(record));
    };
    take(&mut decoding, Point::Received, 10, b"PUB a 4\r\nab");
    take(&mut decoding, Point::Received, 20, b"cd\r\n");
    take(&mut decoding, Point::Queued, 30, b"MSG a 1 4\r\n");
    take(&mut decoding, Point::Sent, 40, b"abcd\r\n");
    take(&mut decoding, Point::Received, 50, b"PUB a 4\r\nab");
    decoding.lose(60);
    take(&mut decoding, Point::Received, 60, b"PUB b 1\r\nx\r\n");
    let times: Vec<_> = messages.iter().map(|m| (m.time_ns, m.point, m.bytes)).collect();
    assert_eq!(times, [(20, Point::Received, 15), (30, Point::Queued, 17), (60, Point::Received, 12)]);
    assert_eq!(messages[0].id, messages[1].id);
    assert!(messages.iter().all(|message| matches!(message.kind, Kind::Publish)));
    assert_eq!(decoding.decoded(), Decoded::default());
}

/// An event of a connection: bytes that go in (true) or out, or calls are missing.
type Step = Option<(bool, &'static str)>;
const LOST: Step = None;

/// Which of a connection's answers have an id, with the seconds at which each step is.
fn answers_at(decode: Decode, steps: &[(u64, Step)]) -> Vec<bool> {
    let mut decoding = Decoding::new(decode);
    let mut answers = Vec::new();
    for (seconds, step) in steps {
        let time_ns = 1 + seconds * 1_000_000_000;
        let Some((is_in, text)) = step else {
            decoding.lose(time_ns);
            continue;
        };
        let point = if *is_in { Point::Received } else { Point::Sent };
        let call = Record { bytes: text.len() as u32, ..record(point, Transport::Tcp, 1, 1, time_ns) };
        decoding.take(call, text.as_bytes(), &mut |record, _| {
            if record.kind == Kind::Response {
                answers.push(record.id.is_some());
            }
        });
    }
    answers
}

const ASKED: Step = Some((true, "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"));
const SAID: Step = Some((false, "+OK\r\n"));

/// Answers belong to requests by their order, but not if requests overlap and some were not seen.
#[test]
fn answers_are_not_shifted_by_a_loss() {
    let answers =
        |steps: &[Step]| answers_at(Decode::Redis, &steps.iter().map(|step| (0, *step)).collect::<Vec<_>>());
    assert_eq!(answers(&[ASKED, ASKED, SAID, ASKED, SAID, SAID]), [true; 3]);
    // The answer to a request that was not seen; from then on one at a time.
    assert_eq!(answers(&[LOST, SAID, ASKED, SAID, ASKED, SAID]), [false, true, true]);
    // Two at a time: the first of these answers may be another request's.
    assert_eq!(answers(&[ASKED, ASKED, LOST, SAID, ASKED, SAID, ASKED, SAID, SAID]), [false; 4]);
}

/// A connection that is silent for ten seconds has nothing open that was not seen. Where calls are missing, it may not have been silent.
#[test]
fn answers_have_ids_again_after_a_silence() {
    let http = (
        Some((true, "GET / HTTP/1.1\r\n\r\n")),
        Some((false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
    );
    for (decode, (asked, said)) in [(Decode::Redis, (ASKED, SAID)), (Decode::Http, http)] {
        let one = |seconds| [(seconds, asked), (seconds, said)];
        let two = |seconds| [(seconds, asked), (seconds, asked), (seconds, said), (seconds, said)];
        let lost = |seconds| [(seconds, LOST)];
        // Silent for nine seconds, and for ten.
        let steps = [&two(0)[..], &lost(1), &one(2), &one(11), &two(21), &one(22)].concat();
        let expected = [true, true, false, false, true, true, true];
        assert_eq!(answers_at(decode.clone(), &steps), expected, "{decode:?}");
        // For eleven, as it seems, and then for ten since calls were missing.
        let steps = [&two(0)[..], &lost(1), &one(2), &lost(9), &one(13), &lost(14), &two(24)].concat();
        let expected = [true, true, false, false, true, true];
        assert_eq!(answers_at(decode.clone(), &steps), expected, "{decode:?}");
    }
}

/// Not all connections that have ended are kept.
#[test]
fn memory_is_bounded() {
    let mut decoding = Decoding::new(Decode::Nats);
    for socket in 0..=super::SOCKETS_MAX as u64 {
        let call = Record { bytes: 2, ..record(Point::Received, Transport::Tcp, 1, socket, socket) };
        decoding.take(call, b"PI", &mut |_, _| ());
    }
    assert!(
        decoding.sockets.len() <= super::SOCKETS_MAX
            && decoding.sockets.contains_key(&(super::SOCKETS_MAX as u64))
    );
}
