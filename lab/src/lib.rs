//! Network-namespace topologies, a packet generator and the experiments that re-measure every figure of trieline.
//!
//! The lab drives the product as a user would: it configures the kernel through `ip`, starts `trielined` and sends frames.
//! The library never prints: callers hand in a [`Progress`] and get a [`report::Document`] back, which knows its text and its pictures.

use std::sync::atomic::{AtomicBool, Ordering};

pub mod account;
pub mod compare;
mod error;
pub mod experiments;
pub mod flow_sender;
pub mod fork;
pub mod frames;
pub mod generator;
pub mod heap;
mod live;
pub mod load;
pub mod measure;
pub mod netlink;
pub mod netns;
mod object;
pub mod page;
pub mod published;
pub mod redirects;
pub mod report;
pub mod results;
pub mod rivals;
pub mod sinks;
pub mod tables;
#[cfg(test)]
mod testing;
pub mod topology;
pub mod traffic;
pub mod xdp_fib;

pub use error::{Error, Result};

pub use trieline_terminal::{Progress, Quiet};

/// The surroundings that every experiment gets from its caller.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Receives progress.
    pub progress: &'a dyn Progress,
    /// Raised when the experiment shall stop (Ctrl-C); it then cleans up and returns [`Error::Interrupted`].
    pub interrupt: &'a AtomicBool,
}

impl Context<'_> {
    /// Whether the caller wants it to stop.
    pub fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// The numbers of `count` rounds. The first is always made; if it is `late`, no other one begins.
    pub(crate) fn rounds(
        &self,
        name: &str,
        count: usize,
        late: impl Fn() -> bool,
    ) -> impl Iterator<Item = usize> {
        (0..count).take_while(move |round| {
            let ends = *round > 0 && late();
            if ends {
                self.progress.note(&format!("{name}: slow machine, fewer rounds than asked for"));
            }
            !ends
        })
    }

    /// An error when the caller wants it to stop.
    pub fn check(&self) -> Result<()> {
        if self.interrupted() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// Runs an experiment in a thread of its own, which may change its namespace and its CPU.
pub(crate) fn in_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
