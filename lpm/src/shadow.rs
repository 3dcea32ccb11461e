//! The writer's copy of a table: its prefixes in order, from which nodes are built and which the image itself does not hold.

use crate::{Address, Prefix};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A table's prefixes in order.
#[derive(Debug)]
pub(crate) struct Shadow<A: Address>(BTreeMap<Prefix<A>, u32>);

impl<A: Address> Default for Shadow<A> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<A: Address> FromIterator<(Prefix<A>, u32)> for Shadow<A> {
    /// Of equal prefixes the last counts.
    fn from_iter<T: IntoIterator<Item = (Prefix<A>, u32)>>(prefixes: T) -> Self {
        Self(prefixes.into_iter().collect())
    }
}

impl<A: Address> Shadow<A> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        self.0.get(prefix).copied()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.0.iter().map(|(prefix, value)| (*prefix, *value))
    }

    /// All prefixes from `from` on.
    pub fn from(&self, from: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.0.range(from..).map(|(prefix, value)| (*prefix, *value))
    }

    /// All prefixes before `until`, and `until` itself.
    pub fn until(&self, until: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.0.range(..=until).map(|(prefix, value)| (*prefix, *value))
    }

    /// All prefixes of at most `len` bits that contain `addr`, shortest first.
    pub fn matches(&self, addr: A, len: u16) -> impl Iterator<Item = (Prefix<A>, u32)> + use<A> {
        let mut found = Vec::new();
        let mut limit = Some(len);
        while let Some((prefix, value)) = limit.and_then(|len| self.longest(addr, len)) {
            found.push((prefix, value));
            limit = prefix.len().checked_sub(1);
        }
        found.into_iter().rev()
    }

    /// Adds, changes or removes; returns what was there.
    pub fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) -> Option<u32> {
        match value {
            Some(value) => self.0.insert(prefix, value),
            None => self.0.remove(&prefix),
        }
    }

    /// The prefixes that `outer` covers, itself included, in order.
    pub fn within(&self, outer: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.0.range(outer..=Prefix::host(outer.last())).map(|(prefix, value)| (*prefix, *value))
    }

    /// [`Shadow::within`] as a slice to split.
    pub fn inside(&self, outer: Prefix<A>) -> Vec<(Prefix<A>, u32)> {
        self.within(outer).collect()
    }

    /// The longest prefix of at most `len` bits that contains `addr`.
    pub fn longest(&self, addr: A, len: u16) -> Option<(Prefix<A>, u32)> {
        let mut limit = Prefix::truncated(addr, len);
        loop {
            // The last prefix at or before `limit` either covers it, or nothing longer than the bits that the two share does.
            let (prefix, value) = self.0.range(..=limit).next_back()?;
            if prefix.covers(&limit) {
                return Some((*prefix, *value));
            }
            limit = Prefix::truncated(addr, prefix.addr().common_bits(limit.addr()));
        }
    }

    /// What the image says for `addr` where only prefixes of 1 to `len` bits count; 0 = none.
    pub fn inherited(&self, addr: A, len: u16) -> u32 {
        self.longest(addr, len).filter(|(prefix, _)| prefix.len() > 0).map_or(0, |(_, value)| value)
    }
}
