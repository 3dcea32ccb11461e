//! The routes behind a Poptrie: a binary radix tree without path compression, as the original keeps one, in one vector.

use trieline_lpm::{Address, Prefix};

/// No such node; the root is nobody's child.
pub(super) const NONE: u32 = 0;

/// A node; its depth is the length of its prefix.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RibNode {
    /// The nodes for a next bit of 0 and 1; of a free node, the next free one.
    pub child: [u32; 2],
    /// The prefix's value; 0 = no prefix ends here.
    pub value: u32,
}

impl RibNode {
    pub fn is_inner(&self) -> bool {
        self.child != [NONE; 2]
    }
}

/// The tree: 12 bytes a node. (The original's has pointers and inherited routes in every node: about 136 MB for a full table.)
#[derive(Clone, Debug)]
pub(super) struct Rib<A> {
    nodes: Vec<RibNode>,
    free: u32,
    unused: usize,
    len: usize,
    /// The nodes from the root down to the last prefix looked for.
    path: Vec<u32>,
    last: A,
}

impl<A: Address> Default for Rib<A> {
    fn default() -> Self {
        Self { nodes: vec![RibNode::default()], free: NONE, unused: 0, len: 0, path: vec![0], last: A::ZERO }
    }
}

impl<A: Address> Rib<A> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn node(&self, at: u32) -> RibNode {
        self.nodes[at as usize]
    }

    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        let mut at = 0;
        for depth in 0..prefix.len() {
            at = self.node(at).child[prefix.addr().bits_at(depth, 1)];
            if at == NONE {
                return None;
            }
        }
        Some(self.node(at).value).filter(|value| *value != 0)
    }

    /// Adds a prefix or changes its value; the value that was there, 0 = none. The way down starts where the last one still agrees,
    /// so that sorted prefixes cost only the nodes they add.
    pub fn append(&mut self, prefix: Prefix<A>, value: u32) -> u32 {
        let shared = usize::from(self.last.common_bits(prefix.addr()).min(prefix.len()));
        self.path.truncate(shared + 1);
        self.last = prefix.addr();
        for depth in self.path.len() as u16 - 1..prefix.len() {
            // Never empty: the root stays.
            let above = self.path[usize::from(depth)];
            let bit = prefix.addr().bits_at(depth, 1);
            let mut at = self.node(above).child[bit];
            if at == NONE {
                at = self.add();
                self.nodes[above as usize].child[bit] = at;
            }
            self.path.push(at);
        }
        let node = &mut self.nodes[self.path[usize::from(prefix.len())] as usize];
        let old = std::mem::replace(&mut node.value, value);
        self.len += usize::from(old == 0);
        old
    }

    /// Removes a prefix and the nodes that only it needed; the value that was there, 0 = none. Its path then ends at the deepest node
    /// that is left.
    pub fn remove(&mut self, prefix: &Prefix<A>) -> u32 {
        self.path.truncate(1);
        self.last = prefix.addr();
        for depth in 0..prefix.len() {
            let at = self.node(self.path[usize::from(depth)]).child[prefix.addr().bits_at(depth, 1)];
            if at == NONE {
                return 0;
            }
            self.path.push(at);
        }
        let node = &mut self.nodes[self.path[usize::from(prefix.len())] as usize];
        let old = std::mem::take(&mut node.value);
        if old == 0 {
            return 0;
        }
        self.len -= 1;
        while let [.., above, at] = self.path[..] {
            let node = self.node(at);
            if node.value != 0 || node.is_inner() {
                break;
            }
            self.path.pop();
            let bit = prefix.addr().bits_at(self.path.len() as u16 - 1, 1);
            self.nodes[above as usize].child[bit] = NONE;
            self.nodes[at as usize] = RibNode { child: [self.free, NONE], value: 0 };
            self.free = at;
            self.unused += 1;
        }
        old
    }

    fn add(&mut self) -> u32 {
        if self.free == NONE {
            self.nodes.push(RibNode::default());
            return self.nodes.len() as u32 - 1;
        }
        let at = self.free;
        self.free = self.nodes[at as usize].child[0];
        self.nodes[at as usize] = RibNode::default();
        self.unused -= 1;
        at
    }

    /// The longest value on the path among its first `depth` + 1 nodes; 0 = none.
    pub fn inherited(&self, depth: u16) -> u32 {
        let upper = &self.path[..self.path.len().min(usize::from(depth) + 1)];
        upper.iter().rev().map(|at| self.node(*at).value).find(|value| *value != 0).unwrap_or(0)
    }

    /// The path's node of `depth` bits, if it goes so far.
    pub fn on_path(&self, depth: u16) -> Option<u32> {
        self.path.get(usize::from(depth)).copied()
    }

    /// Gives back what the vector holds in reserve, after a build.
    pub fn shrink(&mut self) {
        self.nodes.shrink_to_fit();
    }

    /// Nodes in use, the root included.
    #[cfg(test)]
    pub fn nodes(&self) -> usize {
        self.nodes.len() - self.unused
    }

    /// The values of all prefixes.
    pub fn values(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.iter().map(|node| node.value).filter(|value| *value != 0)
    }

    pub fn bytes(&self) -> usize {
        size_of::<RibNode>() * self.nodes.capacity() + 4 * self.path.capacity()
    }
}
