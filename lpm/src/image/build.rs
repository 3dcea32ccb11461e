//! Turns sorted prefixes into nodes, aside: nothing that it writes can be found by a reader before the caller publishes it.

use super::Error;
use super::layout::{Kind, REF_NODE, UNIT};
use super::space::{Block, Space};
use crate::{Address, Grace, Prefix};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

/// Builds nodes of one table and remembers them, so that they can be given back if the memory runs out midway.
pub(crate) struct Builder<'a, G> {
    words: &'a [AtomicU32],
    space: &'a mut Space,
    grace: &'a mut G,
    kind: Kind,
    built: Vec<Block>,
}

impl<'a, G: Grace> Builder<'a, G> {
    pub fn new(words: &'a [AtomicU32], space: &'a mut Space, grace: &'a mut G, kind: Kind) -> Self {
        Self { words, space, grace, kind, built: Vec::new() }
    }

    /// A block of `units` that is given back by [`Builder::abandon`].
    pub fn allocate(&mut self, units: u32) -> Result<Block, Error> {
        let block = self.space.allocate(units, self.grace)?;
        self.built.push(block);
        Ok(block)
    }

    /// Frees all that was built: it will not be published.
    pub fn abandon(self) {
        for block in self.built {
            self.space.free(block);
        }
    }

    /// The ref for the addresses that share their first `depth` bits with `entries`: sorted, all at least `depth` long. Addresses
    /// that no entry covers get `default`.
    pub fn subtree<A: Address>(
        &mut self,
        mut entries: &[(Prefix<A>, u32)],
        depth: u8,
        mut default: u32,
    ) -> Result<u32, Error> {
        while let Some(((_, value), rest)) = entries.split_first().filter(|((p, _), _)| p.len() <= depth) {
            (default, entries) = (*value, rest);
        }
        if entries.is_empty() {
            return Ok(default);
        }
        let stride = self.kind.stride;
        let end = depth + stride; // may pass the last bit: the missing key bits are 0, here and in the lookup
        let mut slots = [0u32; 256];
        let slots = &mut slots[..1 << stride];
        slots.fill(default);
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
        self.node(slots)
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
        Ok(self.kind.to(block.at))
    }
}
