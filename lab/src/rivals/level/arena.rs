//! The nodes, slots and prefixes of a level-compressed trie, and the fields of each.

use crate::rivals::Load;
use trieline_lpm::{Address, Prefix};

/// The content of a slot that leads nowhere.
pub(super) const EMPTY: u32 = 0;
/// The node above the root: no bits, one slot. It stands in no slot, so that its index can mean [`EMPTY`].
pub(super) const HEAD: u32 = 0;
/// Marks what stands in a slot as a leaf's first prefix.
const LEAF: u32 = 1 << 31;
/// Most key bits of a node: the limit of [`Address::bits_at`].
pub(super) const BITS_MAX: u16 = 31;

pub(super) fn is_leaf(at: u32) -> bool {
    at & LEAF != 0
}

pub(super) fn is_node(at: u32) -> bool {
    at != EMPTY && !is_leaf(at)
}

/// Bytes of what a structure consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// A node without its slots.
    pub node: usize,
    /// A slot.
    pub slot: usize,
    /// A leaf without its prefixes.
    pub leaf: usize,
    /// A prefix.
    pub prefix: usize,
}

/// A node of 2^bits slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<A> {
    /// The key bits above it, those it skips included, then zeros.
    pub key: A,
    /// Its first slot.
    pub base: u32,
    pub parent: u32,
    /// First key bit, at most 2047, and in the low five bits how many.
    place: u16,
    /// The length of the shortest prefix below; where none ends among the bits above or its own, [`Node::end`].
    pub shortest: u16,
}

impl<A> Node<A> {
    /// The key bit it looks at first.
    #[inline]
    pub fn at(&self) -> u16 {
        self.place >> 5
    }

    #[inline]
    pub fn bits(&self) -> u16 {
        self.place & 31
    }

    /// The first key bit behind its own.
    #[inline]
    pub fn end(&self) -> u16 {
        self.at() + self.bits()
    }

    pub fn slots(&self) -> usize {
        1 << self.bits()
    }
}

/// A node's state for changes, which lookups do not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Slots that lead nowhere.
    pub empty: u32,
    /// Children that are nodes and skip no bit.
    pub full: u32,
}

/// A prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<A> {
    pub key: A,
    pub value: u32,
    /// The next shorter prefix of the same leaf; EMPTY = none.
    pub next: u32,
    pub len: u16,
}

/// A node or leaf and where it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub at: u32,
    /// Node and index of the slot that it stands in.
    pub place: (u32, usize),
    /// Nodes above it.
    pub depth: usize,
}

/// The vectors, each with the indices that are free.
#[derive(Clone, Debug)]
pub(super) struct Arena<A> {
    nodes: Vec<Node<A>>,
    counts: Vec<Counts>,
    slots: Vec<u32>,
    prefixes: Vec<Entry<A>>,
    free_nodes: Vec<u32>,
    /// By the number of bits: where so many slots are free together.
    free_slots: Vec<Vec<u32>>,
    free_prefixes: Vec<u32>,
    used_slots: usize,
}

impl<A: Address> Arena<A> {
    pub fn new() -> Self {
        let mut arena = Self {
            nodes: Vec::new(),
            counts: Vec::new(),
            slots: Vec::new(),
            prefixes: Vec::new(),
            free_nodes: Vec::new(),
            free_slots: vec![Vec::new(); usize::from(BITS_MAX) + 1],
            free_prefixes: Vec::new(),
            used_slots: 0,
        };
        arena.add_node(A::ZERO, 0, 0);
        arena
    }

    #[inline]
    pub fn node(&self, at: u32) -> &Node<A> {
        &self.nodes[at as usize]
    }

    #[inline]
    pub fn slot(&self, node: &Node<A>, index: usize) -> u32 {
        self.slots[node.base as usize + index]
    }

    #[inline]
    pub fn entry(&self, leaf: u32) -> &Entry<A> {
        &self.prefixes[(leaf & !LEAF) as usize]
    }

    pub fn entry_mut(&mut self, leaf: u32) -> &mut Entry<A> {
        &mut self.prefixes[(leaf & !LEAF) as usize]
    }

    /// A leaf's prefixes, longest first.
    pub fn leaf(&self, first: u32) -> impl Iterator<Item = &Entry<A>> {
        std::iter::successors(Some(self.entry(first)), |entry| {
            (entry.next != EMPTY).then(|| self.entry(entry.next))
        })
    }

    pub fn counts(&self, at: u32) -> Counts {
        self.counts[at as usize]
    }

    /// Nodes but the head, slots but its own, and prefixes that are in use.
    pub fn used(&self) -> (usize, usize, usize) {
        (self.nodes.len() - self.free_nodes.len() - 1, self.used_slots - 1, self.entries())
    }

    pub fn entries(&self) -> usize {
        self.prefixes.len() - self.free_prefixes.len()
    }

    /// The key of a node or leaf.
    pub fn key(&self, at: u32) -> A {
        if is_leaf(at) { self.entry(at).key } else { self.node(at).key }
    }

    /// The shortest prefix in a leaf or below a node, as far as a node knows it.
    pub fn shortest(&self, at: u32) -> u16 {
        match is_leaf(at) {
            true => self.leaf(at).last().map_or(A::WIDTH, |entry| entry.len),
            false => self.node(at).shortest,
        }
    }

    /// Whether it is a node that begins at key bit `end`, where the one above it ends.
    pub fn is_full(&self, end: u16, at: u32) -> bool {
        is_node(at) && self.node(at).at() == end
    }

    /// Where a leaf of this key stands or would stand, and what stands there.
    pub fn find(&self, key: A) -> ((u32, usize), u32) {
        let (mut up, mut index) = (HEAD, 0);
        loop {
            let at = self.slot(self.node(up), index);
            if !is_node(at) {
                return ((up, index), at);
            }
            let node = self.node(at);
            if key.common_bits(node.key) < node.at() {
                return ((up, index), at);
            }
            (up, index) = (at, key.bits_at(node.at(), node.bits()));
        }
    }

    /// The slot above a node: in which node, and its index there.
    pub fn place(&self, at: u32) -> (u32, usize) {
        let node = self.node(at);
        let up = self.node(node.parent);
        (node.parent, node.key.bits_at(up.at(), up.bits()))
    }

    /// Puts something into a slot and counts what that changes; the parent that a node names is left as it is.
    pub fn put(&mut self, up: u32, index: usize, at: u32) {
        let node = &self.nodes[up as usize];
        let (base, end) = (node.base as usize, node.end());
        let old = std::mem::replace(&mut self.slots[base + index], at);
        let was = [old == EMPTY, self.is_full(end, old)].map(u32::from);
        let is = [at == EMPTY, self.is_full(end, at)].map(u32::from);
        let counts = &mut self.counts[up as usize];
        counts.empty = counts.empty + is[0] - was[0];
        counts.full = counts.full + is[1] - was[1];
        if at != EMPTY {
            let shortest = self.shortest(at);
            let node = &mut self.nodes[up as usize];
            node.shortest = node.shortest.min(shortest);
        }
    }

    /// Puts something into a slot, and a node's parent is that one.
    pub fn adopt(&mut self, up: u32, index: usize, at: u32) {
        self.put(up, index, at);
        if is_node(at) {
            self.nodes[at as usize].parent = up;
        }
    }

    /// A node without children for the first `at` bits of `key`.
    pub fn add_node(&mut self, key: A, at: u16, bits: u16) -> u32 {
        let (base, end) = (self.take_slots(bits), at + bits);
        let node = Node { key: key.masked(at), base, parent: HEAD, place: at << 5 | bits, shortest: end };
        let counts = Counts { empty: 1 << bits, full: 0 };
        if let Some(free) = self.free_nodes.pop() {
            self.nodes[free as usize] = node;
            self.counts[free as usize] = counts;
            return free;
        }
        self.nodes.push(node);
        self.counts.push(counts);
        self.nodes.len() as u32 - 1
    }

    /// Gives a node that nothing leads to back.
    pub fn drop_node(&mut self, at: u32) {
        let node = *self.node(at);
        self.drop_slots(node.base, node.bits());
        self.free_nodes.push(at);
    }

    /// Gives a node `bits` bits and empty slots for them; what it was. The old slots stay until [`Arena::drop_slots`].
    pub fn restart(&mut self, at: u32, bits: u16) -> Node<A> {
        let base = self.take_slots(bits);
        let (node, counts) = (&mut self.nodes[at as usize], &mut self.counts[at as usize]);
        let place = node.at() << 5 | bits;
        *counts = Counts { empty: 1 << bits, full: 0 };
        std::mem::replace(node, Node { base, place, shortest: node.at() + bits, ..*node })
    }

    fn take_slots(&mut self, bits: u16) -> u32 {
        self.used_slots += 1 << bits;
        if let Some(base) = self.free_slots[usize::from(bits)].pop() {
            self.slots[base as usize..][..1 << bits].fill(EMPTY);
            return base;
        }
        let base = self.slots.len();
        self.slots.resize(base + (1 << bits), EMPTY);
        base as u32
    }

    pub fn drop_slots(&mut self, base: u32, bits: u16) {
        self.used_slots -= 1 << bits;
        self.free_slots[usize::from(bits)].push(base);
    }

    pub fn add_entry(&mut self, prefix: &Prefix<A>, value: u32, next: u32) -> u32 {
        let entry = Entry { key: prefix.addr(), value, next, len: prefix.len() };
        if let Some(free) = self.free_prefixes.pop() {
            self.prefixes[free as usize] = entry;
            return LEAF | free;
        }
        self.prefixes.push(entry);
        LEAF | (self.prefixes.len() as u32 - 1)
    }

    /// A copy of a prefix whose place is free from now on.
    pub fn take_entry(&mut self, at: u32) -> Entry<A> {
        self.free_prefixes.push(at & !LEAF);
        *self.entry(at)
    }

    /// Tells a node and those above it of a prefix that is new below.
    pub fn push_shortest(&mut self, mut at: u32, len: u16) {
        while at != HEAD && self.node(at).shortest > len {
            let node = &mut self.nodes[at as usize];
            node.shortest = len;
            at = node.parent;
        }
    }

    /// Updates a node and those above it after the last prefix of `gone` bits below was removed.
    pub fn pull_shortest(&mut self, mut at: u32, gone: u16) {
        while at != HEAD && self.node(at).shortest == gone {
            let node = self.node(at);
            let (shortest, parent) = (self.shortest_below(node, gone), node.parent);
            self.nodes[at as usize].shortest = shortest;
            if shortest == gone {
                return;
            }
            at = parent;
        }
    }

    /// The shortest prefix in a node's slots, [`Node::end`] if none is shorter; none is shorter than `least`.
    ///
    /// A prefix that ends `n` bits before the node's end has zeros there: it can only be behind a multiple of 2^n.
    pub fn shortest_below(&self, node: &Node<A>, least: u16) -> u16 {
        let (mut shortest, mut index) = (node.end(), 0);
        while index < node.slots() && shortest > least {
            let at = self.slot(node, index);
            if at != EMPTY {
                shortest = shortest.min(self.shortest(at));
            }
            let step = 2usize << (node.end() - shortest).min(node.bits());
            index = (index / step + 1) * step;
        }
        shortest
    }

    /// All nodes and leaves, parents first, those of one depth in key order.
    pub fn by_depth(&self) -> Vec<Placed> {
        let head = Placed { at: HEAD, place: (HEAD, 0), depth: 0 };
        let children = |of: Placed, depth| {
            let node = self.node(of.at);
            let slots = 0..node.slots();
            slots.filter_map(move |index| {
                let at = self.slot(node, index);
                (at != EMPTY).then_some(Placed { at, place: (of.at, index), depth })
            })
        };
        let mut all: Vec<Placed> = children(head, 0).collect();
        let mut done = 0;
        while let Some(&placed) = all.get(done) {
            done += 1;
            if is_node(placed.at) {
                all.extend(children(placed, placed.depth + 1));
            }
        }
        all
    }

    /// Bytes of one of each here.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            node: size_of::<Node<A>>() + size_of::<Counts>(),
            slot: size_of::<u32>(),
            leaf: 0,
            prefix: size_of::<Entry<A>>(),
        }
    }

    /// The memory that reading a node or leaf, and one slot of it, loads.
    pub fn loads(&self, at: u32, slot: Option<usize>) -> [Load; 2] {
        if is_leaf(at) {
            return [Load::of(self.entry(at)), Load::NONE];
        }
        let node = self.node(at);
        let slot = slot.map_or(Load::NONE, |index| Load::of(&self.slots[node.base as usize + index]));
        [Load::of(node), slot]
    }
}
