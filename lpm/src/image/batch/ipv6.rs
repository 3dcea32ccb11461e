//! Batches of IPv6. All addresses of a batch go down together, a node8 each, so that the processor waits for many loads at once. No
//! branch depends on a single address before the end. Few come to a node of another kind; they go on one by one.

use super::super::layout::{LEAF8, NODE8, NODE8_SLOTS, REF_NODE, REF_OFFSET, node_ref};
use super::super::lookup::{CODES8, TableReader};
use super::super::words::{ahead, near, near_code, near64, ones, popcount};
use crate::Address;
use core::arch::x86_64::*;
use core::sync::atomic::Ordering;

/// Bytes of the first 64 bits of a key. A node8 takes one.
const BYTES: usize = 64 / NODE8.stride as usize;

/// Longest matches of IPv6 addresses; 0 = none.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn batch6<A: Address>(table: &TableReader<'_, A>, addrs: &[A], values: &mut [u32]) {
    let ((many, addrs), (of_many, values)) = (addrs.as_chunks(), values.as_chunks_mut());
    many.iter().zip(of_many).for_each(|(addrs, values)| chunk::<A, 64>(table, addrs, values));
    let ((some, addrs), (of_some, values)) = (addrs.as_chunks(), values.as_chunks_mut());
    some.iter().zip(of_some).for_each(|(addrs, values)| chunk::<A, 16>(table, addrs, values));
    table.one_by_one(addrs, values);
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn chunk<A: Address, const N: usize>(table: &TableReader<'_, A>, addrs: &[A; N], values: &mut [u32; N]) {
    const USUAL: u32 = node_ref(NODE8.id, 0);
    const LEAF: u32 = node_ref(LEAF8, 0);
    let (words, end) = (table.reader.words, table.reader.end);
    const { assert!(N <= 64) }
    // A list of the addresses that are at a node8 inside the image. Of each address, how many nodes it has passed, and the key bits that came
    // next at the root.
    let (mut live, mut count, mut steps, mut keys) = ([0u8; N], 0, [0u8; N], [0; N]);
    for (i, addr) in addrs.iter().enumerate() {
        values[i] = table.root(*addr).load(Ordering::Acquire);
        ahead(words, (values[i] & REF_OFFSET) as usize * 2);
        keys[i] = addr.word_at(0) << table.bits;
        live[count] = i as u8;
        count += usize::from(values[i].wrapping_sub(USUAL) < end);
    }
    let slots = Slots::of(&keys);
    // As many steps as the 64 bits suffice for.
    let most = BYTES - (table.bits as usize).div_ceil(8);
    for step in 0..most {
        let mut left = 0;
        for at in 0..count {
            // SAFETY: the list holds N numbers at most, all less than N. The node begins before the guard, which is longer. The processor has
            // the instruction.
            unsafe {
                let i = usize::from(*live.get_unchecked(at));
                let node = values.get_unchecked(i).wrapping_sub(USUAL) as usize * 2;
                let (part, behind) = slots.at(i, step);
                let starts = near64(words, node + 2 * part);
                let run = (starts >> NODE8_SLOTS) as usize + popcount(starts << behind);
                let entry = near(words, node + NODE8.refs as usize / 4 - 1 + run);
                ahead(words, (entry & REF_OFFSET) as usize * 2);
                *values.get_unchecked_mut(i) = entry;
                *steps.get_unchecked_mut(i) = step as u8 + 1;
                *live.get_unchecked_mut(left) = i as u8;
                left += usize::from(entry.wrapping_sub(USUAL) < end);
            }
        }
        count = left;
        if count == 0 {
            break;
        }
    }
    let (mut leaves, mut others) = (0, 0);
    for i in 0..N {
        let is_leaf = values[i].wrapping_sub(LEAF) < end && usize::from(steps[i]) < most;
        leaves |= u64::from(is_leaf) << i;
        others |= u64::from(values[i] & REF_NODE != 0 && !is_leaf) << i;
    }
    for i in ones::<N>(leaves) {
        let node = values[i].wrapping_sub(LEAF) as usize * 2;
        // SAFETY: as above; fewer than `most` steps have been made.
        values[i] = unsafe {
            let (part, behind) = slots.at(i, steps[i].into());
            let starts = near64(words, node + 2 * part);
            let run = (starts >> NODE8_SLOTS) as usize + popcount(starts << behind);
            table.palette[near_code::<CODES8>(words, node, run)].load(Ordering::Acquire)
        };
    }
    for i in ones::<N>(others) {
        let depth = table.bits as u16 + u16::from(steps[i]) * NODE8.stride;
        values[i] = table.reader.walk8(table.palette, values[i], addrs[i], depth);
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

/// [`node8_part`](super::super::layout::node8_part) of each byte of each key: the word of `starts`, and a shift. It takes the slots
/// above the byte's own out of that word.
struct Slots<const N: usize> {
    parts: [[u8; BYTES]; N],
    behind: [[u8; BYTES]; N],
}

impl<const N: usize> Slots<N> {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(keys: &[u64; N]) -> Self {
        const { assert!(N.is_multiple_of(4) && NODE8_SLOTS == 56) }
        // By the byte's upper half: the word of the first of its sixteen slots, and 8 where the last eight belong to the next word.
        const PARTS: [u8; 16] = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4];
        const HALVES: [u8; 16] = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        // 63 + 56 × word, modulo 256. Less the byte, it is the shift.
        const LAST: [u8; 16] = [63, 119, 175, 231, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: sixteen bytes.
        let table =
            |bytes: &[u8; 16]| _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) });
        let (parts, halves, last) = (table(&PARTS), table(&HALVES), table(&LAST));
        let mut slots = Self { parts: [[0; BYTES]; N], behind: [[0; BYTES]; N] };
        for four in (0..N).step_by(4) {
            // SAFETY: four keys, and room for as many bytes, lie there.
            unsafe {
                let bytes = _mm256_loadu_si256(keys.as_ptr().add(four).cast());
                let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(15));
                let half = _mm256_and_si256(_mm256_shuffle_epi8(halves, upper), bytes);
                let part = _mm256_add_epi8(_mm256_shuffle_epi8(parts, upper), _mm256_srli_epi16::<3>(half));
                let behind = _mm256_sub_epi8(_mm256_shuffle_epi8(last, part), bytes);
                _mm256_storeu_si256(slots.parts.as_mut_ptr().add(four).cast(), part);
                _mm256_storeu_si256(slots.behind.as_mut_ptr().add(four).cast(), behind);
            }
        }
        slots
    }

    /// The word and the shift for key `i` after `step` nodes.
    ///
    /// # Safety
    ///
    /// `i` is less than N, and `step` less than [`BYTES`].
    #[inline(always)]
    unsafe fn at(&self, i: usize, step: usize) -> (usize, u32) {
        let byte = BYTES - 1 - step;
        debug_assert!(i < N && step < BYTES);
        // SAFETY: the caller's promise.
        unsafe {
            let (parts, behind) = (self.parts.get_unchecked(i), self.behind.get_unchecked(i));
            // A shift takes six bits.
            ((*parts.get_unchecked(byte)).into(), u32::from(*behind.get_unchecked(byte)) & 63)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::layout::node8_part;
    use super::Slots;

    #[test]
    fn slots_are_those_of_node8_part() {
        if !super::super::has_features() {
            return;
        }
        for slot in 0..=255u8 {
            let keys: [u64; 16] = core::array::from_fn(|i| {
                u64::from_be_bytes(core::array::from_fn(|byte| slot.wrapping_add((8 * i + byte) as u8)))
            });
            // SAFETY: the processor has the instructions; both numbers are in range.
            let slots = unsafe { Slots::of(&keys) };
            for (i, step) in (0..16).flat_map(|i| (0..8).map(move |step| (i, step))) {
                let (part, bit) = node8_part(slot.wrapping_add((8 * i + step) as u8).into());
                // SAFETY: as above.
                assert_eq!(unsafe { slots.at(i, step) }, (part as usize, 63 - bit), "{slot} {i} {step}");
            }
        }
    }
}
