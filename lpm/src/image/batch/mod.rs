//! Many lookups at once: the loads of a chunk of addresses are made stage by stage, so that the processor waits for many at a
//! time, and what lies between is arithmetic on whole arrays.

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx512;

use super::layout::{self, NODE8, RAW8, REF_NODE, REF_OFFSET, SKIP};
use super::lookup::{Reader, TableReader};
use super::words::{near, near64};
use crate::Address;
use core::sync::atomic::Ordering;

/// Addresses that go through the stages together.
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
        if A::FAMILY == 4 && avx512::is_there() {
            return match self.table::<A>(id) {
                // SAFETY: the processor has what it takes.
                Some(table) => unsafe { avx512::batch4(&table, addrs, values) },
                None => values.fill(0),
            };
        }
        self.portable(id, addrs, values);
    }

    /// [`Reader::lookup_batch`] by instructions that every processor has; for comparison.
    #[doc(hidden)]
    pub fn lookup_batch_portable<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        self.portable(id, addrs, values);
    }

    fn portable<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        let Some(table) = self.table::<A>(id) else { return values.fill(0) };
        for (addrs, values) in addrs.chunks(CHUNK).zip(values.chunks_mut(CHUNK)) {
            // IPv4 takes so few steps that the processor overlaps single lookups as well.
            if A::FAMILY == 4 || addrs.len() < CHUNK {
                table.one_by_one(addrs, values);
            } else {
                table.chunk8(addrs, values);
                table.fall_back(addrs, values);
            }
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
        if fallback & layout::REPLACED != 0 {
            return self.one_by_one(addrs, values);
        }
        values.iter_mut().for_each(|value| *value = if *value == 0 { fallback } else { *value });
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
