//! A writer in an image that somebody else made: whatever it says, a writer either refuses it or leaves every other table as it was.

use super::sample::{Exact, Random, Sample};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use trieline_lpm::image::verify::verify;
use trieline_lpm::{HeapMemory, Image, Key, Memory, NoReaders, Prefix, Reader, Table};

pub const BYTES: usize = 12 << 16;
const TABLES: u32 = 6;

fn table<A: Sample>(image: &mut Image<HeapMemory, NoReaders>, id: u32, count: u64, shared: u16, values: u64) {
    let mut random = Random(u64::from(id) + 7);
    let base = A::random(&mut random);
    let mut prefixes = BTreeMap::new();
    for _ in 0..count {
        let shared = random.below(u64::from(A::WIDTH.min(shared)) + 1) as u16;
        let addr = base.join(shared, A::random(&mut random));
        let len = A::WIDTH - random.below(u64::from(A::WIDTH.min(12))) as u16;
        prefixes.insert(Prefix::truncated(addr, len), random.below(values) as u32 + 1);
    }
    Table::create(image, id, prefixes).expect("small tables fit");
}

/// The words of an image with tables of every kind; two ids are free.
pub fn sound() -> Vec<u32> {
    let mut image = Image::create(HeapMemory::new(BYTES), NoReaders::default(), TABLES).expect("it fits");
    table::<u32>(&mut image, 0, 90, 28, 20);
    table::<u32>(&mut image, 1, 90, 24, 1 << 30);
    table::<u128>(&mut image, 2, 90, 100, 50);
    table::<Key<144, 18>>(&mut image, 3, 60, 130, 1 << 30);
    image.memory().words().iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

/// The answers of the tables of one kind of keys, except for table `but`.
fn answers<A: Sample>(reader: Reader<'_>, but: u32) -> Vec<Option<u32>> {
    let mut random = Random(99);
    let mut all = Vec::new();
    for id in (0..TABLES).filter(|id| *id != but) {
        let base = A::random(&mut Random(u64::from(id) + 7));
        for _ in 0..40 {
            let shared = random.below(u64::from(A::WIDTH) + 1) as u16;
            all.push(reader.lookup(id, base.join(shared, A::random(&mut random))));
        }
    }
    all
}

fn all(reader: Reader<'_>, but: u32) -> Vec<Option<u32>> {
    let mut all = answers::<u32>(reader, but);
    all.extend(answers::<u128>(reader, but));
    all.extend(answers::<Key<144, 18>>(reader, but));
    all
}

/// Opens the image in `words` as a new writer does, makes table `id` and changes it; returns whether the image was taken.
pub fn write<A: Sample>(words: &[u32], id: u32, seed: u64) -> bool {
    let memory = HeapMemory::new(words.len() * 4);
    memory.words().iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
    let is_sound = verify(memory.words()).is_ok();
    let Ok(mut image) = Image::open(memory, NoReaders::default()) else {
        assert!(!is_sound, "what `verify` calls sound can be opened");
        return false;
    };
    assert!(is_sound, "what can be opened is sound");
    let before = all(image.reader(), id);
    let mut random = Random(seed | 1);
    let mut model = BTreeMap::new();
    let any = |random: &mut Random| {
        let addr = A::ZERO.join(1, A::random(random));
        Prefix::truncated(addr, random.below(u64::from(A::WIDTH) + 1) as u16)
    };
    for _ in 0..200 {
        model.insert(any(&mut random), random.below(1 << 30) as u32 + 1);
    }
    // It may be full, or have no such id.
    if let Ok(mut table) = Table::create(&mut image, id, model.clone()) {
        for _ in 0..60 {
            let prefix = any(&mut random);
            let known = model.range(prefix..).next().map_or(prefix, |(prefix, _)| *prefix);
            if random.below(2) == 0 {
                assert_eq!(table.remove(&mut image, &known).expect("never refused"), model.remove(&known));
            } else if table.insert(&mut image, prefix, 5).is_ok() {
                model.insert(prefix, 5);
            }
        }
        let exact = Exact::new(model.iter().map(|(prefix, value)| (*prefix, *value)).collect());
        for addr in model.keys().flat_map(|prefix| [prefix.addr(), prefix.last()]) {
            let expected = if table.is_withdrawn() { 0 } else { exact.lookup(addr) };
            assert_eq!(image.reader().lookup(id, addr).unwrap_or(0), expected);
        }
    }
    verify(image.memory().words()).expect("a writer leaves a sound image");
    assert_eq!(all(image.reader(), id), before, "other tables stay as they were");
    true
}

/// [`write`] with a table of some kind of keys.
pub fn write_any(words: &[u32], seed: u64) -> bool {
    let id = (seed % u64::from(TABLES + 1)) as u32;
    match seed / 8 % 3 {
        0 => write::<u32>(words, id, seed),
        1 => write::<u128>(words, id, seed),
        _ => write::<Key<144, 18>>(words, id, seed),
    }
}
