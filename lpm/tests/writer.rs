//! The promises of one writer: nothing half-applied if the memory runs out, nothing reused before its grace period. And a successor that
//! takes over from a killed writer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use trieline_lpm::image::layout;
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Error, Grace, HeapMemory, Image, Memory, NoReaders, Prefix, Reader, Table};

fn p(text: &str) -> Prefix<u32> {
    text.parse().unwrap()
}

/// Prefixes with random addresses and lengths 8 ... 32, and values 1, 2, ...
fn random(count: u32, mut seed: u64) -> Vec<(Prefix<u32>, u32)> {
    (1..=count)
        .map(|value| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (Prefix::truncated((seed >> 32) as u32, 8 + (seed >> 16) as u16 % 25), value)
        })
        .collect()
}

/// A grace period that passes when the test says so.
#[derive(Clone, Default)]
struct Manual(Rc<RefCell<(u64, u64)>>);

impl Manual {
    fn pass(&self) {
        let mut state = self.0.borrow_mut();
        state.1 = state.0;
    }
}

impl Grace for Manual {
    fn begin(&mut self) -> u64 {
        let mut state = self.0.borrow_mut();
        state.0 += 1;
        state.0
    }
    fn passed(&mut self) -> u64 {
        self.0.borrow().1
    }
    fn wait(&mut self, ticket: u64) {
        assert!(ticket <= self.0.borrow().0);
        self.pass();
    }
}

struct Shared(Rc<HeapMemory>);
// SAFETY: the same memory as the one shared.
unsafe impl Memory for Shared {
    fn words(&self) -> &[std::sync::atomic::AtomicU32] {
        self.0.words()
    }
}

fn bytes(memory: &HeapMemory) -> Vec<u32> {
    memory.words().iter().map(|word| word.load(std::sync::atomic::Ordering::Relaxed)).collect()
}

#[test]
fn nothing_is_reused_before_its_grace_period() {
    let memory = Rc::new(HeapMemory::new(4 << 20));
    let grace = Manual::default();
    let mut image = Image::create(Shared(memory.clone()), grace.clone(), 1).unwrap();
    let mut table = Table::create(&mut image, 0, random(5000, 1)).unwrap();
    // The memory of a reader that stopped in the middle of a lookup: all bytes now.
    let before = bytes(&memory);
    let word = image.reader().table_word(0);
    let used: Vec<bool> = before.iter().map(|word| *word != 0).collect();
    table.replace(&mut image, random(5000, 2)).unwrap();
    image.reclaim();
    let after = bytes(&memory);
    let directory = (64 / 4)..(64 / 4 + 2);
    for index in (0..before.len()).filter(|index| used[*index] && !directory.contains(index)) {
        assert_eq!(before[index], after[index], "word {index} changed under a reader");
    }
    assert_ne!(image.reader().table_word(0), word);
    assert!(image.stats().limbo > 0);
    grace.pass();
    assert!(!image.reclaim());
    assert_eq!(image.stats().limbo, 0);
}

#[test]
fn a_full_image_changes_nothing() {
    let mut image = Image::create(HeapMemory::new(2 << 16), NoReaders::default(), 2).unwrap();
    let mut table = Table::<u32>::create(&mut image, 0, []).unwrap();
    let mut kept = Vec::new();
    let error = loop {
        let (prefix, value) = (random(1, kept.len() as u64)[0].0, kept.len() as u32 + 1);
        match table.insert(&mut image, prefix, value) {
            Ok(_) => kept.push((prefix, value)),
            Err(error) => break error,
        }
        assert!(kept.len() < 100_000);
    };
    assert!(matches!(error, Error::Full { size: 131072, .. }), "{error}");
    assert!(kept.len() > 1000, "{}", kept.len());
    let used = image.stats().used;
    let big = Table::<u32>::create(&mut image, 1, random(50_000, 9));
    assert!(matches!(big, Err(Error::Full { .. })));
    assert_eq!(image.stats().used, used, "a failed build gives its memory back");
    assert_eq!(image.reader().table_word(1), 0);
    assert!(matches!(table.replace(&mut image, random(50_000, 9)), Err(Error::Full { .. })));
    for (prefix, _) in &kept {
        let expected = table.lookup(prefix.addr()).map(|(_, value)| value);
        assert_eq!(image.reader().lookup4(0, prefix.addr()), expected);
    }
    // To take a prefix away may need a node too: that is never refused (tests/during.rs looks closer).
    for (prefix, _) in &kept {
        table.remove(&mut image, prefix).unwrap();
    }
    assert!(table.is_empty());
    table.replace(&mut image, random(500, 3)).unwrap();
}

#[test]
fn bad_arguments_are_named() {
    let error =
        |bytes, tables| Image::create(HeapMemory::new(bytes), NoReaders::default(), tables).unwrap_err();
    assert!(matches!(error(4096, 1), Error::Size { least: 65536, .. }));
    assert!(matches!(error(65536, 10_000), Error::Size { least: 131072, .. }));
    assert!(matches!(error(65536 + 8, 1), Error::Size { .. }));
    let mut image = Image::create(HeapMemory::new(1 << 16), NoReaders::default(), 2).unwrap();
    let table = Table::<u32>::create(&mut image, 2, []).unwrap_err();
    assert_eq!(
        table.to_string(),
        "invalid table id 2: expected one below 2, the slots of the image's directory"
    );
    let mut table = Table::<u32>::create(&mut image, 1, []).unwrap();
    for value in [0, 1 << 31, u32::MAX] {
        assert_eq!(table.insert(&mut image, p("10.0.0.0/8"), value).unwrap_err(), Error::Value { value });
    }
    assert!(Table::create(&mut image, 0, [(p("10.0.0.0/8"), 0)]).is_err());
    assert_eq!(image.reader().lookup4(0, 0x0a00_0001), None, "and no table was made");
    assert_eq!(image.reader().lookup4(7, 0x0a00_0001), None);
    let empty = HeapMemory::new(1 << 16);
    assert_eq!(Reader::new(empty.words()).unwrap_err(), Error::NotAnImage { found: 0 });
    empty.words()[0].store(layout::MAGIC, std::sync::atomic::Ordering::Relaxed);
    empty.words()[1].store(77, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(Reader::new(empty.words()).unwrap_err(), Error::Version { found: 77 });
}

#[test]
fn a_successor_takes_over_and_reclaims() {
    let memory = Rc::new(HeapMemory::new(16 << 20));
    let (first, second) = (random(20_000, 1), random(20_000, 2));
    let six: Vec<(Prefix<u128>, u32)> = first
        .iter()
        .map(|(p, v)| (Prefix::truncated(u128::from(p.addr()) << 96, p.len() + 16), *v))
        .collect();
    let mut image = Image::create(Shared(memory.clone()), NoReaders::default(), 4).unwrap();
    let one = Table::create(&mut image, 0, first.iter().copied()).unwrap();
    let other = Table::create(&mut image, 1, six.iter().copied()).unwrap();
    drop((image, other)); // kill -9: nothing is tidied up
    let mut alone = Image::create(HeapMemory::new(16 << 20), NoReaders::default(), 4).unwrap();
    Table::create(&mut alone, 0, second.iter().copied()).unwrap();
    Table::create(&mut alone, 1, six.iter().copied()).unwrap();
    let fresh = alone.stats();

    for generation in 2..20 {
        let grace = Manual::default();
        let mut image = Image::open(Shared(memory.clone()), grace.clone()).unwrap();
        assert_eq!(image.stats().generation, generation);
        if generation == 2 {
            for (prefix, _) in &first {
                let expected = one.lookup(prefix.addr()).map(|(_, value)| value);
                assert_eq!(image.reader().lookup4(0, prefix.addr()), expected, "old tables still answer");
            }
        }
        let table = Table::create(&mut image, 0, second.iter().copied()).unwrap();
        if generation % 3 == 0 {
            continue; // killed between the two tables
        }
        let mut six_table = Table::create(&mut image, 1, six.iter().copied()).unwrap();
        image.synchronize();
        let stats = image.stats();
        assert_eq!((stats.used, stats.limbo), (fresh.used, 0));
        assert!(stats.claimed <= fresh.claimed + (2 << 16), "{stats:?} {fresh:?}");
        for (prefix, _) in table.iter() {
            let addr = prefix.last();
            assert_eq!(image.reader().lookup4(0, addr), table.lookup(addr).map(|(_, value)| value));
        }
        for (prefix, _) in &six[..100] {
            six_table.remove(&mut image, prefix).unwrap();
        }
    }
}

#[test]
fn a_damaged_image_is_refused_and_walked_within_bounds() {
    let memory = Rc::new(HeapMemory::new(1 << 20));
    let mut image = Image::create(Shared(memory.clone()), NoReaders::default(), 1).unwrap();
    let table = Table::create(&mut image, 0, random(3000, 5)).unwrap();
    drop(image);
    let sound = bytes(&memory);
    let mut seed = 11u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 32) as u32
    };
    let used: Vec<usize> = (0..sound.len()).filter(|index| sound[*index] != 0).collect();
    let mut refused = 0;
    for _ in 0..2000 {
        let changed: Vec<usize> = (0..1 + next() % 3).map(|_| used[next() as usize % used.len()]).collect();
        for index in &changed {
            let flipped = sound[*index] ^ 1 << (next() % 32);
            let value = if next() % 2 == 0 { flipped } else { next() };
            memory.words()[*index].store(value, std::sync::atomic::Ordering::Relaxed);
        }
        refused += u32::from(Image::open(Shared(memory.clone()), NoReaders::default()).is_err());
        if let Ok(reader) = Reader::new(memory.words()) {
            for _ in 0..100 {
                reader.lookup4(0, next());
                reader.lookup6(0, u128::from(next()) << 96);
            }
        }
        for index in 0..changed.len() {
            memory.words()[changed[index]].store(sound[changed[index]], std::sync::atomic::Ordering::Relaxed);
        }
        // `open` counts generations in the header
        memory.words()[5].store(sound[5], std::sync::atomic::Ordering::Relaxed);
    }
    assert!(refused > 100, "{refused}");
    let reader = Reader::new(memory.words()).unwrap();
    for (prefix, _) in table.iter() {
        assert_eq!(reader.lookup4(0, prefix.addr()), table.lookup(prefix.addr()).map(|(_, value)| value));
    }
}

/// A long stream of updates does not spread over ever more memory.
#[test]
fn churn_does_not_grow_the_image() {
    let mut image = Image::create(HeapMemory::new(16 << 20), NoReaders::default(), 1).unwrap();
    let mut table = Table::create(&mut image, 0, random(30_000, 1)).unwrap();
    let start = image.stats();
    for round in 2..30 {
        let old: Vec<_> = table.iter().step_by(7).collect();
        for ((prefix, _), (fresh, value)) in old.into_iter().zip(random(30_000, round)) {
            table.remove(&mut image, &prefix).unwrap();
            table.insert(&mut image, fresh, value).unwrap();
        }
    }
    image.synchronize();
    let end = image.stats();
    assert!(end.used < start.used * 11 / 10, "{start:?} {end:?}");
    assert!(end.claimed < start.claimed * 14 / 10 + (1 << 20), "{start:?} {end:?}");
    let mut alone = Image::create(HeapMemory::new(16 << 20), NoReaders::default(), 1).unwrap();
    Table::create(&mut alone, 0, table.iter()).unwrap();
    assert!(end.used < alone.stats().used * 21 / 20, "edits leave nodes nearly as a build does");
}

/// Memory that is never reused, so that readers need no grace period.
struct Never;

impl Grace for Never {
    fn begin(&mut self) -> u64 {
        1
    }
    fn passed(&mut self) -> u64 {
        0
    }
    fn wait(&mut self, _ticket: u64) {}
}

struct Threads(std::sync::Arc<HeapMemory>);
// SAFETY: the same memory as the one shared.
unsafe impl Memory for Threads {
    fn words(&self) -> &[std::sync::atomic::AtomicU32] {
        self.0.words()
    }
}

/// Ends readers, also when their writer panics.
struct Done<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// While prefixes and the default route come and go, a lookup never answers what was right in no state.
#[test]
fn every_answer_belongs_to_a_state() {
    let memory = std::sync::Arc::new(HeapMemory::new(256 << 20));
    let mut image = Image::create(Threads(memory.clone()), Never, 1).unwrap();
    // Beside the prefix that comes and goes, so that it is a change deep in the tree.
    let others = [(p("0.0.0.0/0"), 1), (p("10.1.3.0/24"), 9), (p("10.1.4.0/23"), 8)];
    let mut table = Table::<u32>::create(&mut image, 0, others).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let wrong = std::thread::scope(|threads| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                threads.spawn(|| {
                    let reader = Reader::new(memory.words()).unwrap();
                    let (mut wrong, mut seen) = (0u64, [0u64; 4]);
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        match reader.lookup4(0, 0x0a01_0203) {
                            // the default route alone, or a prefix over a default route or none
                            Some(value @ 1..=3) => seen[value as usize] += 1,
                            _ => wrong += 1,
                        }
                    }
                    assert!(seen[1] > 0 && seen[2] > 0, "{seen:?}");
                    wrong
                })
            })
            .collect();
        let writing = Done(&done);
        let covers = [p("10.0.0.0/7"), p("10.0.0.0/8"), p("10.0.0.0/15"), p("10.1.2.0/24")];
        for (round, cover) in covers.iter().cycle().take(40_000).enumerate() {
            // A prefix is there whenever the default route is another or none.
            table.insert(&mut image, *cover, 2 + round as u32 % 2).unwrap();
            if round % 3 == 0 {
                table.remove(&mut image, &p("0.0.0.0/0")).unwrap();
            } else {
                table.insert(&mut image, p("0.0.0.0/0"), 7).unwrap();
            }
            table.insert(&mut image, p("0.0.0.0/0"), 1).unwrap();
            table.remove(&mut image, cover).unwrap();
        }
        drop(writing);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    assert_eq!(wrong, 0);
}

#[test]
fn a_larger_root_that_does_not_fit_is_done_without() {
    let mut image = Image::create(HeapMemory::new(3 << 16), NoReaders::default(), 1).unwrap();
    let small = |from: u32, to: u32| (from..to).map(|n| (Prefix::truncated(n << 8, 31), n + 1));
    let mut table = Table::create(&mut image, 0, small(0, 4000)).unwrap();
    for (prefix, value) in small(4000, 8500) {
        if table.insert(&mut image, prefix, value).is_err() {
            break;
        }
    }
    assert_eq!(table.root_bits(), 12);
    assert!(table.len() > 8192 || image.stats().used > 2 << 16, "{} {:?}", table.len(), image.stats());
}

/// A new image where an old one was: readers of the old one may still be at it.
#[test]
fn an_image_over_an_image_waits() {
    let memory = Rc::new(HeapMemory::new(4 << 20));
    let mut image = Image::create(Shared(memory.clone()), NoReaders::default(), 1).unwrap();
    Table::create(&mut image, 0, random(5000, 1)).unwrap();
    drop(image);
    let before = bytes(&memory);
    let grace = Manual::default();
    let mut image = Image::create(Shared(memory.clone()), grace.clone(), 1).unwrap();
    assert_eq!(bytes(&memory)[32..], before[32..]);
    assert_eq!(image.reader().table_word(0), 0);
    assert!(image.reclaim(), "waits for a grace period");
    grace.pass();
    Table::create(&mut image, 0, random(5000, 2)).unwrap();
}

/// Pairs of words are read at once, so that an image must not begin between two.
#[test]
fn an_image_that_is_not_aligned_is_refused() {
    let image = Image::create(HeapMemory::new(2 << 16), NoReaders::default(), 1).unwrap();
    let sound = image.memory().words();
    let moved = HeapMemory::new(3 << 16);
    let moved = &moved.words()[1..];
    for (from, to) in sound.iter().zip(moved) {
        to.store(from.load(std::sync::atomic::Ordering::Relaxed), std::sync::atomic::Ordering::Relaxed);
    }
    assert_eq!(Reader::new(moved).unwrap_err(), trieline_lpm::Error::Unaligned);
    assert_eq!(verify(moved).unwrap_err(), trieline_lpm::Error::Unaligned);
    assert!(Reader::new(sound).is_ok());
}

/// A large table has chunks of its own. All of them come back at once, after the grace period and not before, while another table
/// stays as it is.
#[test]
fn a_large_table_is_freed_beside_live_ones() {
    let grace = Manual::default();
    let mut image = Image::create(HeapMemory::new(16 << 20), grace.clone(), 3).unwrap();
    let small = Table::create(&mut image, 0, random(200, 3)).unwrap();
    let live = Table::create(&mut image, 1, random(50_000, 4)).unwrap();
    let empty = image.stats();
    for round in 0..5 {
        let mut large = Table::create(&mut image, 2, random(100_000, round)).unwrap();
        // Its nodes are replaced here and there, and it gets a default route.
        for (prefix, value) in random(3_000, round + 100) {
            large.insert(&mut image, prefix, value).unwrap();
        }
        large.insert(&mut image, p("0.0.0.0/0"), 7).unwrap();
        image.remove_table(2).unwrap();
        let removed = image.stats();
        assert!(removed.limbo > 1 << 20 && removed.used == empty.used, "{removed:?}");
        assert!(image.reclaim() && image.stats().limbo == removed.limbo, "no grace period has passed");
        grace.pass();
        image.reclaim();
        let after = image.stats();
        assert_eq!((after.limbo, after.used, after.claimed), (0, empty.used, empty.claimed), "round {round}");
        let free: u64 = image.take_unused().iter().map(|range| range.end - range.start).sum();
        assert!(free > 1 << 20, "{free}");
    }
    for (id, table) in [(0, &small), (1, &live)] {
        for (prefix, _) in table.iter() {
            let value = table.lookup(prefix.last()).map(|(_, value)| value);
            assert_eq!(image.reader().lookup(id, prefix.last()), value);
        }
    }
    trieline_lpm::image::verify::verify(image.memory().words()).unwrap();
}

#[test]
fn a_large_table_that_does_not_fit_leaves_nothing() {
    let mut image = Image::create(HeapMemory::new(20 << 16), NoReaders::default(), 2).unwrap();
    let table = Table::create(&mut image, 0, random(5_000, 1)).unwrap();
    let before = image.stats();
    for _ in 0..3 {
        assert!(matches!(Table::create(&mut image, 1, random(200_000, 2)), Err(Error::Full { .. })));
        let after = image.stats();
        assert_eq!((after.used, after.limbo, after.claimed), (before.used, before.limbo, before.claimed));
    }
    Table::create(&mut image, 1, random(4_500, 2)).expect("as much room as before");
    for (prefix, _) in table.iter() {
        let value = table.lookup(prefix.addr()).map(|(_, value)| value);
        assert_eq!(image.reader().lookup(0, prefix.addr()), value);
    }
}

#[test]
fn a_small_table_of_hosts_has_a_larger_root() {
    let mut image = Image::create(HeapMemory::new(4 << 16), NoReaders::default(), 3).unwrap();
    let networks = ["10.0.0.0/8", "192.0.2.0/24"].map(|text| (p(text), 1));
    let mut table = Table::create(&mut image, 0, networks).unwrap();
    assert_eq!(table.root_bits(), 8);
    let before = image.stats().used;
    table.insert(&mut image, p("192.0.2.1/32"), 2).unwrap();
    assert_eq!(table.root_bits(), 10);
    table.remove(&mut image, &p("192.0.2.1/32")).unwrap();
    image.synchronize();
    assert_eq!(table.root_bits(), 10, "it stays");
    assert!(image.stats().used < before + (4 << 10), "the first root is free again");
    assert_eq!(Table::create(&mut image, 1, [(p("192.0.2.1"), 1)]).unwrap().root_bits(), 10);
    assert_eq!(Table::create(&mut image, 2, random(65, 1)).unwrap().root_bits(), 12);
}

/// Pages that could not be given back are offered again, as far as they are free then.
#[test]
fn unused_memory_is_offered_again() {
    let mut image = Image::create(HeapMemory::new(8 << 20), NoReaders::default(), 2).unwrap();
    Table::<u32>::create(&mut image, 0, random(100_000, 3)).unwrap();
    image.remove_table(0).unwrap();
    image.synchronize();
    let ranges = image.take_unused();
    let sum = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    assert!(sum(&ranges) > 1 << 20);
    assert_eq!(image.take_unused(), []);
    image.offer_unused(&ranges);
    assert_eq!(image.take_unused(), ranges);
    image.offer_unused(&ranges);
    Table::<u32>::create(&mut image, 1, random(50_000, 4)).unwrap();
    let left = image.take_unused();
    assert!(!left.is_empty() && sum(&left) < sum(&ranges));
    // None of it is in use.
    for range in &left {
        let words = &image.memory().words()[range.start as usize / 4..range.end as usize / 4];
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
    verify(image.memory().words()).unwrap();
}

/// The default route changes while a palette's values go and others take their codes.
#[test]
fn a_default_route_changes_beside_a_palette() {
    let mut image = Image::create(HeapMemory::new(8 << 20), NoReaders::default(), 1).unwrap();
    let networks = (0..5_000u32).map(|n| (Prefix::truncated(n << 16 | n << 8, 24), 1 + n % 10));
    let mut table = Table::create(&mut image, 0, networks).unwrap();
    for round in 0..3u32 {
        table.insert(&mut image, p("0.0.0.0/0"), 1 + round).unwrap();
        // Values that are there become nodes, then values come that the palette has not seen.
        for n in 0..2_000u32 {
            let prefix = Prefix::truncated(n << 16 | n << 8 | (n % 4 + round) << 5, 27);
            table.insert(&mut image, prefix, 1 + (n + round) % 10).unwrap();
        }
        for n in 0..70u32 {
            let prefix = Prefix::truncated(0xc000_0000 | (70 * round + n) << 8, 24);
            table.insert(&mut image, prefix, 100 + 70 * round + n).unwrap();
        }
        verify(image.memory().words()).unwrap();
        for (prefix, _) in table.iter() {
            for addr in [prefix.addr(), prefix.last()] {
                let value = table.lookup(addr).map(|(_, value)| value);
                assert_eq!(image.reader().lookup(0, addr), value, "{prefix:?}");
            }
        }
    }
}

/// An image whose free parts lie apart, 1 MiB here and there. Table 0 is not made yet.
fn torn() -> Image<HeapMemory, NoReaders> {
    let mut torn = Image::create(HeapMemory::new(192 << 20), NoReaders::default(), 400).unwrap();
    let part = |id: u32| small(2_100_000).skip(id as usize).take(40_000);
    let full = (1..400).find(|id| Table::create(&mut torn, *id, part(*id)).is_err()).unwrap();
    for id in (1..full).step_by(2) {
        torn.remove_table(id).unwrap();
    }
    torn.synchronize();
    torn
}

/// Networks of two addresses.
fn small(count: u32) -> impl Iterator<Item = (Prefix<u32>, u32)> {
    (0..count).map(|n| (Prefix::truncated(n.wrapping_mul(2_654_435_761), 31), n + 1))
}

/// Millions of prefixes have a root of 4 MiB where there is room for one, and else a smaller one.
#[test]
fn a_root_of_four_mebibytes_that_does_not_fit_is_done_without() {
    let all: BTreeMap<_, _> = small(2_100_000).collect();
    let mut roomy = Image::create(HeapMemory::new(256 << 20), NoReaders::default(), 1).unwrap();
    assert_eq!(Table::create(&mut roomy, 0, all.clone()).unwrap().root_bits(), 20);
    let mut torn = torn();
    let table = Table::create(&mut torn, 0, all.clone()).unwrap();
    assert_eq!(table.root_bits(), 18);
    for (prefix, value) in all.into_iter().step_by(1000) {
        assert_eq!(torn.reader().lookup(0, prefix.addr()), Some(value));
    }
}

/// So do hosts with the words of their hash table, and else stand below the root.
#[test]
fn a_hash_table_that_does_not_fit_is_done_without() {
    let hosts = || (0..1_500_000u32).map(|n| (Prefix::host(n.wrapping_mul(2_654_435_761)), n + 1));
    let has_buckets = |image: &Image<HeapMemory, NoReaders>| {
        let report = verify(image.memory().words()).unwrap();
        report.tables.iter().any(|table| table.nodes.iter().any(|(kind, _)| *kind == "bucket"))
    };
    let mut roomy = Image::create(HeapMemory::new(256 << 20), NoReaders::default(), 1).unwrap();
    Table::create(&mut roomy, 0, hosts()).unwrap();
    let mut torn = torn();
    Table::create(&mut torn, 0, hosts()).unwrap();
    assert_eq!([&roomy, &torn].map(has_buckets), [true, false]);
    for (prefix, value) in hosts().step_by(1000) {
        assert_eq!([&roomy, &torn].map(|image| image.reader().lookup(0, prefix.addr())), [Some(value); 2]);
    }
}

/// Hosts that leave a hash table together, also with the default route, and come again.
#[test]
fn hosts_go_and_come_together() {
    let mut image = Image::create(HeapMemory::new(16 << 20), NoReaders::default(), 1).unwrap();
    let host = |n: u32| Prefix::host(u128::from(n) << 64 | 0x2001_0db8 << 96);
    let default = Prefix::truncated(0, 0);
    let mut table = Table::create(&mut image, 0, (0..9000).map(|n| (host(n), n + 1))).unwrap();
    for (kept, with_default) in [(9000, true), (8500, false), (100, true), (1, false), (0, true), (0, false)]
    {
        let gone = (kept..9000).map(|n| (host(n), None));
        table.apply(&mut image, gone.chain(with_default.then_some((default, Some(77))))).unwrap();
        assert_eq!(table.len(), kept as usize + usize::from(with_default));
        let fallback = with_default.then_some(77);
        for n in (0..9000).step_by(37) {
            let value = if n < kept { Some(n + 1) } else { fallback };
            assert_eq!(image.reader().lookup(0, host(n).addr()), value, "{n} of {kept}");
        }
        verify(image.memory().words()).unwrap();
        let back = (kept..9000).map(|n| (host(n), Some(n + 1)));
        table.apply(&mut image, back.chain(with_default.then_some((default, None)))).unwrap();
        assert_eq!(image.reader().lookup(0, host(8999).addr()), Some(9000));
        assert_eq!(table.len(), 9000);
    }
}

/// Hosts become worth a hash table if enough of the other prefixes go.
#[test]
fn removals_alone_bring_a_hash_table() {
    let mut image = Image::create(HeapMemory::new(1 << 22), NoReaders::default(), 1).unwrap();
    let network = |n: u32| Prefix::truncated(10 << 24 | n << 8, 24);
    let mut table = Table::create(&mut image, 0, (0..1000).map(|n| (network(n), 1))).unwrap();
    for n in 0..100u32 {
        let host = Prefix::truncated(192 << 24 | n.wrapping_mul(0x9e37_79b9) >> 8, 32);
        table.insert(&mut image, host, 2).unwrap();
    }
    let buckets = |image: &Image<HeapMemory, NoReaders>| {
        let nodes = &verify(image.memory().words()).unwrap().tables[0].nodes;
        nodes.iter().find(|(kind, _)| *kind == "bucket").map_or(0, |(_, count)| *count)
    };
    assert_eq!(buckets(&image), 0);
    for n in 0..800 {
        table.remove(&mut image, &network(n)).unwrap();
    }
    assert!(buckets(&image) > 50, "{}", buckets(&image));
}
