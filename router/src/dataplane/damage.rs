//! The maps beside tables and actions, compared with what trielined wrote into them, and written once more.

use super::{Dataplane, close_device, open_device};
use crate::filter::maps::Filter;
use crate::sid_hook::maps::SidHook;
use crate::xdp::counters::PortKey;
use crate::xdp::damage::Damage;
use crate::xdp::error::{Error, Result};
use crate::xdp::ports::Port;
use crate::xdp::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, OwnedFd};

/// The content of these maps, as trielined wrote it.
pub struct Written<'a> {
    /// Ports.
    pub ports: &'a BTreeMap<PortKey, Port>,
    /// Devices that packets may leave by.
    pub exits: &'a BTreeSet<u32>,
    /// Those of them that take frames of several buffers.
    pub jumbo_exits: &'a BTreeSet<u32>,
    /// SID hooks.
    pub hooks: BTreeMap<Ipv6Addr, SidHook>,
    /// Lists of filters.
    pub lists: Vec<Vec<Filter>>,
    /// Names of devices.
    pub name: &'a dyn Fn(u32) -> String,
}

impl std::fmt::Debug for Written<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Written").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Written<'_> {
    /// How many entries there are; each rule and NEXT-C-SID is beside them.
    pub fn len(&self) -> usize {
        let filters: usize = self.lists.iter().map(Vec::len).sum();
        self.ports.len() + self.exits.len() + self.jumbo_exits.len() + self.hooks.len() + filters
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn port_name(&self, (ifindex, vlan): PortKey) -> String {
        let vlan = vlan.map(|vlan| format!(" vlan {vlan}")).unwrap_or_default();
        format!("{}{vlan}", (self.name)(ifindex))
    }
}

impl Dataplane {
    /// Entries of the maps of ports, exits, rules, filters, SID hooks and NEXT-C-SIDs that are not as they were written.
    pub fn damage(&mut self, written: &Written<'_>) -> Result<Vec<Damage>> {
        let mut damaged = self.ports.damage(written.ports, |key| written.port_name(key))?;
        damaged.extend(damaged_exits(&self.devices, "exit", written.exits, written)?);
        damaged.extend(damaged_exits(&self.jumbo_devices, "jumbo exit", written.jumbo_exits, written)?);
        damaged.extend(self.rules.damage());
        damaged.extend(self.filters.damage(&written.lists)?);
        damaged.extend(self.sid_hooks.damage(&written.hooks)?);
        damaged.extend(self.csids.damage()?);
        Ok(damaged)
    }

    /// Writes these maps once more.
    pub fn repair(&mut self, written: &Written<'_>) -> Result<()> {
        // Before ports lead to them.
        self.rules.repair();
        self.filters.set(&written.lists)?;
        self.sid_hooks.set(&written.hooks)?;
        self.csids.repair()?;
        repair_exits(&self.devices, written.exits)?;
        repair_exits(&self.jumbo_devices, written.jumbo_exits)?;
        self.ports.repair(written.ports)
    }
}

/// The exits in a map: each leads to the device of its number.
fn exits(map: &OwnedFd) -> Result<BTreeMap<u32, u32>> {
    let fail = |e| Error::kernel("cannot read the exits", e);
    let (mut exits, mut last) = (BTreeMap::new(), None::<Vec<u8>>);
    while let Some(next) = sys::map_next_key(map.as_fd(), last.as_deref()).map_err(fail)? {
        let mut value = [0; 4];
        let is_there = sys::map_lookup(map.as_fd(), &next, &mut value).map_err(fail)?;
        if let (true, Some(key)) = (is_there, next.first_chunk()) {
            exits.insert(u32::from_ne_bytes(*key), u32::from_ne_bytes(value));
        }
        last = Some(next);
    }
    Ok(exits)
}

fn damaged_exits(
    map: &OwnedFd,
    what: &str,
    written: &BTreeSet<u32>,
    all: &Written<'_>,
) -> Result<Vec<Damage>> {
    let found = exits(map)?;
    let text = |ifindex: Option<u32>| ifindex.map(|ifindex| format!("to {}", (all.name)(ifindex)));
    let mut damaged = Vec::new();
    for ifindex in written.iter().chain(found.keys()).collect::<BTreeSet<_>>() {
        let (ours, theirs) = (written.get(ifindex).copied(), found.get(ifindex).copied());
        // The kernel takes a device that is gone out by itself.
        if ours != theirs && (theirs.is_some() || sys::device_exists(*ifindex)) {
            damaged.push(Damage::new(format!("{what} {}", (all.name)(*ifindex)), text(ours), text(theirs)));
        }
    }
    Ok(damaged)
}

fn repair_exits(map: &OwnedFd, written: &BTreeSet<u32>) -> Result<()> {
    for ifindex in exits(map)?.into_keys().filter(|ifindex| !written.contains(ifindex)) {
        close_device(map, ifindex)?;
    }
    for ifindex in written.iter().filter(|ifindex| sys::device_exists(**ifindex)) {
        open_device(map, *ifindex)?;
    }
    Ok(())
}
