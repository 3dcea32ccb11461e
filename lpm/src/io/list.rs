//! Prefixes as a file lists them, and the options of reading one.

use super::format::Format;
use super::keys::KeyPrefix;
use crate::{IpPrefix, Prefix};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::string::String;
use std::vec::Vec;

/// Prefixes of both families with what stands beside each, in the file's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes<T> {
    /// IPv4.
    pub v4: Vec<(Prefix<u32>, T)>,
    /// IPv6.
    pub v6: Vec<(Prefix<u128>, T)>,
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Self { v4: Vec::new(), v6: Vec::new() }
    }
}

impl<T> Prefixes<T> {
    /// Adds a prefix of either family.
    pub fn push(&mut self, prefix: IpPrefix, with: T) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.push((prefix, with)),
            IpPrefix::V6(prefix) => self.v6.push((prefix, with)),
        }
    }

    /// Number of prefixes of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// A list as it was read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixList {
    /// The format of the file.
    pub format: Format,
    /// The prefixes in the file's order; `None` where no value stood beside one. Where a prefix stands twice, the last counts.
    pub prefixes: Prefixes<Option<u32>>,
    /// Prefixes of keys that are no addresses, by the keys' width.
    pub keys: BTreeMap<u16, Vec<(KeyPrefix, Option<u32>)>>,
    /// The meaning of values, if the file has words for them: a country code, a next hop.
    pub names: BTreeMap<u32, String>,
    /// Entries of the file that say nothing about unicast forwarding (MRT: multicast, other address families).
    pub skipped: u64,
    /// Lines passed over because they are wrong ([`ReadOptions::skip_bad`]).
    pub bad: u64,
    /// The error of the first of them.
    pub first_bad: Option<String>,
    /// Prefixes whose host bits were cleared ([`ReadOptions::truncate`]).
    pub truncated: u64,
    /// The file has not one byte: what a copy that failed leaves.
    pub is_blank: bool,
}

impl PrefixList {
    /// An empty list.
    pub fn new(format: Format) -> Self {
        let (prefixes, keys, names) = (Prefixes::default(), BTreeMap::new(), BTreeMap::new());
        let (skipped, bad, first_bad, truncated, is_blank) = Default::default();
        Self { format, prefixes, keys, names, skipped, bad, first_bad, truncated, is_blank }
    }
}

/// The source of an MRT dump's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MrtValue {
    /// The number of the distinct next hop, in the order they appear.
    #[default]
    NextHop,
    /// The number of the distinct origin AS (the last of the AS path), in the order they appear.
    Origin,
    /// The multi-exit discriminator itself, where `mrt::write` keeps values.
    Med,
}

/// Options of reading a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// The format; `None`: by content.
    pub format: Option<Format>,
    /// The source of an MRT dump's values.
    pub mrt_value: MrtValue,
    /// The peer whose routes of an MRT dump are taken; `None`: of each prefix the first entry.
    pub mrt_peer: Option<IpAddr>,
    /// Only the prefixes count, and no value stands beside one: a list for a filter. Its lines may have the notations of published lists (ranges,
    /// netmasks, DShield, `ipset save`, `nft list`).
    pub set: bool,
    /// The path must be a regular file: a pipe or a device may have no end.
    pub regular: bool,
    /// The most bytes, unpacked, that are read; `None`: 4 GiB.
    pub limit: Option<u64>,
    /// Text only: lines that are wrong are passed over and counted, instead of being an error.
    pub skip_bad: bool,
    /// Text only: host bits behind the prefix length are cleared, instead of being an error.
    pub truncate: bool,
    /// Text only: its lines have keys of this width, in hexadecimal digits, instead of addresses.
    pub key_bits: Option<u16>,
}

impl ReadOptions {
    /// The option that a format has no use for, if one is set: what an option does not do is said.
    pub(super) fn ignored(&self, format: Format) -> Option<&'static str> {
        let of_text = [(self.skip_bad, "skip_bad"), (self.truncate, "truncate")];
        let of_text = of_text.into_iter().find(|(is_set, _)| *is_set).map(|(_, name)| name);
        of_text.filter(|_| format != Format::Text)
    }
}
