//! Any arguments of safe calls and any content of a file: any size, any table with any image, any bytes. An error or a panic may
//! come of it; answers of other tables, or memory of others, may not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each suite uses its part")]
#[path = "common/hostile.rs"]
mod hostile;
#[allow(dead_code, reason = "each suite uses its part")]
#[path = "common/sample.rs"]
mod sample;

use memmap2::{MmapMut, MmapOptions};
use sample::Random;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use trieline_lpm::image::layout::{DIR_ENTRY, DIRECTORY};
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Error, HeapMemory, Image, Memory, NoReaders, Prefix, Reader, Table};

fn prefix(n: u32) -> Prefix<u32> {
    Prefix::truncated(n.wrapping_mul(2_654_435_761) & !0xf, 28)
}

#[test]
fn sizes_that_no_address_space_has() {
    for bytes in [usize::MAX, usize::MAX - 7, usize::MAX - (2 << 20), isize::MAX as usize] {
        assert!(catch_unwind(|| HeapMemory::new(bytes).words().len()).is_err(), "{bytes}");
    }
}

#[test]
fn a_table_that_is_not_the_images_changes_nothing() {
    let image = || Image::create(HeapMemory::new(8 << 20), NoReaders::default(), 4).unwrap();
    let all = |count| (0..count).map(|n| (prefix(n), n + 1));
    let (mut first, mut second) = (image(), image());
    // Made again, removed, removed and made again, and of another image with the same ids.
    let replaced = Table::create(&mut first, 0, all(3000)).unwrap();
    let mut current = Table::create(&mut first, 0, all(10)).unwrap();
    let removed = Table::create(&mut first, 1, all(3000)).unwrap();
    first.remove_table(1).unwrap();
    let reused = Table::create(&mut first, 2, all(3000)).unwrap();
    first.remove_table(2).unwrap();
    let mut other = Table::create(&mut first, 2, all(3000)).unwrap();
    let foreign = Table::create(&mut second, 2, all(3000)).unwrap();
    first.synchronize();
    for mut stale in [replaced, removed, reused, foreign] {
        let id = stale.id();
        for n in 0..200 {
            let errors = [
                stale.insert(&mut first, prefix(n), 700_000 + n).map(drop),
                stale.remove(&mut first, &prefix(n)).map(drop),
                stale.apply(&mut first, [(prefix(n), Some(9)), (prefix(n + 1), None)]).map(drop),
                stale.replace(&mut first, all(20)),
            ];
            assert!(errors.iter().all(|error| *error == Err(Error::Stale { id })), "{errors:?}");
        }
        assert_eq!(stale.len(), 3000, "it keeps what it had");
    }
    verify(first.memory().words()).unwrap();
    for n in 0..3000 {
        assert_eq!(first.reader().lookup(2, prefix(n).addr()), other.lookup(prefix(n).addr()).map(|it| it.1));
    }
    // Those that are the image's go on, and so does one whose successor could not be made.
    current.insert(&mut first, prefix(11), 5).unwrap();
    other.remove(&mut first, &prefix(7)).unwrap();
    let too_many = (0..2_000_000).map(|n| (Prefix::truncated(n << 9, 24), n + 1));
    assert!(matches!(Table::create(&mut first, 2, too_many), Err(Error::Full { .. })));
    other.replace(&mut first, all(7)).unwrap();
    assert_eq!(first.reader().lookup(2, prefix(6).addr()), Some(7));
}

/// Address space without memory before it is written to.
struct Space(MmapMut);

// SAFETY: the mapping stays where it is for as long as the value lives, is aligned to a page, zeroed, and used through atomics only.
unsafe impl Memory for Space {
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 4) }
    }
}

#[test]
fn an_image_ends_where_offsets_do() {
    let space = MmapOptions::new().len(8 << 30).no_reserve_swap().map_anon().unwrap();
    let image = Image::create(Space(space), NoReaders::default(), 80).unwrap();
    assert_eq!(image.stats().size, 1 << 32);
    let words = image.memory().words();
    let size = |size: u64| {
        words[2].store(size as u32, Ordering::Relaxed);
        words[3].store((size >> 32) as u32, Ordering::Relaxed);
    };
    for more in [1 << 16, 1 << 32] {
        size((1 << 32) + more);
        assert!(matches!(verify(words), Err(Error::Damaged { what: "size", .. })));
        assert!(Reader::new(words).is_err());
    }
    /// The same memory for a successor.
    struct Same<'a>(&'a [AtomicU32]);
    // SAFETY: as for the one borrowed.
    unsafe impl Memory for Same<'_> {
        fn words(&self) -> &[AtomicU32] {
            self.0
        }
    }
    assert!(Image::open(Same(words), NoReaders::default()).is_err());
    size(1 << 32);
    let mut next = Image::open(Same(words), NoReaders::default()).unwrap();
    let table = Table::create(&mut next, 70, (0..5000).map(|n| (prefix(n), n + 1))).unwrap();
    assert!(table.iter().all(|(prefix, value)| next.reader().lookup(70, prefix.addr()) == Some(value)));
    // The table at the very end of what offsets reach: nothing wraps.
    let root = (1u64 << 32) - (4 << 24) - 4096;
    words[(root / 4) as usize - 15].store(4 | 24 << 8 | 32 << 16, Ordering::Relaxed);
    words[(DIRECTORY + DIR_ENTRY * 71) as usize / 4].store(root as u32 | 24, Ordering::Relaxed);
    let reader = Reader::new(words).unwrap();
    assert!(reader.table::<u32>(71).is_some());
    assert_eq!(reader.lookup(71, u32::MAX), None);
}

/// As `./dev fuzz` with the target `open`, but for less long.
#[test]
fn a_writer_in_a_hostile_image() {
    let sound = hostile::sound();
    let used: Vec<usize> = (0..sound.len()).filter(|at| sound[*at] != 0).collect();
    let mut random = Random(5);
    let (mut taken, rounds) = (0, 600);
    for round in 0..rounds {
        let mut words = sound.clone();
        for _ in 0..random.below(3) {
            let at = if random.below(4) == 0 {
                random.below(u64::from(DIRECTORY / 4 + 12)) as usize
            } else {
                used[random.below(used.len() as u64) as usize]
            };
            let other = sound[used[random.below(used.len() as u64) as usize]];
            words[at] = match random.below(4) {
                0 => words[at] ^ 1 << random.below(32),
                1 => other,
                2 => words[at] & 0xe000_0000 | random.next() as u32 >> 8,
                _ => random.next() as u32,
            };
        }
        taken += u32::from(hostile::write_any(&words, random.next() ^ round));
    }
    println!("{taken} of {rounds} images taken");
    assert!(taken > 100 && u64::from(taken) < rounds);
}
