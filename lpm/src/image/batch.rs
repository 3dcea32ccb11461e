//! Many lookups at once: the loads of a chunk of addresses are made stage by stage, so that the processor waits for many at a
//! time, and what lies between is arithmetic on whole arrays.

use super::layout::{self, LEAF6, NODE8, RAW8, REF_NODE, REF_OFFSET, SKIP, VALUE_MAX};
use super::lookup::{Reader, TableReader};
use super::words::{near, near64};
use crate::Address;
use core::sync::atomic::Ordering;

/// Addresses of IPv4 that go through the stages together.
const CHUNK4: usize = 32;
/// Addresses of other kinds that do.
const CHUNK: usize = 16;

impl Reader<'_> {
    /// Longest matches of `addrs` in table `id`, in the same order; 0 = no prefix or no such table. Several times as fast as single
    /// lookups where the table does not fit into the nearest caches.
    ///
    /// Each address sees one state of the table, but not all of them the same one.
    ///
    /// # Panics
    ///
    /// If the slices have different lengths.
    pub fn lookup_batch<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        {
            if std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512dq")
                && std::is_x86_feature_detected!("avx512vl")
                && std::is_x86_feature_detected!("avx512vpopcntdq")
                && std::is_x86_feature_detected!("bmi2")
            {
                // SAFETY: the processor has these features.
                return unsafe { self.batch_avx512(id, addrs, values) };
            }
            if std::is_x86_feature_detected!("avx2")
                && std::is_x86_feature_detected!("bmi2")
                && std::is_x86_feature_detected!("popcnt")
            {
                // SAFETY: the processor has these features.
                return unsafe { self.batch_avx2(id, addrs, values) };
            }
        }
        self.batch(id, addrs, values);
    }

    /// [`Reader::lookup_batch`] by instructions that every processor has; for comparison.
    #[doc(hidden)]
    pub fn lookup_batch_portable<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        self.batch(id, addrs, values);
    }

    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt,bmi1,bmi2,lzcnt")]
    fn batch_avx512<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        self.batch(id, addrs, values);
    }

    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    fn batch_avx2<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        self.batch(id, addrs, values);
    }

    #[inline(always)]
    fn batch<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        let Some(table) = self.table::<A>(id) else { return values.fill(0) };
        let size = if A::FAMILY == 4 { CHUNK4 } else { CHUNK };
        for (addrs, values) in addrs.chunks(size).zip(values.chunks_mut(size)) {
            if addrs.len() < size {
                table.one_by_one(addrs, values);
                continue;
            }
            if A::FAMILY == 4 {
                table.chunk4(addrs, values);
            } else {
                table.chunk8(addrs, values);
            }
            table.fall_back(addrs, values);
        }
    }
}

impl<A: Address> TableReader<'_, A> {
    fn one_by_one(&self, addrs: &[A], values: &mut [u32]) {
        for (addr, value) in addrs.iter().zip(values) {
            *value = self.lookup(*addr).unwrap_or(0);
        }
    }

    /// Gives the table's fallback to those that found nothing, if it is still the same table that they looked in.
    #[inline(always)]
    fn fall_back(&self, addrs: &[A], values: &mut [u32]) {
        let fallback = self.fallback();
        values.iter_mut().for_each(|value| *value = if *value == 0 { fallback } else { *value });
        if !self.is_current() {
            self.one_by_one(addrs, values);
        }
    }

    /// The root's refs of a chunk of addresses.
    #[inline(always)]
    fn roots<const N: usize>(&self, addrs: &[A]) -> [u32; N] {
        let mut entries = [0; N];
        for (entry, addr) in entries.iter_mut().zip(addrs) {
            *entry = self.root(*addr).load(Ordering::Relaxed);
        }
        core::sync::atomic::fence(Ordering::Acquire);
        entries
    }

    /// IPv4: the root and one bitmap node for all, which is all that nearly every address takes; the others walk on alone.
    #[inline(always)]
    fn chunk4(&self, addrs: &[A], values: &mut [u32]) {
        const N: usize = CHUNK4;
        let Reader { words, end, .. } = self.reader;
        let bits = self.bits;
        let entries: [u32; N] = self.roots(addrs);
        let (mut node, mut starts, mut at, mut found) = ([0u32; N], [0u64; N], [0u32; N], [0u32; N]);
        for i in 0..N {
            // Whoever has no bitmap node looks at the image's first words and forgets what it finds.
            let is_bitmap = entries[i] & REF_NODE != 0 && layout::kind_of(entries[i]) <= LEAF6;
            let unit = entries[i] & REF_OFFSET;
            node[i] = if is_bitmap && unit < end { unit * 2 } else { 0 };
        }
        for i in 0..N {
            // SAFETY: a node before `end`, or the image's header.
            starts[i] = unsafe { near64(words, node[i] as usize) };
        }
        for i in 0..N {
            let slot = ((addrs[i].word_at(0) << bits) >> 58) as u32;
            let run = (starts[i] << (63 - slot)).count_ones();
            let is_leaf = layout::kind_of(entries[i]) == LEAF6;
            // A leaf6's byte and where in its word it is, or a node6's word.
            let byte = if is_leaf { 7 + run } else { 4 + 4 * run };
            at[i] = node[i] * 4 + byte;
        }
        for i in 0..N {
            // SAFETY: as above: no bitmap node of IPv4 is longer than the guard.
            found[i] = unsafe { near(words, at[i] as usize / 4) };
        }
        let mut is_leaf_any = 0;
        for i in 0..N {
            let is_leaf = layout::kind_of(entries[i]) == LEAF6;
            found[i] = if is_leaf { found[i] >> (8 * (at[i] % 4)) & 0xff } else { found[i] };
            is_leaf_any |= u32::from(is_leaf);
        }
        if is_leaf_any != 0 {
            for i in 0..N {
                let is_leaf = layout::kind_of(entries[i]) == LEAF6;
                let code = if is_leaf { found[i] } else { 0 };
                let value = self.palette[code as usize & 0xff].load(Ordering::Relaxed);
                found[i] = if is_leaf { value & VALUE_MAX } else { found[i] };
            }
        }
        let mut left = 0u32;
        for i in 0..N {
            let is_value = entries[i] & REF_NODE == 0;
            values[i] = if is_value { entries[i] } else { found[i] };
            let is_other = !is_value && layout::kind_of(entries[i]) > LEAF6;
            left |= u32::from(is_other || values[i] & REF_NODE != 0) << i;
        }
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            values[i] = self.walk(entries[i], addrs[i]);
        }
    }

    /// Other keys: all addresses of the chunk go down together, a node each, until none is left.
    #[inline(always)]
    fn chunk8(&self, addrs: &[A], values: &mut [u32]) {
        const N: usize = CHUNK;
        let Reader { words, end, .. } = self.reader;
        let mut depth = self.bits as u16;
        let mut entries: [u32; N] = self.roots(addrs);
        let (mut node, mut starts, mut slot) = ([0u32; N], [0u64; N], [0u32; N]);
        let (mut before, mut at) = ([0u32; N], [0u32; N]);
        for _ in 0..A::WIDTH.div_ceil(NODE8.stride) {
            let (mut nodes, mut skips) = (0u32, 0u32);
            for i in 0..N {
                let is_node = entries[i] & REF_NODE != 0;
                let is_skip = is_node && layout::kind_of(entries[i]) == SKIP;
                let unit = entries[i] & REF_OFFSET;
                node[i] = if is_node && !is_skip && unit < end { unit * 2 } else { 0 };
                nodes |= u32::from(is_node) << i;
                skips |= u32::from(is_skip) << i;
            }
            if nodes == 0 {
                break;
            }
            for i in 0..N {
                slot[i] = (addrs[i].word_at(depth) >> 56) as u32;
                // SAFETY: a node before `end`, or the image's header; neither is longer than the guard.
                unsafe {
                    starts[i] = near64(words, (node[i] + 2 + 2 * (slot[i] / 64)) as usize);
                    before[i] = near(words, node[i] as usize);
                }
            }
            for i in 0..N {
                let run = (before[i] >> (8 * (slot[i] / 64)) & 0xff)
                    + (starts[i] << (63 - slot[i] % 64)).count_ones();
                let is_raw = layout::kind_of(entries[i]) == RAW8;
                at[i] = node[i] + if is_raw { slot[i] } else { 9 + run };
            }
            let was_node = nodes;
            for i in 0..N {
                // SAFETY: as above: the run counts of a damaged node add up to less than the guard is long.
                let found = unsafe { near(words, at[i] as usize) };
                let is_node = was_node >> i & 1 != 0;
                let is_lost = node[i] == 0; // an offset outside the image
                entries[i] = match (is_node, is_lost) {
                    (true, true) if skips >> i & 1 == 0 => 0,
                    (true, false) => found,
                    _ => entries[i],
                };
            }
            depth = depth.saturating_add(NODE8.stride);
            // One that skips goes the rest of its way alone.
            while skips != 0 {
                let i = skips.trailing_zeros() as usize;
                skips &= skips - 1;
                entries[i] = self.reader.walk8(entries[i], addrs[i], depth - NODE8.stride);
            }
        }
        for (value, entry) in values.iter_mut().zip(entries) {
            *value = if entry & REF_NODE == 0 { entry } else { 0 };
        }
    }
}
