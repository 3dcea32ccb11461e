//! A table's root in the image: building it whole, and repainting the part of it that short prefixes cover.

use super::exact::{Plan, others};
use crate::image::Error;
use crate::image::build::{DIRECT_MIN, ROOT_IPV6};
use crate::image::exact::Exact;
use crate::image::layout::{
    DIRECT_BITS, EXACT, Kind, LINE, PALETTE, RANGES_BITS, REF_NODE, REF_OFFSET, TableHeader, UNIT,
};
use crate::image::palette::Palette;
use crate::image::runs::PublishedWord;
use crate::image::space::PoolId;
use crate::image::walk::table_block;
use crate::image::words::ahead;
use crate::prefix_store::{Change, PrefixStore};
use crate::{Address, Grace, Image, Memory, Prefix};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

/// Where a table is in the image.
#[derive(Debug)]
pub(super) struct Root {
    /// Offset of slot 0, bytes.
    pub at: u32,
    /// Address bits that index it.
    pub bits: u16,
    /// The pool that its nodes are cut from.
    pub pool: PoolId,
    /// For each slot, the length of the longest prefix shorter than `bits` that covers it; 0 = none but that of length 0.
    cover: Vec<u8>,
    /// For each slot, the prefixes longer than `bits` below it. Only of a root that may have direct12 below it.
    inside: Vec<u32>,
    /// Slots that have a direct12.
    pub directs: usize,
    /// Whether the memory held none for a slot. Then they stay as they are until the next root.
    is_refused: bool,
    /// Prefixes when it was built, or when another root was considered last.
    prefixes: usize,
    pub palette: Option<Box<Palette>>,
    /// The hash table of prefixes of full length.
    pub exact: Option<Exact>,
    /// Prefixes of full length when it was built.
    pub full: usize,
    /// Those of them that stood below the root.
    pub full_below: usize,
}

/// Root bits for a table of `prefixes`: a small table must be small (1 KiB up to 64 prefixes), a large one shallow. Of a small one in
/// which some are longer than [`DEEP_FROM`] it is 4 KiB, which spares those a node.
pub(super) fn root_bits<A: Address>(prefixes: usize, is_deep: bool) -> u16 {
    match (A::FAMILY, prefixes) {
        (4, ..=64) if is_deep => 10,
        (4, ..=64) | (0 | 6, ..=256) => 8,
        (4, ..=4096) => 12,
        (6, _) => ROOT_IPV6,
        (4, ..=200_000) | (0, _) => 16,
        (_, ..=2_000_000) => 18,
        _ => 20,
    }
}

/// How large a root `others` and `keys` of a hash table take, as a number of prefixes. A change of a prefix passes over all that share its root
/// slot, keys too.
pub(super) fn weight(others: usize, keys: usize) -> usize {
    others.max(keys / 16)
}

/// A root to be built.
struct Shape {
    bits: u16,
    /// In a pool of its own.
    has_own: bool,
    inside: Vec<u32>,
    direct_min: usize,
}

impl Shape {
    /// Without direct12.
    fn plain(bits: u16, has_own: bool) -> Self {
        Self { bits, has_own, inside: Vec::new(), direct_min: usize::MAX }
    }

    /// As a root of IPv6 with direct12 below it, if most of these prefixes are below one then. Else as wide as without them.
    fn with_direct<A: Address>(prefixes: impl Iterator<Item = Prefix<A>>, has_own: bool) -> Self {
        let mut inside = alloc::vec![0; 1 << ROOT_IPV6];
        for prefix in prefixes.filter(|prefix| prefix.len() > ROOT_IPV6) {
            inside[prefix.addr().bits_at(0, ROOT_IPV6)] += 1;
        }
        match least_for_direct(&inside) {
            Some(direct_min) => Self { bits: ROOT_IPV6, has_own, inside, direct_min },
            None => Self::plain(WIDE_IPV6, has_own),
        }
    }
}

/// Bits of the root of an IPv6 table whose prefixes are spread over all addresses.
const WIDE_IPV6: u16 = 16;

/// So many direct12 take as much memory as such a root has more than another.
const SPARED: usize = ((4 << WIDE_IPV6) - (4 << ROOT_IPV6)) / (4 << DIRECT_BITS);

/// So many prefixes in a slot are worth a direct12, however many others have one.
const ALWAYS_DIRECT: u32 = 1024;

/// The longest prefix whose key bits behind a root of 8 bits one node tells apart.
pub(super) const DEEP_FROM: u16 = 8 + RANGES_BITS;

/// A table of fewer prefixes saves nothing by a palette.
const PALETTE_MIN: usize = 4096;

/// A table of more prefixes has chunks of its own.
const OWN_MIN: usize = 4096;

impl Root {
    /// The root of a table before it is built.
    pub const NONE: Self = Self {
        at: 0,
        bits: 0,
        pool: PoolId::SHARED,
        cover: Vec::new(),
        inside: Vec::new(),
        directs: 0,
        is_refused: false,
        prefixes: 0,
        palette: None,
        exact: None,
        full: 0,
        full_below: 0,
    };

    /// Index of a slot's word in the image.
    pub fn index(&self, slot: usize) -> usize {
        self.at as usize / 4 + slot
    }

    /// A word of the table's header.
    pub fn header<'a>(&self, words: &'a [AtomicU32], field: usize) -> &'a AtomicU32 {
        &words[self.header_at(field)]
    }

    /// Its index in the image.
    pub fn header_at(&self, field: usize) -> usize {
        (self.at as usize - size_of::<TableHeader>() + field) / 4
    }

    /// Asks for what a change of `prefix` looks at: at first, or in one of the next two steps.
    pub fn ahead<A: Address>(&self, words: &[AtomicU32], prefix: &Prefix<A>, step: usize) {
        let place = self.exact.as_ref().and_then(|exact| exact.place(prefix));
        let word = place.map_or_else(|| self.index(prefix.addr().bits_at(0, self.bits)), |(word, _)| word);
        if step == 0 {
            return ahead(words, word);
        }
        let entry = words[word].load(Ordering::Relaxed);
        let node = ((entry & REF_OFFSET) * UNIT / 4) as usize;
        let is_direct = place.is_none() && Kind::of_family(A::FAMILY).is_direct(entry);
        match step {
            1 if is_direct => ahead(words, node + prefix.addr().bits_at(self.bits, DIRECT_BITS)),
            1 => ahead_of_node(words, entry),
            2 if is_direct => {
                let word = node + prefix.addr().bits_at(self.bits, DIRECT_BITS);
                ahead_of_node(words, words[word].load(Ordering::Relaxed));
            }
            _ => {}
        }
    }

    /// Builds table `id` aside and publishes it for all addresses at once. `has_own`: in a pool of its own, also if it is small.
    pub fn build<M: Memory, G: Grace, A: Address>(
        image: &mut Image<M, G>,
        id: u32,
        key_bits: u16,
        prefix_store: &PrefixStore<A>,
        has_own: bool,
    ) -> Result<Self, Error> {
        let plan = Plan::of(prefix_store, key_bits);
        let is_deep = || prefix_store.iter().any(|(prefix, _)| prefix.len() > DEEP_FROM);
        let has_own = has_own || prefix_store.len() > OWN_MIN;
        let mut build = |plan: Option<&Plan>| {
            let keys = plan.map_or(0, Plan::count);
            let weight = weight(prefix_store.len() - keys, keys);
            let bits = root_bits::<A>(weight, weight <= 64 && plan.is_none() && is_deep());
            let shape = match (A::FAMILY, bits) {
                (6, ROOT_IPV6) => {
                    Shape::with_direct(others(plan, prefix_store).map(|(prefix, _)| prefix), has_own)
                }
                _ => Shape::plain(bits, has_own),
            };
            match Self::build_of(image, id, key_bits, prefix_store, plan, shape) {
                // So many chunks in a row are not always there.
                Err(Error::Full { .. }) if bits > 18 => {
                    Self::build_of(image, id, key_bits, prefix_store, plan, Shape::plain(18, has_own))
                }
                built => built,
            }
        };
        match build(plan.as_ref()) {
            // Neither for a hash table's words.
            Err(Error::Full { .. }) if plan.is_some() => build(None),
            built => built,
        }
    }

    /// As [`Root::build`], but deeper where the memory holds no shallow one, and cut from chunks that it shares with others.
    pub fn build_in_little<M: Memory, G: Grace, A: Address>(
        image: &mut Image<M, G>,
        id: u32,
        key_bits: u16,
        prefix_store: &PrefixStore<A>,
    ) -> Result<Self, Error> {
        let mut built = Self::build(image, id, key_bits, prefix_store, false);
        let plan =
            matches!(built, Err(Error::Full { .. })).then(|| Plan::of(prefix_store, key_bits)).flatten();
        let with_plan = plan.as_ref().map(|plan| [16, 12, 8].map(|bits| (Some(plan), bits)));
        let without = [16, 12, 8].map(|bits| (None, bits));
        for (plan, bits) in with_plan.into_iter().flatten().chain(without) {
            let is_smaller =
                bits <= root_bits::<A>(prefix_store.len(), false) && (bits != 12 || A::FAMILY != 0);
            if is_smaller && matches!(built, Err(Error::Full { .. })) {
                let shape = Shape::plain(bits, false);
                built = Self::build_of(image, id, key_bits, prefix_store, plan, shape);
            }
        }
        built
    }

    fn build_of<M: Memory, G: Grace, A: Address>(
        image: &mut Image<M, G>,
        id: u32,
        key_bits: u16,
        prefix_store: &PrefixStore<A>,
        plan: Option<&Plan>,
        shape: Shape,
    ) -> Result<Self, Error> {
        let Shape { bits, has_own, inside, direct_min } = shape;
        let count = 1usize << bits;
        let in_all = prefix_store.len() - plan.map_or(0, Plan::count);
        let all = || others(plan, prefix_store);
        let has_palette = A::FAMILY != 0 && in_all > PALETTE_MIN;
        let painted = || all().filter(|(prefix, _)| prefix.len() > 0).map(|(_, value)| value);
        let mut palette = has_palette.then(|| Palette::of(painted())).flatten().map(Box::new);
        let (mut cover, mut values) = (alloc::vec![0; count], alloc::vec![0; count]);
        let mut long = Vec::with_capacity(in_all);
        let mut full = plan.map_or(0, Plan::count);
        for (prefix, value) in all() {
            full += usize::from(prefix.len() == key_bits);
            if prefix.len() >= bits {
                long.push((prefix, value));
            } else if prefix.len() > 0 {
                // Sorted order paints a covering prefix before those it covers.
                let slots = slots_of(&prefix, bits);
                cover[slots.clone()].fill(prefix.len() as u8);
                values[slots].fill(value);
            }
        }

        // A large table is freed by its chunks; a small one would leave most of a chunk empty.
        let pool = if has_own { image.space.new_pool() } else { PoolId::SHARED };
        let mut builder = image.builder::<A>(pool, palette.as_deref(), None);
        builder.nodes.direct_min = direct_min;
        let mut build = || {
            let exact = plan.map(|plan| plan.build(&mut builder)).transpose()?;
            let units = table_block(LINE, bits, builder.nodes.palette.is_some()).units;
            let at = builder.nodes.allocate(units)?.at * UNIT + LINE;
            let mut long = &long[..];
            for (slot, value) in values.iter().enumerate() {
                let is_inside = |(prefix, _): &&(Prefix<A>, u32)| prefix.addr().bits_at(0, bits) == slot;
                let (inside, behind) = long.split_at(long.iter().take_while(is_inside).count());
                let entry = builder.subtree(inside, bits, *value)?;
                builder.nodes.words[at as usize / 4 + slot].store(entry, Ordering::Relaxed);
                long = behind;
            }
            Ok((at, exact))
        };
        let (at, exact) = match build() {
            Ok(built) => built,
            Err(error) => {
                let error = builder.abandon(error);
                if pool != PoolId::SHARED {
                    image.space.discard(pool);
                }
                return Err(error);
            }
        };
        let words = image.memory.words();
        if let Some(palette) = &mut palette {
            palette.place(words, at as usize / 4 + count);
        }
        let full_below = full - plan.map_or(0, Plan::count);
        let prefixes = prefix_store.len();
        let mut root = Self {
            at,
            bits,
            pool,
            cover,
            inside,
            directs: 0,
            is_refused: false,
            prefixes,
            palette,
            exact,
            full,
            full_below,
        };
        root.directs = (0..root.inside.len()).filter(|slot| root.has_direct::<A>(words, *slot)).count();
        let fallback = prefix_store.get(&Prefix::truncated(A::ZERO, 0)).unwrap_or(0);
        let family = A::FAMILY | if root.exact.is_some() { EXACT } else { 0 };
        let header = [
            (offset_of!(TableHeader, fallback), fallback),
            (
                offset_of!(TableHeader, key_family),
                u32::from(family) | u32::from(bits) << 8 | u32::from(key_bits) << 16,
            ),
            (offset_of!(TableHeader, prefixes), prefix_store.len() as u32),
            (offset_of!(TableHeader, root_bytes), 4 * count as u32),
            (offset_of!(TableHeader, palette), if root.palette.is_some() { PALETTE as u32 } else { 0 }),
        ];
        for word in (0..size_of::<TableHeader>()).step_by(4) {
            root.header(words, word).store(0, Ordering::Relaxed);
        }
        for (field, value) in header {
            root.header(words, field).store(value, Ordering::Relaxed);
        }
        if let Some(Exact { hash, slots, .. }) = &root.exact {
            let word = |field: usize, value: u32| root.header(words, field).store(value, Ordering::Relaxed);
            let long = |field: usize, value: u64| {
                word(field, value as u32);
                word(field + 4, (value >> 32) as u32);
            };
            word(offset_of!(TableHeader, exact), slots | u32::from(hash.bits));
            long(offset_of!(TableHeader, multiplier), hash.multiplier[0]);
            long(offset_of!(TableHeader, multiplier) + 8, hash.multiplier[1]);
            long(offset_of!(TableHeader, mask), hash.mask);
            long(offset_of!(TableHeader, first), hash.first);
        }
        image.publish_directory(id, at | u32::from(bits));
        Ok(root)
    }

    /// Whether a prefix of `len` bits, fewer than the root's, is the longest such that covers `slot`, or would be.
    pub fn is_cover(&self, slot: usize, len: u16) -> bool {
        u16::from(self.cover[slot]) <= len
    }

    /// Whether slots may have a direct12, so that their prefixes are counted.
    #[inline]
    pub fn has_counts(&self) -> bool {
        !self.inside.is_empty()
    }

    /// Counts prefixes below the root that come or go with `changes`, or takes that back.
    #[inline]
    pub fn count<A: Address>(&mut self, changes: &[Change<A>], is_done: bool) {
        let counted = if self.has_counts() { changes } else { &[] };
        for change in counted.iter().filter(|change| change.prefix.len() > self.bits) {
            let (old, new) = if is_done { (change.old, change.new) } else { (change.new, change.old) };
            let count = &mut self.inside[change.prefix.addr().bits_at(0, self.bits)];
            *count = *count + u32::from(new.is_some()) - u32::from(old.is_some());
        }
    }

    /// The bits of a root for as many prefixes as this one is for, if they are not spread.
    pub fn least_bits<A: Address>(&self) -> u16 {
        if A::FAMILY == 6 { self.bits.min(ROOT_IPV6) } else { self.bits }
    }

    /// Whether a root of IPv6 with direct12, or one without, may be better by now. It considers that each time that the `prefixes` have
    /// doubled.
    pub fn consider_shape<A: Address>(&mut self, prefixes: usize) -> bool {
        if A::FAMILY != 6 || self.bits < ROOT_IPV6 || prefixes < 2 * self.prefixes {
            return false;
        }
        self.prefixes = prefixes;
        !self.has_counts() || least_for_direct(&self.inside).is_none()
    }

    /// Whether a slot leads to a direct12.
    fn has_direct<A: Address>(&self, words: &[AtomicU32], slot: usize) -> bool {
        Kind::of_family(A::FAMILY).is_direct(words[self.index(slot)].load(Ordering::Relaxed))
    }

    /// How many slots lose their direct12 when `published_words` are stored.
    pub fn lost<A: Address>(&self, words: &[AtomicU32], published_words: &[PublishedWord]) -> usize {
        if self.directs == 0 {
            return 0;
        }
        let kind = Kind::of_family(A::FAMILY);
        let slots = self.index(0)..self.index(self.inside.len());
        let is_lost = |published: &&PublishedWord| {
            slots.contains(&published.word)
                && kind.is_direct(words[published.word].load(Ordering::Relaxed))
                && !kind.is_direct(published.entry)
        };
        published_words.iter().filter(is_lost).count()
    }

    /// Gives a direct12 to slots that have many more prefixes by now, and takes it from those that have few. It is for their speed and memory
    /// only. So a change that was made before is not undone if the memory holds none.
    #[inline(never)]
    pub fn settle<M: Memory, G: Grace, A: Address>(
        &mut self,
        image: &mut Image<M, G>,
        prefix_store: &PrefixStore<A>,
        changes: &[Change<A>],
    ) {
        for slot in self.unsettled(image.memory.words(), changes) {
            let (word, bits) = (self.index(slot), self.bits);
            let has_direct = self.has_direct::<A>(image.memory.words(), slot);
            let mut builder = image.builder::<A>(self.pool, self.palette.as_deref(), self.exact.as_ref());
            builder.nodes.direct_min = if has_direct { usize::MAX } else { 1 };
            match builder.anew(prefix_store, A::from_index(slot, bits), word, bits) {
                Ok(entry) => {
                    entry.into_iter().for_each(|entry| builder.store(word, entry));
                    builder.retire();
                    self.directs = if has_direct { self.directs - 1 } else { self.directs + 1 };
                }
                Err(error) => {
                    builder.abandon(error);
                    self.is_refused = true;
                    return;
                }
            }
        }
    }

    /// Slots near `changes` that are to get a direct12 or to lose it.
    fn unsettled<A: Address>(&self, words: &[AtomicU32], changes: &[Change<A>]) -> Vec<usize> {
        let mut slots = Vec::new();
        if self.is_refused {
            return slots;
        }
        for Change { prefix, .. } in changes {
            let near = Prefix::truncated(prefix.addr(), prefix.len().min(self.bits));
            // By a short prefix alone no slot gets or loses any.
            if near.len() == self.bits || changes.len() > 1 {
                slots.extend(slots_of(&near, self.bits).filter(|slot| self.is_unsettled::<A>(words, *slot)));
            }
        }
        slots.sort_unstable();
        slots.dedup();
        // Not more than there is room for.
        let mut room = SPARED.saturating_sub(self.directs);
        slots.retain(|slot| {
            let is_small = !self.has_direct::<A>(words, *slot) && self.inside[*slot] < ALWAYS_DIRECT;
            let fits = !is_small || room > 0;
            room -= usize::from(is_small && fits);
            fits
        });
        slots
    }

    fn is_unsettled<A: Address>(&self, words: &[AtomicU32], slot: usize) -> bool {
        const MIN: u32 = DIRECT_MIN as u32;
        let most = if self.directs < SPARED { 2 * MIN } else { ALWAYS_DIRECT };
        match self.inside[slot] {
            count if count >= most => !self.has_direct::<A>(words, slot),
            count if count < MIN / 2 && self.directs > 0 => self.has_direct::<A>(words, slot),
            _ => false,
        }
    }

    /// Brings [`Root::is_cover`] in line with a change of a prefix shorter than the root's bits.
    pub fn note<A: Address>(&mut self, prefix_store: &PrefixStore<A>, change: &Change<A>) {
        let (prefix, len) = (change.prefix, change.prefix.len() as u8);
        let slots = &mut self.cover[slots_of(&prefix, self.bits)];
        if change.new.is_some() {
            slots.iter_mut().for_each(|cover| *cover = len.max(*cover));
        } else {
            let above =
                prefix.len().checked_sub(1).and_then(|most| prefix_store.longest(prefix.addr(), most));
            let above = above.map_or(0, |(above, _)| above.len() as u8);
            slots.iter_mut().filter(|cover| **cover == len).for_each(|cover| *cover = above);
        }
    }
}

/// Asks for the first two lines of the node that `entry` leads to, if it does.
fn ahead_of_node(words: &[AtomicU32], entry: u32) {
    let node = ((entry & REF_OFFSET) * UNIT / 4) as usize;
    if entry & REF_NODE != 0 {
        ahead(words, node);
        ahead(words, node + 16);
    }
}

/// The least number of prefixes in a slot of a root of IPv6 that are worth a direct12. None: most prefixes would not be below one. `inside`
/// has the slots' numbers.
///
/// All of them together take no more than the root of 16 bits that they spare, or else 16 bytes a prefix.
fn least_for_direct(inside: &[u32]) -> Option<usize> {
    let all: usize = inside.iter().map(|count| *count as usize).sum();
    let mut largest = inside.to_vec();
    largest.sort_unstable_by(|one, two| two.cmp(one));
    let at_most = largest[SPARED].saturating_add(1).min(ALWAYS_DIRECT);
    let least = (at_most as usize).max(DIRECT_MIN);
    let below = inside.iter().map(|count| *count as usize).filter(|count| *count >= least);
    (2 * below.sum::<usize>() >= all).then_some(least)
}

/// The slots of a root of `bits` bits that `prefix`, which is not longer, covers.
pub(super) fn slots_of<A: Address>(prefix: &Prefix<A>, bits: u16) -> Range<usize> {
    let first = prefix.addr().bits_at(0, bits);
    first..first + (1 << (bits - prefix.len()))
}
