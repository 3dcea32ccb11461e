//! Turns sorted prefixes into nodes, aside: nothing that it writes can be found by a reader before the caller publishes it.

use super::error::Error;
use super::exact::{self, Exact};
use super::layout::{
    BUCKET, DIRECT_BITS, DIRECT_UNITS, DIRECT12, Kind, NODE6, NODE8, RANGES, RANGES_BITS, RANGES_STARTS,
    RANGES_VALUES, RANGES32, RANGES32_BITS, RANGES32_REFS, RANGES32_RUNS, RANGES32_STARTS, REF_KIND_SHIFT,
    REF_NODE, SKIP, SKIP_MAX, SKIP_MIN, SKIP_SHORT, UNIT, node_ref,
};
use super::palette::Palette;
use super::ranges::{Longer, Ranges, Run, descending};
use super::runs::{Piece, PublishedWord, Runs, counted};
use super::space::{Block, PoolId, Space};
use super::walk;
use super::words::count_change;
use crate::prefix_store::PrefixStore;
use crate::{Address, Grace, Prefix};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

/// Buffers that every update needs, kept by the image so that each is made only once.
#[derive(Debug)]
pub(crate) struct Scratch {
    built: Vec<Block>,
    replaced: Vec<Block>,
    /// The node being changed, the same with changes, and the next.
    runs: [Runs; 3],
    pieces: Vec<Piece>,
    arriving: Vec<exact::Key>,
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            built: Vec::new(),
            replaced: Vec::new(),
            runs: [Runs::new(), Runs::new(), Runs::new()],
            pieces: Vec::new(),
            arriving: Vec::new(),
        }
    }
}

/// Builds nodes of one table and remembers them, so that they can be given back if the memory runs out midway.
pub(crate) struct Builder<'a, G> {
    pub runs: &'a mut [Runs; 3],
    pub pieces: &'a mut Vec<Piece>,
    pub nodes: Nodes<'a, G>,
}

/// Writes single nodes.
pub(crate) struct Nodes<'a, G> {
    pub words: &'a [AtomicU32],
    space: &'a mut Space,
    pool: PoolId,
    grace: &'a mut G,
    pub kind: Kind,
    pub palette: Option<&'a Palette>,
    pub exact: Option<&'a Exact>,
    /// So many prefixes in a slot of a root of IPv6 get a direct12. By default none do.
    pub direct_min: usize,
    /// Keys that the hash table will have when this change is published. In order.
    pub arriving: &'a mut Vec<exact::Key>,
    built: &'a mut Vec<Block>,
    /// Blocks that the published words will make unreachable.
    pub replaced: &'a mut Vec<Block>,
}

impl<'a, G: Grace> Builder<'a, G> {
    pub fn new(
        words: &'a [AtomicU32],
        space: &'a mut Space,
        pool: PoolId,
        grace: &'a mut G,
        kind: Kind,
        palette: Option<&'a Palette>,
        scratch: &'a mut Scratch,
    ) -> Self {
        let Scratch { built, replaced, runs, pieces, arriving } = scratch;
        built.clear();
        replaced.clear();
        pieces.clear();
        arriving.clear();
        let (exact, direct_min) = (None, usize::MAX);
        let nodes =
            Nodes { words, space, pool, grace, kind, palette, exact, direct_min, arriving, built, replaced };
        Self { runs, pieces, nodes }
    }

    /// Frees all that was built, as it will not be published; hands the reason back.
    pub fn abandon(self, why: Error) -> Error {
        for block in self.nodes.built.drain(..) {
            self.nodes.space.free(block);
        }
        why
    }

    /// Stores a word that readers find.
    pub fn store(&self, word: usize, value: u32) {
        self.nodes.words[word].store(value, Ordering::Release);
        #[cfg(feature = "poison")]
        self.nodes.space.published();
    }

    /// Stores the fallback of table `id`, at word index `at`. The change counts before: by that a lookup that loads the fallback behind its walk
    /// sees whether they belong together. It counts once more behind: by that one that loaded the fallback before learns of the other.
    pub fn store_fallback(&self, id: u32, at: usize, fallback: u32) {
        count_change(self.nodes.words, id);
        #[cfg(feature = "poison")]
        self.nodes.space.published();
        self.store(at, fallback);
        count_change(self.nodes.words, id);
        #[cfg(feature = "poison")]
        self.nodes.space.published();
    }

    /// Publishes what was built, word by word.
    pub fn store_all(&self, published_words: &[PublishedWord]) {
        for published in published_words {
            self.store(published.word, published.entry);
        }
    }

    /// Retires what the words that were stored led to and no longer do.
    pub fn retire(self) {
        for block in self.nodes.replaced.drain(..) {
            self.nodes.space.retire(block, self.nodes.grace);
        }
    }

    /// The prefixes inside `outer`, itself included, but for those that the hash table has.
    pub fn inside<A: Address>(
        &self,
        prefix_store: &PrefixStore<A>,
        outer: Prefix<A>,
    ) -> Vec<(Prefix<A>, u32)> {
        let mut inside = Vec::new();
        prefix_store.each_inside(outer, |prefix, value| {
            if !self.nodes.is_exact(&prefix) {
                inside.push((prefix, value));
            }
        });
        inside
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
        if self.nodes.kind == NODE6 {
            if entries.len() <= FEW
                && needs_tail(entries, depth)
                && let Some(ranges) =
                    Ranges::of(entries, depth, RANGES_BITS, RANGES_STARTS + 1, default, &mut Vec::new())
            {
                return self.nodes.ranges(ranges.runs());
            }
            let mut slots = [default; 1 << NODE6.stride];
            self.paint(entries, depth, NODE6.stride, &mut slots)?;
            return self.slots(&slots);
        }
        if A::FAMILY == 6 && depth == ROOT_IPV6 && entries.len() >= self.nodes.direct_min {
            let mut slots = alloc::vec![default; 1 << DIRECT_BITS];
            self.paint(entries, depth, DIRECT_BITS, &mut slots)?;
            return self.nodes.direct(&slots);
        }
        // All go the same way for as long as the first and the last do and none ends.
        let same = first.addr().common_bits(last.addr());
        let is_lone = entries.len() == 1;
        let mut end = depth;
        if is_lone || same >= depth + SKIP_MIN {
            let shortest = entries.iter().map(|(prefix, _)| prefix.len()).min().unwrap_or(depth);
            end = same.min(shortest).min(depth + SKIP_MAX);
        }
        // In a table of one kind mostly, the processor guesses the branches of a walk. The Internet's IPv6 table has few chains.
        if A::FAMILY != 6
            && !is_lone
            && end < depth + RANGES32_BITS
            && entries.len() <= FEW
            && let Some(ranges) = self.ranges32(entries, depth, default)?
        {
            return self.nodes.ranges32(ranges.runs());
        }
        if is_lone || end >= depth + SKIP_MIN {
            let next = self.subtree(entries, end, default)?;
            return self.nodes.skip(first.addr(), depth, end, next, default);
        }
        let mut slots = [default; 1 << NODE8.stride];
        self.paint(entries, depth, NODE8.stride, &mut slots)?;
        self.slots(&slots)
    }

    /// The runs of ranges32 nodes at `depth` with the nodes behind them built, if they are few enough.
    fn ranges32<A: Address>(
        &mut self,
        entries: &[(Prefix<A>, u32)],
        depth: u16,
        default: u32,
    ) -> Result<Option<Ranges>, Error> {
        // Two nodes, one above the other, only where a node8 would have others below it.
        let is_deep = entries.iter().any(|(prefix, _)| prefix.len() > depth + NODE8.stride);
        let most = if is_deep { RANGES32_RUNS * RANGES32_RUNS } else { RANGES32_RUNS };
        let mut longer = Vec::new();
        let Some(ranges) = Ranges::of(entries, depth, RANGES32_BITS, most, default, &mut longer) else {
            return Ok(None);
        };
        let mut built = Ranges::new(most);
        for Run { start, entry } in ranges.runs() {
            let entry = match longer.get((entry & !REF_NODE) as usize).filter(|_| entry & REF_NODE != 0) {
                Some(Longer { entries, cover }) => self.subtree(entries, depth + RANGES32_BITS, *cover)?,
                None => *entry,
            };
            built.push(*start, entry);
        }
        Ok(Some(built))
    }

    /// Paints sorted `entries` over the slots of a node of `stride` bits at `depth`, building its children.
    pub fn paint<A: Address>(
        &mut self,
        mut entries: &[(Prefix<A>, u32)],
        depth: u16,
        stride: u16,
        slots: &mut [u32],
    ) -> Result<(), Error> {
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
    pub fn slots(&mut self, slots: &[u32]) -> Result<u32, Error> {
        let [_, _, runs] = &mut *self.runs;
        runs.of_slots(slots);
        self.nodes.bitmap(runs)
    }
}

/// Whether a bitmap of `entries` would have nodes below it, and sixteen bits from `depth` on tell them apart.
fn needs_tail<A: Address>(entries: &[(Prefix<A>, u32)], depth: u16) -> bool {
    let deepest = entries.iter().map(|(prefix, _)| prefix.len()).max().unwrap_or(depth);
    deepest > depth + NODE6.stride && deepest <= depth + RANGES_BITS
}

/// Bits of the roots of IPv6 that have direct12 below them. No other node of such a table is at this depth.
pub(crate) const ROOT_IPV6: u16 = 12;

/// The fewest prefixes that are worth a direct12.
pub(crate) const DIRECT_MIN: usize = 64;

/// A larger crowd gets a bitmap node, so that an update beneath it has less to rebuild.
const FEW: usize = 32;

impl<G: Grace> Nodes<'_, G> {
    /// A block of `units` that is given back by [`Builder::abandon`].
    pub fn allocate(&mut self, units: u32) -> Result<Block, Error> {
        let block = self.space.allocate(self.pool, units, self.grace)?;
        self.built.push(block);
        Ok(block)
    }

    /// Whether the hash table has this prefix, or will have it.
    pub fn is_exact<A: Address>(&self, prefix: &Prefix<A>) -> bool {
        self.exact.is_some_and(|exact| exact.has(self.words, prefix, self.arriving))
    }

    /// Marks all that `entry` leads to as replaced.
    pub fn replace(&mut self, entry: u32) {
        walk::own_nodes(self.words, entry, self.kind, &mut |block| self.replaced.push(block));
    }

    pub(super) fn put(&self, block: Block, word: usize, value: u32) {
        self.words[(block.at * UNIT / 4) as usize + word].store(value, Ordering::Relaxed);
    }

    /// A node of these runs, or their value when there is one run only.
    pub fn bitmap(&mut self, runs: &mut Runs) -> Result<u32, Error> {
        if let Some(value) = runs.single(self.palette) {
            return Ok(value);
        }
        if let Some(palette) = self.palette
            && !runs.encode(palette)
        {
            runs.decode(palette);
        }
        let id = if runs.is_coded() { self.kind.leaf() } else { self.kind.id };
        let block = self.bitmap_block(runs.starts(), id, runs.len())?;
        let first = self.kind.refs as usize / 4;
        if runs.is_coded() {
            runs.code_words().enumerate().for_each(|(word, codes)| self.put(block, first + word, codes));
        } else {
            runs.refs().iter().enumerate().for_each(|(run, entry)| self.put(block, first + run, *entry));
        }
        Ok(node_ref(id, block.at))
    }

    /// A block for a bitmap node or leaf, with the bitmap and room for its refs or codes.
    pub(super) fn bitmap_block(&mut self, starts: &[u64; 4], id: u32, runs: usize) -> Result<Block, Error> {
        let runs = runs as u32;
        let units =
            if id == self.kind.id { self.kind.units(runs) } else { walk::leaf_units(self.kind, runs) };
        let block = self.allocate(units)?;
        let counted_starts;
        let starts = if self.kind != NODE6 {
            counted_starts = counted(starts);
            &counted_starts[..]
        } else {
            &starts[..1]
        };
        for (word, &bits) in starts.iter().enumerate() {
            self.put(block, 2 * word, bits as u32);
            self.put(block, 2 * word + 1, (bits >> 32) as u32);
        }
        Ok(block)
    }

    fn direct(&mut self, slots: &[u32]) -> Result<u32, Error> {
        let block = self.allocate(DIRECT_UNITS)?;
        slots.iter().enumerate().for_each(|(slot, entry)| self.put(block, slot, *entry));
        Ok(node_ref(DIRECT12, block.at))
    }

    fn ranges(&mut self, runs: &[Run]) -> Result<u32, Error> {
        if let [run] = runs {
            return Ok(run.entry);
        }
        let block = self.allocate((RANGES_VALUES + 4 * runs.len() as u32).div_ceil(UNIT))?;
        for (word, pair) in descending::<RANGES_STARTS>(runs).chunks(2).enumerate() {
            self.put(block, word, pair[0] | pair[1] << 16);
        }
        for (word, run) in runs.iter().rev().enumerate() {
            self.put(block, RANGES_VALUES as usize / 4 + word, run.entry);
        }
        Ok(node_ref(RANGES, block.at))
    }

    /// One ranges32 of these runs, or several below another.
    pub(super) fn ranges32(&mut self, runs: &[Run]) -> Result<u32, Error> {
        if let [run] = runs {
            return Ok(run.entry);
        }
        if runs.len() <= RANGES32_RUNS {
            return self.ranges32_of(runs, descending(runs));
        }
        let count = runs.len().div_ceil(RANGES32_RUNS);
        let mut parts = Vec::with_capacity(count);
        for part in 0..count {
            let runs = &runs[part * runs.len() / count..(part + 1) * runs.len() / count];
            parts.push(Run { start: runs[0].start, entry: self.ranges32(runs)? });
        }
        let mut starts = descending(&parts);
        starts.reverse();
        self.ranges32_of(&parts, starts)
    }

    fn ranges32_of(&mut self, runs: &[Run], starts: [u32; RANGES32_STARTS]) -> Result<u32, Error> {
        let block = self.allocate((RANGES32_REFS + 4 * runs.len() as u32).div_ceil(UNIT))?;
        for (word, value) in starts.into_iter().chain(runs.iter().rev().map(|run| run.entry)).enumerate() {
            self.put(block, word, value);
        }
        Ok(node_ref(RANGES32, block.at))
    }

    /// A bucket of these entries, 1 to [`BUCKET`]; returns the word that leads to it.
    pub fn bucket(&mut self, hash: &exact::Hash, entries: &[exact::Entry]) -> Result<u32, Error> {
        debug_assert!((1..=BUCKET).contains(&entries.len()));
        let log = entries.len().next_power_of_two().trailing_zeros();
        let block = self.allocate(exact::Hash::units(hash.is_short(), log))?;
        let unused = core::iter::repeat(&([0; 2], 0));
        for (at, (name, value)) in entries.iter().chain(unused).take(1 << log).enumerate() {
            if hash.is_short() {
                self.put(block, 2 * at, name[0] as u32);
                self.put(block, 2 * at + 1, *value);
            } else {
                let halves = name.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
                halves.enumerate().for_each(|(half, word)| self.put(block, 4 * at + half, word));
                self.put(block, (4 << log) + at, *value);
            }
        }
        Ok(REF_NODE | log << REF_KIND_SHIFT | block.at)
    }

    /// A skip of the bits of `addr` from `depth` to `end`, with `next` behind it.
    fn skip<A: Address>(
        &mut self,
        addr: A,
        depth: u16,
        end: u16,
        next: u32,
        default: u32,
    ) -> Result<u32, Error> {
        if next == default {
            return Ok(default);
        }
        let len = u32::from(end - depth);
        let block = self.allocate(walk::skip_units(len))?;
        let addr = addr.masked(end);
        let (bits, more) = (addr.word_at(depth) >> 32, addr.word_at(depth + SKIP_SHORT));
        let words = [default, bits as u32, len, next, more as u32, (more >> 32) as u32];
        for (word, value) in words.into_iter().take((block.units * UNIT / 4) as usize).enumerate() {
            self.put(block, word, value);
        }
        Ok(node_ref(SKIP, block.at))
    }
}
