//! Tenants that the configuration declares, for kernels without VRF or VLAN devices.
//!
//! A declared VRF is a table that alone decides for the packets of its devices. A declared VLAN makes a device of the kernel, of
//! any kind, stand for a VLAN of another. The kernel knows no such tenant, so that what it would be given is dropped there.

use crate::filter::rule::Invalid;
use crate::kernel::link::{self, Link};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// `[[vrf]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vrf {
    /// Its name; a device of that name, if there is one, leads routes into it.
    #[serde(deserialize_with = "value::name")]
    pub name: String,
    /// Its kernel table.
    #[serde(deserialize_with = "value::table")]
    pub table: u32,
    /// Names of the devices whose packets it decides for.
    #[serde(default, deserialize_with = "value::names")]
    pub devices: Vec<String>,
}

/// `[[vlan]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// The device that stands for it: routes and neighbours name it.
    #[serde(deserialize_with = "value::name")]
    pub name: String,
    /// The device whose frames carry the tag.
    #[serde(deserialize_with = "value::name")]
    pub device: String,
    /// VLAN id, 1 to 4094.
    #[serde(deserialize_with = "value::vlan_id")]
    pub id: u16,
    /// The table that decides for its packets; `None`: as for any device.
    #[serde(default, deserialize_with = "value::own_table")]
    pub table: Option<u32>,
    /// MAC address, when it is not that of `device`.
    #[serde(default, deserialize_with = "value::mac")]
    pub mac: Option<[u8; 6]>,
}

/// An error in one table of `trielined.toml`: `vrf` or `vlan`, and the entry.
pub type InvalidTenant = (&'static str, Invalid);

/// Refuses tenants that contradict each other: two of one name, a device of two, a VLAN declared twice or on itself.
pub fn check(vrfs: &[Vrf], vlans: &[Vlan]) -> Result<(), InvalidTenant> {
    let (mut names, mut owned, mut tags) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let twice = |name: &str, value: &dyn std::fmt::Display| {
        format!("{name}: {value} is given twice; expected each once")
    };
    for (entry, Vrf { name, devices, .. }) in vrfs.iter().enumerate() {
        let refuse = |key, what| Err(("vrf", Invalid { entry, key: Some(key), what }));
        if !names.insert(name) {
            return refuse("name", twice(name, &"the name"));
        }
        if let Some(device) = devices.iter().find(|device| !owned.insert(*device)) {
            return refuse("devices", twice(name, device));
        }
    }
    for (entry, Vlan { name, device, id, table, .. }) in vlans.iter().enumerate() {
        let refuse = |key, what| Err(("vlan", Invalid { entry, key: Some(key), what }));
        if !names.insert(name) {
            return refuse("name", twice(name, &"the name"));
        }
        if device == name {
            return refuse(
                "device",
                format!("{name}: invalid {device:?} for device: expected another device"),
            );
        }
        if !tags.insert((device, id)) {
            return refuse("id", twice(name, &format_args!("id {id} of {device}")));
        }
        if table.is_some() && !owned.insert(name) {
            let what = format!("{name}: a [[vrf]] has it among its devices; expected one table for it");
            return refuse("table", what);
        }
    }
    Ok(())
}

/// Values that are right or wrong by themselves: the parser names the line of a wrong one.
mod value {
    use super::{Deserialize, link};
    use serde::de::{Deserializer, Error, Visitor};
    use std::fmt;
    use std::ops::RangeInclusive;

    /// A device's name.
    struct Name(String);

    impl<'de> Deserialize<'de> for Name {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_str(NameVisitor)
        }
    }

    /// An error inside of it gets the line of the very name, also of one in a list.
    struct NameVisitor;

    impl Visitor<'_> for NameVisitor {
        type Value = Name;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the name of a device")
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
            link::check_name(name).map_err(E::custom)?;
            Ok(Name(name.to_owned()))
        }
    }

    pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Name::deserialize(from).map(|Name(name)| name)
    }

    pub(super) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        let names = Vec::<Name>::deserialize(from)?;
        Ok(names.into_iter().map(|Name(name)| name).collect())
    }

    /// A number of this key, in this range, but for the reserved ones.
    struct Number {
        key: &'static str,
        range: RangeInclusive<u32>,
        reserved: &'static [(u32, &'static str)],
    }

    const TABLE: Number = Number {
        key: "table",
        range: 1..=u32::MAX,
        reserved: &[(253, "default"), (254, "main"), (255, "local")],
    };
    const VLAN_ID: Number = Number { key: "id", range: 1..=4094, reserved: &[] };

    impl Visitor<'_> for Number {
        type Value = u32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a number from {} to {}", self.range.start(), self.range.end())?;
            let mut before = ", but not";
            for (number, name) in self.reserved {
                write!(f, "{before} {number} ({name})")?;
                before = ",";
            }
            Ok(())
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<u32, E> {
            let number = u32::try_from(value).ok().filter(|number| self.range.contains(number));
            let number = number.filter(|number| self.reserved.iter().all(|(reserved, _)| reserved != number));
            let expected: &dyn serde::de::Expected = &self;
            number.ok_or_else(|| E::custom(format!("invalid {value} for {}: expected {expected}", self.key)))
        }
    }

    pub(super) fn table<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        from.deserialize_i64(TABLE)
    }

    pub(super) fn own_table<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
        table(from).map(Some)
    }

    pub(super) fn vlan_id<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
        from.deserialize_i64(VLAN_ID).map(|id| id as u16)
    }

    pub(super) fn mac<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[u8; 6]>, D::Error> {
        let text = String::deserialize(from)?;
        let byte = |part: &str| (part.len() == 2).then(|| u8::from_str_radix(part, 16).ok()).flatten();
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok()).filter(|mac| mac[0] & 1 == 0);
        let wrong = || {
            let expected = "six bytes such as 02:00:00:00:00:01, the first of them even (not a group's)";
            D::Error::custom(format!("invalid {text:?} for mac: expected {expected}"))
        };
        mac.map(Some).ok_or_else(wrong)
    }
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
        let numbers: HashMap<String, (u32, Option<[u8; 6]>)> = links
            .values()
            .flat_map(|link| link.names().map(|name| (name.to_owned(), (link.ifindex, link.mac))))
            .collect();
        for link in links.values_mut() {
            let table = link.names().find_map(|name| self.vrf(name));
            let vlan = link.names().find_map(|name| self.vlans.get(name));
            link.vrf_table = table.or(link.vrf_table);
            if let Some(vlan) = vlan
                && let Some((parent, mac)) = numbers.get(&vlan.device)
            {
                (link.vlan, link.parent, link.mac) = (Some(vlan.id), Some(*parent), vlan.mac.or(*mac));
            }
        }
    }

    /// Why these devices are not enough: a tenant is declared on one that is not among them. The kernel would route its packets by the
    /// tables of all others. `None`: they are.
    pub fn stranger(&self, devices: &[String]) -> Option<String> {
        let is_given = |name: &String| devices.contains(name);
        let of_vrf = |(device, (vrf, _)): (&String, &(String, u32))| {
            let unknown = !is_given(device) && !self.vlans.contains_key(device);
            unknown.then(|| {
                format!("vrf: {vrf}: invalid {device:?} for devices: expected one of `devices` or the name of a [[vlan]]")
            })
        };
        let of_vlan = |Vlan { name, device, .. }: &Vlan| {
            let unknown = !is_given(device);
            unknown.then(|| format!("vlan: {name}: invalid {device:?} for device: expected one of `devices`"))
        };
        let strangers = self.tables.iter().filter_map(of_vrf);
        strangers.chain(self.vlans.values().filter_map(of_vlan)).min()
    }

    /// Names of declared VLANs that no link stands for.
    pub fn missing<'a>(&'a self, links: &BTreeMap<u32, Link>) -> Vec<&'a str> {
        let names: std::collections::HashSet<&str> = links.values().flat_map(Link::names).collect();
        self.vlans.keys().map(String::as_str).filter(|name| !names.contains(name)).collect()
    }
}
