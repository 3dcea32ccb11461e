//! A structure laid open as plain data, so that it can be drawn and described without knowing how it keeps its nodes.

use alloc::string::String;
use alloc::vec::Vec;

/// A structure's nodes; `nodes[0]` is the root. Empty for a structure without a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// Parents before their children, the children of one node in key order.
    pub nodes: Vec<GraphNode>,
}

/// One node, or one leaf.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphNode {
    /// Its kind, such as `node` or `leaf`: the structure's own word.
    pub kind: &'static str,
    /// Key bit that it looks at first, counted from the left; for one that looks at none, the key bits that are above it.
    pub at: u16,
    /// Key bits that it looks at: 2^bits ways; 0 for a leaf.
    pub bits: u16,
    /// Key bits between its parent's last and its own first that no way branches at (path compression).
    pub skipped: u16,
    /// Its other properties, a line each: the value so far, the bits skipped, how full it is.
    pub label: Vec<String>,
    /// Prefixes kept in it and their values, longest first.
    pub entries: Vec<(String, u32)>,
    /// The ways on, in key order; together they cover the 2^bits slots.
    pub children: Vec<GraphEdge>,
}

/// A way from a node to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphEdge {
    /// The key bits that lead there: `01`, or the first and last of a run of slots, `01-10`.
    pub label: String,
    /// Index of the node in [`Graph::nodes`]; None leads nowhere.
    pub to: Option<usize>,
    /// The value that the slot itself holds, in structures that keep values in slots.
    pub value: Option<u32>,
}

/// A step of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStep {
    /// Index in [`Graph::nodes`].
    pub node: usize,
    /// The one of the node's [`GraphNode::children`] that is looked at next, if any; it may lead nowhere.
    pub edge: Option<usize>,
    /// Whether the lookup came here by going back: up to an earlier node, or down from there by a way that shorter prefixes take.
    pub back: bool,
}

/// `index` in `bits` binary digits: the label of one slot.
pub fn digits(index: usize, bits: u16) -> String {
    alloc::format!("{index:0width$b}", width = usize::from(bits))
}
