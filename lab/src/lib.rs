//! Network-namespace topologies, a packet generator and the experiments that re-measure every figure of trieline.
//!
//! The lab drives the product as a user would: it configures the kernel through `ip`, starts `trielined` and sends frames.
//! It never prints: callers hand in a [`Progress`] and get a [`report::Document`] back.

use std::sync::atomic::{AtomicBool, Ordering};

pub mod bars;
mod command;
pub mod curve;
pub mod daemon;
mod draw;
mod error;
pub mod experiments;
pub mod frames;
pub mod generator;
pub mod heap;
pub mod load;
pub mod measure;
pub mod netns;
mod object;
pub mod plot;
pub mod published;
pub mod report;
pub mod scatter;
pub mod sinks;
pub mod tables;
pub mod thresholds;
pub mod topology;

pub use error::{Error, Result};

/// Told how far an experiment is.
pub trait Progress: Sync {
    /// A new phase begins: `total` steps, 0 when nobody knows how many.
    fn phase(&self, what: &str, total: u64);
    /// So many more steps of the phase are done.
    fn advance(&self, steps: u64);
    /// Something a reader of the result should know.
    fn note(&self, text: &str);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn phase(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64) {}
    fn note(&self, _: &str) {}
}

/// What every experiment gets from its caller.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Who is told.
    pub progress: &'a dyn Progress,
    /// Raised when the experiment shall stop (Ctrl-C); it then cleans up and returns [`Error::Interrupted`].
    pub interrupt: &'a AtomicBool,
}

impl Context<'_> {
    /// Whether the caller wants it to stop.
    pub fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
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
