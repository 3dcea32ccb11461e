//! Bytes of messages, captured in every transport and by every kind of call that names its buffer. Ids by a pattern are those that were
//! sent.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{Relay, TRANSPORTS};
use trieline_testbed::needs_root;
use trieline_trace::{
    Backend, By, Decode, Decoded, Filter, IdAt, Joiner, Leaves, Message, Options, Point, Tracer,
};

const MESSAGES: u64 = 50;

/// `backend`: only this one; else the first that this kernel has.
fn passes(transport: &str, style: &str, leaves: Leaves, backend: Option<Backend>) {
    let mut relay = Relay::start(transport, style);
    let filter = Filter { processes: vec![relay.pid()], ..Filter::default() };
    // The relay's messages have their number in the second eight bytes; zeros follow.
    let pattern = "(?s-u)^.{8}(.{8})\0{3}".parse().unwrap();
    let decode = Some(Decode::Pattern(pattern));
    let options = Options { decode, capture: 32, slots: 1 << 10, leaves, backend, ..Options::new(filter) };
    let mut tracer = Tracer::start(&options).unwrap();
    relay.seen_by(&tracer);
    let mut joiner = Joiner::new(By::Id, tracer.at_queue());
    for id in 0..MESSAGES {
        relay.pass(id);
    }
    std::thread::sleep(Duration::from_millis(5));
    let mut messages: Vec<Message> = Vec::new();
    tracer.stop(|record| joiner.take(record, |message| messages.push(message)));
    relay.end();
    let what = format!("{transport} {style} {leaves:?} {}: {:?}", tracer.backend().name(), joiner.counts());
    let ids: Vec<_> = messages.iter().map(|message| message.received.id).collect();
    assert_eq!(ids, (0..MESSAGES).map(Some).collect::<Vec<_>>(), "{what}");
}

#[test]
fn ids_are_found_by_a_pattern() {
    needs_root!();
    for transport in TRANSPORTS {
        for style in ["read", "readv", "recv", "recvmsg", "pieces", "recvmmsg"] {
            passes(transport, style, Leaves::Queue, None);
        }
        passes(transport, "pieces", Leaves::Done, Some(Backend::SystemCalls));
    }
}

/// Where no buffer is to be seen, messages are counted and not taken for others.
#[test]
fn calls_without_a_buffer_are_counted() {
    needs_root!();
    let mut relay = Relay::start("unix-stream", "uring");
    let filter = Filter { processes: vec![relay.pid()], ..Filter::default() };
    let decode = Some(Decode::Pattern("(?s-u)(.*)".parse().unwrap()));
    let options = Options { decode, capture: 64, slots: 1 << 10, ..Options::new(filter) };
    let mut tracer = Tracer::start(&options).unwrap();
    let mut joiner = Joiner::new(By::Id, tracer.at_queue());
    (0..MESSAGES).for_each(|id| _ = relay.pass(id));
    std::thread::sleep(Duration::from_millis(5));
    tracer.stop(|record| joiner.take(record, |_| panic!("a message with unseen bytes")));
    relay.end();
    assert_eq!(joiner.counts().unreadable, 2 * MESSAGES);
}

/// Ids of what a broker has received and sent, in order.
fn ids(transport: &str, style: &str, id: IdAt) -> [Vec<Option<u64>>; 2] {
    let mut relay = Relay::start(transport, style);
    let filter = Filter { processes: vec![relay.pid()], ..Filter::default() };
    let options = Options { id: Some(id), leaves: Leaves::Done, slots: 1 << 10, ..Options::new(filter) };
    let mut tracer = Tracer::start(&options).unwrap();
    // io_uring receives again after bytes have come.
    if style != "mixed" {
        relay.seen_by(&tracer);
    }
    (1..=MESSAGES).for_each(|id| _ = relay.pass(id));
    std::thread::sleep(Duration::from_millis(5));
    let mut found = [Vec::new(), Vec::new()];
    tracer.stop(|record| {
        assert!(record.id.is_some() || record.flags.has_no_buffer(), "{transport} {style}: {record:?}");
        found[usize::from(record.point != Point::Received)].push(record.id);
    });
    relay.end();
    found
}

/// If io_uring receives while the thread is in another call, that call's buffer is not searched.
#[test]
fn ids_are_read_only_where_the_call_is_the_sockets_own() {
    needs_root!();
    let sent: Vec<_> = (1..=MESSAGES).map(Some).collect();
    for transport in ["udp4", "tcp4", "unix-stream"] {
        let found = ids(transport, "mixed", IdAt { received: 8, sent: 8, bytes: 8 });
        assert_eq!(found, [vec![None; MESSAGES as usize], sent.clone()], "{transport}");
    }
}

/// A message in pieces of 3, 10 and more bytes. An id is found behind the first one, and one that lies in two is not called short.
#[test]
fn ids_are_found_behind_the_first_piece() {
    needs_root!();
    for transport in ["udp6", "tcp6", "unix-seqpacket"] {
        let whole: Vec<_> = (1..=MESSAGES).map(|id| Some(id << 32)).collect();
        let found = ids(transport, "pieces", IdAt { received: 4, sent: 4, bytes: 8 });
        assert_eq!(found, [whole.clone(), whole], "{transport}");
        let split = vec![None; MESSAGES as usize];
        let found = ids(transport, "pieces", IdAt { received: 8, sent: 8, bytes: 8 });
        assert_eq!(found, [split.clone(), split], "{transport}");
    }
}

/// A response without a length lasts as long as its connection, and no longer: the next one's socket may lie at the same place.
#[test]
fn connections_that_end_leave_nothing_behind() {
    needs_root!();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let filter =
        Filter { processes: vec![std::process::id()], port: Some(address.port()), ..Filter::default() };
    let options = Options {
        decode: Some("http".parse().unwrap()),
        capture: 256,
        slots: 1 << 12,
        ..Options::new(filter)
    };
    let mut tracer = Tracer::start(&options).unwrap();
    let mut joiner = Joiner::new(By::Id, tracer.at_queue());
    // The server reads once the client's call has ended: in one process, a request that is still being sent looks like one passed on.
    let (sent, is_sent) = mpsc::channel();
    let server = thread::spawn(move || {
        for stream in listener.incoming().take(MESSAGES as usize) {
            let mut stream = stream.unwrap();
            let mut request = [0; 256];
            is_sent.recv().unwrap();
            assert!(stream.read(&mut request).unwrap() > 0);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwhatever comes until the end")
                .unwrap();
        }
    });
    for id in 0..MESSAGES {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(format!("GET /{id} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes()).unwrap();
        sent.send(()).unwrap();
        assert!(client.read_to_end(&mut Vec::new()).unwrap() > 0);
    }
    server.join().unwrap();
    let mut messages = 0;
    tracer.stop_events(|event| joiner.event(&event, |_| messages += 1));
    // The server's; the client's requests did not come from elsewhere.
    assert_eq!((messages, tracer.decoded()), (MESSAGES, Decoded::default()), "{:?}", joiner.counts());
}
