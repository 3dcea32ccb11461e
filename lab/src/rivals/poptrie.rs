//! Poptrie, the fastest published software structure for Internet tables that is small and updatable: the rival to beat.
//!
//! Source: H. Asai, Y. Ohara, "Poptrie: A Compressed Trie with Population Count for Fast and Scalable Software IP Routing Table
//! Lookup", SIGCOMM 2015. Written from the paper's text:
//!
//! - *Direct pointing* (section 3.4): the first `S` bits (18, as in the paper's fastest variant) index an array of 32-bit words. One
//!   whose top bit is set is a leaf, any other names a node.
//! - *Nodes* of 24 bytes take six bits a step. `vector` marks which of the 64 slots lead to a node, `leafvec` where a run of equal leaves
//!   begins (section 3.3). The children of each kind stand one after another from `base1` and `base0` on.
//! - *Leaves* are 16-bit indices of a table of the distinct values, as the original's FIB entries. If there are more than 65,535 values,
//!   leaves are the 32-bit values themselves.
//! - *Updates* (section 3.5): a binary radix tree (the RIB) stands beside it. A change builds new arrays from there for all that the prefix
//!   can reach, keeps the rest, and swings the node above to them. The paper lets readers run meanwhile and does not wait for them. Here
//!   a change borrows exclusively, so that the old arrays are free at once, which is in its favour.
//!
//! Sizes: [`Poptrie::bytes`] is the direct array, the node and leaf arrays with the holes that updates have left in them, and the table of
//! values. [`Poptrie::bytes_total`] adds the radix tree and the lists of holes, with the capacities that the vectors hold in reserve.

mod pool;
mod rib;
mod update;

use pool::Pool;
use rib::Rib;
use std::collections::BTreeMap;
use trieline_lpm::image::layout::VALUE_MAX;
use trieline_lpm::{Address, Error, Prefix};

/// Address bits that one node takes.
const STRIDE: u16 = 6;
/// Slots of a node.
const SLOTS: usize = 1 << STRIDE;
/// Marks a word of the direct array as a leaf.
const LEAF: u32 = 1 << 31;
/// Address bits that index the direct array unless asked otherwise.
pub const DIRECT_BITS: u16 = 18;
/// Most distinct values, 0 (none) among them, that 16-bit leaves can name.
const NARROW_MAX: usize = 1 << 16;

/// An inner node: 24 bytes, as in the original.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Node {
    /// Slots that lead to a node.
    vector: u64,
    /// Slots at which a run of equal leaves begins.
    leafvec: u64,
    /// Index of the first leaf.
    base0: u32,
    /// Index of the first child node.
    base1: u32,
}

/// A Poptrie; values are 1 ... 2^31−1.
///
/// ```
/// use trieline_lab::rivals::Poptrie;
/// let table = [("10.0.0.0/8".parse()?, 1), ("10.1.0.0/16".parse()?, 2)];
/// let mut poptrie = Poptrie::<u32>::build(table)?;
/// assert_eq!(poptrie.lookup(0x0a01_0001), Some(2));
/// poptrie.remove(&"10.1.0.0/16".parse()?);
/// assert_eq!((poptrie.lookup(0x0a01_0001), poptrie.lookup(0x0b00_0000)), (Some(1), None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Poptrie<A: Address> {
    bits: u16,
    direct: Vec<u32>,
    nodes: Pool<Node>,
    leaves: Pool<u16>,
    wide_leaves: Pool<u32>,
    /// Leaves are values, not indices.
    wide: bool,
    /// The value of every index; 0 first.
    values: Vec<u32>,
    /// The index of every value.
    codes: BTreeMap<u32, u16>,
    rib: Rib<A>,
}

impl<A: Address> Poptrie<A> {
    /// Builds it from prefixes in any order; of equal ones the last counts. O(n) if sorted, else O(n × length). An error for a
    /// value outside 1 ... 2^31−1.
    pub fn build(prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>) -> Result<Self, Error> {
        Self::with_direct_bits(DIRECT_BITS, prefixes)
    }

    /// The same with a direct array of 2^`bits` words, `bits` being held between 1 and 24 and below the address's width.
    pub fn with_direct_bits(
        bits: u16,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<Self, Error> {
        let bits = bits.clamp(1, A::WIDTH.clamp(2, 25) - 1);
        let mut poptrie = Self {
            bits,
            direct: Vec::new(),
            nodes: Pool::default(),
            leaves: Pool::default(),
            wide_leaves: Pool::default(),
            wide: false,
            values: vec![0],
            codes: BTreeMap::new(),
            rib: Rib::default(),
        };
        for (prefix, value) in prefixes {
            check(value)?;
            poptrie.rib.append(prefix, value);
        }
        poptrie.rebuild();
        Ok(poptrie)
    }

    /// The value of the longest prefix that contains `addr`. At most 1 + (width − S) / 6 steps and a leaf.
    ///
    /// Compile the caller with the popcnt instruction enabled, or use [`Poptrie::lookup_batch`], which looks for it: counting bits
    /// without it takes about twice the time.
    #[inline]
    pub fn lookup(&self, addr: A) -> Option<u32> {
        let value = self.find(addr);
        (value != 0).then_some(value)
    }

    /// Looks up each of `addrs`, one after another as the paper does, into `values`; 0 = none. Panics if their lengths differ.
    pub fn lookup_batch(&self, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "a value for every address");
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("popcnt") && std::is_x86_feature_detected!("bmi2") {
            // SAFETY: the CPU has these instructions.
            return unsafe { self.batch_with_popcnt(addrs, values) };
        }
        self.batch(addrs, values);
    }

    /// [`Poptrie::batch`] compiled for CPUs that count bits by an instruction.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt,bmi1,bmi2")]
    fn batch_with_popcnt(&self, addrs: &[A], values: &mut [u32]) {
        self.batch(addrs, values);
    }

    #[inline(always)]
    fn batch(&self, addrs: &[A], values: &mut [u32]) {
        for (addr, value) in addrs.iter().zip(values) {
            *value = self.find(*addr);
        }
    }

    /// As [`Poptrie::lookup`]; 0 = none.
    #[inline(always)]
    fn find(&self, addr: A) -> u32 {
        // SAFETY: the array has 2^bits words and `bits_at` yields a number below that.
        let word = unsafe { *self.direct.get_unchecked(addr.bits_at(0, self.bits)) };
        if word & LEAF != 0 {
            return word & !LEAF;
        }
        let mut at = word;
        let mut depth = self.bits;
        // Ten steps to a word of the key. Nodes end before the key does (`update::Builder::node`), so the loop does.
        loop {
            let mut key = addr.word_at(depth);
            for _ in 0..64 / STRIDE {
                let slot = (key >> (64 - STRIDE)) as u32;
                key <<= STRIDE;
                // SAFETY: `at` comes from the direct array or from a base plus the rank of a set bit of `vector`. Both name nodes
                // that `update` has put there, and it frees none that is still named.
                let node = unsafe { self.nodes.get(at) };
                // Bits after `slot` fall out, and its own becomes the sign.
                let children = node.vector << (63 - slot);
                if children >> 63 == 0 {
                    let rank = (node.leafvec << (63 - slot)).count_ones();
                    let leaf = node.base0.wrapping_add(rank).wrapping_sub(1);
                    // SAFETY: the first leaf of a node starts a run. So its rank is at least 1 and at most the length of the array at
                    // `base0`. Indices in it are below the number of values, which only grows.
                    return unsafe {
                        if self.wide {
                            *self.wide_leaves.get(leaf)
                        } else {
                            *self.values.get_unchecked(usize::from(*self.leaves.get(leaf)))
                        }
                    };
                }
                at = node.base1 + children.count_ones() - 1;
            }
            depth += 64 / STRIDE * STRIDE;
        }
    }

    /// The value of exactly this prefix. O(length).
    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        self.rib.get(prefix)
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rib.len() == 0
    }

    /// Bytes of what a lookup reads, holes included.
    pub fn bytes(&self) -> usize {
        4 * (self.direct.len() + self.values.len())
            + self.nodes.bytes()
            + self.leaves.bytes()
            + self.wide_leaves.bytes()
    }

    /// Bytes of everything it keeps: [`Poptrie::bytes`], the radix tree, the lists of holes and what its vectors hold in reserve.
    /// The map from values to indices is taken as 8 bytes a value.
    pub fn bytes_total(&self) -> usize {
        4 * (self.direct.capacity() + self.values.capacity())
            + 8 * self.codes.len()
            + self.nodes.bytes_total()
            + self.leaves.bytes_total()
            + self.wide_leaves.bytes_total()
            + self.rib.bytes()
    }
}

fn check(value: u32) -> Result<(), Error> {
    if (1..=VALUE_MAX).contains(&value) { Ok(()) } else { Err(Error::Value { value }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_large_as_the_original_s() {
        assert_eq!(size_of::<Node>(), 24);
    }

    #[test]
    fn values_past_sixteen_bits_of_them_make_wide_leaves() {
        let prefixes = (0..70_000u32).map(|n| (Prefix::host(n << 8), n + 1));
        let mut table = Poptrie::<u32>::build(prefixes.clone().take(65_535)).unwrap();
        assert!(!table.wide);
        for (prefix, value) in prefixes.clone().skip(65_535) {
            assert_eq!(table.insert(prefix, value).unwrap(), None);
        }
        assert!(table.wide && table.leaves.bytes() == 0);
        for (prefix, value) in prefixes {
            assert_eq!(table.lookup(prefix.addr()), Some(value));
            assert_eq!(table.lookup(prefix.addr() + 1), None);
        }
    }

    #[test]
    fn values_come_and_go_without_end() {
        let host = Prefix::<u32>::host(7);
        let mut table = Poptrie::<u32>::build([]).unwrap();
        for value in 1..200_000 {
            table.insert(host, value).unwrap();
        }
        assert_eq!((table.lookup(7), table.wide), (Some(199_999), false));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let any = Prefix::truncated(0u32, 0);
        assert!(Poptrie::<u32>::build([(any, 0)]).is_err());
        let mut table = Poptrie::<u32>::build([(any, VALUE_MAX)]).unwrap();
        assert!(table.insert(any, 1 << 31).is_err());
        assert_eq!(table.lookup(1), Some(VALUE_MAX));
    }

    #[test]
    fn an_emptied_table_holds_no_node() {
        let prefixes = |n: u32| Prefix::truncated(n.wrapping_mul(0x9e37_79b9), (n % 33) as u16);
        let mut table = Poptrie::<u32>::build([]).unwrap();
        for n in 0..5000 {
            table.insert(prefixes(n), n + 1).unwrap();
        }
        for n in 0..5000 {
            table.remove(&prefixes(n));
        }
        assert!(table.is_empty());
        assert_eq!((table.nodes.used(), table.leaves.used(), table.rib.nodes()), (0, 0, 1));
    }
}
