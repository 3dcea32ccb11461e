//! Tenants that the configuration declares, for kernels without VRF or VLAN devices.
//!
//! A declared VRF is a table that alone decides for the packets of its devices; a declared VLAN makes a device of the kernel, of
//! any kind, stand for a VLAN of another. The kernel knows no such tenant, so that what it would be given is dropped there.

use crate::kernel::link::Link;
use std::collections::{BTreeMap, HashMap};

/// `[[vrf]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vrf {
    /// Its name; a device of that name, if there is one, leads routes into it.
    pub name: String,
    /// Its kernel table.
    pub table: u32,
    /// Names of the devices whose packets it decides for.
    pub devices: Vec<String>,
}

/// `[[vlan]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vlan {
    /// The device that stands for it: routes and neighbours name it.
    pub name: String,
    /// The device whose frames carry the tag.
    pub device: String,
    /// VLAN id, 1 to 4094.
    pub id: u16,
    /// The table that decides for its packets; `None`: as for any device.
    pub table: Option<u32>,
    /// MAC address, when it is not that of `device`.
    pub mac: Option<[u8; 6]>,
}

/// All that is declared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tenants {
    vrfs: BTreeMap<String, u32>,
    vlans: BTreeMap<String, Vlan>,
    /// VRF or VLAN, and table, by device.
    tables: HashMap<String, (String, u32)>,
}

impl Tenants {
    /// The tenants that these declare.
    pub fn new(vrfs: Vec<Vrf>, vlans: Vec<Vlan>) -> Self {
        let mut tenants = Self::default();
        for vrf in vrfs {
            for device in vrf.devices {
                tenants.tables.insert(device, (vrf.name.clone(), vrf.table));
            }
            tenants.vrfs.insert(vrf.name, vrf.table);
        }
        for vlan in vlans {
            if let Some(table) = vlan.table {
                tenants.tables.insert(vlan.name.clone(), (vlan.name.clone(), table));
            }
            tenants.vlans.insert(vlan.name.clone(), vlan);
        }
        tenants
    }

    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.vrfs.is_empty() && self.vlans.is_empty()
    }

    /// The VRF and the table that alone decide for a device's packets.
    pub fn table_of(&self, device: &str) -> Option<(&str, u32)> {
        self.tables.get(device).map(|(name, table)| (&**name, *table))
    }

    /// The table of a VRF by its name.
    pub fn vrf(&self, name: &str) -> Option<u32> {
        self.vrfs.get(name).copied()
    }

    /// Makes the links that stand for declared VRFs and VLANs say so.
    pub fn apply(&self, links: &mut BTreeMap<u32, Link>) {
        if self.is_empty() {
            return;
        }
        let numbers: HashMap<String, (u32, Option<[u8; 6]>)> =
            links.values().map(|link| (link.name.clone(), (link.ifindex, link.mac))).collect();
        for link in links.values_mut() {
            if let Some(table) = self.vrf(&link.name) {
                link.vrf_table = Some(table);
            }
            if let Some(vlan) = self.vlans.get(&link.name)
                && let Some((parent, mac)) = numbers.get(&vlan.device)
            {
                (link.vlan, link.parent, link.mac) = (Some(vlan.id), Some(*parent), vlan.mac.or(*mac));
            }
        }
    }

    /// Names of declared VLANs that no link stands for.
    pub fn missing<'a>(&'a self, links: &BTreeMap<u32, Link>) -> Vec<&'a str> {
        let names: std::collections::HashSet<&str> = links.values().map(|link| &*link.name).collect();
        self.vlans.keys().map(String::as_str).filter(|name| !names.contains(name)).collect()
    }
}
