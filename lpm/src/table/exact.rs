//! Which prefixes of a table go into a hash table, making it, and changing it.

use crate::image::Error;
use crate::image::build::Builder;
use crate::image::exact::{Entry, Exact, Hash, Key, key};
use crate::image::layout::{BUCKET, EXACT_BITS_MAX, EXACT_SHORT, EXACT_WIDEST, UNIT, VALUE_MAX};
use crate::image::runs::PublishedWord;
use crate::image::walk::exact_block;
use crate::prefix_store::{Change, PrefixStore};
use crate::{Address, Grace, Prefix};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

/// Odd numbers without a pattern: the first of them whose buckets hold nearly all keys is taken. Keys that were chosen to share a bucket are
/// found by the root.
const MULTIPLIERS: [[u64; 2]; 4] = [
    [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f],
    [0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f],
    [0xbf58_476d_1ce4_e5b9, 0xe703_7ed1_a0b4_28db],
    [0x94d0_49bb_1331_11eb, 0x8ebc_6af0_9c88_c6e3],
];

/// Of so many keys one may have no room, before another multiplier is tried.
const OVERFLOW: usize = 64;

/// Up to so many keys, the hash table's words stay in a near cache, and more of them spare looks into buckets.
const FEW: usize = 1 << 17;

/// The keys that a new hash table is to have.
pub(super) struct Plan {
    pub hash: Hash,
    /// The keys, in order.
    keys: Vec<(Key, u32)>,
    /// The indexes in `keys` of those that no bucket has room for, in order.
    overflow: Vec<u32>,
}

/// Whether a table of `full` prefixes of full length, of `prefixes` in all, may have a hash table. Lookups that find nothing there must be few.
pub(super) fn is_worth(key_bits: u16, full: usize, prefixes: usize) -> bool {
    let is_mostly = full >= prefixes / PART;
    if key_bits <= EXACT_BITS_MAX || key_bits > EXACT_WIDEST {
        // A root may tell all of the short ones.
        false
    } else if key_bits <= 32 {
        full >= 64 && is_mostly
    } else if key_bits <= EXACT_SHORT {
        // There are at least 2^(key_bits - 32) words.
        full >= 4096 && is_mostly
    } else {
        full > usize::from(prefixes > MANY)
    }
}

/// Of the prefixes in a hash table's block at least one of so many is of full length.
const PART: usize = 4;

/// In a table of so many prefixes, a block of one key is not worth a look.
const MANY: usize = 4096;

/// Bits that index a hash table of `keys`.
fn bits(key_bits: u16, keys: usize) -> u16 {
    let words = if keys <= FEW { 2 * keys } else { 2 * keys / 5 };
    let bits = words.next_power_of_two().trailing_zeros() as u16;
    let least = if key_bits <= EXACT_SHORT { key_bits.saturating_sub(32) } else { 0 };
    bits.max(least).clamp(4, EXACT_BITS_MAX)
}

/// The bits that all of `keys`, in order, have in front.
fn common(keys: &[(Key, usize, u32)]) -> u32 {
    let ([(first, ..), ..], [.., (last, ..)]) = (keys, keys) else { return 0 };
    let [hi, lo] = [first[0] ^ last[0], first[1] ^ last[1]];
    if hi != 0 { hi.leading_zeros() } else { 64 + lo.leading_zeros() }
}

/// The blocks of addresses with `keys`, which are in order, and not many shorter prefixes between them. Each key comes with its number among all
/// prefixes. Returns which of them are in each, the largest block first.
fn dense(keys: &[(Key, usize, u32)]) -> Vec<Range<usize>> {
    let mut dense = Vec::new();
    let mut left: Vec<Range<usize>> = core::iter::once(0..keys.len()).collect();
    while let Some(range) = left.pop() {
        let inside = &keys[range.clone()];
        let ([(_, first, _), ..], [.., (_, last, _)]) = (inside, inside) else { continue };
        if PART * inside.len() > last - first {
            dense.push(range);
            continue;
        }
        let bit = common(inside) as usize;
        let is_low = |(key, ..): &(Key, usize, u32)| key[bit / 64] >> (63 - bit % 64) & 1 == 0;
        let middle = range.start + inside.partition_point(is_low);
        left.extend([range.start..middle, middle..range.end]);
    }
    dense.sort_by_key(|range| (Reverse(range.len()), range.start));
    dense
}

/// The keys that a hash table may have: those whose first 64 bits are `first` under `mask`.
#[derive(Debug, Clone, Copy)]
struct Block {
    mask: u64,
    first: u64,
}

impl Block {
    /// Of so many more blocks is asked whether a hash table may have them too.
    const MORE: usize = 15;
    /// The fewest bits that they may agree in.
    const BITS: u32 = 16;
    /// At most one of so many other prefixes may have addresses in them, which are looked for in vain.
    const OTHERS: usize = 64;

    /// The bits in which all of `keys` agree.
    fn of(keys: &[(Key, usize, u32)]) -> Self {
        let first = keys.first().map_or(0, |(key, ..)| key[0]);
        let mask = keys.iter().fold(u64::MAX, |mask, (key, ..)| mask & !(key[0] ^ first));
        Self { mask, first: first & mask }
    }

    /// The bits in which both agree.
    fn with(self, other: Self) -> Self {
        let mask = self.mask & other.mask & !(self.first ^ other.first);
        Self { mask, first: self.first & mask }
    }

    fn has(&self, key: Key) -> bool {
        key[0] & self.mask == self.first
    }

    /// Whether it has addresses of `prefix`.
    fn meets<A: Address>(&self, prefix: &Prefix<A>) -> bool {
        let inside = !(u64::MAX.checked_shr(prefix.len().into()).unwrap_or(0));
        (prefix.addr().word_at(0) ^ self.first) & self.mask & inside == 0
    }

    /// Most of the full-length `keys` that are close together, in one block or a few. A node's segments are in one, the neighbours of each of its
    /// links in another.
    fn choose<A: Address>(
        keys: &[(Key, usize, u32)],
        prefix_store: &PrefixStore<A>,
        key_bits: u16,
    ) -> Option<Self> {
        let dense = dense(keys);
        let (best, more) = dense.split_first()?;
        if !is_worth(key_bits, best.len(), prefix_store.len()) {
            return None;
        }
        let (mut block, mut count) = (Self::of(&keys[best.clone()]), best.len());
        for range in more.iter().take(Self::MORE) {
            let keys = &keys[range.clone()];
            let both = block.with(Self::of(keys));
            let most = ((PART - 1) * (count + keys.len())).max(prefix_store.len() / Self::OTHERS);
            let is_met = |(prefix, _): &(Prefix<A>, u32)| prefix.len() < key_bits && both.meets(prefix);
            if both.mask.count_ones() >= Self::BITS
                && prefix_store.iter().filter(is_met).take(most + 1).count() <= most
            {
                (block, count) = (both, count + keys.len());
            }
        }
        Some(block)
    }
}

impl Plan {
    /// None: no hash table.
    pub fn of<A: Address>(prefix_store: &PrefixStore<A>, key_bits: u16) -> Option<Self> {
        if !is_worth(key_bits, prefix_store.len(), prefix_store.len()) {
            return None;
        }
        let full = prefix_store.iter().enumerate().filter(|(_, (prefix, _))| prefix.len() == key_bits);
        let keys: Vec<_> =
            full.map(|(at, (prefix, value))| (key(prefix.addr(), key_bits), at, value)).collect();
        if !is_worth(key_bits, keys.len(), prefix_store.len()) {
            return None;
        }
        let block = if key_bits > EXACT_SHORT {
            Block::choose(&keys, prefix_store, key_bits)?
        } else {
            Block::of(&keys)
        };
        let keys: Vec<_> =
            keys.iter().filter(|(key, ..)| block.has(*key)).map(|(key, _, value)| (*key, *value)).collect();
        let Block { mask, first } = block;
        let bits = bits(key_bits, keys.len());
        let mut best: Option<(Hash, Vec<u32>)> = None;
        for multiplier in MULTIPLIERS {
            let hash = Hash { key_bits, bits, multiplier, mask, first };
            let overflow = overflow(&hash, &keys);
            let is_good = overflow.len() <= keys.len() / OVERFLOW;
            if best.as_ref().is_none_or(|(_, least)| overflow.len() < least.len()) {
                best = Some((hash, overflow));
            }
            if is_good {
                break;
            }
        }
        best.map(|(hash, overflow)| Self { hash, keys, overflow })
    }

    /// Whether `prefix` is one of its keys, be there room for it or not.
    fn has<A: Address>(&self, prefix: &Prefix<A>) -> bool {
        let Hash { key_bits, .. } = self.hash;
        prefix.len() == key_bits && self.hash.takes(key(prefix.addr(), key_bits))
    }

    /// Keys that it will have.
    pub fn count(&self) -> usize {
        self.keys.len() - self.overflow.len()
    }

    /// Builds it aside.
    pub fn build<G: Grace>(&self, builder: &mut Builder<'_, G>) -> Result<Exact, Error> {
        let hash = &self.hash;
        let slots = builder.nodes.allocate(exact_block(0, hash.bits).units)?.at * UNIT;
        let mut first = slots_before(hash, self.kept());
        let mut sorted: Vec<(Key, u32)> = alloc::vec![([0; 2], 0); self.count()];
        for (key, value) in self.kept() {
            let place = &mut first[hash.slot(hash.of(*key))];
            sorted[*place as usize] = (*key, *value);
            *place += 1;
        }
        // Each has become the first of the next.
        let mut from = 0;
        for (slot, until) in first[..1 << hash.bits].iter().enumerate() {
            let mut entries: [Entry; BUCKET] = Default::default();
            let keys = &sorted[from as usize..*until as usize];
            for (entry, (key, value)) in entries.iter_mut().zip(keys) {
                *entry = (hash.name(*key, hash.of(*key)), *value);
            }
            let word =
                if keys.is_empty() { 0 } else { builder.nodes.bucket(hash, &entries[..keys.len()])? };
            builder.nodes.words[slots as usize / 4 + slot].store(word, Ordering::Relaxed);
            from = *until;
        }
        Ok(Exact { hash: *hash, slots, count: self.count(), has_all: false, vacated: 1 })
    }

    /// Those that find room.
    fn kept(&self) -> impl Iterator<Item = &(Key, u32)> {
        let mut overflow = self.overflow.iter().copied().peekable();
        (0..).zip(&self.keys).filter(move |(at, _)| overflow.next_if_eq(at).is_none()).map(|(_, key)| key)
    }
}

/// The prefixes of `prefix_store` that `plan` leaves to the root, in order.
pub(super) fn others<A: Address>(
    plan: Option<&Plan>,
    prefix_store: &PrefixStore<A>,
) -> impl Iterator<Item = (Prefix<A>, u32)> {
    let overflow = plan.map_or(&[][..], |plan| &plan.overflow);
    let mut overflow = overflow.iter().copied().peekable();
    let mut at = 0..;
    prefix_store.iter().filter(move |(prefix, _)| {
        let is_key = plan.is_some_and(|plan| plan.has(prefix));
        !is_key || at.next().is_some_and(|at| overflow.next_if_eq(&at).is_some())
    })
}

/// For each word, how many keys have words before it; and how many there are.
fn slots_before<'a>(hash: &Hash, keys: impl Iterator<Item = &'a (Key, u32)>) -> Vec<u32> {
    let mut before = alloc::vec![0u32; (1 << hash.bits) + 1];
    for (key, _) in keys {
        before[hash.slot(hash.of(*key)) + 1] += 1;
    }
    let mut sum = 0;
    for count in &mut before {
        sum += *count;
        *count = sum;
    }
    before
}

/// The keys that have no room in their buckets.
fn overflow(hash: &Hash, keys: &[(Key, u32)]) -> Vec<u32> {
    let mut counts = alloc::vec![0u8; 1 << hash.bits];
    let mut overflow = Vec::new();
    for (at, (key, _)) in keys.iter().enumerate() {
        let count = &mut counts[hash.slot(hash.of(*key))];
        if usize::from(*count) == BUCKET {
            overflow.push(at as u32);
        } else {
            *count += 1;
        }
    }
    overflow
}

/// A change of a key that the hash table has or will have.
struct Keyed {
    /// Index of the key's word.
    word: usize,
    name: Key,
    value: Option<u32>,
}

/// The words that changes of a hash table lead to.
#[derive(Default)]
pub(super) struct Swings {
    /// Of keys that come or get another value. They are published before the words of shorter prefixes, which may go.
    pub early: Vec<PublishedWord>,
    /// Of keys that go. They are published after the words of shorter prefixes, which may come.
    pub late: Vec<PublishedWord>,
    /// [`Exact::vacated`] after the change.
    pub vacated: u32,
}

/// Builds what `changes`, all of prefixes that `exact` has or will have, make of it.
pub(super) fn change<A: Address, G: Grace>(
    builder: &mut Builder<'_, G>,
    exact: &Exact,
    changes: &[Change<A>],
) -> Result<Swings, Error> {
    let keyed = changes.iter().filter_map(|change| {
        let (word, name) = exact.place(&change.prefix)?;
        Some(Keyed { word, name, value: change.new })
    });
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_by_key(|keyed| keyed.word);
    let mut swings = Swings { vacated: exact.vacated, ..Swings::default() };
    for group in keyed.chunk_by(|one, two| one.word == two.word) {
        let word = group[0].word;
        let mut old = builder.nodes.words[word].load(Ordering::Relaxed);
        let mut entries: Vec<Entry> = exact.hash.entries(builder.nodes.words, old).collect();
        let swing = |builder: &mut Builder<'_, G>, old: u32, entry: u32, to: &mut Vec<PublishedWord>| {
            builder.nodes.replaced.extend(exact.hash.block(old));
            to.push(PublishedWord { word, entry });
        };
        let stays = group.iter().filter_map(|keyed| Some((keyed.name, keyed.value?)));
        let mut is_changed = false;
        for (name, value) in stays {
            match entries.iter_mut().find(|(found, _)| *found == name) {
                Some(entry) => entry.1 = value,
                None => entries.push((name, value)),
            }
            is_changed = true;
        }
        if is_changed {
            let entry = builder.nodes.bucket(&exact.hash, &entries)?;
            swing(builder, old, entry, &mut swings.early);
            old = entry;
        }
        let most = entries.len();
        entries.retain(|(name, _)| !group.iter().any(|keyed| keyed.value.is_none() && keyed.name == *name));
        if entries.len() < most {
            let entry = if entries.is_empty() {
                let vacated = swings.vacated;
                swings.vacated = vacated.wrapping_add(1) & VALUE_MAX;
                vacated
            } else {
                builder.nodes.bucket(&exact.hash, &entries)?
            };
            swing(builder, old, entry, &mut swings.late);
        }
    }
    Ok(swings)
}

/// Parts `changes` into those of the root and those of the hash table, each in order.
pub(super) fn divide<A: Address>(
    words: &[AtomicU32],
    exact: &Exact,
    changes: Vec<Change<A>>,
) -> (Vec<Change<A>>, Vec<Change<A>>) {
    // Keys that come to a word with this change.
    let mut arrivals = BTreeMap::<usize, usize>::new();
    changes.into_iter().partition(|change| {
        let Some((word, name)) = exact.place(&change.prefix) else { return true };
        if exact.entries(words, word).any(|(found, _)| found == name) {
            return false;
        }
        // One that was there before has found no room.
        if change.old.is_some() {
            return true;
        }
        let arrivals = arrivals.entry(word).or_default();
        let has_room = exact.entries(words, word).count() + *arrivals < BUCKET;
        *arrivals += usize::from(has_room);
        !has_room
    })
}
