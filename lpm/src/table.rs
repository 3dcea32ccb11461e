//! One table: its prefixes in order (the shadow), and the root in the image that says the same to readers.

use crate::image::Error;
use crate::image::build::Swing;
use crate::image::layout::{LINE, TableHeader, UNIT, VALUE_MAX};
use crate::shadow::Shadow;
use crate::{Address, Grace, Image, Memory, Prefix};
use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

/// A prefix table of an [`Image`], changed prefix by prefix or as a whole.
///
/// The image holds what a lookup needs; the prefixes themselves are here, in the writer's memory. Pass the image that the
/// table was created in to every change.
#[derive(Debug)]
pub struct Table<A: Address> {
    id: u32,
    shadow: Shadow<A>,
    root: Root,
}

/// Where the table is in the image.
#[derive(Debug, Default)]
struct Root {
    /// Offset of slot 0, bytes.
    at: u32,
    /// Address bits that index it.
    bits: u16,
    /// For each slot, the value of the longest prefix of 1 ... `bits`-1 bits that covers it; 0 = none.
    cover: Vec<u32>,
}

impl Root {
    /// Index of a slot's word in the image.
    fn index(&self, slot: usize) -> usize {
        self.at as usize / 4 + slot
    }

    fn header<'a>(&self, words: &'a [AtomicU32], field: usize) -> &'a AtomicU32 {
        &words[(self.at as usize - size_of::<TableHeader>() + field) / 4]
    }
}

/// Root bits for a table of `prefixes`: a small table must be small (1 KiB up to 64 prefixes), a large one shallow.
fn root_bits<A: Address>(prefixes: usize) -> u16 {
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
        let mut table = Self { id, shadow: Shadow::default(), root: Root::default() };
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
        let checked = prefixes.into_iter().map(|item| check_value(item.1).map(|()| item));
        let shadow: Shadow<A> = checked.collect::<Result<_, _>>()?;
        let root = build_table(image, &shadow)?;
        image.swing_directory(self.id, root.at | u32::from(root.bits));
        self.shadow = shadow;
        self.root = root;
        Ok(())
    }

    /// Adds a prefix or changes its value; returns the value that was there.
    ///
    /// For every single address a lookup sees the state before or after. A prefix shorter than the root's bits (8 to 18) changes up to
    /// all root slots one after another; that of length 0 copies the root. O(log n + prefixes it covers).
    pub fn insert<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        value: u32,
    ) -> Result<Option<u32>, Error> {
        check_value(value)?;
        self.set(image, prefix, Some(value))
    }

    /// Removes a prefix; returns the value that was there. Complexity as [`Table::insert`]. It may need a node too, so that a full
    /// image can refuse it.
    pub fn remove<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: &Prefix<A>,
    ) -> Result<Option<u32>, Error> {
        self.set(image, *prefix, None)
    }

    /// The value of exactly this prefix. O(log n).
    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        self.shadow.get(prefix)
    }

    /// The longest prefix that contains `addr`, and its value; from the shadow, not the image. O(k log n), k being the number of
    /// prefix lengths tried.
    pub fn lookup(&self, addr: A) -> Option<(Prefix<A>, u32)> {
        self.shadow.longest(addr, A::WIDTH)
    }

    /// All prefixes in order: by address, shorter first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.iter()
    }

    /// All prefixes from `from` on, in order.
    pub fn iter_from(&self, from: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.from(from)
    }

    /// All prefixes up to and with `until`, in order; `.rev()` walks down from it. O(log n) to start.
    pub fn iter_until(&self, until: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.until(until)
    }

    /// All prefixes that contain `addr`, shortest first: the last is the answer of [`Table::lookup`].
    pub fn matches(&self, addr: A) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.matches(addr, A::WIDTH)
    }

    /// The prefixes that cover `prefix`, itself included, shortest first.
    pub fn covering(&self, prefix: &Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.matches(prefix.addr(), prefix.len())
    }

    /// The prefixes that `prefix` covers, itself included, in order. O(log n) to start.
    pub fn covered(&self, prefix: &Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.within(*prefix)
    }

    /// The prefixes that `outer` covers, itself included, in order. O(log n) to start.
    pub fn within(&self, outer: &Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.within(*outer)
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.shadow.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shadow.len() == 0
    }

    /// Its id in the image's directory.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Address bits that index its root.
    pub fn root_bits(&self) -> u16 {
        self.root.bits
    }

    fn set<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        value: Option<u32>,
    ) -> Result<Option<u32>, Error> {
        let old = self.shadow.set(prefix, value);
        if old == value {
            return Ok(old);
        }
        let is_small = self.root.bits < root_bits::<A>(self.shadow.len() / 2);
        let published = match is_small.then(|| self.regrow(image)) {
            // Where a larger root does not fit, this one still does.
            None | Some(Err(Error::Full { .. })) => match prefix.len() {
                0 => self.change_fallback(image, value.unwrap_or(0)),
                len if len < self.root.bits => self.repaint(image, prefix),
                _ => self.edit(image, prefix),
            },
            Some(grown) => grown,
        };
        match published {
            Ok(()) => {
                let count = self.root.header(image.memory.words(), offset_of!(TableHeader, prefixes));
                count.store(self.shadow.len() as u32, Ordering::Relaxed);
                Ok(old)
            }
            Err(error) => {
                self.shadow.set(prefix, old);
                Err(error)
            }
        }
    }

    /// A root that differs in its fallback only, published by the directory word: a lookup that found nothing sees by it whether
    /// the fallback it then read belongs to what it had found.
    fn change_fallback<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        fallback: u32,
    ) -> Result<(), Error> {
        let bits = self.root.bits;
        let mut builder = image.builder::<A>();
        let block = builder.allocate((LINE + (4 << bits)) / UNIT)?;
        let (words, at) = (builder.words, block.at * UNIT + LINE);
        let header = size_of::<TableHeader>() / 4;
        let old = self.root.index(0) - header;
        let new = at as usize / 4 - header;
        for word in 0..header + (1 << bits) {
            words[new + word].store(words[old + word].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        words[new + offset_of!(TableHeader, fallback) / 4].store(fallback, Ordering::Relaxed);
        image.swing_root(self.id, at | u32::from(bits));
        self.root.at = at;
        Ok(())
    }

    /// Twice as many prefixes as this root is meant for: build a larger one aside.
    fn regrow<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>) -> Result<(), Error> {
        let root = build_table(image, &self.shadow)?;
        image.swing_directory(self.id, root.at | u32::from(root.bits));
        self.root = root;
        Ok(())
    }

    /// Changes what lies under the one root slot that a prefix of at least `root_bits` bits falls into.
    fn edit<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>, prefix: Prefix<A>) -> Result<(), Error> {
        let slot = prefix.addr().bits_at(0, self.root.bits);
        let mut builder = image.builder::<A>();
        match builder.edit(&self.shadow, prefix, self.root.index(slot), self.root.bits) {
            Ok(swing) => builder.publish(&[swing]),
            Err(error) => return Err(builder.abandon(error)),
        }
        Ok(())
    }

    /// Rebuilds the root slots whose longest short prefix changes with `prefix`, shorter than `root_bits`.
    fn repaint<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
    ) -> Result<(), Error> {
        let bits = self.root.bits;
        let first = prefix.addr().bits_at(0, bits);
        let mut cover =
            alloc::vec![self.shadow.inherited(prefix.addr(), prefix.len() - 1); 1 << (bits - prefix.len())];
        let mut long = Vec::new();
        paint(self.shadow.within(prefix), bits, first, &mut cover, &mut long);
        let mut builder = image.builder::<A>();
        let mut swings = Vec::new();
        let built = slots(&long, bits, first, cover.len(), |slot, inside| {
            let cover = cover[slot - first];
            if cover != self.root.cover[slot] {
                let word = self.root.index(slot);
                swings.push(Swing { word, entry: builder.subtree(inside, bits, cover)? });
                builder.replace(builder.words[word].load(Ordering::Relaxed));
            }
            Ok(())
        });
        if let Err(error) = built {
            return Err(builder.abandon(error));
        }
        builder.publish(&swings);
        self.root.cover[first..first + cover.len()].copy_from_slice(&cover);
        Ok(())
    }
}

fn check_value(value: u32) -> Result<(), Error> {
    if (1..=VALUE_MAX).contains(&value) { Ok(()) } else { Err(Error::Value { value }) }
}

/// Paints the prefixes shorter than `bits` over `cover` (the root slots from `first` on) and collects the longer ones.
fn paint<A: Address>(
    prefixes: impl Iterator<Item = (Prefix<A>, u32)>,
    bits: u16,
    first: usize,
    cover: &mut [u32],
    long: &mut Vec<(Prefix<A>, u32)>,
) {
    for (prefix, value) in prefixes {
        if prefix.len() >= bits {
            long.push((prefix, value));
        } else if prefix.len() > 0 {
            let slot = prefix.addr().bits_at(0, bits) - first;
            cover[slot..slot + (1 << (bits - prefix.len()))].fill(value);
        }
    }
}

/// Calls `each` with every one of `count` root slots from `first` on and the prefixes of `long` that lie in it.
fn slots<A: Address>(
    mut long: &[(Prefix<A>, u32)],
    bits: u16,
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
    shadow: &Shadow<A>,
) -> Result<Root, Error> {
    let bits = root_bits::<A>(shadow.len());
    let count = 1usize << bits;
    let mut cover = alloc::vec![0; count];
    let mut long = Vec::with_capacity(shadow.len());
    paint(shadow.within(Prefix::truncated(A::ZERO, 0)), bits, 0, &mut cover, &mut long);
    let mut builder = image.builder::<A>();
    let words = builder.words;
    let mut build = || {
        let block = builder.allocate((LINE + 4 * count as u32) / UNIT)?;
        let root = Root { at: block.at * UNIT + LINE, bits, cover: Vec::new() };
        slots(&long, bits, 0, count, |slot, inside| {
            let entry = builder.subtree(inside, bits, cover[slot])?;
            words[root.index(slot)].store(entry, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(root)
    };
    let root = match build() {
        Ok(root) => Root { cover, ..root },
        Err(error) => return Err(builder.abandon(error)),
    };
    let fallback = shadow.longest(A::ZERO, 0).map_or(0, |(_, value)| value);
    let header = [
        (offset_of!(TableHeader, fallback), fallback),
        (
            offset_of!(TableHeader, key_family),
            u32::from(A::FAMILY) | u32::from(bits) << 8 | u32::from(A::WIDTH) << 16,
        ),
        (offset_of!(TableHeader, prefixes), shadow.len() as u32),
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
