//! Which transports and system calls each backend sees. Real processes, every message checked against the clocks of the
//! client and of the broker, and the table in docs/trace.md compared with what is found.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Relay, TRANSPORTS, Trip};
use trieline_testbed::needs_root;
use trieline_trace::{Backend, By, Filter, IdAt, Joiner, Message, Options, Point, Tracer};

const STYLES: [&str; 8] = ["read", "readv", "recv", "recvmsg", "recvmmsg", "epoll", "splice", "uring"];
const MESSAGES: usize = 200;
const DOCUMENT: &str = include_str!("../../docs/trace.md");

/// A cell of the table: `all` only if every message was found where all clocks agree that it was.
fn cell(transport: &str, style: &str, backend: Backend, id: Option<IdAt>) -> String {
    let mut relay = Relay::start(transport, style);
    let filter = Filter { processes: vec![relay.pid()], ..Filter::default() };
    let options = Options { backend: Some(backend), id, ..Options::new(filter) };
    let mut tracer = match Tracer::start(&options) {
        Ok(tracer) => tracer,
        Err(error) => panic!("{transport} {style} {}: {error}", backend.name()),
    };
    let mut joiner = Joiner::new(if id.is_some() { By::Id } else { By::Thread }, tracer.at_queue());
    // Functions that were entered before the hooks were attached are not seen: the broker waits in one.
    relay.pass(u64::MAX);
    std::thread::sleep(Duration::from_millis(5));
    let trips: Vec<Trip> = (0..MESSAGES).map(|id| relay.pass(id as u64)).collect();
    // The last send may end after its message has arrived.
    std::thread::sleep(Duration::from_millis(5));
    let mut messages: Vec<Message> = Vec::new();
    tracer.stop(|record| {
        if record.time_ns > trips[0].sent_ns {
            joiner.take(record, |message| messages.push(message));
        }
    });
    joiner.finish(|message| messages.push(message));
    let clocks = relay.end().split_off(1);

    let seen = tracer.seen();
    assert_eq!((seen.lost, seen.missed), (0, 0), "{transport} {style}");
    assert_eq!(clocks.len(), MESSAGES);
    let counts = joiner.counts();
    if messages.is_empty() {
        return format!("none: {} received, {} sent", part(counts.received), part(counts.sent));
    }
    assert_eq!(messages.len(), MESSAGES, "{transport} {style} {}: {counts:?}", backend.name());
    for (index, ((message, trip), (after, before))) in messages.iter().zip(&trips).zip(clocks).enumerate() {
        let (b, c) = (message.received.time_ns, message.sent.time_ns);
        let what = format!(
            "{transport} {style} {}: message {index}: {message:?} {trip:?} {after} {before}",
            backend.name()
        );
        assert!(trip.sent_ns <= b && after <= before && before <= c, "{what}");
        // At the end of a system call its result is not yet in the process, either.
        assert!(b <= after, "{what}");
        // The end of a send comes after the delivery.
        assert!(message.sent.point == Point::Sent || c <= trip.received_ns, "{what}");
        assert_eq!(message.received.id, id.map(|_| index as u64), "{what}");
        assert!(message.inside_ns() >= before - after && !message.is_reply(), "{what}");
    }
    "all".into()
}

fn part(count: u64) -> &'static str {
    match count as usize {
        0 => "none",
        MESSAGES => "all",
        _ => "some",
    }
}

#[test]
fn the_table_of_coverage_is_true() {
    needs_root!();
    let mut wrong = Vec::new();
    for style in STYLES {
        // Transports with the same cells share a line.
        let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
        for transport in TRANSPORTS {
            let sockets = cell(transport, style, Backend::Sockets, None);
            let ids = cell(transport, style, Backend::Sockets, Some(IdAt { received: 8, sent: 8, bytes: 8 }));
            let calls = cell(transport, style, Backend::SystemCalls, None);
            let cells = format!("{sockets} | {ids} | {calls}");
            match lines.iter_mut().find(|(known, _)| *known == cells) {
                Some((_, transports)) => transports.push(transport),
                None => lines.push((cells, vec![transport])),
            }
        }
        for (cells, transports) in lines {
            let transports = if transports == TRANSPORTS { "every".into() } else { transports.join(", ") };
            let line = format!("| {style} | {transports} | {cells} |");
            if !DOCUMENT.contains(&line) {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "docs/trace.md does not say this:\n{}", wrong.join("\n"));
}

/// The first backend sees what the second does; most kernels under lockdown refuse it.
#[test]
fn functions_see_every_message() {
    needs_root!();
    let nobody = Filter { port: Some(1), ..Filter::default() };
    if let Err(error) = Tracer::start(&Options { backend: Some(Backend::Functions), ..Options::new(nobody) })
    {
        // Nothing else may stop it, least of all the verifier, which says EACCES or EINVAL.
        let text = error.to_string();
        let known = ["BTF does not have the functions", "refuses them even to root (EPERM", "os error 524"];
        assert!(known.iter().any(|reason| text.contains(reason)), "{text}");
        println!("EXPECTED SKIP: {text}");
        return;
    }
    for style in ["read", "recvmsg", "recvmmsg", "epoll"] {
        for transport in TRANSPORTS {
            assert_eq!(cell(transport, style, Backend::Functions, None), "all", "{transport} {style}");
        }
    }
}
