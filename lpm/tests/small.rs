//! Small tables of every kind through the unsafe code, also with damage, and readers beside a writer. They are small enough for miri
//! (`./dev miri`). It finds errors without a wrong answer: loads outside the memory, data races, references that must not alias.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each suite uses its part")]
#[path = "common/sample.rs"]
mod sample;

use sample::{Exact, Random, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use trieline_lpm::image::layout::{
    DIR_BITS, DIR_ENTRY, DIRECTORY, LEAF6, NODE6, PALETTE, REF_KIND_SHIFT, REF_NODE, UNIT,
};
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Epochs, HeapMemory, Image, Key, Memory, NoReaders, Prefix, Table};

const ID: u32 = 1;
/// More than the stages of a batch take at once, and some that are left.
const ADDRS: usize = 75;
/// As many as the stages of a batch take.
const BATCH: usize = 64;

/// Prefixes of at least `len` bits that share their first `shared` ones, and values below `values`.
struct Shape {
    shared: u16,
    len: u16,
    count: usize,
    values: u64,
}

impl Shape {
    /// Of the image. Miri looks at a whole image wherever a reference to it is made, so that it must be small.
    fn chunks(&self) -> usize {
        if self.count > 1000 { 48 } else { 2 }
    }

    fn prefix<A: Sample>(&self, random: &mut Random) -> Prefix<A> {
        let base = A::ZERO.join(1, A::random(&mut Random(7)));
        let addr = base.join(self.shared, A::random(random));
        Prefix::truncated(addr, self.len + random.below(u64::from(A::WIDTH - self.len) + 1) as u16)
    }

    fn value(&self, random: &mut Random) -> u32 {
        random.below(self.values) as u32 + 1
    }

    /// Builds, changes, looks up, damages; returns the kinds of nodes that there were.
    fn run<A: Sample>(&self) -> BTreeSet<&'static str> {
        let random = &mut Random(1);
        let mut model = BTreeMap::new();
        while model.len() < self.count {
            model.insert(self.prefix::<A>(random), self.value(random));
        }
        let mut image = Image::create(HeapMemory::new(self.chunks() << 16), NoReaders::default(), 2).unwrap();
        let mut table = Table::create(&mut image, ID, model.clone()).unwrap();
        self.check(&image, &model, random);
        for _ in 0..8 {
            let (prefix, value) = (self.prefix(random), self.value(random));
            assert_eq!(table.insert(&mut image, prefix, value).unwrap(), model.insert(prefix, value));
            let known = model.range(self.prefix(random)..).next().map(|(prefix, _)| *prefix);
            if let Some(prefix) = known {
                assert_eq!(table.remove(&mut image, &prefix).unwrap(), model.remove(&prefix));
            }
            image.reclaim();
        }
        let many: Vec<_> = (0..6).map(|_| (self.prefix(random), Some(self.value(random)))).collect();
        let many = many.into_iter().chain([(Prefix::truncated(A::ZERO, 0), Some(3))]);
        table.apply(&mut image, many.clone()).unwrap();
        model.extend(many.filter_map(|(prefix, value)| Some((prefix, value?))));
        self.check(&image, &model, random);
        let report = verify(image.memory().words()).unwrap();
        let kinds = report.tables[0].nodes.iter().filter(|(_, count)| *count > 0).map(|(kind, _)| *kind);
        self.damage::<A>(&image, random);
        kinds.collect()
    }

    fn addrs<A: Sample>(&self, random: &mut Random) -> Vec<A> {
        let near = |prefix: Prefix<A>, random: &mut Random| match random.below(3) {
            0 => prefix.addr(),
            1 => prefix.last(),
            _ => A::random(random),
        };
        (0..ADDRS).map(|_| near(self.prefix(random), random)).collect()
    }

    /// All ways to look up give the exact answers.
    fn check<A: Sample>(
        &self,
        image: &Image<HeapMemory, NoReaders>,
        model: &BTreeMap<Prefix<A>, u32>,
        random: &mut Random,
    ) {
        let exact = Exact::new(model.iter().map(|(prefix, value)| (*prefix, *value)).collect());
        let mut addrs = self.addrs(random);
        addrs.extend(model.keys().take(ADDRS).map(Prefix::addr));
        let mut values = vec![0; addrs.len()];
        let reader = image.reader();
        let table = reader.table(ID).unwrap();
        // In two parts of any lengths.
        let (first, second) = addrs.split_at(addrs[0].word_at(0) as usize % addrs.len());
        let (of_first, of_second) = values.split_at_mut(first.len());
        reader.lookup_batch(ID, first, of_first);
        table.lookup_batch(second, of_second);
        for (addr, value) in addrs.iter().zip(values) {
            let one = [reader.lookup(ID, *addr), table.lookup(*addr)].map(|value| value.unwrap_or(0));
            assert_eq!([one[0], one[1], value], [exact.lookup(*addr); 3], "{addr:?}");
        }
    }

    /// Whatever an image holds, a reader stays inside it.
    fn damage<A: Sample>(&self, image: &Image<HeapMemory, NoReaders>, random: &mut Random) {
        let words = image.memory().words();
        let claimed = image.stats().claimed as usize / 4;
        // Not the directory, whose entries are 64 bits: miri ends at a store of half of one. `tests/damaged.rs` and the fuzz target look at those.
        let directory = DIRECTORY as usize / 4..(DIRECTORY + DIR_ENTRY * 2) as usize / 4;
        let is_used = |at: &usize| !directory.contains(at) && words[*at].load(Ordering::Relaxed) != 0;
        let used: Vec<usize> = (0..claimed).filter(is_used).collect();
        let mut values = [0; ADDRS];
        for _ in 0..if cfg!(miri) { 4 } else { 10 } {
            for _ in 0..used.len() / 50 {
                let at = used[random.below(used.len() as u64) as usize];
                // The last units before the guard, and what lies behind them, are what damage is worst for.
                let last = words.len() as u32 / 2 - random.below(600) as u32;
                let kind = (random.below(8) as u32) << 29;
                words[at].store(
                    if random.below(2) == 0 { kind | last } else { random.next() as u32 },
                    Ordering::Relaxed,
                );
            }
            let addrs = self.addrs::<A>(random);
            let reader = image.reader();
            reader.lookup_batch(ID, &addrs, &mut values);
            for addr in addrs {
                let _ = reader.lookup(ID, addr);
            }
        }
    }
}

#[test]
fn tables_of_every_kind() {
    let mut kinds = BTreeSet::new();
    let (few, distinct) = (9, 1 << 30);
    // As many as it takes for a palette, which are too many for miri.
    if !cfg!(miri) {
        kinds.extend(Shape { shared: 4, len: 17, count: 4100, values: few }.run::<u32>());
        kinds.extend(Shape { shared: 104, len: 116, count: 5200, values: few }.run::<u128>());
    }
    kinds.extend(Shape { shared: 20, len: 22, count: 60, values: distinct }.run::<u32>());
    kinds.extend(Shape { shared: 12, len: 32, count: 60, values: distinct }.run::<u32>());
    kinds.extend(Shape { shared: 70, len: 74, count: 60, values: few }.run::<u128>());
    kinds.extend(Shape { shared: 112, len: 120, count: 200, values: distinct }.run::<u128>());
    kinds.extend(Shape { shared: 120, len: 128, count: 60, values: distinct }.run::<u128>());
    kinds.extend(Shape { shared: 4, len: 7, count: 40, values: few }.run::<Key<13, 2>>());
    kinds.extend(Shape { shared: 100, len: 120, count: 40, values: few }.run::<Key<144, 18>>());
    let all = ["bucket", "direct12", "leaf6", "leaf8", "node6", "node8", "ranges", "ranges32", "skip"];
    let expected =
        all.iter().filter(|kind| !(cfg!(miri) && (kind.starts_with("leaf") || **kind == "direct12")));
    assert!(kinds.iter().eq(expected), "{kinds:?}");
}

#[test]
fn readers_beside_a_writer() {
    let (memory, epochs) = (Arc::new(HeapMemory::new(1 << 16)), Epochs::new(2));
    let mut image = Image::create(memory, epochs, 2).unwrap();
    // Its prefixes' values all have the same last bits, in whatever state it is.
    let prefix = |n: u32| Prefix::truncated(n << 12, 22 + n as u16 % 7);
    let mut table = Table::create(&mut image, ID, (0..20).map(|n| (prefix(n), n << 8 | 1))).unwrap();
    let (readers, begin, done) = (image.readers(), Barrier::new(3), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 1..3 {
            let (mut reader, begin, done) = (readers.register().unwrap(), &begin, &done);
            scope.spawn(move || {
                let mut random = Random(seed);
                let (mut values, mut found) = ([0; BATCH], 0);
                begin.wait();
                while !done.load(Ordering::Relaxed) || found == 0 {
                    let pinned = reader.pin();
                    let addrs: Vec<u32> =
                        (0..BATCH).map(|_| (random.below(20) << 12 | random.below(16)) as u32).collect();
                    pinned.reader().lookup_batch(ID, &addrs, &mut values);
                    for (addr, batch) in addrs.iter().zip(values) {
                        for value in [batch, pinned.lookup4(ID, *addr).unwrap_or(0)] {
                            let is_right = value & 0xff == 1 && value >> 8 & 31 == addr >> 12;
                            assert!(value == 0 || is_right, "{addr:#x}: {value:#x}");
                            found += u32::from(value != 0);
                        }
                    }
                }
            });
        }
        begin.wait();
        let mut random = Random(3);
        for round in 0..45u32 {
            let n = random.below(20) as u32;
            match round % 3 {
                0 => table.remove(&mut image, &prefix(n)).unwrap(),
                _ => table.insert(&mut image, prefix(n), round << 16 | n << 8 | 1).unwrap(),
            };
            if round % 20 == 19 {
                let all = (0..20).map(|n| (prefix(n), round << 16 | n << 8 | 1));
                table.replace(&mut image, all).unwrap();
            }
            image.reclaim();
        }
        done.store(true, Ordering::Relaxed);
    });
    image.synchronize();
    assert_eq!(image.stats().limbo, 0);
}

/// Codes of a palette lie four in a word: a lookup takes one of them while the writer stores all four. If those accesses had two sizes, they
/// would race, which miri sees. A table with a palette takes miri minutes to build; so this one is laid by hand.
#[test]
fn codes_beside_a_writer() {
    const LEAF: usize = 1 << 15;
    const BITMAP: usize = LEAF + 4096;
    let mut image = Image::create(HeapMemory::new(1 << 16), NoReaders::default(), 2).unwrap();
    Table::<u32>::create(&mut image, ID, [(Prefix::truncated(12 << 24, 8), 5)]).unwrap();
    let words = image.memory().words();
    let store = |at: usize, value: u32| words[at].store(value, Ordering::Release);
    let leaf = |kind: u32, at: usize| REF_NODE | kind << REF_KIND_SHIFT | (at as u32 / UNIT);
    // Four codes of the leaf: of each slot the number, and 64 more in every later round.
    let codes =
        |word: u32, round: u32| u32::from_le_bytes([0, 1, 2, 3].map(|n| (4 * word + n + round * 64) as u8));
    // 10.0.0.0/8 has the leaf at once, 11.0.0.0/8 behind a bitmap of one run.
    let root = words[(DIRECTORY + DIR_ENTRY * ID) as usize / 4].load(Ordering::Relaxed);
    assert_eq!(root & DIR_BITS, 8);
    let root = (root & !DIR_BITS) as usize / 4;
    (0..PALETTE).for_each(|code| store(root + (1 << 8) + code, 1000 + code as u32));
    [u32::MAX; 2]
        .into_iter()
        .chain((0..16).map(|word| codes(word, 0)))
        .zip(LEAF / 4..)
        .for_each(|(word, at)| store(at, word));
    [1, 0, leaf(LEAF6, LEAF)].into_iter().zip(BITMAP / 4..).for_each(|(word, at)| store(at, word));
    store(root + 10, leaf(LEAF6, LEAF));
    store(root + 11, leaf(NODE6.id, BITMAP));
    let (reader, begin) = (image.reader(), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin.wait();
            for slot in (0..64).chain(0..64) {
                for addr in [10 << 24 | slot << 18, 11 << 24 | slot << 12] {
                    let found = reader.lookup4(ID, addr).unwrap() - 1000;
                    assert!(found % 64 == slot && found < 256, "{addr:#x}: {found}");
                }
            }
        });
        begin.wait();
        for round in 1..4 {
            (0..16).for_each(|word| store(LEAF / 4 + 2 + word as usize, codes(word, round)));
        }
    });
    assert_eq!(reader.lookup4(ID, 10 << 24 | 9 << 18), Some(1000 + 9 + 3 * 64));
}
