//! One suite over every engine: the Rust reader, the C header and the table's own shadow must all answer as the oracle does.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::Header;
use common::sample::Exact;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trieline_lpm::image::verify::verify;
use trieline_lpm::oracle::Oracle;
use trieline_lpm::{Address, HeapMemory, Image, Memory, NoReaders, Prefix, Table};

/// A table in an image beside its oracle. The image is opened over borrowed memory, so that the C header can read it too.
struct Twin<'a, A: Address> {
    memory: &'a HeapMemory,
    image: Image<Borrowed<'a>, NoReaders>,
    table: Table<A>,
    oracle: Oracle<A>,
}

struct Borrowed<'a>(&'a HeapMemory);
// SAFETY: the same memory as the one borrowed.
unsafe impl Memory for Borrowed<'_> {
    fn words(&self) -> &[std::sync::atomic::AtomicU32] {
        self.0.words()
    }
}

const ID: u32 = 3;

/// An address type with the C header's lookup for it.
trait Key: Address {
    fn c_lookup(memory: &HeapMemory, addr: Self) -> Option<u32>;
    /// An address whose first `bits` bits are `index`, the rest random.
    fn with(index: u64, bits: u16, rest: u128) -> Self;
}

impl Key for u32 {
    fn c_lookup(memory: &HeapMemory, addr: u32) -> Option<u32> {
        Header::get().lookup4(memory, ID, addr)
    }
    fn with(index: u64, bits: u16, rest: u128) -> u32 {
        u32::from_index(index as usize, bits) | (rest as u32 & u32::MAX.checked_shr(bits.into()).unwrap_or(0))
    }
}

impl Key for u128 {
    fn c_lookup(memory: &HeapMemory, addr: u128) -> Option<u32> {
        Header::get().lookup6(memory, ID, addr)
    }
    fn with(index: u64, bits: u16, rest: u128) -> u128 {
        u128::from_index(index as usize, bits) | (rest & u128::MAX.checked_shr(bits.into()).unwrap_or(0))
    }
}

impl<'a, A: Key> Twin<'a, A> {
    fn new(memory: &'a HeapMemory, prefixes: &[(Prefix<A>, u32)]) -> Self {
        let mut image = Image::create(Borrowed(memory), NoReaders::default(), 8).unwrap();
        let table = Table::create(&mut image, ID, prefixes.iter().copied()).unwrap();
        let mut oracle = Oracle::new();
        for (prefix, value) in prefixes {
            oracle.insert(*prefix, *value);
        }
        Self { memory, image, table, oracle }
    }

    fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) {
        match value {
            Some(value) => {
                let old = self.table.insert(&mut self.image, prefix, value).unwrap();
                assert_eq!(old, self.oracle.insert(prefix, value));
            }
            None => {
                assert_eq!(self.table.remove(&mut self.image, &prefix).unwrap(), self.oracle.remove(&prefix))
            }
        }
    }

    fn check(&self, addr: A) {
        let expected = self.oracle.lookup(addr);
        let value = expected.map(|(_, value)| value);
        assert_eq!(self.table.lookup(addr), expected, "shadow, {:?}", Prefix::host(addr));
        assert_eq!(self.image.reader().lookup(ID, addr), value, "reader, {:?}", Prefix::host(addr));
        assert_eq!(A::c_lookup(self.memory, addr), value, "C header, {:?}", Prefix::host(addr));
    }

    /// The first and the last address of every prefix and their neighbours outside: where answers change.
    fn check_edges(&self) {
        for (prefix, _) in self.oracle.sorted() {
            for addr in [prefix.addr(), prefix.last()] {
                self.check(addr);
                for other in 0..A::WIDTH {
                    // flip one bit: lands just outside some covering prefix
                    let flipped = flip(addr, other);
                    self.check(flipped);
                }
            }
        }
    }

    fn check_contents(&self) {
        assert_eq!(self.table.iter().collect::<Vec<_>>(), self.oracle.sorted());
        assert_eq!(self.table.len(), self.oracle.len());
        for (prefix, value) in self.oracle.sorted() {
            assert_eq!(self.table.get(&prefix), Some(value));
            // Around what is there, and around a neighbour that mostly is not.
            for prefix in [prefix, Prefix::truncated(prefix.last(), prefix.len() + 1)] {
                assert_eq!(self.table.covered(&prefix).collect::<Vec<_>>(), self.oracle.covered(&prefix));
                assert_eq!(self.table.covering(&prefix).collect::<Vec<_>>(), self.oracle.covering(&prefix));
                assert_eq!(
                    self.table.matches(prefix.last()).collect::<Vec<_>>(),
                    self.oracle.matches(prefix.last())
                );
                assert_eq!(self.table.iter_from(prefix).collect::<Vec<_>>(), self.oracle.up_from(&prefix));
                assert_eq!(
                    self.table.iter_until(prefix).rev().collect::<Vec<_>>(),
                    self.oracle.down_from(&prefix)
                );
            }
        }
    }
}

fn flip<A: Address>(addr: A, bit: u16) -> A {
    // An address that differs from `addr` in `bit` only: the other half of the prefix of `bit` bits.
    let half = Prefix::truncated(addr, bit + 1);
    let parent = Prefix::truncated(addr, bit);
    if half.addr() == parent.addr() { parent.last() } else { parent.addr() }
}

fn prefix<A: Key>() -> impl Strategy<Value = Prefix<A>> {
    // Few distinct leading bits, so that prefixes nest and share nodes; every length.
    (0u64..4, 0..=A::WIDTH, any::<u128>(), any::<u128>())
        .prop_map(|(index, len, rest, sparse)| Prefix::truncated(A::with(index << 4, 6, rest & sparse), len))
}

fn updates<A: Key>() -> impl Strategy<Value = Vec<(Prefix<A>, Option<u32>)>> {
    prop::collection::vec((prefix::<A>(), prop::option::weighted(0.7, 1..0x8000_0000u32)), 0..120)
}

fn stream<A: Key>(start: Vec<(Prefix<A>, u32)>, updates: Vec<(Prefix<A>, Option<u32>)>, probes: Vec<u128>) {
    let memory = HeapMemory::new(4 << 20);
    let mut twin = Twin::<A>::new(&memory, &start);
    twin.check_contents();
    let mut inserted: Vec<Prefix<A>> = start.iter().map(|(prefix, _)| *prefix).collect();
    for (n, (prefix, value)) in updates.into_iter().enumerate() {
        // Removals mostly hit something that is there.
        let prefix =
            if value.is_none() && !inserted.is_empty() { inserted[n % inserted.len()] } else { prefix };
        twin.set(prefix, value);
        inserted.push(prefix);
        twin.check(prefix.addr());
        twin.check(prefix.last());
    }
    twin.check_contents();
    twin.check_edges();
    for probe in probes {
        twin.check(A::with(probe as u64 & 63, 6, probe >> 6));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_updates_ipv4(
        start in prop::collection::vec((prefix::<u32>(), 1..0x8000_0000u32), 0..90),
        updates in updates::<u32>(),
        probes in prop::collection::vec(any::<u128>(), 0..200),
    ) {
        stream(start, updates, probes);
    }

    #[test]
    fn random_updates_ipv6(
        start in prop::collection::vec((prefix::<u128>(), 1..0x8000_0000u32), 0..90),
        updates in updates::<u128>(),
        probes in prop::collection::vec(any::<u128>(), 0..200),
    ) {
        stream(start, updates, probes);
    }
}

/// All prefixes of a 3-bit universe: 1 + 2 + 4 + 8.
fn universe<A: Address>() -> Vec<Prefix<A>> {
    (0..=3u16)
        .flat_map(|len| {
            (0..1usize << len).map(move |index| Prefix::truncated(A::from_index(index, len), len))
        })
        .collect()
}

/// All 2^15 prefix sets of a 3-bit universe, each reached by one update from the one before (a Gray code). Checks all 8 addresses after
/// every update, and that the image is sound. `at` moves the universe down the key, so that it falls into the root, across a node's edge,
/// to the end. `others` stay: more prefixes make other kinds of nodes. Returns the kinds that occurred.
fn exhaustive<A: Key>(at: u16, others: &[(Prefix<A>, u32)]) -> BTreeSet<&'static str> {
    let memory = HeapMemory::new(1 << 20);
    let shift = |p: &Prefix<A>| {
        let bits = p.addr().bits_at(0, 3);
        let addr = (0..3u16).fold(A::ZERO, |addr, bit| {
            if bits >> (2 - bit) & 1 == 1 { flip_to_one(addr, at + bit) } else { addr }
        });
        Prefix::truncated(addr, p.len() + at)
    };
    let universe: Vec<Prefix<A>> = universe::<A>().iter().map(shift).collect();
    let mut twin = Twin::<A>::new(&memory, others);
    // Only what is near the universe has a say in it, and the oracle is slow.
    twin.oracle = Oracle::new();
    for (prefix, value) in others.iter().filter(|(prefix, _)| universe[0].covers(prefix)) {
        twin.oracle.insert(*prefix, *value);
    }
    let mut kinds = BTreeSet::new();
    let mut set = 0u32;
    for step in 1u32..=1 << 15 {
        let gray = (step & 0x7fff) ^ (step & 0x7fff) >> 1;
        let changed = (set ^ gray).trailing_zeros() as usize;
        set = gray;
        let value = (gray >> changed & 1 == 1).then_some(changed as u32 + 1);
        // Whole keys change most often: nodes that hold nothing else occur, too.
        twin.set(universe[14 - changed], value);
        // A table with a large root takes long to verify.
        if others.len() < 1000 || step % 61 == 0 {
            let report = verify(memory.words()).unwrap();
            kinds.extend(report.tables[0].nodes.iter().map(|(kind, _)| *kind));
            assert_eq!(report.tables[0].prefixes, gray.count_ones() + others.len() as u32);
        }
        for host in &universe[7..] {
            twin.check(host.addr());
            twin.check(host.last());
        }
    }
    assert_eq!(set, 0, "the last of the Gray code is the empty set");
    kinds
}

fn flip_to_one<A: Address>(addr: A, bit: u16) -> A {
    if Prefix::truncated(addr, bit + 1).addr() == Prefix::truncated(flip(addr, bit), bit + 1).addr() {
        addr
    } else {
        let one = Prefix::truncated(addr, bit).last().masked(bit + 1);
        debug_assert!(addr.masked(bit) == addr);
        one
    }
}

#[test]
fn every_prefix_set_of_three_bits_ipv4() {
    let mut kinds = BTreeSet::new();
    for at in [0, 6, 12, 16, 22, 29] {
        kinds.append(&mut exhaustive::<u32>(at, &[]));
    }
    // So many hosts take a hash table, which has those of the universe as well.
    let hosts: Vec<_> = (8..80).map(|n| (Prefix::host(n << 8 | n), n + 20)).collect();
    kinds.append(&mut exhaustive::<u32>(29, &hosts));
    assert_eq!(kinds, BTreeSet::from(["bucket", "node6", "ranges"]));
}

/// As above, in a table of so many prefixes that it has a palette.
#[test]
fn every_prefix_set_of_three_bits_ipv4_with_a_palette() {
    let others: Vec<_> = (0..4200u32).map(|n| (Prefix::truncated(n << 12, 24), n % 9 + 20)).collect();
    let kinds = exhaustive::<u32>(17, &others);
    assert!(kinds.contains("leaf6"), "{kinds:?}");
}

/// As above, in IPv6.
#[test]
fn every_prefix_set_of_three_bits_ipv6_with_a_palette() {
    let others: Vec<_> =
        (0..4200u128).map(|n| (Prefix::truncated(0x2001 << 112 | n << 96, 32), n as u32 % 9 + 20)).collect();
    let kinds = exhaustive::<u128>(29, &others);
    assert!(kinds.contains("leaf8"), "{kinds:?}");
}

#[test]
fn every_prefix_set_of_three_bits_ipv6() {
    let mut kinds = BTreeSet::new();
    for at in [0, 6, 14, 125] {
        kinds.append(&mut exhaustive::<u128>(at, &[]));
    }
    // Some of the node's slots are taken by others, and more than half, inside the universe and beside it.
    for count in [40, 200] {
        let others: Vec<_> =
            (0..count).map(|n| (Prefix::truncated((n + 30) << 112, 16), n as u32 + 20)).collect();
        kinds.append(&mut exhaustive::<u128>(9, &others));
    }
    // So many runs of the same 32 key bits that one ranges32 is above others, some with nodes behind them. The universe
    // covers all of them, is beside them, and at the key's end.
    for at in [29, 37, 125] {
        let base = if at == 125 { 104 } else { 40 };
        let others: Vec<_> = (1..12u128)
            .map(|n| {
                let len = (base - 3 + 7 * (n as u16 % 3)).min(128);
                (Prefix::truncated(n << (128 - base + 3) | n << (128 - base - 9), len), n as u32 + 20)
            })
            .collect();
        kinds.append(&mut exhaustive::<u128>(at, &others));
    }
    assert_eq!(kinds, BTreeSet::from(["bucket", "node8", "skip"]));
}

/// As above, across all edges of a root of twelve bits and the direct12 below it.
#[test]
fn every_prefix_set_of_three_bits_ipv6_with_direct12() {
    // All in the slot of the universe, whose bits are 0; some are shorter than the direct12's end, some longer.
    let others: Vec<_> = (16..320u128)
        .map(|n| {
            let len = [24, 26, 31, 44][n as usize % 4];
            (Prefix::truncated(n << (128 - len), len), n as u32 + 20)
        })
        .collect();
    for at in [8, 9, 10, 12, 16, 20, 21, 22, 24, 28] {
        let kinds = exhaustive::<u128>(at, &others);
        assert!(kinds.contains("direct12"), "{at}: {kinds:?}");
    }
}

/// A slot that gets many prefixes gets a direct12, however many others there are. None is there for the rest of many that went.
#[test]
fn direct12_come_and_go() {
    let memory = HeapMemory::new(16 << 20);
    let mut twin = Twin::<u128>::new(&memory, &[]);
    let prefix = |slot: u128, n: u128| Prefix::truncated(slot << 116 | n << 84, 44);
    let count = |kind: &str| {
        let report = verify(memory.words()).unwrap();
        report.tables[0].nodes.iter().find(|(name, _)| *name == kind).map_or(0, |(_, count)| *count)
    };
    let mut set = |slots: std::ops::Range<u128>, each: std::ops::Range<u128>, value: Option<u32>| {
        for prefix in slots.flat_map(|slot| each.clone().map(move |n| prefix(slot, n))) {
            match value {
                Some(value) => twin.table.insert(&mut twin.image, prefix, value).unwrap(),
                None => twin.table.remove(&mut twin.image, &prefix).unwrap(),
            };
            let found = twin.image.reader().lookup(ID, prefix.last());
            assert_eq!(found, value, "{prefix:?}");
            assert_eq!(u128::c_lookup(&memory, prefix.last()), value, "{prefix:?}");
        }
    };
    // Of so many slots with as many prefixes each, none is worth one.
    set(0..100, 0..20, Some(1));
    assert_eq!(count("direct12"), 0);
    set(700..703, 0..900, Some(2));
    assert_eq!(count("direct12"), 3, "three slots stand out");
    // Many slots stand out: they get no more memory than a root of 16 bits would take, or that root.
    set(710..750, 0..200, Some(3));
    assert!(count("direct12") <= 15, "{}", count("direct12"));
    // Most prefixes are in one slot.
    set(800..801, 0..40_000, Some(4));
    assert!((1..=16).contains(&count("direct12")), "{}", count("direct12"));
    set(0..100, 0..20, None);
    set(700..703, 0..900, None);
    set(710..750, 0..200, None);
    set(800..801, 10..40_000, None);
    assert_eq!(count("direct12"), 0);
}

/// Grows past every root size and shrinks to nothing; the memory comes back. `crowd` is how many of the first bits differ: few make
/// nodes with many runs.
fn grow_and_shrink<A: Key>(crowd: u16, lens: std::ops::Range<u64>, largest_root: u16) {
    let memory = HeapMemory::new(64 << 20);
    let mut twin = Twin::<A>::new(&memory, &[]);
    let before = twin.image.stats().used;
    let mut model: BTreeMap<Prefix<A>, u32> = BTreeMap::new();
    let mut seed = 1u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut address = || {
        let (high, low) = (next(), next());
        A::with(high & 3, crowd, u128::from(high) << 64 | u128::from(low))
    };
    let prefixes: Vec<_> = (0..20_000u64)
        .map(|n| Prefix::truncated(address(), (lens.start + n * 7 % (lens.end - lens.start)) as u16))
        .collect();
    for (n, prefix) in prefixes.iter().enumerate() {
        twin.table.insert(&mut twin.image, *prefix, n as u32 + 1).unwrap();
        model.insert(*prefix, n as u32 + 1);
    }
    assert_eq!(twin.table.root_bits(), largest_root);
    let check = |twin: &Twin<A>, addr: A| {
        let value = twin.table.lookup(addr).map(|(_, value)| value);
        assert_eq!(twin.image.reader().lookup(ID, addr), value, "{:?}", Prefix::host(addr));
        assert_eq!(A::c_lookup(&memory, addr), value, "{:?}", Prefix::host(addr));
    };
    // The shadow, by which the others are checked, against the list of prefixes.
    let check_shadow = |twin: &Twin<A>, model: &BTreeMap<Prefix<A>, u32>| {
        let exact = Exact::new(model.iter().map(|(prefix, value)| (*prefix, *value)).collect());
        for addr in prefixes.iter().flat_map(|prefix| [prefix.addr(), prefix.last()]) {
            let value = twin.table.lookup(addr).map_or(0, |(_, value)| value);
            assert_eq!(value, exact.lookup(addr), "{:?}", Prefix::host(addr));
        }
    };
    check_shadow(&twin, &model);
    for (n, prefix) in prefixes.iter().enumerate() {
        check(&twin, address());
        check(&twin, prefix.addr());
        check(&twin, prefix.last());
        if n % 3 == 0 {
            twin.table.insert(&mut twin.image, *prefix, 7 + n as u32).unwrap();
            model.insert(*prefix, 7 + n as u32);
        }
    }
    check_shadow(&twin, &model);
    for (n, prefix) in prefixes.iter().enumerate() {
        assert_eq!(model.remove(prefix), twin.table.remove(&mut twin.image, prefix).unwrap());
        check(&twin, prefix.addr());
        check(&twin, prefixes[(n * 31 + 1) % prefixes.len()].last());
        if n % 4000 == 3999 {
            check_shadow(&twin, &model);
        }
    }
    assert!(twin.table.is_empty() && model.is_empty());
    twin.image.synchronize();
    let after = twin.image.stats();
    assert_eq!(after.limbo, 0);
    assert!(twin.table.root_bits() <= 10, "a root shrinks again: {}", twin.table.root_bits());
    let left = after.used - before - ((4 << twin.table.root_bits()) - (4 << 8));
    assert!(left <= 4 << 10, "all but the root and a few words of a hash table is free again: {left} bytes");
}

#[test]
fn a_table_that_grows_and_shrinks_ipv4() {
    grow_and_shrink::<u32>(6, 8..33, 16);
    grow_and_shrink::<u32>(18, 18..33, 16);
}

#[test]
fn a_table_that_grows_and_shrinks_ipv6() {
    grow_and_shrink::<u128>(6, 8..129, 16);
    grow_and_shrink::<u128>(20, 20..40, 12);
    grow_and_shrink::<u128>(24, 100..129, 12); // skips
}
