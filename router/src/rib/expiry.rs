//! When routes end (`expires`, of router advertisements): the kernel does not report that such a route is prolonged, and reports late that
//! it is gone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// From so long before its end on a route is left to the kernel. So the daemon has time to ask whether it was prolonged.
const MARGIN: Duration = Duration::from_secs(3);
/// The daemon dumps again so long after the end too. A route that has ended can be prolonged until the kernel removes it, every 30 s.
const AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(40)];
/// `USER_HZ`: hundredths of a second.
const TICK_MS: u64 = 10;

/// When the first route of each nexthop group ends, by the number of the group.
#[derive(Debug)]
pub(super) struct Expiries {
    ends: BTreeMap<u32, Instant>,
    /// The time up to which this was looked at: decisions change by it alone, not from one moment to the next.
    now: Instant,
}

impl Default for Expiries {
    fn default() -> Self {
        Self { ends: BTreeMap::new(), now: Instant::now() }
    }
}

impl Expiries {
    /// A route by nexthop group `id` ends `left` hundredths of a second from `now`.
    pub fn note(&mut self, id: u32, left: i32, now: Instant) {
        let distance = Duration::from_millis(u64::from(left.unsigned_abs()) * TICK_MS);
        let end = if left < 0 { now.checked_sub(distance).unwrap_or(now) } else { now + distance };
        let known = self.ends.entry(id).or_insert(end);
        *known = end.min(*known);
    }

    pub fn forget(&mut self) {
        self.ends.clear();
    }

    pub fn remove(&mut self, id: u32) {
        self.ends.remove(&id);
    }

    /// Whether the end of nexthop group `id` is near, past or not known.
    pub fn is_near(&self, id: u32) -> bool {
        self.ends.get(&id).is_none_or(|end| *end <= self.now + MARGIN)
    }

    /// It is `now`; whether a nexthop group has come to one of the times at which the kernel has to be asked.
    pub fn pass_time(&mut self, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.now, now);
        let passed = |end: Instant| before < end && end <= now;
        self.ends.values().any(|end| {
            // MARGIN before the end, without subtracting from an instant.
            (before + MARGIN < *end && *end <= now + MARGIN)
                || AFTER.iter().any(|after| passed(*end + *after))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of `pass_time` and `is_near` after so many seconds.
    fn at(ends: &mut Expiries, begun: Instant, seconds: u64) -> (bool, bool) {
        (ends.pass_time(begun + Duration::from_secs(seconds)), ends.is_near(1))
    }

    #[test]
    fn routes_are_requested_before_and_after_they_expire() {
        let begun = Instant::now();
        let mut ends = Expiries { ends: BTreeMap::new(), now: begun };
        ends.note(1, 1000, begun);
        ends.note(1, 3000, begun);
        assert_eq!(at(&mut ends, begun, 6), (false, false));
        assert_eq!(at(&mut ends, begun, 7), (true, true), "3 s before the end");
        assert_eq!(at(&mut ends, begun, 10), (false, true));
        assert_eq!(at(&mut ends, begun, 11), (true, true), "perhaps prolonged at the last moment");
        assert_eq!(at(&mut ends, begun, 49), (false, true));
        assert_eq!(at(&mut ends, begun, 50), (true, true), "perhaps prolonged before the kernel removed it");
        assert_eq!(at(&mut ends, begun, 500), (false, true));
        // prolonged, by a dump
        ends.forget();
        assert!(ends.is_near(1), "not known");
        ends.note(1, 100_000, begun + Duration::from_secs(500));
        assert!(!ends.is_near(1) && !at(&mut ends, begun, 600).1);
        ends.note(1, -5, begun);
        assert!(ends.is_near(1));
    }
}
