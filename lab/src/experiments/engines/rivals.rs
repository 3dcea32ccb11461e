//! The rivals written in Rust as engines: Poptrie and DIR-24-8 from the papers (`crate::rivals`), and the crates that people use.

use std::net::{Ipv4Addr, Ipv6Addr};

use ip_network_table_deps_treebitmap::{IpLookupTable, address::Address as TreebitmapAddress};
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
    type Ip: Copy + TreebitmapAddress;
    /// The address.
    fn ip(self) -> Self::Ip;
}

impl Standard for u32 {
    type Ip = Ipv4Addr;
    #[inline(always)]
    fn ip(self) -> Ipv4Addr {
        self.into()
    }
}

impl Standard for u128 {
    type Ip = Ipv6Addr;
    #[inline(always)]
    fn ip(self) -> Ipv6Addr {
        self.into()
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
