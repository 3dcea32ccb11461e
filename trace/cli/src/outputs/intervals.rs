//! The intervals of a running trace, one after another, for the live view and for the histogram log.

use std::time::{Duration, Instant};

use trieline_trace::Summary;

use super::hdr::Log;
use super::interval::{Interval, Now};
use super::live::Live;

/// The receivers of every interval.
pub struct Intervals {
    every: Duration,
    started: Instant,
    since: Instant,
    before: Summary,
    live: Option<Live>,
    log: Option<Log>,
}

impl Intervals {
    /// The first begins now. Without a view or a log, there are no intervals.
    pub fn begin(every: Duration, live: Option<Live>, log: Option<Log>) -> Intervals {
        let now = Instant::now();
        Intervals { every, started: now, since: now, before: Summary::default(), live, log }
    }

    /// Whether an interval is over that a view or log needs.
    pub fn is_due(&self) -> bool {
        (self.live.is_some() || self.log.is_some()) && self.since.elapsed() >= self.every
    }

    /// Whether a view shows them.
    pub fn are_shown(&self) -> bool {
        self.live.is_some()
    }

    /// Ends an interval: `messages` are the times in the process so far. Returns what failed; that is not written any more.
    pub fn end(&mut self, messages: &Summary, now: &Now) -> Vec<anyhow::Error> {
        let all = now.all(messages);
        let times = all.since(&self.before);
        let from = self.since.duration_since(self.started);
        let interval = Interval { from, length: self.since.elapsed(), times: &times, all: &all, now };
        let mut failed = Vec::new();
        if let Some(Err(error)) = self.live.as_mut().map(|live| live.show(&interval)) {
            self.live = None;
            failed.push(error);
        }
        if let Some(Err(error)) = self.log.as_mut().map(|log| log.write(&interval)) {
            self.log = None;
            failed.push(error);
        }
        self.before = all;
        self.since = Instant::now();
        failed
    }

    /// Ends the last interval: only the log still needs it, the report has the same.
    pub fn finish(&mut self, messages: &Summary, now: &Now) -> Vec<anyhow::Error> {
        self.live = None;
        if self.log.is_some() { self.end(messages, now) } else { Vec::new() }
    }
}
