//! Changes what is there with as few new nodes as possible: only those whose runs change, each published by the word that leads
//! to it.

use super::build::Builder;
use super::error::Error;
use super::fill::child;
use super::layout::{
    DIRECT_BITS, Kind, NODE6, NODE8, NODE8_IPV6, RANGES, RANGES32, RANGES32_BITS, RANGES32_REFS,
    RANGES32_RUNS, REF_NODE, REF_OFFSET, SKIP, SKIP_MIN, Skip, UNIT, kind_of,
};
use super::ranges::{Ranges, Run};
use super::runs::PublishedWord;
use super::space::Block;
use super::step::{run_of, skip};
use super::walk;
use super::words::load;
use crate::prefix_store::{Change, PrefixStore};
use crate::{Address, Grace, Prefix};
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::Range;
use core::slice;

impl<G: Grace> Builder<'_, G> {
    /// Brings the part of the image under the word at index `word` in line with `prefix_store`, in which the sorted changes `changed`
    /// have been made. The word is a root slot or a node's, reached by the first `depth` bits that all of
    /// them share.
    ///
    /// Adds what is to be stored to `published_words`, `word` itself included.
    pub fn edit<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        changed: &[Change<A>],
        word: usize,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<(), Error> {
        if let Some(entry) = self.change(prefix_store, changed, word, depth, published_words)? {
            published_words.push(PublishedWord { word, entry });
        }
        Ok(())
    }

    /// As [`Builder::edit`], but returns what `word` itself is to hold, if not what it does.
    fn change<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        changed: &[Change<A>],
        word: usize,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        let Some(first) = changed.first() else { return Ok(None) };
        let old = self.entry(word);
        // The first is not always the shortest, but no other contains `depth` bits or fewer unless it does.
        if first.prefix.len() <= depth && changed.len() == 1 {
            return self.fill_entry(prefix_store, first, old, depth, published_words);
        }
        if old & REF_NODE == 0 || first.prefix.len() <= depth {
            return self.anew(prefix_store, first.prefix.addr(), word, depth);
        }
        match (self.nodes.kind, kind_of(old)) {
            (kind, _) if kind.is_direct(old) => {
                let first = ((old & REF_OFFSET) * UNIT / 4) as usize;
                self.change_words(
                    prefix_store,
                    changed,
                    first,
                    depth..depth + DIRECT_BITS,
                    |_, _| true,
                    published_words,
                )?;
                Ok(None)
            }
            (NODE8, RANGES32)
                if changed.len() == 1
                    && first.is_bare
                    && first.prefix.len() <= depth + RANGES32_BITS
                    && let Some(published) = self.change_ranges32(first, word, depth)? =>
            {
                if published.word == word {
                    return Ok(Some(published.entry));
                }
                published_words.push(published);
                Ok(None)
            }
            (NODE6, RANGES) | (NODE8, RANGES32) => self.anew(prefix_store, first.prefix.addr(), word, depth),
            (NODE8 | NODE8_IPV6, SKIP) => {
                self.change_skip(prefix_store, changed, word, depth, published_words)
            }
            (kind, _) => {
                if let [only] = changed {
                    return self.change_node(prefix_store, only, old, depth, published_words, kind);
                }
                let mark = self.pieces.len();
                let changed = self.change_bitmap(prefix_store, changed, old, depth, published_words, kind);
                let entry = changed.and_then(|()| self.splice(old, mark, published_words));
                self.pieces.truncate(mark);
                entry
            }
        }
    }

    /// [`Builder::change`] of one change in the bitmap node `old`.
    fn change_node<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        change: &Change<A>,
        old: u32,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
        kind: Kind,
    ) -> Result<Option<u32>, Error> {
        let (prefix, end) = (change.prefix, depth + kind.stride);
        let slot = prefix.addr().bits_at(depth, kind.stride);
        if prefix.len() <= end {
            let slots = slot..slot + (1 << (end - prefix.len()));
            if !change.is_bare {
                return self.fill_node(prefix_store, change, old, depth, slots, published_words);
            }
            return self.put(old, slots, change.after(), published_words);
        }
        let entry = match self.child_word(old, slot, kind) {
            None => self.slot(prefix_store, prefix.addr(), end)?,
            Some(word) => {
                match self.change(prefix_store, slice::from_ref(change), word, end, published_words)? {
                    Some(entry) if entry & REF_NODE == 0 => entry,
                    // A child has a word of its own.
                    entry => {
                        published_words.extend(entry.map(|entry| PublishedWord { word, entry }));
                        return Ok(None);
                    }
                }
            }
        };
        self.put(old, slot..slot + 1, entry, published_words)
    }

    /// Index of the word by which `slot` of the bitmap node `old` leads to another node, if it does.
    fn child_word(&self, old: u32, slot: usize, kind: Kind) -> Option<usize> {
        let node = (old & REF_OFFSET) * UNIT;
        let word = ((node + kind.refs) / 4 + run_of(self.nodes.words, node, kind, slot as u32)) as usize;
        (kind_of(old) == kind.id && self.entry(word) & REF_NODE != 0).then_some(word)
    }

    /// Brings words in line with the sorted changes `changed`: those that the key bits `window` choose from, the first of them at index
    /// `first`. They are a root's or a direct12's.
    ///
    /// `is_cover(slot, len)`: whether no prefix longer than `len` covers all of the slot. To say so where one does is right, too, but slower.
    pub fn change_words<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        changed: &[Change<A>],
        first: usize,
        window: Range<u16>,
        is_cover: impl Fn(usize, u16) -> bool,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<(), Error> {
        let depth = window.end;
        let slots_of = |prefix: Prefix<A>| {
            let slot = prefix.addr().bits_at(window.start, depth - window.start);
            slot..slot + (1 << (depth - prefix.len().min(depth)))
        };
        let mut rest = changed;
        while let Some(outer) = rest.first() {
            // Those that it covers, or that share its slot.
            let shared = Prefix::truncated(outer.prefix.addr(), depth.min(outer.prefix.len()));
            let together = rest.iter().take_while(|change| shared.covers(&change.prefix)).count();
            let (together, behind) = rest.split_at(together);
            rest = behind;
            let slots = slots_of(shared);
            match together {
                [only] if only.before() == only.after() => (),
                _ if shared.len() == depth => {
                    self.edit(prefix_store, together, first + slots.start, depth, published_words)?;
                }
                [only] => {
                    let is_meant = |slot| is_cover(slots.start + slot, shared.len());
                    self.fill_words(
                        prefix_store,
                        only,
                        first + slots.start,
                        depth,
                        is_meant,
                        published_words,
                    )?;
                }
                _ => {
                    let mut is_anew = alloc::vec![false; slots.len()];
                    let (short, long): (Vec<_>, Vec<_>) =
                        together.iter().copied().partition(|change| change.prefix.len() < depth);
                    for change in short {
                        for slot in slots_of(change.prefix) {
                            is_anew[slot - slots.start] |= is_cover(slot, change.prefix.len());
                        }
                    }
                    for slot in slots.clone().filter(|slot| is_anew[slot - slots.start]) {
                        let (word, addr) =
                            (first + slot, child(shared.addr(), window.start, depth - window.start, slot));
                        if let Some(entry) = self.anew(prefix_store, addr, word, depth)? {
                            published_words.push(PublishedWord { word, entry });
                        }
                    }
                    for together in long.chunk_by(|one, two| slots_of(one.prefix) == slots_of(two.prefix)) {
                        let slot = slots_of(together[0].prefix).start;
                        if !is_anew[slot - slots.start] {
                            self.edit(prefix_store, together, first + slot, depth, published_words)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Rewrites the one ranges32 node whose runs `change`, a prefix with no other inside, alters; returns the word that leads to it.
    /// None: one node is not enough.
    fn change_ranges32<A: Address>(
        &mut self,
        change: &Change<A>,
        mut word: usize,
        depth: u16,
    ) -> Result<Option<PublishedWord>, Error> {
        let end = depth + RANGES32_BITS;
        let slots = change.prefix.addr().word_at(depth) >> 32;
        let slots = slots..slots + (1 << (end - change.prefix.len()));
        let (mut from, mut to) = (0, 1 << RANGES32_BITS);
        // The second time at a node of the lower level.
        for _ in 0..2 {
            let node = (self.entry(word) & REF_OFFSET) * UNIT;
            let refs = (node + RANGES32_REFS) as usize / 4;
            let (starts, is_leaf) = walk::ranges32_starts(self.nodes.words, node);
            if !is_leaf {
                let run = |slot: u64| starts.iter().filter(|start| u64::from(**start) > slot).count();
                let above = run(slots.start);
                word = refs + above;
                if run(slots.end - 1) != above || self.entry(word) & REF_NODE == 0 {
                    return Ok(None);
                }
                from = starts.get(above).map_or(from, |start| u64::from(*start));
                to = above.checked_sub(1).map_or(to, |next| u64::from(starts[next]));
                continue;
            }
            let count = starts.iter().filter(|start| **start != 0).count();
            let old = (0..=count).rev().map(|run| Run {
                start: starts.get(run).map_or(0, |start| u64::from(*start)).max(from),
                entry: self.entry(refs + run),
            });
            let Some(ranges) = Ranges::painted(old, to, slots, change.after(), RANGES32_RUNS) else {
                return Ok(None);
            };
            // A lower one that ends may let the upper one end.
            if (from, to) != (0, 1 << RANGES32_BITS) && ranges.runs().len() == 1 {
                return Ok(None);
            }
            let bytes = RANGES32_REFS + 4 * (count as u32 + 1);
            let entry = self.nodes.ranges32(ranges.runs())?;
            self.nodes.replaced.push(Block { at: node / UNIT, units: bytes.div_ceil(UNIT) });
            return Ok(Some(PublishedWord { word, entry }));
        }
        Ok(None)
    }

    /// Rebuilds all that is under `word`, which the first `depth` bits of `addr` lead to; returns its new content, if it differs.
    pub fn anew<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        addr: A,
        word: usize,
        depth: u16,
    ) -> Result<Option<u32>, Error> {
        let old = self.entry(word);
        self.nodes.replace(old);
        let entry = self.slot(prefix_store, addr, depth)?;
        Ok((entry != old).then_some(entry))
    }

    /// The ref for the addresses that share the first `depth` bits of `addr`, rebuilt.
    pub fn slot<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        addr: A,
        depth: u16,
    ) -> Result<u32, Error> {
        let inside = self.inside(prefix_store, Prefix::truncated(addr, depth));
        self.subtree(&inside, depth, prefix_store.inherited(addr, depth))
    }

    /// Finds the pieces of the bitmap node `old` that change.
    fn change_bitmap<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        mut changed: &[Change<A>],
        old: u32,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
        kind: Kind,
    ) -> Result<(), Error> {
        let end = depth + kind.stride;
        while let Some(first) = changed.first() {
            let prefix = first.prefix;
            let slot = prefix.addr().bits_at(depth, kind.stride);
            let within = |change: &&Change<A>| {
                if prefix.len() <= end {
                    prefix.covers(&change.prefix)
                } else {
                    change.prefix.len() > end && change.prefix.addr().bits_at(depth, kind.stride) == slot
                }
            };
            let (together, rest) = changed.split_at(changed.iter().take_while(within).count());
            changed = rest;
            if prefix.len() <= end {
                let slots = slot..slot + (1 << (end - prefix.len()));
                if together.len() == 1 && first.is_bare {
                    self.piece(slots, first.after());
                } else {
                    self.repaint(prefix_store, prefix, old, depth, slots)?;
                }
                continue;
            }
            let entry = match self.child_word(old, slot, kind) {
                Some(word) => self.change(prefix_store, together, word, end, published_words)?,
                None => Some(self.slot(prefix_store, prefix.addr(), end)?),
            };
            if let Some(entry) = entry {
                self.piece(slot..slot + 1, entry);
            }
        }
        Ok(())
    }

    /// Finds the pieces that the `slots` of the bitmap node `old` become, which `prefix` covers.
    fn repaint<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        prefix: Prefix<A>,
        old: u32,
        depth: u16,
        slots: Range<usize>,
    ) -> Result<(), Error> {
        let value = prefix_store.inherited(prefix.addr(), prefix.len());
        let inside = self.inside(prefix_store, prefix);
        let [runs, ..] = &mut *self.runs;
        runs.read(self.nodes.words, old, self.nodes.kind);
        if !runs.is_coded() {
            for run in runs.at(slots.start)..=runs.at(slots.end - 1) {
                self.nodes.replace(runs.refs()[run]);
            }
        }
        if inside.iter().all(|(inner, _)| *inner == prefix) {
            self.piece(slots, value);
            return Ok(());
        }
        let mut painted = [value; 1 << NODE8.stride];
        self.paint(&inside, depth, self.nodes.kind.stride, &mut painted)?;
        let mut from = slots.start;
        for slot in slots.clone() {
            let is_last = slot + 1 == slots.end;
            if is_last || painted[slot + 1] != painted[slot] || painted[slot] & REF_NODE != 0 {
                self.piece(from..slot + 1, painted[slot]);
                from = slot + 1;
            }
        }
        Ok(())
    }

    /// [`Builder::change`] where `word` leads to a skip.
    fn change_skip<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        changed: &[Change<A>],
        word: usize,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        let old = self.entry(word);
        let at = (old & REF_OFFSET) * UNIT;
        let mut end = depth;
        let is_behind = changed.iter().all(|Change { prefix, .. }| {
            let (len, differs) = skip(self.nodes.words, at, prefix.addr(), depth);
            end = depth + len;
            prefix.len() >= end && !differs
        });
        // A short one is for a lone prefix only: a chain of them would be longer than a lookup walks.
        if !is_behind || end < depth + SKIP_MIN {
            return self.anew(prefix_store, changed[0].prefix.addr(), word, depth);
        }
        let next = (at as usize + offset_of!(Skip, next)) / 4;
        let Some(entry) = self.change(prefix_store, changed, next, end, published_words)? else {
            return Ok(None);
        };
        if entry != load(self.nodes.words, at + offset_of!(Skip, otherwise) as u32) {
            published_words.push(PublishedWord { word: next, entry });
            return Ok(None);
        }
        // Nothing is left behind the skip.
        self.nodes.replaced.push(walk::skip_block(self.nodes.words, old));
        Ok(Some(entry))
    }

    pub fn entry(&self, word: usize) -> u32 {
        load(self.nodes.words, word as u32 * 4)
    }
}
