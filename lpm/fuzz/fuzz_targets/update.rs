//! Bytes as a sequence of changes: one by one, all at once, the whole table, the default route. After each, the image is sound and the
//! answers are those of the exact list; an image that is full has changed nothing.
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use shared::sample::Sample;
use shared::{Input, Twin};
use std::collections::BTreeMap;
use trieline_lpm::{Key, Prefix};

fn update<A: Sample>(mut input: Input<'_>) -> Option<()> {
    let chunks = 1 + usize::from(input.byte()? % 8);
    let mut known: Vec<A> = Vec::new();
    let mut twin = Twin::new(chunks, BTreeMap::new())?;
    loop {
        let op = input.byte()?;
        let from = known.len();
        match op % 8 {
            0..=2 => {
                let (prefix, value) = (input.prefix(&mut known)?, input.value()?);
                if let Ok(old) = twin.table.insert(&mut twin.image, prefix, value) {
                    assert_eq!(old, twin.model.insert(prefix, value));
                }
            }
            3..=4 => {
                let near = input.prefix(&mut known)?;
                let prefix = twin.model.range(near..).next().map_or(near, |(prefix, _)| *prefix);
                if let Ok(old) = twin.table.remove(&mut twin.image, &prefix) {
                    assert_eq!(old, twin.model.remove(&prefix));
                }
            }
            5 => {
                let all = Prefix::truncated(A::ZERO, 0);
                let value = (op < 128).then(|| input.value()).flatten();
                if twin.table.apply(&mut twin.image, [(all, value)]).is_ok() {
                    match value {
                        Some(value) => twin.model.insert(all, value),
                        None => twin.model.remove(&all),
                    };
                }
            }
            _ => {
                // A run of prefixes beside one another, and some of the input's own.
                let (run, first) = (usize::from(input.byte()?), input.prefix(&mut known)?);
                let value = input.value()?;
                let mut changes = Vec::new();
                let bits = first.len().min(16);
                for index in 0..run {
                    let moved = first.addr().bits_at(first.len() - bits, bits) ^ (index & ((1 << bits) - 1));
                    let mut addr = first.addr().masked(first.len() - bits);
                    for bit in 0..bits {
                        if moved >> (bits - 1 - bit) & 1 == 1 {
                            addr = addr.filled(first.len() - bits + bit).masked(first.len() - bits + bit + 1);
                        }
                    }
                    let value = value.wrapping_add(index as u32 * u32::from(op >> 4)) & 0x7fff_ffff;
                    changes.push((Prefix::truncated(addr, first.len()), (value != 0).then_some(value)));
                }
                for _ in 0..input.byte()? % 8 {
                    let prefix = input.prefix(&mut known)?;
                    changes.push((prefix, input.value().filter(|value| value % 3 != 0)));
                }
                if op % 8 == 6 {
                    if twin.table.apply(&mut twin.image, changes.iter().copied()).is_ok() {
                        for (prefix, value) in changes {
                            match value {
                                Some(value) => twin.model.insert(prefix, value),
                                None => twin.model.remove(&prefix),
                            };
                        }
                    }
                } else {
                    let all: BTreeMap<_, _> =
                        changes.into_iter().filter_map(|(prefix, value)| Some((prefix, value?))).collect();
                    if twin.table.replace(&mut twin.image, all.clone()).is_ok() {
                        twin.model = all;
                    }
                }
            }
        }
        twin.check(&known[from..]);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let _ = match input.byte().unwrap_or(0) % 10 {
        0..=2 => update::<u32>(input),
        3..=4 => update::<u128>(input),
        5 => update::<Key<1, 1>>(input),
        6 => update::<Key<13, 2>>(input),
        7 => update::<Key<48, 6>>(input),
        8 => update::<Key<144, 18>>(input),
        _ => update::<Key<2048, 256>>(input),
    };
});
