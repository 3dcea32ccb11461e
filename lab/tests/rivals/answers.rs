//! One suite over every rival: small tables change by change against the oracle, large ones against the list of prefixes in order.

use crate::engine::{Engine, engines};
use crate::sample::{Exact, Random, Sample};
use proptest::prelude::*;
use std::collections::BTreeMap;
use trieline_lab::rivals::{Dir24, Poptrie};
use trieline_lpm::oracle::Oracle;
use trieline_lpm::{Address, Map, Prefix};

/// All rivals with the same prefixes, beside the oracle.
struct Twins<A: Address> {
    oracle: Oracle<A>,
    engines: Vec<Box<dyn Engine<A>>>,
}

impl<A: Address> Twins<A> {
    fn new(prefixes: &[(Prefix<A>, u32)]) -> Self {
        let mut oracle = Oracle::new();
        for (prefix, value) in prefixes {
            oracle.insert(*prefix, *value);
        }
        Self { oracle, engines: engines(prefixes) }
    }

    fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) {
        let before = match value {
            Some(value) => self.oracle.insert(prefix, value),
            None => self.oracle.remove(&prefix),
        };
        for engine in &mut self.engines {
            assert_eq!(engine.set(prefix, value), before, "{}", engine.name());
            engine.verify(self.oracle.len());
        }
    }

    fn check(&self, addr: A) {
        let value = self.oracle.lookup(addr).map(|(_, value)| value);
        for engine in &self.engines {
            assert_eq!(engine.lookup(addr), value, "{}, {:?}", engine.name(), Prefix::host(addr));
        }
    }

    fn check_contents(&self) {
        for (prefix, value) in self.oracle.sorted() {
            for engine in &self.engines {
                assert_eq!(engine.get(&prefix), Some(value), "{}", engine.name());
            }
        }
    }

    /// The first and the last address of every prefix, and those that differ from them in one bit: where answers change.
    fn check_edges(&self) {
        for (prefix, _) in self.oracle.sorted() {
            for addr in [prefix.addr(), prefix.last()] {
                self.check(addr);
                (0..A::WIDTH).for_each(|bit| self.check(flip(addr, bit)));
            }
        }
    }
}

/// An address that differs in `bit` only from the first or the last one of the prefix of `bit` bits.
fn flip<A: Address>(addr: A, bit: u16) -> A {
    let (half, whole) = (Prefix::truncated(addr, bit + 1), Prefix::truncated(addr, bit));
    if half.addr() == whole.addr() { whole.last() } else { whole.addr() }
}

/// Few distinct leading bits, so that prefixes nest and share nodes; every length.
fn prefix<A: Sample>() -> impl Strategy<Value = Prefix<A>> {
    (0usize..4, 0..=A::WIDTH, any::<u64>())
        .prop_map(|(base, len, seed)| Prefix::truncated(address(base << 4, seed), len))
}

/// An address whose first six bits are `first`.
fn address<A: Sample>(first: usize, seed: u64) -> A {
    A::from_index(first, 6).join(6, A::random(&mut Random(seed | 1)))
}

type Rows<A> = Vec<(Prefix<A>, u32)>;
type Changes<A> = Vec<(Prefix<A>, Option<u32>)>;

fn rows<A: Sample>() -> impl Strategy<Value = Rows<A>> {
    prop::collection::vec((prefix::<A>(), 1..0x8000_0000u32), 0..90)
}

fn changes<A: Sample>() -> impl Strategy<Value = Changes<A>> {
    prop::collection::vec((prefix::<A>(), prop::option::weighted(0.7, 1..0x8000_0000u32)), 0..120)
}

fn stream<A: Sample>(start: &Rows<A>, changes: Changes<A>, probes: &[u64]) {
    let mut twins = Twins::<A>::new(start);
    twins.check_contents();
    let mut inserted: Vec<Prefix<A>> = start.iter().map(|(prefix, _)| *prefix).collect();
    for (n, (prefix, value)) in changes.into_iter().enumerate() {
        // Removals mostly hit something that is there.
        let is_known = value.is_none() && !inserted.is_empty();
        let prefix = if is_known { inserted[n % inserted.len()] } else { prefix };
        twins.set(prefix, value);
        inserted.push(prefix);
        twins.check(prefix.addr());
        twins.check(prefix.last());
    }
    twins.check_contents();
    twins.check_edges();
    probes.iter().for_each(|probe| twins.check(address(*probe as usize & 63, probe >> 6)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_updates_ipv4(
        start in rows::<u32>(),
        changes in changes::<u32>(),
        probes in prop::collection::vec(any::<u64>(), 0..200),
    ) {
        stream(&start, changes, &probes);
    }

    #[test]
    fn random_updates_ipv6(
        start in rows::<u128>(),
        changes in changes::<u128>(),
        probes in prop::collection::vec(any::<u64>(), 0..200),
    ) {
        stream(&start, changes, &probes);
    }
}

/// All 2^15 prefix sets of a 3-bit universe, each reached by one change from the one before (a Gray code). After every change it looks up
/// all 8 addresses. `at` moves the universe down the key.
fn exhaustive<A: Sample>(at: u16) {
    let prefix = |len: u16, index: usize| {
        let addr = (0..len).filter(|bit| index >> (len - 1 - bit) & 1 == 1);
        Prefix::truncated(addr.fold(A::ZERO, |addr, bit| flip(addr, at + bit).masked(at + bit + 1)), at + len)
    };
    let universe: Vec<Prefix<A>> = (0..=3u16)
        .flat_map(|len| (0..1usize << len).map(move |index| (len, index)))
        .map(|(l, i)| prefix(l, i))
        .collect();
    let mut twins = Twins::<A>::new(&[]);
    let mut set = 0u32;
    for step in 1u32..=1 << 15 {
        let gray = (step & 0x7fff) ^ (step & 0x7fff) >> 1;
        let changed = (set ^ gray).trailing_zeros() as usize;
        set = gray;
        // Whole keys change most often: nodes that hold nothing else occur, too.
        twins.set(universe[14 - changed], (gray >> changed & 1 == 1).then_some(changed as u32 + 1));
        for host in &universe[7..] {
            twins.check(host.addr());
            twins.check(host.last());
        }
    }
    assert_eq!((set, twins.oracle.len()), (0, 0), "the last of the Gray code is the empty set");
}

#[test]
fn every_prefix_set_of_three_bits() {
    for at in [0, 6, 16, 29] {
        exhaustive::<u32>(at);
    }
    for at in [0, 14, 125] {
        exhaustive::<u128>(at);
    }
}

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
}

const SHAPES: [Shape; 4] = [
    Shape { prefixes: 40_000, values: 60, is_hosts: false, bases: 40 },
    Shape { prefixes: 10_000, values: 400, is_hosts: false, bases: 7 },
    Shape { prefixes: 20_000, values: 1 << 30, is_hosts: true, bases: 20 },
    Shape { prefixes: 10, values: 10, is_hosts: false, bases: 2 },
];

impl Shape {
    fn prefix<A: Sample>(self, bases: &[A], random: &mut Random) -> Prefix<A> {
        let base = bases[random.below(bases.len() as u64) as usize];
        let shared = random.below(u64::from(A::WIDTH) + 1) as u16;
        let len = match random.below(8) {
            1..=5 if self.is_hosts => A::WIDTH,
            _ => 1 + random.below(A::WIDTH.into()) as u16,
        };
        Prefix::truncated(base.join(shared, A::random(random)), len)
    }

    fn value(self, random: &mut Random) -> u32 {
        (random.below(self.values) * 7919 % 0x7fff_ffff) as u32 + 1
    }

    /// Builds, looks up, changes, looks up.
    fn run<A: Sample>(self, seed: u64, lookups: usize) {
        let random = &mut Random(seed * 0x9e37_79b9 + 1);
        let bases: Vec<A> = (0..self.bases).map(|_| A::random(random)).collect();
        let mut model = BTreeMap::new();
        for _ in 0..self.prefixes {
            model.insert(self.prefix(&bases, random), self.value(random));
        }
        let entries = |model: &BTreeMap<Prefix<A>, u32>| -> Rows<A> {
            model.iter().map(|(prefix, value)| (*prefix, *value)).collect()
        };
        let mut engines = engines(&entries(&model));
        for round in 0..3 {
            // Once with a default route, once without.
            let default = (Prefix::truncated(A::ZERO, 0), (round == 1).then_some(0x7fff_ffff));
            let mut changes = vec![default];
            for _ in 0..if round > 0 { self.prefixes / 8 } else { 0 } {
                let from = self.prefix(&bases, random);
                let known = model.range(from..).next().map_or(from, |(prefix, _)| *prefix);
                let prefix = if random.below(2) == 0 { known } else { from };
                changes.push((prefix, (random.below(2) == 0).then(|| self.value(random))));
            }
            for (prefix, value) in changes {
                let before = match value {
                    Some(value) => model.insert(prefix, value),
                    None => model.remove(&prefix),
                };
                for engine in &mut engines {
                    assert_eq!(engine.set(prefix, value), before, "{}", engine.name());
                }
            }
            engines.iter().for_each(|engine| engine.verify(model.len()));
            let exact = Exact::new(entries(&model));
            for _ in 0..lookups / 3 {
                let (prefix, _) = exact.entries()[random.below(model.len() as u64) as usize];
                let rest = A::random(random);
                let addr = match random.below(6) {
                    0 => rest,
                    1 => prefix.addr(),
                    2 => prefix.last(),
                    3 => prefix.addr().join(random.below(u64::from(A::WIDTH) + 1) as u16, rest),
                    _ => prefix.addr().join(prefix.len(), rest),
                };
                let want = exact.lookup(addr);
                for engine in &engines {
                    assert_eq!(engine.lookup(addr).unwrap_or(0), want, "{addr:?} in {}", engine.name());
                }
            }
        }
    }
}

#[test]
fn random_lookups_in_large_tables() {
    for (shape, seed) in SHAPES.into_iter().zip(1..) {
        shape.run::<u32>(seed, 60_000);
        shape.run::<u128>(seed, 40_000);
    }
}

/// DIR-24-8 is built once and cannot be changed.
#[test]
fn dir24_answers_as_the_list() {
    let random = &mut Random(11);
    let mut model = BTreeMap::new();
    while model.len() < 20_000 {
        let addr = 0x0a00_0000 | u32::random(random) >> 12;
        model.insert(Prefix::truncated(addr, 8 + random.below(25) as u16), 1 + random.below(1000) as u32);
    }
    let (prefixes, values): (Vec<_>, Vec<_>) = model.into_iter().unzip();
    let narrow = Dir24::<u16>::build(&prefixes, &values).unwrap();
    let wide = Dir24::<u32>::build(&prefixes, &values).unwrap();
    let exact = Exact::new(prefixes.iter().copied().zip(values.iter().copied()).collect());
    for prefix in &prefixes {
        for addr in
            [prefix.addr(), prefix.last(), prefix.addr().wrapping_sub(1), prefix.last().wrapping_add(1)]
        {
            let want = exact.lookup(addr);
            assert_eq!([narrow.lookup(addr), wide.lookup(addr)], [want; 2], "{addr:#x}");
        }
    }
}

/// Poptrie grows to 20,000 prefixes and shrinks to nothing beside the product's map. `crowd` is how many of the first bits differ.
fn grow_and_shrink<A: Sample>(crowd: u16, lens: std::ops::Range<u64>) {
    let (mut poptrie, mut map) = (Poptrie::<A>::build([]).unwrap(), Map::<A, u32>::new());
    let random = &mut Random(1);
    let mut address = || A::from_index(random.below(4) as usize, crowd).join(crowd, A::random(random));
    let prefixes: Vec<_> = (0..20_000u64)
        .map(|n| Prefix::truncated(address(), (lens.start + n * 7 % (lens.end - lens.start)) as u16))
        .collect();
    let check = |poptrie: &Poptrie<A>, map: &Map<A, u32>, addr: A| {
        let want = map.lookup(addr).copied();
        assert_eq!(poptrie.lookup(addr), want, "{:?}", Prefix::host(addr));
    };
    for (n, prefix) in (1..).zip(&prefixes) {
        assert_eq!(poptrie.insert(*prefix, n).unwrap(), map.insert(*prefix, n));
    }
    for (n, prefix) in (7..).zip(&prefixes) {
        for addr in [address(), prefix.addr(), prefix.last()] {
            check(&poptrie, &map, addr);
        }
        if n % 3 == 0 {
            assert_eq!(poptrie.insert(*prefix, n).unwrap(), map.insert(*prefix, n));
        }
    }
    for (n, prefix) in prefixes.iter().enumerate() {
        assert_eq!(poptrie.remove(prefix), map.remove(prefix));
        check(&poptrie, &map, prefix.addr());
        check(&poptrie, &map, prefixes[(n * 31 + 1) % prefixes.len()].last());
    }
    assert!(poptrie.is_empty() && map.is_empty());
}

#[test]
fn poptrie_grows_and_shrinks() {
    grow_and_shrink::<u32>(6, 8..33);
    grow_and_shrink::<u32>(18, 18..33);
    grow_and_shrink::<u128>(6, 8..129);
    grow_and_shrink::<u128>(24, 100..129);
}
