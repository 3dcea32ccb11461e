//! Patricia, the path-compressed binary trie: nodes on which nothing branches are left out.
//!
//! A node has two ways and stores the position of the key bit it looks at and the value so far, all bits above it. So the bits it skips can
//! be compared on the way. With `n` leaves there are exactly `n` − 1 nodes, however long the keys are. It is the [mechanism](LevelTrie)
//! whose nodes never double, which also explains how prefixes of several lengths are kept.
//!
//! The invariant: every node has one key bit and two children. So the structure is the same whatever order its prefixes came in.
//!
//! Source: D. R. Morrison, "PATRICIA – Practical Algorithm to Retrieve Information Coded in Alphanumeric", JACM 1968, with the value
//! stored as in BSD's and Linux's tables.

use super::level::{Fill, LevelTrie, Rule};

/// Never more than one key bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneBit;

impl Rule for OneBit {
    const NAME: &'static str = "patricia";

    fn doubles(&self, _: &Fill) -> bool {
        false
    }

    fn halves(&self, _: &Fill) -> bool {
        true
    }
}

/// A path-compressed binary trie.
///
/// ```
/// use trieline_lab::rivals::{Patricia, Trie};
/// let mut trie = Patricia::<u32>::default();
/// for key in [0b0000u32, 0b0001, 0b0010, 0b0011, 0b1111] {
///     trie.insert(trieline_lpm::Prefix::host(key << 28), key);
/// }
/// let figures = trie.figures();
/// assert_eq!((figures.internal, figures.leaves, figures.depth_max()), (4, 5, 3));
/// ```
pub type Patricia<A> = LevelTrie<A, OneBit>;
