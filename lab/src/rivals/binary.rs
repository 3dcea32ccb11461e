//! The binary trie, one node a key bit: where every description of the family starts.
//!
//! A prefix of `n` bits ends in the node that `n` bits lead to, whole keys as well as shorter prefixes. A lookup remembers the last value
//! that it came by: it never goes back. The invariant: every node but the root has a child or a value, so that no node is there for
//! nothing. A node takes 16 bytes: two 32-bit indices and the value with its tag.
//!
//! Source: E. Fredkin, "Trie Memory", CACM 1960; drawn step by step in M. Asama's talk at Internet Week 2014.

use super::{Figures, Load, Trie, Violation, Visit, tally};
use std::marker::PhantomData;
use trieline_lpm::graph::{Graph, GraphEdge, GraphNode, PathStep, digits};
use trieline_lpm::{Address, Prefix};

/// No such node: the root is nobody's child.
const NONE: u32 = 0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Node {
    /// The nodes for a next bit of 0 and 1; of a free node, the next free one.
    child: [u32; 2],
    value: Option<u32>,
}

/// A binary trie.
///
/// ```
/// use trieline_lab::rivals::{Binary, Trie};
/// let mut trie = Binary::<u32>::default();
/// trie.insert("10.0.0.0/8".parse()?, 1);
/// trie.insert("10.1.0.0/16".parse()?, 2);
/// assert_eq!(trie.lookup(0x0a01_0001), Some(("10.1.0.0/16".parse()?, 2)));
/// assert_eq!(trie.figures().internal, 16);
/// # Ok::<(), trieline_lpm::PrefixError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Binary<A> {
    nodes: Vec<Node>,
    /// The first free node; NONE = none.
    free: u32,
    len: usize,
    keys: PhantomData<A>,
}

impl<A: Address> Default for Binary<A> {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], free: NONE, len: 0, keys: PhantomData }
    }
}

impl<A: Address> Binary<A> {
    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    /// The node that the prefix's bits lead to.
    fn find(&self, prefix: &Prefix<A>) -> Option<u32> {
        let mut at = 0;
        for depth in 0..prefix.len() {
            at = self.node(at).child[prefix.addr().bits_at(depth, 1)];
            if at == NONE {
                return None;
            }
        }
        Some(at)
    }

    fn add(&mut self) -> u32 {
        if self.free == NONE {
            self.nodes.push(Node::default());
            return self.nodes.len() as u32 - 1;
        }
        let at = self.free;
        self.free = self.node(at).child[0];
        self.nodes[at as usize] = Node::default();
        at
    }

    fn give_back(&mut self, at: u32) {
        self.nodes[at as usize] = Node { child: [self.free, NONE], value: None };
        self.free = at;
    }

    /// The nodes from the root towards `addr`, as far as there are any.
    fn way(&self, addr: A) -> impl Iterator<Item = u32> + '_ {
        let mut next = Some(0);
        (0..=A::WIDTH).map_while(move |depth| {
            let at = next?;
            let child = if depth < A::WIDTH { self.node(at).child[addr.bits_at(depth, 1)] } else { NONE };
            next = (child != NONE).then_some(child);
            Some(at)
        })
    }

    /// All nodes with their prefixes, parents first, those of one depth in key order.
    fn by_depth(&self) -> Vec<(u32, Prefix<A>)> {
        let mut all = vec![(0, Prefix::truncated(A::ZERO, 0))];
        let mut done = 0;
        while let Some(&(at, prefix)) = all.get(done) {
            done += 1;
            for bit in 0..2 {
                let child = self.node(at).child[bit];
                if child != NONE {
                    // A whole key's node has no child: `verify` sees to it.
                    let len = A::WIDTH.min(prefix.len() + 1);
                    let addr = if bit == 0 { prefix.addr() } else { prefix.last() };
                    all.push((child, Prefix::truncated(addr, len)));
                }
            }
        }
        all
    }

    fn check(&self, at: u32, prefix: &Prefix<A>) -> Result<(), &'static str> {
        let node = self.node(at);
        if prefix.len() >= A::WIDTH && node.child != [NONE; 2] {
            return Err("a node behind the last key bit");
        }
        if at != 0 && node.child == [NONE; 2] && node.value.is_none() {
            return Err("neither child nor value");
        }
        if node.value.is_some() && self.find(prefix) != Some(at) {
            return Err("the prefix's bits do not lead here");
        }
        Ok(())
    }
}

impl<A: Address> Trie<A> for Binary<A> {
    fn name(&self) -> &'static str {
        "binary"
    }

    /// O(length).
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        let mut at = 0;
        for depth in 0..prefix.len() {
            let bit = prefix.addr().bits_at(depth, 1);
            let mut next = self.node(at).child[bit];
            if next == NONE {
                next = self.add();
                self.nodes[at as usize].child[bit] = next;
            }
            at = next;
        }
        let old = self.nodes[at as usize].value.replace(value);
        self.len += usize::from(old.is_none());
        old
    }

    /// O(length).
    fn remove(&mut self, prefix: &Prefix<A>) -> Option<u32> {
        let mut at = self.find(prefix)?;
        let old = self.nodes[at as usize].value.take()?;
        self.len -= 1;
        // Nodes for this prefix alone hang below the last node on the way that has a value or another child.
        let (mut keep, mut from) = (0, 0);
        let mut above = 0;
        for depth in 0..prefix.len() {
            let node = self.node(above);
            let bit = prefix.addr().bits_at(depth, 1);
            if node.value.is_some() || node.child[1 - bit] != NONE {
                (keep, from) = (above, depth);
            }
            above = node.child[bit];
        }
        if *self.node(at) != Node::default() || at == 0 {
            return Some(old);
        }
        let bit = prefix.addr().bits_at(from, 1);
        at = std::mem::replace(&mut self.nodes[keep as usize].child[bit], NONE);
        for depth in from + 1..=prefix.len() {
            let next = match depth < prefix.len() {
                true => self.node(at).child[prefix.addr().bits_at(depth, 1)],
                false => NONE,
            };
            self.give_back(at);
            at = next;
        }
        Some(old)
    }

    /// O(length).
    fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        self.node(self.find(prefix)?).value
    }

    /// O(width).
    #[inline]
    fn lookup(&self, addr: A) -> Option<(Prefix<A>, u32)> {
        let mut best = None;
        for (len, at) in self.way(addr).enumerate() {
            if let Some(value) = self.node(at).value {
                best = Some((len as u16, value));
            }
        }
        best.map(|(len, value)| (Prefix::truncated(addr, len), value))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn figures(&self) -> Figures {
        let mut figures = Figures { prefixes: self.len, ..Figures::default() };
        for (at, prefix) in self.by_depth() {
            let node = self.node(at);
            let children = node.child.iter().filter(|child| **child != NONE).count();
            if children > 0 {
                figures.internal += 1;
                figures.slots += 2;
                figures.empty += 2 - children;
            } else {
                figures.leaves += 1;
            }
            if node.value.is_some() {
                tally(&mut figures.depths, prefix.len().into());
            }
        }
        figures.bytes = size_of::<Node>() * (figures.internal + figures.leaves);
        figures.sizes = vec![0, figures.internal];
        figures
    }

    fn verify(&self) -> Result<(), Violation> {
        let nodes = self.by_depth();
        let broken = |prefix: &Prefix<A>, broken: &str| Violation {
            structure: self.name(),
            place: prefix.to_string(),
            broken: broken.into(),
        };
        for (at, prefix) in &nodes {
            self.check(*at, prefix).map_err(|what| broken(prefix, what))?;
        }
        let values = nodes.iter().filter(|(at, _)| self.node(*at).value.is_some()).count();
        let free = std::iter::successors((self.free != NONE).then_some(self.free), |at| {
            Some(self.node(*at).child[0]).filter(|next| *next != NONE)
        });
        let whole = Prefix::truncated(A::ZERO, 0);
        if values != self.len {
            return Err(broken(&whole, "the number of prefixes"));
        }
        if nodes.len() + free.take(self.nodes.len()).count() != self.nodes.len() {
            return Err(broken(&whole, "a node that is neither in the trie nor free"));
        }
        Ok(())
    }

    fn trace(&self, addr: A, visit: &mut dyn FnMut(Visit)) {
        for at in self.way(addr) {
            visit(Visit { loads: [Load::of(self.node(at)), Load::NONE], back: false });
        }
    }

    fn graph(&self) -> Graph {
        let all = self.by_depth();
        // Children stand in the list in the order in which their parents' edges name them.
        let mut next = 1;
        let nodes = all.iter().map(|(at, prefix)| {
            let node = self.node(*at);
            let mut edge = |bit: usize| {
                let to = (node.child[bit] != NONE).then_some(next);
                next += usize::from(to.is_some());
                GraphEdge { label: digits(bit, 1), to, value: None }
            };
            let is_leaf = node.child == [NONE; 2];
            GraphNode {
                kind: if is_leaf { "leaf" } else { "node" },
                at: prefix.len(),
                bits: u16::from(!is_leaf),
                entries: node.value.map(|value| (prefix.to_string(), value)).into_iter().collect(),
                children: if is_leaf { Vec::new() } else { (0..2).map(&mut edge).collect() },
                ..GraphNode::default()
            }
        });
        Graph { nodes: nodes.collect() }
    }

    fn path(&self, addr: A) -> Vec<PathStep> {
        let all = self.by_depth();
        let index = |at: u32| all.iter().position(|(other, _)| *other == at);
        let steps = self.way(addr).enumerate().filter_map(|(depth, at)| {
            let is_leaf = self.node(at).child == [NONE; 2];
            let edge = (!is_leaf).then(|| addr.bits_at(depth as u16, 1));
            Some(PathStep { node: index(at)?, edge, back: false })
        });
        steps.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_noticed() {
        let mut trie = Binary::<u32>::default();
        trie.insert(Prefix::truncated(0, 2), 1);
        trie.verify().unwrap();
        let broken = |damage: fn(&mut Binary<u32>)| {
            let mut damaged = trie.clone();
            damage(&mut damaged);
            damaged.verify().unwrap_err().broken
        };
        assert_eq!(broken(|trie| trie.nodes[2].value = None), "neither child nor value");
        assert_eq!(broken(|trie| trie.nodes[1].value = Some(2)), "the number of prefixes");
        let lost = broken(|trie| trie.nodes.push(Node::default()));
        assert_eq!(lost, "a node that is neither in the trie nor free");
    }
}
