//! Once a second: what the kernel does not announce, and neighbours that only XDP's packets use.

use super::{Daemon, RESOLVED};
use crate::kernel::netdev::Features;
use crate::kernel::{neigh, socket};
use crate::world::Sysctl;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Instant;

impl Daemon {
    /// Settings that the kernel does not announce, as they are now.
    pub(super) fn sysctl(&mut self) -> Result<Sysctl, socket::Error> {
        let world = &self.mirror.world;
        let tunnels = self.mirror.paths.encapsulating().filter_map(|device| world.links.get(&device));
        let devices = self.ports.watched(world).into_iter().chain(tunnels.map(|link| link.name.as_str()));
        Sysctl::read(&mut self.requests, devices)
    }

    /// Takes over those settings; whether any is another. They stay where the kernel does not answer.
    pub(super) fn renew_sysctl(&mut self) -> bool {
        match self.sysctl() {
            Ok(sysctl) => {
                std::mem::replace(&mut self.mirror.world.sysctl, sysctl) != self.mirror.world.sysctl
            }
            Err(error) => {
                tracing::warn!(%error, "settings of devices: they count as they were");
                false
            }
        }
    }

    /// Once a second: what the kernel does not announce, and neighbours that only we use.
    pub(super) fn tick(&mut self) {
        self.ticked = Instant::now();
        self.notice_detached();
        self.forget_links();
        self.look_around();
        self.open_exits();
        if self.mirror.paths.pass_time(self.ticked) {
            self.mirror.changes.v6.all = true;
            self.mirror.changes.v6.doubt = true;
            self.schedule();
        }
        if !self.mirror.changes.any() && !self.doubting && self.resync_at.is_none() {
            self.publisher.forget(&mut self.mirror, self.dataplane.parts().1);
        }
        if self.mirror.world_doubt
            && let Err(error) = self.mirror.dump_world(&mut self.requests)
        {
            tracing::warn!(%error, "asking for links, settings, rules and neighbours once more");
        }
        let tenants = !self.mirror.world.tenants.is_empty();
        if self.mirror.stale.is_empty() && !tenants {
            return;
        }
        let gateways: HashSet<(IpAddr, u32)> = self
            .mirror
            .paths
            .iter()
            .flat_map(|(_, path)| &path.hops)
            .filter_map(|hop| Some((hop.gateway?, hop.ifindex)))
            .collect();
        let hosts: HashSet<(IpAddr, u32)> = self.publisher.ledger.hosts().collect();
        for (address, link) in &self.mirror.stale {
            let host = (*address, *link);
            if gateways.contains(&host) || hosts.contains(&host) {
                // It may be gone by now, of which an event tells.
                let _ = self.requests.request(neigh::in_use(*link, address), |_| {});
            }
        }
        // The kernel gets no packet of a declared tenant, so no packet makes it ask who has an address.
        let unknown = gateways.iter().filter(|(address, link)| !self.mirror.knows(*address, *link));
        for (address, link) in unknown.take(if tenants { RESOLVED } else { 0 }) {
            // Not every link has neighbours.
            let _ = self.requests.request(neigh::resolve(*link, address), |_| {});
        }
    }

    /// Looks at all that the kernel does not announce; what differs is a change of the world.
    pub(super) fn look_around(&mut self) {
        self.mirror.changes.world |= self.renew_sysctl();
        self.look_beside();
    }

    /// Forgets what was known of links that went or changed.
    pub(super) fn forget_links(&mut self) {
        let touched = std::mem::take(&mut self.mirror.touched);
        if touched.all {
            self.eyes.offloads.forget_all();
        }
        touched.links.iter().for_each(|link| self.eyes.offloads.forget(*link));
        self.ports.forget(&touched, &mut self.dataplane);
    }

    /// Looks which devices packets may leave by at present.
    pub(super) fn open_exits(&mut self) {
        if let Some(Err(error)) = self.features.as_mut().map(Features::follow) {
            tracing::warn!(%error, "XDP features of devices: they count as they were");
        }
        let (world, features) = (&mut self.mirror.world, self.features.as_ref());
        self.mirror.changes.world |= self.ports.open(world, &mut self.dataplane, features);
    }

    /// Opens and closes exits when the kernel has told of other XDP features.
    pub(super) fn hear_features(&mut self) {
        match self.features.as_mut().map(Features::follow) {
            Some(Ok(true)) => self.open_exits(),
            Some(Err(error)) => tracing::warn!(%error, "XDP features of devices: they count as they were"),
            _ => {}
        }
    }
}
