//! A set that keeps only so much of its members that a lookup always finds them: now and then it finds another, too.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

/// 2 MiB: of a million entries one other in a thousand is found.
const BITS: u64 = 1 << 24;
const HASHES: u64 = 5;

/// A Bloom filter; it takes memory once something is in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sieve(Vec<u64>);

impl Sieve {
    fn places(what: impl Hash) -> impl Iterator<Item = (usize, u64)> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(what);
        let step = hash >> 32 | 1;
        (0..HASHES).map(move |number| {
            let bit = hash.wrapping_add(number.wrapping_mul(step)) % BITS;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    pub(super) fn insert(&mut self, what: impl Hash) {
        self.0.resize((BITS / 64) as usize, 0);
        for (word, bit) in Sieve::places(what) {
            self.0[word] |= bit;
        }
    }

    /// `false` is sure.
    pub(super) fn may_have(&self, what: impl Hash) -> bool {
        !self.0.is_empty() && Sieve::places(what).all(|(word, bit)| self.0[word] & bit != 0)
    }
}

/// The members of the last while, and for up to as long again.
#[derive(Debug, Default)]
pub(super) struct Lately {
    /// This while and the one before.
    sieves: [Sieve; 2],
    began_ns: u64,
}

impl Lately {
    pub(super) fn insert(&mut self, what: impl Hash, now_ns: u64, while_ns: u64) {
        if now_ns.saturating_sub(self.began_ns) >= while_ns {
            self.sieves.swap(0, 1);
            self.sieves[0] = Sieve::default();
            self.began_ns = now_ns;
        }
        self.sieves[0].insert(what);
    }

    pub(super) fn may_have(&self, what: impl Hash) -> bool {
        self.sieves.iter().any(|sieve| sieve.may_have(&what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sieve_finds_all_members_and_few_others() {
        let mut sieve = Sieve::default();
        assert!(!sieve.may_have(1));
        (0..100_000u64).for_each(|number| sieve.insert((7, number)));
        assert!((0..100_000u64).all(|number| sieve.may_have((7, number))));
        assert!((0..100_000u64).filter(|number| sieve.may_have((8, *number))).count() < 100);
        let mut lately = Lately::default();
        lately.insert(1, 0, 10);
        lately.insert(2, 9, 10);
        lately.insert(3, 15, 10);
        assert!([1, 2, 3].iter().all(|one| lately.may_have(one)));
        lately.insert(4, 25, 10);
        assert!(!lately.may_have(1) && lately.may_have(3) && lately.may_have(4));
    }
}
