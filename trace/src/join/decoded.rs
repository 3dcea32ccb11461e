//! Conversations whose messages were once joined wrongly, or not at all, with nothing said.

use super::{By, Counts, Joiner, Message};
use crate::decode::{Decoded, Decoding};
use crate::record::Point::{Queued, Received};
use crate::record::tests::RECORD;
use crate::record::{Flags, Point, Record};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A call: time, point, socket, bytes.
type Call = (u64, Point, u64, Vec<u8>);

/// T2 in microseconds, the counts, and what was not decoded, if of each call so many bytes are seen.
fn run(decode: &str, capture: usize, calls: &[Call]) -> (Vec<u64>, Counts, Decoded) {
    let mut decoding = Decoding::new(decode.parse().unwrap());
    let mut joiner = Joiner::new(By::Id, true);
    let mut times = Vec::new();
    for (time_ns, point, socket, bytes) in calls {
        let call =
            Record { time_ns: *time_ns, point: *point, socket: *socket, bytes: bytes.len() as u32, ..RECORD };
        let seen = &bytes[..bytes.len().min(capture)];
        decoding.take(call, seen, &mut |record| {
            joiner.take(record, |message: Message| times.push(message.inside_ns() / US));
        });
    }
    joiner.finish(|message| times.push(message.inside_ns() / US));
    (times, joiner.counts(), decoding.decoded())
}

fn get(n: u64) -> Vec<u8> {
    format!("GET /{n} HTTP/1.1\r\n\r\n").into_bytes()
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A second apart, each answered after 100 µs.
fn requests() -> impl Iterator<Item = Call> {
    (1..=6).flat_map(|n| [(n * S, Received, 1, get(n)), (n * S + 100 * US, Queued, 1, OK.to_vec())])
}

#[test]
fn an_answer_before_the_requests_end_shifts_no_others() {
    for (head, rest) in [
        ("POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc", "defghij"),
        ("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "0\r\n\r\n"),
        ("POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "ab"),
    ] {
        let mut calls = vec![
            (US, Received, 1, head.as_bytes().to_vec()),
            (50 * US, Queued, 1, b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
            (101 * US, Queued, 1, b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec()),
            (201 * US, Received, 1, rest.as_bytes().to_vec()),
        ];
        calls.extend(requests());
        let (times, counts, _) = run("http", 1024, &calls);
        assert_eq!((times, counts.early, counts.matched), (vec![100; 6], 2, 6), "{head}");
        assert_eq!(
            (counts.unmatched_received, counts.unmatched_sent, counts.absent, counts.control),
            (0, 0, 0, 1)
        );
    }
}

/// Calls that are not decoded leave requests without an answer. The next of the same name is not joined to the answer of an older one. Nor
/// is that of another connection whose socket has the same number.
#[test]
fn requests_that_were_not_answered_wait_for_no_other_answer() {
    let calls = [
        (S, Received, 1, get(1)),
        (S + US, Queued, 1, b"HTTP/1.1 nonsense\r\n\r\n".to_vec()),
        (2 * S, Received, 1, get(1)),
        (2 * S + 100 * US, Queued, 1, OK.to_vec()),
    ];
    let (times, counts, decoded) = run("http", 1024, &calls);
    assert_eq!((times, counts.cut_off, decoded.malformed), (vec![100], 1, 1));
}

#[test]
fn mqtt_5_connections_without_connect_are_recognised_by_the_others() {
    let connect = b"\x10\x0d\0\x04MQTT\x05\x02\0\x3c\0\0\0".to_vec();
    let mut calls = vec![(500, Received, 2, connect)];
    for n in 0..5u64 {
        let publish = [&b"\x30\x07\0\x01t\0"[..], format!("{n:03}").as_bytes()].concat();
        calls.push((MS * (n + 1), Received, 1, publish.clone()));
        calls.push((MS * (n + 1) + 50 * US, Queued, 2, publish));
    }
    let (times, counts, _) = run("mqtt", 256, &calls);
    // The first message's thread is not known yet.
    assert_eq!((times, counts.unmatched_received, counts.unmatched_sent), (vec![50; 4], 1, 1));
    // Of 3.1.1, whose payload may begin with a zero as well.
    let mut calls = vec![(500, Received, 2, b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0".to_vec())];
    for n in 0..5u64 {
        let publish = [&b"\x30\x07\0\x01t\0"[..], format!("{n:03}").as_bytes()].concat();
        calls.push((MS * (n + 1), Received, 1, publish.clone()));
        calls.push((MS * (n + 1) + 50 * US, Queued, 2, publish));
    }
    assert_eq!(run("mqtt", 256, &calls).0, vec![50; 5]);
}

#[test]
fn bytes_that_are_not_seen_are_counted() {
    for capture in [256usize, 4096] {
        let chunk: Vec<u8> =
            (0..421).flat_map(|n| format!("PUB a.b 64\r\n{n:064}\r\n").into_bytes()).collect();
        let calls: Vec<Call> = (0..10).map(|k| (k * MS + 1, Received, 1, chunk.clone())).collect();
        let (_, counts, decoded) = run("nats", capture, &calls);
        let message = chunk.len() as u64 / 421;
        assert_eq!(
            (decoded.unseen, counts.received * message + decoded.bytes),
            (10, 10 * chunk.len() as u64)
        );
    }
}

/// A message in a send that was not decoded may have been the first of those in hand.
#[test]
fn a_second_copy_is_not_the_first_that_was_not_seen() {
    let publish = |text: &str| format!("PUB t {}\r\n{text}\r\n", text.len()).into_bytes();
    let message = |text: &str| format!("MSG t 1 {}\r\n{text}\r\n", text.len()).into_bytes();
    let long = "x".repeat(300);
    let calls = [
        (MS, Received, 1, publish("one")),
        (2 * MS, Queued, 2, [message(&long), message("one")].concat()),
        (3 * MS, Queued, 3, message("one")),
    ];
    let (times, counts, decoded) = run("nats", 256, &calls);
    assert_eq!((times, counts.cut_off, decoded.unseen), (vec![], 1, 1));
}

#[test]
fn acknowledgements_of_replicas_are_no_requests() {
    let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n".to_vec();
    let mut calls: Vec<Call> = Vec::new();
    for n in 1..=5u64 {
        let ack = b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$5\r\n12345\r\n".to_vec();
        calls.push((n * S, Received, 5, ack));
        calls.push((n * S + 300 * MS, Received, 1, set.clone()));
        calls.push((n * S + 300 * MS + 10 * US, Queued, 1, b"+OK\r\n".to_vec()));
        calls.push((n * S + 300 * MS + 20 * US, Queued, 5, set.clone()));
    }
    let (times, counts, _) = run("redis", 256, &calls);
    assert_eq!((times, counts.unmatched_received, counts.control), (vec![10; 5], 0, 10));
}

#[test]
fn redis_commands_without_replies_wait_for_none() {
    let command = |words: &[&str]| {
        let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        let count = words.matches('$').count();
        format!("*{count}\r\n{words}").into_bytes()
    };
    let calls = [
        (MS, Received, 1, command(&["CLIENT", "REPLY", "SKIP"])),
        (2 * MS, Received, 1, command(&["SET", "a", "1"])),
        (3 * MS, Received, 1, command(&["GET", "a"])),
        (3 * MS + 10 * US, Queued, 1, b"$1\r\n1\r\n".to_vec()),
        (4 * MS, Received, 1, command(&["client", "reply", "OFF"])),
        (5 * MS, Received, 1, command(&["SET", "a", "1"])),
        (6 * MS, Received, 1, command(&["CLIENT", "REPLY", "ON"])),
        (6 * MS + 20 * US, Queued, 1, b"+OK\r\n".to_vec()),
    ];
    let (times, counts, _) = run("redis", 256, &calls);
    assert_eq!((times, counts.absent, counts.unmatched_received), (vec![10, 20], 4, 0));
}

#[test]
fn answers_match_only_requests_before_them() {
    // Of the first request nothing was seen; the head of its answer leaves in two pieces.
    let replies = |at: std::ops::Range<usize>| OK[at].to_vec();
    let calls = [
        (MS, Queued, 1, replies(0..9)),
        (MS + 100 * US, Received, 1, get(1)),
        (MS + 200 * US, Queued, 1, replies(9..OK.len())),
        (MS + 300 * US, Queued, 1, OK.to_vec()),
        (MS + 400 * US, Received, 1, get(2)),
        (MS + 450 * US, Queued, 1, OK.to_vec()),
    ];
    let (times, counts, _) = run("http", 256, &calls);
    // Nor is it known what the next one answers.
    assert_eq!((times, counts.absent, counts.streamed), (vec![50], 2, 0));
}

/// If the call is unknown, its messages have no positions to join by.
#[test]
fn messages_without_counted_bytes_have_no_position() {
    let mut decoding = Decoding::new("nats".parse().unwrap());
    let publish = b"PUB t 1\r\na\r\nPUB t 1\r\nb\r\n";
    let call = Record { bytes: publish.len() as u32, flags: Flags(Flags::NO_POSITION), ..RECORD };
    let mut known = Vec::new();
    decoding.take(call, publish, &mut |record| known.push(record.flags.has_no_position()));
    assert_eq!(known, [true, true]);
}
