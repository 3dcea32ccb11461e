//! Structures that others published, each written once from its paper: rivals that trieline's own is measured against.
//!
//! [`Binary`] is the family of Asama's talk (Internet Week 2014) up to Linux's `fib_trie`, all of them under one trait, [`Trie`]. [`Poptrie`] is
//! today's rival; [`Dir24`] is the limit of one load a lookup. They are for experiments and for readers of the papers, keep everything on the
//! heap and borrow exclusively to change. Use [`trieline_lpm::Table`] or a map for work.

mod binary;
pub mod dir24;
pub mod fib;
pub mod lctrie;
mod level;
pub mod patricia;
pub mod poptrie;
pub mod relaxed;

pub use binary::Binary;
pub use dir24::Dir24;
pub use fib::Fib;
pub use lctrie::LcTrie;
pub use level::{Fill, LevelTrie, Rule, Sizes};
pub use patricia::Patricia;
pub use poptrie::Poptrie;
pub use relaxed::Relaxed;

use trieline_lpm::graph::{Graph, PathStep};
use trieline_lpm::{Address, Prefix};

/// A longest-prefix-match table whose structure can be measured, checked and drawn. Values are any `u32`.
pub trait Trie<A: Address> {
    /// The structure's name in results.
    fn name(&self) -> &'static str;
    /// Adds or replaces; returns the value that was there.
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32>;
    /// Removes; returns the value that was there.
    fn remove(&mut self, prefix: &Prefix<A>) -> Option<u32>;
    /// The value of exactly this prefix.
    fn get(&self, prefix: &Prefix<A>) -> Option<u32>;
    /// The longest prefix that contains `addr`, and its value.
    fn lookup(&self, addr: A) -> Option<(Prefix<A>, u32)>;
    /// Number of prefixes.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Counts every node. O(memory).
    fn figures(&self) -> Figures;
    /// Checks the structure's own invariant, and that every prefix is found at its place. O(memory).
    fn verify(&self) -> Result<(), Violation>;
    /// Tells `visit` of each node that a lookup of `addr` reads, in order.
    fn trace(&self, addr: A, visit: &mut dyn FnMut(Visit));
    /// The structure laid open. O(memory), several hundred bytes a node: for small tables.
    fn graph(&self) -> Graph;
    /// The nodes that a lookup of `addr` visits, by the indices of [`Trie::graph`]. O(memory).
    fn path(&self, addr: A) -> Vec<PathStep>;
}

/// The statistics of a structure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Prefixes.
    pub prefixes: usize,
    /// Nodes that have children.
    pub internal: usize,
    /// Nodes that have none.
    pub leaves: usize,
    /// Slots for children in internal nodes.
    pub slots: usize,
    /// Slots that lead nowhere.
    pub empty: usize,
    /// Bytes of all nodes, their slots and the prefixes, by the layout that the structure's page documents. They are what lookups can
    /// reach, without the gaps and reserves of the vectors.
    pub bytes: usize,
    /// By the number of internal nodes above, root included: how many nodes there hold prefixes.
    pub depths: Vec<usize>,
    /// By key bits: how many internal nodes have 2^bits slots.
    pub sizes: Vec<usize>,
}

impl Figures {
    /// Nodes above a node that holds prefixes, in the mean; 0 for an empty table.
    pub fn depth_mean(&self) -> f64 {
        let places: usize = self.depths.iter().sum();
        let total: usize = self.depths.iter().enumerate().map(|(depth, count)| depth * count).sum();
        if places == 0 { 0.0 } else { total as f64 / places as f64 }
    }

    /// Nodes above the deepest node that holds prefixes.
    pub fn depth_max(&self) -> usize {
        self.depths.len().saturating_sub(1)
    }
}

/// Counts one at `index`.
fn tally(counts: &mut Vec<usize>, index: usize) {
    if counts.len() <= index {
        counts.resize(index + 1, 0);
    }
    counts[index] += 1;
}

/// A node that a lookup reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// The node's own bytes, and the slot that is read of it.
    pub loads: [Load; 2],
    /// Whether the lookup came here by going back, as [`PathStep::back`].
    pub back: bool,
}

/// Bytes that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The address of the first byte.
    pub address: usize,
    /// The number of bytes; 0: nothing is read.
    pub bytes: usize,
}

impl Load {
    /// Nothing.
    const NONE: Self = Self { address: 0, bytes: 0 };

    /// An element of a vector.
    fn of<T>(item: &T) -> Self {
        Self { address: std::ptr::from_ref(item).addr(), bytes: size_of::<T>() }
    }
}

/// A defect that [`Trie::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{structure}, at {place}: {broken}")]
pub struct Violation {
    /// [`Trie::name`].
    pub structure: &'static str,
    /// The prefix that the node stands for.
    pub place: String,
    /// The property that does not hold.
    pub broken: String,
}
