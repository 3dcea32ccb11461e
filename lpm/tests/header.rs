//! The layout that Rust writes is the layout that the C header reads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;
use trieline_lpm::image::layout::*;
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Address, Error, HeapMemory, Image, Key, Memory, NoReaders, Prefix, Table};

#[test]
fn rust_and_c_agree_on_the_layout() {
    let rust = [
        MAGIC.into(),
        VERSION.into(),
        CHUNK.into(),
        VALUE_MAX.into(),
        DIRECTORY.into(),
        DIR_ENTRY.into(),
        DIR_BITS.into(),
        REF_NODE.into(),
        REF_KIND_SHIFT.into(),
        REF_OFFSET.into(),
        UNIT.into(),
        size_of::<ImageHeader>() as u64,
        offset_of!(ImageHeader, version) as u64,
        offset_of!(ImageHeader, header_bytes) as u64,
        offset_of!(ImageHeader, size) as u64,
        offset_of!(ImageHeader, tables) as u64,
        offset_of!(ImageHeader, generation) as u64,
        size_of::<TableHeader>() as u64,
        offset_of!(TableHeader, fallback) as u64,
        offset_of!(TableHeader, key_family) as u64,
        offset_of!(TableHeader, root_bits) as u64,
        offset_of!(TableHeader, key_bits) as u64,
        offset_of!(TableHeader, prefixes) as u64,
        offset_of!(TableHeader, root_bytes) as u64,
        offset_of!(TableHeader, palette) as u64,
        offset_of!(TableHeader, exact) as u64,
        offset_of!(TableHeader, multiplier) as u64,
        offset_of!(TableHeader, mask) as u64,
        offset_of!(TableHeader, first) as u64,
        EXACT.into(),
        EXACT_BITS_MAX.into(),
        EXACT_SHORT.into(),
        EXACT_WIDEST.into(),
        BUCKET as u64,
        GUARD.into(),
        NODE6.id.into(),
        0,
        NODE6.refs.into(),
        LEAF6.into(),
        PALETTE as u64,
        NODE6.refs.into(),
        RANGES.into(),
        RANGES_STARTS as u64,
        RANGES_VALUES.into(),
        RANGES32.into(),
        RANGES32_STARTS as u64,
        RANGES32_REFS.into(),
        NODE8.id.into(),
        NODE8_BEFORE.into(),
        DIRECT12.into(),
        DIRECT_BITS.into(),
        NODE8.refs.into(),
        SKIP.into(),
        SKIP_MAX.into(),
        SKIP_SHORT.into(),
        SKIP_LEN.into(),
        LEAF8.into(),
        NODE8.refs.into(),
        size_of::<Skip>() as u64,
        offset_of!(Skip, bits) as u64,
        offset_of!(Skip, len) as u64,
        offset_of!(Skip, next) as u64,
        offset_of!(Skip, otherwise) as u64,
    ];
    assert_eq!(common::Header::get().layout(), rust);
}

#[test]
fn tables_of_other_keys_answer_nothing() {
    let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 8).unwrap();
    fn all<A: Address>() -> [(Prefix<A>, u32); 2] {
        [(Prefix::truncated(A::ZERO, 0), 5), (Prefix::truncated(A::ZERO, 1), 6)]
    }
    Table::<u32>::create(&mut image, 0, all()).unwrap();
    Table::<u128>::create(&mut image, 1, all()).unwrap();
    let header = common::Header::get();
    assert_eq!(header.lookup4(image.memory(), 0, 0), Some(6));
    assert_eq!(header.lookup6(image.memory(), 1, 1 << 127), Some(5));
    assert_eq!(header.others(image.memory(), 0, 32), 0);
    assert_eq!(header.others(image.memory(), 1, 128), 0);
    // A key of 32 bits is not an IPv4 address.
    Table::<Key<32, 4>>::create(&mut image, 2, all()).unwrap();
    assert_eq!(header.lookup(image.memory(), 2, Key::<32, 4>::ZERO), Some(6));
    assert_eq!(header.lookup4(image.memory(), 2, 0), None);
    assert_eq!(header.lookup(image.memory(), 0, Key::<32, 4>::ZERO), None);
}

#[test]
fn values_that_carry_the_length() {
    let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 8).unwrap();
    for len in 0..=32 {
        let prefix = Prefix::<u32>::truncated(0, len);
        let value = prefix.with_length((1 << 25) - 1).unwrap();
        assert_eq!(Prefix::<u32>::split_length(value), ((1 << 25) - 1, len));
        Table::create(&mut image, 0, [(prefix, value)]).unwrap();
        let matched = common::Header::get().matched(image.memory(), 0, 32);
        assert_eq!(matched, ((1 << 25) - 1, len));
    }
    let prefix = Prefix::<u128>::truncated(0, 128);
    Table::create(&mut image, 1, [(prefix, prefix.with_length(77).unwrap())]).unwrap();
    assert_eq!(common::Header::get().matched(image.memory(), 1, 128), (77, 128));
    assert_eq!(prefix.with_length(1 << 23), None);
    assert_eq!(prefix.with_length(0), None);
    // As many bits as 2048 takes.
    let wide = Prefix::truncated(Key::<2048, 256>::ZERO, 2048);
    let value = wide.with_length(1 << 18).unwrap();
    assert_eq!(Prefix::<Key<2048, 256>>::split_length(value), (1 << 18, 2048));
}

/// A damaged image may have a ref where a value belongs. `verify` refuses it, in every word. In the nodes at the end of a walk of IPv4
/// (ranges) neither C nor Rust takes it for a value. Both give the default route's.
#[test]
fn a_value_with_a_refs_bit_is_none() {
    const FALLBACK: u32 = 77;
    let mut image = Image::create(HeapMemory::new(4 << 16), NoReaders::default(), 2).unwrap();
    // In each block of 14 bits a few small networks.
    let small = |n: u32, k: u32| Prefix::truncated(n << 14 | k << 10 | ((n * 97 + k * 331) % 1000), 31);
    let small = (0..20u32).flat_map(|n| (0..2 + n % 2).map(move |k| (small(n, k), 1 << 24 | n << 8 | k)));
    let covers = (0..20).map(|n| (Prefix::truncated(n << 14, 18), 0x0055_0000 | n << 8 | n));
    let prefixes: BTreeMap<_, _> = small.chain(covers).chain([(Prefix::truncated(0, 0), FALLBACK)]).collect();
    Table::create(&mut image, 0, prefixes.clone()).unwrap();
    let memory = image.memory();
    let (words, reader) = (memory.words(), image.reader());
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    let nodes = verify(words).unwrap().tables[0].nodes.clone();
    assert!(nodes.iter().any(|node| node.0 == "ranges"), "{nodes:?}");

    // The nodes' words with a value of the table.
    let is_value = |at: &usize| word(*at) != FALLBACK && prefixes.values().any(|value| *value == word(*at));
    let found: Vec<_> =
        (0..image.stats().claimed as usize / 4).filter(is_value).map(|at| (at, word(at))).collect();
    assert!(found.len() > 100, "{} words", found.len());

    let near = |prefix: &Prefix<u32>| {
        [prefix.addr().wrapping_sub(1), prefix.addr(), prefix.last(), prefix.last() + 1]
    };
    let addrs: Vec<u32> = prefixes.keys().filter(|prefix| prefix.len() > 0).flat_map(near).collect();
    let answers = || -> Vec<Option<u32>> {
        let ways = |addr: &u32| {
            let rust = reader.lookup4(0, *addr);
            assert_eq!(rust, reader.table::<u32>(0).unwrap().lookup(*addr));
            assert_eq!(rust, common::Header::get().lookup4(memory, 0, *addr), "{addr:#x}");
            rust
        };
        addrs.iter().map(ways).collect()
    };
    let before = answers();
    for (at, value) in found {
        words[at].fetch_or(REF_NODE, Ordering::Relaxed);
        let refused = verify(words).unwrap_err();
        assert!(matches!(refused, Error::Damaged { what: "a node where a value belongs", .. }), "{refused}");
        let mut changed = 0;
        for (before, after) in before.iter().zip(answers()) {
            assert!(
                after == *before || (*before, after) == (Some(value), Some(FALLBACK)),
                "{before:?} {after:?}"
            );
            changed += usize::from(after != *before);
        }
        assert!(changed > 0, "word {at} is for an address");
        words[at].fetch_and(!REF_NODE, Ordering::Relaxed);
    }
    verify(words).unwrap();
}
