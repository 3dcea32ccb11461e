//! LPM_TRIE's nodes as the kernel makes them, to count what a lookup touches: the same insertion and the same walk
//! (kernel/bpf/lpm_trie.c), without the kernel.
//!
//! A node is an allocation of its own, of 40 bytes, in objects of 64 that begin on a cache line. It has eight bytes of the allocator's list
//! and two children of eight bytes. Then come prefix length and flags of four each, the four bytes of the address and the value. So a
//! visited node is a line. Which page it lies in is the slab's affair. Counted are pages of an ideal one, in which objects lie side by side
//! in the order of their allocation. A slab in use is less tidy.

use trieline_lpm::{Address, Prefix};

use crate::{experiments::touched::Recorder, tables::kinds::Entry};

/// Bytes of a node's object.
const OBJECT: u32 = 64;
/// Of those, how many a walk reads.
const READ: u32 = 40;
const WIDTH: u16 = u32::WIDTH;

type Child = Option<u32>;

struct Node {
    prefix: Prefix<u32>,
    /// 0 of an intermediate node.
    value: u32,
    children: [Child; 2],
}

/// The trie; a node's index is the number of its allocation.
#[derive(Default)]
pub struct Trie {
    nodes: Vec<Node>,
    root: Child,
}

fn bit(address: u32, at: u16) -> usize {
    address.bits_at(at, 1)
}

impl Trie {
    /// Filled in the order of `entries`.
    pub fn new(entries: &[Entry<u32>]) -> Trie {
        let mut trie = Trie::default();
        for (prefix, value) in entries {
            trie.insert(*prefix, *value);
        }
        trie
    }

    fn allocate(&mut self, prefix: Prefix<u32>, value: u32, children: [Child; 2]) -> Child {
        self.nodes.push(Node { prefix, value, children });
        Some(self.nodes.len() as u32 - 1)
    }

    /// As trie_update_elem.
    fn insert(&mut self, prefix: Prefix<u32>, value: u32) {
        let new = self.allocate(prefix, value, [None; 2]);
        // The node whose child is looked at, and which of its two.
        let (mut parent, mut side) = (None, 0);
        let mut at = self.root;
        let mut same = 0;
        while let Some(node) = at.map(|at| &self.nodes[at as usize]) {
            same = node.prefix.addr().common_bits(prefix.addr()).min(node.prefix.len()).min(prefix.len());
            if node.prefix.len() != same || node.prefix.len() == prefix.len() {
                break;
            }
            side = bit(prefix.addr(), node.prefix.len());
            (parent, at) = (at, node.children[side]);
        }
        let put = match at.map(|at| &self.nodes[at as usize]) {
            None => new,
            // The same prefix: the new node takes its place.
            Some(node) if node.prefix.len() == same => {
                let children = node.children;
                self.set(new, children);
                new
            }
            // The new one lies above.
            Some(node) if prefix.len() == same => {
                let mut children = [None; 2];
                children[bit(node.prefix.addr(), same)] = at;
                self.set(new, children);
                new
            }
            Some(node) => {
                let fork = Prefix::truncated(node.prefix.addr(), same);
                let children = if bit(prefix.addr(), same) == 1 { [at, new] } else { [new, at] };
                self.allocate(fork, 0, children)
            }
        };
        match parent {
            None => self.root = put,
            Some(parent) => self.nodes[parent as usize].children[side] = put,
        }
    }

    fn set(&mut self, node: Child, children: [Child; 2]) {
        if let Some(node) = node {
            self.nodes[node as usize].children = children;
        }
    }

    /// As trie_lookup_elem, with every node recorded.
    pub fn lookup(&self, address: u32, recorder: &mut Recorder) -> u32 {
        let (mut at, mut found) = (self.root, 0);
        while let Some(number) = at {
            recorder.load(number * OBJECT, READ);
            let node = &self.nodes[number as usize];
            let same = node.prefix.addr().common_bits(address).min(node.prefix.len());
            if same < node.prefix.len() {
                break;
            }
            if node.value != 0 {
                found = node.value;
            }
            if same == WIDTH {
                break;
            }
            at = node.children[bit(address, same)];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::touched::Touched;
    use crate::tables::{Random, destinations::random_host, generate::internet, reference::Reference};

    #[test]
    fn it_answers_as_the_reference() {
        let mut random = Random::new(5);
        let mut entries: Vec<Entry<u32>> = internet::<u32>(3000, 5).into_iter().zip(1..).collect();
        // Any order, and prefixes above those that are there.
        entries.sort_unstable_by_key(|(_, value)| value.wrapping_mul(0x9e37_79b1));
        let prefixes: Vec<_> = entries.iter().map(|(prefix, _)| *prefix).collect();
        let trie = Trie::new(&entries);
        let reference = Reference::new(entries);
        for n in 0..5000 {
            let address = if n % 2 == 0 { random.bits() as u32 } else { random_host(&prefixes, &mut random) };
            assert_eq!(trie.lookup(address, &mut Recorder::default()), reference.lookup(address));
        }
    }

    #[test]
    fn dense_hosts_are_a_full_binary_tree() {
        // 256 hosts that differ in the first byte alone: eight forks above each.
        let entries: Vec<Entry<u32>> = (0..256).map(|n: u32| (Prefix::host(n.swap_bytes()), n + 1)).collect();
        let trie = Trie::new(&entries);
        assert_eq!(trie.nodes.len(), 2 * 256 - 1);
        let touched =
            Touched::count(&[0x0700_0000], &[8], |address, recorder| trie.lookup(address, recorder));
        assert_eq!(touched.unwrap().lines_max, 9);
    }
}
