//! The daemon follows the kernel's changes: it reads them, dumps what may differ from the kernel, and makes packets meet them.

use super::source::{Source, milliseconds};
use super::work::Work;
use super::{BATCH, Daemon, Error, TICK};
use crate::kernel::socket;
use crate::rib::dump::Dump;
use crate::rib::table::Ip;
use crate::srv6::steps;
use std::time::{Duration, Instant};

impl Daemon {
    /// Reads queued changes: all of them, or as many as the time allows. Whether all.
    pub(super) fn read_changes(&mut self, limit: Duration) -> Result<bool, Error> {
        let Self { events, requests, dumps, mirror, counts, .. } = self;
        let all = Source { events, requests, dumps, mirror, counts }.read_changes(limit)?;
        self.schedule();
        Ok(all)
    }

    /// Sets the time of the next dump if changes were lost.
    pub(super) fn schedule(&mut self) {
        let requested = self.mirror.resync.schedule(Instant::now());
        self.counts.status.resync_requests += u64::from(requested);
    }

    /// Dumps what may differ from the kernel. Changes queued before are older than the dump, changes read after it may be in it or not.
    /// If there are any, routes may be missing, and the daemon dumps again when it is calmer.
    pub(super) fn resync(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        self.counts.resyncs += 1;
        self.read_changes(TICK)?;
        self.mirror.dump_rules(&mut self.requests)?;
        self.mirror.dump_objects(&mut self.requests)?;
        if self.mirror.resync.v4.needs_dump() {
            let dump = self.mirror.begin_ipv4(&mut self.dumps)?;
            let dump = self.read_dump(dump)?;
            if !self.read_changes(TICK)? {
                self.mirror.resync.v4.lose();
            }
            self.mirror.adopt_ipv4(dump);
            self.counts.status.interrupted += u64::from(self.mirror.resync.v4.is_interrupted());
        }
        if self.mirror.resync.v6.needs_dump() {
            let dump = self.mirror.begin_ipv6(&mut self.dumps)?;
            let dump = self.read_dump(dump)?;
            if !self.read_changes(TICK)? {
                self.mirror.resync.v6.lose();
            }
            self.mirror.adopt_ipv6(dump);
            self.counts.status.interrupted += u64::from(self.mirror.resync.v6.is_interrupted());
        }
        let took = begun.elapsed();
        self.counts.status.dump_ms = milliseconds(took);
        self.counts.status.routes = self.mirror.routes();
        let built = Instant::now();
        self.publish();
        self.counts.status.build_ms = milliseconds(built.elapsed());
        self.mirror.resync.end_round(took, Instant::now());
        self.schedule();
        Ok(())
    }

    /// Reads a dump to its end. A full table takes half a second: changes are followed meanwhile, so that packets to a dead link do not
    /// wait for it.
    fn read_dump<A: Ip>(&mut self, mut dump: Dump<A>) -> Result<Dump<A>, Error> {
        let mut looked = Instant::now();
        while dump.go_on(&mut self.mirror.nhgs, &mut self.dumps)? {
            // The first tables are written when they are whole.
            if self.counts.status.ready_ms > 0.0 && looked.elapsed() >= BATCH {
                self.read_changes(BATCH)?;
                self.publish();
                self.beat();
                looked = Instant::now();
            }
        }
        Ok(dump)
    }

    /// Writes which SIDs of NEXT-C-SID a packet may step on to. The guards of filters, SID hooks and tenants read it.
    pub(super) fn set_csids(&mut self) {
        let set = self.dataplane.csids().set(&steps::find(&self.mirror)).map_err(|error| error.to_string());
        if let Err(error) = &set
            && self.csids.is_none()
        {
            tracing::error!(
                error,
                "NEXT-C-SIDs not written: SID hooks may not see each packet; trielined tries again every second"
            );
        }
        self.csids = set.err();
    }

    /// Makes packets meet what is known.
    pub(super) fn publish(&mut self) {
        let (retry4, retry6) = self.publisher.retry_due();
        self.mirror.changes.v4.all |= retry4;
        self.mirror.changes.v6.all |= retry6;
        if !self.mirror.changes.any() {
            return;
        }
        for (_, work) in &mut self.clients {
            if let Some(Work::Audit(audit)) = work {
                audit.note(&self.mirror.changes);
            }
        }
        let begun = Instant::now();
        let (kernel_state_changed, before) = (self.mirror.changes.kernel, self.tables());
        if kernel_state_changed {
            let kernel = &mut self.mirror.kernel;
            kernel.settings.tenants.apply(&mut kernel.links);
        }
        if self.mirror.changes.v6.any() || !self.mirror.changes.nhgs.is_empty() {
            self.set_csids();
        }
        // First the actions that lead to a link that is down: packets are lost until they are written. Then the slow requests.
        self.publisher.publish(&mut self.mirror, self.dataplane.parts(), self.ports.egress());
        if kernel_state_changed {
            self.counts.status.rewritten_us = begun.elapsed().as_micros() as u64;
            tracing::debug!(
                rewritten_us = self.counts.status.rewritten_us,
                "links, settings or rules changed; trielined rewrites actions"
            );
            self.forget_links();
            self.poll_unannounced();
            tracing::debug!(requests = socket::sent(), "read the settings that the kernel does not notify");
            if self.counts.status.ready_ms > 0.0 {
                self.ports.attach_more(&self.mirror.kernel, &mut self.dataplane);
            }
            self.open_egress();
            if self.mirror.changes.any() {
                self.publisher.publish(&mut self.mirror, self.dataplane.parts(), self.ports.egress());
            }
        }
        let tables = self.tables();
        // Before the first tables are there nothing is attached; see `take_over`.
        if self.counts.status.ready_ms > 0.0
            && (kernel_state_changed || before != tables || self.publisher.may_have_unused())
            && self.ports.follow(
                &self.mirror.kernel,
                &self.publisher.policies.lookup_ids,
                &mut self.dataplane,
                tables,
            )
        {
            self.publisher.release_unused(&self.mirror, self.dataplane.parts().0);
        }
        let took = begun.elapsed().as_micros() as u64;
        let status = &mut self.counts.status;
        status.batches += 1;
        status.last_batch_us = took;
        if status.ready_ms > 0.0 {
            status.longest_batch_us = status.longest_batch_us.max(took);
            status.batch_times.add(took);
        }
    }
}
