//! Bytes as prefixes with values: the table that is built from them gives the answers of the exact list.
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use shared::sample::Sample;
use shared::{Input, Twin};
use std::collections::BTreeMap;
use trieline_lpm::{Key, Prefix};

fn build<A: Sample>(mut input: Input<'_>) -> Option<()> {
    // How the prefixes are repeated: sets that only large tables have (larger roots, palettes that run out, nodes of hosts).
    let (copies, step) = (input.byte()?, input.byte()?);
    let (mut known, mut model) = (Vec::new(), BTreeMap::new());
    while let (Some(prefix), Some(value)) = (input.prefix::<A>(&mut known), input.value()) {
        model.insert(prefix, value);
    }
    let first: Vec<(Prefix<A>, u32)> = model.iter().map(|(prefix, value)| (*prefix, *value)).collect();
    for (prefix, value) in first.iter().take(64) {
        for copy in 1..usize::from(copies) {
            let index = (copy * (usize::from(step) + 1)) & 0xffff;
            let bits = A::WIDTH.min(16);
            let moved = prefix.addr().bits_at(0, bits) ^ (index & ((1 << bits) - 1));
            let addr = A::from_index(moved, bits).join(bits, prefix.addr());
            model.insert(Prefix::truncated(addr, prefix.len()), *value + (copy as u32 & u32::from(step)));
        }
    }
    Twin::new(64, model)?.check(&known);
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let _ = match input.byte().unwrap_or(0) % 10 {
        0..=2 => build::<u32>(input),
        3..=4 => build::<u128>(input),
        5 => build::<Key<1, 1>>(input),
        6 => build::<Key<13, 2>>(input),
        7 => build::<Key<48, 6>>(input),
        8 => build::<Key<144, 18>>(input),
        _ => build::<Key<2048, 256>>(input),
    };
});
