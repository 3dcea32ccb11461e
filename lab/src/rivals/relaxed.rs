//! The relaxed LPC-trie: 2^n ways with gaps, as long as enough of them lead somewhere.
//!
//! A node doubles when (children that would not double + 2 × children that would) / (slots it would then have) is at least the threshold.
//! That is when so many of its slots would then be used. It is cut in half as soon as fewer are. At 100 % it is the perfect LPC-trie
//! ([`lctrie`](super::lctrie)), above that Patricia ([`patricia`](super::patricia)), at 0 % one huge node, as far as there is memory for it. The root may
//! have a threshold of its own, as every lookup reads it: a lower one spends memory once to save a step everywhere.
//!
//! The invariant: in a node of more than two slots at least `threshold` percent are used. In no node would be that many if it doubled
//! (or it ends at the limit). Several shapes may satisfy that, and which one it is depends on the order in which prefixes came. Linux
//! ([`fib`](super::fib)) shrinks at half the threshold only, so that a node on the verge is not rebuilt with every change. Here the
//! threshold alone decides.
//!
//! Source: S. Nilsson, M. Tikkanen, "An Experimental Study of Compression Methods for Dynamic Tries", Algorithmica 2002; the study of
//! thresholds follows M. Asama's talk at Internet Week 2014.

use super::level::{Fill, LevelTrie, Rule};

/// The thresholds of a node's fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Of all nodes but the root, percent.
    pub inner: u32,
    /// Of the root, percent.
    pub root: u32,
    /// No node reaches across a key bit that is a multiple of this. At 0 % it would take all bits there are, 2^32 slots of 4 bytes for
    /// IPv4. Above that the prefixes are the limit, and `u16::MAX` is none.
    pub within: u16,
}

/// As in Linux: half full, and the root less than a third.
impl Default for Threshold {
    fn default() -> Self {
        Self { inner: 50, root: 30, within: u16::MAX }
    }
}

impl Threshold {
    /// The same for all nodes, percent; 0 within 24 bits.
    pub fn all(percent: u32) -> Self {
        Self { inner: percent, root: percent, within: if percent == 0 { 24 } else { u16::MAX } }
    }

    fn of(&self, node: &Fill) -> usize {
        (if node.is_root { self.root } else { self.inner }) as usize
    }
}

impl Rule for Threshold {
    const NAME: &'static str = "relaxed";

    fn doubles(&self, node: &Fill) -> bool {
        100 * (node.used + node.full) >= self.of(node) * 2 * node.slots
            && !node.end.is_multiple_of(self.within)
    }

    fn halves(&self, node: &Fill) -> bool {
        100 * node.used < self.of(node) * node.slots
    }
}

/// A relaxed level- and path-compressed trie.
///
/// ```
/// use trieline_lab::rivals::{Relaxed, Trie, relaxed::Threshold};
/// let sizes = [0, 50, 100, 120].map(|percent| {
///     let mut trie = Relaxed::<u32>::new(Threshold { within: 6, ..Threshold::all(percent) });
///     for key in [0b0000u32, 0b0001, 0b0010, 0b0011, 0b1111] {
///         trie.insert(trieline_lpm::Prefix::host(key << 28), key);
///     }
///     let figures = trie.figures();
///     (figures.internal, figures.slots)
/// });
/// assert_eq!(sizes, [(1, 64), (2, 12), (2, 6), (4, 8)]);
/// ```
pub type Relaxed<A> = LevelTrie<A, Threshold>;
