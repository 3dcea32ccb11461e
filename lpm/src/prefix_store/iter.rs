//! Iteration in order from both ends: each end holds the rest of one bucket and, when that is used up, seeks the next by key.

use super::node::{Node, Slot};
use crate::prefix::Entry;
use crate::{Address, Prefix};

/// The result of a seek: a prefix of a node, or entries of a bucket.
enum Run<'a, A: Address> {
    Own((Prefix<A>, u32)),
    Entries(&'a [A::Entry]),
}

/// An end of a range of prefixes: itself included, or not.
#[derive(Clone, Copy, Debug)]
struct End<A: Address> {
    prefix: Prefix<A>,
    is_open: bool,
}

/// The prefixes of a range, in order.
#[derive(Clone, Debug)]
pub(crate) struct Range<'a, A: Address, const BUCKET: usize> {
    root: &'a Slot<A, BUCKET>,
    /// The ends of the remaining range.
    first: End<A>,
    last: End<A>,
    /// Entries that follow `first`, of one bucket; they may go on behind `last`.
    front: &'a [A::Entry],
    /// Entries before `last`, of one bucket.
    back: &'a [A::Entry],
    is_done: bool,
}

impl<'a, A: Address, const BUCKET: usize> Range<'a, A, BUCKET> {
    /// From `first` to `last`, both included.
    pub(super) fn new(root: &'a Slot<A, BUCKET>, first: Prefix<A>, last: Prefix<A>) -> Self {
        let end = |prefix| End { prefix, is_open: false };
        Self { root, first: end(first), last: end(last), front: &[], back: &[], is_done: false }
    }

    #[inline]
    fn is_behind(&self, prefix: &Prefix<A>) -> bool {
        if self.last.is_open { *prefix >= self.last.prefix } else { *prefix > self.last.prefix }
    }

    #[inline]
    fn is_before(&self, prefix: &Prefix<A>) -> bool {
        if self.first.is_open { *prefix <= self.first.prefix } else { *prefix < self.first.prefix }
    }
}

impl<A: Address, const BUCKET: usize> Iterator for Range<'_, A, BUCKET> {
    type Item = (Prefix<A>, u32);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let found = match self.front.split_first() {
            Some((entry, rest)) if !entry.is_free() => {
                self.front = rest;
                Some(item::<A>(entry))
            }
            _ => match first_run(self.root, &self.first, self.last.prefix.addr()) {
                Some(Run::Entries([entry, rest @ ..])) => {
                    self.front = rest;
                    Some(item::<A>(entry))
                }
                Some(Run::Own(item)) => {
                    self.front = &[];
                    Some(item)
                }
                _ => None,
            },
        };
        match found.filter(|(prefix, _)| !self.is_behind(prefix)) {
            Some((prefix, value)) => {
                self.first = End { prefix, is_open: true };
                Some((prefix, value))
            }
            None => {
                self.is_done = true;
                None
            }
        }
    }
}

impl<A: Address, const BUCKET: usize> DoubleEndedIterator for Range<'_, A, BUCKET> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let found = match self.back.split_last() {
            Some((entry, rest)) => {
                self.back = rest;
                Some(item::<A>(entry))
            }
            None => match last_run(self.root, &self.last, self.first.prefix.addr()) {
                Some(Run::Entries([rest @ .., entry])) => {
                    self.back = rest;
                    Some(item::<A>(entry))
                }
                Some(Run::Own(item)) => Some(item),
                _ => None,
            },
        };
        match found.filter(|(prefix, _)| !self.is_before(prefix)) {
            Some((prefix, value)) => {
                self.last = End { prefix, is_open: true };
                Some((prefix, value))
            }
            None => {
                self.is_done = true;
                None
            }
        }
    }
}

impl<A: Address, const BUCKET: usize> core::iter::FusedIterator for Range<'_, A, BUCKET> {}

#[inline]
fn item<A: Address>(entry: &A::Entry) -> (Prefix<A>, u32) {
    (Prefix::truncated(entry.addr(), entry.len()), entry.value())
}

/// The first prefix from `first` on, and what follows it in its bucket. It need not look behind the address `last`.
fn first_run<'a, A: Address, const BUCKET: usize>(
    slot: &'a Slot<A, BUCKET>,
    first: &End<A>,
    last: A,
) -> Option<Run<'a, A>> {
    match slot {
        Slot::Bucket(bucket) => {
            let entries = bucket.from(&first.prefix, first.is_open);
            entries.first().is_some_and(|entry| !entry.is_free()).then_some(Run::Entries(entries))
        }
        Slot::Node(node) => first_of_node(node, first, last),
    }
}

fn first_of_node<'a, A: Address, const BUCKET: usize>(
    node: &'a Node<A, BUCKET>,
    first: &End<A>,
    last: A,
) -> Option<Run<'a, A>> {
    let end = match node.slot(last) {
        Ok(slot) => slot,
        Err(side) if side.is_lt() => return None,
        Err(_) => node.slots.len() - 1,
    };
    // The first slot, and the least length that its own prefixes must have.
    let (begin, mut least) = match node.slot(first.prefix.addr()) {
        Ok(slot) if first.prefix.len() >= node.depth => {
            (slot, first.prefix.len() - node.depth + u16::from(first.is_open))
        }
        Err(side) if side.is_gt() => return None,
        _ => (0, 0), // the node lies behind `first`
    };
    for slot in begin..=end {
        let own = (node.begins(slot).max(least)..node.bits).find_map(|len| node.own(slot, len));
        if own.is_some() {
            return own.map(Run::Own);
        }
        let run = first_run(&node.slots[slot], first, last);
        if run.is_some() {
            return run;
        }
        least = 0;
    }
    None
}

/// The last prefix up to `last`, and what is before it in its bucket. It need not look before the address `first`.
fn last_run<'a, A: Address, const BUCKET: usize>(
    slot: &'a Slot<A, BUCKET>,
    last: &End<A>,
    first: A,
) -> Option<Run<'a, A>> {
    match slot {
        Slot::Bucket(bucket) => {
            let entries = bucket.until(&last.prefix, last.is_open);
            (!entries.is_empty()).then_some(Run::Entries(entries))
        }
        Slot::Node(node) => last_of_node(node, last, first),
    }
}

fn last_of_node<'a, A: Address, const BUCKET: usize>(
    node: &'a Node<A, BUCKET>,
    last: &End<A>,
    first: A,
) -> Option<Run<'a, A>> {
    let end = match node.slot(first) {
        Ok(slot) => slot,
        Err(side) if side.is_gt() => return None,
        Err(_) => 0,
    };
    // The last slot, and what the lengths of its own prefixes are below.
    let (begin, mut below) = match node.slot(last.prefix.addr()) {
        Ok(_) if last.prefix.len() < node.depth => return None,
        Ok(slot) => (slot, last.prefix.len() - node.depth + u16::from(!last.is_open)),
        Err(side) if side.is_lt() => return None,
        Err(_) => (node.slots.len() - 1, node.bits),
    };
    for slot in (end..=begin).rev() {
        let run = last_run(&node.slots[slot], last, first);
        if run.is_some() {
            return run;
        }
        let own = (node.begins(slot)..node.bits.min(below)).rev().find_map(|len| node.own(slot, len));
        if own.is_some() {
            return own.map(Run::Own);
        }
        below = node.bits;
    }
    None
}
