//! Grace periods of the XDP program: when no run of it can still hold what was replaced.
//!
//! An update of an array-of-maps element from user space returns only after every running non-sleepable BPF program has ended
//! (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c). That takes some 16 ms, so a thread does it, one update for all who
//! asked meanwhile. Sleepable programs and readers in user space are not covered.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trieline_lpm::Grace;

use crate::error::{Error, Result};
use crate::sys::{self, MapShape};

const ARRAY: u32 = 2;
const ARRAY_OF_MAPS: u32 = 12;

#[derive(Debug, Default)]
struct Tickets {
    asked: u64,
    passed: u64,
    /// The last owner is gone; the thread ends.
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    tickets: Mutex<Tickets>,
    changed: Condvar,
}

impl Shared {
    /// Nothing panics while holding the lock, and the two numbers are consistent at any moment.
    fn lock(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the thread when the last [`ReaderGrace`] is dropped, and waits for that: nothing of it outlives a library that is unloaded.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        // It does not panic; a panic would have been reported already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Grace periods for everything XDP programs read. Clones share one thread.
#[derive(Clone, Debug)]
pub struct ReaderGrace(Arc<Owner>);

impl ReaderGrace {
    /// Starts the thread.
    pub fn new() -> Result<Self> {
        let fail = |error| Error::kernel("cannot make the maps for grace periods", error);
        let inner = MapShape { kind: ARRAY, key: 4, value: 8, entries: 1, ..Default::default() };
        let inners = [sys::map_create("grace_in", inner, None), sys::map_create("grace_in", inner, None)];
        let [one, two] = inners;
        let inners = [one.map_err(fail)?, two.map_err(fail)?];
        let outer = MapShape { kind: ARRAY_OF_MAPS, key: 4, value: 4, entries: 1, ..Default::default() };
        let outer = sys::map_create("grace", outer, Some(inners[0].as_fd())).map_err(fail)?;
        period(&outer, &inners[0]).map_err(fail)?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("grace".into())
            .spawn(move || run(&theirs, &outer, &inners))
            .map_err(fail)?;
        Ok(Self(Arc::new(Owner { shared, thread: Some(thread) })))
    }
}

/// Waits for one grace period.
fn period(outer: &OwnedFd, inner: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    sys::map_update(outer.as_fd(), &0u32.to_ne_bytes(), &inner.as_raw_fd().to_ne_bytes())
}

fn run(shared: &Shared, outer: &OwnedFd, inners: &[OwnedFd; 2]) {
    let mut turn = 0;
    loop {
        let target = {
            let mut tickets = shared.lock();
            while tickets.asked == tickets.passed && !tickets.closed {
                tickets = shared.changed.wait(tickets).unwrap_or_else(PoisonError::into_inner);
            }
            if tickets.closed {
                return;
            }
            tickets.asked
        };
        turn ^= 1;
        match period(outer, &inners[turn]) {
            Ok(()) => {
                shared.lock().passed = target;
                shared.changed.notify_all();
            }
            // Out of memory, at worst. Without a grace period nothing may be reused, so try again.
            Err(error) => {
                tracing::warn!(%error, "cannot wait for a grace period; trieline tries again");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

impl Grace for ReaderGrace {
    fn begin(&mut self) -> u64 {
        let shared = &self.0.shared;
        let mut tickets = shared.lock();
        // The thread may be inside a period that began before this call, so that one does not count.
        tickets.asked += 1;
        let ticket = tickets.asked;
        drop(tickets);
        shared.changed.notify_all();
        ticket
    }

    fn passed(&mut self) -> u64 {
        self.0.shared.lock().passed
    }

    fn wait(&mut self, ticket: u64) {
        let shared = &self.0.shared;
        let mut tickets = shared.lock();
        // A ticket that was never given out would never pass.
        while tickets.passed < ticket.min(tickets.asked) {
            tickets = shared.changed.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
