//! Properties of every decoder: messages are the same however calls cut the bytes, and no bytes make one panic.

use proptest::prelude::*;

use super::framer::{Decoded, Framer};
use super::protocol::{Direction, Examples, Found, Protocol};
use super::{DECODERS, Decoding};
use crate::record::tests::record;
use crate::record::{Kind, Point, Record, Transport};

/// The messages that a decoder finds in these bytes, in one call.
pub(super) fn found(protocol: &mut dyn Protocol, bytes: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    let record = Record { bytes: bytes.len() as u32, ..record(Point::Received, Transport::Tcp, 1, 1, 1) };
    let mut decoded = Decoded::default();
    Framer::default().feed(protocol, Direction::In, &record, bytes, &mut decoded, &mut |_, message, _| {
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
    Framer::default().feed(protocol, Direction::Out, &record, replies, &mut decoded, &mut |_, message, _| {
        answers.push(message)
    });
    assert_eq!(decoded, Decoded::default());
    [asked, answers]
}

/// Calls that move these bytes, cut at these places, with `capture` bytes of each seen: the messages, and counts of unread bytes.
fn calls(decode: &str, bytes: &[u8], cuts: &[usize], capture: usize) -> (Vec<Record>, Decoded) {
    let mut decoding = Decoding::new(decode.parse().unwrap());
    let mut messages = Vec::new();
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
        decoding.take(call, &part[..part.len().min(capture)], &mut |record| {
            if !record.flags.is_rest() {
                messages.push(record);
            }
        });
    }
    (messages, decoding.decoded())
}

/// Every decoder by its name, and messages that have their length before them.
fn decoders() -> impl Strategy<Value = (&'static str, Examples)> {
    const LENGTH: Examples = Examples {
        message: |_, payload, _| [&(payload.len() as u16).to_be_bytes()[..], payload].concat(),
        words: &[],
    };
    let named = DECODERS.iter().map(|decoder| (decoder.name, decoder.examples));
    prop::sample::select(named.chain([("length:0:2", LENGTH)]).collect::<Vec<_>>())
}

/// A message without its call.
fn essence(records: &[Record]) -> Vec<(Kind, Option<u64>, u32)> {
    records.iter().map(|record| (record.kind, record.id, record.bytes)).collect()
}

/// Numbers that decoders should not trust.
const NUMBERS: &[&[u8]] = &[b"9", b"-1", b"18446744073709551615", b"\xff", b"\0"];

/// Words that some decoder looks for, and numbers, in any order.
fn nonsense() -> impl Strategy<Value = Vec<&'static [u8]>> {
    let words = DECODERS.iter().flat_map(|decoder| decoder.examples.words);
    prop::collection::vec(prop::sample::select(words.chain(NUMBERS).copied().collect::<Vec<_>>()), 0..40)
}

proptest! {
    #[test]
    fn calls_do_not_matter(
        (name, examples) in decoders(),
        messages in prop::collection::vec(("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..300), 0..3u8), 1..8),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        capture in 0usize..400,
    ) {
        let each: Vec<Vec<u8>> =
            messages.iter().map(|(topic, payload, kind)| (examples.message)(topic, payload, *kind)).collect();
        let bytes = each.concat();
        // Each in a call of its own.
        let mut borders = Vec::new();
        each.iter().fold(0, |end, message| { borders.push(end + message.len()); end + message.len() });
        let (expected, decoded) = calls(name, &bytes, &borders, usize::MAX);
        prop_assert_eq!(decoded, Decoded::default());
        prop_assert_eq!(expected.len(), each.len());
        for (record, message) in expected.iter().zip(&each) {
            prop_assert_eq!(record.bytes as usize, message.len());
            prop_assert!(record.id.is_some() || record.kind == Kind::Control);
        }
        let (other, decoded) = calls(name, &bytes, &cuts, usize::MAX);
        prop_assert_eq!(decoded, Decoded::default());
        prop_assert_eq!(essence(&other), essence(&expected));
        // One call with all of them: unseen parts are marked as such, and found ones are right.
        let (seen, decoded) = calls(name, &bytes, &[], capture);
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
        (name, _) in decoders(),
        text in nonsense(),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
        capture in 0usize..100,
    ) {
        calls(name, &text.concat(), &cuts, capture);
    }
}

/// A row of the table in docs/trace-joining.md for each.
#[test]
fn every_decoder_is_in_the_docs() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/trace-joining.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| decoder |").unwrap();
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| `"));
    let documented: Vec<&str> = rows.filter_map(|row| row.split(['`', ':']).next()).collect();
    let known: Vec<&str> = DECODERS.iter().map(|decoder| decoder.name).chain(["length"]).collect();
    assert_eq!(documented, known);
}

/// After what makes no sense, the next call that begins with a message is read.
#[test]
fn decoding_goes_on_after_nonsense() {
    let bytes = b"nonsense\r\nPUB a 1\r\nx\r\nPING\r\n";
    let (messages, decoded) = calls("nats", bytes, &[10], usize::MAX);
    assert_eq!((messages.len(), decoded), (2, Decoded { malformed: 1, unseen: 0, bytes: 10 }));
}

/// A received message has the time of its last byte, a sent one that of its first. Where records were lost, no half is joined to another.
#[test]
fn times_and_losses() {
    let mut decoding = Decoding::new("nats".parse().unwrap());
    let mut messages = Vec::new();
    let call = |point, time_ns, bytes: &[u8]| Record {
        bytes: bytes.len() as u32,
        ..record(point, Transport::Tcp, 1, 1, time_ns)
    };
    let mut take = |decoding: &mut Decoding, point, time, bytes: &[u8]| {
        decoding.take(call(point, time, bytes), bytes, &mut |record| messages.push(record));
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
fn answers_at(decode: &str, steps: &[(u64, Step)]) -> Vec<bool> {
    let mut decoding = Decoding::new(decode.parse().unwrap());
    let mut answers = Vec::new();
    for (seconds, step) in steps {
        let time_ns = 1 + seconds * 1_000_000_000;
        let Some((is_in, text)) = step else {
            decoding.lose(time_ns);
            continue;
        };
        let point = if *is_in { Point::Received } else { Point::Sent };
        let call = Record { bytes: text.len() as u32, ..record(point, Transport::Tcp, 1, 1, time_ns) };
        decoding.take(call, text.as_bytes(), &mut |record| {
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
        |steps: &[Step]| answers_at("redis", &steps.iter().map(|step| (0, *step)).collect::<Vec<_>>());
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
    for (decode, (asked, said)) in [("redis", (ASKED, SAID)), ("http", http)] {
        let one = |seconds| [(seconds, asked), (seconds, said)];
        let two = |seconds| [(seconds, asked), (seconds, asked), (seconds, said), (seconds, said)];
        let lost = |seconds| [(seconds, LOST)];
        // Silent for nine seconds, and for ten.
        let steps = [&two(0)[..], &lost(1), &one(2), &one(11), &two(21), &one(22)].concat();
        let expected = [true, true, false, false, true, true, true];
        assert_eq!(answers_at(decode, &steps), expected, "{decode}");
        // For eleven, as it seems, and then for ten since calls were missing.
        let steps = [&two(0)[..], &lost(1), &one(2), &lost(9), &one(13), &lost(14), &two(24)].concat();
        let expected = [true, true, false, false, true, true];
        assert_eq!(answers_at(decode, &steps), expected, "{decode}");
    }
}

/// Not all connections that have ended are kept.
#[test]
fn memory_is_bounded() {
    let mut decoding = Decoding::new("nats".parse().unwrap());
    for socket in 0..=super::SOCKETS_MAX as u64 {
        let call = Record { bytes: 2, ..record(Point::Received, Transport::Tcp, 1, socket, socket) };
        decoding.take(call, b"PI", &mut |_| ());
    }
    assert!(
        decoding.sockets.len() <= super::SOCKETS_MAX
            && decoding.sockets.contains_key(&(super::SOCKETS_MAX as u64))
    );
}
