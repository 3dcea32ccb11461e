//! Long random streams of changes over every key width. After each batch the image is sound and has not grown. The lookups (one by one, in
//! batches, portable and not) say what the prefixes say.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Address, HeapMemory, Image, Key, Memory, NoReaders, Prefix, Table};

#[path = "common/sample.rs"]
#[allow(dead_code, reason = "its random numbers only")]
mod sample;
use sample::Random;

impl Random {
    /// An address near `base`: the first bits are the base's, how many is random, so that prefixes crowd and nest.
    fn address<A: Address>(&mut self, base: A) -> A {
        let from = self.below(u64::from(A::WIDTH) + 1) as u16;
        let mut addr = base.masked(from);
        for at in from..A::WIDTH {
            if self.next() & 1 == 1 {
                // The bit alone: all from it on, without those behind it.
                addr = addr.filled(at).masked(at + 1);
            }
        }
        addr
    }

    fn prefix<A: Address>(&mut self, shape: &Shape<'_, A>) -> Prefix<A> {
        let Shape { bases, lens, .. } = shape;
        let base = bases[self.below(bases.len() as u64) as usize];
        let len = match self.below(4) {
            0 => self.below(u64::from(A::WIDTH) + 1) as u16,
            1 => A::WIDTH,
            _ => lens[self.below(lens.len() as u64) as usize],
        };
        let addr = if self.below(10) < shape.exact { base } else { self.address(base) };
        Prefix::truncated(addr, len)
    }
}

struct Shape<'a, A> {
    bases: &'a [A],
    lens: &'a [u16],
    /// Of ten prefixes so many hold a base itself.
    exact: u64,
    prefixes: usize,
    values: u64,
    rounds: usize,
    checks: usize,
}

fn check<A: Address>(
    image: &Image<HeapMemory, NoReaders>,
    table: &Table<A>,
    model: &BTreeMap<Prefix<A>, u32>,
    shape: &Shape<'_, A>,
    random: &mut Random,
) {
    let report = verify(image.memory().words()).unwrap();
    assert_eq!(report.tables[0].prefixes as usize, model.len());
    assert_eq!(table.len(), model.len());
    let mut addrs: Vec<A> = Vec::with_capacity(shape.checks);
    for at in 0..shape.checks {
        let near = random.prefix(shape);
        addrs.push(match at % 3 {
            0 => near.addr(),
            1 => near.last(),
            _ => random.address(near.addr()),
        });
    }
    // And what the edges of some prefixes have beside them: the other address of the last bit.
    for prefix in model.keys().step_by(model.len() / 64 + 1) {
        for edge in [prefix.addr(), prefix.last()] {
            let even = edge.masked(A::WIDTH - 1);
            addrs.extend([even, even.filled(A::WIDTH - 1)]);
        }
    }
    let answer = |addr: &A| {
        (0..=A::WIDTH).rev().find_map(|len| model.get(&Prefix::truncated(*addr, len)).copied()).unwrap_or(0)
    };
    let want: Vec<u32> = addrs.iter().map(answer).collect();
    let (mut batch, mut portable) = (vec![0; addrs.len()], vec![0; addrs.len()]);
    image.reader().lookup_batch(1, &addrs, &mut batch);
    image.reader().lookup_batch_portable(1, &addrs, &mut portable);
    for (at, addr) in addrs.iter().enumerate() {
        let one = image.reader().lookup(1, *addr).unwrap_or(0);
        let prefix_store = table.lookup(*addr).map_or(0, |(_, value)| value);
        assert_eq!(
            (one, batch[at], portable[at], prefix_store),
            (want[at], want[at], want[at], want[at]),
            "{addr:?}"
        );
    }
}

fn stream<A: Address>(seed: u64, shape: Shape<'_, A>) {
    let shape = &shape;
    let mut random = Random(seed);
    let mut image = Image::create(HeapMemory::new(64 << 20), NoReaders::default(), 2).unwrap();
    let mut model: BTreeMap<Prefix<A>, u32> = BTreeMap::new();
    let value = |random: &mut Random| random.below(shape.values) as u32 * 7919 + 1;
    while model.len() < shape.prefixes {
        let prefix = random.prefix(shape);
        if prefix.len() > 0 {
            model.insert(prefix, value(&mut random));
        }
    }
    let mut table = Table::create(&mut image, 1, model.clone()).unwrap();
    check(&image, &table, &model, shape, &mut random);
    let mut sizes = Vec::new();
    for round in 0..shape.rounds {
        let mut changes = Vec::new();
        for _ in 0..1 + random.below(300.min(shape.prefixes as u64)) {
            let known = random.below(2) == 0;
            let prefix = if known {
                let from = random.prefix(shape);
                model.range(from..).next().map_or(from, |(prefix, _)| *prefix)
            } else {
                random.prefix(shape)
            };
            let keep = random.below(100) < if model.len() > shape.prefixes { 35 } else { 65 };
            changes.push((prefix, keep.then(|| value(&mut random))));
        }
        if round % 3 == 0 {
            for (prefix, value) in &changes {
                match value {
                    Some(value) => model.insert(*prefix, *value),
                    None => model.remove(prefix),
                };
            }
            table.apply(&mut image, changes).unwrap();
        } else {
            for (prefix, value) in changes {
                let old = match value {
                    Some(value) => table.insert(&mut image, prefix, value).unwrap(),
                    None => table.remove(&mut image, &prefix).unwrap(),
                };
                let known = match value {
                    Some(value) => model.insert(prefix, value),
                    None => model.remove(&prefix),
                };
                assert_eq!(old, known);
            }
        }
        check(&image, &table, &model, shape, &mut random);
        sizes.push(image.stats().used);
    }
    // A new image of the same prefixes shows how much there is to hold.
    let mut fresh = Image::create(HeapMemory::new(64 << 20), NoReaders::default(), 2).unwrap();
    Table::create(&mut fresh, 1, model).unwrap();
    let (used, least) = (image.stats().used, fresh.stats().used);
    assert!(
        used <= 2 * least + (64 << 10),
        "{used} bytes after the stream, {least} in a new image; on the way {sizes:?}"
    );
}

const V4: [u32; 5] = [0x0a00_0000, 0xc000_0200, 0xc633_6400, 0x0a01_0203, 0xffff_ffff];
const V6: [u128; 4] =
    [0x2001_0db8 << 96, 0x2001_0db8_0001_0002_0003_0004_0005_0006, 0x2a00 << 112, u128::MAX];

#[test]
fn ipv4_few_values() {
    stream(
        1,
        Shape {
            bases: &V4,
            lens: &[24, 22, 16, 20, 23, 26, 30],
            exact: 0,
            prefixes: 6000,
            values: 40,
            rounds: 60,
            checks: 4000,
        },
    );
}

#[test]
fn ipv4_more_values_than_codes() {
    stream(
        2,
        Shape {
            bases: &V4,
            lens: &[24, 22, 16],
            exact: 0,
            prefixes: 5000,
            values: 400,
            rounds: 40,
            checks: 3000,
        },
    );
    stream(
        3,
        Shape {
            bases: &V4,
            lens: &[24, 22, 16],
            exact: 0,
            prefixes: 5000,
            values: 256,
            rounds: 60,
            checks: 3000,
        },
    );
}

#[test]
fn ipv4_distinct_values_and_hosts() {
    stream(
        4,
        Shape {
            bases: &V4,
            lens: &[32, 24, 28],
            exact: 0,
            prefixes: 9000,
            values: 1 << 18,
            rounds: 40,
            checks: 3000,
        },
    );
    stream(
        5,
        Shape { bases: &V4, lens: &[32], exact: 0, prefixes: 300, values: 1 << 18, rounds: 60, checks: 1000 },
    );
}

#[test]
fn ipv6() {
    stream(
        6,
        Shape {
            bases: &V6,
            lens: &[48, 32, 40, 44, 64, 56],
            exact: 0,
            prefixes: 5000,
            values: 50,
            rounds: 40,
            checks: 2000,
        },
    );
    stream(
        7,
        Shape {
            bases: &V6,
            lens: &[128, 127, 64],
            exact: 0,
            prefixes: 300,
            values: 1 << 18,
            rounds: 60,
            checks: 1000,
        },
    );
    // Mostly in the slots of a direct12, covering each other.
    stream(
        11,
        Shape {
            bases: &[0x2001_0db8u128 << 96, 0x2002 << 112],
            lens: &[12, 13, 14, 17, 20, 23, 24, 25],
            exact: 2,
            prefixes: 700,
            values: 5,
            rounds: 60,
            checks: 2000,
        },
    );
}

#[test]
fn other_widths() {
    type Endpoint = Key<48, 6>;
    let bases = [Endpoint::new([192, 0, 2, 1, 0, 80]), Endpoint::new([10, 0, 0, 0, 0, 0])];
    stream(
        8,
        Shape {
            bases: &bases,
            lens: &[48, 32, 24],
            exact: 0,
            prefixes: 2000,
            values: 1000,
            rounds: 30,
            checks: 1500,
        },
    );
    let bases = [Key::<1, 1>::new([0x80])];
    stream(9, Shape { bases: &bases, lens: &[1], exact: 0, prefixes: 2, values: 3, rounds: 20, checks: 10 });
    let bases = [Key::<13, 2>::new([0xaa, 0xa8]), Key::ZERO];
    stream(
        10,
        Shape {
            bases: &bases,
            lens: &[13, 12, 9],
            exact: 0,
            prefixes: 700,
            values: 20,
            rounds: 40,
            checks: 1500,
        },
    );
    let bases = [Key::<144, 18>::new([7; 18])];
    stream(
        11,
        Shape {
            bases: &bases,
            lens: &[144, 128, 64],
            exact: 0,
            prefixes: 2000,
            values: 1000,
            rounds: 20,
            checks: 500,
        },
    );
    let bases = [Key::<2048, 256>::new([0x5a; 256]), Key::ZERO];
    stream(
        12,
        Shape {
            bases: &bases,
            lens: &[2048, 1024, 100],
            exact: 0,
            prefixes: 300,
            values: 1000,
            rounds: 10,
            checks: 100,
        },
    );
}

/// Of two values, many prefixes say what those around them say: the image has no trace of them until the outer one goes.
#[test]
fn values_that_repeat() {
    for seed in 1..=100 {
        let prefixes = 2 + seed as usize % 6;
        let lens = [84, 127, 64, 33];
        stream(
            seed,
            Shape { bases: &V6[1..2], lens: &lens, exact: 6, prefixes, values: 2, rounds: 40, checks: 40 },
        );
        stream(
            seed,
            Shape {
                bases: &V4[3..4],
                lens: &[31, 24],
                exact: 6,
                prefixes,
                values: 2,
                rounds: 40,
                checks: 40,
            },
        );
        let base = [Key::<300, 38>::ZERO];
        let lens = [299, 200, 160, 30];
        stream(
            seed,
            Shape { bases: &base, lens: &lens, exact: 6, prefixes, values: 2, rounds: 40, checks: 40 },
        );
    }
}

/// A prefix that says what the one around it says leaves no trace in the image, until the outer one goes.
#[test]
fn a_prefix_without_effect_gets_one() {
    let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 1).unwrap();
    let mut table: Table<u128> = Table::create(&mut image, 0, []).unwrap();
    let prefix = |len| Prefix::truncated(V6[1], len);
    for (len, value) in [(84, 1), (128, 2), (127, 1)] {
        table.insert(&mut image, prefix(len), value).unwrap();
    }
    let answers = |image: &Image<_, _>| [0, 1, 2].map(|bits| image.reader().lookup6(0, V6[1] ^ bits));
    assert_eq!(answers(&image), [Some(2), Some(1), Some(1)]);
    table.remove(&mut image, &prefix(84)).unwrap();
    assert_eq!(answers(&image), [Some(2), Some(1), None]);
}

/// A node8 of many runs whose prefixes go one by one goes with the last: nothing is left behind where a shorter prefix then comes.
#[test]
fn a_node_that_empties_is_given_back() {
    let memory = HeapMemory::new(4 << 20);
    let mut image = Image::create(memory, NoReaders::default(), 1).unwrap();
    let inside = (0..128u128).map(|slot| Prefix::new(0x20 << 120 | slot << 113, 15).unwrap());
    let mut table: Table<u128> = Table::create(&mut image, 0, []).unwrap();
    let empty = image.stats().used;
    for _ in 0..3 {
        for (nth, prefix) in inside.clone().enumerate() {
            table.insert(&mut image, prefix, 1 + nth as u32 % 2).unwrap();
        }
        let report = verify(image.memory().words()).unwrap();
        assert_eq!(report.tables[0].nodes.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["node8"]);
        for prefix in inside.clone() {
            table.remove(&mut image, &prefix).unwrap();
        }
        let cover = Prefix::new(0x20 << 120, 8).unwrap();
        table.insert(&mut image, cover, 7).unwrap();
        assert_eq!(image.reader().lookup6(0, 0x20ff << 112), Some(7));
        table.remove(&mut image, &cover).unwrap();
        image.synchronize();
        verify(image.memory().words()).unwrap();
        assert_eq!(image.stats().used, empty);
    }
}

/// A lookup in a table with keys of another width or family finds nothing.
#[test]
fn a_table_of_other_keys_answers_nothing() {
    let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 2).unwrap();
    Table::<u32>::create(&mut image, 0, [(Prefix::truncated(0, 1), 5)]).unwrap();
    Table::<u128>::create(&mut image, 1, [(Prefix::truncated(0, 1), 6)]).unwrap();
    let reader = image.reader();
    assert_eq!((reader.lookup4(0, 1), reader.lookup6(1, 1)), (Some(5), Some(6)));
    assert_eq!((reader.lookup6(0, 1), reader.lookup4(1, 1)), (None, None));
    assert!(reader.table::<Key<48, 6>>(0).is_none());
    let mut values = [9; 70];
    reader.lookup_batch(0, &[1u128; 70], &mut values);
    assert_eq!(values, [0; 70]);
}

/// Values that come and go, each new, in a table with a palette, by a writer that never asks for a grace period. Their codes are used again,
/// so that the table's leaves stay as small as they were.
#[test]
fn new_values_for_ever() {
    let mut image = Image::create(HeapMemory::new(4 << 20), NoReaders::default(), 1).unwrap();
    let prefix = |n: u32| Prefix::<u32>::truncated(n << 10, 22);
    let mut table = Table::create(&mut image, 0, (0..6400).map(|n| (prefix(n), n % 20 + 1))).unwrap();
    let nodes = |image: &Image<HeapMemory, NoReaders>| {
        verify(image.memory().words()).unwrap().tables[0].nodes.clone()
    };
    let before = nodes(&image);
    assert_eq!(before, [("leaf6", 100)]);
    for round in 0..3000 {
        let at = prefix(round * 97 % 6400);
        let old = table.get(&at).unwrap();
        table.insert(&mut image, at, 1000 + round).unwrap();
        assert_eq!(image.reader().lookup4(0, at.addr()), Some(1000 + round));
        table.insert(&mut image, at, old).unwrap();
    }
    assert_eq!(nodes(&image), before);
}
