//! The writer's memory: hands out blocks of an image and takes them back after a grace period.
//!
//! Two sizes of thing: *blocks* of 8-byte units (nodes, small roots), cut from chunks of 64 KiB and kept in free lists by
//! size; and *runs* of whole chunks (large roots). A free block serves a smaller request by being cut. When much of the
//! claimed memory lies free, or all of it is claimed, neighbouring free blocks are joined and whole free chunks go back: so a
//! stream of updates does not spread over ever more memory. Nothing here is stored in the image: a writer that opens an
//! image finds out what is in use by walking its tables.

use super::Error;
use super::layout::{CHUNK, GUARD, LINE, UNIT};
use crate::Grace;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

const LINE_UNITS: u32 = LINE / UNIT;
const CHUNK_UNITS: u32 = CHUNK / UNIT;
/// Retired units that make the writer ask for a grace period by itself and look whether an earlier one is over.
const BATCH_UNITS: u32 = 1 << 13;

/// A run of units in the image: a node or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// First unit.
    pub at: u32,
    /// Length in units.
    pub units: u32,
}

/// What waits for one grace period.
#[derive(Debug, Default)]
struct Batch {
    blocks: Vec<Block>,
    /// Chunks of tables that an earlier writer built.
    chunks: Vec<u32>,
    /// Something outside the image waits as well; see [`Space::mark`].
    marked: bool,
}

/// The allocator of one image.
#[derive(Debug)]
pub(crate) struct Space {
    /// For each chunk: how many tables of earlier writers reach into it, or [`OWNED`] or [`FREE`].
    chunks: Vec<u32>,
    /// For each chunk: whether anything was stored to it since its pages were given back.
    touched: Vec<bool>,
    free: FreeLists,
    /// The chunk being cut: next unit and end.
    next: u32,
    end: u32,
    pending: Batch,
    pending_units: u32,
    /// Batches by the ticket of their grace period, oldest first.
    limbo: VecDeque<(u64, Batch)>,
    /// Batches whose grace period is over so far.
    freed_batches: u64,
    used_units: u64,
    limbo_units: u64,
    peak_units: u64,
    /// Units freed since free blocks were last joined.
    unjoined_units: u64,
    /// Told of every block that is free again.
    #[cfg(feature = "poison")]
    pub on_release: OnRelease,
}

/// What tests do with a block that must not be read any more.
#[cfg(feature = "poison")]
#[derive(Default)]
pub(crate) struct OnRelease(pub Option<alloc::boxed::Box<dyn FnMut(Block) + Send + Sync>>);

#[cfg(feature = "poison")]
impl core::fmt::Debug for OnRelease {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OnRelease")
    }
}

const FREE: u32 = 0;
const OWNED: u32 = u32::MAX;

/// What a [`Space`] holds, bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub used: u64,
    pub limbo: u64,
    pub claimed: u64,
    pub peak: u64,
}

impl Space {
    /// The space of a new image of `size` bytes whose first `reserved` bytes (header, directory) are in use.
    pub fn new(size: u64, reserved: u64) -> Self {
        let mut space = Self::behind(size, reserved);
        // What the header leaves of its last chunk is cut first.
        space.next = (reserved.next_multiple_of(u64::from(LINE)) / u64::from(UNIT)) as u32;
        space
    }

    /// The space of an image that an earlier writer left, `adopted` being the chunks that each of its tables reaches into.
    ///
    /// All other chunks are held back until a grace period has passed: a writer that died may have unlinked nodes there that
    /// readers still hold. The rest of the header's chunk is given up.
    pub fn of_existing<'a>(size: u64, reserved: u64, adopted: impl Iterator<Item = &'a [u32]>) -> Self {
        let mut space = Self::behind(size, reserved);
        for &chunk in adopted.flatten() {
            let state = &mut space.chunks[chunk as usize];
            if *state != OWNED {
                *state += 1;
            }
        }
        // Whoever wrote here before may have stored anywhere.
        space.touched.fill(true);
        let others: Vec<u32> =
            (0..space.chunks.len() as u32).filter(|&chunk| space.chunks[chunk as usize] == FREE).collect();
        for &chunk in &others {
            space.chunks[chunk as usize] = 1;
        }
        space.pending.chunks = others;
        space
    }

    fn behind(size: u64, reserved: u64) -> Self {
        let mut chunks = alloc::vec![FREE; (size / u64::from(CHUNK)) as usize];
        let first = reserved.div_ceil(u64::from(CHUNK)) as usize;
        chunks[..first].fill(OWNED);
        let end = (first as u64 * u64::from(CHUNK) / u64::from(UNIT)).min(Self::last_unit(size));
        Self {
            touched: alloc::vec![false; chunks.len()],
            chunks,
            free: FreeLists::new(),
            next: end as u32,
            end: end as u32,
            pending: Batch::default(),
            pending_units: 0,
            limbo: VecDeque::new(),
            freed_batches: 0,
            used_units: 0,
            limbo_units: 0,
            peak_units: 0,
            unjoined_units: 0,
            #[cfg(feature = "poison")]
            on_release: OnRelease::default(),
        }
    }

    /// The first unit of the guard at the end of an image of `size` bytes.
    fn last_unit(size: u64) -> u64 {
        (size - u64::from(GUARD)) / u64::from(UNIT)
    }

    /// A block of `units`, aligned to a line when it is longer than one and never across two when it is not.
    pub fn allocate(&mut self, units: u32, grace: &mut impl Grace) -> Result<Block, Error> {
        if let Some(block) = self.try_allocate(units, grace) {
            return Ok(block);
        }
        // Everything retired becomes free when its grace periods are over: worth the wait before giving up.
        self.begin(grace);
        if let Some((ticket, _)) = self.limbo.back() {
            grace.wait(*ticket);
            self.reclaim(grace);
        }
        self.join();
        self.try_allocate(units, grace).ok_or(Error::Full {
            needed: u64::from(units * UNIT),
            size: self.chunks.len() as u64 * u64::from(CHUNK),
        })
    }

    fn try_allocate(&mut self, units: u32, grace: &mut impl Grace) -> Option<Block> {
        let at = if units >= CHUNK_UNITS {
            self.take_chunks(units)?
        } else {
            match self.free.take(units).or_else(|| self.cut(units)) {
                Some(at) => at,
                None => self.fresh(units, grace)?,
            }
        };
        self.used_units += u64::from(units);
        self.peak_units = self.peak_units.max(self.used_units + self.limbo_units);
        Some(Block { at, units })
    }

    /// Cuts from the current chunk.
    fn cut(&mut self, units: u32) -> Option<u32> {
        let in_line = self.next % LINE_UNITS;
        let hole = if in_line != 0 && in_line + units > LINE_UNITS { LINE_UNITS - in_line } else { 0 };
        if self.next + hole + units > self.end {
            return None;
        }
        self.free.put(self.next, hole);
        let at = self.next + hole;
        self.next = at + units;
        Some(at)
    }

    /// Cuts from a chunk that is free, unless so much lies free in claimed ones that joining it is worth more.
    fn fresh(&mut self, units: u32, grace: &mut impl Grace) -> Option<u32> {
        if self.reclaim(grace)
            && let Some(at) = self.free.take(units)
        {
            return Some(at);
        }
        if self.unjoined_units > self.used_units / 4 {
            self.join();
            if let Some(at) = self.free.take(units) {
                return Some(at);
            }
        }
        let chunk = self.chunks.iter().position(|state| *state == FREE)? as u32;
        self.free.put(self.next, self.end - self.next);
        self.chunks[chunk as usize] = OWNED;
        self.touched[chunk as usize] = true;
        let guard = Self::last_unit(self.chunks.len() as u64 * u64::from(CHUNK));
        self.next = chunk * CHUNK_UNITS;
        self.end = u64::from(self.next + CHUNK_UNITS).min(guard) as u32;
        self.cut(units)
    }

    /// Joins neighbouring free blocks and gives whole free chunks back.
    fn join(&mut self) {
        self.unjoined_units = 0;
        let mut blocks = self.free.drain();
        blocks.sort_unstable_by_key(|block| block.at);
        let mut blocks = blocks.into_iter().peekable();
        while let Some(Block { mut at, mut units }) = blocks.next() {
            while let Some(next) = blocks.next_if(|next| next.at == at + units) {
                units += next.units;
            }
            let end = at + units;
            let (first, last) = (at.div_ceil(CHUNK_UNITS), end / CHUNK_UNITS);
            if first < last {
                self.chunks[first as usize..last as usize].fill(FREE);
                self.free.put(at, first * CHUNK_UNITS - at);
                at = last * CHUNK_UNITS;
            }
            self.free.put(at, end - at);
        }
    }

    /// Whole chunks in a row for a large root; the rest of the last is cut next.
    fn take_chunks(&mut self, units: u32) -> Option<u32> {
        let count = units.div_ceil(CHUNK_UNITS) as usize;
        // The last chunk holds the guard, so that a root does not end in it.
        let chunks = &self.chunks[..self.chunks.len() - 1];
        let first = chunks.windows(count).position(|run| run.iter().all(|state| *state == FREE))?;
        self.chunks[first..first + count].fill(OWNED);
        self.touched[first..first + count].fill(true);
        let at = first as u32 * CHUNK_UNITS;
        let (rest, rest_end) = (at + units, at + count as u32 * CHUNK_UNITS);
        if rest_end - rest > self.end - self.next {
            self.free.put(self.next, self.end - self.next);
            (self.next, self.end) = (rest, rest_end);
        } else {
            self.free.put(rest, rest_end - rest);
        }
        Some(at)
    }

    /// Gives back a block that no reader has ever seen.
    pub fn free(&mut self, block: Block) {
        self.used_units -= u64::from(block.units);
        self.release(block);
    }

    fn release(&mut self, block: Block) {
        #[cfg(feature = "poison")]
        if let Some(on_release) = &mut self.on_release.0 {
            on_release(block);
        }
        // The whole chunks of a large root are free at once; its last, shared with other blocks, is not.
        let whole = block.units / CHUNK_UNITS;
        let first = (block.at / CHUNK_UNITS) as usize;
        self.chunks[first..first + whole as usize].fill(FREE);
        let (at, units) = (block.at + whole * CHUNK_UNITS, block.units % CHUNK_UNITS);
        self.free.put(at, units);
        self.unjoined_units += u64::from(units);
    }

    /// Takes back a block that readers may still hold.
    pub fn retire(&mut self, block: Block, grace: &mut impl Grace) {
        self.used_units -= u64::from(block.units);
        self.limbo_units += u64::from(block.units);
        self.pending_units += block.units;
        self.pending.blocks.push(block);
        if self.pending_units >= BATCH_UNITS {
            self.begin(grace);
            self.reclaim(grace);
        }
    }

    /// Takes back the chunks of a table that an earlier writer built; see [`Space::of_existing`].
    pub fn retire_adopted(&mut self, chunks: Vec<u32>) {
        self.pending.chunks.extend(chunks);
    }

    /// Lets something outside the image wait for readers that run now: it may go when [`Space::is_over`] says so of the mark
    /// returned.
    pub fn mark(&mut self) -> u64 {
        self.pending.marked = true;
        self.freed_batches + self.limbo.len() as u64
    }

    /// Whether all readers that ran when `mark` was made have finished.
    pub fn is_over(&self, mark: u64) -> bool {
        self.freed_batches > mark
    }

    /// Asks for a grace period for all that was retired since the last.
    pub fn begin(&mut self, grace: &mut impl Grace) {
        if self.is_pending() {
            self.pending_units = 0;
            self.limbo.push_back((grace.begin(), core::mem::take(&mut self.pending)));
        }
    }

    fn is_pending(&self) -> bool {
        !self.pending.blocks.is_empty() || !self.pending.chunks.is_empty() || self.pending.marked
    }

    /// Frees what a passed grace period allows; returns whether that was anything.
    pub fn reclaim(&mut self, grace: &mut impl Grace) -> bool {
        if self.limbo.is_empty() {
            return false;
        }
        let passed = grace.passed();
        let before = self.freed_batches;
        while self.limbo.front().is_some_and(|(ticket, _)| *ticket <= passed) {
            let Some((_, batch)) = self.limbo.pop_front() else { break };
            self.freed_batches += 1;
            for block in batch.blocks {
                self.limbo_units -= u64::from(block.units);
                self.release(block);
            }
            for chunk in batch.chunks {
                if self.chunks[chunk as usize] != OWNED {
                    self.chunks[chunk as usize] -= 1;
                }
            }
        }
        self.freed_batches > before
    }

    /// Runs of whole free chunks whose pages hold something, as byte ranges: it is for the caller to give them back.
    pub fn take_unused(&mut self) -> Vec<Range<u64>> {
        self.join();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (chunk, state) in self.chunks.iter().enumerate() {
            if *state != FREE || !self.touched[chunk] {
                continue;
            }
            self.touched[chunk] = false;
            let start = chunk as u64 * u64::from(CHUNK);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end += u64::from(CHUNK),
                _ => ranges.push(start..start + u64::from(CHUNK)),
            }
        }
        ranges
    }

    /// Tells these ranges of [`Space::take_unused`] once more, as far as they are free then.
    pub fn offer_unused(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            let chunks = (range.start / u64::from(CHUNK)) as usize..(range.end / u64::from(CHUNK)) as usize;
            self.touched[chunks].fill(true);
        }
    }

    /// Whether something waits for a grace period.
    pub fn waiting(&self) -> bool {
        self.is_pending() || !self.limbo.is_empty()
    }

    /// Blocks until nothing waits any more.
    pub fn settle(&mut self, grace: &mut impl Grace) {
        self.begin(grace);
        if let Some((ticket, _)) = self.limbo.back() {
            grace.wait(*ticket);
            self.reclaim(grace);
        }
    }

    pub fn usage(&self) -> Usage {
        let unit = u64::from(UNIT);
        Usage {
            used: self.used_units * unit,
            limbo: self.limbo_units * unit,
            claimed: self.chunks.iter().filter(|state| **state != FREE).count() as u64 * u64::from(CHUNK),
            peak: self.peak_units * unit,
        }
    }
}

/// Free blocks by size. None that fits a line straddles two; a longer one starts on a line.
#[derive(Debug)]
struct FreeLists {
    /// By size in units; the last list holds all that are at least that long, with their sizes in `long`.
    lists: Vec<Vec<u32>>,
    long: Vec<u32>,
    /// Bit n: `lists[n]` is not empty.
    filled: [u64; LISTS / 64],
}

/// Sizes that have a list of their own: up to 255 units, 2 KiB, so every node and small root.
const LISTS: usize = 256;

impl FreeLists {
    fn new() -> Self {
        Self { lists: (0..LISTS).map(|_| Vec::new()).collect(), long: Vec::new(), filled: [0; LISTS / 64] }
    }

    /// Adds the free run of `units` from `at`, cut where a line begins if it does not start on one.
    fn put(&mut self, at: u32, units: u32) {
        let head = (at.next_multiple_of(LINE_UNITS) - at).min(units);
        for (at, units) in [(at, head), (at + head, units - head)] {
            let list = (units as usize).min(LISTS - 1);
            if list > 0 {
                self.lists[list].push(at);
                self.filled[list / 64] |= 1 << (list % 64);
                if list == LISTS - 1 {
                    self.long.push(units);
                }
            }
        }
    }

    /// Takes `units` from the smallest free block that has them.
    fn take(&mut self, units: u32) -> Option<u32> {
        let least = (units as usize).min(LISTS - 1);
        let list = (least / 64..LISTS / 64).find_map(|word| {
            let from = if word == least / 64 { u64::MAX << (least % 64) } else { u64::MAX };
            let bits = self.filled[word] & from;
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })?;
        let (at, found) = if list < LISTS - 1 {
            (self.lists[list].pop()?, list as u32)
        } else {
            let index = self.long.iter().rposition(|found| *found >= units)?;
            (self.lists[list].swap_remove(index), self.long.swap_remove(index))
        };
        if self.lists[list].is_empty() {
            self.filled[list / 64] &= !(1 << (list % 64));
        }
        self.put(at + units, found - units);
        Some(at)
    }

    fn drain(&mut self) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (size, list) in self.lists.iter_mut().enumerate().take(LISTS - 1) {
            blocks.extend(list.drain(..).map(|at| Block { at, units: size as u32 }));
        }
        let long = self.lists[LISTS - 1].drain(..).zip(self.long.drain(..));
        blocks.extend(long.map(|(at, units)| Block { at, units }));
        self.filled = [0; LISTS / 64];
        blocks
    }
}
