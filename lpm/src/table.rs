//! One table: its prefixes in order (the shadow), and the root in the image that says the same to readers.

use crate::image::Error;
use crate::image::build::Builder;
use crate::image::layout::{Kind, LINE, REF_NODE, TableHeader, UNIT, VALUE_MAX};
use crate::image::walk;
use crate::{Address, Grace, Image, Memory, Prefix};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::Bound::{Included, Unbounded};
use core::sync::atomic::{AtomicU32, Ordering};

/// A prefix table of an [`Image`], changed prefix by prefix or as a whole.
///
/// The image holds what a lookup needs; the prefixes themselves are here, in the writer's memory. Pass the image that the
/// table was created in to every change.
#[derive(Debug)]
pub struct Table<A: Address> {
    id: u32,
    prefixes: BTreeMap<Prefix<A>, u32>,
    root: Root,
}

/// Where the table is in the image.
#[derive(Debug, Default)]
struct Root {
    /// Offset of slot 0, bytes.
    at: u32,
    /// Address bits that index it.
    bits: u8,
    /// For each slot, the value of the longest prefix of 1 ... `bits`-1 bits that covers it; 0 = none.
    cover: Vec<u32>,
}

impl Root {
    fn word<'a>(&self, words: &'a [AtomicU32], slot: usize) -> &'a AtomicU32 {
        &words[self.at as usize / 4 + slot]
    }

    fn header<'a>(&self, words: &'a [AtomicU32], field: usize) -> &'a AtomicU32 {
        &words[(self.at as usize - size_of::<TableHeader>() + field) / 4]
    }
}

/// Root bits for a table of `prefixes`: a small table must be small (1 KiB up to 64 prefixes), a large one shallow.
fn root_bits<A: Address>(prefixes: usize) -> u8 {
    match (A::FAMILY, prefixes) {
        (4, ..=64) | (6, ..=256) => 8,
        (4, ..=4096) => 12,
        (4, ..=200_000) | (6, _) => 16,
        _ => 18,
    }
}

impl<A: Address> Table<A> {
    /// Makes table `id` of `image` from `prefixes` (any order; of equal prefixes the last counts), replacing what was there, also
    /// a table of an earlier writer, for all addresses at once. O(n log n), O(n) if sorted.
    pub fn create<M: Memory, G: Grace>(
        image: &mut Image<M, G>,
        id: u32,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<Self, Error> {
        let mut table = Self { id, prefixes: BTreeMap::new(), root: Root::default() };
        table.replace(image, prefixes)?;
        Ok(table)
    }

    /// Replaces the whole table for all addresses at once. O(n log n), O(n) if sorted. The memory must hold both for a moment.
    pub fn replace<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<(), Error> {
        image.check_table(self.id)?;
        let prefixes: BTreeMap<_, _> = prefixes.into_iter().collect();
        for value in prefixes.values() {
            check_value(*value)?;
        }
        let root = build_table(image, &prefixes)?;
        image.swing_directory(self.id, root.at | u32::from(root.bits));
        self.prefixes = prefixes;
        self.root = root;
        Ok(())
    }

    /// Adds a prefix or changes its value; returns the value that was there.
    ///
    /// For every single address a lookup sees the state before or after. A prefix shorter than the root's bits (8 to 18) changes up to
    /// all root slots one after another. O(prefixes under the same root slot), for a short prefix O(prefixes it covers).
    pub fn insert<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        value: u32,
    ) -> Result<Option<u32>, Error> {
        check_value(value)?;
        self.set(image, prefix, Some(value))
    }

    /// Removes a prefix; returns the value that was there. Complexity as [`Table::insert`].
    pub fn remove<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: &Prefix<A>,
    ) -> Result<Option<u32>, Error> {
        self.set(image, *prefix, None)
    }

    /// The value of exactly this prefix. O(log n).
    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        self.prefixes.get(prefix).copied()
    }

    /// The longest prefix that contains `addr`, and its value; from the shadow, not the image. O(k log n), k being the number of
    /// prefix lengths tried.
    pub fn lookup(&self, addr: A) -> Option<(Prefix<A>, u32)> {
        longest(&self.prefixes, addr, A::WIDTH)
    }

    /// All prefixes in order: by address, shorter first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.prefixes.iter().map(|(prefix, value)| (*prefix, *value))
    }

    /// All prefixes from `from` on, in order.
    pub fn iter_from(&self, from: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.prefixes.range((Included(from), Unbounded)).map(|(prefix, value)| (*prefix, *value))
    }

    /// The prefixes that `outer` covers, itself included, in order. O(log n) to start.
    pub fn within(&self, outer: &Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        within(&self.prefixes, *outer).map(|(prefix, value)| (*prefix, *value))
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Its id in the image's directory.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Address bits that index its root.
    pub fn root_bits(&self) -> u8 {
        self.root.bits
    }

    fn put(&mut self, prefix: Prefix<A>, value: Option<u32>) -> Option<u32> {
        match value {
            Some(value) => self.prefixes.insert(prefix, value),
            None => self.prefixes.remove(&prefix),
        }
    }

    fn set<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        value: Option<u32>,
    ) -> Result<Option<u32>, Error> {
        let old = self.put(prefix, value);
        if old == value {
            return Ok(old);
        }
        let published = if self.root.bits < root_bits::<A>(self.prefixes.len() / 2) {
            self.regrow(image)
        } else if prefix.len() == 0 {
            let fallback = self.root.header(image.memory.words(), offset_of!(TableHeader, fallback));
            fallback.store(value.unwrap_or(0), Ordering::Release);
            Ok(())
        } else if prefix.len() < self.root.bits {
            self.repaint(image, prefix)
        } else {
            self.rebuild(image, prefix)
        };
        match published {
            Ok(()) => {
                let count = self.root.header(image.memory.words(), offset_of!(TableHeader, prefixes));
                count.store(self.prefixes.len() as u32, Ordering::Relaxed);
                Ok(old)
            }
            Err(error) => {
                self.put(prefix, old);
                Err(error)
            }
        }
    }

    /// Twice as many prefixes as this root is meant for: build a larger one aside.
    fn regrow<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>) -> Result<(), Error> {
        let root = build_table(image, &self.prefixes)?;
        image.swing_directory(self.id, root.at | u32::from(root.bits));
        self.root = root;
        Ok(())
    }

    /// Rebuilds the one root slot that a prefix of at least `root_bits` bits lies under.
    fn rebuild<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
    ) -> Result<(), Error> {
        let bits = self.root.bits;
        let slot = prefix.addr().bits_at(0, bits);
        let outer = Prefix::truncated(prefix.addr(), bits);
        let entries: Vec<_> =
            within(&self.prefixes, outer).map(|(prefix, value)| (*prefix, *value)).collect();
        let words = image.memory.words();
        let mut builder = Builder::new(words, &mut image.space, &mut image.grace, Kind::of_family(A::FAMILY));
        match builder.subtree(&entries, bits, self.root.cover[slot]) {
            Ok(entry) => {
                self.publish(image, slot, entry);
                Ok(())
            }
            Err(error) => {
                builder.abandon();
                Err(error)
            }
        }
    }

    /// Rebuilds the root slots whose longest short prefix changes with `prefix`, shorter than `root_bits`.
    fn repaint<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
    ) -> Result<(), Error> {
        let bits = self.root.bits;
        let first = prefix.addr().bits_at(0, bits);
        let above = longest(&self.prefixes, prefix.addr(), prefix.len() - 1).filter(|(p, _)| p.len() > 0);
        let mut cover = alloc::vec![above.map_or(0, |(_, value)| value); 1 << (bits - prefix.len())];
        let mut long = Vec::new();
        paint(within(&self.prefixes, prefix), bits, first, &mut cover, &mut long);
        let changed =
            |slot: usize| (cover[slot - first] != self.root.cover[slot]).then_some(cover[slot - first]);
        let words = image.memory.words();
        let mut builder = Builder::new(words, &mut image.space, &mut image.grace, Kind::of_family(A::FAMILY));
        let mut entries = Vec::new();
        let built = slots(&long, bits, first, cover.len(), |slot, inside| {
            if let Some(cover) = changed(slot) {
                entries.push((slot, builder.subtree(inside, bits, cover)?));
            }
            Ok(())
        });
        if let Err(error) = built {
            builder.abandon();
            return Err(error);
        }
        for (slot, entry) in entries {
            self.publish(image, slot, entry);
        }
        self.root.cover[first..first + cover.len()].copy_from_slice(&cover);
        Ok(())
    }

    /// Swings one root slot and retires what it led to.
    fn publish<M: Memory, G: Grace>(&self, image: &mut Image<M, G>, slot: usize, entry: u32) {
        let words = image.memory.words();
        let old = self.root.word(words, slot).swap(entry, Ordering::AcqRel);
        if old & REF_NODE != 0 {
            let (space, grace) = (&mut image.space, &mut image.grace);
            walk::own_nodes(words, old, Kind::of_family(A::FAMILY), &mut |block| space.retire(block, grace));
        }
    }
}

fn check_value(value: u32) -> Result<(), Error> {
    if (1..=VALUE_MAX).contains(&value) { Ok(()) } else { Err(Error::Value { value }) }
}

fn within<A: Address>(
    prefixes: &BTreeMap<Prefix<A>, u32>,
    outer: Prefix<A>,
) -> impl DoubleEndedIterator<Item = (&Prefix<A>, &u32)> {
    prefixes.range((Included(outer), Included(Prefix::host(outer.last()))))
}

/// The longest prefix of at most `len` bits that contains `addr`.
fn longest<A: Address>(prefixes: &BTreeMap<Prefix<A>, u32>, addr: A, len: u8) -> Option<(Prefix<A>, u32)> {
    let mut limit = Prefix::truncated(addr, len);
    loop {
        // The last prefix at or before `limit` either covers it, or nothing longer than the bits that the two share does.
        let (prefix, value) = prefixes.range((Unbounded, Included(limit))).next_back()?;
        if prefix.covers(&limit) {
            return Some((*prefix, *value));
        }
        limit = Prefix::truncated(addr, prefix.addr().common_bits(limit.addr()));
    }
}

/// Paints the prefixes shorter than `bits` over `cover` (the root slots from `first` on) and collects the longer ones.
fn paint<'a, A: Address>(
    prefixes: impl Iterator<Item = (&'a Prefix<A>, &'a u32)>,
    bits: u8,
    first: usize,
    cover: &mut [u32],
    long: &mut Vec<(Prefix<A>, u32)>,
) {
    for (prefix, value) in prefixes {
        if prefix.len() >= bits {
            long.push((*prefix, *value));
        } else if prefix.len() > 0 {
            let slot = prefix.addr().bits_at(0, bits) - first;
            cover[slot..slot + (1 << (bits - prefix.len()))].fill(*value);
        }
    }
}

/// Calls `each` with every one of `count` root slots from `first` on and the prefixes of `long` that lie in it.
fn slots<A: Address>(
    mut long: &[(Prefix<A>, u32)],
    bits: u8,
    first: usize,
    count: usize,
    mut each: impl FnMut(usize, &[(Prefix<A>, u32)]) -> Result<(), Error>,
) -> Result<(), Error> {
    for slot in first..first + count {
        let (inside, behind) =
            long.split_at(long.iter().take_while(|(p, _)| p.addr().bits_at(0, bits) == slot).count());
        each(slot, inside)?;
        long = behind;
    }
    Ok(())
}

/// Builds a whole table aside.
fn build_table<M: Memory, G: Grace, A: Address>(
    image: &mut Image<M, G>,
    prefixes: &BTreeMap<Prefix<A>, u32>,
) -> Result<Root, Error> {
    let bits = root_bits::<A>(prefixes.len());
    let count = 1usize << bits;
    let mut cover = alloc::vec![0; count];
    let mut long = Vec::with_capacity(prefixes.len());
    paint(prefixes.iter(), bits, 0, &mut cover, &mut long);
    let words = image.memory.words();
    let mut builder = Builder::new(words, &mut image.space, &mut image.grace, Kind::of_family(A::FAMILY));
    let mut build = || {
        let block = builder.allocate((LINE + 4 * count as u32) / UNIT)?;
        let root = Root { at: block.at * UNIT + LINE, bits, cover: Vec::new() };
        slots(&long, bits, 0, count, |slot, inside| {
            let entry = builder.subtree(inside, bits, cover[slot])?;
            root.word(words, slot).store(entry, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(root)
    };
    let root = match build() {
        Ok(root) => Root { cover, ..root },
        Err(error) => {
            builder.abandon();
            return Err(error);
        }
    };
    let fallback = longest(prefixes, A::ZERO, 0).map_or(0, |(_, value)| value);
    let header = [
        (offset_of!(TableHeader, fallback), fallback),
        (offset_of!(TableHeader, key_family), u32::from_le_bytes([A::FAMILY, bits, A::WIDTH, 0])),
        (offset_of!(TableHeader, prefixes), prefixes.len() as u32),
        (offset_of!(TableHeader, root_bytes), 4 * count as u32),
    ];
    for word in (0..size_of::<TableHeader>()).step_by(4) {
        root.header(words, word).store(0, Ordering::Relaxed);
    }
    for (field, value) in header {
        root.header(words, field).store(value, Ordering::Relaxed);
    }
    Ok(root)
}
