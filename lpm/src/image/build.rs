//! Turns sorted prefixes into nodes, aside: nothing that it writes can be found by a reader before the caller publishes it.
//!
//! [`Builder::subtree`] builds all that lies under a root slot or below; [`Builder::edit`] changes what is there with as few new
//! nodes as one published word allows.

use super::Error;
use super::layout::{
    Kind, NODE8, RAW8, RAW8_MIN, REF_NODE, REF_OFFSET, SKIP, SKIP_MAX, SKIP_MIN, Skip, UNIT, kind_of,
    node_ref,
};
use super::lookup::{load, skip, starts};
use super::space::{Block, Space};
use super::walk::{self, RAW8_UNITS, SKIP_UNITS};
use crate::shadow::Shadow;
use crate::{Address, Grace, Prefix};
use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

/// Builds nodes of one table and remembers them, so that they can be given back if the memory runs out midway.
pub(crate) struct Builder<'a, G> {
    pub words: &'a [AtomicU32],
    space: &'a mut Space,
    grace: &'a mut G,
    kind: Kind,
    built: Vec<Block>,
    /// Blocks that the published words will make unreachable.
    replaced: Vec<Block>,
}

/// A word to publish.
pub(crate) struct Swing {
    /// Its index in the image.
    pub word: usize,
    /// What to store.
    pub entry: u32,
}

impl<'a, G: Grace> Builder<'a, G> {
    pub fn new(words: &'a [AtomicU32], space: &'a mut Space, grace: &'a mut G, kind: Kind) -> Self {
        Self { words, space, grace, kind, built: Vec::new(), replaced: Vec::new() }
    }

    /// A block of `units` that is given back by [`Builder::abandon`].
    pub fn allocate(&mut self, units: u32) -> Result<Block, Error> {
        let block = self.space.allocate(units, self.grace)?;
        self.built.push(block);
        Ok(block)
    }

    /// Frees all that was built, as it will not be published; hands the reason back.
    pub fn abandon(self, why: Error) -> Error {
        for block in self.built {
            self.space.free(block);
        }
        why
    }

    /// Publishes what was built, word by word, then retires what those words led to and no longer do.
    pub fn publish(self, swings: &[Swing]) {
        for swing in swings {
            self.words[swing.word].store(swing.entry, Ordering::Release);
        }
        for block in self.replaced {
            self.space.retire(block, self.grace);
        }
    }

    /// Marks all that `entry` leads to as replaced.
    pub fn replace(&mut self, entry: u32) {
        walk::own_nodes(self.words, entry, self.kind, &mut |block| self.replaced.push(block));
    }

    /// Brings the part of the image under the word at index `word` (a root slot or a node's, reached by the first `depth` bits of
    /// `prefix`'s address) in line with `shadow`, in which `prefix` has been added, changed or removed.
    pub fn edit<A: Address>(
        &mut self,
        shadow: &Shadow<A>,
        prefix: Prefix<A>,
        word: usize,
        depth: u16,
    ) -> Result<Swing, Error> {
        let old = load(self.words, word as u32 * 4);
        let stride = self.kind.stride;
        if old & REF_NODE == 0 || prefix.len() <= depth {
            return self.rebuild(shadow, prefix.addr(), word, depth);
        }
        if kind_of(old) == SKIP {
            return self.edit_skip(shadow, prefix, word, depth);
        }
        let node = (old & REF_OFFSET) * UNIT;
        let mut slots = [0u32; 256];
        let slots = &mut slots[..1 << stride];
        let block = self.expand(old, slots);
        let slot = prefix.addr().bits_at(depth, stride);
        let end = depth + stride;
        if prefix.len() <= end {
            let covered = slot..slot + (1 << (end - prefix.len()));
            for &entry in &slots[covered.clone()] {
                if entry & REF_NODE != 0 {
                    self.replace(entry); // a child is a run of one slot, so it comes once
                }
            }
            slots[covered].fill(shadow.inherited(prefix.addr(), prefix.len()));
            self.paint(&shadow.inside(prefix), depth, slots)?;
        } else {
            let child = if kind_of(old) == RAW8 {
                node as usize / 4 + slot
            } else {
                let run = super::lookup::run_of(self.words, node, self.kind, slot as u32);
                ((node + self.kind.refs) / 4 + run) as usize
            };
            let swing = self.edit(shadow, prefix, child, end)?;
            let same_runs = slots[slot] & swing.entry & REF_NODE != 0 || slots[slot] == swing.entry;
            if swing.word != child || same_runs {
                return Ok(swing);
            }
            slots[slot] = swing.entry;
        }
        self.replaced.push(block);
        Ok(Swing { word, entry: self.node(slots)? })
    }

    /// Builds all that is under the word at index `word`, reached by the first `depth` bits of `addr`, anew.
    fn rebuild<A: Address>(
        &mut self,
        shadow: &Shadow<A>,
        addr: A,
        word: usize,
        depth: u16,
    ) -> Result<Swing, Error> {
        self.replace(load(self.words, word as u32 * 4));
        let inside = shadow.inside(Prefix::truncated(addr, depth));
        let entry = self.subtree(&inside, depth, shadow.inherited(addr, depth))?;
        Ok(Swing { word, entry })
    }

    /// [`Builder::edit`] where `word` leads to a skip.
    fn edit_skip<A: Address>(
        &mut self,
        shadow: &Shadow<A>,
        prefix: Prefix<A>,
        word: usize,
        depth: u16,
    ) -> Result<Swing, Error> {
        let old = load(self.words, word as u32 * 4);
        let at = (old & REF_OFFSET) * UNIT;
        let field = |field: usize| load(self.words, at + field as u32);
        let otherwise = field(offset_of!(Skip, otherwise));
        let (len, differs) = skip(self.words, at, prefix.addr(), depth);
        let end = depth + len;
        if prefix.len() >= end && !differs {
            let next = (at as usize + offset_of!(Skip, next)) / 4;
            let swing = self.edit(shadow, prefix, next, end)?;
            if swing.word != next || swing.entry != otherwise {
                return Ok(swing);
            }
            // Nothing is left behind the skip.
            self.replaced.push(Block { at: old & REF_OFFSET, units: SKIP_UNITS });
            return Ok(Swing { word, entry: otherwise });
        }
        self.rebuild(shadow, prefix.addr(), word, depth)
    }

    /// Writes the refs of a bitmap or raw node slot by slot; returns the node's block.
    fn expand(&self, entry: u32, slots: &mut [u32]) -> Block {
        let unit = entry & REF_OFFSET;
        let node = unit * UNIT;
        if kind_of(entry) == RAW8 {
            for (slot, to) in slots.iter_mut().enumerate() {
                *to = load(self.words, node + 4 * slot as u32);
            }
            return Block { at: unit, units: RAW8_UNITS };
        }
        let mut run = 0;
        let mut current = 0;
        for (slot, to) in slots.iter_mut().enumerate() {
            if starts(self.words, node, self.kind, slot as u32 / 64) >> (slot % 64) & 1 == 1 {
                current = load(self.words, node + self.kind.refs + 4 * run);
                run += 1;
            }
            *to = current;
        }
        Block { at: unit, units: self.kind.units(run) }
    }

    /// The ref for the addresses that share their first `depth` bits with `entries`: sorted, all at least `depth` long. Addresses
    /// that no entry covers get `default`.
    pub fn subtree<A: Address>(
        &mut self,
        mut entries: &[(Prefix<A>, u32)],
        depth: u16,
        mut default: u32,
    ) -> Result<u32, Error> {
        while let Some(((_, value), rest)) = entries.split_first().filter(|((p, _), _)| p.len() <= depth) {
            (default, entries) = (*value, rest);
        }
        let ([(first, _), ..], [.., (last, _)]) = (entries, entries) else { return Ok(default) };
        if self.kind == NODE8 {
            // All go the same way for as long as the first and the last do and none ends.
            let same = first.addr().common_bits(last.addr());
            if same >= depth + SKIP_MIN {
                let shortest = entries.iter().map(|(prefix, _)| prefix.len()).min().unwrap_or(depth);
                let end = same.min(shortest).min(depth + SKIP_MAX);
                if end >= depth + SKIP_MIN {
                    return self.skip(entries, depth, end, default);
                }
            }
        }
        let mut slots = [0u32; 256];
        let slots = &mut slots[..1 << self.kind.stride];
        slots.fill(default);
        self.paint(entries, depth, slots)?;
        self.node(slots)
    }

    /// A skip from `depth` to `end`, the bits that all `entries` share, and what is behind it.
    fn skip<A: Address>(
        &mut self,
        entries: &[(Prefix<A>, u32)],
        depth: u16,
        end: u16,
        default: u32,
    ) -> Result<u32, Error> {
        let next = self.subtree(entries, end, default)?;
        if next == default {
            return Ok(default);
        }
        let block = self.allocate(SKIP_UNITS)?;
        let addr = entries[0].0.addr().masked(end);
        let (first, second) = (addr.word_at(depth), addr.word_at(depth + 64));
        let bits = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
        let words = bits.into_iter().chain([u32::from(end - depth), next, default, 0]);
        for (word, value) in words.enumerate() {
            self.words[(block.at * UNIT / 4) as usize + word].store(value, Ordering::Relaxed);
        }
        Ok(node_ref(SKIP, block.at))
    }

    /// Paints sorted `entries` over the slots of a node at `depth`, building its children.
    fn paint<A: Address>(
        &mut self,
        mut entries: &[(Prefix<A>, u32)],
        depth: u16,
        slots: &mut [u32],
    ) -> Result<(), Error> {
        let stride = self.kind.stride;
        let end = depth + stride; // may pass the last bit: the missing key bits are 0, here and in the lookup
        while let Some(((prefix, value), rest)) = entries.split_first() {
            let slot = prefix.addr().bits_at(depth, stride);
            let deeper =
                |(p, _): &&(Prefix<A>, u32)| p.len() > end && p.addr().bits_at(depth, stride) == slot;
            if prefix.len() <= end {
                // Sorted order paints a covering prefix before those it covers.
                slots[slot..slot + (1 << (end - prefix.len()))].fill(*value);
                entries = rest;
            } else {
                let (inside, behind) = entries.split_at(entries.iter().take_while(deeper).count());
                slots[slot] = self.subtree(inside, end, slots[slot])?;
                entries = behind;
            }
        }
        Ok(())
    }

    /// A node of these slots, or their value when all have the same.
    fn node(&mut self, slots: &[u32]) -> Result<u32, Error> {
        let mut refs = [0u32; 256];
        let mut starts = [0u64; 4];
        let mut before = 0u32;
        let mut runs = 0usize;
        for (slot, &entry) in slots.iter().enumerate() {
            if slot % 64 == 0 {
                before |= (runs as u32) << (8 * (slot / 64));
            }
            if slot == 0 || entry != refs[runs - 1] || entry & REF_NODE != 0 {
                starts[slot / 64] |= 1 << (slot % 64);
                refs[runs] = entry;
                runs += 1;
            }
        }
        if runs == 1 && refs[0] & REF_NODE == 0 {
            return Ok(refs[0]);
        }
        if self.kind == NODE8 && runs >= RAW8_MIN {
            let block = self.allocate(RAW8_UNITS)?;
            let at = (block.at * UNIT / 4) as usize;
            for (word, entry) in self.words[at..at + slots.len()].iter().zip(slots) {
                word.store(*entry, Ordering::Relaxed);
            }
            return Ok(node_ref(RAW8, block.at));
        }
        let block = self.allocate(self.kind.units(runs as u32))?;
        let at = (block.at * UNIT / 4) as usize;
        let put = |word: usize, value: u32| self.words[at + word].store(value, Ordering::Relaxed);
        let first = self.kind.starts as usize / 4;
        if first > 0 {
            put(0, before);
            put(1, 0);
        }
        for (word, &bits) in starts[..self.kind.words() as usize].iter().enumerate() {
            put(first + 2 * word, bits as u32);
            put(first + 2 * word + 1, (bits >> 32) as u32);
        }
        for (run, &entry) in refs[..runs].iter().enumerate() {
            put(self.kind.refs as usize / 4 + run, entry);
        }
        Ok(node_ref(self.kind.id, block.at))
    }
}
