//! Changes to a full table: random prefixes withdrawn and announced again, one by one and in batches. A reader runs meanwhile where the
//! structure allows one.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use hdrhistogram::Histogram;
use trieline_lpm::Prefix;

use super::engine::{BATCH, Change, Subject};
use crate::{
    Error, Result,
    measure::thread_seconds,
    tables::{Random, generate::Wide},
};

/// A withdrawn prefix is announced again so many operations later.
const AWAY: usize = 64;

/// The changes of one round; `values` is what each prefix has, before and after. Every prefix withdrawn is back at the end.
pub fn flap<A: Wide>(
    prefixes: &[Prefix<A>],
    values: &mut [u32],
    withdrawals: usize,
    random: &mut Random,
) -> Vec<Change<A>> {
    let next_hop = |random: &mut Random| 1 + random.below(64) as u32;
    let mut changes = Vec::with_capacity(2 * withdrawals);
    let mut away = VecDeque::new();
    let mut is_away = vec![false; prefixes.len()];
    // Every withdrawal is followed by an announcement, so half as many are away; of a tiny table half of it at most.
    let most = (AWAY / 2).min(prefixes.len() / 2);
    for _ in 0..withdrawals {
        let mut at = random.below(prefixes.len());
        while is_away[at] {
            at = random.below(prefixes.len());
        }
        is_away[at] = true;
        away.push_back(at);
        changes.push((prefixes[at], None));
        if away.len() > most {
            back(&mut away, &mut is_away, values, &mut changes, prefixes, next_hop(random));
        }
    }
    while !away.is_empty() {
        back(&mut away, &mut is_away, values, &mut changes, prefixes, next_hop(random));
    }
    changes
}

fn back<A: Wide>(
    away: &mut VecDeque<usize>,
    is_away: &mut [bool],
    values: &mut [u32],
    changes: &mut Vec<Change<A>>,
    prefixes: &[Prefix<A>],
    value: u32,
) {
    if let Some(at) = away.pop_front() {
        is_away[at] = false;
        values[at] = value;
        changes.push((prefixes[at], Some(value)));
    }
}

/// How changes are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One by one.
    Single,
    /// So many in one `apply`.
    Apply(usize),
}

impl Way {
    /// All that are measured.
    pub const ALL: [Way; 3] = [Way::Single, Way::Apply(64), Way::Apply(1024)];

    /// As in a row.
    pub fn name(self) -> String {
        match self {
            Way::Single => "single".into(),
            Way::Apply(count) => format!("apply-{count}"),
        }
    }
}

/// The lookups of a reader thread meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meanwhile {
    /// Lookups.
    pub lookups: u64,
    /// Seconds of its own CPU time.
    pub seconds: f64,
}

/// Runs `work` on the structure while a thread looks `addrs` up in it, if it can be read meanwhile.
pub fn with_reader<A: Wide, R>(
    subject: &mut dyn Subject<A>,
    addrs: &[A],
    work: impl FnOnce(&mut dyn Subject<A>) -> R,
) -> (R, Option<Meanwhile>) {
    let Some(mut read) = subject.reader() else { return (work(subject), None) };
    let (stop, lookups) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let began = thread_seconds();
            let mut sum = 0u64;
            'all: loop {
                for addrs in addrs.chunks(BATCH) {
                    sum = sum.wrapping_add(read(addrs));
                    lookups.fetch_add(addrs.len() as u64, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break 'all;
                    }
                }
            }
            std::hint::black_box(sum);
            thread_seconds() - began
        });
        // Nothing is measured before it runs.
        while lookups.load(Ordering::Relaxed) == 0 && !reader.is_finished() {
            std::thread::yield_now();
        }
        let result = work(subject);
        stop.store(true, Ordering::Relaxed);
        let seconds = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, Some(Meanwhile { lookups: lookups.load(Ordering::Relaxed), seconds }))
    })
}

/// Changes a second of this thread's CPU time; None where the structure cannot be asked so.
pub fn rate<A: Wide>(
    subject: &mut dyn Subject<A>,
    way: Way,
    changes: &[Change<A>],
    name: &str,
) -> Result<Option<f64>> {
    let began = thread_seconds();
    match way {
        Way::Single => {
            let done = subject.change(changes);
            let seconds = thread_seconds() - began;
            if done != changes.len() {
                return Err(refused(name, changes.len() - done));
            }
            Ok(Some(changes.len() as f64 / seconds))
        }
        Way::Apply(count) => {
            for changes in changes.chunks(count) {
                match subject.apply(changes) {
                    None => return Ok(None),
                    Some(false) => return Err(refused(name, changes.len())),
                    Some(true) => {}
                }
            }
            Ok(Some(changes.len() as f64 / (thread_seconds() - began)))
        }
    }
}

/// The clock of a single change; one reading is in each.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// Tens of nanoseconds a reading, but what others do on this CPU is in it: for the typical change.
    Monotonic,
    /// The thread's CPU time, a system call a reading: for the rare slow one.
    Thread,
}

impl Clock {
    fn now(self) -> Duration {
        let id = match self {
            Clock::Monotonic => rustix::time::ClockId::Monotonic,
            Clock::Thread => rustix::time::ClockId::ThreadCPUTime,
        };
        let now = rustix::time::clock_gettime(id);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
}

/// How long single changes take, nanoseconds.
pub fn latencies<A: Wide>(
    subject: &mut dyn Subject<A>,
    changes: &[Change<A>],
    clock: Clock,
    histogram: &mut Histogram<u64>,
    name: &str,
) -> Result<()> {
    let mut failed = 0;
    let mut before = clock.now();
    for change in changes {
        failed += usize::from(subject.change(std::slice::from_ref(change)) == 0);
        let now = clock.now();
        histogram.saturating_record(now.saturating_sub(before).as_nanos() as u64);
        before = now;
    }
    if failed == 0 { Ok(()) } else { Err(refused(name, failed)) }
}

/// The prefix that changes the most: half of all IPv4 addresses, all of global unicast IPv6.
pub fn widest<A: Wide>() -> Prefix<A> {
    match A::FAMILY {
        6 => Prefix::truncated(A::narrow(1 << 125), 3),
        _ => Prefix::truncated(A::ZERO, 1),
    }
}

/// Milliseconds of CPU time for the slowest of some announcements and withdrawals of [`widest`], which the table must not hold.
pub fn worst<A: Wide>(subject: &mut dyn Subject<A>, times: u32, name: &str) -> Result<f64> {
    let mut worst = 0.0f64;
    for n in 0..times {
        for value in [Some(1 + n), None] {
            let began = thread_seconds();
            let done = subject.change(&[(widest(), value)]);
            worst = worst.max(thread_seconds() - began);
            if done != 1 {
                return Err(refused(name, 1));
            }
        }
    }
    Ok(worst * 1e3)
}

fn refused(name: &str, count: usize) -> Error {
    Error::Refused { structure: name.to_owned(), count }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::generate::internet;

    #[test]
    fn withdrawn_prefixes_come_back_64_changes_later() {
        let prefixes = internet::<u32>(500, 2);
        let mut values = vec![65; 500];
        let changes = flap(&prefixes, &mut values, 1000, &mut Random::new(2));
        assert_eq!(changes.len(), 2000);
        let mut there: Vec<Option<u32>> = vec![Some(65); 500];
        let mut gone = std::collections::HashMap::new();
        for (n, (prefix, value)) in changes.iter().enumerate() {
            let at = prefixes.binary_search(prefix).unwrap();
            assert_ne!(
                there[at].is_some(),
                value.is_some(),
                "only what is there goes, only what is gone comes"
            );
            there[at] = *value;
            match value {
                None => {
                    gone.insert(at, n);
                }
                Some(_) => assert!((33..=65).contains(&(n - gone[&at]))),
            }
        }
        let there: Vec<u32> = there.into_iter().flatten().collect();
        assert_eq!(there, values);
    }
}
