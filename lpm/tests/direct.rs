//! A direct12 below a root of IPv6: where it may end, that it comes and goes, and readers meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use trieline_lpm::image::layout::{DIRECT_UNITS, GUARD, UNIT};
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Epochs, HeapMemory, Image, Memory, NoReaders, Prefix, Table};

const ID: u32 = 0;

/// Prefix `n` of the slot `slot` of a root of twelve bits.
fn prefix(slot: u128, n: u128, len: u16) -> Prefix<u128> {
    Prefix::truncated(slot << 116 | n << (128 - len), len)
}

fn directs(memory: &impl Memory) -> u32 {
    let nodes = &verify(memory.words()).unwrap().tables[0].nodes;
    nodes.iter().find(|(kind, _)| *kind == "direct12").map_or(0, |(_, count)| *count)
}

/// Bytes in use in a new image of these prefixes.
fn used(prefixes: impl IntoIterator<Item = (Prefix<u128>, u32)>) -> u64 {
    let mut image = Image::create(HeapMemory::new(16 << 20), NoReaders::default(), 1).unwrap();
    Table::create(&mut image, ID, prefixes).unwrap();
    image.stats().used
}

/// No byte lies between the last direct12 and the guard.
#[test]
fn a_direct12_may_end_at_the_guard() {
    let mut ended = 0;
    // The directory's length moves the nodes.
    for tables in (1700..1800).step_by(4) {
        let mut image = Image::create(HeapMemory::new(64 << 10), NoReaders::default(), tables).unwrap();
        let prefixes = (0..260).map(|n| (prefix(0x200 + n % 2, n / 2, 24), n as u32 + 1));
        if Table::create(&mut image, ID, prefixes.clone()).is_err() {
            continue;
        }
        let (words, reader) = (image.memory().words(), image.reader());
        let guard = (words.len() as u32 * 4 - GUARD) / UNIT;
        let root = verify(words).unwrap().tables[0].root_bits;
        let last = (guard - DIRECT_UNITS) | 1 << 31;
        ended += u32::from(root == 12 && words.iter().any(|word| word.load(Ordering::Relaxed) == last));
        let addrs: Vec<u128> = prefixes.clone().map(|(prefix, _)| prefix.last()).collect();
        let mut values = vec![0; addrs.len()];
        reader.lookup_batch(ID, &addrs, &mut values);
        for ((_, value), (addr, found)) in prefixes.zip(addrs.into_iter().zip(values)) {
            assert_eq!((reader.lookup(ID, addr), found), (Some(value), value), "{tables} {addr:x}");
        }
    }
    assert!(ended > 0, "no direct12 ended there");
}

/// A table gets the root for prefixes that are spread, or for those that are not, also if they come one by one.
#[test]
fn the_root_follows_the_prefixes() {
    let mut image = Image::create(HeapMemory::new(64 << 20), NoReaders::default(), 1).unwrap();
    let mut table = Table::create(&mut image, ID, []).unwrap();
    let mut insert = |prefix| table.insert(&mut image, prefix, 1).map(|_| table.root_bits()).unwrap();
    let few = (0..2000).map(|n| insert(prefix(0x200 + n % 2, n / 2, 48))).last();
    assert_eq!(few, Some(12));
    let spread = (0..20_000).map(|n| insert(prefix(0x400 + n % 1024, n / 1024, 48))).last();
    assert_eq!(spread, Some(16));
    let few = (0..200_000).map(|n| insert(prefix(0x200 + n % 2, n / 2, 48))).last();
    assert_eq!(few, Some(12));
}

/// Prefixes in slots that had many of them once take the memory that they take in a new image.
#[test]
fn memory_comes_back() {
    let mut image = Image::create(HeapMemory::new(16 << 20), NoReaders::default(), 1).unwrap();
    let mut table = Table::create(&mut image, ID, []).unwrap();
    for (slot, n) in (0x240..0x280).flat_map(|slot| (0..1100).map(move |n| (slot, n))) {
        table.insert(&mut image, prefix(slot, n, 48), 1 + n as u32).unwrap();
    }
    assert_eq!(directs(image.memory()), 64);
    for (slot, n) in (0x240..0x280).flat_map(|slot| (7..1100).map(move |n| (slot, n))) {
        table.remove(&mut image, &prefix(slot, n, 48)).unwrap();
    }
    assert_eq!(directs(image.memory()), 0);
    // A prefix that covers an empty slot, and one that covers many.
    for n in 0..7 {
        table.remove(&mut image, &prefix(0x250, n, 48)).unwrap();
    }
    for len in [12, 8] {
        table.insert(&mut image, Prefix::truncated(0x250 << 116, len), 5).unwrap();
        table.remove(&mut image, &Prefix::truncated(0x250 << 116, len)).unwrap();
    }
    let rest = (0x240..0x280).filter(|slot| *slot != 0x250);
    let least = used(rest.flat_map(|slot| (0..7).map(move |n| (prefix(slot, n, 48), 1 + n as u32))));
    let now = image.stats().used;
    assert!(now <= least + (32 << 10), "{now} bytes, {least} in a new image");
}

/// A batch keeps what it saw of the root: meanwhile the writer may put nodes where a direct12 was.
#[test]
fn batches_while_a_direct12_comes_and_goes() {
    let (memory, epochs) = (Arc::new(HeapMemory::new(4 << 20)), Epochs::new(2));
    let mut image = Image::create(memory, epochs, 1).unwrap();
    let others = [0x240, 0x260].into_iter().flat_map(|slot| (0..200).map(move |n| (slot, n)));
    // Each alone below its slot of the direct12.
    let many = (0..150u128).map(|n| (prefix(0x200, n << 24, 48), 7));
    let all = others.map(|(slot, n)| (prefix(slot, n, 48), 3)).chain(many.clone());
    let mut table = Table::create(&mut image, ID, all.chain([(prefix(0x200, 0, 12), 1)])).unwrap();
    // Its bits tell from where they are compared.
    let stays = prefix(0x200, 21 << 24, 48).last();
    let is_over = AtomicBool::new(false);
    let mut reader = image.readers().register().unwrap();
    thread::scope(|threads| {
        let batches = threads.spawn(|| {
            let mut values = [0; 64];
            while !is_over.load(Ordering::Relaxed) {
                reader.pin().reader().lookup_batch(ID, &[stays; 64], &mut values);
                assert_eq!(values, [7; 64]);
            }
        });
        let mut seen = [0; 2];
        for turn in 0..if cfg!(miri) { 4 } else { 3000 } {
            let is_less = turn % 2 == 0;
            let changes = many.clone().skip(40).map(|(prefix, value)| (prefix, (!is_less).then_some(value)));
            let above = (prefix(0x200, 0, 12), Some(1 + turn % 2));
            table.apply(&mut image, changes.chain([above])).unwrap();
            image.reclaim();
            seen[usize::from(is_less)] += directs(image.memory());
            if batches.is_finished() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        batches.join().unwrap();
        assert_ne!(seen[0], seen[1], "it came and went");
    });
}
