//! Times of messages by stage, as histograms whose percentiles are right to three digits.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::join::{Hop, Message};
use crate::record::{Point, Transport};

/// An hour; longer stays count as that.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// What a time is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A to B: from a client to what is traced.
    In,
    /// B to C: inside.
    #[default]
    Inside,
    /// C to B: from one that is traced to another.
    Between,
    /// C to D: to a client.
    Out,
}

impl Part {
    /// The name in outputs.
    pub fn name(self) -> &'static str {
        ["A→B", "B→C", "C→B", "C→D"][self as usize]
    }
}

/// Messages that came and went alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stage {
    /// Of what.
    pub part: Part,
    /// By which transport they came.
    pub from: Transport,
    /// By which they left.
    pub to: Transport,
    /// Whether they left by the socket that they came by.
    pub is_reply: bool,
    /// Whether C, or A, is the device's queue; else the end of the send.
    pub at_queue: bool,
}

impl Stage {
    /// That of a message.
    pub fn of(message: &Message) -> Stage {
        Stage {
            part: Part::Inside,
            from: message.received.transport,
            to: message.sent.transport,
            is_reply: message.is_reply(),
            at_queue: message.sent.point == Point::Queued,
        }
    }
}

/// T2 of every message, by stage.
#[derive(Clone, Debug, Default)]
pub struct Summary(BTreeMap<Stage, Histogram<u64>>);

impl Summary {
    /// Adds a message.
    pub fn add(&mut self, message: &Message) {
        self.add_many(Stage::of(message), message.inside_ns(), 1);
    }

    /// Adds a message's way from one process to the next.
    pub fn add_hop(&mut self, hop: &Hop) {
        let stage = Stage {
            part: hop.part(),
            from: hop.sent.transport,
            to: hop.received.transport,
            is_reply: false,
            at_queue: hop.sent.point == Point::Queued,
        };
        self.add_many(stage, hop.ns(), 1);
    }

    /// Adds so many of a stage that took so long.
    pub(crate) fn add_many(&mut self, stage: Stage, ns: u64, count: u64) {
        let histogram = self.0.entry(stage).or_insert_with(|| {
            #[expect(clippy::expect_used)]
            // the bounds are constants and valid: 1 <= low, 2 * low <= high, at most 5 digits
            Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("valid bounds")
        });
        histogram.saturating_record_n(ns, count);
    }

    /// Each stage's histogram, in nanoseconds.
    pub fn stages(&self) -> impl Iterator<Item = (&Stage, &Histogram<u64>)> {
        self.0.iter()
    }

    /// Messages in all; on their ways from process to process they do not count.
    pub fn messages(&self) -> u64 {
        self.0.iter().filter(|(stage, _)| stage.part == Part::Inside).map(|(_, times)| times.len()).sum()
    }
}
