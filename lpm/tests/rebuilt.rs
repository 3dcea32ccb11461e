//! Tables whose words were damaged: they are built once more without trust in those words, and no other table loses memory to it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use trieline_lpm::image::layout;
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Error, HeapMemory, Image, Memory, NoReaders, Prefix, Reader, Table};

/// Prefixes with random addresses and lengths 8 ... 32, and values 1, 2, ...
fn random(count: u32, mut seed: u64) -> Vec<(Prefix<u32>, u32)> {
    (1..=count)
        .map(|value| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (Prefix::truncated((seed >> 32) as u32, 8 + (seed >> 16) as u16 % 25), value)
        })
        .collect()
}

struct Shared(Rc<HeapMemory>);
// SAFETY: the same memory as the one shared.
unsafe impl Memory for Shared {
    fn words(&self) -> &[AtomicU32] {
        self.0.words()
    }
}

/// A table whose words were damaged, its root word, too, is right again after a rebuild, and no other table loses memory to it.
#[test]
fn a_damaged_table_is_rebuilt_without_trust() {
    for count in [50, 6000] {
        let memory = Rc::new(HeapMemory::new(8 << 20));
        let mut image = Image::create(Shared(memory.clone()), NoReaders::default(), 2).unwrap();
        let prefixes = random(count, 7);
        let mut table = Table::create(&mut image, 0, prefixes.clone()).unwrap();
        let mut other = Table::create(&mut image, 1, random(50, 8)).unwrap();
        let before: Vec<_> = other.iter().collect();
        // Slots of the root, in the part behind the root word's offset, and the word itself.
        let words = memory.words();
        let directory = layout::DIRECTORY as usize / 4;
        let root = (words[directory].load(Ordering::Relaxed) & !layout::DIR_BITS) as usize / 4;
        for (n, word) in words[root..root + 256].iter().enumerate() {
            word.store([0, 0x8fff_fff8, 0x7fff_ffff, 0x8000_0010][n % 4], Ordering::Relaxed);
        }
        let second = directory + layout::DIR_ENTRY as usize / 4;
        words[directory].store(words[second].load(Ordering::Relaxed), Ordering::Relaxed);
        assert_eq!(Reader::new(words).unwrap().table_word(0), Reader::new(words).unwrap().table_word(1));
        table.rebuild(&mut image, prefixes.clone()).unwrap();
        let reader = Reader::new(memory.words()).unwrap();
        let check = |table: &Table<u32>, id| {
            for (prefix, _) in table.iter() {
                let wanted = table.lookup(prefix.addr()).map(|(_, value)| value);
                assert_eq!(
                    reader.lookup(id, prefix.addr()),
                    wanted,
                    "{prefix} of table {id}, {count} prefixes"
                );
            }
        };
        check(&table, 0);
        // Memory of either is used again and again.
        for round in 0..200 {
            for (prefix, value) in random(40, round) {
                table.insert(&mut image, prefix, value).unwrap();
                other.insert(&mut image, prefix, value).unwrap();
            }
            for (prefix, _) in random(40, round) {
                other.remove(&mut image, &prefix).unwrap();
            }
            image.synchronize();
        }
        for (prefix, value) in before {
            other.insert(&mut image, prefix, value).unwrap();
        }
        check(&table, 0);
        check(&other, 1);
        verify(memory.words()).unwrap();
    }
}

/// Writes words that lead anywhere into the first slots of a table's root.
fn damage(words: &[AtomicU32], id: usize) {
    let directory =
        words[(layout::DIRECTORY as usize + layout::DIR_ENTRY as usize * id) / 4].load(Ordering::Relaxed);
    let root = (directory & !layout::DIR_BITS) as usize / 4;
    for (n, word) in words[root..root + 256].iter().enumerate() {
        word.store([0, 0x8fff_fff8, 0x7fff_ffff, 0x8000_0010][n % 4], Ordering::Relaxed);
    }
}

/// A small table that is damaged again and again takes no memory that is never used again, but at the first time.
#[test]
fn further_rebuilds_lose_no_memory() {
    let memory = Rc::new(HeapMemory::new(8 << 20));
    let mut image = Image::create(Shared(memory.clone()), NoReaders::default(), 1).unwrap();
    let prefixes = random(500, 9);
    let mut table = Table::create(&mut image, 0, prefixes.clone()).unwrap();
    let mut used = Vec::new();
    for round in 0..30 {
        damage(memory.words(), 0);
        table.rebuild(&mut image, prefixes.clone()).unwrap();
        if round % 3 == 0 {
            table.replace(&mut image, prefixes.clone()).unwrap();
        }
        image.synchronize();
        used.push(image.stats().used);
    }
    assert!(used.iter().all(|now| *now == used[0]), "{used:?}");
    for (prefix, _) in table.iter() {
        let wanted = table.lookup(prefix.addr()).map(|(_, value)| value);
        assert_eq!(image.reader().lookup(0, prefix.addr()), wanted);
    }
}

/// If a damaged table cannot be rebuilt, whatever takes its place later does not walk its words either.
#[test]
fn the_words_of_a_failed_rebuild_are_never_trusted() {
    let memory = Rc::new(HeapMemory::new(1 << 20));
    let mut image = Image::create(Shared(memory.clone()), NoReaders::default(), 4096).unwrap();
    let prefixes = random(500, 10);
    let mut table = Table::create(&mut image, 0, prefixes.clone()).unwrap();
    let mut other = Table::create(&mut image, 1, random(50, 11)).unwrap();
    let mut fill = |id| Table::<u32>::create(&mut image, id, random(200, id.into())).map(drop);
    let full = (2..4096).find(|id| fill(*id).is_err()).unwrap();
    damage(memory.words(), 0);
    assert!(matches!(table.rebuild(&mut image, prefixes.clone()), Err(Error::Full { .. })));
    drop(table);
    for id in 2..full {
        image.remove_table(id).unwrap();
    }
    image.synchronize();
    let table = Table::create(&mut image, 0, prefixes).unwrap();
    for round in 0..100 {
        for (prefix, value) in random(40, round) {
            other.insert(&mut image, prefix, value).unwrap();
        }
        image.synchronize();
    }
    for (id, table) in [(0, &table), (1, &other)] {
        for (prefix, _) in table.iter() {
            let wanted = table.lookup(prefix.addr()).map(|(_, value)| value);
            assert_eq!(image.reader().lookup(id, prefix.addr()), wanted, "{prefix} of table {id}");
        }
    }
    verify(memory.words()).unwrap();
}
