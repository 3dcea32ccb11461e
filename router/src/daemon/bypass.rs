//! The daemon follows the processing of packets that XDP bypasses: it passes them while netfilter's rules may decide about them.

use super::Daemon;
use crate::bypass::scan::UNLISTED;
use crate::bypass::state::Bypass;
use crate::daemon::start_check::FAMILIES;
use crate::kernel::ethtool;
use crate::kernel::socket;

impl Daemon {
    /// Reads the rules again after netfilter reported a change.
    pub(super) fn read_netfilter_events(&mut self) -> Result<(), socket::Error> {
        let changed = self.watch.as_mut().map(|watch| watch.changed()).transpose()?;
        if changed == Some(true) {
            self.check_bypassed();
        }
        Ok(())
    }

    /// Looks what packets do not meet; what came or went is said.
    pub(super) fn check_bypassed(&mut self) {
        let vrf = self.mirror.leads_into_vrf();
        let kernel = &mut self.mirror.kernel;
        let bypass =
            Bypass::read(&mut self.probes, &mut self.requests, kernel, &self.ports.devices(kernel), vrf);
        if bypass == kernel.bypass {
            return;
        }
        let before = std::mem::replace(&mut kernel.bypass, bypass);
        let (old, new) = (before.bypassed(kernel), kernel.bypass.bypassed(kernel));
        for bypassed in new.iter().filter(|bypassed| !old.contains(bypassed)) {
            tracing::warn!(kind = bypassed.kind, "{bypassed}");
        }
        for bypassed in old.iter().filter(|bypassed| !new.contains(bypassed)) {
            tracing::info!(kind = bypassed.kind, "no longer bypassed: {}", bypassed.what);
        }
        let accepted = kernel.settings.bypass_netfilter;
        let marks = |bypass: &Bypass| FAMILIES.map(|(family, _)| bypass.marks(family, accepted));
        self.mirror.changes.kernel |= before.offloads != kernel.bypass.offloads
            || before.rx_handlers != kernel.bypass.rx_handlers
            || marks(&before) != marks(&kernel.bypass);
        let parts = |bypass: &Bypass| FAMILIES.map(|(family, _)| bypass.parts(family));
        self.mirror.changes.kernel |=
            !kernel.settings.bypass_netfilter && parts(&before) != parts(&kernel.bypass);
        let in_the_way = |bypass: &Bypass| FAMILIES.map(|(family, _)| bypass.obstacle(family).is_some());
        let (old, new) = (in_the_way(&before), in_the_way(&kernel.bypass));
        if kernel.settings.bypass_netfilter || old == new {
            return;
        }
        self.mirror.changes.kernel = true;
        for (at, (_, family)) in FAMILIES.iter().enumerate() {
            match (old[at], new[at]) {
                (false, true) => tracing::error!(
                    family,
                    "netfilter rules may decide about {family} packets; the kernel forwards them all (bypass_netfilter = true bypasses the rules)"
                ),
                (true, false) => {
                    tracing::warn!(
                        family,
                        "no netfilter rules decide about {family} packets; XDP forwards them again"
                    )
                }
                _ => {}
            }
        }
    }

    /// Logs the processing that packets bypass, and the devices that do not forward.
    pub(super) fn log_bypass(&self) {
        self.log_bypassed();
        let kernel = &self.mirror.kernel;
        self.name_checksums();
        self.name_tags();
        for (ifindex, dev) in self.ports.devices(kernel) {
            for (family, name) in FAMILIES {
                if !kernel.forwards(family, ifindex) {
                    let setting = kernel.forwarding_setting(family, ifindex);
                    tracing::warn!(
                        dev,
                        family = name,
                        "forwarding of {name} is off; the kernel gets its packets (sysctl {setting})"
                    );
                }
            }
            match kernel.links.get(&ifindex).map_or(0, |link| kernel.rp_filter(link)) {
                0 => {}
                1 => tracing::info!(dev, "rp_filter is strict; XDP checks sources, too"),
                _ => tracing::info!(dev, "rp_filter is loose; XDP checks sources, too"),
            }
        }
    }

    /// Logs the devices whose senders may leave checksums to a device that never comes.
    fn name_checksums(&self) {
        let kernel = &self.mirror.kernel;
        for link in
            self.ports.iter().filter(|(_, port)| port.flags.csum_partial).map(|(_, port)| port.ifindex)
        {
            let Some(link) = kernel.links.get(&link).filter(|link| link.leaves_checksums()) else { continue };
            // Of a veth it is the peer, where that is in this namespace.
            match link.parent.map(|peer| (kernel.name(peer), ethtool::finishes_checksums(peer))) {
                Some((_, Ok(false))) => {}
                Some((peer, _)) => tracing::warn!(
                    dev = link.name,
                    "TCP, UDP and SCTP sent at {peer} leave their checksums unfinished: the kernel forwards them; XDP with ethtool -K {peer} tx off"
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

    /// Logs the veths whose peer may hand VLAN tags over beside the frame, where they have VLANs.
    fn name_tags(&self) {
        let links = &self.mirror.kernel.links;
        let has_vlans =
            |ifindex| links.values().any(|link| link.vlan.is_some() && link.parent == Some(ifindex));
        for (ifindex, dev) in self.ports.devices(&self.mirror.kernel) {
            if links.get(&ifindex).is_some_and(|link| link.kind == "veth") && has_vlans(ifindex) {
                tracing::warn!(
                    dev,
                    "a veth with VLANs: XDP takes frames for untagged whose tag its other end hands over beside the frame; ethtool -K DEVICE \
                     txvlan off, there, leaves the tag in the frame"
                );
            }
        }
    }

    /// Logs what packets do not meet.
    pub(super) fn log_bypassed(&self) {
        let kernel = &self.mirror.kernel;
        for bypassed in kernel.bypass.bypassed(kernel).iter().filter(|bypassed| bypassed.kind != UNLISTED) {
            tracing::warn!(kind = bypassed.kind, "{bypassed}");
        }
    }
}
