//! Batches by AVX-512. The loads that depend on an address are made one by one, stage by stage. So the processor waits for all
//! of a stage at once (its gathers are no quicker). The work between is arithmetic on sixteen lanes.

use super::super::layout::{
    LEAF6, NODE6, NODE8, NODE8_SLOTS, RANGES, RANGES32, RANGES32_BITS, RANGES32_STARTS, RAW8, REF_KIND_SHIFT,
    REF_NODE, REPLACED, SKIP, node8_part,
};
use super::super::lookup::TableReader;
use super::super::words::{near, near8, near64};
use crate::Address;
use core::arch::x86_64::*;
use core::sync::atomic::{AtomicU32, Ordering};

/// Addresses that go through the stages together.
const CHUNK: usize = PARTS * LANES;
const PARTS: usize = 4;
const LANES: usize = 16;

/// Whether the processor has what [`batch4`] and [`batch8`] take.
pub(super) fn is_there() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
        && std::is_x86_feature_detected!("avx512vpopcntdq")
        && std::is_x86_feature_detected!("popcnt")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
}

/// One 32-bit number for each address.
type Numbers = [u32; CHUNK];

/// Longest matches of IPv4 addresses; 0 = none.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
pub(super) fn batch4<A: Address>(table: &TableReader<'_, A>, addrs: &[A], values: &mut [u32]) {
    for (addrs, values) in addrs.chunks(CHUNK).zip(values.chunks_mut(CHUNK)) {
        if addrs.len() < LANES {
            table.one_by_one(addrs, values);
            continue;
        }
        let mut keys: Numbers = [0; CHUNK];
        if let (Ok(addrs), Ok(values)) = (<&[A; CHUNK]>::try_from(addrs), values.try_into()) {
            for i in 0..CHUNK {
                keys[i] = (addrs[i].word_at(0) >> 32) as u32;
            }
            chunk4(table, &keys, values);
        } else {
            let mut found: Numbers = [0; CHUNK];
            for (key, addr) in keys.iter_mut().zip(addrs) {
                *key = (addr.word_at(0) >> 32) as u32;
            }
            chunk4(table, &keys, &mut found);
            values.copy_from_slice(&found[..values.len()]);
        }
        if table.fallback() & REPLACED != 0 {
            table.one_by_one(addrs, values);
        }
    }
}

/// The root and one bitmap node for all, which is all that nearly every address takes; the others walk on alone.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
fn chunk4<A: Address>(table: &TableReader<'_, A>, keys: &Numbers, values: &mut Numbers) {
    // Kinds by single bits of a ref.
    const { assert!(NODE6.id == 0 && LEAF6 == 1 && RANGES == 2) };
    const IS_LEAF: i32 = (LEAF6 << REF_KIND_SHIFT) as i32;
    const IS_OTHER: i32 = (RANGES << REF_KIND_SHIFT) as i32;
    let words = table.reader.words;
    let bits = table.bits as i32;

    let mut slots: Numbers = [0; CHUNK];
    for part in 0..PARTS {
        store(&mut slots, part, _mm512_srl_epi32(load(keys, part), _mm_cvtsi32_si128(32 - bits)));
    }
    in_memory(&mut slots);
    let mut entries: Numbers = [0; CHUNK];
    for i in 0..CHUNK {
        entries[i] = table.slot(slots[i] as usize).load(Ordering::Acquire);
    }
    in_memory(&mut entries);

    let mut nodes: Numbers = [0; CHUNK];
    let (mut leaves, mut bitmaps, mut others) = ([0u16; PARTS], [0u16; PARTS], [0u16; PARTS]);
    for part in 0..PARTS {
        let entry = load(&entries, part);
        let is_node = _mm512_movepi32_mask(entry);
        let node = _mm512_slli_epi32(entry, 3);
        let is_near = _mm512_cmplt_epu32_mask(node, _mm512_set1_epi32(table.near_end as i32));
        let is_bitmap = is_node & is_near & _mm512_testn_epi32_mask(entry, _mm512_set1_epi32(IS_OTHER));
        // A lane without a bitmap node looks at the image's first words and drops the result.
        store(&mut nodes, part, _mm512_maskz_mov_epi32(is_bitmap, node));
        leaves[part] = is_bitmap & _mm512_test_epi32_mask(entry, _mm512_set1_epi32(IS_LEAF));
        bitmaps[part] = is_bitmap & !leaves[part];
        others[part] = is_node & !is_bitmap;
    }
    in_memory(&mut nodes);
    let mut starts = [0u64; CHUNK];
    for i in 0..CHUNK {
        // SAFETY: a node before the guard, or the image's header.
        starts[i] = unsafe { near64(words, nodes[i] as usize / 4) };
    }
    in_memory(&mut starts);

    let mut runs: Numbers = [0; CHUNK];
    for part in 0..PARTS {
        // 63 less the slot: how far the bits behind it are shifted out.
        let behind = _mm512_srl_epi32(load(keys, part), _mm_cvtsi32_si128(26 - bits));
        let behind = _mm512_andnot_si512(behind, _mm512_set1_epi32(63));
        let low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(behind));
        let high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(behind));
        let low = _mm512_popcnt_epi64(_mm512_sllv_epi64(load64(&starts, 2 * part), low));
        let high = _mm512_popcnt_epi64(_mm512_sllv_epi64(load64(&starts, 2 * part + 1), high));
        let run = _mm512_castsi256_si512(_mm512_cvtepi64_epi32(low));
        store(&mut runs, part, _mm512_inserti64x4::<1>(run, _mm512_cvtepi64_epi32(high)));
    }

    // Tables mostly have one of the two kinds.
    let (mut found, mut at): (Numbers, Numbers) = ([0; CHUNK], [0; CHUNK]);
    if leaves != [0; PARTS] {
        for part in 0..PARTS {
            let byte = _mm512_add_epi32(load(&nodes, part), load(&runs, part));
            store(&mut at, part, _mm512_add_epi32(byte, _mm512_set1_epi32(7)));
        }
        in_memory(&mut at);
        for i in 0..CHUNK {
            // SAFETY: as above: no bitmap of 64 runs is longer than the guard.
            let code = unsafe { near8(words, at[i] as usize) };
            found[i] = table.palette[usize::from(code)].load(Ordering::Acquire);
        }
        in_memory(&mut found);
        for (part, leaves) in leaves.iter().enumerate() {
            let entry = _mm512_mask_mov_epi32(load(&entries, part), *leaves, load(&found, part));
            store(&mut entries, part, entry);
        }
    }
    if bitmaps != [0; PARTS] {
        for part in 0..PARTS {
            let ref_at = _mm512_add_epi32(load(&nodes, part), _mm512_slli_epi32::<2>(load(&runs, part)));
            store(&mut at, part, ref_at);
        }
        in_memory(&mut at);
        for i in 0..CHUNK {
            // SAFETY: as above.
            found[i] = unsafe { near(words, at[i] as usize / 4 + 1) };
        }
        in_memory(&mut found);
        for part in 0..PARTS {
            let deeper = _mm512_movepi32_mask(load(&found, part));
            others[part] |= bitmaps[part] & deeper;
            let entry = _mm512_mask_mov_epi32(load(&entries, part), bitmaps[part], load(&found, part));
            store(&mut entries, part, entry);
        }
    }

    let mut left = others.iter().rev().fold(0u64, |left, part| left << LANES | u64::from(*part));
    while left != 0 {
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        entries[i] = table.walk4(table.slot(slots[i] as usize).load(Ordering::Acquire), keys[i]);
    }
    let fallback = _mm512_set1_epi32(table.fallback() as i32);
    for part in 0..PARTS {
        let entry = load(&entries, part);
        let is_none = _mm512_testn_epi32_mask(entry, entry);
        store(values, part, _mm512_mask_mov_epi32(entry, is_none, fallback));
    }
}

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
    let ahead = |entry: u32| {
        let node = words.as_ptr().wrapping_byte_add((entry << 3) as usize);
        _mm_prefetch::<_MM_HINT_T0>(node.cast());
    };
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
            for i in ones(nodes) {
                keys[i] = addrs[i].word_at(depths[i]);
            }
        }
        // SAFETY: here and below, the nodes begin before the guard, which is longer than any of them.
        let node = |entry: u32| unsafe { words.get_unchecked((entry << 3) as usize / 4..) };
        for i in ones(nodes & low & !high) {
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
        for i in ones(nodes & low & high) {
            // SAFETY: see above.
            entries[i] = unsafe { near(node(entries[i]), (keys[i] >> 56) as usize) };
            ahead(entries[i]);
            depths[i] += NODE8.stride;
            keys[i] <<= NODE8.stride;
        }
        for i in ones(nodes & !low & !high) {
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
        for i in ones(nodes & !low & high) {
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

/// The positions of the set bits.
#[inline(always)]
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (at < CHUNK).then_some(at)
    })
}

/// Keeps the array in memory, where lanes and single numbers change places at a load and a store each. The compiler would move them
/// one by one from register to register.
#[inline(always)]
fn in_memory<T>(array: &mut T) {
    // SAFETY: does nothing.
    unsafe { core::arch::asm!("/* {} */", in(reg) array, options(nostack, preserves_flags)) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(numbers: &Numbers, part: usize) -> __m512i {
    // SAFETY: the part's sixteen numbers.
    unsafe { _mm512_loadu_si512(numbers[part * LANES..][..LANES].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load64(numbers: &[u64; CHUNK], eight: usize) -> __m512i {
    // SAFETY: these eight numbers.
    unsafe { _mm512_loadu_si512(numbers[eight * LANES / 2..][..LANES / 2].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(numbers: &mut Numbers, part: usize, lanes: __m512i) {
    // SAFETY: the part's sixteen numbers.
    unsafe { _mm512_storeu_si512(numbers[part * LANES..][..LANES].as_mut_ptr().cast(), lanes) }
}
