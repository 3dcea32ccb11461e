//! One reading of what freeing costs: CPU time of this process and of the kernel's threads, or the longest stall of a CPU.

use std::{thread, time::Duration};

use libbpf_rs::MapHandle;
use rustix::time::{ClockId, clock_gettime};
use trieline_bpf::ReaderGrace;

use super::{
    kthreads::{Snapshot, idle, until_quiet},
    memory::{Held, Staying, What},
    stall,
};
use crate::{Context, Error, Result, experiments::structure::Which, tables::kinds::Entry};

/// How often the kernel's threads are looked at: seldom while CPUs are watched, since looking is work too.
const OFTEN: Duration = Duration::from_millis(25);
const SELDOM: Duration = Duration::from_millis(100);
/// An idle machine's stalls are looked for at most so long.
const IDLE_MOST: Duration = Duration::from_secs(5);

/// CPU time of one freeing.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Of this process: what the caller of close, munmap or `remove_table` is kept busy.
    pub own: Duration,
    /// Of that the mapping's and the file descriptor's end, by the clock.
    pub unmap: Option<Duration>,
    /// Of the kernel's workers for maps, what else they do included.
    pub kernel: Duration,
    /// Of those in the same time without a freeing.
    pub idle: Duration,
}

/// Longest stalls.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// While something was freed.
    pub freeing: Duration,
    /// In the same time without.
    pub idle: Duration,
}

/// The memory to free, and the entries to check it by.
pub struct Case<'e> {
    /// All or a table.
    pub what: What,
    /// The entries that go.
    pub gone: &'e [Entry<u32>],
    /// The entries that stay beside them.
    pub live: &'e [Entry<u32>],
}

/// The steps that are left of it.
struct Left {
    unmap: Option<Duration>,
    rest: Rest,
}

enum Rest {
    /// Nothing but the number of a map that must not be there any more.
    Map(u32),
    /// The image with its other table.
    Image(Box<Staying>),
}

/// Readings of one freeing before it is given up.
const TRIES: usize = 4;

impl Case<'_> {
    /// Fills a structure of `bytes` and lets `read` free it, until a reading counts; with it, how many did not.
    pub fn read<T>(
        &self,
        which: Which,
        bytes: u64,
        grace: &ReaderGrace,
        context: &Context,
        mut read: impl FnMut(Held) -> Result<Option<T>>,
    ) -> Result<(T, usize)> {
        for discarded in 0..TRIES {
            context.check()?;
            let held = Held::fill(which, bytes, self.gone, self.live, grace)?;
            if let Some(reading) = read(held)? {
                return Ok((reading, discarded));
            }
        }
        Err(Error::Busy(TRIES))
    }

    /// The CPU time of freeing `held`. None when the reading is spoilt by a kernel thread that ended.
    pub fn cost(&self, held: Held, context: &Context) -> Result<Option<Cost>> {
        // Memory of earlier readings or of another program is freed by then.
        if until_quiet(&Snapshot::take()?, OFTEN, context)?.is_none() {
            return Ok(None);
        }
        let before = Snapshot::take()?;
        let began = process_time();
        let left = self.free(held)?;
        let own = process_time().saturating_sub(began);
        let Some(ran) = until_quiet(&before, OFTEN, context)? else { return Ok(None) };
        let idle = idle(ran.watched, OFTEN, context)?;
        self.check(&left.rest)?;
        Ok(idle.map(|idle| Cost { own, unmap: left.unmap, kernel: ran.cpu, idle }))
    }

    /// The longest stall while `held` is freed. None as above.
    pub fn stall(&self, held: Held, context: &Context) -> Result<Option<Stall>> {
        let ((left, watched), freeing) = stall::longest(|| {
            let before = Snapshot::take()?;
            let left = self.free(held)?;
            Ok((left, until_quiet(&before, SELDOM, context)?.map(|ran| ran.watched)))
        })?;
        let Some(watched) = watched else { return Ok(None) };
        let ((), idle) = stall::longest(|| {
            for _ in 0..watched.min(IDLE_MOST).as_millis() / SELDOM.as_millis() {
                context.check()?;
                thread::sleep(SELDOM);
                Snapshot::take()?;
            }
            Ok(())
        })?;
        self.check(&left.rest)?;
        Ok(Some(Stall { freeing, idle }))
    }

    fn free(&self, held: Held) -> Result<Left> {
        Ok(match self.what {
            What::Map => {
                let rest = Rest::Map(held.id()?);
                Left { unmap: held.free_map(), rest }
            }
            What::Table => Left { unmap: None, rest: Rest::Image(Box::new(held.free_table()?)) },
        })
    }

    fn check(&self, rest: &Rest) -> Result<()> {
        match rest {
            Rest::Map(id) if MapHandle::from_map_id(*id).is_ok() => {
                Err(Error::Image(format!("map {id} is still there after it was freed")))
            }
            Rest::Map(_) => Ok(()),
            Rest::Image(staying) => staying.check(self.gone, self.live),
        }
    }
}

fn process_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec.max(0) as u32)
}
