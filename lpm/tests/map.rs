//! The map against a BTreeMap for what it holds and the oracle for what it finds, for keys of several widths.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use trieline_lpm::oracle::Oracle;
use trieline_lpm::{Address, IpMap, IpPrefix, Ipv4Map, Key, Map, Prefix, ops};

#[derive(Debug, Clone)]
enum Step<A: Address> {
    Insert(Prefix<A>),
    /// Of the n-th prefix there is.
    Remove(usize),
    RemoveAbsent(Prefix<A>),
    Change(usize),
    Count(Prefix<A>),
    Extend(Vec<Prefix<A>>),
    /// Prefixes of at most this length.
    Retain(u16),
    Clear,
    Copy,
}

/// Prefixes that nest and share bits: few first bits, few bits flipped, every length.
fn prefixes<A: Address>() -> impl Strategy<Value = Prefix<A>> {
    (0usize..4, 0..=A::WIDTH, any::<[u16; 3]>(), any::<bool>()).prop_map(|(start, len, flips, ones)| {
        let start = A::from_index(start, 4);
        let mut addr = if ones { start.filled(4) } else { start };
        for bit in flips {
            let bit = bit % A::WIDTH;
            let parent = Prefix::truncated(addr, bit);
            let is_one = Prefix::truncated(addr, bit + 1).last() == parent.last();
            addr = if is_one { parent.addr() } else { parent.last().masked(bit + 1) };
        }
        Prefix::truncated(addr, len)
    })
}

fn steps<A: Address>() -> impl Strategy<Value = Vec<Step<A>>> {
    let step = prop_oneof![
        20 => prefixes().prop_map(Step::Insert),
        8 => any::<usize>().prop_map(Step::Remove),
        2 => prefixes().prop_map(Step::RemoveAbsent),
        4 => any::<usize>().prop_map(Step::Change),
        4 => prefixes().prop_map(Step::Count),
        2 => prop::collection::vec(prefixes(), 0..8).prop_map(Step::Extend),
        1 => (A::WIDTH / 2..=A::WIDTH).prop_map(Step::Retain),
        1 => Just(Step::Clear),
        1 => Just(Step::Copy),
    ];
    prop::collection::vec(step, 0..60)
}

/// A value that is not `Copy` and tells which insert it came from.
fn value(n: usize) -> String {
    format!("value {n}")
}

fn run<A: Address>(steps: Vec<Step<A>>) {
    let (mut map, mut twin) = (Map::<A, String>::new(), BTreeMap::new());
    for (n, step) in steps.into_iter().enumerate() {
        let nth = |n: usize| twin.keys().nth(n % twin.len().max(1)).copied();
        match step {
            Step::Insert(prefix) => assert_eq!(map.insert(prefix, value(n)), twin.insert(prefix, value(n))),
            Step::Remove(at) => {
                if let Some(prefix) = nth(at) {
                    assert_eq!(map.remove(&prefix), twin.remove(&prefix));
                }
            }
            Step::RemoveAbsent(prefix) => assert_eq!(map.remove(&prefix), twin.remove(&prefix)),
            Step::Change(at) => {
                if let Some(prefix) = nth(at) {
                    map.get_mut(&prefix).unwrap().push('!');
                    twin.get_mut(&prefix).unwrap().push('!');
                }
            }
            Step::Count(prefix) => {
                map.get_or_insert_with(prefix, || value(n)).push('+');
                twin.entry(prefix).or_insert_with(|| value(n)).push('+');
            }
            Step::Extend(prefixes) => {
                let entries =
                    || prefixes.iter().enumerate().map(|(m, prefix)| (*prefix, value(1000 * n + m)));
                map.extend(entries());
                twin.extend(entries());
            }
            Step::Retain(len) => {
                let mut seen = Vec::new();
                map.retain(|prefix, value| {
                    seen.push(*prefix);
                    value.push('?');
                    prefix.len() <= len
                });
                assert!(seen.iter().eq(twin.keys()));
                twin.retain(|prefix, value| {
                    value.push('?');
                    prefix.len() <= len
                });
            }
            Step::Clear => {
                map.clear();
                twin.clear();
            }
            Step::Copy => {
                let copy = map.clone();
                assert_eq!(copy, map);
                map = copy;
            }
        }
        assert_eq!(map.len(), twin.len());
    }
    check(map, twin);
}

fn check<A: Address>(mut map: Map<A, String>, mut twin: BTreeMap<Prefix<A>, String>) {
    let entries = || twin.iter().map(|(prefix, value)| (*prefix, value));
    assert!(map.iter().eq(entries()) && map.iter().rev().eq(entries().rev()));
    assert!(map.keys().eq(twin.keys().copied()) && map.values().eq(twin.values()));
    assert_eq!(map.is_empty(), twin.is_empty());
    assert_eq!(format!("{map:?}"), format!("{twin:?}"));

    let mut oracle = Oracle::new();
    for (n, prefix) in twin.keys().enumerate() {
        oracle.insert(*prefix, n as u32);
    }
    let values: Vec<&String> = twin.values().collect();
    let valued = |found: Vec<(Prefix<A>, u32)>| -> Vec<(Prefix<A>, &String)> {
        found.into_iter().map(|(prefix, n)| (prefix, values[n as usize])).collect()
    };
    let mut probes = vec![Prefix::host(A::ZERO), Prefix::host(A::ZERO.filled(0))];
    for prefix in twin.keys() {
        let half = Prefix::truncated(prefix.last(), prefix.len() + 1);
        let parent = Prefix::truncated(prefix.addr(), prefix.len().saturating_sub(1));
        probes.extend([*prefix, half, parent, Prefix::host(parent.addr()), Prefix::host(parent.last())]);
    }
    for probe in &probes {
        assert_eq!(map.get(probe), twin.get(probe));
        assert_eq!(map.contains_prefix(probe), twin.contains_key(probe));
        let found = oracle.lookup(probe.last()).map(|(prefix, n)| (prefix, values[n as usize]));
        assert_eq!(map.lookup_prefix(probe.last()), found);
        assert_eq!(map.lookup(probe.last()), found.map(|(_, value)| value));
        assert_eq!(map.matches(probe.last()).collect::<Vec<_>>(), valued(oracle.matches(probe.last())));
        assert_eq!(map.covering(probe).collect::<Vec<_>>(), valued(oracle.covering(probe)));
        assert_eq!(map.covered(probe).collect::<Vec<_>>(), valued(oracle.covered(probe)));
        assert_eq!(map.iter_from(*probe).collect::<Vec<_>>(), valued(oracle.up_from(probe)));
        assert_eq!(map.iter_until(*probe).rev().collect::<Vec<_>>(), valued(oracle.down_from(probe)));
    }
    let addrs: Vec<A> = probes.iter().map(Prefix::addr).collect();
    let mut batch = vec![None; addrs.len()];
    map.lookup_batch(&addrs, &mut batch);
    assert!(batch.iter().zip(&addrs).all(|(value, addr)| *value == map.lookup(*addr)));

    let collected: Map<A, String> =
        twin.iter().rev().map(|(prefix, value)| (*prefix, value.clone())).collect();
    assert_eq!(collected, map);
    assert!(ops::regions(&map.aggregate()).eq(ops::regions(&map)));
    let (short, long): (Map<A, String>, Map<A, String>) =
        collected.into_iter().partition(|(prefix, _)| prefix.len() < A::WIDTH / 2);
    assert_eq!(short.union(&long), map);
    assert_eq!(map.difference(&long), short);
    assert_eq!(map.diff(&short).count(), long.len());
    assert_ne!(map.union(&Map::from([(Prefix::truncated(A::ZERO, 0), value(0))])).len(), 0);

    map.values_mut().for_each(|value| value.push('1'));
    let last = map.iter_mut().next_back().map(|(_, value)| value.push('2'));
    map.iter_mut().for_each(|(_, value)| value.push('3'));
    twin.values_mut().for_each(|value| value.push('1'));
    assert_eq!(twin.values_mut().next_back().map(|value| value.push('2')), last);
    twin.values_mut().for_each(|value| value.push('3'));
    let owned = map.clone().into_iter();
    assert_eq!(owned.len(), twin.len());
    assert!(owned.rev().eq(twin.clone().into_iter().rev()));
    assert!(map.into_iter().eq(twin));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_a_btree_map_and_the_oracle_ipv4(steps in steps::<u32>()) {
        run(steps);
    }

    #[test]
    fn as_a_btree_map_and_the_oracle_ipv6(steps in steps::<u128>()) {
        run(steps);
    }

    #[test]
    fn as_a_btree_map_and_the_oracle_address_and_port(steps in steps::<Key<48, 6>>()) {
        run(steps);
    }

    #[test]
    fn as_a_btree_map_and_the_oracle_2048_bits(steps in steps::<Key<2048, 256>>()) {
        run(steps);
    }
}

/// Grows through several images and shrinks to nothing, with every answer right on the way.
/// Returns the sizes of the first and the last image.
fn grow<A: Address>(count: u64, spread: impl Fn(u64) -> Prefix<A>) -> (usize, usize) {
    let mut map = Map::<A, u64>::new();
    let first = map.image_bytes();
    let mut twin = BTreeMap::new();
    for n in 0..count {
        let prefix = spread(n);
        assert_eq!(map.insert(prefix, n), twin.insert(prefix, n));
        assert_eq!(map.lookup(prefix.last()), map.lookup_prefix(prefix.last()).map(|(_, value)| value));
    }
    let last = map.image_bytes();
    let at_once: Map<A, u64> = twin.clone().into_iter().collect();
    assert_eq!(map, at_once);
    for (prefix, value) in &twin {
        assert_eq!(map.lookup(prefix.addr()), at_once.lookup(prefix.addr()));
        assert_eq!(map.get(prefix), Some(value));
    }
    for (prefix, value) in twin {
        assert_eq!(map.remove(&prefix), Some(value));
        assert_eq!(map.lookup(prefix.last()), map.lookup_prefix(prefix.last()).map(|(_, value)| value));
    }
    assert!(map.is_empty());
    (first, last)
}

#[test]
fn a_map_that_grows_ipv4() {
    let (first, last) =
        grow(60_000, |n| Prefix::truncated((n as u32).wrapping_mul(0x9e37_79b1), 12 + (n % 21) as u16));
    assert!(last > 4 * first, "{first} bytes became {last}: several images");
}

#[test]
fn a_map_that_grows_2048_bits() {
    grow(3_000, |n| {
        let key = Key::<2048, 256>::new(std::array::from_fn(|at| {
            (n.wrapping_mul(at as u64 / 50 + 1) >> (at % 8)) as u8
        }));
        Prefix::truncated(key, 40 + (n * 37 % 2009) as u16)
    });
}

#[test]
fn both_families_in_one_map() {
    let mut map = IpMap::new();
    let p = |text: &str| text.parse::<IpPrefix>().unwrap();
    map.extend([(p("2001:db8::/32"), 3), (p("10.1.0.0/16"), 2), (p("10.0.0.0/8"), 1)]);
    assert_eq!(map.insert(p("10.0.0.0/8"), 4), Some(1));
    *map.get_or_insert_with(p("::/0"), || 5) += 1;
    assert!(map.iter().eq([
        (p("10.0.0.0/8"), &4),
        (p("10.1.0.0/16"), &2),
        (p("::/0"), &6),
        (p("2001:db8::/32"), &3)
    ]));
    assert_eq!(map.lookup(IpAddr::from([10, 1, 0, 1])), Some(&2));
    assert_eq!(map.lookup("2001:db8::1".parse().unwrap()), Some(&3));
    assert_eq!(map.lookup_prefix("2001:db9::1".parse().unwrap()), Some((p("::/0"), &6)));
    assert_eq!(map.lookup(IpAddr::from([11, 1, 0, 1])), None, "the IPv6 default is none for IPv4");
    assert_eq!(map.lookup_prefix("::ffff:10.1.0.1".parse().unwrap()), Some((p("::/0"), &6)));
    assert_eq!(map.remove(&p("10.1.0.0/16")), Some(2));
    assert_eq!(
        (map.len(), map.get(&p("::/0")), map.contains_prefix(&p("10.1.0.0/16"))),
        (3, Some(&6), false)
    );
    assert_eq!(map, map.clone());
    map.clear();
    assert!(map.is_empty());
}

#[test]
fn both_families_are_walked_by_for() {
    let p = |text: &str| text.parse::<IpPrefix>().unwrap();
    let map = IpMap::from([(p("2001:db8::/32"), "c"), (p("10.1.0.0/16"), "b"), (p("10.0.0.0/8"), "a")]);
    let mut seen = Vec::new();
    for (prefix, value) in &map {
        seen.push((prefix, *value));
    }
    assert_eq!(seen, [(p("10.0.0.0/8"), "a"), (p("10.1.0.0/16"), "b"), (p("2001:db8::/32"), "c")]);
    assert!((&map).into_iter().eq(map.iter()));
    // From both ends, which meet in the middle.
    let mut ends = map.iter();
    let values = [ends.next_back(), ends.next_back(), ends.next(), ends.next_back(), ends.next()];
    assert_eq!(
        values.map(|entry| entry.map(|(_, value)| *value)),
        [Some("c"), Some("b"), Some("a"), None, None]
    );
    let mut taken = map.clone().into_iter();
    assert_eq!((taken.len(), taken.next_back().map(|(prefix, _)| prefix)), (3, Some(p("2001:db8::/32"))));
    assert_eq!(taken.len(), 2);
    assert!(taken.eq(seen.into_iter().take(2)));
}

#[test]
fn addresses_of_the_standard_library() {
    let host = Ipv4Addr::new(192, 0, 2, 1);
    let map = Ipv4Map::from([(host.into(), 1), (Prefix::truncated(host.into(), 24), 2)]);
    assert_eq!((map.lookup(host), map.lookup(0xc000_0202u32)), (Some(&1), Some(&2)));
    assert_eq!(Prefix::from(Ipv6Addr::LOCALHOST).to_string(), "::1/128");
    assert_eq!(IpPrefix::from(IpAddr::from(host)).to_string(), "192.0.2.1/32");
}

#[test]
fn a_map_goes_where_its_values_may() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Map<u32, String>>();
    is_shared::<IpMap<Vec<u8>>>();
}
