//! Finds out which message that left a process is the one that came in. It goes by the thread that handled the message, or by an id that
//! the message carries.
//!
//! Messages that cannot be joined are counted as such and never guessed.

#[cfg(test)]
mod brokers;
mod by_id;
mod by_thread;
#[cfg(test)]
mod cases;
mod clocks;
mod counts;
#[cfg(test)]
mod decoded;
mod hops;
mod message;
mod part;
mod passes;

use std::collections::HashMap;

use crate::record::{Event, Kind, Point, Record, Transport};
use by_id::Ids;
use by_thread::Threads;
pub use clocks::{Offset, offsets};
pub use counts::Counts;
pub use hops::{Hop, HopCounts, Hops};
pub use message::Message;
pub use part::{Part, Place};
pub use passes::Passes;

/// The property that makes two records the same message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The thread: what it sends after a receive, and before the next one, is what it received.
    Thread,
    /// The id in the payload, whichever thread sends it.
    Id,
}

/// Joins records that come in the order of time.
#[derive(Debug)]
pub struct Joiner {
    at_queue: bool,
    with: With,
    counts: Counts,
    /// How many sockets have had the number before, where events say so.
    generations: HashMap<u64, u64>,
    /// How often events may have been missing that would have said so.
    gaps: u64,
}

#[derive(Debug)]
enum With {
    Threads(Box<Threads>),
    Ids(Box<Ids>),
}

impl Joiner {
    /// `at_queue`: whether UDP and TCP are noted at the device's queue ([`crate::Tracer::at_queue`]).
    pub fn new(by: By, at_queue: bool) -> Joiner {
        let with = match by {
            By::Thread => With::Threads(Box::default()),
            By::Id => With::Ids(Box::default()),
        };
        Joiner::with(with, at_queue)
    }

    fn with(with: With, at_queue: bool) -> Joiner {
        Joiner { at_queue, with, counts: Counts::default(), generations: HashMap::new(), gaps: 0 }
    }

    /// By id; of so few ids that some are let go.
    #[cfg(test)]
    fn of_few(ids_max: usize) -> Joiner {
        Joiner::with(With::Ids(Box::new(Ids::of(ids_max))), true)
    }

    /// The next event.
    pub fn event(&mut self, event: &Event, each: impl FnMut(Message)) {
        self.gaps += u64::from(matches!(event, Event::Gap { .. }) && !self.generations.is_empty());
        match (event, &mut self.with) {
            (Event::Record(record), _) => self.take(*record, each),
            (Event::Ended { thread, .. }, With::Threads(threads)) => {
                threads.ended(*thread, &mut self.counts, each);
            }
            (Event::Process { process, runtime }, With::Threads(threads)) => {
                threads.share(*process, runtime.is_some());
            }
            (Event::Gap { .. }, With::Threads(threads)) => threads.gap(&mut self.counts, each),
            (Event::Gap { time_ns }, With::Ids(ids)) => ids.gap(*time_ns, &mut self.counts, each),
            (Event::Socket(socket), _) => *self.generations.entry(socket.number).or_default() += 1,
            _ => {}
        }
    }

    /// All events up to then have been taken: messages of threads that have long sent them are whole.
    pub fn drain(&mut self, until_ns: u64, each: impl FnMut(Message)) {
        match &mut self.with {
            With::Threads(threads) => threads.drain(until_ns, &mut self.counts, each),
            With::Ids(ids) => ids.drain(until_ns, &mut self.counts, each),
        }
    }

    /// The next record; whole messages go to `each`. Those of clients are only counted.
    pub fn take(&mut self, mut record: Record, each: impl FnMut(Message)) {
        record.socket = self.socket(record.socket);
        if record.flags.is_rest() {
            if let With::Ids(ids) = &mut self.with {
                ids.unseen(&record);
            }
            return;
        }
        if record.flags.is_client() {
            self.counts.clients += 1;
            return;
        }
        if record.kind == Kind::Control {
            self.counts.control += 1;
            return;
        }
        if record.point == Point::Received {
            self.counts.received += 1;
        } else {
            self.counts.sent += 1;
            let is_later = self.at_queue && (record.point, record.transport) == (Point::Sent, Transport::Tcp);
            self.counts.queued_later += u64::from(is_later);
        }
        match &mut self.with {
            With::Threads(threads) => threads.take(record, &mut self.counts, each),
            With::Ids(ids) => ids.take(record, &mut self.counts, each),
        }
    }

    /// A number that no other socket has had.
    fn socket(&self, number: u64) -> u64 {
        let generation = self.generations.get(&number).map_or(0, |before| before + self.gaps);
        number.wrapping_add(generation.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// There are no more records.
    pub fn finish(&mut self, each: impl FnMut(Message)) {
        match &mut self.with {
            With::Threads(threads) => threads.finish(&mut self.counts, each),
            With::Ids(ids) => ids.finish(&mut self.counts, each),
        }
    }

    /// Counts of the records so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn join(by: By, at_queue: bool, records: &[Record]) -> (Vec<Message>, Counts) {
        let mut joiner = Joiner::new(by, at_queue);
        let mut messages = Vec::new();
        for record in records {
            joiner.take(*record, |message| messages.push(message));
        }
        joiner.finish(|message| messages.push(message));
        (messages, joiner.counts())
    }
}
