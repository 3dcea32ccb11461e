//! Times of messages by stage, as histograms whose percentiles are right to three digits.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::join::{Hop, Message, Part};
use crate::record::{Point, Transport};

/// An hour; longer stays count as that.
const LONGEST_NS: u64 = 3_600_000_000_000;

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
    /// The stage of a message.
    pub fn of(message: &Message) -> Stage {
        Stage {
            part: Part::INSIDE,
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

    /// The messages added since an earlier state of the same summary.
    pub fn since(&self, earlier: &Summary) -> Summary {
        let mut since = self.clone();
        for (stage, histogram) in &earlier.0 {
            // Nothing is ever taken out of a summary, so it can be subtracted; were it not so, the stage would show all.
            since.0.get_mut(stage).map(|all| all.subtract(histogram));
        }
        since.0.retain(|_, histogram| !histogram.is_empty());
        since
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Summary) {
        for (stage, times) in &other.0 {
            for value in times.iter_recorded() {
                self.add_many(*stage, value.value_iterated_to(), value.count_at_value());
            }
        }
    }

    /// Messages in all; on their ways from process to process they do not count.
    pub fn messages(&self) -> u64 {
        self.0.iter().filter(|(stage, _)| stage.part == Part::INSIDE).map(|(_, times)| times.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_messages_added_in_it() {
        let stage =
            |to| Stage { part: Part::INSIDE, from: Transport::Udp, to, is_reply: false, at_queue: true };
        let mut all = Summary::default();
        all.add_many(stage(Transport::Udp), 1000, 5);
        all.add_many(stage(Transport::Tcp), 1000, 7);
        let earlier = all.clone();
        all.add_many(stage(Transport::Udp), 90_000, 3);
        all.add_many(stage(Transport::UnixStream), 10, 1);
        let interval = all.since(&earlier);
        let found: Vec<_> = interval.stages().map(|(stage, times)| (stage.to, times.len())).collect();
        assert_eq!(found, [(Transport::Udp, 3), (Transport::UnixStream, 1)]);
        let (_, times) = interval.stages().next().unwrap();
        assert!(times.min() > 89_000 && times.max() < 91_000, "{} {}", times.min(), times.max());
        assert_eq!(all.messages(), 16);
    }
}
