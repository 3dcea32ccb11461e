//! The daemon's eye on what the kernel does beside routing: it does not start past netfilter's rules, and follows those that come later.

use super::{Daemon, Error};
use crate::bypass::{Bypass, Eyes, UNLISTED};
use crate::kernel::socket::{self, Netlink};
use crate::kernel::{ethtool, family};
use crate::mirror::Mirror;
use crate::ports::Ports;

const FAMILIES: [(u8, &str); 2] = [(family::INET, "IPv4"), (family::INET6, "IPv6")];

/// Looks for the first time. Fails when packets would go past rules that nobody said they may: unless they are forwarded already by
/// what an earlier daemon left, which is then to follow the rules like one that runs.
pub(super) fn look_first(
    mirror: &mut Mirror,
    eyes: &mut Eyes,
    requests: &mut Netlink,
    ports: &Ports,
) -> Result<(), Error> {
    let vrf = mirror.leads_into_vrf();
    let world = &mut mirror.world;
    world.bypass = Bypass::read(eyes, requests, world, &ports.devices(world), vrf);
    if ports.are_attached() {
        return Ok(());
    }
    if let Some((device, offload)) = world.bypass.offloads.first() {
        return Err(Error::Offload { device: world.name(*device), offload: *offload });
    }
    match FAMILIES.iter().find_map(|(family, _)| world.bypass.obstacle(*family)) {
        Some(obstacle) if !world.settings.bypass_netfilter => Err(Error::Netfilter { obstacle }),
        _ => Ok(()),
    }
}

impl Daemon {
    /// Looks again when netfilter has told of a change.
    pub(super) fn hear_beside(&mut self) -> Result<(), socket::Error> {
        let changed = self.watch.as_mut().map(|watch| watch.changed()).transpose()?;
        if changed == Some(true) {
            self.look_beside();
        }
        Ok(())
    }

    /// Looks what packets do not meet; what came or went is said.
    pub(super) fn look_beside(&mut self) {
        let vrf = self.mirror.leads_into_vrf();
        let world = &mut self.mirror.world;
        let bypass = Bypass::read(&mut self.eyes, &mut self.requests, world, &self.ports.devices(world), vrf);
        if bypass == world.bypass {
            return;
        }
        let before = std::mem::replace(&mut world.bypass, bypass);
        let (old, new) = (before.skipped(world), world.bypass.skipped(world));
        for skipped in new.iter().filter(|skipped| !old.contains(skipped)) {
            tracing::warn!("{skipped}");
        }
        for skipped in old.iter().filter(|skipped| !new.contains(skipped)) {
            tracing::info!("no longer: {}", skipped.what);
        }
        let accepted = world.settings.bypass_netfilter;
        let marks = |bypass: &Bypass| FAMILIES.map(|(family, _)| bypass.marks(family, accepted));
        self.mirror.changes.world |= before.offloads != world.bypass.offloads
            || before.taken != world.bypass.taken
            || marks(&before) != marks(&world.bypass);
        let parts = |bypass: &Bypass| FAMILIES.map(|(family, _)| bypass.parts(family));
        self.mirror.changes.world |=
            !world.settings.bypass_netfilter && parts(&before) != parts(&world.bypass);
        let in_the_way = |bypass: &Bypass| FAMILIES.map(|(family, _)| bypass.obstacle(family).is_some());
        let (old, new) = (in_the_way(&before), in_the_way(&world.bypass));
        if world.settings.bypass_netfilter || old == new {
            return;
        }
        self.mirror.changes.world = true;
        for (at, (_, family)) in FAMILIES.iter().enumerate() {
            match (old[at], new[at]) {
                (false, true) => tracing::error!(
                    "{family} is the kernel's from now on, because of netfilter's rules (bypass_netfilter = true would forward past them)"
                ),
                (true, false) => {
                    tracing::warn!("{family} is forwarded again: no rules of netfilter are in the way")
                }
                _ => {}
            }
        }
    }

    /// Says what packets do not meet, and which of the devices do not forward.
    pub(super) fn name_beside(&self) {
        self.name_skipped();
        let world = &self.mirror.world;
        self.name_checksums();
        for (ifindex, dev) in self.ports.devices(world) {
            for (family, name) in FAMILIES {
                if !world.forwards(family, ifindex) {
                    tracing::warn!(dev, "forwarding of {name} is off: its packets are the kernel's");
                }
            }
            match world.rp_filter(ifindex) {
                0 => {}
                1 => tracing::info!(dev, "rp_filter is strict, in XDP too"),
                _ => tracing::info!(dev, "rp_filter is loose, in XDP too"),
            }
        }
    }

    /// Says whose senders may leave checksums to a device that never comes.
    fn name_checksums(&self) {
        let world = &self.mirror.world;
        for link in self.ports.iter().filter(|(_, port)| port.flags.unfinished).map(|(_, port)| port.ifindex)
        {
            let Some(link) = world.links.get(&link).filter(|link| link.leaves_checksums()) else { continue };
            // Of a veth it is the peer, where that is in this namespace.
            match link.parent.map(|peer| (world.name(peer), ethtool::finishes_checksums(peer))) {
                Some((_, Ok(false))) => {}
                Some((peer, _)) => tracing::warn!(
                    dev = link.name,
                    "TCP and UDP sent at {peer} leave their checksums unfinished: the kernel forwards them; XDP with ethtool -K {peer} tx off"
                ),
                None => tracing::info!(
                    dev = link.name,
                    "a {}: senders at its other end may leave checksums unfinished, whose packets are the kernel's; XDP forwards them with \
                     ethtool -K DEVICE tx off, there",
                    link.kind
                ),
            }
        }
    }

    /// Logs what packets do not meet.
    pub(super) fn name_skipped(&self) {
        let world = &self.mirror.world;
        for skipped in world.bypass.skipped(world).iter().filter(|skipped| skipped.kind != UNLISTED) {
            tracing::warn!("{skipped}");
        }
    }
}
