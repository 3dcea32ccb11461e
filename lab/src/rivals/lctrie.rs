//! The perfect LPC-trie (level and path compressed): a node has 2^n ways where every one of them leads somewhere.
//!
//! Patricia still takes a step a bit where keys are dense. There, nodes are drawn together: as long as all children of a node are nodes that
//! skip nothing, it takes their key bit too. So the last level of a dense part is one step, but a single missing key keeps a node small.
//!
//! The invariant: a node of more than two slots has none empty, and no node could double and have none empty. So the structure is the same
//! whatever order its prefixes came in. It is the [mechanism](LevelTrie) with the threshold 100 % for growing as for shrinking, which also
//! explains how prefixes of several lengths are kept.
//!
//! Source: A. Andersson, S. Nilsson, "Improved Behaviour of Tries by Adaptive Branching", IPL 1993.

use super::level::{Fill, LevelTrie, Rule};

/// All slots lead somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Complete;

impl Rule for Complete {
    const NAME: &'static str = "lctrie";

    fn doubles(&self, node: &Fill) -> bool {
        node.full == node.slots
    }

    fn halves(&self, node: &Fill) -> bool {
        node.used < node.slots
    }
}

/// A perfect level- and path-compressed trie.
///
/// ```
/// use trieline_lab::rivals::{LcTrie, Trie};
/// let mut trie = LcTrie::<u32>::default();
/// for key in [0b0000u32, 0b0001, 0b0010, 0b0011, 0b1111] {
///     trie.insert(trieline_lpm::Prefix::host(key << 28), key);
/// }
/// // 00xx is one node of four ways.
/// let figures = trie.figures();
/// assert_eq!((figures.internal, figures.sizes[2], figures.depth_max()), (2, 1, 2));
/// ```
pub type LcTrie<A> = LevelTrie<A, Complete>;
