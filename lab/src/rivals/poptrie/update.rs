//! Building a Poptrie from its radix tree, whole and in part.

use super::rib::NONE;
use super::{LEAF, NARROW_MAX, Node, Poptrie, SLOTS, STRIDE, check};
use trieline_lpm::{Address, Error, Prefix};

/// The wanted content of a node's slot.
#[derive(Clone, Copy)]
enum Slot {
    /// This value; 0 = none.
    Leaf(u32),
    /// The present content: nothing in it changes.
    Keep,
    /// A node for the radix node `rib`, below which `inherited` is what the prefixes above say.
    Build { rib: u32, inherited: u32 },
}

/// Which of a radix node's slots are to be computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All.
    All,
    /// Those that inherit from above: below another prefix nothing changes.
    Inheriting,
}

impl<A: Address> Poptrie<A> {
    /// Adds a prefix or changes its value; returns the value that was there. O(length + what it covers). An error for a value
    /// outside 1 ... 2^31−1.
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Result<Option<u32>, Error> {
        check(value)?;
        let old = self.rib.append(prefix, value);
        if old != value {
            self.change(&prefix, value);
        }
        Ok((old != 0).then_some(old))
    }

    /// Removes a prefix; returns the value that was there. Complexity as [`Poptrie::insert`].
    pub fn remove(&mut self, prefix: &Prefix<A>) -> Option<u32> {
        let old = self.rib.remove(prefix);
        if old != 0 {
            self.change(prefix, 0);
        }
        (old != 0).then_some(old)
    }

    /// Builds everything from the radix tree.
    pub(super) fn rebuild(&mut self) {
        self.nodes.clear();
        self.leaves.clear();
        self.wide_leaves.clear();
        self.values = vec![0];
        self.codes.clear();
        self.wide = false;
        for value in self.rib.values() {
            if self.codes.contains_key(&value) {
                continue;
            }
            if self.values.len() == NARROW_MAX {
                self.wide = true;
                self.values = vec![0];
                self.codes.clear();
                break;
            }
            self.codes.insert(value, self.values.len() as u16);
            self.values.push(value);
        }
        self.direct = vec![LEAF; 1 << self.bits];
        self.paint(0, 0, 0, 0, Scope::All);
        self.nodes.shrink();
        self.leaves.shrink();
        self.wide_leaves.shrink();
        self.rib.shrink();
    }

    /// Brings the trie in line with the radix tree now that `prefix` has `value` (0 = is gone).
    fn change(&mut self, prefix: &Prefix<A>, value: u32) {
        if !self.wide && value != 0 && !self.codes.contains_key(&value) {
            if self.values.len() == NARROW_MAX {
                return self.rebuild();
            }
            self.codes.insert(value, self.values.len() as u16);
            self.values.push(value);
        }
        let (addr, len) = (prefix.addr(), prefix.len());
        let slot = addr.bits_at(0, self.bits);
        if len <= self.bits {
            // A pruned node leads nowhere: all that it covers inherits.
            let rib = self.rib.on_path(len);
            let inherited = self.rib.inherited(len);
            match rib {
                Some(rib) => self.paint(rib, len, slot, inherited, Scope::Inheriting),
                None => self.paint_leaf(slot, 1 << (self.bits - len), inherited),
            }
            return;
        }
        let old = self.direct[slot];
        let below = self.rib.on_path(self.bits).filter(|rib| self.rib.node(*rib).is_inner());
        match below {
            Some(_) if old & LEAF == 0 => self.edit(old, prefix),
            _ => {
                let inherited = self.rib.inherited(self.bits);
                self.set_direct(slot, below.unwrap_or(NONE), inherited);
            }
        }
    }

    /// Computes the direct words below the radix node `rib` of `depth` bits, the first being `slot`.
    fn paint(&mut self, rib: u32, depth: u16, slot: usize, inherited: u32, scope: Scope) {
        let node = self.rib.node(rib);
        let inherited = if node.value != 0 { node.value } else { inherited };
        if !node.is_inner() {
            return self.paint_leaf(slot, 1 << (self.bits - depth), inherited);
        }
        if depth == self.bits {
            return self.set_direct(slot, rib, inherited);
        }
        let half = 1 << (self.bits - depth - 1);
        for (bit, child) in node.child.into_iter().enumerate() {
            let slot = slot + bit * half;
            if child == NONE {
                self.paint_leaf(slot, half, inherited);
            } else if scope == Scope::All || self.rib.node(child).value == 0 {
                self.paint(child, depth + 1, slot, inherited, scope);
            }
        }
    }

    fn paint_leaf(&mut self, slot: usize, count: usize, value: u32) {
        for slot in slot..slot + count {
            self.set_direct(slot, NONE, value);
        }
    }

    /// Makes a direct word lead to a node built from `rib`, or be a leaf of `value` where that is none.
    fn set_direct(&mut self, slot: usize, rib: u32, value: u32) {
        let old = self.direct[slot];
        self.direct[slot] = if rib == NONE {
            LEAF | value
        } else {
            let node = self.node(rib, value);
            self.nodes.put(&[node])
        };
        if old & LEAF == 0 {
            let node = self.nodes.slice(old, 1)[0];
            self.release(&node);
            self.nodes.free(old, 1);
        }
    }

    /// Changes what `prefix`, longer than the direct bits, can reach under the node `at`.
    fn edit(&mut self, mut at: u32, prefix: &Prefix<A>) {
        let (addr, len) = (prefix.addr(), prefix.len());
        let mut depth = self.bits;
        loop {
            let node = self.nodes.slice(at, 1)[0];
            let slot = addr.bits_at(depth, STRIDE);
            let mut slots = [Slot::Keep; SLOTS];
            if len > depth + STRIDE {
                let rib = self.rib.on_path(depth + STRIDE).filter(|rib| self.rib.node(*rib).is_inner());
                let is_child = node.vector >> slot & 1 == 1;
                if is_child && rib.is_some() {
                    at = node.base1 + (node.vector << (63 - slot)).count_ones() - 1;
                    depth += STRIDE;
                    continue;
                }
                let inherited = self.rib.inherited(depth + STRIDE);
                slots[slot] = rib.map_or(Slot::Leaf(inherited), |rib| Slot::Build { rib, inherited });
            } else {
                let level = len - depth;
                let inherited = self.rib.inherited(len);
                match self.rib.on_path(len) {
                    Some(rib) => self.expand(rib, level, slot, inherited, Scope::Inheriting, &mut slots),
                    None => slots[slot..slot + (SLOTS >> level)].fill(Slot::Leaf(inherited)),
                }
            }
            let new = self.assemble(&slots, &node);
            self.nodes.set(at, new);
            return;
        }
    }

    /// A new node for the radix node `rib`, which has children. Radix nodes as deep as the address is wide have none, so that no
    /// node begins behind the key's end.
    fn node(&mut self, rib: u32, inherited: u32) -> Node {
        let mut slots = [Slot::Keep; SLOTS];
        let above = self.rib.node(rib);
        for (bit, child) in above.child.into_iter().enumerate() {
            let first = bit * SLOTS / 2;
            match child {
                NONE => slots[first..first + SLOTS / 2].fill(Slot::Leaf(inherited)),
                child => self.expand(child, 1, first, inherited, Scope::All, &mut slots),
            }
        }
        self.assemble(&slots, &Node::default())
    }

    /// Computes the slots below the radix node `rib`, `level` bits below the node's begin, the first being `slot`.
    fn expand(
        &self,
        rib: u32,
        level: u16,
        slot: usize,
        inherited: u32,
        scope: Scope,
        slots: &mut [Slot; SLOTS],
    ) {
        let node = self.rib.node(rib);
        let inherited = if node.value != 0 { node.value } else { inherited };
        if !node.is_inner() {
            return slots[slot..slot + (SLOTS >> level)].fill(Slot::Leaf(inherited));
        }
        if level == STRIDE {
            slots[slot] = Slot::Build { rib, inherited };
            return;
        }
        let half = SLOTS >> (level + 1);
        for (bit, child) in node.child.into_iter().enumerate() {
            let slot = slot + bit * half;
            if child == NONE {
                slots[slot..slot + half].fill(Slot::Leaf(inherited));
            } else if scope == Scope::All || self.rib.node(child).value == 0 {
                self.expand(child, level + 1, slot, inherited, scope, slots);
            }
        }
    }

    /// Puts new arrays for `slots` in place; the arrays of `old`, and what is below a slot that is not kept, become free.
    fn assemble(&mut self, slots: &[Slot; SLOTS], old: &Node) -> Node {
        let mut node = Node::default();
        let mut children = [Node::default(); SLOTS];
        let mut leaves = [0u32; SLOTS];
        let (mut child_count, mut leaf_count) = (0, 0);
        // The value looked for last and its code: neighbours mostly have the same.
        let mut last = (0, 0);
        for (at, slot) in slots.iter().enumerate() {
            let was_child = old.vector >> at & 1 == 1;
            let kept = matches!(slot, Slot::Keep);
            let child = was_child
                .then(|| old.base1 + (old.vector << (63 - at)).count_ones() - 1)
                .map(|child| self.nodes.slice(child, 1)[0]);
            if let (Some(child), false) = (&child, kept) {
                self.release(child);
            }
            let leaf = match (*slot, child) {
                (Slot::Keep, Some(child)) => {
                    children[child_count] = child;
                    None
                }
                (Slot::Build { rib, inherited }, _) => {
                    children[child_count] = self.node(rib, inherited);
                    None
                }
                (Slot::Keep, None) => Some(self.leaf_at(old, at)),
                (Slot::Leaf(value), _) => {
                    if value != last.0 {
                        last = (value, self.code(value));
                    }
                    Some(last.1)
                }
            };
            match leaf {
                None => {
                    node.vector |= 1 << at;
                    child_count += 1;
                }
                Some(leaf) if leaf_count == 0 || leaves[leaf_count - 1] != leaf => {
                    node.leafvec |= 1 << at;
                    leaves[leaf_count] = leaf;
                    leaf_count += 1;
                }
                Some(_) => {}
            }
        }
        self.release_arrays(old);
        node.base1 = self.nodes.put(&children[..child_count]);
        node.base0 = if self.wide {
            self.wide_leaves.put(&leaves[..leaf_count])
        } else {
            self.leaves.put(&leaves.map(|code| code as u16)[..leaf_count])
        };
        node
    }

    /// A leaf's entry for `value`: its index or itself.
    fn code(&self, value: u32) -> u32 {
        if self.wide || value == 0 { value } else { self.codes.get(&value).copied().map_or(0, u32::from) }
    }

    fn leaf_at(&self, node: &Node, slot: usize) -> u32 {
        let at = node.base0 + (node.leafvec << (63 - slot)).count_ones() - 1;
        if self.wide { self.wide_leaves.slice(at, 1)[0] } else { self.leaves.slice(at, 1)[0].into() }
    }

    /// Frees all that is below `node`.
    fn release(&mut self, node: &Node) {
        for child in 0..node.vector.count_ones() {
            let child = self.nodes.slice(node.base1 + child, 1)[0];
            self.release(&child);
        }
        self.release_arrays(node);
    }

    /// Frees the arrays of `node`, not what they lead to.
    fn release_arrays(&mut self, node: &Node) {
        self.nodes.free(node.base1, node.vector.count_ones() as usize);
        let leaves = node.leafvec.count_ones() as usize;
        if self.wide {
            self.wide_leaves.free(node.base0, leaves);
        } else {
            self.leaves.free(node.base0, leaves);
        }
    }
}
