//! The one mechanism behind Patricia, the LPC-tries and `fib_trie`. It has nodes of 2^n ways that skip the key bits on which nothing
//! branches, and leaves that hold prefixes.
//!
//! The structures differ only in their [`Rule`]: when a node takes a bit more or less. Each has its page ([`patricia`](super::patricia),
//! [`lctrie`](super::lctrie), [`relaxed`](super::relaxed), [`fib`](super::fib)).
//!
//! **Prefixes of several lengths.** The talk draws these tries for keys of one length, as their papers do. Routes are kept as Linux does: a
//! leaf stands for an *address*, a prefix's first, and holds all prefixes that begin there, longest first. 10.0.0.0/8 and 10.0.0.0/16 are one
//! leaf. No prefix stands in a node. A lookup goes down as if for a whole key. If the leaf does not match, it goes *back*. It goes up to the last
//! node below which shorter prefixes may match. There it goes to the slot with the lowest set bit of the index cleared. A prefix that ends
//! before that bit has its zeros there. Each node knows the `shortest` prefix below it (Linux: `slen`), so that most nodes need not be come
//! back to.
//!
//! **Layout.** Four vectors, named by 32-bit indices, no node allocated on its own; IPv4 / IPv6 bytes:
//!
//! - a node, 16 / 28 (as Rust aligns, 32): key so far, first slot, parent, first key bit and number of bits, shortest prefix;
//! - 8 bytes a node for changes alone: its empty slots and its full children;
//! - a slot, 4: 0 for none, a node, or with the top bit set a leaf's first prefix;
//! - a prefix, 16 / 32: key, value, next shorter one of the leaf, length. A leaf is nothing but its prefixes.
//!
//! Sources: S. Nilsson, G. Karlsson, "IP-Address Lookup Using LC-Tries", IEEE JSAC 1999; S. Nilsson, M. Tikkanen, "An Experimental Study
//! of Compression Methods for Dynamic Tries", Algorithmica 2002; Linux, `net/ipv4/fib_trie.c`.

mod arena;
mod check;
mod open;
mod resize;
mod walk;

pub use arena::Sizes;

use super::{Figures, Trie, Violation, Visit};
use arena::{Arena, EMPTY, HEAD, is_leaf, is_node};
use trieline_lpm::graph::{Graph, PathStep};
use trieline_lpm::{Address, Prefix};

/// Decides when a node of a [`LevelTrie`] doubles and when it is cut in half.
pub trait Rule: Clone {
    /// The structure's name in results.
    const NAME: &'static str;
    /// Whether nodes are revisited until the rule asks for nothing more. Otherwise it is Linux's way. A visit takes at most ten steps of
    /// one kind, and a root that has become somebody's child waits for its next visit.
    const SETTLES: bool = true;
    /// Whether the node takes one bit more; not asked at the key's end, nor when it would have a single child then.
    fn doubles(&self, node: &Fill) -> bool;
    /// Whether the node takes one bit less; asked when it does not double and has more than two slots.
    fn halves(&self, node: &Fill) -> bool;
    /// The sizes that nodes are counted with; `own` are their bytes here.
    fn sizes(&self, own: Sizes) -> Sizes {
        own
    }
}

/// A node's fill, by which a [`Rule`] decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Its slots.
    pub slots: usize,
    /// Slots that lead somewhere.
    pub used: usize,
    /// Slots that lead to a node without skipping a bit. Doubled, such a child fills two slots, any other one.
    pub full: usize,
    /// The first key bit behind its own.
    pub end: u16,
    /// Whether it is the root.
    pub is_root: bool,
}

/// A trie of 2^n-way nodes by a [`Rule`]; used by the names [`Patricia`](super::Patricia), [`LcTrie`](super::LcTrie),
/// [`Relaxed`](super::Relaxed) and [`Fib`](super::Fib).
#[derive(Clone, Debug)]
pub struct LevelTrie<A: Address, R> {
    rule: R,
    arena: Arena<A>,
}

impl<A: Address, R: Rule + Default> Default for LevelTrie<A, R> {
    fn default() -> Self {
        Self::new(R::default())
    }
}

impl<A: Address, R: Rule> LevelTrie<A, R> {
    /// An empty trie.
    pub fn new(rule: R) -> Self {
        Self { rule, arena: Arena::new() }
    }

    /// Adds `prefix` to a leaf that has its key; the value that was there.
    fn join(&mut self, (up, index): (u32, usize), leaf: u32, prefix: &Prefix<A>, value: u32) -> Option<u32> {
        let (mut before, mut next) = (EMPTY, leaf);
        while next != EMPTY && self.arena.entry(next).len > prefix.len() {
            (before, next) = (next, self.arena.entry(next).next);
        }
        if next != EMPTY && self.arena.entry(next).len == prefix.len() {
            return Some(std::mem::replace(&mut self.arena.entry_mut(next).value, value));
        }
        let entry = self.arena.add_entry(prefix, value, next);
        match before {
            EMPTY => self.arena.put(up, index, entry),
            before => self.arena.entry_mut(before).next = entry,
        }
        if next == EMPTY {
            self.arena.push_shortest(up, prefix.len());
        }
        None
    }

    /// Adds a leaf where none has its key; `found` is what stands in that slot instead.
    fn grow(&mut self, (mut up, mut index): (u32, usize), found: u32, prefix: &Prefix<A>, value: u32) {
        let key = prefix.addr();
        let leaf = self.arena.add_entry(prefix, value, EMPTY);
        if found != EMPTY {
            let at = key.common_bits(self.arena.key(found));
            let node = self.arena.add_node(key, at, 1);
            let bit = key.bits_at(at, 1);
            self.arena.adopt(node, 1 - bit, found);
            self.arena.adopt(up, index, node);
            if R::SETTLES && up == HEAD && is_node(found) {
                self.resize(found);
            }
            (up, index) = (node, bit);
        }
        self.arena.push_shortest(up, prefix.len());
        self.arena.put(up, index, leaf);
        self.rebalance(up);
    }

    /// Visits a changed node and all above it.
    fn rebalance(&mut self, mut at: u32) {
        while at != HEAD {
            at = self.resize(at);
        }
    }
}

impl<A: Address, R: Rule> Trie<A> for LevelTrie<A, R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    /// O(depth) and what the rule then changes, amortised a few slots.
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        let (place, found) = self.arena.find(prefix.addr());
        if is_leaf(found) && self.arena.key(found) == prefix.addr() {
            return self.join(place, found, &prefix, value);
        }
        self.grow(place, found, &prefix, value);
        None
    }

    /// O(depth) and what the rule then changes, amortised a few slots.
    fn remove(&mut self, prefix: &Prefix<A>) -> Option<u32> {
        let ((up, index), leaf) = self.arena.find(prefix.addr());
        if !is_leaf(leaf) || self.arena.key(leaf) != prefix.addr() {
            return None;
        }
        let (mut before, mut at) = (EMPTY, leaf);
        while self.arena.entry(at).len != prefix.len() {
            (before, at) = (at, self.arena.entry(at).next);
            if at == EMPTY {
                return None;
            }
        }
        let entry = self.arena.take_entry(at);
        match before {
            EMPTY => self.arena.put(up, index, entry.next),
            before => self.arena.entry_mut(before).next = entry.next,
        }
        if entry.next == EMPTY {
            self.arena.pull_shortest(up, entry.len);
        }
        if entry.next == EMPTY && before == EMPTY {
            self.rebalance(up);
        }
        Some(entry.value)
    }

    /// O(depth), and the prefixes that begin at the same address.
    fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        let (_, leaf) = self.arena.find(prefix.addr());
        if !is_leaf(leaf) || self.arena.key(leaf) != prefix.addr() {
            return None;
        }
        self.arena.leaf(leaf).find(|entry| entry.len == prefix.len()).map(|entry| entry.value)
    }

    /// O(depth) down, and as much for each node that it goes back to.
    #[inline]
    fn lookup(&self, addr: A) -> Option<(Prefix<A>, u32)> {
        let entry = self.walk(addr, |_| ())?;
        Some((Prefix::truncated(addr, entry.len), entry.value))
    }

    fn len(&self) -> usize {
        self.arena.entries()
    }

    fn figures(&self) -> Figures {
        self.count()
    }

    fn verify(&self) -> Result<(), Violation> {
        self.check()
    }

    fn trace(&self, addr: A, visit: &mut dyn FnMut(Visit)) {
        self.walk(addr, |seen| visit(Visit { loads: self.arena.loads(seen.at, seen.slot), back: seen.back }));
    }

    fn graph(&self) -> Graph {
        self.open()
    }

    fn path(&self, addr: A) -> Vec<PathStep> {
        let all = self.arena.by_depth();
        let mut steps = Vec::new();
        self.walk(addr, |seen| {
            if let Some(node) = all.iter().position(|placed| placed.at == seen.at) {
                steps.push(PathStep { node, edge: seen.slot, back: seen.back });
            }
        });
        steps
    }
}
