//! Processor time and memory of the tracer's own process, without its hooks; processor time of others.
#![warn(clippy::arithmetic_side_effects, reason = "structs that unsafe code fills")]

use std::fs;
use std::mem::zeroed;
use std::time::Duration;

/// Processor time and memory of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in its own code.
    pub user: Duration,
    /// Processor time in the kernel on its behalf.
    pub system: Duration,
    /// Resident memory, bytes; 0 where /proc does not say.
    pub resident: u64,
}

impl Usage {
    /// So far (`getrusage`, `/proc/self/statm`). Its children are not in it.
    pub fn now() -> Usage {
        // SAFETY: a struct of integers, for which zero is a value.
        let mut used: libc::rusage = unsafe { zeroed() };
        // SAFETY: the struct is the kernel's and lives through the call. It cannot fail with these arguments.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut used) };
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec.try_into().unwrap_or(0))
                .saturating_add(Duration::from_micros(time.tv_usec.try_into().unwrap_or(0)))
        };
        let (user, system) = (time(used.ru_utime), time(used.ru_stime));
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        Usage { user, system, resident: pages.saturating_mul(rustix::param::page_size() as u64) }
    }

    /// The time used since then; memory as it is.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            resident: self.resident,
        }
    }
}

/// Processor time of a process by its own clock, in which its threads that have ended are, too. Of a thread that runs on another CPU the
/// kernel brings it up to date at ticks (`thread_group_cputime`, kernel/sched/cputime.c).
pub(crate) fn cpu_ns(process: u32) -> Option<u64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the number is written to a variable that lives through the call.
    if unsafe { libc::clock_getcpuclockid(process.try_into().ok()?, &mut clock) } != 0 {
        return None;
    }
    // SAFETY: likewise the time.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return None;
    }
    let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_measured() {
        let before = Usage::now();
        let room = std::hint::black_box(vec![1u8; 32 << 20]);
        while Usage::now().since(before).user < Duration::from_millis(20) {
            std::hint::black_box(&room);
        }
        let used = Usage::now();
        assert!(used.resident >= 32 << 20, "{used:?}");
    }
}
