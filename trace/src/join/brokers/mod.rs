//! Brokers made up at random, which know themselves when each message came and left. Every T2 that is found is right, and every message that has
//! none is in a count.
//!
//! `TRIELINE_TRACE_MESSAGES` sets the number of messages for each way to join (default 20,000).

mod ids;
mod streams;
mod threads;

use std::collections::HashSet;
use std::env;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{By, Joiner, Message};
use crate::record::tests::RECORD;
use crate::record::{Ends, Event, Flags, Kind, Point, Record, Socket, Transport};

/// These numbers decide the broker's steps: each step takes some.
type Steps = [u32];

/// A run of brokers under the eyes of hooks that now and then lose something.
#[derive(Debug, Default)]
struct Run {
    now_ns: u64,
    events: Vec<Event>,
    /// So many events are lost from here on.
    losing: u32,
    has_lost: bool,
    /// Messages as they were.
    truth: HashSet<Way>,
    /// Receives and sends that were noted and that have an id, where there are ids.
    received: u64,
    sent: u64,
    /// The joiner follows so few ids.
    ids_max: Option<usize>,
}

/// When it came and when it left: no two events are of one time.
type Way = (u64, u64);

fn way(received: &Record, sent: &Record) -> Way {
    (received.time_ns, sent.time_ns)
}

impl Run {
    /// Any other time than all before it.
    fn tick(&mut self, by: u32) -> u64 {
        self.now_ns += 1 + u64::from(by % 1000);
        self.now_ns
    }

    /// Loses the next events.
    fn lose(&mut self, events: u32) {
        self.losing += events;
    }

    fn note(&mut self, event: Event) {
        if self.losing > 0 {
            self.losing -= 1;
            self.has_lost = true;
            return;
        }
        if std::mem::take(&mut self.has_lost) {
            self.events.push(Event::Gap { time_ns: self.now_ns });
        }
        if let Event::Record(record) = event {
            let is_plain = record.flags == Flags(0) && record.kind == Kind::Message;
            let is_counted = record.id.is_some() || is_plain;
            let is_received = record.point == Point::Received;
            *if is_received { &mut self.received } else { &mut self.sent } += u64::from(is_counted);
        }
        self.events.push(event);
    }

    /// Joins the events: each T2 is true, and each receive and each send is in one count. How many T2 there were.
    fn check(&self, by: By) -> Result<usize, TestCaseError> {
        let mut joiner = self.ids_max.map_or_else(|| Joiner::new(by, true), Joiner::of_few);
        let mut found: Vec<Message> = Vec::new();
        for event in &self.events {
            joiner.event(event, |message| found.push(message));
        }
        joiner.finish(|message| found.push(message));
        for message in &found {
            let joined = way(&message.received, &message.sent);
            prop_assert!(
                self.truth.contains(&joined),
                "{joined:?} is not a message that existed: {message:?}"
            );
        }
        let counts = joiner.counts();
        let all = counts.matched
            + counts.pieces
            + counts.ambiguous
            + counts.unmatched_received
            + counts.cut_off
            + counts.shared
            + counts.given_up
            + counts.streamed;
        prop_assert_eq!(all, self.received, "receives: {:?}", counts);
        let all = counts.matched
            + counts.ways
            + counts.copies
            + counts.aside
            + counts.undecided
            + counts.unmatched_sent
            + counts.streamed;
        prop_assert_eq!(all, self.sent, "sends: {:?}", counts);
        Ok(found.len())
    }
}

/// The socket is a new one by its number.
fn opened(number: u64, transport: Transport) -> Event {
    Event::Socket(Socket { number, transport, ends: Ends::Unix(None) })
}

fn event(time_ns: u64, process: u32, thread: u32, point: Point, transport: Transport, socket: u64) -> Record {
    Record { time_ns, socket, thread, process, point, transport, ..RECORD }
}

/// Runs brokers until they have had enough messages. A run returns how many it had, and how many T2 were found.
fn all_are_right(name: &str, run: impl Fn(&Steps) -> Result<(u64, usize), TestCaseError>) {
    most_are_found(name, 5, run);
}

/// The same; one of so many messages is joined.
fn most_are_found(name: &str, of: u64, run: impl Fn(&Steps) -> Result<(u64, usize), TestCaseError>) {
    let wanted: u64 =
        env::var("TRIELINE_TRACE_MESSAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let (messages, found) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    while messages.get() < wanted {
        // One that has had its cases runs no more.
        let config = Config { cases: 25, failure_persistence: None, ..Config::default() };
        let done = TestRunner::new(config).run(&prop::collection::vec(any::<u32>(), 50..600), |steps| {
            let (had, joined) = run(&steps)?;
            messages.set(messages.get() + had);
            found.set(found.get() + joined);
            Ok(())
        });
        if let Err(error) = done {
            panic!("{name}: {error}");
        }
    }
    println!("{name}: {} messages, {} T2, all right", messages.get(), found.get());
    // A joiner that counts everything as ambiguous is never wrong.
    assert!(found.get() as u64 * of > messages.get(), "{name}: {} of {}", found.get(), messages.get());
}

#[test]
fn by_thread() {
    most_are_found("by thread", 15, threads::run);
}

#[test]
fn by_id() {
    all_are_right("by id", ids::run);
}

#[test]
fn by_id_where_ids_are_let_go() {
    most_are_found("by few ids", 20, ids::run_with_few);
}

#[test]
fn by_decoder() {
    all_are_right("by decoder", streams::run);
}
