//! The shadow against a BTreeMap: every function, for every kind of key, through growth, bursting and collapse.

use super::PrefixStore;
use super::node::{Node, Slot};
use crate::prefix::{Entry, Stored};
use crate::random::Random;
use crate::{Address, Key, Prefix};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Buckets of eight entries, so that a few hundred prefixes reach every shape.
const SMALL: usize = 64;

impl Random {
    /// An address of random bits.
    fn addr<A: Address>(&mut self) -> A {
        let mut addr = A::ZERO;
        for at in (0..A::WIDTH).step_by(16) {
            let bits = (A::WIDTH - at).min(16);
            addr = addr.with_bits(at, bits, self.next() as usize & ((1 << bits) - 1));
        }
        addr
    }

    fn len<A: Address>(&mut self) -> u16 {
        self.below(usize::from(A::WIDTH) + 1) as u16
    }

    /// A prefix: of any address and length, or near one of `centres`, or of a few addresses that follow one another.
    fn prefix<A: Address>(&mut self, centres: &[A]) -> Prefix<A> {
        let (any, centre) = (self.addr::<A>(), centres[self.below(centres.len())]);
        let len = self.len::<A>();
        match self.below(8) {
            0 => Prefix::truncated(any, len),
            1 => Prefix::truncated(any, self.below(6) as u16),
            2 => Prefix::truncated(centre, len),
            3 | 4 => {
                // It leaves the centre at one bit, and ends soon after.
                let at = self.len::<A>().min(A::WIDTH - 1);
                let left = (A::WIDTH - at).min(1 + self.below(10) as u16);
                let addr = centre.masked(at).with_bits(at, left, any.bits_at(0, left));
                Prefix::truncated(addr, at + left)
            }
            _ => {
                let tail = A::WIDTH.min(8 + self.below(3) as u16);
                let addr =
                    centre.masked(A::WIDTH - tail).with_bits(A::WIDTH - tail, tail, any.bits_at(0, tail));
                Prefix::truncated(addr, A::WIDTH - self.below(3) as u16)
            }
        }
    }
}

struct Twin<A: Address, const BUCKET: usize> {
    prefix_store: PrefixStore<A, BUCKET>,
    model: BTreeMap<Prefix<A>, u32>,
}

impl<A: Address, const BUCKET: usize> Twin<A, BUCKET> {
    fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) {
        let expected = match value {
            Some(value) => self.model.insert(prefix, value),
            None => self.model.remove(&prefix),
        };
        let above = self.matches(prefix.addr(), prefix.len());
        let above = above.into_iter().rfind(|(above, _)| above.len() > 0 && *above != prefix);
        let above = above.map_or(0, |(_, value)| value);
        let change = self.prefix_store.change(prefix, value);
        assert_eq!(change.old, expected, "{prefix}");
        let inside =
            self.model.range(prefix..=Prefix::host(prefix.last())).filter(|(inside, _)| **inside != prefix);
        assert!(!change.is_bare || inside.count() == 0, "{prefix}");
        if expected.is_some() || value.is_some() {
            assert_eq!(change.after(), value.unwrap_or(above), "{prefix}");
        }
        if expected.is_some() || (value.is_some() && !change.is_bare) {
            assert_eq!(change.before(), expected.unwrap_or(above), "{prefix}");
        }
        assert_eq!(self.prefix_store.len(), self.model.len());
        assert_eq!(self.prefix_store.get(&prefix), value);
    }

    fn matches(&self, addr: A, len: u16) -> Vec<(Prefix<A>, u32)> {
        let prefixes = (0..=len.min(A::WIDTH)).map(|len| Prefix::truncated(addr, len));
        prefixes.filter_map(|prefix| Some((prefix, *self.model.get(&prefix)?))).collect()
    }

    /// Every function with this prefix.
    fn ask(&self, prefix: Prefix<A>, random: &mut Random) {
        let (prefix_store, model) = (&self.prefix_store, &self.model);
        let item = |(prefix, value): (&Prefix<A>, &u32)| (*prefix, *value);
        assert_eq!(prefix_store.get(&prefix), model.get(&prefix).copied());
        let (addr, len) = (prefix.last(), prefix.len());
        for len in [len, len.saturating_sub(1), A::WIDTH, 0, random.len::<A>()] {
            let expected = self.matches(addr, len);
            assert!(prefix_store.matches(addr, len).eq(expected.iter().copied()), "{prefix} {len}");
            assert_eq!(prefix_store.longest(addr, len), expected.last().copied(), "{prefix} {len}");
            let inherited =
                expected.iter().rfind(|(prefix, _)| prefix.len() > 0).map_or(0, |(_, value)| *value);
            assert_eq!(prefix_store.inherited(addr, len), inherited);
        }
        for outer in
            [prefix, Prefix::truncated(addr, len.saturating_sub(5)), Prefix::truncated(addr, len / 2)]
        {
            let expected = || model.range(outer..=Prefix::host(outer.last())).map(item);
            assert!(prefix_store.within(outer).eq(expected()), "{outer}");
            let mut inside = Vec::new();
            prefix_store.each_inside(outer, |prefix, value| inside.push((prefix, value)));
            assert!(inside.into_iter().eq(expected()), "{outer}");
            assert!(prefix_store.within(outer).rev().eq(expected().rev()), "{outer}");
        }
        for prefix in [prefix, Prefix::host(addr)] {
            assert!(prefix_store.from(prefix).take(40).eq(model.range(prefix..).map(item).take(40)));
            assert!(
                prefix_store.until(prefix).rev().take(40).eq(model.range(..=prefix).map(item).rev().take(40))
            );
        }
        // From both ends by turns that differ, until they meet.
        let (mut ours, mut theirs) = (prefix_store.from(prefix), model.range(prefix..));
        for _ in 0..100 {
            let (one, other) = match random.below(2) {
                0 => (ours.next(), theirs.next().map(item)),
                _ => (ours.next_back(), theirs.next_back().map(item)),
            };
            assert_eq!(one, other);
        }
    }

    fn check(&self) {
        let item = |(prefix, value): (&Prefix<A>, &u32)| (*prefix, *value);
        assert!(self.prefix_store.iter().eq(self.model.iter().map(item)));
        assert!(self.prefix_store.iter().rev().eq(self.model.iter().map(item).rev()));
        assert_eq!(check_slot(&self.prefix_store.root, A::ZERO, 0), self.model.len());
    }
}

/// Checks what a slot's shape promises; returns how many prefixes it holds.
fn check_slot<A: Address, const BUCKET: usize>(slot: &Slot<A, BUCKET>, addr: A, depth: u16) -> usize {
    let inside = |entry: &A::Entry| entry.len() >= depth && entry.addr().common_bits(addr) >= depth;
    match slot {
        Slot::Bucket(bucket) => {
            let entries = bucket.entries();
            assert!(entries.iter().all(inside));
            assert!(entries.is_sorted_by(|one, two| one.order(two).is_lt()));
            assert_eq!(bucket.is_empty(), entries.is_empty());
            assert!(
                bucket.places() <= entries.len() + 2 * (32 / size_of::<A::Entry>()).max(2),
                "idle memory"
            );
            assert!(entries.len() <= Slot::<A, BUCKET>::LIMIT + 4);
            entries.len()
        }
        Slot::Node(node) => {
            assert!(node.depth >= depth && node.addr.common_bits(addr) >= depth);
            assert_eq!(node.addr, node.addr.masked(node.depth));
            check_node(node)
        }
    }
}

fn check_node<A: Address, const BUCKET: usize>(node: &Node<A, BUCKET>) -> usize {
    let (mut count, mut used) = (0, 0);
    for (slot, below) in node.slots.iter().enumerate() {
        let addr = node.addr.with_bits(node.depth, node.bits, slot);
        count += check_slot(below, addr, node.depth + node.bits);
        used += usize::from(!below.is_empty());
        let cover = (0..node.bits).rev().find(|len| node.own(slot, *len).is_some());
        assert_eq!(u16::from(node.cover[slot]), cover.map_or(0, |len| len + 1));
    }
    let own = node.values.iter().filter(|value| **value != 0).count();
    assert_eq!((node.own, node.used, node.count), (own, used, own + count));
    assert!(node.low < node.count && node.count < node.high, "{} {} {}", node.low, node.count, node.high);
    let is_detour = own == 0 && used == 1 && node.slots.iter().any(|slot| matches!(slot, Slot::Node(_)));
    assert!(!is_detour, "it only leads to another");
    own + count
}

/// Builds, grows, churns and empties a table.
fn live<A: Address, const BUCKET: usize>(seed: u64, prefixes: usize, steps: usize) {
    let mut random = Random(seed);
    let centres: Vec<A> = (0..4).map(|_| random.addr()).collect();
    let bulk: Vec<_> = (1..=prefixes as u32).map(|value| (random.prefix(&centres), value)).collect();
    let model: BTreeMap<_, _> = bulk.iter().copied().collect();
    let mut twin = Twin { prefix_store: bulk.into_iter().collect::<PrefixStore<A, BUCKET>>(), model };
    twin.check();
    for round in 0..4 {
        for step in 0..steps as u32 {
            let prefix = random.prefix(&centres);
            twin.set(prefix, (random.below(8) > 0).then_some(step + 1));
        }
        twin.check();
        let clone = twin.prefix_store.clone();
        for _ in 0..20 {
            let prefix = random.prefix(&centres);
            twin.ask(prefix, &mut random);
        }
        // Of those there are, all but one of 2, 8, 32, at last all go.
        let keep = [2, 8, 32, usize::MAX][round];
        let mut prefixes: Vec<_> = twin.model.keys().copied().collect();
        for at in (1..prefixes.len()).rev() {
            prefixes.swap(at, random.below(at + 1));
        }
        let before = twin.model.clone();
        for prefix in &prefixes {
            if random.below(keep) > 0 {
                twin.set(*prefix, None);
            }
            if random.below(200) == 0 {
                twin.check();
                twin.ask(*prefix, &mut random);
            }
        }
        twin.check();
        assert!(clone.iter().eq(before.into_iter()), "a clone stands by itself");
    }
    for prefix in twin.model.keys().copied().collect::<Vec<_>>() {
        twin.set(prefix, None);
    }
    assert_eq!((twin.prefix_store.bytes(), twin.prefix_store.iter().next()), (0, None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_a_map_ipv4(seed in any::<u64>(), prefixes in 0..2000usize, steps in 0..1500usize) {
        live::<u32, SMALL>(seed, prefixes, steps);
    }

    #[test]
    fn as_a_map_ipv6(seed in any::<u64>(), prefixes in 0..1500usize, steps in 0..1000usize) {
        live::<u128, SMALL>(seed, prefixes, steps);
    }

    #[test]
    fn as_a_map_odd(seed in any::<u64>(), prefixes in 0..1000usize, steps in 0..600usize) {
        live::<Key<13, 2>, SMALL>(seed, prefixes, steps);
    }

    #[test]
    fn as_a_map_endpoint(seed in any::<u64>(), prefixes in 0..1000usize, steps in 0..600usize) {
        live::<Key<48, 6>, SMALL>(seed, prefixes, steps);
    }

    #[test]
    fn as_a_map_wide(seed in any::<u64>(), prefixes in 0..300usize, steps in 0..200usize) {
        live::<Key<2048, 256>, SMALL>(seed, prefixes, steps);
    }

    #[test]
    fn as_a_map_with_buckets_as_used(seed in any::<u64>(), prefixes in 0..6000usize) {
        live::<u32, 4096>(seed, prefixes, 2000);
    }
}

#[test]
fn addresses_take_bits() {
    fn check<A: Address>(random: &mut Random) {
        for _ in 0..1000 {
            let bits = random.below(25).min(A::WIDTH.into()) as u16;
            let at = random.below(usize::from(A::WIDTH - bits) + 1) as u16;
            let (addr, index) = (random.addr::<A>().masked(at), random.next() as usize & ((1 << bits) - 1));
            let with = addr.with_bits(at, bits, index);
            assert_eq!(
                (with.masked(at), with.bits_at(at, bits), with.masked(at + bits)),
                (addr, index, with)
            );
        }
    }
    let random = &mut Random(1);
    check::<u32>(random);
    check::<u128>(random);
    check::<Key<13, 2>>(random);
    check::<Key<48, 6>>(random);
    check::<Key<2048, 256>>(random);
}

#[test]
fn entries_keep_prefix_and_value() {
    fn check<A: Address>(random: &mut Random) {
        for value in [1, 2, u32::MAX >> 1] {
            for len in 0..=A::WIDTH {
                for addr in [A::ZERO, A::ZERO.filled(0), random.addr()] {
                    let prefix = Prefix::truncated(addr, len);
                    let entry = A::Entry::new(&prefix, value);
                    assert_eq!((entry.addr(), entry.len(), entry.value()), (prefix.addr(), len, value));
                    assert!(!entry.is_free() && A::Entry::free().is_free());
                    assert!(entry.order(&A::Entry::free()).is_lt());
                    assert!(A::Entry::free().compare(&A::Entry::key(&prefix)).is_gt());
                    let other = Prefix::truncated(random.addr(), random.len::<A>());
                    assert_eq!(entry.compare(&A::Entry::key(&other)), prefix.cmp(&other));
                    assert_eq!(entry.order(&A::Entry::new(&other, 7)), prefix.cmp(&other));
                }
            }
        }
    }
    let random = &mut Random(2);
    check::<u32>(random);
    check::<u128>(random);
    check::<Key<13, 2>>(random);
    check::<Key<2048, 256>>(random);
    assert_eq!((size_of::<<u32 as Stored>::Entry>(), size_of::<<u128 as Stored>::Entry>()), (8, 24));
}

#[test]
fn a_list_is_sorted_and_its_last_counts() {
    let mut random = Random(3);
    for count in [0usize, 1, 2, 1000, 1025, 30_000] {
        let list: Vec<_> = (0..count as u32)
            .map(|value| {
                (
                    Prefix::truncated(random.addr::<u32>() & 0xf0ff_ff00, 24 - random.below(3) as u16),
                    value + 1,
                )
            })
            .collect();
        let model: BTreeMap<_, _> = list.iter().copied().collect();
        assert!(list.iter().copied().collect::<PrefixStore<u32>>().iter().eq(model.clone()));
        assert!(model.clone().into_iter().collect::<PrefixStore<u32>>().iter().eq(model));
    }
}

/// Prefixes nested bit by bit make the deepest trie there is; none of its walks may run out of stack.
#[test]
fn a_chain_as_deep_as_the_key() {
    type Wide = Key<2048, 256>;
    let addr = Random(4).addr::<Wide>();
    let chain = || (0..=2048u16).map(|len| (Prefix::truncated(addr, len), u32::from(len) + 1));
    let built: PrefixStore<Wide, SMALL> = chain().collect();
    let mut grown = PrefixStore::<Wide, SMALL>::default();
    let mut shrinking = built.clone();
    for (prefix, value) in chain().rev() {
        assert_eq!(grown.set(prefix, Some(value)), None);
    }
    for prefix_store in [&built, &grown] {
        assert!(prefix_store.iter().eq(chain()) && prefix_store.iter().rev().eq(chain().rev()));
        assert!(prefix_store.matches(addr, 2048).eq(chain()));
        assert_eq!(prefix_store.longest(addr, 1999), chain().nth(1999));
        check_slot(&prefix_store.root, Wide::ZERO, 0);
    }
    for (prefix, value) in chain() {
        assert_eq!(shrinking.set(prefix, None), Some(value));
    }
    assert_eq!((shrinking.len(), shrinking.bytes()), (0, 0));
}

#[test]
fn churn_does_not_grow_it() {
    let mut random = Random(5);
    let mut prefix = || {
        let addr = random.addr::<u32>();
        Prefix::truncated(addr, 20 + random.below(13) as u16)
    };
    let mut live: Vec<Prefix<u32>> = (0..20_000).map(|_| prefix()).collect();
    let mut prefix_store: PrefixStore<u32> = live.iter().map(|prefix| (*prefix, 1)).collect();
    let mut most = 0;
    for round in 0..20 {
        for live in &mut live {
            prefix_store.set(*live, None);
            *live = prefix();
            prefix_store.set(*live, Some(2));
        }
        // Idle places of the buckets come in the first round; none may be added after.
        most = if round < 2 { most.max(prefix_store.bytes()) } else { most };
        assert!(
            prefix_store.bytes() <= most + most / 20,
            "round {round}: {} bytes, {most} before",
            prefix_store.bytes()
        );
    }
    assert!(most < 20 * 20_000, "{most} bytes");
}

#[test]
fn small_tables_are_small() {
    let ten: PrefixStore<u128> =
        (1..=10u32).map(|value| (Prefix::truncated(u128::from(value) << 96, 48), value)).collect();
    assert_eq!(ten.bytes(), 240);
    let mut random = Random(6);
    let mut grown = PrefixStore::<u32>::default();
    for value in 1..=10 {
        grown.set(Prefix::truncated(random.addr(), 24), Some(value));
    }
    assert!(size_of_val(&grown) + grown.bytes() <= 128, "{}", grown.bytes());
}
