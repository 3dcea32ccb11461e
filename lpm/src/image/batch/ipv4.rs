//! Batches of IPv4 by AVX2. Loads are made one by one, each stage for all addresses, so that the processor waits for many at once. No
//! branch depends on a single address. Lanes only choose, at the end of the stages, which of two loaded numbers counts.

use super::super::layout::{LEAF6, NODE6, RANGES, REF_KIND_SHIFT, REF_OFFSET, TableHeader, node_ref};
use super::super::lookup::{CODES6, TableReader};
use super::super::words::{ahead, near, near_code, near64, ones, popcount};
use crate::Address;
use core::arch::x86_64::*;
use core::hint::select_unpredictable;
use core::mem::offset_of;
use core::sync::atomic::Ordering;

/// Numbers in a register.
const LANES: usize = 8;

/// Longest matches of IPv4 addresses; 0 = none.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn batch4<A: Address>(table: &TableReader<'_, A>, addrs: &[A], values: &mut [u32]) {
    if table.is_coded() {
        chunks::<A, true>(table, addrs, values);
    } else {
        chunks::<A, false>(table, addrs, values);
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn chunks<A: Address, const IS_CODED: bool>(table: &TableReader<'_, A>, addrs: &[A], values: &mut [u32]) {
    let ((many, addrs), (of_many, values)) = (addrs.as_chunks(), values.as_chunks_mut());
    many.iter().zip(of_many).for_each(|(addrs, values)| chunk::<A, IS_CODED, 64>(table, addrs, values));
    let ((some, addrs), (of_some, values)) = (addrs.as_chunks(), values.as_chunks_mut());
    some.iter().zip(of_some).for_each(|(addrs, values)| chunk::<A, IS_CODED, 16>(table, addrs, values));
    table.one_by_one(addrs, values);
}

/// The root and one node of the kind that the table has mostly, which is all that nearly every address takes. The others go on
/// node by node.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn chunk<A: Address, const IS_CODED: bool, const N: usize>(
    table: &TableReader<'_, A>,
    addrs: &[A; N],
    values: &mut [u32; N],
) {
    let usual = const { node_ref(if IS_CODED { LEAF6 } else { NODE6.id }, 0) };
    let key = |i: usize| (addrs[i].word_at(0) >> 32) as u32;
    let (bits, end) = (table.bits, table.reader.end);
    // How far the slots behind an address's own are shifted out of a bitmap: of each number, the last six bits.
    let (mut slots, mut behind) = ([0; N], [0; N]);
    for i in 0..N {
        slots[i] = key(i) >> 1 >> (31 - bits);
        behind[i] = !(key(i) >> (26 - bits));
    }
    let (mut entries, mut units, mut all) = ([0; N], [0; N], end);
    // By fours, which the compiler unrolls.
    for four in (0..N).step_by(4) {
        for i in four..four + 4 {
            let entry = table.slot(slots[i] as usize).load(Ordering::Acquire);
            // The guard stands for everything else: values, other nodes, nodes outside the image.
            let unit = entry.wrapping_sub(usual).min(end);
            ahead(table.reader.words, unit as usize * 2);
            (entries[i], units[i]) = (entry, unit);
            all &= unit;
        }
    }
    // A number that is less than `end` lacks one of its bits.
    if all != end {
        for four in (0..N).step_by(4) {
            for i in four..four + 4 {
                // SAFETY: no unit is behind the first of the guard.
                values[i] = unsafe { table.bitmap4::<IS_CODED>(units[i], behind[i]) };
            }
        }
    }
    let mut left = 0;
    for (part, values) in values.as_chunks_mut().0.iter_mut().enumerate() {
        let is_other = _mm256_cmpeq_epi32(load(units.as_chunks().0[part]), _mm256_set1_epi32(end as i32));
        let found = _mm256_blendv_epi8(load(*values), load(entries.as_chunks().0[part]), is_other);
        left |= u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(found)) as u8) << (part * LANES);
        store(values, found);
    }
    if left != 0 {
        go_on(table, addrs, &entries, &behind, left, values);
    }
    let fallback = table.fallback;
    for value in &mut *values {
        *value = if *value == 0 { fallback } else { *value };
    }
    // After all that was looked at; see `TableReader::lookup`.
    if table.has_changed() {
        table.lookups_again(addrs, values);
    }
}

/// Goes on from the root's `entries` of the addresses `left`.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn go_on<A: Address, const N: usize>(
    table: &TableReader<'_, A>,
    addrs: &[A; N],
    entries: &[u32; N],
    behind: &[u32; N],
    mut left: u64,
    values: &mut [u32; N],
) {
    let key = |i: usize, depth: u32| (addrs[i].word_at(0) >> 32 << depth) as u32;
    let (end, mut depth) = (table.reader.end, table.bits);
    let mut tails = 0;
    for i in ones::<N>(left) {
        values[i] = entries[i];
        tails |= u64::from(is_tail(entries[i])) << i;
    }
    let mut next = 0;
    for i in ones::<N>(left & !tails) {
        let unit = values[i].wrapping_sub(const { node_ref(NODE6.id, 0) }).min(end);
        // SAFETY: see above.
        values[i] = unsafe { table.bitmap4::<false>(unit, behind[i]) };
        next |= u64::from(values[i] >> 31) << i;
    }
    loop {
        for i in ones::<N>(tails) {
            values[i] = table.reader.tail4(values[i], key(i, depth) >> 16);
        }
        depth += u32::from(NODE6.stride);
        if next == 0 || depth >= u32::BITS {
            break;
        }
        (left, next, tails) = (next, 0, 0);
        for i in ones::<N>(left) {
            let entry = values[i];
            // SAFETY: the processor has the instruction.
            let found = unsafe { table.any_bitmap4(entry, !(key(i, depth) >> 26)) };
            values[i] = select_unpredictable(is_tail(entry), entry, found);
            tails |= u64::from(is_tail(entry)) << i;
            next |= u64::from(values[i] >> 31) << i;
        }
        next &= !tails;
    }
    // Nodes below the last key bit: a damaged image.
    ones::<N>(next).for_each(|i| values[i] = 0);
}

impl<A: Address> TableReader<'_, A> {
    /// Whether the table has a palette, so that most of its bitmap nodes are leaf6.
    fn is_coded(&self) -> bool {
        self.root[offset_of!(TableHeader, palette) / 4].load(Ordering::Relaxed) != 0
    }

    /// The value or ref that the leaf6 (`IS_CODED`) or node6 at `unit` has for a slot. The slots behind it are shifted out of the bitmap: by the last six
    /// bits of `behind`.
    ///
    /// # Safety
    ///
    /// `unit` is at most the first one of the guard, and the processor has the instruction for [`popcount`].
    #[inline(always)]
    unsafe fn bitmap4<const IS_CODED: bool>(&self, unit: u32, behind: u32) -> u32 {
        let (words, node) = (self.reader.words, unit as usize * 2);
        // SAFETY: no such node is longer than the guard.
        unsafe {
            let run = popcount(near64(words, node).wrapping_shl(behind));
            if IS_CODED {
                self.palette[near_code::<CODES6>(words, node, run)].load(Ordering::Acquire)
            } else {
                near(words, node + run + 1)
            }
        }
    }

    /// [`TableReader::bitmap4`] of the node that `entry` leads to, whichever of the two it is, without a branch.
    ///
    /// # Safety
    ///
    /// The processor has the instruction for [`popcount`].
    #[inline(always)]
    unsafe fn any_bitmap4(&self, entry: u32, behind: u32) -> u32 {
        const IS_LEAF: u32 = LEAF6 << REF_KIND_SHIFT;
        let words = self.reader.words;
        let node = (entry & REF_OFFSET).min(self.reader.end) as usize * 2;
        // SAFETY: as in `bitmap4`.
        unsafe {
            let run = popcount(near64(words, node).wrapping_shl(behind));
            let is_leaf = entry & IS_LEAF != 0;
            let word = near(words, node + select_unpredictable(is_leaf, (run + 7) / 4, run + 1));
            let code = word.wrapping_shr(8 * (run as u32 + 7)) & 0xff;
            let value = self.palette[code as usize].load(Ordering::Acquire);
            select_unpredictable(is_leaf, value, word)
        }
    }
}

/// Whether `entry` leads to a ranges node.
fn is_tail(entry: u32) -> bool {
    entry >= node_ref(RANGES, 0)
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(numbers: [u32; LANES]) -> __m256i {
    // SAFETY: eight numbers.
    unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(numbers: &mut [u32; LANES], lanes: __m256i) {
    // SAFETY: eight numbers.
    unsafe { _mm256_storeu_si256(numbers.as_mut_ptr().cast(), lanes) }
}
