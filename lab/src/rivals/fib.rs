//! Linux's `fib_trie` (since 2.6.39), the relaxed LPC-trie that the kernel's IPv4 routes are in, as it grows and shrinks there.
//!
//! It is the [mechanism](LevelTrie) by the kernel's rule. A node doubles if at least 50 % of the slots that it would then have are used,
//! the root at 30 %. It is cut in half if fewer than 25 % are, the root at 15 %. Between the two nothing happens, so that routes that come
//! and go do not rebuild nodes each time. Every insert and remove visits the nodes from the changed leaf up to the root. A visit doubles or
//! halves at most ten times, never both, and visits the children that came out of it. The rest waits for the next.
//!
//! So the shape depends on the order in which routes came, and is the kernel's to the node when it is the same. `lab`'s experiment `tries`
//! compares it with `/proc/net/fib_triestat`. Bytes are counted as there: 40 a node (`TNODE_SIZE(0)`), 8 a slot, 48 a leaf (`LEAF_SIZE`),
//! 56 a prefix (`struct fib_alias`), on 64-bit machines.
//!
//! The invariant: every node's counters of empty slots and full children, by which it doubles and halves, and its shortest prefix below
//! (`slen`) are right. Every node has a child; mostly two, but a visit that doubles does not look for a lone one.
//!
//! Kept from Linux is what it does, in a memory layout of our own ([`LevelTrie`]). Left out is what is beside longest-prefix match: service
//! types, priorities, scopes. Linux has it for IPv4 only; nothing in it is.
//!
//! Source: Linux, `net/ipv4/fib_trie.c`: `resize`, `should_inflate`, `should_halve`, `should_collapse`, `fib_table_lookup`,
//! `trie_show_stats`.

use super::level::{Fill, LevelTrie, Rule, Sizes};

/// The kernel's thresholds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel;

impl Rule for Kernel {
    const NAME: &'static str = "fib";
    const SETTLES: bool = false;

    fn doubles(&self, node: &Fill) -> bool {
        100 * (node.used + node.full) >= if node.is_root { 30 } else { 50 } * 2 * node.slots
    }

    fn halves(&self, node: &Fill) -> bool {
        100 * node.used < if node.is_root { 15 } else { 25 } * node.slots
    }

    fn sizes(&self, _: Sizes) -> Sizes {
        Sizes { node: 40, slot: 8, leaf: 48, prefix: 56 }
    }
}

/// The kernel's trie of routes.
///
/// ```
/// use trieline_lab::rivals::{Fib, Trie};
/// let mut trie = Fib::<u32>::default();
/// let routes = ["172.16.0.0/16", "172.16.0.0/24", "192.168.0.0/16", "192.168.64.0/18", "192.168.128.0/18"];
/// for (number, route) in (1..).zip(routes) {
///     trie.insert(route.parse()?, number);
/// }
/// // Down to 192.168.128.0/18, which ends at .191, and back to 192.168.0.0/16.
/// assert_eq!(trie.lookup(0xc0a8_c07b), Some(("192.168.0.0/16".parse()?, 3)));
/// assert_eq!(trie.figures().leaves, 4, "both of 172.16.0.0 are one leaf");
/// # Ok::<(), trieline_lpm::PrefixError>(())
/// ```
pub type Fib<A> = LevelTrie<A, Kernel>;
