//! The fewest prefixes that answer every address as a given table does.

use crate::{Address, Prefix};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// The fewest prefixes with the same answer for every address, in order. Addresses that no prefix covers stay uncovered. Where
/// several results are as small, prefixes keep the value they had.
///
/// Source: R. Draves, C. King, S. Venkatachary, B. Zill, "Constructing optimal IP routing tables", IEEE INFOCOM 1999 (ORTC). Two
/// things are added. A part of the trie with an uncovered address must not get a prefix at its top. Such a part has the empty set of
/// candidates, and its halves are solved on their own. And chains without branches are one step, so that the trie has O(n) nodes.
///
/// O(n · `WIDTH`) steps, O(n) memory. Unsorted prefixes are sorted first; of equal ones the last counts.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let table = [(p("10.0.0.0/9"), 1), (p("10.128.0.0/9"), 1), (p("10.1.0.0/16"), 1), (p("10.2.0.0/16"), 2)];
/// assert_eq!(ops::aggregate(table), [(p("10.0.0.0/8"), 1), (p("10.2.0.0/16"), 2)]);
/// ```
pub fn aggregate<A: Address, V: Ord + Clone>(
    prefixes: impl IntoIterator<Item = (Prefix<A>, V)>,
) -> Vec<(Prefix<A>, V)> {
    let mut numbers = BTreeMap::new();
    let mut values = Vec::new();
    let mut entries: Vec<(Prefix<A>, u32)> = prefixes
        .into_iter()
        .map(|(prefix, value)| {
            let number = *numbers.entry(value).or_insert_with_key(|value| {
                values.push(value.clone());
                values.len() as u32 // from 1: 0 is NONE
            });
            (prefix, number)
        })
        .collect();
    if !entries.is_sorted_by(|(one, _), (two, _)| one < two) {
        entries.sort_by_key(|(prefix, _)| *prefix);
        entries.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 = next.1;
            }
            is_same
        });
    }
    let trie = trie(&entries);
    let mut fewest = place(&trie, &candidates(&trie, values.len()));
    fewest.sort_unstable_by_key(|(prefix, _)| *prefix);
    fewest.into_iter().map(|(prefix, number)| (prefix, values[number as usize - 1].clone())).collect()
}

/// The value number that stands for "no prefix covers it".
const NONE: u32 = 0;
/// No such node, no such item.
const NIL: u32 = u32::MAX;

/// A prefix of the table, or the place where two of its prefixes part.
struct Node<A> {
    prefix: Prefix<A>,
    /// The value of its own or the nearest prefix above.
    value: u32,
    /// The next nodes in its halves, or `NIL`. A node without a prefix of the table has both.
    children: [u32; 2],
}

/// The compressed binary trie of sorted `entries`: parents before children.
fn trie<A: Address>(entries: &[(Prefix<A>, u32)]) -> Vec<Node<A>> {
    let mut nodes: Vec<Node<A>> = Vec::with_capacity(2 * entries.len());
    let mut todo = vec![(entries, NIL, 0)];
    while let Some((inside, parent, half)) = todo.pop() {
        let ([(first, value), rest @ ..], Some((last, _))) = (inside, inside.last()) else { continue };
        let shared = first.addr().common_bits(last.addr());
        let above = nodes.get(parent as usize).map_or(NONE, |parent| parent.value);
        let (len, value, rest) =
            if first.len() <= shared { (first.len(), *value, rest) } else { (shared, above, inside) };
        let at = nodes.len() as u32;
        if let Some(parent) = nodes.get_mut(parent as usize) {
            parent.children[half] = at;
        }
        nodes.push(Node { prefix: Prefix::truncated(first.addr(), len), value, children: [NIL; 2] });
        let (left, right) =
            rest.split_at(rest.partition_point(|(prefix, _)| prefix.addr().bits_at(len, 1) == 0));
        todo.extend([(right, at, 1), (left, at, 0)]);
    }
    nodes
}

/// A set of value numbers: part of a list in [`Sets`], or empty (`NIL`) for a part of the trie with uncovered addresses.
#[derive(Clone, Copy)]
struct Set {
    first: u32,
    last: u32,
}

const UNCOVERED: Set = Set { first: NIL, last: NIL };

/// The nodes' sets as linked lists. A union links two lists into one; both stay parts of it, and it costs no memory. An intersection is a
/// new list, but at most half as long as the two lists, which no later set uses. So all of them together take O(n).
struct Sets {
    /// Value number and next item.
    items: Vec<(u32, u32)>,
    /// By value number: in which call of `meet` it was seen last.
    seen: Vec<u32>,
    round: u32,
}

impl Sets {
    fn one(&mut self, value: u32) -> Set {
        let at = self.items.len() as u32;
        self.items.push((value, NIL));
        Set { first: at, last: at }
    }

    fn values(&self, set: Set) -> impl Iterator<Item = u32> {
        let mut at = set.first;
        core::iter::from_fn(move || {
            let (value, next) = *self.items.get(at as usize)?;
            at = if at == set.last { NIL } else { next };
            Some(value)
        })
    }

    fn contains(&self, set: Set, value: u32) -> bool {
        self.values(set).any(|other| other == value)
    }

    fn join(&mut self, left: Set, right: Set) -> Set {
        self.items[left.last as usize].1 = right.first;
        Set { first: left.first, last: right.last }
    }

    /// The values of one prefix over two halves that leave the fewest more to place: the intersection, else the union.
    fn meet(&mut self, left: Set, right: Set) -> Set {
        if left.first == NIL || right.first == NIL {
            return UNCOVERED;
        }
        self.round += 1;
        let mut at = left.first;
        while let Some((value, next)) = self.items.get(at as usize) {
            self.seen[*value as usize] = self.round;
            at = if at == left.last { NIL } else { *next };
        }
        let mut common: Option<Set> = None;
        let mut at = right.first;
        while let Some(&(value, next)) = self.items.get(at as usize) {
            if self.seen[value as usize] == self.round {
                let one = self.one(value);
                common = Some(common.map_or(one, |common| self.join(common, one)));
            }
            at = if at == right.last { NIL } else { next };
        }
        common.unwrap_or_else(|| self.join(left, right))
    }

    /// The set of a node `steps` above one with `set`, when beside the way down everything has `value`.
    fn lift(&mut self, set: Set, steps: u16, value: u32) -> Set {
        match steps {
            0 => set,
            _ if value == NONE => UNCOVERED,
            // The second step finds `value` below and beside it: the intersection is that alone.
            1 if !self.contains(set, value) => {
                let beside = self.one(value);
                self.join(set, beside)
            }
            _ => self.one(value),
        }
    }
}

/// For every node, the values that a prefix there may have in a smallest table; from the leaves up.
fn candidates<A: Address>(nodes: &[Node<A>], values: usize) -> (Sets, Vec<Set>) {
    let mut sets = Sets { items: Vec::with_capacity(nodes.len()), seen: vec![0; values + 1], round: 0 };
    let mut of_node = vec![UNCOVERED; nodes.len()];
    for (at, node) in nodes.iter().enumerate().rev() {
        let steps = |child: u32| nodes[child as usize].prefix.len() - node.prefix.len();
        of_node[at] = match node.children {
            [NIL, NIL] => sets.one(node.value),
            [child, NIL] | [NIL, child] => sets.lift(of_node[child as usize], steps(child), node.value),
            [left, right] => {
                let [left, right] = [left, right]
                    .map(|child| sets.lift(of_node[child as usize], steps(child) - 1, node.value));
                sets.meet(left, right)
            }
        };
    }
    (sets, of_node)
}

/// From the root down: a prefix wherever the value from above is not a candidate.
fn place<A: Address>(nodes: &[Node<A>], (sets, of_node): &(Sets, Vec<Set>)) -> Vec<(Prefix<A>, u32)> {
    let mut placed = Vec::new();
    let mut todo = Vec::new();
    // Nothing covers the root's surroundings.
    todo.extend((!nodes.is_empty()).then_some((0, NONE)));
    while let Some((at, above)) = todo.pop() {
        let (node, set): (&Node<A>, Set) = (&nodes[at as usize], of_node[at as usize]);
        // Goes from a node at `len` bits, whose value from above is `above`, down to the next node.
        let mut descend = |child: u32, len: u16, above: u32, placed: &mut Vec<_>| {
            let below = nodes[child as usize].prefix;
            let candidates = of_node[child as usize];
            let steps = below.len() - len;
            let is_candidate = |value| sets.contains(candidates, value);
            let value = match steps {
                0 => above,
                _ if node.value == NONE => NONE,
                1 if above != node.value && is_candidate(above) && !is_candidate(node.value) => {
                    placed.push((sibling(below), node.value));
                    above
                }
                _ => {
                    if above != node.value {
                        placed.push((Prefix::truncated(below.addr(), len), node.value));
                    }
                    node.value
                }
            };
            todo.push((child, value));
        };
        let len = node.prefix.len();
        if let [child, NIL] | [NIL, child] = node.children
            && child != NIL
        {
            descend(child, len, above, &mut placed);
            continue;
        }
        let value = if set.first == NIL {
            NONE
        } else if sets.contains(set, above) {
            above
        } else {
            let own = sets.contains(set, node.value);
            let value = if own { node.value } else { sets.items[set.first as usize].0 };
            placed.push((node.prefix, value));
            value
        };
        for child in node.children {
            if child != NIL {
                descend(child, len + 1, value, &mut placed);
            }
        }
    }
    placed
}

/// The other half of the prefix that is one bit shorter.
fn sibling<A: Address>(prefix: Prefix<A>) -> Prefix<A> {
    let parent = Prefix::truncated(prefix.addr(), prefix.len() - 1);
    let (one, two) = (parent.addr(), parent.last());
    Prefix::truncated(if prefix.contains(one) { two } else { one }, prefix.len())
}
