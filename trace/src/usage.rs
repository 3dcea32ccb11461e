//! The processor time and memory of the tracer's own process, without its hooks.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};

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
        let time = |time: TimeVal| Duration::from_micros(time.num_microseconds().try_into().unwrap_or(0));
        let used = getrusage(UsageWho::RUSAGE_SELF);
        let (user, system) =
            used.map(|used| (time(used.user_time()), time(used.system_time()))).unwrap_or_default();
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        Usage { user, system, resident: pages * rustix::param::page_size() as u64 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_does_is_seen() {
        let before = Usage::now();
        let room = std::hint::black_box(vec![1u8; 32 << 20]);
        while Usage::now().since(before).user < Duration::from_millis(20) {
            std::hint::black_box(&room);
        }
        let used = Usage::now();
        assert!(used.resident >= 32 << 20, "{used:?}");
    }
}
