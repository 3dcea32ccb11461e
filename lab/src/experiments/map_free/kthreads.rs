//! CPU time of the kernel's own threads: who frees a map does not wait for it, a worker of the kernel does the work.

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
/// Share of the time that the kernel's threads together may run on a machine called quiet.
const QUIET: f64 = 0.15;

/// Nanoseconds on a CPU of every kernel thread so far, by process number.
#[derive(Clone, Debug)]
pub struct Snapshot(HashMap<u32, u64>);

impl Snapshot {
    /// Now.
    pub fn take() -> Result<Snapshot> {
        let processes = fs::read_dir("/proc").during(|| "listing /proc".into())?;
        let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        Ok(Snapshot(numbers.filter_map(|pid| Some((pid, kernel_thread(pid)?))).collect()))
    }

    /// What all have run since an earlier one. None when one of them has ended: its time is lost.
    pub fn since(&self, before: &Snapshot) -> Option<Duration> {
        let ended = before.0.keys().any(|pid| !self.0.contains_key(pid));
        let ran = |(pid, now): (&u32, &u64)| now.saturating_sub(before.0.get(pid).copied().unwrap_or(0));
        (!ended).then(|| Duration::from_nanos(self.0.iter().map(ran).sum()))
    }
}

/// Its time on a CPU, if it is a kernel thread.
fn kernel_thread(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name in parentheses, which may hold anything: state, parent.
    let parent: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    if parent != KTHREADD {
        return None;
    }
    fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}

/// What the kernel's threads ran, and for how long they were watched.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Their CPU time.
    pub cpu: Duration,
    /// Of this time.
    pub watched: Duration,
}

/// Waits until the kernel's threads are quiet, looking every `period`. None when one has ended or they never were.
pub fn until_quiet(before: &Snapshot, period: Duration, context: &Context) -> Result<Option<Ran>> {
    let began = Instant::now();
    let (mut last, mut looked, mut quiet) = (Duration::ZERO, began, 0);
    while began.elapsed() < MOST {
        context.check()?;
        thread::sleep(period);
        let Some(cpu) = Snapshot::take()?.since(before) else { return Ok(None) };
        let share = (cpu - last).as_secs_f64() / looked.elapsed().as_secs_f64();
        (last, looked) = (cpu, Instant::now());
        quiet = if share < QUIET { quiet + 1 } else { 0 };
        if quiet >= 2 && began.elapsed() >= LEAST {
            return Ok(Some(Ran { cpu, watched: began.elapsed() }));
        }
    }
    Ok(None)
}

/// What they run in `watched` when nothing is freed: watched for at most a second, and in proportion.
pub fn idle(watched: Duration) -> Result<Option<Duration>> {
    let before = Snapshot::take()?;
    let began = Instant::now();
    thread::sleep(watched.min(Duration::from_secs(1)));
    let ran = Snapshot::take()?.since(&before);
    Ok(ran.map(|ran| ran.mul_f64(watched.as_secs_f64() / began.elapsed().as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_threads_spoil_a_reading_and_new_ones_count() {
        let snapshot = |of: &[(u32, u64)]| Snapshot(of.iter().copied().collect());
        let before = snapshot(&[(10, 5), (11, 100)]);
        let ran = snapshot(&[(10, 7), (11, 100), (12, 30)]).since(&before);
        assert_eq!(ran, Some(Duration::from_nanos(32)));
        assert_eq!(snapshot(&[(10, 7)]).since(&before), None);
    }

    #[test]
    fn this_process_is_no_kernel_thread() {
        assert_eq!(kernel_thread(std::process::id()), None);
    }
}
