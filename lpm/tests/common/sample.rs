//! Random keys, prefixes and tables of any width, quick enough for ten million lookups, and the exact answers to them.

use trieline_lpm::{Address, Key, Prefix};

/// A small generator, so that a failure can be repeated from its seed. The records of `benches/instructions.txt` are of its numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A key that can be made of random bits.
pub trait Sample: Address {
    fn random(random: &mut Random) -> Self;
    /// The first `len` bits of `self`, then those of `rest`.
    fn join(self, len: u16, rest: Self) -> Self;
}

macro_rules! sample {
    ($int:ty) => {
        impl Sample for $int {
            fn random(random: &mut Random) -> Self {
                (u128::from(random.next()) << 80
                    ^ u128::from(random.next()) << 40
                    ^ u128::from(random.next())) as $int
            }
            fn join(self, len: u16, rest: Self) -> Self {
                self.masked(len) | rest & Self::ZERO.filled(len)
            }
        }
    };
}
sample!(u32);
sample!(u128);

impl<const BITS: u16, const BYTES: usize> Sample for Key<BITS, BYTES> {
    fn random(random: &mut Random) -> Self {
        let mut bytes = [0; BYTES];
        for bytes in bytes.chunks_mut(7) {
            bytes.copy_from_slice(&random.next().to_le_bytes()[..bytes.len()]);
        }
        Self::new(bytes)
    }
    fn join(self, len: u16, rest: Self) -> Self {
        let (whole, mut bytes) = (usize::from(len / 8), *rest.bytes());
        bytes[..whole].copy_from_slice(&self.bytes()[..whole]);
        if let Some(byte) = bytes.get_mut(whole) {
            let low = 0xff >> (len % 8);
            *byte = self.bytes()[whole] & !low | *byte & low;
        }
        Self::new(bytes)
    }
}

/// The prefixes of a table in order, each with the one that covers it next: nothing in common with the structures under test.
pub struct Exact<A: Address> {
    entries: Vec<(Prefix<A>, u32)>,
    /// Index of the longest shorter prefix that covers the one at the same place.
    parents: Vec<Option<usize>>,
}

impl<A: Address> Exact<A> {
    /// Of distinct prefixes in order.
    pub fn new(entries: Vec<(Prefix<A>, u32)>) -> Self {
        assert!(entries.is_sorted_by(|one, two| one.0 < two.0));
        let mut parents = Vec::with_capacity(entries.len());
        let mut open: Vec<usize> = Vec::new();
        for (at, (prefix, _)) in entries.iter().enumerate() {
            while open.last().is_some_and(|outer| !entries[*outer].0.covers(prefix)) {
                open.pop();
            }
            parents.push(open.last().copied());
            open.push(at);
        }
        Self { entries, parents }
    }

    pub fn entries(&self) -> &[(Prefix<A>, u32)] {
        &self.entries
    }

    /// The value of the longest prefix that contains `addr`; 0 = none. The last prefix that begins at or before `addr`, or the
    /// nearest that covers it and contains `addr`. Any longer one would begin between the two.
    pub fn lookup(&self, addr: A) -> u32 {
        let mut at = self.entries.partition_point(|(prefix, _)| prefix.addr() <= addr).checked_sub(1);
        while let Some(index) = at {
            let (prefix, value) = self.entries[index];
            if prefix.contains(addr) {
                return value;
            }
            at = self.parents[index];
        }
        0
    }
}
