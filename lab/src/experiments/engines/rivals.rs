//! The rivals written in Rust as engines: Poptrie and DIR-24-8 from the papers (`crate::rivals`), and the crates that people use.

use std::net::{Ipv4Addr, Ipv6Addr};

use ip_network_table_deps_treebitmap::{IpLookupTable, address::Address as TreebitmapAddress};
use iptrie::{
    Ipv4Prefix, Ipv6Prefix,
    map::{LCTrieMap, RTrieMap},
};
use prefix_trie::PrefixMap;
use trieline_lpm::{Address, Prefix};

use super::engine::{Change, Engine, Search};
use crate::{
    rivals::{Dir24, Poptrie, dir24},
    tables::generate::Wide,
};

impl<A: Wide> Search<A> for Poptrie<A> {
    #[inline(always)]
    fn lookup(&self, addr: A) -> u32 {
        Poptrie::lookup(self, addr).unwrap_or(0)
    }
}

impl<A: Wide> Engine<A> for Poptrie<A> {
    type Reader<'a>
        = &'a Self
    where
        Self: 'a;

    fn search(&self) -> &Self {
        self
    }

    fn change(&mut self, (prefix, value): Change<A>) -> bool {
        match value {
            Some(value) => self.insert(prefix, value).is_ok(),
            None => self.remove(&prefix).is_some(),
        }
    }

    fn bytes(&self) -> u64 {
        Poptrie::bytes(self) as u64
    }
}

impl<E: dir24::Entry> Search<u32> for Dir24<E> {
    #[inline(always)]
    fn lookup(&self, addr: u32) -> u32 {
        Dir24::lookup(self, addr)
    }
}

impl<E: dir24::Entry> Engine<u32> for Dir24<E> {
    const BATCHES: bool = true;
    // It keeps no routes, so it is built once.
    const UPDATES: bool = false;
    type Reader<'a>
        = &'a Self
    where
        Self: 'a;

    fn search(&self) -> &Self {
        self
    }

    fn change(&mut self, _: Change<u32>) -> bool {
        false
    }

    fn bytes(&self) -> u64 {
        Dir24::bytes(self)
    }
}

/// `prefix-trie`: a tree bitmap with path compression since 0.9.
pub struct PrefixTrie<A>(PrefixMap<(A, u8), u32>)
where
    (A, u8): prefix_trie::Prefix;

impl<A: Wide> PrefixTrie<A>
where
    (A, u8): prefix_trie::Prefix,
{
    /// Of the n-th prefix with the n-th value.
    pub fn build(prefixes: &[Prefix<A>], values: &[u32]) -> Self {
        let valued = prefixes.iter().zip(values);
        Self(valued.map(|(prefix, value)| (key(prefix), *value)).collect())
    }
}

fn key<A: Address>(prefix: &Prefix<A>) -> (A, u8) {
    (prefix.addr(), prefix.len() as u8)
}

impl<A: Wide> Search<A> for PrefixTrie<A>
where
    (A, u8): prefix_trie::Prefix,
{
    #[inline(always)]
    fn lookup(&self, addr: A) -> u32 {
        self.0.get_lpm(&(addr, A::WIDTH as u8)).map_or(0, |(_, value)| *value)
    }
}

impl<A: Wide> Engine<A> for PrefixTrie<A>
where
    (A, u8): prefix_trie::Prefix,
{
    type Reader<'a>
        = &'a Self
    where
        Self: 'a;

    fn search(&self) -> &Self {
        self
    }

    fn change(&mut self, (prefix, value): Change<A>) -> bool {
        match value {
            Some(value) => {
                self.0.insert(key(&prefix), value);
                true
            }
            None => self.0.remove(&key(&prefix)).is_some(),
        }
    }

    fn bytes(&self) -> u64 {
        self.0.mem_size() as u64
    }
}

/// An address as the crates want it.
pub trait Standard: Wide {
    /// `std`'s type.
    type Ip: Copy + TreebitmapAddress + iptrie::IpPrefix<Addr = Self::Ip>;
    /// The crate iptrie's prefix.
    type Iptrie: iptrie::IpRootPrefix
        + iptrie::IpPrefix<Addr = Self::Ip>
        + iptrie::IpPrefixCovering<Self::Iptrie>
        + iptrie::IpPrefixCovering<Self::Ip>
        + Copy;
    /// The address.
    fn ip(self) -> Self::Ip;
    /// The prefix; its length is at most the width.
    fn iptrie(prefix: &Prefix<Self>) -> Self::Iptrie;
}

impl Standard for u32 {
    type Ip = Ipv4Addr;
    type Iptrie = Ipv4Prefix;
    #[inline(always)]
    fn ip(self) -> Ipv4Addr {
        self.into()
    }
    fn iptrie(prefix: &Prefix<u32>) -> Ipv4Prefix {
        // A length over 32 is all that it refuses.
        Ipv4Prefix::new(prefix.addr().ip(), prefix.len() as u8).unwrap_or_default()
    }
}

impl Standard for u128 {
    type Ip = Ipv6Addr;
    type Iptrie = Ipv6Prefix;
    #[inline(always)]
    fn ip(self) -> Ipv6Addr {
        self.into()
    }
    fn iptrie(prefix: &Prefix<u128>) -> Ipv6Prefix {
        // A length over 128 is all that it refuses.
        Ipv6Prefix::new(prefix.addr().ip(), prefix.len() as u8).unwrap_or_default()
    }
}

/// `ip_network_table`, by the table inside it: Eatherton's tree bitmap.
pub struct Treebitmap<A: Standard>(IpLookupTable<A::Ip, u32>);

impl<A: Standard> Treebitmap<A> {
    /// Of the n-th prefix with the n-th value.
    pub fn build(prefixes: &[Prefix<A>], values: &[u32]) -> Self {
        let mut table = IpLookupTable::new();
        for (prefix, value) in prefixes.iter().zip(values) {
            table.insert(prefix.addr().ip(), prefix.len().into(), *value);
        }
        Self(table)
    }
}

impl<A: Standard> Search<A> for Treebitmap<A> {
    #[inline(always)]
    fn lookup(&self, addr: A) -> u32 {
        self.0.longest_match(addr.ip()).map_or(0, |(.., value)| *value)
    }
}

impl<A: Standard> Engine<A> for Treebitmap<A> {
    type Reader<'a>
        = &'a Self
    where
        Self: 'a;

    fn search(&self) -> &Self {
        self
    }

    fn change(&mut self, (prefix, value): Change<A>) -> bool {
        let (ip, len) = (prefix.addr().ip(), u32::from(prefix.len()));
        match value {
            Some(value) => {
                self.0.insert(ip, len, value);
                true
            }
            None => self.0.remove(ip, len).is_some(),
        }
    }

    fn bytes(&self) -> u64 {
        let (nodes, results) = self.0.mem_usage();
        (nodes + results) as u64
    }
}

/// `iptrie`'s Patricia trie, which can be changed.
pub struct Iptrie<A: Standard> {
    map: RTrieMap<A::Iptrie, u32>,
    bytes: u64,
}

/// `iptrie`'s level-compressed trie, which cannot.
pub struct IptrieLc<A: Standard> {
    map: LCTrieMap<A::Iptrie, u32>,
    bytes: u64,
}

fn patricia<A: Standard>(prefixes: &[Prefix<A>], values: &[u32]) -> RTrieMap<A::Iptrie, u32> {
    let mut map = RTrieMap::with_root(0);
    for (prefix, value) in prefixes.iter().zip(values) {
        map.insert(A::iptrie(prefix), *value);
    }
    map.shrink_to_fit();
    map
}

/// The bytes that the thread holds more than before; 0 if they are not counted.
fn grown(before: Option<isize>) -> u64 {
    crate::heap::held().zip(before).map_or(0, |(now, before)| now.saturating_sub(before).max(0) as u64)
}

impl<A: Standard> Iptrie<A> {
    /// Of the n-th prefix with the n-th value.
    pub fn build(prefixes: &[Prefix<A>], values: &[u32]) -> Self {
        let before = crate::heap::held();
        let map = patricia(prefixes, values);
        Self { map, bytes: grown(before) }
    }
}

impl<A: Standard> IptrieLc<A> {
    /// Of the n-th prefix with the n-th value.
    pub fn build(prefixes: &[Prefix<A>], values: &[u32]) -> Self {
        let before = crate::heap::held();
        let map = patricia(prefixes, values).compress();
        Self { map, bytes: grown(before) }
    }
}

impl<A: Standard> Search<A> for Iptrie<A> {
    #[inline(always)]
    fn lookup(&self, addr: A) -> u32 {
        *self.map.lookup(&addr.ip()).1
    }
}

impl<A: Standard> Engine<A> for Iptrie<A> {
    // Prefixes that are withdrawn and announced again get lost in it (0.11.2); see the test.
    const UPDATES: bool = false;
    type Reader<'a>
        = &'a Self
    where
        Self: 'a;

    fn search(&self) -> &Self {
        self
    }

    fn change(&mut self, _: Change<A>) -> bool {
        false
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<A: Standard> Search<A> for IptrieLc<A> {
    #[inline(always)]
    fn lookup(&self, addr: A) -> u32 {
        *self.map.lookup(&addr.ip()).1
    }
}

impl<A: Standard> Engine<A> for IptrieLc<A> {
    const UPDATES: bool = false;
    type Reader<'a>
        = &'a Self
    where
        Self: 'a;

    fn search(&self) -> &Self {
        self
    }

    fn change(&mut self, _: Change<A>) -> bool {
        false
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::updates::flap;
    use super::*;
    use crate::tables::{Random, generate::internet};

    /// Why iptrie has no figure for changes. When this fails, its author has mended it and it can be measured.
    #[test]
    fn iptrie_loses_prefixes_that_are_withdrawn_and_announced_again() {
        let prefixes = internet::<u32>(3000, 1);
        let changes = flap(&prefixes, &mut vec![1; 3000], 5000, &mut Random::new(1));
        // Built with debug assertions it panics; without, it goes on and answers wrong.
        let lost = std::panic::catch_unwind(|| {
            let mut map = patricia(&prefixes, &vec![1; 3000]);
            for (prefix, value) in changes {
                match value {
                    Some(value) => map.insert(u32::iptrie(&prefix), value),
                    None => map.remove(&u32::iptrie(&prefix)),
                };
            }
            prefixes.iter().filter(|prefix| map.get(&u32::iptrie(prefix)).is_none()).count()
        });
        assert!(lost.is_err() || lost.is_ok_and(|lost| lost > 0), "it keeps them all");
    }
}
