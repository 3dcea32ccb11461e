//! Bytes as JSON, a list or what `ip -j route` prints: read or refused, never a panic.
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = trieline_lpm::io::json::read(&shared::file(data));
});
