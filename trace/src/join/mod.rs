//! Finds out which message that left a process is the one that came in: by the thread that handled it, or by an id that it carries.
//!
//! Messages that cannot be joined are counted as such and never guessed.

#[cfg(test)]
mod brokers;
mod by_id;
mod by_thread;
#[cfg(test)]
mod cases;
mod clocks;
mod hops;
mod passes;

use std::collections::HashMap;
use std::ops::AddAssign;

use crate::record::{Event, Kind, Point, Record, Transport};
use by_id::Ids;
use by_thread::Threads;
pub use clocks::{Offset, offsets};
pub use hops::{Hop, HopCounts, Hops};
pub use passes::Passes;

/// The property that makes two records the same message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The thread: what it sends after a receive, and before the next one, is what it received.
    Thread,
    /// The id in the payload, whichever thread sends it.
    Id,
}

/// A message that came in and went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Point B.
    pub received: Record,
    /// Point C: [`Point::Queued`] or [`Point::Sent`].
    pub sent: Record,
    /// Calls that read it; more than one only from streams.
    pub reads: u32,
}

impl Message {
    /// T2: nanoseconds in the process.
    pub fn inside_ns(&self) -> u64 {
        self.sent.time_ns.saturating_sub(self.received.time_ns)
    }

    /// Whether it went back by the socket that it came in by.
    pub fn is_reply(&self) -> bool {
        self.received.socket == self.sent.socket
    }
}

/// Counts of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Receives.
    pub received: u64,
    /// Sends, each once, whether seen at the device's queue, at the end of the call or at both.
    pub sent: u64,
    /// Messages: a receive, or several reads of one, with the send that it led to.
    pub matched: u64,
    /// Reads beyond a message's first, from the same stream.
    pub pieces: u64,
    /// Sends beyond a message's first: fan-out, or one message sent in parts.
    pub copies: u64,
    /// By thread: sends that end a T2 of a message that has another one already: it was passed on and answered, or left by several
    /// transports.
    pub ways: u64,
    /// By thread: datagrams and lines to Unix streams, sent while the thread had a message of another transport, by a socket that nothing was received by: lines of a log,
    /// counters. They end no T2.
    pub aside: u64,
    /// Receives that cannot be assigned: several came before a send, or their sends went by several sockets. With ids: messages whose id
    /// was in the process more than once, so that the send may be another's.
    pub ambiguous: u64,
    /// Sends of ambiguous or cut-off messages, whose own message is not known.
    pub undecided: u64,
    /// By thread: receives of processes whose runtime moves messages between threads ([`crate::Runtime`]).
    pub shared: u64,
    /// Receives that no send followed.
    pub unmatched_received: u64,
    /// Sends without a receive before them; with ids: without a receive of the same id.
    pub unmatched_sent: u64,
    /// Sends over TCP that the kernel queued only later, outside the call: C is the end of the call instead.
    pub queued_later: u64,
    /// With ids: messages whose send began before all was received, as a relay does that passes bytes on while they come: they have no T2.
    pub streamed: u64,
    /// With a decoder: answers that began before their request had come to its end, and such requests: they have no T2.
    pub early: u64,
    /// With ids: messages too short for theirs.
    pub short: u64,
    /// With ids by a pattern or a decoder: messages that have none.
    pub absent: u64,
    /// With a decoder: messages of the connections themselves, and acknowledgements; not among `received` and `sent`.
    pub control: u64,
    /// Receives and sends of clients; not among `received` and `sent`.
    pub clients: u64,
    /// With ids: messages whose bytes the hook could not see.
    pub unreadable: u64,
    /// Receives that were in hand when records were lost, or as the hooks went off: what was sent next is not known.
    pub cut_off: u64,
    /// With ids: receives that were let go before a send of theirs was seen, as too many others waited: whether one followed is not known.
    pub given_up: u64,
    /// With ids: those that were let go before they had rested, as more than 2^18 came in that time: what is sent with them later is
    /// unasked.
    pub forgotten: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.received += more.received;
        self.sent += more.sent;
        self.matched += more.matched;
        self.pieces += more.pieces;
        self.copies += more.copies;
        self.ways += more.ways;
        self.aside += more.aside;
        self.ambiguous += more.ambiguous;
        self.undecided += more.undecided;
        self.shared += more.shared;
        self.unmatched_received += more.unmatched_received;
        self.unmatched_sent += more.unmatched_sent;
        self.queued_later += more.queued_later;
        self.streamed += more.streamed;
        self.early += more.early;
        self.short += more.short;
        self.absent += more.absent;
        self.control += more.control;
        self.clients += more.clients;
        self.unreadable += more.unreadable;
        self.cut_off += more.cut_off;
        self.given_up += more.given_up;
        self.forgotten += more.forgotten;
    }
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
    pub fn settle(&mut self, until_ns: u64, each: impl FnMut(Message)) {
        match &mut self.with {
            With::Threads(threads) => threads.settle(until_ns, &mut self.counts, each),
            With::Ids(ids) => ids.settle(until_ns, &mut self.counts, each),
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
    use crate::record::Flags;

    /// Thread, socket, time; the rest is the same in all.
    pub(crate) fn record(
        point: Point,
        transport: Transport,
        thread: u32,
        socket: u64,
        time_ns: u64,
    ) -> Record {
        Record {
            time_ns,
            socket,
            id: None,
            thread,
            process: 1,
            bytes: 64,
            point,
            transport,
            kind: Kind::Message,
            position: 0,
            flags: Flags(0),
        }
    }

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
