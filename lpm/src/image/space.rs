//! The writer's memory: hands out blocks of an image and takes them back after a grace period.
//!
//! Two sizes of thing: *blocks* of 8-byte units (nodes, small roots), cut from chunks of 64 KiB and kept in one free list a
//! size; and *runs* of whole chunks (large roots). Nothing here is stored in the image: a writer that opens an image finds
//! out what is in use by walking its tables.

use super::Error;
use super::layout::{CHUNK, LINE, UNIT};
use crate::Grace;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

const LINE_UNITS: u32 = LINE / UNIT;
const CHUNK_UNITS: u32 = CHUNK / UNIT;
/// Sizes up to this have a free list in an array; larger ones (a few roots) in a tree.
const SMALL: usize = 192;
/// Retired units that make the writer ask for a grace period by itself.
const BATCH_UNITS: u32 = 1 << 17;

/// A run of units in the image: a node or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// First unit.
    pub at: u32,
    /// Length in units.
    pub units: u32,
}

/// Something that waits for a grace period.
#[derive(Debug)]
enum Retired {
    Block(Block),
    /// Chunks of a table that an earlier writer built.
    Chunks(Vec<u32>),
}

/// The allocator of one image.
#[derive(Debug)]
pub(crate) struct Space {
    /// For each chunk: how many tables of earlier writers reach into it, or [`OWNED`] or [`FREE`].
    chunks: Vec<u32>,
    small: Vec<Vec<u32>>,
    large: BTreeMap<u32, Vec<u32>>,
    /// The chunk being cut: next unit and end.
    next: u32,
    end: u32,
    pending: Vec<Retired>,
    pending_units: u32,
    limbo: VecDeque<(u64, Vec<Retired>)>,
    used_units: u64,
    limbo_units: u64,
    peak_units: u64,
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
        let others: Vec<u32> =
            (0..space.chunks.len() as u32).filter(|&chunk| space.chunks[chunk as usize] == FREE).collect();
        for &chunk in &others {
            space.chunks[chunk as usize] = 1;
        }
        space.pending.push(Retired::Chunks(others));
        space
    }

    fn behind(size: u64, reserved: u64) -> Self {
        let mut chunks = alloc::vec![FREE; (size / u64::from(CHUNK)) as usize];
        let first = reserved.div_ceil(u64::from(CHUNK)) as usize;
        chunks[..first].fill(OWNED);
        let end = (first as u64 * u64::from(CHUNK) / u64::from(UNIT)) as u32;
        Self {
            chunks,
            small: (0..=SMALL).map(|_| Vec::new()).collect(),
            large: BTreeMap::new(),
            next: end,
            end,
            pending: Vec::new(),
            pending_units: 0,
            limbo: VecDeque::new(),
            used_units: 0,
            limbo_units: 0,
            peak_units: 0,
        }
    }

    /// A block of `units`, aligned to a line when it is longer than one and never across two when it is not.
    pub fn allocate(&mut self, units: u32, grace: &mut impl Grace) -> Result<Block, Error> {
        self.reclaim(grace);
        if let Some(block) = self.try_allocate(units) {
            return Ok(block);
        }
        // Everything retired becomes free when its grace periods are over: worth the wait before giving up.
        self.begin(grace);
        if let Some((ticket, _)) = self.limbo.back() {
            grace.wait(*ticket);
            self.reclaim(grace);
        }
        self.try_allocate(units).ok_or(Error::Full {
            needed: u64::from(units * UNIT),
            size: self.chunks.len() as u64 * u64::from(CHUNK),
        })
    }

    fn try_allocate(&mut self, units: u32) -> Option<Block> {
        let at = self.take_free(units).or_else(|| self.cut(units)).or_else(|| self.take_chunks(units))?;
        self.used_units += u64::from(units);
        self.peak_units = self.peak_units.max(self.used_units + self.limbo_units);
        Some(Block { at, units })
    }

    fn take_free(&mut self, units: u32) -> Option<u32> {
        match self.small.get_mut(units as usize) {
            Some(list) => list.pop(),
            None => self.large.get_mut(&units)?.pop(),
        }
    }

    fn put_free(&mut self, at: u32, units: u32) {
        match self.small.get_mut(units as usize) {
            Some(list) => list.push(at),
            None => self.large.entry(units).or_default().push(at),
        }
    }

    /// Cuts from the current chunk, or from the next free one.
    fn cut(&mut self, units: u32) -> Option<u32> {
        if units >= CHUNK_UNITS {
            return None;
        }
        loop {
            let in_line = self.next % LINE_UNITS;
            let hole = if in_line != 0 && in_line + units > LINE_UNITS { LINE_UNITS - in_line } else { 0 };
            if self.next + hole + units <= self.end {
                if hole > 0 {
                    self.put_free(self.next, hole);
                }
                let at = self.next + hole;
                self.next = at + units;
                return Some(at);
            }
            let chunk = self.chunks.iter().position(|state| *state == FREE)? as u32;
            self.put_rest();
            self.chunks[chunk as usize] = OWNED;
            (self.next, self.end) = (chunk * CHUNK_UNITS, (chunk + 1) * CHUNK_UNITS);
        }
    }

    /// Keeps what is left of the current chunk for small nodes.
    fn put_rest(&mut self) {
        while self.next < self.end {
            let units = (LINE_UNITS - self.next % LINE_UNITS).min(self.end - self.next);
            self.put_free(self.next, units);
            self.next += units;
        }
    }

    /// Whole chunks in a row for a large root; the rest of the last is cut next.
    fn take_chunks(&mut self, units: u32) -> Option<u32> {
        if units < CHUNK_UNITS {
            return None;
        }
        let count = units.div_ceil(CHUNK_UNITS) as usize;
        let first = self.chunks.windows(count).position(|run| run.iter().all(|state| *state == FREE))?;
        self.chunks[first..first + count].fill(OWNED);
        let at = first as u32 * CHUNK_UNITS;
        let (rest, rest_end) = (at + units, at + count as u32 * CHUNK_UNITS);
        if rest_end - rest > self.end - self.next {
            self.put_rest();
            (self.next, self.end) = (rest, rest_end);
        }
        Some(at)
    }

    /// Gives back a block that no reader has ever seen.
    pub fn free(&mut self, block: Block) {
        self.used_units -= u64::from(block.units);
        self.release(block);
    }

    fn release(&mut self, block: Block) {
        if block.units < CHUNK_UNITS {
            return self.put_free(block.at, block.units);
        }
        // A large root: its whole chunks are free again. The part in its last chunk is cut up, as that chunk holds other blocks.
        let whole = block.units / CHUNK_UNITS;
        let first = block.at / CHUNK_UNITS;
        self.chunks[first as usize..(first + whole) as usize].fill(FREE);
        let (mut at, end) = (block.at + whole * CHUNK_UNITS, block.at + block.units);
        while at < end {
            let units = LINE_UNITS.min(end - at);
            self.put_free(at, units);
            at += units;
        }
    }

    /// Takes back a block that readers may still hold.
    pub fn retire(&mut self, block: Block, grace: &mut impl Grace) {
        self.used_units -= u64::from(block.units);
        self.limbo_units += u64::from(block.units);
        self.pending_units += block.units;
        self.pending.push(Retired::Block(block));
        if self.pending_units >= BATCH_UNITS {
            self.begin(grace);
        }
    }

    /// Takes back the chunks of a table that an earlier writer built; see [`Space::of_existing`].
    pub fn retire_adopted(&mut self, chunks: Vec<u32>) {
        self.pending.push(Retired::Chunks(chunks));
    }

    /// Asks for a grace period for all that was retired since the last.
    pub fn begin(&mut self, grace: &mut impl Grace) {
        if !self.pending.is_empty() {
            self.pending_units = 0;
            self.limbo.push_back((grace.begin(), core::mem::take(&mut self.pending)));
        }
    }

    /// Frees what a passed grace period allows.
    pub fn reclaim(&mut self, grace: &mut impl Grace) {
        if self.limbo.is_empty() {
            return;
        }
        let passed = grace.passed();
        while self.limbo.front().is_some_and(|(ticket, _)| *ticket <= passed) {
            for retired in self.limbo.pop_front().map_or_else(Vec::new, |(_, batch)| batch) {
                match retired {
                    Retired::Block(block) => {
                        self.limbo_units -= u64::from(block.units);
                        self.release(block);
                    }
                    Retired::Chunks(chunks) => {
                        for chunk in chunks {
                            if self.chunks[chunk as usize] != OWNED {
                                self.chunks[chunk as usize] -= 1;
                            }
                        }
                    }
                }
            }
        }
    }

    /// Whether something waits for a grace period.
    pub fn waiting(&self) -> bool {
        !self.pending.is_empty() || !self.limbo.is_empty()
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
