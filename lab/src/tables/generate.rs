//! Makes tables of the Internet's shape: prefix lengths, nesting and clustering as in a full routing table. They have any size, and are the
//! same for the same seed.
//!
//! Prefixes are placed from short to long. Neighbouring prefixes come in aligned groups: an operator splits a block and announces the
//! parts. A group may lie inside a prefix that exists already, preferably one that has parts already (a few prefixes have thousands). Else
//! it lies in unannounced space, in a block drawn by weights that spread over some orders of magnitude.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

use trieline_lpm::{Address, Prefix};

use super::Random;
use super::shape::Shape;

/// An address of either family as the top bits of a `u128`.
pub trait Wide: Address {
    /// Left-aligned.
    fn widen(self) -> u128;
    /// Back.
    fn narrow(wide: u128) -> Self;
    /// Itself, all its bits mixed with those of `by`: an address that cannot be known before `by`.
    fn stirred(self, by: u32) -> Self;
    /// The Internet's shape for this family.
    fn shape() -> &'static Shape;
}

impl Wide for u32 {
    fn widen(self) -> u128 {
        u128::from(self) << 96
    }
    fn narrow(wide: u128) -> Self {
        (wide >> 96) as u32
    }
    #[inline]
    fn stirred(self, by: u32) -> u32 {
        self ^ by
    }
    fn shape() -> &'static Shape {
        &super::shape::INTERNET4
    }
}

impl Wide for u128 {
    fn widen(self) -> u128 {
        self
    }
    fn narrow(wide: u128) -> Self {
        wide
    }
    // All four words, so that no part of a long key can be looked at early.
    #[inline]
    fn stirred(self, by: u32) -> u128 {
        let twice = u64::from(by) << 32 | u64::from(by);
        self ^ (u128::from(twice) << 64 | u128::from(twice))
    }
    fn shape() -> &'static Shape {
        &super::shape::INTERNET6
    }
}

/// Multiplies and folds: keys here are distinct and not chosen by an attacker.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_u128(&mut self, n: u128) {
        self.write_u64((n >> 64) as u64);
        self.write_u64(n as u64);
    }
}

type Key = (u128, u16);

/// One bit answers for all shorter prefixes: most tries meet space that is taken.
const BLOCK: u16 = 24;

/// A prefix and how many others it lies in.
#[derive(Clone, Copy)]
struct Placed {
    addr: u128,
    len: u16,
    depth: u16,
}

struct Builder<'s> {
    shape: &'s Shape,
    random: Random,
    there: HashSet<Key, BuildHasherDefault<Fold>>,
    prefixes: Vec<Placed>,
    /// How many of `prefixes` are shorter than those being placed.
    shorter: usize,
    /// Prefixes that have parts, once for each group inside: the more, the likelier the next.
    parents: Vec<Placed>,
    /// Where groups outside any prefix start.
    outsiders: Vec<u128>,
    /// Blocks of [`BLOCK`] bits inside prefixes of at most so many bits, one bit each.
    covered: Vec<u64>,
    /// Longer lengths in use so far, ascending.
    lengths: Vec<u16>,
    /// Of the length being placed: behind this place none is free before that one. Where a block is full, groups meet the same
    /// taken places again and again.
    onward: HashMap<u128, u128, BuildHasherDefault<Fold>>,
    /// Blocks whose owners announce parts of them.
    split: Vec<(u128, u16)>,
    /// Running sum of their weights.
    weights: Vec<f64>,
    /// Blocks announced in large pieces.
    whole: Vec<(u128, u16)>,
}

/// `count` distinct prefixes of the Internet's shape, in order.
pub fn internet<A: Wide>(count: usize, seed: u64) -> Vec<Prefix<A>> {
    let shape = A::shape();
    let mut builder = Builder::new(shape, count, seed ^ u64::from(A::FAMILY) << 56);
    for (len, number) in shape.counts(count) {
        builder.place(len, number);
    }
    let mut keys: Vec<Key> = builder.prefixes.iter().map(|placed| (placed.addr, placed.len)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(addr, len)| Prefix::truncated(A::narrow(addr), len)).collect()
}

/// The kernel selftest's dense hosts: 0 … `count` − 1, each stored little-endian as the /32's address.
pub fn hosts(count: u32) -> Vec<Prefix<u32>> {
    let mut hosts: Vec<_> = (0..count).map(|i| Prefix::host(i.swap_bytes())).collect();
    hosts.sort_unstable_by_key(|prefix| prefix.addr());
    hosts
}

/// Number of the block of [`BLOCK`] bits that holds an address.
fn block(addr: u128) -> usize {
    (addr >> (128 - BLOCK)) as usize
}

fn mask(len: u16) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - len) }
}

impl<'s> Builder<'s> {
    fn new(shape: &'s Shape, count: usize, seed: u64) -> Builder<'s> {
        let mut random = Random::new(seed);
        let (mut split, mut weights, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        let mut sum = 0.0;
        let bits = shape.block + shape.sub_bits;
        for &(base, len, factor) in shape.regions {
            for i in 0..1u128 << (shape.block - len) {
                let outer = factor * (shape.block_spread * random.normal()).exp();
                // Neighbours go together: sixteen parts are all of one kind.
                for run in 0..(1u128 << shape.sub_bits).div_ceil(16) {
                    let is_whole = random.unit() < shape.whole;
                    for j in run * 16..(run * 16 + 16).min(1 << shape.sub_bits) {
                        let part = (base + (i << (128 - shape.block)) + (j << (128 - bits)), bits);
                        if is_whole {
                            whole.push(part);
                        } else if random.unit() >= shape.empty {
                            sum += outer * (shape.spread * random.normal()).exp();
                            split.push(part);
                            weights.push(sum);
                        }
                    }
                }
            }
        }
        Builder {
            shape,
            random,
            there: HashSet::with_capacity_and_hasher(count, BuildHasherDefault::default()),
            prefixes: Vec::with_capacity(count),
            shorter: 0,
            parents: Vec::new(),
            covered: vec![0; 1 << (BLOCK - 6)],
            lengths: Vec::new(),
            onward: HashMap::default(),
            outsiders: Vec::new(),
            split,
            weights,
            whole,
        }
    }

    /// Places `number` prefixes of one length.
    fn place(&mut self, len: u16, number: usize) {
        if number == 0 {
            return;
        }
        self.shorter = self.prefixes.len();
        self.onward.clear();
        let until = self.shorter + number;
        let nested = self.shape.nested(len);
        while self.prefixes.len() < until {
            let group = self.group().min(len - 1);
            let inside = self.shorter > 0 && self.random.unit() < nested;
            let (start, depth) = if inside { self.inside(len, group) } else { (self.outside(len, group), 0) };
            let mut left = 1u128 << group;
            let mut addr = start;
            let step = 1u128 << (128 - len);
            let before = self.prefixes.len();
            while left > 0 && self.prefixes.len() < until {
                if self.there.insert((addr, len)) {
                    self.prefixes.push(Placed { addr, len, depth });
                }
                addr = addr.wrapping_add(step);
                left -= 1;
            }
            if self.prefixes.len() == before {
                self.next_free(start, len);
            }
        }
        if len > BLOCK {
            self.lengths.push(len);
            return;
        }
        for placed in &self.prefixes[self.shorter..] {
            let first = block(placed.addr);
            for block in first..first + (1 << (BLOCK - len)) {
                self.covered[block / 64] |= 1 << (block % 64);
            }
        }
    }

    /// Whether a shorter prefix, of a length that is placed already, contains `addr`.
    fn is_covered(&self, addr: u128) -> bool {
        let block = block(addr);
        self.covered[block / 64] >> (block % 64) & 1 == 1
            || self.lengths.iter().any(|len| self.there.contains(&(addr & mask(*len), *len)))
    }

    /// Log2 of a group's size.
    fn group(&mut self) -> u16 {
        let mut at = self.random.unit() * self.shape.groups.iter().sum::<f64>();
        for (bits, share) in self.shape.groups.iter().enumerate() {
            at -= share;
            if at < 0.0 {
                return bits as u16;
            }
        }
        0
    }

    /// A group's start inside a shorter prefix, and its depth. Prefixes that lie in none are preferred.
    fn inside(&mut self, len: u16, group: u16) -> (u128, u16) {
        let popular = !self.parents.is_empty() && self.random.unit() < self.shape.popular;
        let mut parent;
        loop {
            parent = if popular {
                self.parents[self.random.below(self.parents.len())]
            } else {
                self.prefixes[self.random.below(self.shorter)]
            };
            if self.random.unit() < 0.3f64.powi(i32::from(parent.depth)) {
                break;
            }
        }
        if !popular || self.parents.len() < 1 << 22 {
            self.parents.push(parent);
        }
        let aligned = (len - group).max(parent.len);
        (parent.addr | (self.random.wide() & !mask(parent.len) & mask(aligned)), parent.depth + 1)
    }

    /// A group's start where no shorter prefix covers it, if such a place is found.
    fn outside(&mut self, len: u16, group: u16) -> u128 {
        let aligned = len - group;
        let (near, share) = self.shape.near;
        let mut start = 0;
        for _ in 0..64 {
            let beside = aligned > near && !self.outsiders.is_empty() && self.random.unit() < share;
            let (base, bits) = if beside {
                (self.outsiders[self.random.below(self.outsiders.len())] & mask(near), near)
            } else if len <= self.shape.block + self.shape.sub_bits && !self.whole.is_empty() {
                self.whole[self.random.below(self.whole.len())]
            } else {
                let total = self.weights.last().copied().unwrap_or(0.0);
                let at = self.random.unit() * total;
                self.split[self.weights.partition_point(|sum| *sum <= at).min(self.split.len() - 1)]
            };
            start = (base | (self.random.wide() & !mask(bits))) & mask(aligned);
            // The cheapest question first: in a full block most places are taken.
            if !self.is_covered(start) && self.routable(start, aligned) && !self.there.contains(&(start, len))
            {
                if aligned > near {
                    self.outsiders.push(start);
                }
                return start;
            }
        }
        if self.routable(start, aligned) {
            return start;
        }
        // As in next_free: any place will do.
        let (base, bits) = self.split[self.random.below(self.split.len())];
        (base | (self.random.wide() & !mask(bits))) & mask(len)
    }

    /// Not in space that is reserved, nor so short that it would cover some.
    fn routable(&self, start: u128, len: u16) -> bool {
        self.shape.reserved.iter().all(|&(addr, bits)| {
            let shorter = bits.min(len);
            start & mask(shorter) != addr & mask(shorter)
        })
    }

    /// The place is taken: the next free one behind it, so that every call adds a prefix.
    fn next_free(&mut self, start: u128, len: u16) {
        let step = 1u128 << (128 - len);
        let mut addr = start;
        let mut passed = Vec::new();
        loop {
            passed.push(addr);
            addr = self.onward.get(&addr).copied().unwrap_or(addr.wrapping_add(step));
            if !self.shape.regions.iter().any(|&(base, bits, _)| addr & mask(bits) == base) {
                let (base, ..) = self.shape.regions[self.random.below(self.shape.regions.len())];
                addr = base & mask(len);
                // Another time chance may choose another region.
                passed.clear();
            }
            if self.routable(addr, len) && self.there.insert((addr, len)) {
                self.prefixes.push(Placed { addr, len, depth: 0 });
                self.onward.extend(passed.into_iter().map(|place| (place, addr)));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of prefixes inside a shorter one, and the number of blocks of `bits` that hold a prefix at least as long.
    fn shape_of<A: Wide>(prefixes: &[Prefix<A>], bits: u16) -> (f64, usize) {
        let there: HashSet<Key> = prefixes.iter().map(|p| (p.addr().widen(), p.len())).collect();
        let nested = prefixes
            .iter()
            .filter(|p| {
                A::shape()
                    .histogram
                    .iter()
                    .any(|&(len, _)| len < p.len() && there.contains(&(p.addr().widen() & mask(len), len)))
            })
            .count();
        let blocks: HashSet<u128> =
            prefixes.iter().filter(|p| p.len() >= bits).map(|p| p.addr().widen() & mask(bits)).collect();
        (nested as f64 / prefixes.len() as f64, blocks.len())
    }

    fn histogram<A: Wide>(prefixes: &[Prefix<A>]) -> HashMap<u16, u32> {
        let mut histogram = HashMap::new();
        for prefix in prefixes {
            *histogram.entry(prefix.len()).or_default() += 1;
        }
        histogram
    }

    #[test]
    fn a_full_ipv4_table_has_the_shape_of_the_measured_one() {
        let prefixes = internet::<u32>(901_899, 1);
        assert_eq!(prefixes.len(), 901_899);
        assert!(prefixes.windows(2).all(|pair| pair[0] < pair[1]), "in order and distinct");
        assert_eq!(histogram(&prefixes), u32::shape().histogram.iter().copied().collect());
        let (nested, blocks) = shape_of(&prefixes, 16);
        assert!((nested - 0.507).abs() < 0.03, "measured 50.7 % nested, generated {nested}");
        assert!((30_000..36_500).contains(&blocks), "measured 33,013 /16 in use, generated {blocks}");
        let (_, blocks) = shape_of(&prefixes, 18);
        let mean = prefixes.iter().filter(|p| p.len() >= 18).count() as f64 / blocks as f64;
        assert!((mean - 11.86).abs() < 1.8, "measured 11.9 prefixes in a /18 in use, generated {mean}");
    }

    #[test]
    fn a_full_ipv6_table_has_the_shape_of_the_measured_one() {
        let prefixes = internet::<u128>(160_147, 1);
        assert_eq!(histogram(&prefixes), u128::shape().histogram.iter().copied().collect());
        let (nested, blocks) = shape_of(&prefixes, 32);
        assert!((nested - 0.569).abs() < 0.04, "measured 56.9 % nested, generated {nested}");
        assert!((26_000..36_000).contains(&blocks), "measured 29,369 /32 in use, generated {blocks}");
    }

    #[test]
    fn any_size_and_every_seed_a_table_of_its_own() {
        for count in [0, 1, 2, 10, 1000, 50_000] {
            let one = internet::<u32>(count, 7);
            assert_eq!(one.len(), count);
            assert_eq!(one, internet::<u32>(count, 7));
            assert_eq!(internet::<u128>(count, 7).len(), count);
            if count > 100 {
                assert_ne!(one, internet::<u32>(count, 8));
            }
        }
        assert_eq!(internet::<u32>(1_100_000, 1).len(), 1_100_000);
    }

    #[test]
    fn reserved_space_stays_free() {
        for prefix in internet::<u32>(200_000, 5) {
            let wide = prefix.addr().widen();
            let clash = u32::shape().reserved.iter().find(|(addr, len)| {
                let shorter = prefix.len().min(*len);
                wide & mask(shorter) == addr & mask(shorter)
            });
            assert!(clash.is_none(), "{prefix}");
        }
    }

    #[test]
    fn hosts_are_those_of_the_kernel_selftest() {
        let hosts = hosts(300);
        assert_eq!(hosts.len(), 300);
        // 0x01020304 is stored as 04.03.02.01: 257 lies at 1.1.0.0.
        assert!(hosts.contains(&Prefix::host(0x0101_0000)));
        assert!(hosts.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
