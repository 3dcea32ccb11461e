//! A node of the shadow: its short prefixes as a heap, and what lies under each of its slots.

use super::bucket::{Bucket, Found};
use crate::prefix::Entry;
use crate::{Address, Prefix};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// Bits of a node at most, for millions of prefixes. A slot takes 21 bytes.
const BITS_MAX: u16 = 18;
/// Bits of a node at least, unless the next node or the address's end is nearer.
const BITS_MIN: u16 = 4;
/// A node is rebuilt, with more or fewer slots, if its prefixes have become so many times as many. So it is if they have become one part in
/// half the square of it. The cost of building is spread over at least half as many changes.
const GROWTH: usize = 4;

/// All prefixes of a table that begin with the same bits and are at least as long: few as a list, many as a node.
#[derive(Clone, Debug)]
pub(super) enum Slot<A: Address, const BUCKET: usize> {
    /// Few, or none.
    Bucket(Bucket<A>),
    /// Many. It may begin deeper than the slot.
    Node(Box<Node<A, BUCKET>>),
}

#[derive(Clone, Debug)]
pub(super) struct Node<A: Address, const BUCKET: usize> {
    /// The bits that lead here, the first `depth` of the address.
    pub addr: A,
    pub depth: u16,
    /// Bits that index the slots.
    pub bits: u16,
    /// Prefixes in it and under it.
    pub count: usize,
    /// It is rebuilt if `count` gets here or ...
    pub low: usize,
    /// ... there.
    pub high: usize,
    /// Number of values that are not 0.
    pub own: usize,
    /// Number of slots that are not empty.
    pub used: usize,
    /// Values of the prefixes of `depth + len` bits, `len` < `bits`, at `1 << len | index`; 0 = none.
    pub values: Box<[u32]>,
    /// For each slot 1 + `len` of the longest of them that covers it; 0 = none.
    pub cover: Box<[u8]>,
    pub slots: Box<[Slot<A, BUCKET>]>,
}

impl<A: Address, const BUCKET: usize> Slot<A, BUCKET> {
    /// Entries that a bucket holds at most.
    pub const LIMIT: usize = {
        let limit = BUCKET / size_of::<A::Entry>();
        if limit < 8 { 8 } else { limit }
    };

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Bucket(bucket) if bucket.is_empty())
    }

    /// All of `entries`: sorted, each once.
    pub fn build(entries: &[A::Entry]) -> Self {
        if entries.len() <= Self::LIMIT {
            Self::Bucket(Bucket::new(entries))
        } else {
            Self::Node(Box::new(Node::build(entries)))
        }
    }

    /// Calls `each` with the prefixes that `outer` covers, itself included, and their values, in order.
    pub fn each_inside(&self, outer: &Prefix<A>, each: &mut impl FnMut(Prefix<A>, u32)) {
        match self {
            Self::Bucket(bucket) => {
                for entry in bucket.from(outer, false) {
                    if entry.is_free() || !outer.contains(entry.addr()) {
                        break;
                    }
                    each(Prefix::truncated(entry.addr(), entry.len()), entry.value());
                }
            }
            Self::Node(node) => node.each_inside(outer, each),
        }
    }

    /// Calls `each` with all prefixes and their values, in order.
    fn each(&self, each: &mut impl FnMut(Prefix<A>, u32)) {
        match self {
            Self::Bucket(bucket) => {
                for entry in bucket.all().iter().take_while(|entry| !entry.is_free()) {
                    each(Prefix::truncated(entry.addr(), entry.len()), entry.value());
                }
            }
            Self::Node(node) => node.each_from(0..node.slots.len(), 0, each),
        }
    }

    /// Adds, changes or removes; returns what there was and is around it.
    pub fn set(&mut self, prefix: &Prefix<A>, value: Option<u32>) -> Found {
        match self {
            Self::Bucket(bucket) => {
                let is_at_limit = value.is_some() && bucket.places() >= Self::LIMIT && bucket.is_full();
                let found = bucket.set(prefix, value);
                if is_at_limit && found.old.is_none() {
                    let entries = bucket.entries().to_vec();
                    *self = Self::build(&entries);
                }
                found
            }
            Self::Node(node) => match node.outside(prefix) {
                Some(same) => {
                    if let Some(value) = value {
                        self.part(same, prefix, value);
                    }
                    Found { old: None, above: None, is_bare: false }
                }
                None => {
                    let found = node.set(prefix, value);
                    if found.old.is_some() != value.is_some() {
                        self.keep_shape();
                    }
                    found
                }
            },
        }
    }

    /// Puts a node above this one, for a prefix that shares only `same` bits with it.
    fn part(&mut self, same: u16, prefix: &Prefix<A>, value: u32) {
        let Self::Node(below) = self else { return };
        let bits = (below.depth - same).min(BITS_MIN);
        let mut node = Node::empty(below.addr.masked(same), same, bits, below.count);
        let slot = below.addr.bits_at(same, bits);
        node.used = 1;
        node.slots[slot] = core::mem::replace(self, Self::Bucket(Bucket::new(&[])));
        node.set(prefix, Some(value));
        *self = Self::Node(Box::new(node));
    }

    /// Rebuilds it if it has grown or shrunk much, and takes away a node that only leads to another.
    fn keep_shape(&mut self) {
        let Self::Node(node) = self else { return };
        if node.count <= node.low || node.count >= node.high {
            let mut entries = Vec::with_capacity(node.count);
            node.collect(&mut entries);
            *self = Self::build(&entries);
        } else if node.own == 0 && node.used == 1 {
            let only = node.slots.iter_mut().find(|slot| matches!(slot, Self::Node(_)));
            if let Some(only) = only {
                *self = core::mem::replace(only, Self::Bucket(Bucket::new(&[])));
            }
        }
    }

    /// Adds all its entries to `entries`, in order.
    fn collect(&self, entries: &mut Vec<A::Entry>) {
        match self {
            Self::Bucket(bucket) => entries.extend_from_slice(bucket.entries()),
            Self::Node(node) => node.collect(entries),
        }
    }

    /// Memory behind it, bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Bucket(bucket) => bucket.places() * size_of::<A::Entry>(),
            Self::Node(node) => {
                let fixed = size_of_val(&**node) + size_of_val(&*node.values) + size_of_val(&*node.cover);
                let slots: usize = node.slots.iter().map(Self::bytes).sum();
                fixed + size_of_val(&*node.slots) + slots
            }
        }
    }
}

impl<A: Address, const BUCKET: usize> Node<A, BUCKET> {
    /// Prefixes for each slot to build for: a slot takes 21 bytes, and a bucket that is short is searched and changed faster.
    const FILL: usize = {
        let fill = 96 / size_of::<A::Entry>();
        if fill < 2 { 2 } else { fill }
    };

    fn empty(addr: A, depth: u16, bits: u16, count: usize) -> Self {
        let slots = 1 << bits;
        Self {
            addr,
            depth,
            bits,
            count,
            low: (Slot::<A, BUCKET>::LIMIT / 2).max(2 * count / (GROWTH * GROWTH)),
            high: GROWTH * count,
            own: 0,
            used: 0,
            values: alloc::vec![0; slots].into(),
            cover: alloc::vec![0; slots].into(),
            slots: (0..slots).map(|_| Slot::Bucket(Bucket::new(&[]))).collect(),
        }
    }

    /// A node for more entries than a bucket holds.
    fn build(entries: &[A::Entry]) -> Self {
        let depth = match entries {
            [first, .., last] => {
                let shortest = entries.iter().map(Entry::len).min().unwrap_or(0);
                first.addr().common_bits(last.addr()).min(shortest)
            }
            _ => 0,
        };
        let bits = Self::choose_bits(entries, depth);
        let addr = entries.first().map_or(A::ZERO, |first| first.addr().masked(depth));
        let mut node = Self::empty(addr, depth, bits, entries.len());
        let mut rest = entries;
        while let Some((first, behind)) = rest.split_first() {
            let (slot, len) = (first.addr().bits_at(depth, bits), first.len() - depth);
            if len < bits {
                // Sorted order paints a covering prefix before those it covers.
                node.own += 1;
                node.values[1 << len | slot >> (bits - len)] = first.value();
                node.cover[slot..slot + (1 << (bits - len))].fill(len as u8 + 1);
                rest = behind;
            } else {
                let inside =
                    rest.iter().take_while(|entry| entry.addr().bits_at(depth, bits) == slot).count();
                let (inside, behind) = rest.split_at(inside);
                node.used += 1;
                node.slots[slot] = Slot::build(inside);
                rest = behind;
            }
        }
        node
    }

    /// As many bits as give each slot `FILL` entries, but only so many that an eighth of the slots is used.
    fn choose_bits(entries: &[A::Entry], depth: u16) -> u16 {
        let least = BITS_MIN.min(A::WIDTH - depth);
        let most = ((entries.len() / Self::FILL).max(1).ilog2() as u16).clamp(least, BITS_MAX);
        let most = most.min(A::WIDTH - depth);
        // Of all neighbours, how many part at which bit: as many slots are used.
        let mut parting = [0usize; BITS_MAX as usize + 1];
        for pair in entries.windows(2) {
            let same = pair[0].addr().common_bits(pair[1].addr());
            parting[usize::from((same - depth).min(BITS_MAX))] += 1;
        }
        let used = |bits: u16| 1 + parting[..usize::from(bits)].iter().sum::<usize>();
        (least..=most).rev().find(|bits| used(*bits) * 8 >= 1 << bits).unwrap_or(least)
    }

    /// The bits that a prefix shares with this node, if it is not of those that the node is for.
    fn outside(&self, prefix: &Prefix<A>) -> Option<u16> {
        let same = self.addr.common_bits(prefix.addr()).min(prefix.len());
        (same < self.depth).then_some(same)
    }

    /// The slot that `addr` lies in; or where it lies seen from the node.
    #[inline]
    pub fn slot(&self, addr: A) -> Result<usize, Ordering> {
        if self.addr.common_bits(addr) < self.depth {
            Err(addr.cmp(&self.addr))
        } else {
            Ok(addr.bits_at(self.depth, self.bits))
        }
    }

    fn each_inside(&self, outer: &Prefix<A>, each: &mut impl FnMut(Prefix<A>, u32)) {
        let first = match self.slot(outer.addr()) {
            Ok(slot) => slot,
            Err(side) if side.is_gt() => return,
            Err(_) => 0,
        };
        let last = match self.slot(outer.last()) {
            Ok(slot) => slot,
            Err(side) if side.is_lt() => return,
            Err(_) => self.slots.len() - 1,
        };
        let least = outer.len().saturating_sub(self.depth);
        if least <= self.bits {
            self.each_from(first..last + 1, least, each);
        } else {
            self.slots[first].each_inside(outer, each);
        }
    }

    /// Calls `each` with the prefixes that begin at `slots`: of the node itself, those from `least` bits behind its depth on.
    fn each_from(&self, slots: Range<usize>, least: u16, each: &mut impl FnMut(Prefix<A>, u32)) {
        for slot in slots {
            let own = (self.begins(slot).max(least)..self.bits).filter_map(|len| self.own(slot, len));
            own.for_each(|(prefix, value)| each(prefix, value));
            self.slots[slot].each(each);
        }
    }

    /// The node's own prefix of `len` bits behind its depth that begins at `slot`, and its value.
    #[inline]
    pub fn own(&self, slot: usize, len: u16) -> Option<(Prefix<A>, u32)> {
        let value = self.values[1 << len | slot >> (self.bits - len)];
        (value != 0).then(|| {
            let addr = self.addr.with_bits(self.depth, len, slot >> (self.bits - len));
            (Prefix::truncated(addr, self.depth + len), value)
        })
    }

    /// Length behind its depth of the longest own prefix that covers `slot` and is at most so long.
    #[inline]
    pub fn covering(&self, slot: usize, most: u16) -> Option<u16> {
        let longest = u16::from(self.cover[slot]).checked_sub(1)?;
        if longest <= most {
            return Some(longest);
        }
        (0..=most).rev().find(|len| self.values[1 << len | slot >> (self.bits - len)] != 0)
    }

    /// The value of the longest own prefix of one bit or more that covers `slot` and is shorter than `len`.
    fn above(&self, slot: usize, len: u16) -> Option<u32> {
        let longest = self.covering(slot, len.min(self.bits).checked_sub(1)?)?;
        (self.depth + longest > 0).then(|| self.values[1 << longest | slot >> (self.bits - longest)])
    }

    pub fn get(&self, prefix: &Prefix<A>) -> Result<Option<u32>, &Slot<A, BUCKET>> {
        let slot = match (self.outside(prefix), self.slot(prefix.addr())) {
            (None, Ok(slot)) => slot,
            _ => return Ok(None),
        };
        let len = prefix.len() - self.depth;
        if len < self.bits { Ok(self.own(slot, len).map(|(_, value)| value)) } else { Err(&self.slots[slot]) }
    }

    /// [`Slot::set`] for a prefix that belongs here.
    fn set(&mut self, prefix: &Prefix<A>, value: Option<u32>) -> Found {
        let slot = prefix.addr().bits_at(self.depth, self.bits);
        let len = prefix.len() - self.depth;
        let mut found = if len < self.bits {
            Found { old: self.set_own(slot, len, value), above: None, is_bare: false }
        } else {
            let below = &mut self.slots[slot];
            let was_empty = below.is_empty();
            let found = below.set(prefix, value);
            self.used += usize::from(was_empty && value.is_some());
            self.used -= usize::from(!was_empty && value.is_none() && below.is_empty());
            found
        };
        if found.above.is_none() && (value.is_none() || (found.old.is_none() && !found.is_bare)) {
            found.above = self.above(slot, len);
        }
        self.count += usize::from(value.is_some() && found.old.is_none());
        self.count -= usize::from(value.is_none() && found.old.is_some());
        found
    }

    fn set_own(&mut self, slot: usize, len: u16, value: Option<u32>) -> Option<u32> {
        let place = &mut self.values[1 << len | slot >> (self.bits - len)];
        let old = core::mem::replace(place, value.unwrap_or(0));
        let mark = len as u8 + 1;
        let slots = slot..slot + (1 << (self.bits - len));
        match (old, value) {
            (0, Some(_)) => {
                self.own += 1;
                self.cover[slots].iter_mut().for_each(|cover| *cover = mark.max(*cover));
            }
            (1.., None) => {
                self.own -= 1;
                let outer = len.checked_sub(1).and_then(|most| {
                    (0..=most).rev().find(|len| self.values[1 << len | slot >> (self.bits - len)] != 0)
                });
                let outer = outer.map_or(0, |len| len as u8 + 1);
                self.cover[slots].iter_mut().filter(|cover| **cover == mark).for_each(|cover| *cover = outer);
            }
            _ => {}
        }
        (old != 0).then_some(old)
    }

    fn collect(&self, entries: &mut Vec<A::Entry>) {
        for (slot, below) in self.slots.iter().enumerate() {
            for len in self.begins(slot)..self.bits {
                entries.extend(self.own(slot, len).map(|(prefix, value)| A::Entry::new(&prefix, value)));
            }
            below.collect(entries);
        }
    }

    /// The shortest length, behind its depth, of prefixes that begin at `slot`.
    #[inline]
    pub fn begins(&self, slot: usize) -> u16 {
        self.bits - (slot.trailing_zeros() as u16).min(self.bits)
    }
}
