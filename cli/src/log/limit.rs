//! The limits of the log: no traffic, flap, failure that lasts or client can fill it, and the last state is always in it.
//!
//! Lines of one place in the code about one subject (a device, a filter, …) share a limit. Of those above it the last one is kept, and
//! logged as soon as the limit allows, with the number of those left out.

use super::kept::Kept;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// So many lines may come at once.
const BURST: u32 = 20;
/// Then one in this time.
const INTERVAL: Duration = Duration::from_secs(10);
/// Subjects that the log remembers; those above share one limit a place.
const SUBJECTS: usize = 4096;

thread_local! {
    /// This thread writes lines that were left out: no limit holds for them.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// The state of the process's one log.
static STATE: Mutex<Option<State>> = Mutex::new(None);

/// The layer that holds lines back. It has to be the outermost one.
#[derive(Debug, Default)]
pub(super) struct Limits(());

impl<S: Subscriber> Layer<S> for Limits {
    fn event_enabled(&self, event: &Event<'_>, context: Context<'_, S>) -> bool {
        if WRITES.get() {
            return true;
        }
        let decision = locked(|state| state.decide(Kept::of(event), Instant::now()));
        for line in &decision.before {
            line.write(|event| context.event(event));
        }
        match &decision.instead {
            Some(line) => line.write(|event| context.event(event)),
            None => return decision.passes,
        }
        false
    }
}

/// Logs the lines that were left out and are due; with `all`, those that are not due, too: at the end of the process.
pub fn write_left_out(all: bool) {
    let due = locked(|state| state.due(Instant::now(), all));
    WRITES.set(true);
    for line in due {
        line.write(|event| tracing::dispatcher::get_default(|dispatch| dispatch.event(event)));
    }
    WRITES.set(false);
}

fn locked<T>(act: impl FnOnce(&mut State) -> T) -> T {
    // A thread that panicked has left counts behind, at worst.
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    act(state.get_or_insert_default())
}

/// A place in the code, and whom its line is about.
type Key = (Identifier, String);

/// A line, and how many before it were left out.
#[derive(Debug)]
struct Line {
    kept: Kept,
    at: Instant,
    left_out: u64,
}

impl Line {
    /// Gives `write` the event, its message with the number of those left out.
    fn write(&self, write: impl FnOnce(&Event<'_>)) {
        let message = self.kept.message();
        match self.left_out {
            0 => self.kept.with_message(message, write),
            1 => self.kept.with_message(&format!("{message} (1 more like this left out)"), write),
            count => self.kept.with_message(&format!("{message} ({count} more like this left out)"), write),
        }
    }
}

/// The lines to log for an event.
#[derive(Debug, Default)]
struct Decision {
    /// Lines that were left out and have to be logged first, so that the last line about a subject is its state.
    before: Vec<Line>,
    /// The event is logged as it is.
    passes: bool,
    /// This is logged in its place.
    instead: Option<Line>,
}

/// The limit of one key.
#[derive(Debug)]
struct Bucket {
    /// Lines that may come now.
    free: u32,
    /// Since when `free` is so many.
    since: Instant,
    /// The last line that was left out, with the number of those before it.
    held: Option<Line>,
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        let intervals = now.saturating_duration_since(self.since).as_nanos() / INTERVAL.as_nanos();
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX).min(BURST);
        self.free = (self.free + intervals).min(BURST);
        self.since = if self.free == BURST { now } else { self.since + INTERVAL * intervals };
    }
}

#[derive(Debug, Default)]
struct State {
    buckets: HashMap<Key, Bucket>,
}

impl State {
    fn decide(&mut self, kept: Kept, now: Instant) -> Decision {
        let subject = kept.subject();
        let mut key = (kept.metadata().callsite(), subject.clone());
        if self.buckets.len() >= SUBJECTS && !self.buckets.contains_key(&key) {
            self.forget(now);
            if self.buckets.len() >= SUBJECTS {
                key.1 = "others".into();
            }
        }
        let full = || Bucket { free: BURST, since: now, held: None };
        let bucket = self.buckets.entry(key.clone()).or_insert_with(full);
        bucket.refill(now);
        let left_out = bucket.held.take().map(|line| line.left_out + 1);
        let Some(free) = bucket.free.checked_sub(1) else {
            bucket.held = Some(Line { kept, at: now, left_out: left_out.unwrap_or(0) });
            return Decision::default();
        };
        bucket.free = free;
        let instead = left_out.map(|left_out| Line { kept, at: now, left_out });
        let others = self.buckets.iter_mut().filter(|((_, about), _)| *about == subject);
        let before = in_order(others.filter_map(|(_, bucket)| bucket.held.take()));
        Decision { before, passes: instead.is_none(), instead }
    }

    /// The lines that may be logged by now.
    fn due(&mut self, now: Instant, all: bool) -> Vec<Line> {
        let mut due = Vec::new();
        for bucket in self.buckets.values_mut().filter(|bucket| bucket.held.is_some()) {
            bucket.refill(now);
            let free = bucket.free.checked_sub(1);
            if free.is_some() || all {
                bucket.free = free.unwrap_or(0);
                due.extend(bucket.held.take());
            }
        }
        in_order(due.into_iter())
    }

    /// Forgets the keys that have had no line for so long that all of theirs may come.
    fn forget(&mut self, now: Instant) {
        self.buckets.retain(|_, bucket| {
            bucket.refill(now);
            bucket.free < BURST || bucket.held.is_some()
        });
    }
}

fn in_order(lines: impl Iterator<Item = Line>) -> Vec<Line> {
    let mut lines: Vec<Line> = lines.collect();
    lines.sort_by_key(|line| line.at);
    lines
}

#[cfg(test)]
mod tests;
