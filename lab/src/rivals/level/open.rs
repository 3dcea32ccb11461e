//! A level-compressed trie as data to draw.

use super::arena::{EMPTY, Placed, is_leaf};
use super::{LevelTrie, Rule};
use trieline_lpm::graph::{Graph, GraphEdge, GraphNode, digits};
use trieline_lpm::{Address, Prefix};

impl<A: Address, R: Rule> LevelTrie<A, R> {
    /// Every node with all its slots, every leaf with its prefixes.
    pub(super) fn open(&self) -> Graph {
        let all = self.arena.by_depth();
        // Children stand in the list in the order in which their parents' slots name them.
        let mut next = 1;
        let nodes = all.iter().map(|placed| match is_leaf(placed.at) {
            true => self.open_leaf(placed),
            false => self.open_node(placed, &mut next),
        });
        Graph { nodes: nodes.collect() }
    }

    fn skipped(&self, placed: &Placed, at: u16) -> u16 {
        at - self.arena.node(placed.place.0).end()
    }

    fn open_leaf(&self, placed: &Placed) -> GraphNode {
        let end = self.arena.node(placed.place.0).end();
        let key = self.arena.key(placed.at);
        let entries = self.arena.leaf(placed.at);
        GraphNode {
            kind: "leaf",
            at: end,
            // The leaf compares the rest of the key.
            skipped: self.skipped(placed, A::WIDTH),
            label: vec![Prefix::host(key).to_string()],
            entries: entries
                .map(|entry| (Prefix::truncated(key, entry.len).to_string(), entry.value))
                .collect(),
            ..GraphNode::default()
        }
    }

    fn open_node(&self, placed: &Placed, next: &mut usize) -> GraphNode {
        let node = self.arena.node(placed.at);
        let skipped = self.skipped(placed, node.at());
        let mut label = vec![Prefix::truncated(node.key, node.at()).to_string()];
        if skipped > 0 {
            let bits: String = (node.at() - skipped..node.at())
                .map(|at| if node.key.bits_at(at, 1) == 0 { '0' } else { '1' })
                .collect();
            label.push(format!("skips {bits}"));
        }
        let edges = (0..node.slots()).map(|index| {
            let to = (self.arena.slot(node, index) != EMPTY).then_some(*next);
            *next += usize::from(to.is_some());
            GraphEdge { label: digits(index, node.bits()), to, value: None }
        });
        let children: Vec<GraphEdge> = edges.collect();
        GraphNode {
            kind: "node",
            at: node.at(),
            bits: node.bits(),
            skipped,
            label,
            entries: Vec::new(),
            children,
        }
    }
}
