//! Batches of IPv6. All addresses of a batch go down together, a node8 each, so that the processor waits for many loads at once. No
//! branch between the root and the end depends on a single address. Few come to a node of another kind; they go on one by one.

use super::super::build::ROOT_IPV6;
use super::super::layout::{DIRECT_BITS, LEAF8, NODE8, REF_NODE, UNIT, node_ref};
use super::super::lookup::{CODES8, TableReader};
use super::super::words::{ahead, near, near_code, ones, popcount, run8};
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
    let (image, end) = (table.reader.words, table.reader.end);
    const { assert!(N <= 64) }
    // The addresses that are at a node8, and those at a leaf8, inside the image. Of each address, the key bits that came next at the first of
    // them, the first byte last. Then how many bits came before, and how many node8 it has passed.
    let (mut live, mut leaves, mut keys, mut steps) = ([0; N], [0; N], [[0; BYTES]; N], [0u8; N]);
    let (mut at_node, mut at_leaf, mut depths) = (0, 0, [0u8; N]);
    for (i, addr) in addrs.iter().enumerate() {
        let (entry, key, depth) = table.first8(*addr);
        ahead(image, word_of(entry));
        (values[i], keys[i], depths[i]) = (entry, key.to_le_bytes(), depth as u8);
        // SAFETY: i is less than N.
        unsafe {
            at_node = add(&mut live, at_node, i, entry.wrapping_sub(USUAL) < end);
            at_leaf = add(&mut leaves, at_leaf, i, entry.wrapping_sub(LEAF) < end);
        }
    }
    // As many steps as the 64 bits suffice for.
    let most_above =
        table.bits as usize + if table.bits == u32::from(ROOT_IPV6) { usize::from(DIRECT_BITS) } else { 0 };
    for step in 0..BYTES - most_above.div_ceil(8) {
        let byte = BYTES - 1 - step;
        for at in 0..core::mem::take(&mut at_leaf) {
            // SAFETY: the list holds numbers less than N, and a key has so many bytes. The node begins before the guard, which is longer. The
            // processor has the instruction.
            unsafe {
                let i = usize::from(*leaves.get_unchecked(at));
                let node = image.get_unchecked(word_of(*values.get_unchecked(i))..);
                let (starts, before) = run8(node, (*keys.get_unchecked(i).get_unchecked(byte)).into());
                let code = near_code::<CODES8>(node, 0, before + popcount(starts));
                *values.get_unchecked_mut(i) = table.palette[code].load(Ordering::Acquire);
            }
        }
        for at in 0..core::mem::take(&mut at_node) {
            // SAFETY: as above.
            unsafe {
                let i = usize::from(*live.get_unchecked(at));
                let node = image.get_unchecked(word_of(*values.get_unchecked(i))..);
                let (starts, before) = run8(node, (*keys.get_unchecked(i).get_unchecked(byte)).into());
                let entry = near(node, NODE8.refs as usize / 4 - 1 + before + popcount(starts));
                ahead(image, word_of(entry));
                *values.get_unchecked_mut(i) = entry;
                *steps.get_unchecked_mut(i) = step as u8 + 1;
                at_node = add(&mut live, at_node, i, entry.wrapping_sub(USUAL) < end);
                at_leaf = add(&mut leaves, at_leaf, i, entry.wrapping_sub(LEAF) < end);
            }
        }
        if at_node + at_leaf == 0 {
            break;
        }
    }
    for i in ones::<N>(nodes(values)) {
        // Of the first look at the root: the slot may hold another node by now.
        let depth = u32::from(depths[i]) + u32::from(steps[i]) * u32::from(NODE8.stride);
        values[i] = table.rest8(values[i], addrs[i], depth);
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

/// Index of the first word of the node that `entry` leads to; of a value, any.
// A shift by 32 bits takes the kind's bits out. So the address is one addition.
#[inline(always)]
const fn word_of(entry: u32) -> usize {
    (entry << UNIT.trailing_zeros()) as usize / 4
}

/// Adds `i` to the list of the first `count` of `numbers` if `is_meant`, without a branch; returns how many there are then.
///
/// # Safety
///
/// `count` is less than N.
// The number apart from the list: else both stay in memory, and each addition waits for the one before.
#[inline(always)]
unsafe fn add<const N: usize>(numbers: &mut [u8; N], count: usize, i: usize, is_meant: bool) -> usize {
    debug_assert!(count < N);
    // SAFETY: the caller's promise.
    unsafe { *numbers.get_unchecked_mut(count) = i as u8 };
    count + usize::from(is_meant)
}

/// Which of these are refs to nodes, as bits.
#[inline]
#[target_feature(enable = "avx2")]
fn nodes<const N: usize>(values: &[u32; N]) -> u64 {
    const { assert!(N <= 64 && REF_NODE == 1 << 31) }
    let (eights, _) = values.as_chunks::<8>();
    eights.iter().enumerate().fold(0, |all, (at, eight)| {
        // SAFETY: eight values lie there.
        let bits =
            _mm256_movemask_ps(_mm256_castsi256_ps(unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) }));
        all | u64::from(bits as u32) << (8 * at)
    })
}
