//! Bytes as a list of prefixes or the output of `ip route`: read or refused, never a panic.
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use trieline_lpm::io::{Format, ReadOptions, iproute, read, text};

fuzz_target!(|data: &[u8]| {
    let path = shared::file(data);
    let _ = iproute::read(&path);
    let _ = read(&path, &ReadOptions { format: Some(Format::IpRoute), ..ReadOptions::default() });
    let _ = read(&path, &ReadOptions::default());
    let _ = text::read(&path);
});
