//! Bytes as an MRT dump, by every way to make values of it: read or refused, never a panic.
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use trieline_lpm::io::{MrtValue, ReadOptions, mrt};

fuzz_target!(|data: &[u8]| {
    let path = shared::file(data);
    for mrt_value in [MrtValue::NextHop, MrtValue::Origin, MrtValue::Med] {
        let _ = mrt::read(&path, &ReadOptions { mrt_value, ..ReadOptions::default() });
    }
});
