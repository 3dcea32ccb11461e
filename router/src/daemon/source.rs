//! Reads the kernel: its changes as they come, and at start its routes.

use crate::api::status::MirrorStatus;
use crate::daemon::error::Error;
use crate::kernel::socket::{Netlink, Received};
use crate::rib::mirror::Mirror;
use crate::rib::resync::SyncState;
use std::time::{Duration, Instant};

/// Changes that never end are read so long at a stretch.
const LIMIT: Duration = Duration::from_secs(1);

/// Counts for `node status`.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) status: MirrorStatus,
    pub(super) overruns: u64,
    pub(super) resyncs: u64,
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The kernel's side of the daemon: its sockets, and the state that is known from them.
pub(super) struct Source<'a> {
    pub(super) events: &'a mut Netlink,
    pub(super) requests: &'a mut Netlink,
    pub(super) dumps: &'a mut Netlink,
    pub(super) mirror: &'a mut Mirror,
    pub(super) counts: &'a mut Counts,
}

impl Source<'_> {
    /// Reads queued changes: all of them, or as many as the time allows. Whether all.
    pub(super) fn read_changes(&mut self, limit: Duration) -> Result<bool, Error> {
        let (begun, messages) = (Instant::now(), self.counts.status.messages);
        let all = loop {
            let (mirror, counts) = (&mut *self.mirror, &mut *self.counts);
            let received = self.events.changes(64, |message| {
                counts.status.messages += 1;
                mirror.apply(message);
            })?;
            if received == Received::Overrun {
                self.counts.overruns += 1;
                tracing::warn!("netlink receive buffer overrun (ENOBUFS); resyncing with a full dump");
                // From the overrun until the queue is empty the kernel drops every change, and reports it only once. Messages still in the
                // queue are older than the dump.
                let drained = Instant::now();
                while self.events.changes(64, |_| {})? != Received::All && drained.elapsed() < LIMIT {}
                self.mirror.resync.lose_routes();
                self.mirror.dump_kernel_state(self.requests)?;
            }
            if received == Received::All || begun.elapsed() > limit {
                break received == Received::All;
            }
        };
        if self.counts.status.messages != messages {
            self.mirror.resync.note_changes(Instant::now());
        }
        Ok(all)
    }

    /// Dumps all routes for the first time, as the daemon's resyncs do later. Nothing else has to be done meanwhile.
    pub(super) fn dump_first(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        self.counts.resyncs += 1;
        self.mirror.resync.lose_routes();
        self.read_changes(LIMIT)?;
        self.mirror.dump_objects(self.requests)?;
        let mut dump = self.mirror.begin_ipv4(self.dumps)?;
        while dump.go_on(&mut self.mirror.nhgs, self.dumps)? {}
        if !self.read_changes(LIMIT)? {
            self.mirror.resync.v4.lose();
        }
        self.mirror.adopt_ipv4(dump);
        let mut dump = self.mirror.begin_ipv6(self.dumps)?;
        while dump.go_on(&mut self.mirror.nhgs, self.dumps)? {}
        if !self.read_changes(LIMIT)? {
            self.mirror.resync.v6.lose();
        }
        self.mirror.adopt_ipv6(dump);
        let interrupted = [self.mirror.resync.v4, self.mirror.resync.v6].map(SyncState::is_interrupted);
        self.counts.status.interrupted += interrupted.map(u64::from).iter().sum::<u64>();
        let took = begun.elapsed();
        self.counts.status.dump_ms = milliseconds(took);
        self.counts.status.routes = self.mirror.routes();
        self.mirror.resync.end_round(took, Instant::now());
        Ok(())
    }
}
