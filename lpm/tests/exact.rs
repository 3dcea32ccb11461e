//! The hash table of prefixes of full length, where its user would notice: answers of readers that hold on to a table, sizes, damage.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::sync::atomic::Ordering;
use trieline_lpm::image::layout::{DIR_BITS, DIRECTORY, TableHeader};
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Error, HeapMemory, Image, Memory, NoReaders, Prefix, Table};

type Heap = Image<HeapMemory, NoReaders>;

fn image() -> Heap {
    Image::create(HeapMemory::new(32 << 20), NoReaders::default(), 1).unwrap()
}

fn buckets(image: &Heap) -> u32 {
    let report = verify(image.memory().words()).unwrap();
    report.tables[0].nodes.iter().find(|(kind, _)| *kind == "bucket").map_or(0, |(_, count)| *count)
}

/// Hosts all over IPv4.
fn host(n: u32) -> Prefix<u32> {
    Prefix::host(n.wrapping_mul(2_654_435_761))
}

fn hosts(from: u32, to: u32) -> impl Iterator<Item = (Prefix<u32>, u32)> {
    (from..to).map(|n| (host(n), n + 1))
}

/// `tl_lookup4_n` loads the roots of all addresses first. Between that and the rest a cover comes and a key goes.
#[test]
fn several_at_once_take_no_root_from_before_the_key() {
    let cover = |len| Prefix::truncated(host(7).addr(), len);
    let mut image = image();
    let mut table = Table::create(&mut image, 0, hosts(0, 1000).chain([(cover(8), 5001)])).unwrap();
    assert!(buckets(&image) > 0);
    let header = common::Header::get();
    let word = image.reader().table_word(0);
    let changes = image.memory().words()[DIRECTORY as usize / 4 + 1].load(Ordering::Relaxed);
    let entry = u64::from(word) | u64::from(changes) << 32;
    let before = header.root4(image.memory(), word, host(7).addr());
    table.insert(&mut image, cover(24), 5002).unwrap();
    table.remove(&mut image, &host(7)).unwrap();
    assert_eq!(image.reader().table_word(0), word);
    assert_eq!(header.finish4(image.memory(), 0, entry, before, host(7).addr()), 5002);
}

/// A reader that holds a table from before gets the answers of the one that is there.
#[test]
fn a_held_table_gives_new_answers() {
    for count in [1000, 3] {
        let memory = std::sync::Arc::new(HeapMemory::new(32 << 20));
        let mut image = Image::create(memory.clone(), NoReaders::default(), 1).unwrap();
        let mut table = Table::create(&mut image, 0, hosts(0, count)).unwrap();
        let reader = trieline_lpm::Reader::new(memory.words()).unwrap();
        let held = reader.table::<u32>(0).unwrap();
        let addrs = [1, 2].map(|n| host(n).addr());
        let ask = || {
            let mut values = [0; 2];
            held.lookup_batch(&addrs, &mut values);
            assert_eq!(
                values.map(|value| (value != 0).then_some(value)),
                addrs.map(|addr| held.lookup(addr))
            );
            values
        };
        assert_eq!(ask(), [2, 3]);
        table.replace(&mut image, hosts(0, count).map(|(prefix, value)| (prefix, value + 100))).unwrap();
        assert_eq!(ask(), [102, 103]);
        table.insert(&mut image, Prefix::truncated(0, 0), 9).unwrap();
        table.remove(&mut image, &host(2)).unwrap();
        assert_eq!(ask(), [102, 9]);
        image.remove_table(0).unwrap();
        assert_eq!(ask(), [0, 0]);
    }
}

/// Hundreds of keys that come and go at once are changes of words, not another table.
#[test]
fn keys_that_come_and_go_together_rebuild_nothing() {
    let networks = (0..300u32).map(|n| (Prefix::truncated(n << 12, 24), n + 1));
    let mut image = image();
    let mut table = Table::create(&mut image, 0, hosts(0, 100_000).chain(networks)).unwrap();
    let word = image.reader().table_word(0);
    for round in 0..10 {
        let (from, to) = (100_000 + 600 * round, 100_600 + 600 * round);
        table.apply(&mut image, hosts(from, to).map(|(prefix, value)| (prefix, Some(value)))).unwrap();
        let old = (600 * round..600 + 600 * round).map(|n| (host(n), None));
        table.apply(&mut image, old).unwrap();
        image.reclaim();
        assert_eq!(image.reader().table_word(0), word, "round {round}");
    }
    assert_eq!(image.reader().lookup4(0, host(105_999).addr()), Some(106_000));
}

/// A node's addresses move to another block, one by one.
#[test]
fn keys_that_move_to_another_block_stay_in_a_hash_table() {
    let host = |block: u128, n: u128| Prefix::host(0x2001_0db8 << 96 | block << 80 | n);
    let networks = (0..5000u128).map(|n| (Prefix::truncated(0x2400 << 112 | n << 96, 32), n as u32 + 1));
    let mut image = image();
    let mut table = Table::create(&mut image, 0, networks.chain((0..3000).map(|n| (host(1, n), 7)))).unwrap();
    assert!(buckets(&image) > 0);
    for n in 0..3000 {
        table.insert(&mut image, host(2, n), 8).unwrap();
        table.remove(&mut image, &host(1, n)).unwrap();
        image.reclaim();
    }
    assert!(buckets(&image) > 0, "{:?}", verify(image.memory().words()).unwrap().tables);
    assert_eq!(image.reader().lookup6(0, host(2, 2999).addr()), Some(8));
}

/// A node's segments are in one block, the neighbours of each of its links in another. One hash table has them all. Few routes begin there.
#[test]
fn segments_and_neighbours_share_a_hash_table() {
    let near =
        (0x200..0x1200u128).filter(|n| *n != 0xdb8).map(|n| Prefix::truncated(0x2001 << 112 | n << 96, 32));
    let far = (0..5000u128).map(|n| Prefix::truncated(0x2a00 << 112 | n << 96 | n << 80, 48));
    let routes: Vec<Prefix<u128>> = near.chain(far).collect();
    let link = |link: u128| 0x2001_0db8 << 96 | link << 80;
    let links = (1..5).map(|n| Prefix::truncated(link(n), 64));
    let segments = (1..6u128).map(|n| Prefix::host(0xfc00 << 112 | 1 << 80 | (0xe000 | n) << 64));
    let neighbours = (1..5).flat_map(|n| (1..5u128).map(move |host| Prefix::host(link(n) | host)));
    let keys: Vec<Prefix<u128>> = segments.chain(neighbours).collect();
    let all: Vec<_> = routes.iter().copied().chain(links).chain(keys.iter().copied()).zip(1..).collect();
    let mut image = image();
    Table::create(&mut image, 0, all.iter().copied()).unwrap();
    let words = image.memory().words();
    let header = (image.reader().table_word(0) & !DIR_BITS) as usize - size_of::<TableHeader>();
    let field = |field: usize| {
        let [low, high] = [0, 4].map(|half| words[(header + field + half) / 4].load(Ordering::Relaxed));
        u64::from(low) | u64::from(high) << 32
    };
    let (mask, first) =
        (field(std::mem::offset_of!(TableHeader, mask)), field(std::mem::offset_of!(TableHeader, first)));
    for (prefix, value) in all {
        let is_inside = (prefix.addr() >> 64) as u64 & mask == first;
        assert!(is_inside || !keys.contains(&prefix), "{prefix} outside {first:x} under {mask:x}");
        assert_eq!(image.reader().lookup6(0, prefix.addr()), Some(value), "{prefix}");
    }
    let inside = routes.iter().filter(|route| (route.addr() >> 64) as u64 & mask == first).count();
    assert!(inside <= routes.len() / 64, "{inside} routes begin inside {first:x} under {mask:x}");
}

/// `verify` refuses a hash table that readers would misread.
#[test]
fn a_damaged_hash_table_is_refused() {
    let mut image = image();
    Table::create(&mut image, 0, hosts(0, 1000)).unwrap();
    let words = image.memory().words();
    let root = (image.reader().table_word(0) & !DIR_BITS) as usize / 4;
    let header = root - size_of::<TableHeader>() / 4;
    let refused = |at: usize, word: u32| {
        let old = words[at].swap(word, Ordering::Relaxed);
        let report = verify(words);
        words[at].store(old, Ordering::Relaxed);
        matches!(report, Err(Error::Damaged { .. }))
    };
    let field = |at: usize| header + at / 4;
    let multiplier = field(std::mem::offset_of!(TableHeader, multiplier));
    assert!(refused(multiplier, 0) && refused(multiplier, 2));
    assert!(refused(field(std::mem::offset_of!(TableHeader, first)), 1));
    let exact = words[field(std::mem::offset_of!(TableHeader, exact))].load(Ordering::Relaxed);
    let slots = (exact & !DIR_BITS) as usize / 4;
    let used: Vec<usize> = (slots..slots + (1 << (exact & DIR_BITS)))
        .filter(|at| words[*at].load(Ordering::Relaxed) != 0)
        .collect();
    let first = |at: usize| (words[at].load(Ordering::Relaxed) & 0x1fff_ffff) as usize * 2;
    for at in used.iter().take(100) {
        assert!(refused(first(*at) + 1, 0), "a bucket without a first entry");
        assert!(refused(*at, words[used[101]].load(Ordering::Relaxed)), "a bucket of two words");
    }
    assert!(verify(words).is_ok());
}
