//! Once a second: what the kernel does not announce, and neighbours that only XDP's packets use.

use super::{Daemon, POLL_AT_LEAST, POLL_SHARE, RESOLVED};
use crate::kernel::netdev::Features;
use crate::kernel::{neigh, socket};
use crate::rib::kernel_state::Sysctl;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The end of a line about an error that comes once a second.
pub(super) const AGAIN: &str = "trielined tries again every second";

/// Of this thread: dumps of the kernel's count, too.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Daemon {
    /// Settings that the kernel does not announce, as they are now.
    pub(super) fn sysctl(&mut self) -> Result<Sysctl, socket::Error> {
        let kernel = &self.mirror.kernel;
        let tunnels = self.mirror.nhgs.encapsulating().filter_map(|device| kernel.links.get(&device));
        let devices = self.ports.watched(kernel).into_iter().chain(tunnels.map(|link| link.name.as_str()));
        Sysctl::read(&mut self.requests, devices)
    }

    /// Takes over those settings; whether any is another. They stay where the kernel does not answer.
    pub(super) fn renew_sysctl(&mut self) -> bool {
        let sysctl = self.sysctl();
        let sysctl = self.standing.note("read settings of devices", "trielined keeps the last ones", sysctl);
        sysctl.is_some_and(|sysctl| self.mirror.put_sysctl(sysctl))
    }

    /// Once a second: what the kernel does not announce, and neighbours that only we use.
    pub(super) fn tick(&mut self) {
        self.ticked = Instant::now();
        self.notice_detached();
        if self.poll_at <= self.ticked {
            let begun = processor_time();
            self.forget_links();
            self.poll_unannounced();
            self.open_egress();
            let took = processor_time().saturating_sub(begun);
            self.poll_at = self.ticked + (took * POLL_SHARE).min(POLL_AT_LEAST);
        }
        if self.ports.has_unset() {
            let tables = self.tables();
            self.ports.set(
                &self.mirror.kernel,
                &self.publisher.policies.lookup_ids,
                &mut self.dataplane,
                tables,
            );
        }
        let listed = self.dataplane.retry_outdated();
        self.standing.note("list the attached devices", AGAIN, listed);
        if self.csids.is_some() {
            self.set_csids();
        }
        self.sid_hooks.retry(self.dataplane.sid_hooks());
        self.mirror.changes.kernel |= self.ports.retry(&self.mirror.kernel, &mut self.dataplane);
        self.follow_drops();
        if self.mirror.nhgs.pass_time(self.ticked) {
            self.mirror.changes.v6.all = true;
            self.mirror.resync.v6.lose();
            self.schedule();
        }
        if !self.mirror.changes.any() && self.mirror.resync.at().is_none() {
            self.publisher.forget(&mut self.mirror, self.dataplane.parts().1);
        }
        if self.mirror.resync.needs_kernel_state() {
            let dumped = self.mirror.dump_kernel_state(&mut self.requests);
            self.standing.note("dump links, settings, rules and neighbours", AGAIN, dumped);
        }
        let tenants = !self.mirror.kernel.settings.tenants.is_empty();
        if self.mirror.stale.is_empty() && !tenants {
            self.idle.clear();
            return;
        }
        let gateways: HashSet<(IpAddr, u32)> = self
            .mirror
            .nhgs
            .iter()
            .flat_map(|(_, nhg)| &nhg.hops)
            .filter_map(|hop| Some((hop.gateway?, hop.ifindex)))
            .collect();
        let hosts: HashSet<(IpAddr, u32)> = self.publisher.action_index.hosts().collect();
        let ours = |host: &&(IpAddr, u32)| gateways.contains(*host) || hosts.contains(*host);
        let idle: BTreeSet<(IpAddr, u32)> = self.mirror.stale.iter().filter(ours).copied().collect();
        let used = if idle.is_empty() { BTreeSet::new() } else { self.dataplane.actions().take_used() };
        // Of one that turned stale since the last look, packets before that count as well: it is left to the next.
        for (address, link) in idle.intersection(&self.idle) {
            if self.mirror.adjacency_of_neighbour(*address, *link).is_some_and(|way| used.contains(&way)) {
                tracing::debug!(%address, link, "the kernel learns that packets go to a stale neighbour");
                // If the neighbour is gone by now, an event reports it.
                let _ = self.requests.request(neigh::in_use(*link, address), |_| {});
            }
        }
        self.idle = idle;
        // The kernel gets no packet of a declared tenant, so no packet makes it ask who has an address.
        let unknown = gateways.iter().filter(|(address, link)| !self.mirror.is_resolved(*address, *link));
        for (address, link) in unknown.take(if tenants { RESOLVED } else { 0 }) {
            // Not every link has neighbours.
            let _ = self.requests.request(neigh::resolve(*link, address), |_| {});
        }
    }

    /// Looks at all that the kernel does not announce; what differs is a change of its state.
    pub(super) fn poll_unannounced(&mut self) {
        self.mirror.changes.kernel |= self.renew_sysctl();
        self.schedule();
        self.check_bypassed();
    }

    /// Forgets what was known of links that went or changed.
    pub(super) fn forget_links(&mut self) {
        let touched = std::mem::take(&mut self.mirror.touched);
        if touched.all {
            self.probes.offloads.forget_all();
        }
        touched.links.iter().for_each(|link| self.probes.offloads.forget(*link));
        self.ports.forget(&touched, &mut self.dataplane);
        let links = &self.mirror.kernel.links;
        self.drops.retire(|ifindex| touched.gone.contains(&ifindex) || !links.contains_key(&ifindex));
    }

    /// Counts the drops of packets that come in by the devices that are attached now, for each device that they may leave by. Until other
    /// tables take the place of those in force, none: their packets are not of this program.
    pub(super) fn follow_drops(&mut self) {
        let is_aside = self.dataplane.supersedes();
        let sources = if is_aside { BTreeSet::new() } else { self.ports.sources(&self.mirror.kernel) };
        let followed = self.drops.follow(sources, self.ports.egress());
        self.standing.note("count all drops after redirect", AGAIN, followed);
    }

    /// Looks which devices packets may leave by at present.
    pub(super) fn open_egress(&mut self) {
        self.follow_features();
        let (kernel, features) = (&mut self.mirror.kernel, self.features.as_ref());
        self.mirror.changes.kernel |= self.ports.open(kernel, &mut self.dataplane, features);
        // Before a port lets packets in, and before an action sends them out there.
        self.follow_drops();
    }

    /// Opens and closes exits after the kernel reported changed XDP features.
    pub(super) fn read_features(&mut self) {
        if self.follow_features() {
            self.open_egress();
        }
    }

    /// Reads what the kernel reported of XDP features; whether they changed.
    fn follow_features(&mut self) -> bool {
        let Some(followed) = self.features.as_mut().map(Features::follow) else { return false };
        let changed =
            self.standing.note("read XDP features of devices", "trielined keeps the last ones", followed);
        changed.unwrap_or(false)
    }
}
