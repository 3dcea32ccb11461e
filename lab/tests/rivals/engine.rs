//! The operations that the suites need of a structure: changed prefix by prefix, searched by address.

use trieline_lab::rivals::{
    Binary, Fib, LcTrie, Patricia, Poptrie, Relaxed, Trie, poptrie::DIRECT_BITS, relaxed::Threshold,
};
use trieline_lpm::{Address, Prefix};

/// A table that takes the same changes as the reference and must give the same answers.
pub trait Engine<A: Address> {
    fn name(&self) -> &'static str;
    /// Adds, changes or (None) removes a prefix; returns what was there.
    fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) -> Option<u32>;
    fn get(&self, prefix: &Prefix<A>) -> Option<u32>;
    fn lookup(&self, addr: A) -> Option<u32>;
    /// Panics unless its invariant holds and it has so many prefixes.
    fn verify(&self, prefixes: usize);
}

impl<A: Address> Engine<A> for Poptrie<A> {
    fn name(&self) -> &'static str {
        "poptrie"
    }

    fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) -> Option<u32> {
        match value {
            Some(value) => self.insert(prefix, value).unwrap(),
            None => self.remove(&prefix),
        }
    }

    fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        Poptrie::get(self, prefix)
    }

    fn lookup(&self, addr: A) -> Option<u32> {
        let single = Poptrie::lookup(self, addr);
        let mut batch = [0];
        self.lookup_batch(&[addr], &mut batch);
        assert_eq!(single.unwrap_or(0), batch[0], "the batch says something else");
        single
    }

    fn verify(&self, prefixes: usize) {
        assert_eq!(self.len(), prefixes);
    }
}

impl<A: Address> Engine<A> for Box<dyn Trie<A>> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) -> Option<u32> {
        match value {
            Some(value) => self.insert(prefix, value),
            None => self.remove(&prefix),
        }
    }

    fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        (**self).get(prefix)
    }

    fn lookup(&self, addr: A) -> Option<u32> {
        let (prefix, value) = (**self).lookup(addr)?;
        assert!(prefix.contains(addr), "{} says {prefix} of {addr:?}", (**self).name());
        assert_eq!((**self).get(&prefix), Some(value), "{}: {prefix}", (**self).name());
        Some(value)
    }

    fn verify(&self, prefixes: usize) {
        (**self).verify().unwrap();
        assert_eq!(self.len(), prefixes, "{}", (**self).name());
    }
}

/// Every classic trie, empty.
pub fn tries<A: Address>() -> Vec<Box<dyn Trie<A>>> {
    vec![
        Box::new(Binary::default()),
        Box::new(Patricia::default()),
        Box::new(LcTrie::default()),
        Box::new(Relaxed::new(Threshold::default())),
        Box::new(Fib::default()),
    ]
}

/// Every trie and Poptrie, with these prefixes.
pub fn engines<A: Address>(prefixes: &[(Prefix<A>, u32)]) -> Vec<Box<dyn Engine<A>>> {
    // Few direct bits, so that short prefixes fall into nodes too; and those of the paper.
    let poptrie = |bits| Poptrie::with_direct_bits(bits, prefixes.iter().copied()).unwrap();
    let mut engines: Vec<Box<dyn Engine<A>>> = match prefixes.len() {
        0 => vec![Box::new(poptrie(5))],
        _ => vec![Box::new(poptrie(5)), Box::new(poptrie(DIRECT_BITS))],
    };
    for mut trie in tries().into_iter().chain([sparse()]) {
        for (prefix, value) in prefixes {
            trie.insert(*prefix, *value);
        }
        engines.push(Box::new(trie));
    }
    engines
}

/// A relaxed trie with many gaps, whose limit is felt.
pub fn sparse<A: Address>() -> Box<dyn Trie<A>> {
    Box::new(Relaxed::new(Threshold { root: 0, inner: 20, within: 5 }))
}
