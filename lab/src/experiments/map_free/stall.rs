//! The longest time that a CPU was kept from other threads: one thread on each CPU does nothing but read the clock.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{Result, error::During};

/// Ends the spinning also when the work fails or panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` while every CPU of this thread is watched. Returns what it yields, and the longest time between two readings of the clock on
/// any of them. On a machine with other work to do gaps of some milliseconds are normal: compare with nothing done.
pub fn longest<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let all = sched_getaffinity(None).during(|| "cannot read this thread's CPUs".into())?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    let (stop, ready) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        let watching: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let (stop, ready) = (&stop, &ready);
                scope.spawn(move || watch(cpu, stop, ready))
            })
            .collect();
        while ready.load(Ordering::Relaxed) < cpus.len() {
            thread::sleep(Duration::from_millis(1));
        }
        let done = work();
        drop(_stop);
        let mut longest = Duration::ZERO;
        for thread in watching {
            let gap = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            longest = longest.max(gap);
        }
        Ok((done?, longest))
    })
}

fn watch(cpu: usize, stop: &AtomicBool, ready: &AtomicUsize) -> Result<Duration> {
    let mut set = CpuSet::new();
    set.set(cpu);
    let pinned = sched_setaffinity(None, &set).during(|| format!("cannot pin to CPU {cpu}"));
    // Also when it failed: the others' work waits for this.
    ready.fetch_add(1, Ordering::Relaxed);
    pinned?;
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_the_work_is_no_pause_of_the_cpu() {
        let (done, longest) = longest(|| {
            thread::sleep(Duration::from_millis(50));
            Ok(7)
        })
        .unwrap();
        assert_eq!(done, 7);
        assert!(longest > Duration::ZERO);
    }

    #[test]
    fn failed_work_ends_the_watching() {
        assert!(longest(|| Err::<(), _>(crate::Error::Interrupted)).is_err());
    }
}
