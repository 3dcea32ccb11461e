//! A key's place in a table's hash table, as a lookup finds it: the Rust twin of `include/trieline/exact.h`.

use super::exact::{Hash, Key};
use super::layout;
use super::words::{near, near64};
use core::sync::atomic::{AtomicU32, Ordering};

/// A table's hash table of prefixes of full length.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Exact<'a> {
    /// Its words, a power of two; or none.
    slots: &'a [AtomicU32],
}

/// A key's place in a hash table that may have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    slot: &'a AtomicU32,
    name: Key,
    /// Whether buckets hold the rest of the hash.
    is_short: bool,
}

impl Place<'_> {
    /// Its word as it is now.
    #[inline(always)]
    pub fn seen(&self) -> u32 {
        self.slot.load(Ordering::Acquire)
    }

    /// The value of its key in the bucket that `word` leads to; 0 = none.
    #[inline(always)]
    pub fn find(&self, words: &[AtomicU32], end: u32, word: u32) -> u32 {
        if word & layout::REF_NODE == 0 || word & layout::REF_OFFSET >= end {
            return 0;
        }
        let (node, log) = ((word & layout::REF_OFFSET) as usize * 2, layout::kind_of(word));
        for at in 0..1usize << log {
            // SAFETY: the bucket begins before the guard, and none is longer.
            unsafe {
                if self.is_short {
                    let entry = near64(words, node + 2 * at);
                    if entry & u64::from(u32::MAX) == self.name[0] {
                        return (entry >> 32) as u32 & layout::VALUE_MAX;
                    }
                } else if [0, 2].map(|half| near64(words, node + 4 * at + half)) == self.name {
                    return near(words, node + (4 << log) + at) & layout::VALUE_MAX;
                }
            }
        }
        0
    }
}

impl<'a> Exact<'a> {
    /// Whether there is a hash table.
    pub fn has_any(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The hash table of the table of root word `word`; None in a damaged image.
    // Apart, so that a table without one is found in few instructions.
    #[cold]
    #[inline(never)]
    pub fn of(words: &'a [AtomicU32], word: u32) -> Option<Self> {
        let (at, hash) = super::walk::exact(words, word & !layout::DIR_BITS)?;
        if hash.bits > layout::EXACT_BITS_MAX || !hash.is_sound() {
            return None;
        }
        Some(Self { slots: words.get(at as usize / 4..)?.get(..1 << hash.bits)? })
    }

    /// The place of a key by this hash; None if it has none.
    #[inline(always)]
    pub fn place(&self, hash: &Hash, key: Key) -> Option<Place<'a>> {
        if !self.has_any() || !hash.takes(key) {
            return None;
        }
        let number = hash.of(key);
        let slot = self.slots.get(hash.slot(number))?;
        Some(Place { slot, name: hash.name(key, number), is_short: hash.is_short() })
    }
}
