//! Puts other refs or values into slots of a bitmap node. If its runs stay as they are, its own words change; else it is replaced.

use super::build::{Builder, Nodes};
use super::error::Error;
use super::layout::{Kind, REF_NODE, REF_OFFSET, UNIT, kind_of, node_ref};
use super::runs::{Piece, PublishedWord, below, ones, starts};
use super::space::Block;
use super::walk;
use super::words::load;
use crate::Grace;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

impl<G: Grace> Builder<'_, G> {
    pub fn piece(&mut self, slots: Range<usize>, entry: u32) {
        self.pieces.push(Piece { from: slots.start as u16, to: slots.end as u16, entry });
    }

    /// Puts `entry` into the `slots` of the bitmap node `old`. If there are several, none may lead to a node. Returns the ref of the node that
    /// takes its place, or the value, if all slots have the same now.
    pub fn put(
        &mut self,
        old: u32,
        slots: Range<usize>,
        entry: u32,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        if let Some(one) = One::of(&self.nodes, old, &slots, entry) {
            return one.put(&mut self.nodes, published_words);
        }
        let mark = self.pieces.len();
        self.piece(slots, entry);
        let entry = self.splice(old, mark, published_words);
        self.pieces.truncate(mark);
        entry
    }

    /// Puts the pieces from `mark` on into the bitmap node `old`. They go into its own words where its runs stay as they are, else into a
    /// new node, whose ref it returns.
    pub fn splice(
        &mut self,
        old: u32,
        mark: usize,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        let Self { runs, nodes, pieces } = self;
        let pieces = &pieces[mark..];
        if pieces.is_empty() {
            return Ok(None);
        }
        let kind = nodes.kind;
        let [runs, with, spare] = &mut **runs;
        runs.read(nodes.words, old, kind);
        let (was_coded, runs_before) = (runs.is_coded(), runs.len() as u32);
        let refs = ((old & REF_OFFSET) * UNIT + kind.refs) / 4;
        if !runs.is_coded()
            && pieces.iter().all(|piece| runs.is_node(piece.from.into()) && piece.entry & REF_NODE != 0)
        {
            // Children only: each has a word of its own.
            published_words.extend(pieces.iter().map(|piece| PublishedWord {
                word: refs as usize + runs.at(piece.from.into()),
                entry: piece.entry,
            }));
            return Ok(None);
        }
        let mut codes = nodes.palette.filter(|_| runs.is_coded());
        if let Some(palette) = codes
            && pieces.iter().any(|piece| piece.entry & REF_NODE != 0 || palette.code(piece.entry).is_none())
        {
            runs.decode(palette);
            codes = None;
        }
        let encoded = |entry: u32| codes.and_then(|palette| palette.code(entry)).map_or(entry, u32::from);
        let (mut with, mut spare) = (with, spare);
        for (at, piece) in pieces.iter().enumerate() {
            let before = if at == 0 { &*runs } else { &*with };
            before.splice(piece.from.into(), piece.to.into(), 1 << kind.stride, encoded(piece.entry), spare);
            core::mem::swap(&mut with, &mut spare);
        }
        if runs.is_coded() == was_coded && runs.in_place(with, refs, published_words) {
            return Ok(None);
        }
        let units = walk::bitmap_units(old, kind, runs_before);
        nodes.replaced.push(Block { at: old & REF_OFFSET, units });
        nodes.bitmap(with).map(Some)
    }
}

/// One value that comes into some slots of a node whose refs stay refs, or codes codes: most changes. The node is not taken apart for it.
struct One {
    kind: Kind,
    /// The ref of the node.
    old: u32,
    /// Byte offset of its refs or codes.
    refs: u32,
    is_coded: bool,
    value: u32,
    /// The value, or its code.
    entry: u32,
    starts: [u64; 4],
    /// The starts with the value in its slots.
    with: [u64; 4],
    /// Runs that begin before the value.
    before: usize,
    /// Whether the value begins a run, as it does not join that before it.
    is_run: bool,
    /// Runs of the old node that begin behind the value, or whose rest does.
    behind: Range<usize>,
}

impl One {
    /// None: it is not so simple.
    fn of<G>(nodes: &Nodes<'_, G>, old: u32, slots: &Range<usize>, value: u32) -> Option<Self> {
        let kind = nodes.kind;
        let refs = (old & REF_OFFSET) * UNIT + kind.refs;
        let is_coded = kind_of(old) == kind.leaf();
        let entry = match nodes.palette.filter(|_| is_coded) {
            _ if value & REF_NODE != 0 => return None,
            Some(palette) => palette.code(value)?.into(),
            None => value,
        };
        let starts = starts(nodes.words, refs - kind.refs, kind);
        let words = 0..kind.words() as usize;
        let rank = |slot: usize| words.clone().map(|word| ones(starts[word] & below(word, slot))).sum();
        let (before, all): (usize, usize) = (rank(slots.start), rank(1 << kind.stride));
        let mut one = Self {
            kind,
            old,
            refs,
            is_coded,
            value,
            entry,
            starts,
            with: [0; 4],
            before,
            is_run: true,
            behind: all..all,
        };
        one.is_run = before == 0 || one.get(nodes.words, before - 1) != entry;
        let mut set = [one.is_run.then_some(slots.start), None];
        if slots.end < 1 << kind.stride {
            let right: usize = rank(slots.end + 1);
            // The run that the next slot is in joins, or begins there now.
            let joins = one.get(nodes.words, right - 1) == entry;
            one.behind = right - usize::from(!joins)..all;
            set[1] = (!joins).then_some(slots.end);
        }
        // Without a child left, all may have codes by now.
        let is_child = |run: usize| one.get(nodes.words, run) & REF_NODE != 0;
        if nodes.palette.is_some() && !is_coded && !(0..before).chain(one.behind.clone()).any(is_child) {
            return None;
        }
        for word in words {
            one.with[word] = starts[word] & (below(word, slots.start) | !below(word, slots.end + 1));
        }
        for slot in set.into_iter().flatten() {
            one.with[slot / 64] |= 1 << (slot % 64);
        }
        Some(one)
    }

    /// The ref or code of a run.
    fn get(&self, words: &[AtomicU32], run: usize) -> u32 {
        if self.is_coded {
            let at = self.refs + run as u32;
            load(words, at & !3) >> (8 * (at % 4)) & 0xff
        } else {
            load(words, self.refs + 4 * run as u32)
        }
    }

    fn put<G: Grace>(
        self,
        nodes: &mut Nodes<'_, G>,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        if self.with == self.starts {
            if self.is_run {
                published_words.extend(self.in_place(nodes.words));
            }
            return Ok(None);
        }
        let count = self.before + usize::from(self.is_run) + self.behind.len();
        let entry = if count == 1 { self.value } else { self.build(nodes, count)? };
        let units = walk::bitmap_units(self.old, self.kind, self.behind.end as u32);
        nodes.replaced.push(Block { at: self.old & REF_OFFSET, units });
        Ok(Some(entry))
    }

    /// The word that changes if all runs stay.
    fn in_place(&self, words: &[AtomicU32]) -> Option<PublishedWord> {
        let (at, shift, mask) = if self.is_coded {
            (self.refs + self.before as u32, 8 * (self.before % 4), 0xff)
        } else {
            (self.refs + 4 * self.before as u32, 0, u32::MAX)
        };
        let old = load(words, at & !3);
        let entry = old & !(mask << shift) | self.entry << shift;
        (entry != old).then_some(PublishedWord { word: at as usize / 4, entry })
    }

    /// A new node, of `count` runs; returns its ref.
    fn build<G: Grace>(&self, nodes: &mut Nodes<'_, G>, count: usize) -> Result<u32, Error> {
        let (old, first) = (self.refs as usize / 4, self.kind.refs as usize / 4);
        let run = usize::from(self.is_run);
        if self.is_coded {
            let block = nodes.bitmap_block(&self.with, self.kind.leaf(), count)?;
            let mut codes = [[0; 256]; 2];
            let words = &nodes.words[old..old + self.behind.end.div_ceil(4)];
            for (codes, word) in codes[0].as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *codes = word.load(Ordering::Relaxed).to_le_bytes();
            }
            let [old, new] = &mut codes;
            new[..self.before].copy_from_slice(&old[..self.before]);
            if self.is_run {
                new[self.before] = self.entry as u8;
            }
            new[self.before + run..count].copy_from_slice(&old[self.behind.clone()]);
            for (word, codes) in new.as_chunks().0[..count.div_ceil(4)].iter().enumerate() {
                nodes.put(block, first + word, u32::from_le_bytes(*codes));
            }
            return Ok(node_ref(self.kind.leaf(), block.at));
        }
        let block = nodes.bitmap_block(&self.with, self.kind.id, count)?;
        let stay = (0..self.before).chain(self.behind.clone());
        for (at, from) in (0..self.before).chain(self.before + run..count).zip(stay) {
            nodes.put(block, first + at, nodes.words[old + from].load(Ordering::Relaxed));
        }
        if self.is_run {
            nodes.put(block, first + self.before, self.entry);
        }
        Ok(node_ref(self.kind.id, block.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::palette::Palette;
    use crate::image::runs::Runs;
    use crate::image::space::PoolId;
    use crate::random::Random;
    use crate::{Address, HeapMemory, Image, NoReaders};

    /// Puts values over and over into a node, and compares it with one that is made of the slots at once.
    fn puts<A: Address>(values: u32, has_palette: bool, seed: u64) {
        const CHILD: u32 = REF_NODE | 9;
        let mut random = Random(seed);
        let mut image = Image::create(HeapMemory::new(64 << 20), NoReaders::default(), 1).unwrap();
        let palette = has_palette.then(|| Palette::of(1..values).unwrap());
        let mut builder = image.builder::<A>(PoolId::SHARED, palette.as_ref(), None);
        let kind = builder.nodes.kind;
        let (mut is, mut want) = (Runs::new(), Runs::new());
        let (mut in_place, mut new) = (0, 0);
        for _ in 0..200 {
            let mut slots = alloc::vec![0; 1 << kind.stride];
            for _ in 0..random.below(8) {
                let from = random.below(slots.len());
                let to = from + 1 + random.below(slots.len() - from);
                slots[from..to].fill(random.below(values as usize) as u32);
            }
            if random.below(2) == 0 {
                slots[random.below(1 << kind.stride)] = CHILD;
            }
            let mut old = builder.slots(&slots).unwrap();
            for _ in 0..40 {
                let from = random.below(slots.len());
                let mut to = from + 1 + random.below((slots.len() - from).min(20));
                // A child goes by itself.
                if slots[from..to].contains(&CHILD) {
                    to = from + 1;
                }
                let value = random.below(values as usize) as u32;
                slots[from..to].fill(value);
                if old & REF_NODE == 0 {
                    break;
                }
                let mut words = Vec::new();
                let entry = builder.put(old, from..to, value, &mut words).unwrap();
                match entry {
                    Some(entry) => (old, new) = (entry, new + 1),
                    None => {
                        in_place += 1;
                        words.iter().for_each(|word| builder.store(word.word, word.entry));
                    }
                }
                want.of_slots(&slots);
                if want.single(None).is_some() {
                    assert_eq!(old, value);
                    break;
                }
                is.read(builder.nodes.words, old, kind);
                if is.is_coded() && !is.len().is_multiple_of(4) {
                    let last = (old & REF_OFFSET) * UNIT + kind.refs + is.len() as u32;
                    let rest = load(builder.nodes.words, last & !3) >> (8 * (last % 4));
                    assert_eq!(rest, 0, "what follows the last code");
                }
                assert_eq!(is.starts(), want.starts(), "as few runs as can be: {slots:?}");
                // A node that loses its last child in place still has refs.
                let has_codes = has_palette && !slots.contains(&CHILD);
                assert!(is.is_coded() == has_codes || entry.is_none() && has_codes);
                palette.iter().for_each(|palette| is.decode(palette));
                assert_eq!(is.refs(), want.refs());
            }
        }
        assert!(in_place > 100 && new > 100, "{in_place} {new}");
    }

    #[test]
    fn a_value_that_comes_makes_the_node_of_its_slots() {
        for (seed, has_palette) in [false, true].into_iter().enumerate() {
            for values in [2, 3, 60] {
                puts::<u32>(values, has_palette, seed as u64);
                puts::<u128>(values, has_palette, seed as u64);
            }
        }
    }
}
