//! Lookups: down by the key's bits, and back to shorter prefixes.

use super::arena::{EMPTY, Entry, HEAD, is_leaf};
use super::{LevelTrie, Rule};
use trieline_lpm::Address;

/// The bytes that a lookup reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// A node, or a leaf's prefix.
    pub at: u32,
    /// The slot that is read of a node; None if its key shows that it is the wrong one.
    pub slot: Option<usize>,
    pub back: bool,
}

impl<A: Address, R: Rule> LevelTrie<A, R> {
    /// The longest prefix that contains `addr`; `see` receives all that is read on the way. The head is not: its slot is
    /// part of the trie's own record.
    #[inline]
    pub(super) fn walk(&self, addr: A, mut see: impl FnMut(Seen)) -> Option<&Entry<A>> {
        let arena = &self.arena;
        // The last node on the way below which a prefix ends among the node's own bits, or above, and the slot the way took.
        let (mut turn, mut taken) = (HEAD, 0);
        let mut at = arena.slot(arena.node(HEAD), 0);
        while at != EMPTY {
            if is_leaf(at) {
                if let Some(entry) = self.matching(addr, at, false, &mut see) {
                    return Some(entry);
                }
                break;
            }
            let node = arena.node(at);
            let common = addr.common_bits(node.key);
            if common < node.at() {
                if node.shortest <= common {
                    return self.zeros(addr, at, false, &mut see);
                }
                see(Seen { at, slot: None, back: false });
                break;
            }
            let index = addr.bits_at(node.at(), node.bits());
            see(Seen { at, slot: Some(index), back: false });
            if node.shortest < node.end() {
                (turn, taken) = (at, index);
            }
            at = arena.slot(node, index);
        }
        self.back(addr, turn, taken, see)
    }

    /// The way back from slot `index` of node `turn`, upwards.
    fn back(&self, addr: A, mut turn: u32, mut index: usize, mut see: impl FnMut(Seen)) -> Option<&Entry<A>> {
        let arena = &self.arena;
        loop {
            while index == 0 {
                if turn == HEAD {
                    return None;
                }
                (turn, index) = arena.place(turn);
            }
            index &= index - 1;
            see(Seen { at: turn, slot: Some(index), back: true });
            let at = arena.slot(arena.node(turn), index);
            if is_leaf(at) {
                if let Some(entry) = self.matching(addr, at, true, &mut see) {
                    return Some(entry);
                }
            } else if at != EMPTY {
                let node = arena.node(at);
                if node.shortest <= addr.common_bits(node.key) {
                    return self.zeros(addr, at, true, &mut see);
                }
                see(Seen { at, slot: None, back: true });
            }
        }
    }

    /// The match below a node that begins with the bits in which `addr` differs from it, but knows of a prefix that ends before. The
    /// rest of that prefix's address is zeros. (Linux goes down there whenever the zeros are possible, and may have to come back.)
    fn zeros(&self, addr: A, mut at: u32, back: bool, see: &mut impl FnMut(Seen)) -> Option<&Entry<A>> {
        while at != EMPTY && !is_leaf(at) {
            see(Seen { at, slot: Some(0), back });
            at = self.arena.slot(self.arena.node(at), 0);
        }
        self.matching(addr, at, back, see)
    }

    /// The longest prefix of a leaf that contains `addr`.
    #[inline]
    fn matching(&self, addr: A, leaf: u32, back: bool, see: &mut impl FnMut(Seen)) -> Option<&Entry<A>> {
        let common = addr.common_bits(self.arena.entry(leaf).key);
        let mut at = leaf;
        while at != EMPTY {
            see(Seen { at, slot: None, back });
            let entry = self.arena.entry(at);
            if entry.len <= common {
                return Some(entry);
            }
            at = entry.next;
        }
        None
    }
}
