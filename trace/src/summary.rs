//! Times of messages by stage, as histograms whose percentiles are right to three digits.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::join::Message;
use crate::record::{Point, Transport};

/// An hour; longer stays count as that.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Messages that came and went alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stage {
    /// By which transport they came.
    pub from: Transport,
    /// By which they left.
    pub to: Transport,
    /// Whether they left by the socket that they came by.
    pub is_reply: bool,
    /// Whether C is the device's queue; else the end of the send.
    pub at_queue: bool,
}

impl Stage {
    /// That of a message.
    pub fn of(message: &Message) -> Stage {
        Stage {
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

    /// Messages in all.
    pub fn messages(&self) -> u64 {
        self.0.values().map(Histogram::len).sum()
    }
}
