//! What the property suite asks of a structure beside the product's own: changed prefix by prefix, searched by address.

use trieline_lpm::classic::Poptrie;
use trieline_lpm::{Address, Prefix};

/// A table that takes the same changes as the product's and must give the same answers.
pub trait Engine<A: Address> {
    fn name(&self) -> &'static str;
    /// Adds, changes or (None) removes a prefix; returns what was there.
    fn set(&mut self, prefix: Prefix<A>, value: Option<u32>) -> Option<u32>;
    fn get(&self, prefix: &Prefix<A>) -> Option<u32>;
    fn lookup(&self, addr: A) -> Option<u32>;
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
}
