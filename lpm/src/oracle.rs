//! The slow, obviously right twin that every engine and every program is compared with: a list, searched from end to end.

use crate::{Address, Prefix};
use alloc::vec::Vec;

/// A prefix table whose every operation is a linear search.
#[derive(Clone, Debug)]
pub struct Oracle<A: Address> {
    entries: Vec<(Prefix<A>, u32)>,
}

impl<A: Address> Oracle<A> {
    /// An empty table.
    #[allow(clippy::new_without_default, reason = "an oracle is always made by hand")]
    pub fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Adds or replaces; returns the value that was there. O(n).
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        match self.entries.iter_mut().find(|(p, _)| *p == prefix) {
            Some((_, old)) => Some(core::mem::replace(old, value)),
            None => {
                self.entries.push((prefix, value));
                None
            }
        }
    }

    /// Removes; returns the value that was there. O(n).
    pub fn remove(&mut self, prefix: &Prefix<A>) -> Option<u32> {
        let at = self.entries.iter().position(|(p, _)| p == prefix)?;
        Some(self.entries.swap_remove(at).1)
    }

    /// The value of exactly this prefix. O(n).
    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        self.entries.iter().find(|(p, _)| p == prefix).map(|(_, value)| *value)
    }

    /// The longest prefix that contains `addr`, and its value. O(n).
    pub fn lookup(&self, addr: A) -> Option<(Prefix<A>, u32)> {
        self.entries.iter().filter(|(p, _)| p.contains(addr)).max_by_key(|(p, _)| p.len()).copied()
    }

    /// All prefixes that contain `addr`, shortest first. O(n log n).
    pub fn matches(&self, addr: A) -> Vec<(Prefix<A>, u32)> {
        self.filtered(|prefix| prefix.contains(addr))
    }

    /// The prefixes that cover `inner`, itself included, shortest first. O(n log n).
    pub fn covering(&self, inner: &Prefix<A>) -> Vec<(Prefix<A>, u32)> {
        self.filtered(|prefix| prefix.covers(inner))
    }

    /// The prefixes that `outer` covers, itself included, in order. O(n log n).
    pub fn covered(&self, outer: &Prefix<A>) -> Vec<(Prefix<A>, u32)> {
        self.filtered(|prefix| outer.covers(prefix))
    }

    /// The prefixes at `from` and after it, going up. O(n log n).
    pub fn up_from(&self, from: &Prefix<A>) -> Vec<(Prefix<A>, u32)> {
        self.filtered(|prefix| prefix >= from)
    }

    /// The prefixes at `from` and before it, going down. O(n log n).
    pub fn down_from(&self, from: &Prefix<A>) -> Vec<(Prefix<A>, u32)> {
        let mut found = self.filtered(|prefix| prefix <= from);
        found.reverse();
        found
    }

    fn filtered(&self, keep: impl Fn(&Prefix<A>) -> bool) -> Vec<(Prefix<A>, u32)> {
        let mut found = self.sorted();
        found.retain(|(prefix, _)| keep(prefix));
        found
    }

    /// All prefixes in order. O(n log n).
    pub fn sorted(&self) -> Vec<(Prefix<A>, u32)> {
        let mut all = self.entries.clone();
        all.sort_unstable();
        all
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
