//! The layout that Rust writes is the layout that the C header reads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::mem::{offset_of, size_of};
use trieline_lpm::image::layout::*;
use trieline_lpm::{Address, HeapMemory, Image, Key, NoReaders, Prefix, Table};

#[test]
fn rust_and_c_agree_on_the_layout() {
    let rust = [
        MAGIC.into(),
        VERSION.into(),
        CHUNK.into(),
        VALUE_MAX.into(),
        DIRECTORY.into(),
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
        HOSTS.into(),
        HOSTS_BITS.into(),
        HOSTS_WINDOW.into(),
        HOSTS_BYTES.into(),
        RANGES32.into(),
        RANGES32_STARTS as u64,
        RANGES32_REFS.into(),
        NODE8.id.into(),
        NODE8_SLOTS.into(),
        NODE8.refs.into(),
        SKIP.into(),
        SKIP_MAX.into(),
        RAW8.into(),
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
