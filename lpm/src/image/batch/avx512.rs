//! Batches by AVX-512. The loads that depend on an address are made one by one, stage by stage. So the processor waits for all
//! of a stage at once (its gathers are no quicker). The work between is arithmetic on sixteen lanes.

use super::super::layout::{
    NODE8, NODE8_SLOTS, RANGES32, RANGES32_BITS, RANGES32_STARTS, RAW8, REF_KIND_SHIFT, REF_NODE, REF_OFFSET,
    REPLACED, SKIP, node8_part,
};
use super::super::lookup::TableReader;
use super::super::words::{ahead, near, near64, ones};
use crate::Address;
use core::arch::x86_64::*;
use core::sync::atomic::{AtomicU32, Ordering};

/// Addresses that go through the stages together.
const CHUNK: usize = PARTS * LANES;
const PARTS: usize = 4;
const LANES: usize = 16;

/// One 32-bit number for each address.
type Numbers = [u32; CHUNK];

/// Longest matches of addresses that are not of IPv4; 0 = none.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt,bmi1,bmi2")]
pub(super) fn batch8<A: Address>(table: &TableReader<'_, A>, addrs: &[A], values: &mut [u32]) {
    for (addrs, values) in addrs.chunks(CHUNK).zip(values.chunks_mut(CHUNK)) {
        chunk8(table, addrs, values);
        let fallback = table.fallback();
        if fallback & REPLACED != 0 {
            table.one_by_one(addrs, values);
            continue;
        }
        for value in values {
            *value = if *value == 0 { fallback } else { *value };
        }
    }
}

/// All go down together, a node each, those on the same kind of node one after another: no branch depends on a single address.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt,bmi1,bmi2")]
fn chunk8<A: Address>(table: &TableReader<'_, A>, addrs: &[A], values: &mut [u32]) {
    // Kinds by single bits of a ref.
    const { assert!(RANGES32 == 0 && NODE8.id == 1 && SKIP == 2 && RAW8 == 3) };
    let words = table.reader.words;
    // Of each address: where it is, how many key bits led there, and those that come next.
    let (mut entries, mut depths, mut keys) = ([0; CHUNK], [table.bits as u16; CHUNK], [0; CHUNK]);
    // Asks for the node of the next step.
    let ahead = |entry: u32| ahead(words, (entry & REF_OFFSET) as usize * 2);
    for (i, addr) in addrs.iter().enumerate() {
        entries[i] = table.root(*addr).load(Ordering::Acquire);
        ahead(entries[i]);
        keys[i] = addr.word_at(depths[i]);
    }
    for step in 0..=A::WIDTH.div_ceil(NODE8.stride) {
        let (mut nodes, mut low, mut high) = (0u64, 0u64, 0u64);
        for part in 0..PARTS {
            let entry = load(&entries, part);
            let is_node = _mm512_movepi32_mask(entry);
            let end = _mm512_set1_epi32(table.near_end as i32);
            let is_near = _mm512_cmplt_epu32_mask(_mm512_slli_epi32(entry, 3), end);
            // An offset outside the image leads to nothing.
            store(&mut entries, part, _mm512_maskz_mov_epi32(!is_node | is_near, entry));
            let bit = |bit: u32| _mm512_set1_epi32((bit << REF_KIND_SHIFT) as i32);
            nodes |= u64::from(is_node & is_near) << (LANES * part);
            low |= u64::from(_mm512_test_epi32_mask(entry, bit(1))) << (LANES * part);
            high |= u64::from(_mm512_test_epi32_mask(entry, bit(2))) << (LANES * part);
        }
        if nodes == 0 {
            break;
        }
        // Before 32 are no longer left.
        if step % 4 == 3 {
            for i in ones::<CHUNK>(nodes) {
                keys[i] = addrs[i].word_at(depths[i]);
            }
        }
        // SAFETY: here and below, the nodes begin before the guard, which is longer than any of them.
        let node = |entry: u32| unsafe { words.get_unchecked((entry << 3) as usize / 4..) };
        for i in ones::<CHUNK>(nodes & low & !high) {
            let (node, (part, bit)) = (node(entries[i]), node8_part((keys[i] >> 56) as u32));
            // SAFETY: see above.
            entries[i] = unsafe {
                let starts = near64(node, 2 * part as usize);
                let behind = (starts << (63 - bit)).count_ones() as usize;
                near(node, NODE8.refs as usize / 4 - 1 + (starts >> NODE8_SLOTS) as usize + behind)
            };
            ahead(entries[i]);
            depths[i] += NODE8.stride;
            keys[i] <<= NODE8.stride;
        }
        for i in ones::<CHUNK>(nodes & low & high) {
            // SAFETY: see above.
            entries[i] = unsafe { near(node(entries[i]), (keys[i] >> 56) as usize) };
            ahead(entries[i]);
            depths[i] += NODE8.stride;
            keys[i] <<= NODE8.stride;
        }
        for i in ones::<CHUNK>(nodes & !low & !high) {
            let node = node(entries[i]);
            // SAFETY: see above.
            let (entry, is_leaf) = unsafe {
                let above = starts_above(node, (keys[i] >> 32) as u32);
                (near(node, RANGES32_STARTS + above), near(node, 0) > near(node, RANGES32_STARTS - 1))
            };
            entries[i] = entry;
            ahead(entry);
            // Few prefixes are so long.
            if is_leaf & (entry & REF_NODE != 0) {
                depths[i] += RANGES32_BITS;
                keys[i] = addrs[i].word_at(depths[i]);
            }
        }
        // Those are few too.
        for i in ones::<CHUNK>(nodes & !low & high) {
            entries[i] = table.reader.walk8(entries[i], addrs[i], depths[i]);
        }
    }
    for (value, entry) in values.iter_mut().zip(entries) {
        *value = if entry & REF_NODE == 0 { entry } else { 0 };
    }
}

/// How many starts of a ranges32 node are above `key`.
///
/// # Safety
///
/// The node and what follows it are eight words at least.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn starts_above(node: &[AtomicU32], key: u32) -> usize {
    let above: u32;
    // SAFETY: reads what the caller says; starts do not change, and the eighth word is not looked at.
    unsafe {
        core::arch::asm!(
            "vpbroadcastd {keys}, {key:e}",
            "vpcmpltud {above_mask}, {keys}, ymmword ptr [{node}]",
            "kmovd {above:e}, {above_mask}",
            key = in(reg) key,
            node = in(reg) node.as_ptr(),
            keys = out(ymm_reg) _,
            above_mask = out(kreg) _,
            above = lateout(reg) above,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    (above & ((1 << RANGES32_STARTS) - 1)).count_ones() as usize
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(numbers: &Numbers, part: usize) -> __m512i {
    // SAFETY: the part's sixteen numbers.
    unsafe { _mm512_loadu_si512(numbers[part * LANES..][..LANES].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(numbers: &mut Numbers, part: usize, lanes: __m512i) {
    // SAFETY: the part's sixteen numbers.
    unsafe { _mm512_storeu_si512(numbers[part * LANES..][..LANES].as_mut_ptr().cast(), lanes) }
}
