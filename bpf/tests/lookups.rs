//! Every lookup of the C header, inside BPF programs, gives the oracle's answer: in both map types, before and after changes.
//! TRIELINE_LOOKUP_ROUNDS sets how often they are searched and changed (6).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use common::sample::{Exact, Random, Sample};
use common::{KEYS, map_types, open, run, tables};
use libbpf_rs::Object;
use trieline_bpf::Tables;
use trieline_lpm::{Address, Key, Prefix, Table};
use trieline_testbed::needs_root;

const PREFIXES: usize = 4000;

/// Keys in network order, and the type that their tables are of.
trait Bytes: Sample {
    type Stored: Address;
    fn network(self) -> Vec<u8>;
    fn stored(prefix: Prefix<Self>) -> Prefix<Self::Stored>;
}

impl Bytes for u32 {
    type Stored = Self;
    fn network(self) -> Vec<u8> {
        self.to_be_bytes().into()
    }
    fn stored(prefix: Prefix<Self>) -> Prefix<Self> {
        prefix
    }
}

impl Bytes for u128 {
    type Stored = Self;
    fn network(self) -> Vec<u8> {
        self.to_be_bytes().into()
    }
    fn stored(prefix: Prefix<Self>) -> Prefix<Self> {
        prefix
    }
}

impl<const BITS: u16, const BYTES: usize> Bytes for Key<BITS, BYTES> {
    /// The widest: tables of all other widths are narrow ones.
    type Stored = Key<2048, 256>;
    fn network(self) -> Vec<u8> {
        self.bytes().to_vec()
    }
    fn stored(prefix: Prefix<Self>) -> Prefix<Self::Stored> {
        let mut bytes = [0; 256];
        bytes[..BYTES].copy_from_slice(prefix.addr().bytes());
        Prefix::new(Key::new(bytes), prefix.len()).unwrap()
    }
}

/// Prefixes that crowd and nest: each continues an earlier one from some bit on.
fn prefix<A: Sample>(random: &mut Random, known: &[A]) -> Prefix<A> {
    let rest = A::random(random);
    let from = random.below(u64::from(A::WIDTH) + 1) as u16;
    let addr = match known.len() {
        0 => rest,
        len => known[random.below(len as u64) as usize].join(from, rest),
    };
    let len = match random.below(3) {
        0 => A::WIDTH,
        1 => from.max(1),
        _ => random.below(u64::from(A::WIDTH)) as u16 + 1,
    };
    Prefix::truncated(addr, len)
}

/// Fills table `id`, asks `programs`, changes it, asks again. With `lengths` the values carry them.
fn check<A: Bytes>(tables: &mut Tables, object: &Object, id: u32, programs: &[&str], lengths: bool) -> usize {
    let mut random = Random(u64::from(id) + 77);
    let mut known: Vec<A> = Vec::new();
    let mut model: BTreeMap<Prefix<A>, u32> = BTreeMap::new();
    let value = |random: &mut Random, prefix: &Prefix<A>| {
        let value = 1 + random.below(500) as u32 * 16411;
        if lengths { prefix.with_length(1 + value % 0x7f_ffff).unwrap() } else { value }
    };
    for _ in 0..PREFIXES {
        let prefix = prefix(&mut random, &known);
        known.push(prefix.addr());
        model.insert(prefix, value(&mut random, &prefix));
    }
    let stored = model.iter().map(|(prefix, value)| (A::stored(*prefix), *value));
    let mut table = Table::create_narrow(tables.image(), id, A::WIDTH, stored).unwrap();
    let mut asked = 0;
    let rounds = std::env::var("TRIELINE_LOOKUP_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        if round > 0 {
            let all = Prefix::truncated(A::ZERO, 0);
            let fallback = (round % 2 == 1).then(|| value(&mut random, &all));
            let mut changes = vec![(all, fallback)];
            for _ in 0..PREFIXES / 4 {
                let prefix = prefix(&mut random, &known);
                let prefix = model.range(prefix..).next().map_or(prefix, |(prefix, _)| *prefix);
                changes.push((prefix, (random.below(2) == 0).then(|| value(&mut random, &prefix))));
            }
            for (prefix, value) in changes {
                match value {
                    Some(value) => {
                        model.insert(prefix, value);
                        table.insert(tables.image(), A::stored(prefix), value).unwrap();
                    }
                    None => {
                        model.remove(&prefix);
                        table.remove(tables.image(), &A::stored(prefix)).unwrap();
                    }
                }
            }
        }
        let exact = Exact::new(model.iter().map(|(prefix, value)| (*prefix, *value)).collect());
        let addrs: Vec<A> = (0..KEYS)
            .map(|n| match n % 4 {
                0 => A::random(&mut random),
                1 => prefix(&mut random, &known).last(),
                _ => prefix(&mut random, &known).addr(),
            })
            .collect();
        let keys: Vec<Vec<u8>> = addrs.iter().map(|addr| addr.network()).collect();
        for program in programs {
            for (addr, got) in addrs.iter().zip(run(object, program, id, &keys)) {
                let want = exact.lookup(*addr);
                if lengths {
                    let (value, len) = Prefix::<A>::split_length(want);
                    assert_eq!(got, (value, len.into()), "{program}, round {round}: {addr:?}");
                } else {
                    assert_eq!(got.0, want, "{program}, round {round}: {addr:?}");
                }
                asked += 1;
            }
        }
    }
    asked
}

#[test]
fn programs_agree_with_the_oracle() {
    needs_root!();
    for map_type in map_types() {
        let mut tables = tables(map_type, 64 << 20);
        let object = tables.load(open(map_type)).unwrap();
        let several4 = ["lookup4", "several4_2", "several4_4", "several4_8"];
        let several6 = ["lookup6", "several6_2", "several6_4", "several6_8"];
        let asked = [
            check::<u32>(&mut tables, &object, 0, &several4, false),
            check::<u128>(&mut tables, &object, 1, &several6, false),
            check::<Key<1, 1>>(&mut tables, &object, 2, &["lookup1"], false),
            check::<Key<48, 6>>(&mut tables, &object, 3, &["lookup48"], false),
            check::<Key<144, 18>>(&mut tables, &object, 4, &["lookup144", "stack144"], false),
            check::<Key<2048, 256>>(&mut tables, &object, 5, &["lookup2048"], false),
            check::<u32>(&mut tables, &object, 6, &["match4"], true),
            check::<u128>(&mut tables, &object, 7, &["match6"], true),
            check::<Key<47, 6>>(&mut tables, &object, 8, &["lookup47"], false),
            check::<Key<331, 42>>(&mut tables, &object, 9, &["lookup331"], false),
        ];
        println!("{map_type}: {} answers", asked.iter().sum::<usize>());
        // Tables that there are not, and tables of other keys.
        let keys = vec![vec![0; 256]; KEYS];
        for (program, table) in [
            ("lookup4", 12),
            ("lookup4", 16),
            ("lookup4", u32::MAX),
            ("lookup4", 1),
            ("lookup6", 0),
            ("lookup6", 5),
            ("lookup48", 0),
            ("lookup48", 4),
            ("lookup48", 8),
            ("lookup47", 3),
            ("lookup144", 5),
            ("lookup2048", 1),
        ] {
            assert!(run(&object, program, table, &keys).iter().all(|got| got.0 == 0), "{program} of {table}");
        }
    }
}
