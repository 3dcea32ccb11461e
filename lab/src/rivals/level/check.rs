//! The properties of every node, leaf and vector of a level-compressed trie.

use super::arena::{Counts, EMPTY, Placed, is_leaf, is_node};
use super::{LevelTrie, Rule};
use crate::rivals::{Figures, Trie, Violation, tally};
use trieline_lpm::{Address, Prefix};

impl<A: Address, R: Rule> LevelTrie<A, R> {
    /// The whole trie.
    pub(super) fn check(&self) -> Result<(), Violation> {
        let broken = |prefix: Prefix<A>, what: &str| Violation {
            structure: R::NAME,
            place: prefix.to_string(),
            broken: what.into(),
        };
        let all = self.arena.by_depth();
        for placed in &all {
            let key = self.arena.key(placed.at);
            let (len, found) = match is_leaf(placed.at) {
                true => (A::WIDTH, self.check_leaf(placed)),
                false => (self.arena.node(placed.at).at(), self.check_node(placed)),
            };
            self.check_place(placed).and(found).map_err(|what| broken(Prefix::truncated(key, len), what))?;
        }
        let nodes = all.iter().filter(|placed| is_node(placed.at)).map(|placed| self.arena.node(placed.at));
        let (nodes, slots) = nodes.fold((0, 0), |(nodes, slots), node| (nodes + 1, slots + node.slots()));
        let leaves = all.iter().filter(|placed| is_leaf(placed.at));
        let entries = leaves.map(|placed| self.arena.leaf(placed.at).count()).sum();
        if self.arena.used() != (nodes, slots, entries) {
            let whole = Prefix::truncated(A::ZERO, 0);
            return Err(broken(whole, "nodes, slots or prefixes that are neither in the trie nor free"));
        }
        Ok(())
    }

    /// That a node or leaf is where its key belongs.
    fn check_place(&self, placed: &Placed) -> Result<(), &'static str> {
        let (key, up) = (self.arena.key(placed.at), self.arena.node(placed.place.0));
        if key.common_bits(up.key) < up.at() {
            return Err("the key does not begin with the one above");
        }
        if key.bits_at(up.at(), up.bits()) != placed.place.1 {
            return Err("the key does not lead to this slot");
        }
        if is_node(placed.at) && self.arena.node(placed.at).parent != placed.place.0 {
            return Err("the node names another one as the one above");
        }
        Ok(())
    }

    fn check_leaf(&self, placed: &Placed) -> Result<(), &'static str> {
        let key = self.arena.key(placed.at);
        let mut above = A::WIDTH + 1;
        for entry in self.arena.leaf(placed.at) {
            if entry.key != key || entry.len > A::WIDTH || key.masked(entry.len) != key {
                return Err("a prefix that does not begin at the leaf's address");
            }
            if entry.len >= above {
                return Err("the leaf's prefixes do not become shorter one by one");
            }
            above = entry.len;
            if self.get(&Prefix::truncated(key, entry.len)) != Some(entry.value) {
                return Err("a prefix is not found at its place");
            }
        }
        let longest = self.arena.entry(placed.at);
        if self.lookup(key) != Some((Prefix::truncated(key, longest.len), longest.value)) {
            return Err("the leaf's address is not answered by its longest prefix");
        }
        Ok(())
    }

    fn check_node(&self, placed: &Placed) -> Result<(), &'static str> {
        let node = self.arena.node(placed.at);
        let up = self.arena.node(placed.place.0);
        if node.bits() == 0 || node.at() < up.end() || node.end() > A::WIDTH {
            return Err("its key bits are not between those above and the key's end");
        }
        if node.key.masked(node.at()) != node.key {
            return Err("its key goes on behind the bits above it");
        }
        let children = (0..node.slots()).map(|index| self.arena.slot(node, index));
        let mut counts = Counts::default();
        let mut shortest = node.end();
        for child in children {
            counts.empty += u32::from(child == EMPTY);
            counts.full += u32::from(self.arena.is_full(node.end(), child));
            if child != EMPTY {
                shortest = shortest.min(self.arena.shortest(child));
            }
        }
        if counts != self.arena.counts(placed.at) {
            return Err("empty slots or full children are miscounted");
        }
        if shortest != node.shortest {
            return Err("the shortest prefix below is another one");
        }
        // A visit that doubles does not look for a lone child: Linux may leave one until the next.
        if node.slots() - (counts.empty as usize) < if R::SETTLES { 2 } else { 1 } {
            return Err("too few children");
        }
        if R::SETTLES && !self.is_settled(placed.at) {
            return Err("the rule wants another number of bits");
        }
        Ok(())
    }

    /// The figures.
    pub(super) fn count(&self) -> Figures {
        let mut figures = Figures { prefixes: self.arena.entries(), ..Figures::default() };
        for placed in self.arena.by_depth() {
            if is_leaf(placed.at) {
                figures.leaves += 1;
                tally(&mut figures.depths, placed.depth);
            } else {
                let node = self.arena.node(placed.at);
                figures.internal += 1;
                figures.slots += node.slots();
                figures.empty += self.arena.counts(placed.at).empty as usize;
                tally(&mut figures.sizes, node.bits().into());
            }
        }
        let sizes = self.rule.sizes(self.arena.sizes());
        figures.bytes = sizes.node * figures.internal
            + sizes.slot * figures.slots
            + sizes.leaf * figures.leaves
            + sizes.prefix * figures.prefixes;
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::{Arena, HEAD};
    use crate::rivals::{LcTrie, Trie};
    use trieline_lpm::{Address, Prefix};

    /// The result of `verify` for the keys 00 to 11 and a shorter prefix after some damage.
    fn after(damage: impl FnOnce(&mut Arena<u32>)) -> String {
        let mut trie = LcTrie::<u32>::default();
        for key in 0..4u32 {
            trie.insert(Prefix::host(u32::from_index(key as usize, 2)), key);
        }
        trie.insert(Prefix::truncated(0, 1), 9);
        trie.verify().unwrap();
        damage(&mut trie.arena);
        trie.verify().unwrap_err().broken
    }

    /// The root, the only node.
    fn root(arena: &Arena<u32>) -> u32 {
        arena.slot(arena.node(HEAD), 0)
    }

    #[test]
    fn damage_is_noticed() {
        let slot = |arena: &Arena<u32>, index| arena.slot(arena.node(root(arena)), index);
        let error_text = after(|arena| {
            let (one, two) = (slot(arena, 1), slot(arena, 2));
            arena.put(root(arena), 1, two);
            arena.put(root(arena), 2, one);
        });
        assert_eq!(error_text, "the key does not lead to this slot");
        let error_text = after(|arena| arena.put(root(arena), 3, 0));
        assert_eq!(error_text, "the rule wants another number of bits");
        let error_text = after(|arena| {
            let first = slot(arena, 0);
            arena.entry_mut(first).next = 0;
        });
        assert_eq!(error_text, "the shortest prefix below is another one");
        let error_text = after(|arena| {
            let first = slot(arena, 0);
            arena.entry_mut(first).len = 1;
        });
        assert_eq!(error_text, "the leaf's prefixes do not become shorter one by one");
        let error_text = after(|arena| {
            let first = slot(arena, 1);
            arena.entry_mut(first).len = 1;
        });
        assert_eq!(error_text, "a prefix that does not begin at the leaf's address");
        let error_text = after(|arena| {
            arena.add_node(0, 0, 1);
        });
        assert_eq!(error_text, "nodes, slots or prefixes that are neither in the trie nor free");
    }
}
