//! Until when the tables may be used: the daemon moves the deadline on, and after it the XDP program leaves all packets to the kernel.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_getres, clock_gettime};
use trieline_bpf::Mapping;

use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_beat, tl_heartbeat};
use crate::xdp::sys;

const WORDS: usize = size_of::<tl_heartbeat>() / 8;

/// The state of the heartbeat, which keeps the tables current.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time that the XDP program forwards after the last heartbeat; `None`: without end.
    pub limit: Option<Duration>,
    /// Time since the last heartbeat; `None`: there was none.
    pub silent: Option<Duration>,
}

impl Heartbeat {
    /// Whether the XDP program leaves all packets to the kernel.
    pub fn is_stale(&self) -> bool {
        matches!((self.limit, self.silent), (Some(limit), Some(silent)) if silent > limit)
    }
}

/// The words that the XDP program reads.
#[derive(Debug)]
pub(crate) struct Words(Mapping);

impl Words {
    pub(crate) fn of(map: &OwnedFd) -> Result<Self> {
        let fail = |e| Error::kernel("cannot map the heartbeat", e);
        Ok(Self(Mapping::of_array(map.as_fd(), size_of::<tl_heartbeat>() as u64).map_err(fail)?))
    }

    /// `deadline`, `beaten`, `limit`.
    fn words(&self) -> &[AtomicU64] {
        self.0.words64(WORDS)
    }

    pub(crate) fn read(&self) -> Heartbeat {
        let [_, beaten, limit] = [0, 1, 2].map(|at| self.words()[at].load(Ordering::Relaxed));
        Heartbeat {
            limit: (limit > 0).then(|| Duration::from_nanos(limit)),
            silent: (beaten > 0).then(|| now().saturating_sub(Duration::from_nanos(beaten))),
        }
    }

    /// From now on the tables may be used for `limit`. `program` is `tl_beat`, as no process can read the kernel's jiffies.
    pub(crate) fn beat(&self, program: &OwnedFd, limit: Option<Duration>) -> Result<()> {
        let words = self.words();
        match limit {
            Some(limit) => {
                let ticks = limit.as_nanos().div_ceil(tick().as_nanos().max(1)) as u64;
                // SAFETY: a struct of one integer.
                let context: [u8; size_of::<tl_beat>()] = unsafe { std::mem::transmute(tl_beat { ticks }) };
                sys::run_syscall_program(program.as_fd(), &context)
                    .map_err(|e| Error::kernel("cannot run the heartbeat program", e))?;
            }
            None => words[0].store(u64::MAX, Ordering::Relaxed),
        }
        words[2].store(limit.map_or(0, |limit| limit.as_nanos() as u64), Ordering::Relaxed);
        words[1].store(now().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }
}

fn duration(time: rustix::time::Timespec) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// The length of a jiffy: the resolution of the clock that counts them.
fn tick() -> Duration {
    duration(clock_getres(ClockId::MonotonicCoarse))
}
