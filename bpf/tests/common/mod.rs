//! What the tests share: the test programs loaded against tables, and when to skip.
#![allow(dead_code)] // each test file uses a part

#[path = "../../../lpm/tests/common/sample.rs"]
pub mod sample;

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramInput};
use trieline_bpf::{Home, Options, Tables};

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

/// Why the tests of this file cannot run here. TRIELINE_NO_SKIP=1 makes that a failure.
pub fn skip(what: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return false;
    }
    assert!(std::env::var_os("TRIELINE_NO_SKIP").is_none(), "{what} may not be skipped, and needs root");
    println!("SKIP: {what}: needs root");
    true
}

/// Homes of this kernel. The arena may be missing (Linux 6.1), the array may not.
pub fn homes() -> Vec<Home> {
    assert_eq!(Home::Array.probe(), Ok(()));
    match Home::Arena.probe() {
        Ok(()) => vec![Home::Array, Home::Arena],
        Err(reason) => {
            println!("SKIP: arena: {reason}");
            vec![Home::Array]
        }
    }
}

pub fn tables(home: Home, bytes: u64) -> Tables {
    Tables::create(&Options { home: Some(home), bytes, tables: 16 }).unwrap()
}

/// `programs/lookups.bpf.c` for a home, not yet loaded.
pub fn open(home: Home) -> OpenObject {
    let bytes: &[u8] = match home {
        Home::Arena => object!("lookups_arena"),
        Home::Array => object!("lookups_array"),
    };
    ObjectBuilder::default().open_memory(bytes).unwrap()
}

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
    assert!(map.as_fd().try_clone_to_owned().is_ok());
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
    bytes.chunks_exact(8).map(|pair| (word(&pair[..4]), word(&pair[4..]))).collect()
}
