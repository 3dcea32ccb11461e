//! The daemon's heartbeat. It beats in the loop that follows the kernel, never on a thread: a loop that hangs must not look alive.

use super::{Daemon, Error};
use std::time::{Duration, Instant};

/// Time between two heartbeats.
const BEAT: Duration = Duration::from_millis(500);

impl Daemon {
    /// The first heartbeat: the tables have become current.
    pub(super) fn begin_heartbeat(&mut self) -> Result<(), Error> {
        let heartbeat = self.dataplane.heartbeat();
        if let (true, Some(silent)) = (heartbeat.is_stale(), heartbeat.silent) {
            tracing::warn!(
                silent_seconds = silent.as_secs(),
                "no trielined has run for longer than max_stale: the XDP program passed all packets to the kernel; it forwards again"
            );
        }
        match self.limits.max_stale {
            Some(limit) => tracing::info!(
                max_stale_seconds = limit.as_secs_f64(),
                "if trielined ends or hangs, XDP forwards for this time, then passes all packets to the kernel"
            ),
            None => tracing::warn!(
                "max_stale = \"none\": when trielined ends or hangs, XDP forwards by its last tables without end"
            ),
        }
        self.dataplane.beat(self.limits.max_stale)?;
        self.beaten = Instant::now();
        Ok(())
    }

    /// Beats if it is time.
    pub(super) fn beat(&mut self) {
        if self.beaten.elapsed() < BEAT {
            return;
        }
        self.beaten = Instant::now();
        match self.dataplane.beat(self.limits.max_stale) {
            Ok(()) => self.faint = false,
            Err(error) if !self.faint => {
                self.faint = true;
                tracing::error!(%error, "cannot write the heartbeat; after max_stale, XDP leaves all packets to the kernel");
            }
            Err(_) => {}
        }
    }
}
