//! The layout that Rust writes is the layout that the C header reads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::mem::{offset_of, size_of};
use trieline_lpm::image::layout::*;

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
