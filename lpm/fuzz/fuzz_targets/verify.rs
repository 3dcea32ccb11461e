//! Bytes as an image, or as damage done to a sound one. `verify` ends with a verdict, a reader stays inside and ends, and where the
//! verdict is "sound" all ways to look up agree.
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use shared::Input;
use shared::sample::{Random, Sample};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use trieline_lpm::image::verify::verify;
use trieline_lpm::{HeapMemory, Image, Key, Memory, NoReaders, Prefix, Reader, Table};

const BYTES: usize = 16 << 16;

fn table<A: Sample>(image: &mut Image<HeapMemory, NoReaders>, id: u32, count: u64, shared: u16, values: u64) {
    let mut random = Random(u64::from(id) + 7);
    let base = A::random(&mut random);
    let mut prefixes = BTreeMap::new();
    for _ in 0..count {
        let addr =
            base.join(random.below(u64::from(A::WIDTH.min(shared)) + 1) as u16, A::random(&mut random));
        let len = A::WIDTH - random.below(u64::from(A::WIDTH.min(12))) as u16;
        prefixes.insert(Prefix::truncated(addr, len), random.below(values) as u32 + 1);
    }
    Table::create(image, id, prefixes).expect("small tables fit");
}

/// An image with tables of every kind, and its words.
fn sound() -> (HeapMemory, Vec<u32>) {
    let mut image = Image::create(HeapMemory::new(BYTES), NoReaders::default(), 8).expect("it fits");
    table::<u32>(&mut image, 0, 90, 28, 20);
    table::<u32>(&mut image, 1, 90, 24, 1 << 30);
    table::<u128>(&mut image, 2, 90, 100, 50);
    table::<u128>(&mut image, 3, 200, 20, 50);
    table::<Key<13, 2>>(&mut image, 4, 60, 13, 9);
    table::<Key<144, 18>>(&mut image, 5, 60, 130, 1 << 30);
    let words: Vec<u32> = image.memory().words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
    drop(image);
    (HeapMemory::new(BYTES), words)
}

/// Looks keys of one kind up in the tables `ids` by every way; returns whether all ways said the same.
fn walk<A: Sample>(memory: &HeapMemory, ids: std::ops::Range<u32>, seed: u64, near: &[u32]) -> bool {
    let Ok(reader) = Reader::new(memory.words()) else { return true };
    let mut random = Random(seed | 1);
    let mut addrs: Vec<A> = (0..20).map(|_| A::random(&mut random)).collect();
    // The tables' keys begin as these do.
    for id in 0..6 {
        let base = A::random(&mut Random(id + 7));
        let mut shared = || random.below(u64::from(A::WIDTH) + 1) as u16;
        let lens = [shared(), shared(), shared(), shared()];
        addrs.extend(lens.map(|len| base.join(len, A::random(&mut random))));
    }
    addrs.extend(
        near.iter().map(|word| {
            A::from_index(*word as usize & 0xff >> 8u16.saturating_sub(A::WIDTH), A::WIDTH.min(8))
        }),
    );
    let (mut batch, mut portable) = (vec![0; addrs.len()], vec![0; addrs.len()]);
    let mut is_same = true;
    for id in ids {
        reader.lookup_batch(id, &addrs, &mut batch);
        reader.lookup_batch_portable(id, &addrs, &mut portable);
        for (at, addr) in addrs.iter().enumerate() {
            let single = reader.lookup(id, *addr).unwrap_or(0);
            is_same &= [batch[at], portable[at]] == [single; 2];
        }
    }
    is_same
}

thread_local! {
    static IMAGE: RefCell<(HeapMemory, Vec<u32>)> = RefCell::new(sound());
}

fn run(data: &[u8]) -> Option<()> {
    let mut input = Input(data);
    let mode = input.byte()?;
    IMAGE.with_borrow(|(memory, words)| {
        let set = |at: usize, value: u32| memory.words()[at % words.len()].store(value, Ordering::Relaxed);
        let mut near = Vec::new();
        if mode % 4 == 0 {
            // The fuzzer's own image, behind a sound header.
            words.iter().enumerate().for_each(|(at, word)| set(at, if at < 16 { *word } else { 0 }));
            for (at, four) in input.0.chunks_exact(4).enumerate() {
                set(16 + at, u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
            }
        } else {
            words.iter().enumerate().for_each(|(at, word)| set(at, *word));
            let used: Vec<usize> = (0..words.len()).filter(|at| words[*at] != 0).collect();
            while let (Some(at), Some(how), Some(low), Some(high)) =
                (input.short(), input.byte(), input.short(), input.short())
            {
                let at = used[usize::from(at) * used.len() >> 16];
                let other = words[used[usize::from(low) * used.len() >> 16]];
                set(
                    at,
                    match how % 4 {
                        0 => words[at] ^ 1 << (low % 32),
                        1 => other, // a ref to what another leads to: shared blocks and cycles
                        2 => words[at] & 0xe000_0000 | u32::from(high) << 13 | u32::from(low),
                        _ => u32::from(high) << 16 | u32::from(low),
                    },
                );
                near.push(u32::from(low));
            }
        }
        let seed = u64::from(mode) << 8;
        // Nine tables where there are eight; what they say of keys of another kind, or in a damaged image, is not asked.
        walk::<u32>(memory, 0..9, seed, &near);
        walk::<u128>(memory, 0..9, seed, &near);
        walk::<Key<13, 2>>(memory, 0..9, seed, &near);
        walk::<Key<144, 18>>(memory, 0..9, seed, &near);
        walk::<Key<2048, 256>>(memory, 0..9, seed, &near);
        for table in verify(memory.words()).map(|report| report.tables).unwrap_or_default() {
            let ids = table.id..table.id + 1;
            assert!(match (table.family, table.key_bits) {
                (4, _) => walk::<u32>(memory, ids, seed, &near),
                (6, _) => walk::<u128>(memory, ids, seed, &near),
                (_, 13) => walk::<Key<13, 2>>(memory, ids, seed, &near),
                (_, 144) => walk::<Key<144, 18>>(memory, ids, seed, &near),
                _ => true,
            });
        }
    });
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(data);
});
