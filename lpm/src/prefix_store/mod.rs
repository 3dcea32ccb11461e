//! The writer's copy of a table: its prefixes in order, from which nodes are built and which the image itself does not hold.
//!
//! A burst trie. Few prefixes are one sorted bucket; many are a node, whose 2^bits slots lead to buckets and further nodes. A node holds
//! the prefixes that end inside its bits itself. Each node is built for the entries it has, and rebuilt when it has four times as
//! many or an eighth. No run of changes makes it large, deep or slow. It skips bits that all its entries share. Below, n is the number of
//! prefixes, w the address's width and d the number of nodes on the way. That is 1 for IPv4, 2 to 6 for IPv6, at most w (prefixes nested bit by
//! bit).

mod bucket;
mod entry;
#[cfg(test)]
#[cfg(feature = "std")]
mod figures;
mod iter;
mod node;
#[cfg(test)]
mod tests;

use crate::prefetch::prefetch;
use crate::prefix::Entry;
use crate::{Address, Prefix};
use alloc::vec::Vec;
use bucket::{Bucket, Found};
use iter::Range;
use node::Slot;

/// A table's prefixes in order, with values from 1 to 2^31-1. `BUCKET`: bytes of entries from which a bucket becomes a node.
#[derive(Clone, Debug)]
pub(crate) struct PrefixStore<A: Address, const BUCKET: usize = 4096> {
    root: Slot<A, BUCKET>,
    len: usize,
}

/// A change of one prefix, and what it means for the addresses that the prefix covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<A: Address> {
    pub prefix: Prefix<A>,
    pub old: Option<u32>,
    pub new: Option<u32>,
    /// The value of the longest other prefix of 1 bit or more that covers it; 0 = none. Not looked for if a bare prefix is new or has
    /// another value.
    above: u32,
    /// No other prefix lies inside. False also where that was not looked for.
    pub is_bare: bool,
}

impl<A: Address> Change<A> {
    /// The old answer of the addresses that no prefix inside covers; 0 = none.
    pub fn before(&self) -> u32 {
        self.old.unwrap_or(self.above)
    }

    /// Their new answer.
    pub fn after(&self) -> u32 {
        self.new.unwrap_or(self.above)
    }
}

impl<A: Address, const BUCKET: usize> Default for PrefixStore<A, BUCKET> {
    fn default() -> Self {
        Self { root: Slot::Bucket(Bucket::new(&[])), len: 0 }
    }
}

impl<A: Address, const BUCKET: usize> FromIterator<(Prefix<A>, u32)> for PrefixStore<A, BUCKET> {
    /// Of equal prefixes the last counts. O(n log n), O(n) if sorted.
    fn from_iter<T: IntoIterator<Item = (Prefix<A>, u32)>>(prefixes: T) -> Self {
        let mut entries: Vec<A::Entry> =
            prefixes.into_iter().map(|(prefix, value)| new_entry(&prefix, value)).collect();
        bucket::sort::<A>(&mut entries);
        Self { root: Slot::build(&entries), len: entries.len() }
    }
}

fn new_entry<A: Address>(prefix: &Prefix<A>, value: u32) -> A::Entry {
    debug_assert!(value != 0 && value >> 31 == 0, "a value that a table refuses");
    A::Entry::new(prefix, value)
}

impl<A: Address, const BUCKET: usize> PrefixStore<A, BUCKET> {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Heap memory, bytes: what is allocated, used or not. O(slots).
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.root.bytes()
    }

    /// O(d + log n).
    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        let mut slot = &self.root;
        loop {
            match slot {
                Slot::Bucket(bucket) => return bucket.get(prefix),
                Slot::Node(node) => match node.get(prefix) {
                    Ok(value) => return value,
                    Err(below) => slot = below,
                },
            }
        }
    }

    /// Adds, changes or removes; returns what was there.
    pub fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) -> Option<u32> {
        self.change(prefix, value).old
    }

    /// Adds, changes or removes; returns the change. O(d + log n), and O(n) once in n/2 changes at least.
    pub fn change(&mut self, prefix: Prefix<A>, value: Option<u32>) -> Change<A> {
        debug_assert!(
            value.is_none_or(|value| value != 0 && value >> 31 == 0),
            "a value that a table refuses"
        );
        let Found { old, above, is_bare } = self.root.set(&prefix, value);
        self.len += usize::from(value.is_some() && old.is_none());
        self.len -= usize::from(value.is_none() && old.is_some());
        Change { prefix, old, new: value, above: above.unwrap_or(0), is_bare }
    }

    /// Asks for what a change of `prefix` looks at in this step, if the steps before were asked for. Even steps are slots. Odd ones are what
    /// those lead to, a node or a bucket.
    pub fn ahead(&self, prefix: &Prefix<A>, step: usize) {
        let (mut slot, mut left) = (&self.root, step + 1);
        loop {
            match slot {
                Slot::Bucket(bucket) if left == 0 => return bucket.ahead(),
                Slot::Node(node) if left == 0 => return prefetch(&raw const **node),
                Slot::Node(node) if let Ok(at) = node.slot(prefix.addr()) => slot = &node.slots[at],
                _ => return,
            }
            if left == 1 {
                return prefetch(slot);
            }
            left -= 2;
        }
    }

    /// All prefixes in order.
    pub fn iter(&self) -> Range<'_, A, BUCKET> {
        self.from(Prefix::truncated(A::ZERO, 0))
    }

    /// All prefixes from `from` on.
    pub fn from(&self, from: Prefix<A>) -> Range<'_, A, BUCKET> {
        Range::new(&self.root, from, Prefix::host(A::ZERO.filled(0)))
    }

    /// All prefixes up to `until`, itself included.
    pub fn until(&self, until: Prefix<A>) -> Range<'_, A, BUCKET> {
        Range::new(&self.root, Prefix::truncated(A::ZERO, 0), until)
    }

    /// The prefixes that `outer` covers, itself included, in order.
    pub fn within(&self, outer: Prefix<A>) -> Range<'_, A, BUCKET> {
        Range::new(&self.root, outer, Prefix::host(outer.last()))
    }

    /// [`PrefixStore::within`] in one pass, which is quicker than an iterator that can stop anywhere.
    pub fn each_inside(&self, outer: Prefix<A>, mut each: impl FnMut(Prefix<A>, u32)) {
        self.root.each_inside(&outer, &mut each);
    }

    /// The longest prefix of at most `len` bits that contains `addr`. O(d + k log n), k being the prefixes lengths tried in a bucket.
    pub fn longest(&self, addr: A, len: u16) -> Option<(Prefix<A>, u32)> {
        let (len, value) = self.longest_of(addr, len);
        (value != 0).then(|| (Prefix::truncated(addr, len), value))
    }

    /// Length and value of [`PrefixStore::longest`]; no prefix has the value 0.
    fn longest_of(&self, addr: A, len: u16) -> (u16, u32) {
        let mut slot = &self.root;
        let mut longest = None;
        loop {
            match slot {
                Slot::Bucket(bucket) => {
                    let mut found = (0, 0);
                    bucket.covering(addr, len, |entry| {
                        found = (entry.len(), entry.value());
                        false
                    });
                    if found.1 != 0 {
                        return found;
                    }
                    break;
                }
                Slot::Node(node) => {
                    let Ok(at) = node.slot(addr) else { break };
                    let Some(left) = len.checked_sub(node.depth) else { break };
                    if let Some(own) = node.covering(at, left.min(node.bits - 1)) {
                        longest = Some((node, at, own));
                    }
                    if left < node.bits {
                        break;
                    }
                    slot = &node.slots[at];
                }
            }
        }
        let own = longest.and_then(|(node, at, own)| node.own(at, own));
        own.map_or((0, 0), |(prefix, value)| (prefix.len(), value))
    }

    /// The image's answer for `addr` if only prefixes of 1 to `len` bits count; 0 = none.
    pub fn inherited(&self, addr: A, len: u16) -> u32 {
        match self.longest_of(addr, len) {
            (0, _) => 0,
            (_, value) => value,
        }
    }

    /// All prefixes of at most `len` bits that contain `addr`, shortest first. O(d + k log n) as [`PrefixStore::longest`].
    pub fn matches(&self, addr: A, len: u16) -> impl Iterator<Item = (Prefix<A>, u32)> + use<A, BUCKET> {
        let mut found = Vec::new();
        let mut slot = &self.root;
        loop {
            match slot {
                Slot::Bucket(bucket) => {
                    let nodes = found.len();
                    bucket.covering(addr, len, |entry| {
                        found.push((Prefix::truncated(addr, entry.len()), entry.value()));
                        true
                    });
                    found[nodes..].reverse();
                    break;
                }
                Slot::Node(node) => {
                    let Ok(at) = node.slot(addr) else { break };
                    let Some(left) = len.checked_sub(node.depth) else { break };
                    found.extend((0..=left.min(node.bits - 1)).filter_map(|len| node.own(at, len)));
                    if left < node.bits {
                        break;
                    }
                    slot = &node.slots[at];
                }
            }
        }
        found.into_iter()
    }
}
