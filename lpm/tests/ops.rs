//! Operations on whole tables against what follows from their definitions: sets of prefixes as BTreeMaps, answers by the oracle,
//! the smallest table by trying all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trieline_lpm::ops::{self, Change, Joined, Region};
use trieline_lpm::oracle::Oracle;
use trieline_lpm::{Address, Key, Prefix};

type List<A> = Vec<(Prefix<A>, u32)>;

/// Prefixes that nest and share bits: few first bits, sparse others, every length.
fn tables<A: Address>(values: u32, size: usize) -> impl Strategy<Value = List<A>> {
    let prefix =
        (0usize..8, 0..=A::WIDTH, any::<[u16; 3]>(), any::<bool>()).prop_map(|(start, len, flips, ones)| {
            let mut addr = A::from_index(start, A::WIDTH.min(3));
            if ones {
                addr = addr.filled(A::WIDTH.min(3));
            }
            for bit in flips {
                let bit = bit % A::WIDTH;
                // The two halves under the first `bit` bits: take the other one.
                let parent = Prefix::truncated(addr, bit);
                let is_one = Prefix::truncated(addr, bit + 1).last() == parent.last();
                addr = if is_one { parent.addr() } else { parent.last().masked(bit + 1) };
            }
            Prefix::truncated(addr, len)
        });
    prop::collection::btree_map(prefix, 1..=values, 0..size).prop_map(|table| table.into_iter().collect())
}

fn oracle<A: Address>(table: &List<A>) -> Oracle<A> {
    let mut oracle = Oracle::new();
    for (prefix, value) in table {
        oracle.insert(*prefix, *value);
    }
    oracle
}

fn answer<A: Address>(oracle: &Oracle<A>, addr: A) -> Option<u32> {
    oracle.lookup(addr).map(|(_, value)| value)
}

fn follows<A: Address>(one: A, two: A) -> bool {
    let half = one.common_bits(two) + 1;
    one < two && one == one.filled(half) && two == two.masked(half)
}

/// The ranges are the whole space, in order, without a gap.
fn assert_whole<A: Address, T>(regions: &[Region<A, T>]) {
    assert_eq!(regions[0].first, A::ZERO);
    assert_eq!(regions[regions.len() - 1].last, A::ZERO.filled(0));
    assert!(regions.iter().all(|region| region.first <= region.last));
    assert!(regions.windows(2).all(|pair| follows(pair[0].last, pair[1].first)));
}

fn check<A: Address>(a: &List<A>, b: &List<A>) {
    let (left, right): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (a.iter().copied().collect(), b.iter().copied().collect());
    let keys: BTreeSet<Prefix<A>> = left.keys().chain(right.keys()).copied().collect();
    let each = || keys.iter().map(|key| (*key, left.get(key).copied(), right.get(key).copied()));
    let (ours, theirs) = (|| a.iter().copied(), || b.iter().copied());

    // Sets of prefixes.
    let joined: Vec<_> = ops::join(ours(), theirs()).collect();
    let expected: Vec<_> = each()
        .map(|(key, left, right)| match (left, right) {
            (Some(left), Some(right)) => (key, Joined::Both(left, right)),
            (Some(left), None) => (key, Joined::Left(left)),
            (_, right) => (key, Joined::Right(right.unwrap())),
        })
        .collect();
    assert_eq!(joined, expected);
    let mut union = right.clone();
    union.extend(left.clone());
    assert!(ops::union(ours(), theirs()).eq(union));
    let sums = each().map(|(key, left, right)| (key, left.unwrap_or(0) + right.unwrap_or(0)));
    assert!(ops::union_with(ours(), theirs(), |_, left, right| left + right).eq(sums));
    let common = each().filter_map(|(key, left, right)| Some((key, (left?, right?))));
    assert!(ops::intersection(ours(), theirs()).eq(common));
    let only = each().filter(|(_, _, right)| right.is_none()).map(|(key, left, _)| (key, left.unwrap()));
    assert!(ops::difference(ours(), theirs()).eq(only));
    let mut patched = left.clone();
    for (prefix, change) in ops::diff(ours(), theirs()) {
        let old = match change.after() {
            Some(value) => patched.insert(prefix, value),
            None => patched.remove(&prefix),
        };
        let before = match change {
            Change::Added(_) => None,
            Change::Removed(value) | Change::Changed { from: value, .. } => Some(value),
        };
        assert_eq!(old, before);
        assert_ne!(old, change.after(), "only what changed");
    }
    assert_eq!(patched, right);

    // Which cover which.
    let mut pairs: Vec<_> = ops::overlaps(ours(), theirs()).collect();
    assert!(pairs.is_sorted_by_key(|((one, _), (two, _))| *one.max(two)));
    let mut expected = Vec::new();
    for one in a {
        expected.extend(
            b.iter().filter(|two| one.0.covers(&two.0) || two.0.covers(&one.0)).map(|two| (*one, *two)),
        );
    }
    pairs.sort();
    assert_eq!(pairs, expected);

    // Answers to addresses.
    let (oracles, mut edges) = ([oracle(a), oracle(b)], vec![A::ZERO, A::ZERO.filled(0)]);
    for (prefix, _) in a.iter().chain(b) {
        edges.extend([prefix.addr(), prefix.last()]);
    }
    let regions: Vec<_> = ops::regions(ours()).collect();
    assert_whole(&regions);
    assert!(regions.windows(2).all(|pair| pair[0].value != pair[1].value), "maximal");
    let compared: Vec<_> = ops::compare(ours(), theirs()).collect();
    assert_whole(&compared);
    assert!(compared.windows(2).all(|pair| pair[0].value != pair[1].value), "maximal");
    let rest: Vec<_> = ops::subtract(ours(), theirs()).collect();
    assert!(rest.is_sorted());
    for addr in edges {
        let [in_a, in_b] = [0, 1].map(|table| answer(&oracles[table], addr));
        let region = regions.iter().find(|region| region.first <= addr && addr <= region.last).unwrap();
        assert_eq!(region.value, in_a);
        let region = compared.iter().find(|region| region.first <= addr && addr <= region.last).unwrap();
        assert_eq!(region.value, (in_a, in_b));
        let covering = rest.iter().filter(|prefix| prefix.contains(addr)).count();
        assert_eq!(covering, usize::from(in_a.is_some() && in_b.is_none()));
    }
    for pair in rest.windows(2) {
        let parent = Prefix::truncated(pair[0].addr(), pair[0].len().saturating_sub(1));
        assert!(pair[0].len() != pair[1].len() || !parent.contains(pair[1].addr()), "two halves of {parent}");
    }
    for region in &compared {
        let prefixes: Vec<_> = region.prefixes().collect();
        assert_eq!((prefixes[0].addr(), prefixes[prefixes.len() - 1].last()), (region.first, region.last));
        assert!(prefixes.windows(2).all(|pair| follows(pair[0].last(), pair[1].addr())));
        assert!(prefixes.len() <= 2 * usize::from(A::WIDTH));
    }

    let fewest = ops::aggregate(ours());
    assert!(fewest.is_sorted_by(|one, two| one.0 < two.0));
    assert!(fewest.len() <= a.len());
    assert!(ops::regions(fewest.iter().copied()).eq(regions), "{a:?} became {fewest:?}");
    assert_eq!(ops::aggregate(fewest.clone()).len(), fewest.len());
    let shuffled: Vec<_> = a.iter().rev().map(|(prefix, _)| (*prefix, 99)).chain(ours()).collect();
    assert_eq!(ops::aggregate(shuffled), fewest, "any order, the last of equal ones");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_ipv4(a in tables::<u32>(3, 40), b in tables::<u32>(3, 40)) {
        check(&a, &b);
    }

    #[test]
    fn operations_ipv6(a in tables::<u128>(3, 40), b in tables::<u128>(3, 40)) {
        check(&a, &b);
    }

    #[test]
    fn operations_one_bit(a in tables::<Key<1, 1>>(3, 4), b in tables::<Key<1, 1>>(3, 4)) {
        check(&a, &b);
    }

    #[test]
    fn operations_five_bits(a in tables::<Key<5, 1>>(3, 40), b in tables::<Key<5, 1>>(3, 40)) {
        check(&a, &b);
    }

    #[test]
    fn operations_130_bits(a in tables::<Key<130, 17>>(3, 40), b in tables::<Key<130, 17>>(3, 40)) {
        check(&a, &b);
    }

    #[test]
    fn operations_2048_bits(a in tables::<Key<2048, 256>>(3, 16), b in tables::<Key<2048, 256>>(3, 16)) {
        check(&a, &b);
    }

    #[test]
    fn subtraction_leaves_the_fewest_prefixes(a in tables::<Key<5, 1>>(1, 12), b in tables::<Key<5, 1>>(1, 12)) {
        let rest: List<_> = ops::subtract(a, b).map(|prefix| (prefix, 1)).collect();
        prop_assert_eq!(rest.len(), fewest(&answers(&rest), 0, 1).unwrap());
    }

    #[test]
    fn aggregation_is_optimal_in_five_bits(table in tables::<Key<5, 1>>(2, 24)) {
        prop_assert_eq!(ops::aggregate(table.clone()).len(), fewest(&answers(&table), 0, 2).unwrap());
    }
}

/// The answer for every address of a small key; 0 = none.
fn answers<A: Address>(table: &List<A>) -> Vec<u32> {
    let oracle = oracle(table);
    let host = |index| A::from_index(index, A::WIDTH);
    (0..1 << A::WIDTH).map(|index| answer(&oracle, host(index)).unwrap_or(0)).collect()
}

/// The size of the smallest table that answers so, `above` being the value of the prefixes over this part. Every value and none is
/// tried for the prefix of this part and of all its parts.
fn fewest(wanted: &[u32], above: u32, values: u32) -> Option<usize> {
    let with = |own: u32| {
        let value = if own == 0 { above } else { own };
        let (left, right) = wanted.split_at(wanted.len() / 2);
        let below = match left {
            [] => (value == right[0]).then_some(0)?,
            _ => fewest(left, value, values)? + fewest(right, value, values)?,
        };
        Some(below + usize::from(own != 0))
    };
    (0..=values).filter_map(with).min()
}

type Small = Key<3, 1>;

/// All prefixes of three bits: 1 + 2 + 4 + 8.
fn universe() -> Vec<Prefix<Small>> {
    (0..=3u16)
        .flat_map(|len| (0..1usize << len).map(move |at| Prefix::truncated(Small::from_index(at, len), len)))
        .collect()
}

/// The same table `at` bits further down in IPv4 addresses.
fn moved(table: &List<Small>, at: u16) -> List<u32> {
    let put = |prefix: Prefix<Small>| {
        Prefix::truncated((prefix.addr().bits_at(0, 3) as u32) << (29 - at), prefix.len() + at)
    };
    table.iter().map(|(prefix, value)| (put(*prefix), *value)).collect()
}

#[test]
fn aggregation_is_optimal_for_every_prefix_set_of_three_bits() {
    let mut smallest: HashMap<Vec<u32>, usize> = HashMap::new();
    for values in [2, 3] {
        for set in 0u32..1 << 15 {
            let prefixes = universe().into_iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            let value = |at: usize| {
                1 + ((set.wrapping_mul(0x9e37_79b9) ^ at as u32).wrapping_mul(0x85eb_ca6b) >> 16) % values
            };
            let mut table: List<Small> = prefixes.map(|(at, prefix)| (prefix, value(at))).collect();
            table.sort_unstable();
            let wanted = answers(&table);
            let aggregated = ops::aggregate(table.clone());
            assert_eq!(answers(&aggregated), wanted, "{table:?}");
            let expected = *smallest.entry(wanted).or_insert_with_key(|wanted| fewest(wanted, 0, 3).unwrap());
            assert_eq!(aggregated.len(), expected, "{table:?}");
            for at in [1, 29] {
                assert_eq!(ops::aggregate(moved(&table, at)), moved(&aggregated, at), "{table:?}");
            }
        }
    }
}

#[test]
fn aggregation_is_optimal_for_all_answers_of_eight_addresses() {
    for code in 0u32..1 << 16 {
        let wanted: Vec<u32> = (0..8).map(|at| code >> (2 * at) & 3).collect();
        let hosts = wanted.iter().enumerate().filter(|(_, value)| **value > 0);
        let table: List<Small> =
            hosts.map(|(at, value)| (Prefix::host(Small::from_index(at, 3)), *value)).collect();
        let aggregated = ops::aggregate(table);
        assert_eq!(answers(&aggregated), wanted);
        assert_eq!(aggregated.len(), fewest(&wanted, 0, 3).unwrap(), "{wanted:?}");
    }
}

/// 200,000 random prefixes with few values: every answer stays, through a default route and without.
#[test]
fn aggregation_keeps_every_answer_of_a_large_table() {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        seed >> 20
    };
    let mut table: BTreeMap<Prefix<u32>, u32> = (0..200_000)
        .map(|_| {
            (Prefix::truncated(next() as u32 & 0x3fff_ffff, 8 + next() as u16 % 25), 1 + next() as u32 % 4)
        })
        .collect();
    for default in [None, Some(3)] {
        table.extend(default.map(|value| (Prefix::truncated(0, 0), value)));
        let list = || table.iter().map(|(prefix, value)| (*prefix, *value));
        let fewest = ops::aggregate(list());
        assert!(fewest.len() < table.len() * 9 / 10);
        assert!(ops::regions(fewest).eq(ops::regions(list())));
    }
}
