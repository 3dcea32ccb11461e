//! Batches of IPv6. All addresses of a batch go down together, a node8 each, so that the processor waits for many loads at once. Few come
//! to a node of another kind; they go on one by one.

use super::super::layout::{LEAF8, NODE8, NODE8_SLOTS, REF_OFFSET, node_ref, node8_part};
use super::super::lookup::{CODES8, TableReader};
use super::super::words::{ahead, near, near_code, near64, ones, popcount};
use crate::Address;
use core::sync::atomic::Ordering;

/// The last depth at which the first 64 bits of a key have all that a node8 looks at.
const DEEPEST: u32 = 64 - NODE8.stride as u32;

/// Longest matches of IPv6 addresses; 0 = none.
#[target_feature(enable = "bmi1,bmi2,popcnt")]
pub(super) fn batch6<A: Address>(table: &TableReader<'_, A>, addrs: &[A], values: &mut [u32]) {
    let ((many, addrs), (of_many, values)) = (addrs.as_chunks(), values.as_chunks_mut());
    many.iter().zip(of_many).for_each(|(addrs, values)| chunk::<A, 64>(table, addrs, values));
    let ((some, addrs), (of_some, values)) = (addrs.as_chunks(), values.as_chunks_mut());
    some.iter().zip(of_some).for_each(|(addrs, values)| chunk::<A, 16>(table, addrs, values));
    table.one_by_one(addrs, values);
}

#[inline]
#[target_feature(enable = "bmi1,bmi2,popcnt")]
fn chunk<A: Address, const N: usize>(table: &TableReader<'_, A>, addrs: &[A; N], values: &mut [u32; N]) {
    const USUAL: u32 = node_ref(NODE8.id, 0);
    let (words, end) = (table.reader.words, table.reader.end);
    // Of each address, the key bits that come next.
    let mut keys = [0; N];
    let (mut depth, mut left) = (table.bits, Left::default());
    for (i, addr) in addrs.iter().enumerate() {
        values[i] = table.root(*addr).load(Ordering::Acquire);
        keys[i] = addr.word_at(0) << depth;
        left.add(i, values[i], end);
        ahead(words, (values[i] & REF_OFFSET) as usize * 2);
    }
    loop {
        for i in ones::<N>(core::mem::take(&mut left.others)) {
            values[i] = table.reader.walk8(table.palette, values[i], addrs[i], depth as u16);
        }
        if left.usual | left.leaves == 0 || depth > DEEPEST {
            break;
        }
        for i in ones::<N>(core::mem::take(&mut left.leaves)) {
            let (part, bit) = node8_part((keys[i] >> 56) as u32);
            let node = values[i].wrapping_sub(node_ref(LEAF8, 0)) as usize * 2;
            // SAFETY: as below.
            values[i] = unsafe {
                let starts = near64(words, node + 2 * part as usize);
                let run = (starts >> NODE8_SLOTS) as usize + popcount(starts << (63 - bit));
                table.palette[near_code::<CODES8>(words, node, run)].load(Ordering::Acquire)
            };
        }
        let now = core::mem::take(&mut left.usual);
        depth += u32::from(NODE8.stride);
        for i in ones::<N>(now) {
            let (part, bit) = node8_part((keys[i] >> 56) as u32);
            let node = values[i].wrapping_sub(USUAL) as usize * 2;
            // SAFETY: the node begins before the guard, which is longer. The processor has the instruction.
            values[i] = unsafe {
                let starts = near64(words, node + 2 * part as usize);
                let run = (starts >> NODE8_SLOTS) as usize + popcount(starts << (63 - bit));
                near(words, node + NODE8.refs as usize / 4 - 1 + run)
            };
            ahead(words, (values[i] & REF_OFFSET) as usize * 2);
            keys[i] <<= NODE8.stride;
            left.add(i, values[i], end);
        }
    }
    for i in ones::<N>(left.usual | left.leaves) {
        values[i] = table.reader.walk8(table.palette, values[i], addrs[i], depth as u16);
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

/// Addresses that have not come to a value, a bit for each.
#[derive(Default)]
struct Left {
    /// At a node8 inside the image.
    usual: u64,
    /// At a leaf8.
    leaves: u64,
    /// At anything else.
    others: u64,
}

impl Left {
    #[inline(always)]
    fn add(&mut self, i: usize, entry: u32, end: u32) {
        let is_usual = u64::from(entry.wrapping_sub(node_ref(NODE8.id, 0)) < end);
        self.usual |= is_usual << i;
        let is_leaf = u64::from(entry.wrapping_sub(node_ref(LEAF8, 0)) < end);
        self.leaves |= is_leaf << i;
        self.others |= (u64::from(entry >> 31) & !(is_usual | is_leaf)) << i;
    }
}
