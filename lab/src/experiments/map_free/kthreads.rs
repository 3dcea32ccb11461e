//! CPU time of the kernel's workers that free maps: who lets a map go does not wait for it.

use std::{
    collections::HashMap,
    fs, thread,
    time::{Duration, Instant},
};

use crate::{Context, Result, error::During};

/// The parent of all kernel threads.
const KTHREADD: u32 = 2;
/// Freeing begins a few RCU grace periods after the last reference is gone.
const LEAST: Duration = Duration::from_millis(200);
/// Longer than that nothing is waited for.
const MOST: Duration = Duration::from_secs(60);
/// Share of the time that they may run for a queue that is called quiet.
const QUIET: f64 = 0.15;

/// The kernel's work queue in which it frees maps (`bpf_map_free_in_work` in kernel/bpf/syscall.c). A worker is named after the queue that
/// it last worked for.
const QUEUE: &str = "events_unbound";

/// A kernel thread.
#[derive(Clone, Copy, Debug)]
struct Thread {
    /// Nanoseconds on a CPU so far.
    ran: u64,
    /// Whether it last worked for [`QUEUE`].
    frees: bool,
}

/// The kernel's threads by process number.
#[derive(Clone, Debug)]
pub struct Snapshot(HashMap<u32, Thread>);

impl Snapshot {
    /// Now.
    pub fn take() -> Result<Snapshot> {
        let processes = fs::read_dir("/proc").during(|| "cannot list /proc".into())?;
        let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        Ok(Snapshot(numbers.filter_map(|pid| Some((pid, kernel_thread(pid)?))).collect()))
    }

    /// The time that the threads of the queue have run since an earlier snapshot. None when one of them has ended: its time is lost.
    fn since(&self, before: &Snapshot) -> Option<Duration> {
        let ended = before.0.iter().any(|(pid, thread)| thread.frees && !self.0.contains_key(pid));
        let ran = |(pid, now): (&u32, &Thread)| {
            let then = before.0.get(pid);
            let frees = now.frees || then.is_some_and(|then| then.frees);
            if frees { now.ran.saturating_sub(then.map_or(0, |then| then.ran)) } else { 0 }
        };
        (!ended).then(|| Duration::from_nanos(self.0.iter().map(ran).sum()))
    }
}

/// Facts about a process, if it is a kernel thread.
fn kernel_thread(pid: u32) -> Option<Thread> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name in parentheses, which may hold anything: state, parent.
    let (name, rest) = stat.rsplit_once(')')?;
    let parent: u32 = rest.split_whitespace().nth(1)?.parse().ok()?;
    if parent != KTHREADD {
        return None;
    }
    let times = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    Some(Thread { ran: times.split_whitespace().next()?.parse().ok()?, frees: name.ends_with(QUEUE) })
}

/// The time that the kernel's threads ran for the queue, and for how long they were watched.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Their CPU time.
    pub cpu: Duration,
    /// Of this time.
    pub watched: Duration,
}

/// Looks every `period` until `enough` says so of the time since the beginning and the share of the last period that the threads ran
/// for. None when one of them has ended, or it takes more than [`MOST`].
fn watch(
    before: &Snapshot,
    period: Duration,
    context: &Context,
    mut enough: impl FnMut(Duration, f64) -> bool,
) -> Result<Option<Ran>> {
    let began = Instant::now();
    let (mut cpu, mut last, mut looked) = (Duration::ZERO, before.clone(), began);
    while began.elapsed() < MOST {
        context.check()?;
        thread::sleep(period);
        let now = Snapshot::take()?;
        let Some(ran) = now.since(&last) else { return Ok(None) };
        let share = ran.as_secs_f64() / looked.elapsed().as_secs_f64();
        cpu += ran;
        (last, looked) = (now, Instant::now());
        if enough(began.elapsed(), share) {
            return Ok(Some(Ran { cpu, watched: began.elapsed() }));
        }
    }
    Ok(None)
}

/// Waits until the queue is quiet.
pub fn until_quiet(before: &Snapshot, period: Duration, context: &Context) -> Result<Option<Ran>> {
    let mut quiet = 0;
    watch(before, period, context, |elapsed, share| {
        quiet = if share < QUIET { quiet + 1 } else { 0 };
        quiet >= 2 && elapsed >= LEAST
    })
}

/// The time that they run in `watched` without a freeing: watched for at most a second, and in proportion.
pub fn idle(watched: Duration, period: Duration, context: &Context) -> Result<Option<Duration>> {
    let until = watched.min(Duration::from_secs(1));
    let ran = watch(&Snapshot::take()?, period, context, |elapsed, _| elapsed >= until)?;
    Ok(ran.map(|ran| ran.cpu.mul_f64(watched.as_secs_f64() / ran.watched.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_threads_spoil_a_reading_and_new_ones_count() {
        let snapshot = |of: &[(u32, u64, bool)]| {
            Snapshot(of.iter().map(|&(pid, ran, frees)| (pid, Thread { ran, frees })).collect())
        };
        let before = snapshot(&[(10, 5, true), (11, 100, false), (13, 1, false)]);
        // The first worked for the queue and then for another one, the second never did, the third is new.
        let now = snapshot(&[(10, 7, false), (11, 900, false), (12, 30, true)]);
        assert_eq!(now.since(&before), Some(Duration::from_nanos(32)));
        assert_eq!(snapshot(&[(11, 100, false)]).since(&before), None);
    }

    #[test]
    fn this_process_is_no_kernel_thread() {
        assert!(kernel_thread(std::process::id()).is_none());
    }
}
