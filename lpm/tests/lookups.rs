//! Ten million random lookups over all key widths. Every reader says of every address what the list of prefixes says,
//! in tables of every kind, before and after changes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::Header;
use common::sample::{Exact, Random, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use trieline_lpm::image::verify::verify;
use trieline_lpm::oracle::Oracle;
use trieline_lpm::{HeapMemory, Image, Key, Memory, NoReaders, Prefix, Table};

/// Addresses that go into one batch, no multiple of the stages' width.
const BATCH: usize = 1021;
const ID: u32 = 1;

/// A table to look up in.
#[derive(Clone, Copy)]
struct Shape {
    prefixes: usize,
    /// Distinct values.
    values: u64,
    /// Whether most prefixes are whole keys.
    is_hosts: bool,
    /// Addresses that few prefixes share their first bits with: less makes the prefixes crowd and nest.
    bases: usize,
    lookups: usize,
}

struct Case<A: Sample> {
    shape: Shape,
    random: Random,
    bases: Vec<A>,
    lens: Vec<u16>,
}

impl<A: Sample> Case<A> {
    fn new(seed: u64, shape: Shape) -> Self {
        let mut random = Random(seed * 0x9e37_79b9 + 1);
        let bases = (0..shape.bases).map(|_| A::random(&mut random)).collect();
        let lens = (0..12).map(|_| 1 + random.below(A::WIDTH.into()) as u16).chain([A::WIDTH]).collect();
        Self { shape, random, bases, lens }
    }

    fn prefix(&mut self) -> Prefix<A> {
        let random = &mut self.random;
        let base = self.bases[random.below(self.bases.len() as u64) as usize];
        let shared = random.below(u64::from(A::WIDTH) + 1) as u16;
        let len = match random.below(8) {
            0 => 1 + random.below(A::WIDTH.into()) as u16,
            1..=5 if self.shape.is_hosts => A::WIDTH,
            _ => self.lens[random.below(self.lens.len() as u64) as usize],
        };
        Prefix::truncated(base.join(shared, A::random(random)), len)
    }

    fn value(&mut self) -> u32 {
        (self.random.below(self.shape.values) * 7919 % 0x7fff_ffff) as u32 + 1
    }

    /// Anywhere; in a prefix; its first and its last address; on the way to one.
    fn address(&mut self, exact: &Exact<A>) -> A {
        let rest = A::random(&mut self.random);
        let Some(choices) = std::num::NonZeroUsize::new(exact.entries().len()) else { return rest };
        let (prefix, _) = exact.entries()[self.random.below(choices.get() as u64) as usize];
        match self.random.below(8) {
            0 => rest,
            1..=3 => prefix.addr().join(prefix.len(), rest),
            4 => prefix.addr(),
            5 => prefix.last(),
            _ => prefix.addr().join(self.random.below(u64::from(A::WIDTH) + 1) as u16, rest),
        }
    }

    /// Builds, looks up, changes, looks up; returns how many addresses were looked up. Adds the kinds of nodes to `kinds`.
    fn run(
        mut self,
        c_lookup: fn(&HeapMemory, A) -> Option<u32>,
        kinds: &mut BTreeSet<&'static str>,
    ) -> usize {
        let mut model: BTreeMap<Prefix<A>, u32> = BTreeMap::new();
        // A narrow key has fewer prefixes than asked for.
        for _ in 0..self.shape.prefixes {
            let (prefix, value) = (self.prefix(), self.value());
            model.insert(prefix, value);
        }
        let mut image = Image::create(HeapMemory::new(128 << 20), NoReaders::default(), 2).unwrap();
        let mut table = Table::create(&mut image, ID, model.clone()).unwrap();
        for round in 0..4 {
            if round > 0 {
                let changes: Vec<_> = (0..self.shape.prefixes / 4)
                    .map(|_| {
                        let from = self.prefix();
                        let known = model.range(from..).next().map_or(from, |(prefix, _)| *prefix);
                        let prefix = if self.random.below(2) == 0 { known } else { from };
                        (prefix, (self.random.below(2) == 0).then(|| self.value()))
                    })
                    .collect();
                for (prefix, value) in &changes {
                    match value {
                        Some(value) => model.insert(*prefix, *value),
                        None => model.remove(prefix),
                    };
                }
                // Once with a default route, once without.
                let all = Prefix::truncated(A::ZERO, 0);
                let fallback = (round == 1).then_some(0x7fff_ffff);
                match fallback {
                    Some(value) => model.insert(all, value),
                    None => model.remove(&all),
                };
                let changes = changes.into_iter().chain([(all, fallback)]);
                table.apply(&mut image, changes).unwrap();
            }
            let report = verify(image.memory().words()).unwrap();
            kinds.extend(report.tables[0].nodes.iter().map(|(kind, _)| *kind));
            let exact = Exact::new(model.iter().map(|(prefix, value)| (*prefix, *value)).collect());
            for _ in 0..self.shape.lookups / 4 / BATCH {
                self.batch(&image, &exact, c_lookup);
            }
        }
        self.shape.lookups / 4 / BATCH * BATCH * 4
    }

    fn batch(
        &mut self,
        image: &Image<HeapMemory, NoReaders>,
        exact: &Exact<A>,
        c_lookup: fn(&HeapMemory, A) -> Option<u32>,
    ) {
        let addrs: Vec<A> = (0..BATCH).map(|_| self.address(exact)).collect();
        let (mut batch, mut portable) = ([0; BATCH], [0; BATCH]);
        let reader = image.reader();
        reader.lookup_batch(ID, &addrs, &mut batch);
        reader.lookup_batch_portable(ID, &addrs, &mut portable);
        for (at, addr) in addrs.iter().enumerate() {
            let want = exact.lookup(*addr);
            let single = reader.lookup(ID, *addr).unwrap_or(0);
            let c = c_lookup(image.memory(), *addr).unwrap_or(0);
            assert_eq!([single, batch[at], portable[at], c], [want; 4], "{addr:?} in {:?}", image.stats());
        }
    }
}

fn c_key<const BITS: u16, const BYTES: usize>(memory: &HeapMemory, key: Key<BITS, BYTES>) -> Option<u32> {
    Header::get().lookup(memory, ID, key)
}

fn shapes(lookups: usize, most: usize) -> [Shape; 5] {
    let shape =
        |prefixes, values, is_hosts, bases| Shape { prefixes, values, is_hosts, bases, lookups: lookups / 5 };
    [
        shape(most, 60, false, 40),
        shape(most / 4, 400, false, 7),
        shape(most / 2, 1 << 30, true, 20),
        shape(most / 40 + 1, 200, true, 3),
        shape(10, 10, false, 2),
    ]
}

fn width<A: Sample>(lookups: usize, most: usize, c_lookup: fn(&HeapMemory, A) -> Option<u32>) -> usize {
    let begin = Instant::now();
    let each = shapes(lookups, most).into_iter().enumerate();
    let mut kinds = BTreeSet::new();
    let done = each.map(|(at, shape)| Case::<A>::new(at as u64 + 1, shape).run(c_lookup, &mut kinds)).sum();
    println!("{:>4} bits: {done} lookups in {:.1?}, {kinds:?}", A::WIDTH, begin.elapsed());
    if A::FAMILY != 4 && A::WIDTH >= 48 {
        let others = if A::FAMILY == 6 { ["bucket", "leaf8"] } else { ["ranges32"; 2] };
        assert!(["node8", "skip"].iter().chain(&others).all(|kind| kinds.contains(kind)), "{kinds:?}");
    }
    done
}

#[test]
fn ten_million_random_lookups() {
    let c4 = |memory: &HeapMemory, addr: u32| Header::get().lookup4(memory, ID, addr);
    let c6 = |memory: &HeapMemory, addr: u128| Header::get().lookup6(memory, ID, addr);
    let done = [
        width::<u32>(3_600_000, 60_000, c4),
        width::<u128>(2_600_000, 40_000, c6),
        width::<Key<1, 1>>(100_000, 2, c_key),
        width::<Key<3, 1>>(200_000, 10, c_key),
        width::<Key<13, 2>>(600_000, 4000, c_key),
        width::<Key<48, 6>>(1_200_000, 30_000, c_key),
        width::<Key<144, 18>>(1_000_000, 20_000, c_key),
        width::<Key<257, 33>>(500_000, 10_000, c_key),
        width::<Key<1024, 128>>(300_000, 4000, c_key),
        width::<Key<2048, 256>>(200_000, 2000, c_key),
    ];
    let done: usize = done.iter().sum();
    println!("{done} lookups, each by every reader");
    assert!(done >= 10_000_000, "{done}");
}

/// The suites' oracle is itself compared with a list searched from end to end.
#[test]
fn the_answers_are_the_oracles() {
    fn agree<A: Sample>(seed: u64) {
        let shape =
            Shape { prefixes: 300, values: 100, is_hosts: seed.is_multiple_of(2), bases: 3, lookups: 0 };
        let mut case = Case::<A>::new(seed, shape);
        let mut oracle = Oracle::new();
        for _ in 0..shape.prefixes {
            oracle.insert(case.prefix(), case.value());
        }
        if seed.is_multiple_of(3) {
            oracle.insert(Prefix::truncated(A::ZERO, 0), 5);
        }
        let exact = Exact::new(oracle.sorted());
        for _ in 0..2000 {
            let addr = case.address(&exact);
            assert_eq!(exact.lookup(addr), oracle.lookup(addr).map_or(0, |(_, value)| value), "{addr:?}");
        }
    }
    for seed in 1..4 {
        agree::<u32>(seed);
        agree::<u128>(seed);
        agree::<Key<1, 1>>(seed);
        agree::<Key<13, 2>>(seed);
        agree::<Key<257, 33>>(seed);
    }
}

/// A lone prefix of each length, and addresses that differ from it in one bit. Rust looks up one by one and in batches, and C does.
#[test]
fn each_bit_of_a_lone_prefix_counts() {
    fn each<A: Sample>(c_lookup: fn(&HeapMemory, A) -> Option<u32>) {
        let mut random = Random(7);
        for len in 1..=A::WIDTH {
            let prefix = Prefix::truncated(A::random(&mut random), len);
            let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), ID + 1).unwrap();
            Table::create(&mut image, ID, [(prefix, 5), (Prefix::truncated(A::ZERO, 0), 3)]).unwrap();
            let flipped = |bit| {
                let addr = prefix.addr();
                let other = addr.masked(bit).with_bits(bit, 1, 1 - addr.bits_at(bit, 1));
                other.join(bit + 1, addr)
            };
            let addrs: Vec<A> = (0..A::WIDTH).map(flipped).collect();
            let mut batch = vec![0; addrs.len()];
            image.reader().lookup_batch(ID, &addrs, &mut batch);
            for (bit, (addr, in_batch)) in (0..).zip(addrs.iter().zip(batch)) {
                let want = if bit < len { 3 } else { 5 };
                let single = image.reader().lookup(ID, *addr);
                let c = c_lookup(image.memory(), *addr);
                assert_eq!([single, c, Some(in_batch)], [Some(want); 3], "{prefix:?} with bit {bit} flipped");
            }
        }
    }
    each(|memory, addr: u32| Header::get().lookup4(memory, ID, addr));
    each(|memory, addr: u128| Header::get().lookup6(memory, ID, addr));
    each(c_key::<48, 6>);
    each(c_key::<97, 13>);
    each(c_key::<144, 18>);
    each(c_key::<331, 42>);
}
