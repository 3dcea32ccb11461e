//! Which devices and VLANs packets are taken from, and what the kernel's settings allow there.

use crate::daemon::veth;
use crate::dataplane::Dataplane;
use crate::fib::lookup_ids::LookupIds;
use crate::kernel::family;
use crate::kernel::link::Link;
use crate::kernel::netdev::{Features, Takes};
use crate::rib::kernel_state::KernelState;
use crate::rib::mirror::Touched;
use crate::xdp::attachment::AttachMode;
use crate::xdp::error::Error;
use crate::xdp::ports::{Port, PortFlags};
use crate::xdp::table_ids::{TABLE4, TABLE6};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use trieline_lpm::Grace;

/// The devices given to the daemon, by name, and what was made of them.
#[derive(Debug)]
pub struct Ports {
    /// Names, as configured.
    pub names: Vec<String>,
    /// Whether filters are asked.
    pub filters: bool,
    /// Whether SIDs may have hooks.
    pub sid_hooks: bool,
    mode: AttachMode,
    /// Device numbers of those that are attached.
    attached: BTreeSet<u32>,
    /// Device numbers of those that packets may leave by.
    egress: BTreeSet<u32>,
    /// Those of them that take frames of several buffers.
    frags: BTreeSet<u32>,
    ports: BTreeMap<(u32, Option<u16>), Port>,
    /// Devices that refuse the program, by name, with why; it has been logged.
    refused: BTreeMap<String, String>,
    /// Ports that could not be set, which has been logged.
    unset: BTreeSet<(u32, Option<u16>)>,
    /// Names of devices that packets cannot leave by, which has been logged.
    disabled: BTreeSet<String>,
    /// Likewise, as they take no redirected frames.
    no_xdp_xmit: BTreeSet<String>,
}

impl Ports {
    /// Ports of the devices `names`; nothing is attached yet. The settings of an earlier daemon are read from the dataplane.
    pub fn new(names: Vec<String>, mode: AttachMode, dataplane: &Dataplane) -> Result<Self, Error> {
        let attached = dataplane.attachments()?.into_iter().map(|attachment| attachment.ifindex).collect();
        let known = dataplane.ports()?.into_iter().map(|(ifindex, vlan, port)| ((ifindex, vlan), port));
        Ok(Self { attached, ports: known.collect(), ..Self::unattached(names, mode) })
    }

    /// Ports of the devices `names`. None is attached.
    pub fn unattached(names: Vec<String>, mode: AttachMode) -> Self {
        let (attached, egress, frags, ports, refused, unset, disabled, no_xdp_xmit) = Default::default();
        let (filters, sid_hooks) = (false, false);
        Self {
            names,
            filters,
            sid_hooks,
            mode,
            attached,
            egress,
            frags,
            ports,
            refused,
            unset,
            disabled,
            no_xdp_xmit,
        }
    }

    /// The links of the configured names.
    fn links<'w>(&self, kernel: &'w KernelState) -> Vec<&'w Link> {
        let names: HashSet<&str> = self.names.iter().map(String::as_str).collect();
        kernel.links.values().filter(|link| link.names().any(|name| names.contains(name))).collect()
    }

    /// Those of the exits that take frames of several buffers.
    pub(super) fn frags(&self) -> &BTreeSet<u32> {
        &self.frags
    }

    /// The ports that were set.
    pub(super) fn all(&self) -> &BTreeMap<(u32, Option<u16>), Port> {
        &self.ports
    }

    /// Device numbers that packets may leave by.
    pub fn egress(&self) -> &BTreeSet<u32> {
        &self.egress
    }

    /// Names of the devices whose unannounced settings matter: the configured ones and the VLANs on top.
    pub fn watched<'w>(&self, kernel: &'w KernelState) -> Vec<&'w str> {
        self.logical(kernel).map(|(_, _, link)| link.name.as_str()).collect()
    }

    /// Those devices, by number.
    pub fn devices(&self, kernel: &KernelState) -> BTreeMap<u32, String> {
        self.logical(kernel).map(|(_, _, link)| (link.ifindex, link.name.clone())).collect()
    }

    /// The configured devices and the VLANs on top: the device, the tag, and the link that stands for it. O(links).
    fn logical<'w>(
        &self,
        kernel: &'w KernelState,
    ) -> impl Iterator<Item = (&'w Link, Option<u16>, &'w Link)> {
        let mut vlans = kernel.vlans();
        self.links(kernel).into_iter().flat_map(move |link| {
            let vlans = vlans.remove(&link.ifindex).unwrap_or_default().into_iter();
            std::iter::once((link, None, link)).chain(vlans.map(move |(id, vlan)| (link, Some(id), vlan)))
        })
    }

    /// Whether there are devices that packets are taken from.
    pub fn are_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// How many of the configured devices are attached. O(links).
    pub(super) fn attached_of(&self, kernel: &KernelState) -> usize {
        self.links(kernel).iter().filter(|link| self.attached.contains(&link.ifindex)).count()
    }

    /// Configured names that no link has: each is taken when there is one.
    pub fn missing<'a>(&'a self, kernel: &KernelState) -> impl Iterator<Item = &'a str> {
        Self::missing_of(&self.names, kernel)
    }

    /// Of these names those that no link has.
    pub fn missing_of<'a>(names: &'a [String], kernel: &KernelState) -> impl Iterator<Item = &'a str> {
        let links: HashSet<&str> = kernel.links.values().flat_map(Link::names).collect();
        let missing: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !links.contains(name)).collect();
        missing.into_iter()
    }

    /// The links of each configured bond: they run the bond's program, and the kernel names them as the devices. In generic mode it
    /// names the bond. O(links).
    fn bond_links<'w>(&self, kernel: &'w KernelState) -> BTreeMap<u32, Vec<&'w Link>> {
        let given = self.links(kernel).into_iter();
        let bonds = given.filter(|link| link.kind == "bond" && self.mode != AttachMode::Generic);
        let mut ports: BTreeMap<u32, Vec<&Link>> = bonds.map(|bond| (bond.ifindex, Vec::new())).collect();
        for link in kernel.links.values() {
            if let Some(of) = link.master.and_then(|master| ports.get_mut(&master)) {
                of.push(link);
            }
        }
        ports
    }

    /// Devices that hand packets to the program: those that are attached, and the links of attached bonds. O(links).
    pub fn sources(&self, kernel: &KernelState) -> BTreeSet<u32> {
        let mut bonds = self.bond_links(kernel);
        bonds.retain(|bond, _| self.attached.contains(bond));
        let below = bonds.into_values().flatten().map(|link| link.ifindex);
        self.attached.iter().copied().chain(below).collect()
    }

    /// The configured device that a port of this number belongs to: the bond of a bond's port, else itself.
    pub fn given(&self, kernel: &KernelState, ifindex: u32) -> u32 {
        let master = || kernel.links.get(&ifindex)?.master;
        let bond =
            || master().filter(|master| kernel.links.get(master).is_some_and(|link| link.kind == "bond"));
        if self.attached.contains(&ifindex) { ifindex } else { bond().unwrap_or(ifindex) }
    }

    /// Ports as they should be.
    pub(super) fn wanted(
        &self,
        kernel: &KernelState,
        lookup_ids: &LookupIds,
        tables: (bool, bool),
    ) -> BTreeMap<(u32, Option<u16>), Port> {
        let mut wanted = BTreeMap::new();
        let bonds = self.bond_links(kernel);
        for (link, vlan, logical) in self.logical(kernel) {
            let Some(mac) = logical.mac else { continue };
            let lookup = |family| lookup_ids.of(family, logical.ifindex);
            let (table4, table6) = (lookup(family::INET), lookup(family::INET6));
            let free = !kernel.bypass.excludes(link.ifindex) && !kernel.bypass.excludes(logical.ifindex);
            let current = (free && tables.0 && table4.is_some(), free && tables.1 && table6.is_some());
            let flags = PortFlags {
                filter: self.filters,
                sid_hook: self.sid_hooks,
                ..flags(kernel, logical, current)
            };
            let (table4, table6) = (table4.unwrap_or(TABLE4), table6.unwrap_or(TABLE6));
            let port = Port { table4, table6, flags, ifindex: logical.ifindex, mac };
            for device in bonds.get(&link.ifindex).map_or(&[link][..], Vec::as_slice) {
                let mut flags = port.flags;
                // Packets come by a backup as soon as the bond fails over, which trielined sees later, or never while it is away. So
                // filters, SID hooks and tenants hold there before. Until then the kernel drops what comes in.
                let is_backup = device.master == Some(link.ifindex) && device.backup;
                if is_backup || kernel.bypass.excludes(device.ifindex) {
                    flags = PortFlags { forward4: false, forward6: false, seg6: false, ..flags };
                }
                // In generic mode the mark stays with the packet, but the driver that gets it is not asked whether it can obey it. Nor
                // is a packet that stands for several cut.
                flags.csum_partial = device.leaves_checksums() || self.mode == AttachMode::Generic;
                wanted.insert((device.ifindex, vlan), Port { flags, ..port });
            }
        }
        wanted
    }

    /// The frames that a device takes. Many drivers take redirected frames only while a program is attached, and the kernel tells only
    /// since Linux 6.3. Before, a device that is attached is taken to have made itself ready.
    fn takes(&self, ifindex: u32, features: Option<&Features>) -> Takes {
        let reported = features.map(|features| features.of(ifindex));
        let redirects = match reported {
            _ if self.mode == AttachMode::Generic => true,
            Some(reported) => reported.redirects,
            None => self.attached.contains(&ifindex),
        };
        Takes { redirects, frags: reported.is_some_and(|reported| reported.frags) }
    }

    /// Lets packets leave by those of the configured devices that take redirected frames, which can change at any time. To be
    /// called after the program was attached. Returns whether exits differ. A device that refuses does not stop the others.
    pub fn open(
        &mut self,
        kernel: &mut KernelState,
        dataplane: &mut Dataplane,
        features: Option<&Features>,
    ) -> bool {
        let (mut egress, mut frags) = (BTreeSet::new(), BTreeSet::new());
        let links = self.links(kernel);
        let given: BTreeSet<u32> = links.iter().map(|link| link.ifindex).collect();
        for link in links {
            let takes = self.takes(link.ifindex, features);
            if !takes.redirects {
                if self.no_xdp_xmit.insert(link.name.clone()) {
                    tracing::warn!(
                        dev = link.name,
                        "the device takes no redirected frames; the kernel forwards packets to it (a veth takes them while its peer has GRO or \
                         XDP: ethtool -K PEER gro on, where the peer is)"
                    );
                }
                continue;
            }
            if self.no_xdp_xmit.remove(&link.name) {
                tracing::info!(
                    dev = link.name,
                    "the device takes redirected frames again; XDP forwards packets to it"
                );
            }
            let open = self.egress.contains(&link.ifindex);
            let opened = if open && self.frags.contains(&link.ifindex) == takes.frags {
                Ok(())
            } else {
                dataplane.open_device(link.ifindex, takes.frags)
            };
            match opened {
                Ok(()) => {
                    egress.insert(link.ifindex);
                    frags.extend(takes.frags.then_some(link.ifindex));
                    self.disabled.remove(&link.name);
                }
                Err(error) if !self.disabled.contains(&link.name) => {
                    // The name is known, and means more than a number.
                    let cause = match error {
                        Error::NoDevice { .. } => format!("{}: no such device any more", link.name),
                        other => other.to_string(),
                    };
                    tracing::warn!(dev = link.name, %cause, "XDP cannot send to this device; the kernel forwards packets to it");
                    self.disabled.insert(link.name.clone());
                }
                Err(_) => {}
            }
        }
        for closed in self.egress.difference(&egress) {
            // The kernel forgets a device that is gone by itself.
            let _ = dataplane.clear_device(*closed);
        }
        let changed = egress != self.egress;
        let disabled = given.difference(&egress).copied().collect();
        let reported = std::mem::replace(&mut kernel.disabled, disabled) != kernel.disabled;
        (self.egress, self.frags) = (egress, frags);
        changed || reported
    }

    /// Forgets what is known of links that went. The kernel has detached them and closed them as exits, also when another has the
    /// number by now.
    pub fn forget(&mut self, touched: &Touched, dataplane: &mut Dataplane) {
        if touched.all {
            self.egress.clear();
            if let Err(error) = self.drop_gone(dataplane) {
                tracing::error!(%error, "cannot list the attached devices; trielined tries again");
            }
        }
        for gone in &touched.gone {
            self.egress.remove(gone);
            if self.attached.remove(gone)
                && let Err(error) = dataplane.detach(*gone)
            {
                tracing::error!(%error, "cannot detach from a device that is gone; trielined goes on");
            }
        }
    }

    /// Sets the ports where they differ. Those that become or cease to be a tenant's are set after a grace period (some 20 ms)
    /// in which their packets are dropped. `tables` names the families whose tables are as the kernel's. A port that cannot be
    /// set is logged once and does not stop the others. Returns whether no port has lookup ids of before.
    pub fn set(
        &mut self,
        kernel: &KernelState,
        lookup_ids: &LookupIds,
        dataplane: &mut Dataplane,
        tables: (bool, bool),
    ) -> bool {
        let wanted = self.wanted(kernel, lookup_ids, tables);
        let differs = |(key, port): &(&_, &Port)| self.ports.get(key) != Some(port);
        let changed: Vec<_> = wanted.iter().filter(differs).map(|(key, port)| (*key, *port)).collect();
        let frozen: Vec<_> = changed
            .iter()
            .filter_map(|(key, port)| Some((*key, frozen(self.ports.get(key)?, port)?)))
            .collect();
        let mut settled = true;
        for (key, port) in &frozen {
            settled &= self.set_one(*key, *port, dataplane);
        }
        if !frozen.is_empty() {
            let mut grace = dataplane.grace();
            let ticket = grace.begin();
            grace.wait(ticket);
        }
        for (key, port) in changed {
            settled &= self.set_one(key, port, dataplane);
        }
        let gone: Vec<_> = self.ports.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        for (ifindex, vlan) in gone {
            match dataplane.clear_port(ifindex, vlan) {
                Ok(()) => drop(self.ports.remove(&(ifindex, vlan))),
                Err(error) => {
                    tracing::error!(ifindex, vlan, %error, "cannot clear a port; its old settings stay in force");
                    settled = false;
                }
            }
        }
        self.unset.retain(|key| wanted.contains_key(key));
        settled
    }

    /// Whether ports could not be set: to be tried again.
    pub fn has_unset(&self) -> bool {
        !self.unset.is_empty()
    }

    /// Sets one port; whether it has no lookup ids of before. One that is new and cannot be set is the kernel's.
    fn set_one(&mut self, key: (u32, Option<u16>), port: Port, dataplane: &mut Dataplane) -> bool {
        match dataplane.set_port(key.0, key.1, port) {
            Ok(()) => {
                self.ports.insert(key, port);
                self.unset.remove(&key);
                true
            }
            Err(error) => {
                if self.unset.insert(key) {
                    tracing::error!(ifindex = key.0, vlan = key.1, %error, "cannot set a port; trielined tries again, and the kernel forwards the packets of a new port");
                }
                !self.ports.contains_key(&key)
            }
        }
    }

    /// Attaches to the configured devices, whose packets pass until their ports are set. Leaves no others. Fails at the first
    /// device that refuses; then nothing has changed. Where packets are taken from devices already, that one is named, and
    /// asked again later.
    pub fn attach(&mut self, kernel: &KernelState, dataplane: &mut Dataplane) -> Result<(), Error> {
        if !self.are_attached() {
            return self.attach_new(kernel, dataplane);
        }
        self.attach_each(self.links(kernel).into_iter(), dataplane);
        Ok(())
    }

    /// Attaches to these devices; a device that refuses is logged once and does not stop the others.
    fn attach_each<'w>(&mut self, links: impl Iterator<Item = &'w Link>, dataplane: &mut Dataplane) {
        for link in links {
            let is_new = !self.attached.contains(&link.ifindex) && !self.refused.contains_key(&link.name);
            if is_new {
                veth::warn(std::iter::once(link), self.mode);
            }
            match attach(link, dataplane, self.mode) {
                Ok(()) => {
                    self.refused.remove(&link.name);
                    if self.attached.insert(link.ifindex) {
                        tracing::info!(dev = link.name, "attached");
                    }
                }
                Err(error) => {
                    let why = error.to_string();
                    if self.refused.insert(link.name.clone(), why.clone()).as_ref() != Some(&why) {
                        tracing::warn!(
                            dev = link.name,
                            "not attached: {why}; the kernel forwards its packets, and trielined tries again every second"
                        );
                    }
                }
            }
        }
    }

    /// Whether a device's attachment makes its peer send small packets only.
    pub fn cuts(&self, kernel: &KernelState, ifindex: u32) -> bool {
        kernel.links.get(&ifindex).is_some_and(|link| veth::cuts(link, self.mode))
    }

    /// Tries the devices again that refused. Whether one took the program.
    pub fn retry(&mut self, kernel: &KernelState, dataplane: &mut Dataplane) -> bool {
        if self.refused.is_empty() {
            return false;
        }
        let links = self.links(kernel).into_iter().filter(|link| self.refused.contains_key(&link.name));
        let before = self.attached.len();
        self.attach_each(links.collect::<Vec<_>>().into_iter(), dataplane);
        self.attached.len() != before
    }

    /// Configured devices that refuse the program, with why.
    pub fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    /// Attaches to the configured devices, whose packets pass until their ports are set. Leaves no others, which [`Ports::follow`]
    /// does. Fails at the first device that refuses; then nothing has changed.
    pub fn attach_new(&mut self, kernel: &KernelState, dataplane: &mut Dataplane) -> Result<(), Error> {
        let links = self.links(kernel).into_iter();
        veth::warn(links.filter(|link| !self.attached.contains(&link.ifindex)), self.mode);
        let mut new = Vec::new();
        for link in self.links(kernel) {
            if let Err(error) = attach(link, dataplane, self.mode) {
                for ifindex in new {
                    // The first error is the one to tell.
                    let _ = dataplane.detach(ifindex);
                }
                return Err(error);
            }
            if !self.attached.contains(&link.ifindex) {
                new.push(link.ifindex);
            }
        }
        self.attached.extend(new);
        Ok(())
    }

    /// Detaches from devices that are not configured, or no longer under that name.
    pub fn leave_others(&mut self, kernel: &KernelState, dataplane: &mut Dataplane) -> Result<(), Error> {
        let wanted: BTreeSet<u32> = self.links(kernel).into_iter().map(|link| link.ifindex).collect();
        for other in self.attached.difference(&wanted).copied().collect::<Vec<_>>() {
            dataplane.detach(other)?;
            self.attached.remove(&other);
            if let Some(link) = kernel.links.get(&other) {
                tracing::warn!(
                    dev = link.name,
                    "detached, with its filters: the device has no configured name; the kernel forwards its packets"
                );
            }
        }
        Ok(())
    }

    /// Attaches to devices that came while running, also to one that was made again under a configured name.
    pub fn attach_more(&mut self, kernel: &KernelState, dataplane: &mut Dataplane) {
        let links = self.links(kernel);
        self.refused.retain(|name, _| links.iter().any(|link| link.name == *name));
        let new: Vec<_> = links.into_iter().filter(|link| !self.attached.contains(&link.ifindex)).collect();
        self.attach_each(new.into_iter(), dataplane);
    }

    /// Attaches again to devices that lost the program.
    pub fn attach_again(&mut self, lost: &[u32], kernel: &KernelState, dataplane: &mut Dataplane) {
        if !lost.is_empty() {
            self.attached.retain(|ifindex| !lost.contains(ifindex));
            self.attach_more(kernel, dataplane);
        }
    }

    /// Follows links while running: leaves a device that lost its name, and sets the ports. Returns whether the ports are as the lookup ids
    /// say.
    pub fn follow(
        &mut self,
        kernel: &KernelState,
        lookup_ids: &LookupIds,
        dataplane: &mut Dataplane,
        tables: (bool, bool),
    ) -> bool {
        if let Err(error) = self.leave_others(kernel, dataplane) {
            tracing::error!(%error, "cannot detach from devices; trielined goes on");
        }
        self.set(kernel, lookup_ids, dataplane, tables)
    }

    /// The kernel lists the attached devices: a device can go and another come under its number between two looks.
    fn drop_gone(&mut self, dataplane: &mut Dataplane) -> Result<(), Error> {
        let attached: BTreeSet<u32> =
            dataplane.attachments()?.into_iter().map(|known| known.ifindex).collect();
        for gone in self.attached.difference(&attached) {
            dataplane.detach(*gone)?; // removes the pin of its link
        }
        self.attached = attached;
        Ok(())
    }

    /// Where rules leave default routes out, those of a daemon before know them by numbers that this one's tables do not have.
    /// Until [`Ports::set`] puts ours in force, all packets are the kernel's. Waits for those that are under way (some 20 ms).
    pub fn freeze(&mut self, kernel: &KernelState, dataplane: &mut Dataplane) -> Result<(), Error> {
        if self.ports.is_empty() || !kernel.rules.iter().any(|rule| rule.suppress_default) {
            return Ok(());
        }
        for ((ifindex, vlan), port) in &mut self.ports {
            port.flags = PortFlags { forward4: false, forward6: false, seg6: false, ..port.flags };
            dataplane.set_port(*ifindex, *vlan, *port)?;
        }
        let mut grace = dataplane.grace();
        let ticket = grace.begin();
        grace.wait(ticket);
        Ok(())
    }

    /// Ports as they are.
    pub fn iter(&self) -> impl Iterator<Item = (&(u32, Option<u16>), &Port)> {
        self.ports.iter()
    }
}

/// Attaches to a device whose frames the program can read.
fn attach(link: &Link, dataplane: &mut Dataplane, mode: AttachMode) -> Result<(), Error> {
    if link.has_ethernet {
        dataplane.attach(link.ifindex, &link.name, mode)
    } else {
        Err(Error::NotEthernet { device: link.name.clone() })
    }
}

/// A port on its way from or to a tenant. Nothing is forwarded, and the kernel gets nothing, until every packet that met the old
/// flags is through. Lookup ids and flags of a port are not replaced at one stroke.
fn frozen(before: &Port, after: &Port) -> Option<Port> {
    let flags = PortFlags { forward4: false, forward6: false, seg6: false, tenant: true, ..before.flags };
    (before.flags.tenant != after.flags.tenant).then_some(Port { flags, ..*before })
}

fn flags(kernel: &KernelState, link: &Link, (table4, table6): (bool, bool)) -> PortFlags {
    // Packets of a bridge's or bond's port are not routed where they come in.
    // The kernel drops what comes in for a VLAN device that is down, though the device below is up.
    let free = (link.master.is_none() || kernel.vrf_of(link).is_some()) && link.is_up();
    let forwards = |family, table| {
        free && table && kernel.obstacle(family).is_none() && kernel.forwards(family, link.ifindex)
    };
    let hmac = kernel.sysctl.devices.get(&link.name).is_some_and(|device| device.hmac_required);
    let rp_filter = kernel.rp_filter(link);
    let forward6 = forwards(family::INET6, table6);
    let tenant = kernel.declared_vrf_of(link).is_some();
    PortFlags {
        forward4: forwards(family::INET, table4),
        forward6,
        // `seg6_enabled` counts only for segments that are a plain local address; routes with a behaviour are followed without it.
        seg6: forward6 && !hmac,
        tenant,
        rpf_loose: !matches!(rp_filter, 0 | 1),
        rpf_strict: rp_filter == 1,
        csum_partial: false,
        filter: false,
        sid_hook: false,
        ecn: kernel.settings.rfc,
        // The kernel knows nothing of a declared tenant, and would tell its packets nothing.
        redirects4: !tenant && kernel.sends_redirects(link),
        redirects6: !tenant,
        proxy_ndp: !tenant && kernel.answers_for_others(link.ifindex),
    }
}

#[cfg(test)]
mod tests;
