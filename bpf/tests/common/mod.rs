//! Shared by the tests: the test programs loaded against tables.
#![allow(dead_code)] // each test file uses a part

#[path = "../../../lpm/tests/common/sample.rs"]
pub mod sample;

use std::path::Path;
use std::sync::atomic::Ordering;

use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject, ProgramInput, libbpf_sys,
};
use trieline_bpf::{ImageMap, ImageMapType, Options, Tables};

/// The map types of this kernel. The arena may be missing (Linux 6.1), the array may not.
pub fn map_types() -> Vec<ImageMapType> {
    assert_eq!(ImageMapType::Array.probe(), Ok(()));
    trieline_testbed::probed([ImageMapType::Array, ImageMapType::Arena], ImageMapType::probe)
}

/// Keys a run, as in `programs/lookups.bpf.c`.
pub const KEYS: usize = 1024;
/// Bytes of one there.
pub const KEY_BYTES: usize = (2048 / 64 + 2) * 8;

#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);
macro_rules! object {
    ($name:literal) => {{
        const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o"));
        static OBJECT: Aligned<{ BYTES.len() }> =
            Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")));
        &OBJECT.0
    }};
}

/// Pins a hash map.
pub fn pin_hash(path: &Path) {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    MapHandle::create(MapType::Hash, Some("other"), 4, 4, 8, &options).unwrap().pin(path).unwrap();
}

/// Makes the image in `map` one of version 2.
pub fn damage_version(map: &ImageMap) {
    let words = map.memory();
    let words = trieline_lpm::Memory::words(&words);
    let version = words[1].load(Ordering::Relaxed);
    words[1].store(version & 0xffff_0000 | 2, Ordering::Relaxed);
}

pub fn tables(map_type: ImageMapType, bytes: u64) -> Tables {
    Tables::create(&Options { map_type: Some(map_type), bytes, tables: 16 }).unwrap()
}

/// An opener of a program for a map type, not yet loaded.
macro_rules! opener {
    ($(#[$doc:meta])* $open:ident, $arena:literal, $array:literal) => {
        $(#[$doc])*
        pub fn $open(map_type: ImageMapType) -> OpenObject {
            let bytes: &[u8] = match map_type {
                ImageMapType::Arena => object!($arena),
                ImageMapType::Array => object!($array),
            };
            ObjectBuilder::default().open_memory(bytes).unwrap()
        }
    };
}
opener!(
    /// `programs/lookups.bpf.c`: every lookup.
    open, "lookups_arena", "lookups_array"
);
opener!(
    /// `programs/asleep.bpf.c`: a program that may sleep.
    open_sleepable, "asleep_arena", "asleep_array"
);
opener!(
    /// `programs/deferred.bpf.c`: one that cannot, with a callback that may.
    open_deferred, "deferred_arena", "deferred_array"
);
opener!(
    /// `programs/load.bpf.c`: readers that know what they may find.
    open_load, "load_arena", "load_array"
);

/// Stores all of a section's bytes.
pub fn store(object: &Object, section: &str, bytes: &[u8]) {
    let map = object.maps().find(|map| map.name() == section).unwrap();
    map.update(&0u32.to_ne_bytes(), bytes, MapFlags::ANY).unwrap();
}

/// Runs a program over `keys` (network order) in table `id`; value and length for each.
pub fn run(object: &Object, program: &str, id: u32, keys: &[Vec<u8>]) -> Vec<(u32, u32)> {
    assert_eq!(keys.len(), KEYS);
    let mut bytes = vec![0; KEYS * KEY_BYTES];
    for (key, place) in keys.iter().zip(bytes.chunks_mut(KEY_BYTES)) {
        place[..key.len()].copy_from_slice(key);
    }
    store(object, ".bss.keys", &bytes);
    store(object, ".bss.answers", &[0xee; 8 * KEYS]);
    store(object, ".bss.table", &id.to_ne_bytes());
    let code = object.progs_mut().find(|code| code.name() == program).unwrap();
    let input = ProgramInput { data_in: Some(&[0; 64]), repeat: 1, ..Default::default() };
    assert_eq!(code.test_run(input).unwrap().return_value, 1, "{program} did not work through all keys");
    let map = object.maps().find(|map| map.name() == ".bss.answers").unwrap();
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
    bytes.chunks_exact(8).map(|pair| (word(&pair[..4]), word(&pair[4..]))).collect()
}
