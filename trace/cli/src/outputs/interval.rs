//! An interval of a running trace, and the trace's state at its end.

use std::time::Duration;

use trieline_trace::{Counts, LiveCost, Seen, Summary};

/// The state of a trace at a moment.
#[derive(Clone, Debug)]
pub struct Now {
    /// Counts of the records.
    pub counts: Counts,
    /// Counts of missed records.
    pub seen: Seen,
    /// Times from process to process.
    pub ways: Option<Summary>,
    /// Cost of the hooks for the traced processes so far, if it is measured.
    pub live: Option<LiveCost>,
    /// The reason why no process is traced at present, in words.
    pub waiting: Option<String>,
}

impl Now {
    /// All times there are, `messages` those in the process.
    pub fn all(&self, messages: &Summary) -> Summary {
        let mut all = messages.clone();
        if let Some(ways) = &self.ways {
            all.merge(ways);
        }
        all
    }
}

/// An interval and all before it.
pub struct Interval<'a> {
    /// Where it began, from the start of the trace.
    pub from: Duration,
    /// How long it was.
    pub length: Duration,
    /// Its times.
    pub times: &'a Summary,
    /// Times of the whole trace.
    pub all: &'a Summary,
    /// The end of it.
    pub now: &'a Now,
}
