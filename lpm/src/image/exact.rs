//! The hash table of a table's prefixes of full length: how a key is hashed, and what a bucket holds. `image.h` describes it.

use super::layout::{EXACT_SHORT, EXACT_WIDEST, REF_NODE, REF_OFFSET, UNIT, kind_of};
use super::space::Block;
use crate::{Address, Prefix};
use core::sync::atomic::{AtomicU32, Ordering};

/// The first 128 bits of a key, those past its end being 0.
pub(crate) type Key = [u64; 2];

/// Which word a key has, and how a bucket names the key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hash {
    /// Width of the keys.
    pub key_bits: u16,
    /// Bits that index the words.
    pub bits: u16,
    pub multiplier: [u64; 2],
    /// Only keys whose first 64 bits are `first` under this mask may stand in the hash table.
    pub mask: u64,
    pub first: u64,
}

/// A bucket's entry: how it names its key, and the value.
pub(crate) type Entry = (Key, u32);

/// The number of a key of `key_bits` bits.
#[inline(always)]
pub(crate) fn key<A: Address>(addr: A, key_bits: u16) -> Key {
    let key = [addr.word_at(0), addr.word_at(64)];
    // Addresses have no bits behind the last.
    if A::FAMILY == 0 {
        [key[0] & ones(key_bits.min(64)), key[1] & ones(key_bits.clamp(64, 128) - 64)]
    } else {
        key
    }
}

/// The first `bits` of 64 bits.
fn ones(bits: u16) -> u64 {
    !(!0 >> 1 >> (bits.max(1) - 1)) & if bits == 0 { 0 } else { !0 }
}

impl Hash {
    /// Whether a table of keys of `key_bits` bits may have a hash table of `bits` bits.
    pub fn is_sound(&self) -> bool {
        self.bits >= 1
            && self.key_bits <= EXACT_WIDEST
            && (!self.is_short() || self.key_bits <= self.bits + u32::BITS as u16)
            && (!self.is_short() || self.multiplier[0] % 2 == 1)
            && self.first & !self.mask == 0
    }

    /// Whether a bucket holds the rest of the hash instead of the key.
    #[inline(always)]
    pub fn is_short(&self) -> bool {
        self.key_bits <= EXACT_SHORT
    }

    /// Whether the hash table may hold this key.
    #[inline(always)]
    pub fn takes(&self, key: Key) -> bool {
        key[0] & self.mask == self.first
    }

    #[inline(always)]
    pub fn of(&self, key: Key) -> u64 {
        let hash = key[0].wrapping_mul(self.multiplier[0]);
        if self.is_short() { hash } else { hash.wrapping_add(key[1].wrapping_mul(self.multiplier[1])) }
    }

    /// Which word it has.
    #[inline(always)]
    pub fn slot(&self, hash: u64) -> usize {
        (hash >> 1 >> (63 - u32::from(self.bits))) as usize
    }

    /// How a bucket names the key of this hash.
    #[inline(always)]
    pub fn name(&self, key: Key, hash: u64) -> Key {
        if self.is_short() {
            [hash >> 1 >> (63 - u32::from(self.key_bits)) & u64::from(u32::MAX), 0]
        } else {
            key
        }
    }

    /// The key of the bucket of word number `slot` that it names so.
    pub fn key(&self, slot: usize, name: Key) -> Key {
        if !self.is_short() {
            return name;
        }
        // Doubles the number of right bits each time.
        let inverse = (0..6).fold(self.multiplier[0], |inverse, _| {
            inverse.wrapping_mul(2u64.wrapping_sub(self.multiplier[0].wrapping_mul(inverse)))
        });
        let low = 64 - u32::from(self.key_bits);
        let high = (slot as u64) << (64 - u32::from(self.bits));
        [(name[0] << low | high).wrapping_mul(inverse), 0]
    }

    /// Units of a bucket of 2^`log` entries.
    pub const fn units(is_short: bool, log: u32) -> u32 {
        if is_short { 1 << log } else { (20u32 << log).div_ceil(UNIT) }
    }

    /// The entries of the bucket of `word`, without the unused ones.
    pub fn entries(&self, words: &[AtomicU32], word: u32) -> impl Iterator<Item = Entry> {
        let (node, log) = ((word & REF_OFFSET) as usize * 2, kind_of(word));
        let count = if word & REF_NODE == 0 { 0 } else { 1usize << log };
        let load = move |at: usize| words[at].load(Ordering::Relaxed);
        let load64 = move |at: usize| u64::from(load(at)) | u64::from(load(at + 1)) << 32;
        let is_short = self.is_short();
        let entry = move |at: usize| {
            if is_short {
                ([u64::from(load(node + 2 * at)), 0], load(node + 2 * at + 1))
            } else {
                ([load64(node + 4 * at), load64(node + 4 * at + 2)], load(node + (4 << log) + at))
            }
        };
        (0..count).map(entry).take_while(|(_, value)| *value != 0)
    }

    /// The bucket's block; None if `word` leads to none.
    pub fn block(&self, word: u32) -> Option<Block> {
        let units = Self::units(self.is_short(), kind_of(word));
        (word & REF_NODE != 0).then_some(Block { at: word & REF_OFFSET, units })
    }
}

/// A table's hash table, as its writer knows it.
#[derive(Debug)]
pub(crate) struct Exact {
    pub hash: Hash,
    /// Byte offset of its words.
    pub slots: u32,
    /// Keys in it.
    pub count: usize,
    /// After the change under way it has every prefix of full length that it takes.
    pub has_all: bool,
    /// The content of the next word whose bucket goes: a number that the word never held.
    pub vacated: u32,
}

impl Exact {
    /// Index in the image of a key's word, and how its bucket names the key; None if the hash table does not take it.
    pub fn place<A: Address>(&self, prefix: &Prefix<A>) -> Option<(usize, Key)> {
        if prefix.len() != self.hash.key_bits {
            return None;
        }
        let key = key(prefix.addr(), self.hash.key_bits);
        let hash = self.hash.of(key);
        let word = self.slots as usize / 4 + self.hash.slot(hash);
        self.hash.takes(key).then(|| (word, self.hash.name(key, hash)))
    }

    /// Whether it has this prefix, or will have it with the keys that are `arriving`, which are in order.
    pub fn has<A: Address>(&self, words: &[AtomicU32], prefix: &Prefix<A>, arriving: &[Key]) -> bool {
        let key = key(prefix.addr(), self.hash.key_bits);
        if prefix.len() != self.hash.key_bits || !self.hash.takes(key) {
            return false;
        }
        let is_in = |(word, name)| self.entries(words, word).any(|(found, _)| found == name);
        self.has_all || arriving.binary_search(&key).is_ok() || self.place(prefix).is_some_and(is_in)
    }

    /// The entries of the bucket that the word at index `word` leads to.
    pub fn entries(&self, words: &[AtomicU32], word: usize) -> impl Iterator<Item = Entry> {
        self.hash.entries(words, words[word].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_behind_a_key_do_not_count() {
        assert_eq!([0, 1, 63, 64].map(ones), [0, 1 << 63, !1, !0]);
        let all = crate::Key::<128, 16>::new([0xff; 16]);
        assert_eq!(key(all, 48), [0xffff_ffff_ffff_0000, 0]);
        assert_eq!(key(all, 65), [!0, 1 << 63]);
        assert_eq!(key(0xc000_0201u32, 32), [0xc000_0201_0000_0000, 0]);
    }

    #[test]
    fn a_short_name_and_a_word_tell_the_key() {
        let hash = Hash { key_bits: 40, bits: 8, multiplier: [0x9e37_79b9_7f4a_7c15, 0], ..Hash::default() };
        let mut seen = alloc::collections::BTreeSet::new();
        for n in 0..100_000u64 {
            let key = [n.wrapping_mul(0x1234_5678_9abd) << 24, 0];
            let hashed = hash.of(key);
            let (slot, name) = (hash.slot(hashed), hash.name(key, hashed));
            assert!(seen.insert((slot, name)), "{n}");
            assert_eq!(hash.key(slot, name), key, "{n}");
        }
    }
}
