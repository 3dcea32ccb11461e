//! Nodes that double, are cut in half, or give way to their only child.

use super::arena::{BITS_MAX, EMPTY, HEAD, is_node};
use super::{Fill, LevelTrie, Rule};
use trieline_lpm::Address;

/// Most doublings and halvings of one visit, for rules that do not settle: Linux's `MAX_WORK`.
const WORK_MAX: usize = 10;

/// A step of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Double,
    Halve,
    /// One child is left, or none: it takes the node's slot.
    Collapse,
}

impl Step {
    /// Whether Linux takes this step in a visit that began with `last` and has taken `done` of them.
    fn follows(self, last: Option<Step>, done: usize) -> bool {
        match (last, self) {
            (None, _) | (Some(Step::Halve), Step::Collapse) => true,
            (Some(Step::Double), Step::Double) | (Some(Step::Halve), Step::Halve) => done < WORK_MAX,
            _ => false,
        }
    }
}

impl<A: Address, R: Rule> LevelTrie<A, R> {
    /// How full a node is.
    pub(super) fn fill(&self, at: u32) -> Fill {
        let (node, counts) = (self.arena.node(at), self.arena.counts(at));
        Fill {
            slots: node.slots(),
            used: node.slots() - counts.empty as usize,
            full: counts.full as usize,
            end: node.end(),
            is_root: node.parent == HEAD,
        }
    }

    /// The step that the rule wants for a node, in Linux's order.
    fn step(&self, at: u32) -> Option<Step> {
        let (node, fill) = (self.arena.node(at), self.fill(at));
        if fill.used + fill.full > 1
            && node.end() < A::WIDTH
            && node.bits() < BITS_MAX
            && self.rule.doubles(&fill)
        {
            return Some(Step::Double);
        }
        if fill.used < 2 {
            return Some(Step::Collapse);
        }
        (node.bits() > 1 && self.rule.halves(&fill)).then_some(Step::Halve)
    }

    /// Whether the rule would leave a node as it is.
    pub(super) fn is_settled(&self, at: u32) -> bool {
        self.step(at).is_none()
    }

    /// Visits a node: does what the rule wants, to the nodes that come out of it below as well. Returns the node above. It calls itself at
    /// most once a level, and each level takes a key bit.
    pub(super) fn resize(&mut self, at: u32) -> u32 {
        let (up, index) = self.arena.place(at);
        let (mut last, mut done) = (None, 0);
        loop {
            // A child that took the node's slot may have become the root.
            let at = self.arena.slot(self.arena.node(up), index);
            let Some(step) = is_node(at).then(|| self.step(at)).flatten() else { return up };
            if !R::SETTLES && !step.follows(last, done) {
                return up;
            }
            match step {
                Step::Double => self.double(at),
                Step::Halve => self.halve(at),
                Step::Collapse => self.collapse(at, up, index),
            }
            (last, done) = (Some(step), done + 1);
        }
    }

    /// One bit more: children that skip no bit are taken apart.
    fn double(&mut self, at: u32) {
        let arena = &mut self.arena;
        let bits = arena.node(at).bits();
        let old = arena.restart(at, bits + 1);
        for index in 0..old.slots() {
            let child = arena.slot(&old, index);
            if child == EMPTY {
                continue;
            }
            if !arena.is_full(old.end(), child) {
                let bit = arena.key(child).bits_at(old.end(), 1);
                arena.put(at, 2 * index + bit, child);
                continue;
            }
            let inner = *arena.node(child);
            let half = inner.slots() / 2;
            for bit in 0..2 {
                let part = if half == 1 {
                    arena.slot(&inner, bit)
                } else {
                    // The child's key and one bit of its own.
                    let key = if bit == 0 { inner.key } else { inner.key.filled(inner.at()) };
                    let part = arena.add_node(key, inner.at() + 1, inner.bits() - 1);
                    for index in 0..half {
                        let child = arena.slot(&inner, bit * half + index);
                        if child != EMPTY {
                            arena.adopt(part, index, child);
                        }
                    }
                    part
                };
                arena.adopt(at, 2 * index + bit, part);
            }
            arena.drop_node(child);
        }
        arena.drop_slots(old.base, old.bits());
        self.resize_full(at);
    }

    /// One bit less: where both of two slots lead somewhere, a node with one bit takes their place.
    fn halve(&mut self, at: u32) {
        let arena = &mut self.arena;
        let bits = arena.node(at).bits();
        let old = arena.restart(at, bits - 1);
        for index in 0..old.slots() / 2 {
            match [0, 1].map(|bit| arena.slot(&old, 2 * index + bit)) {
                [EMPTY, EMPTY] => {}
                [EMPTY, child] | [child, EMPTY] => arena.put(at, index, child),
                pair => {
                    let part = arena.add_node(arena.key(pair[0]), old.end() - 1, 1);
                    for (bit, child) in pair.into_iter().enumerate() {
                        arena.adopt(part, bit, child);
                    }
                    arena.adopt(at, index, part);
                }
            }
        }
        arena.drop_slots(old.base, old.bits());
        self.resize_full(at);
    }

    fn collapse(&mut self, at: u32, up: u32, index: usize) {
        let node = self.arena.node(at);
        let mut children = (0..node.slots()).map(|index| self.arena.slot(node, index));
        let child = children.find(|child| *child != EMPTY).unwrap_or(EMPTY);
        self.arena.adopt(up, index, child);
        self.arena.drop_node(at);
    }

    /// Visits the children that skip no bit.
    fn resize_full(&mut self, at: u32) {
        let end = self.arena.node(at).end();
        for index in (0..self.arena.node(at).slots()).rev() {
            let child = self.arena.slot(self.arena.node(at), index);
            if self.arena.is_full(end, child) {
                self.resize(child);
            }
        }
    }
}
