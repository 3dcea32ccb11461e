//! The writer's memory: hands out blocks of an image and takes them back after a grace period.
//!
//! Two sizes of thing: *blocks* of 8-byte units (nodes, small roots), cut from chunks of 64 KiB and kept in free lists by
//! size. And *runs* of whole chunks (large roots). A free block serves a smaller request by being cut. When much of the
//! claimed memory lies free, or all of it is claimed, neighbouring free blocks are joined and whole free chunks go back. So
//! a stream of updates does not spread over ever more memory. A large table cuts from a *pool* of chunks of its own. So all of it is freed
//! by its chunks, without a walk of its nodes. Small ones share a pool. Nothing here is stored in the image: a
//! writer that opens an image finds out what is in use by walking its tables.

mod free;

use super::error::Error;
use super::layout::{CHUNK, GUARD, LINE, UNIT};
use crate::Grace;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
pub(crate) use free::Block;
use free::{FreeLists, LINE_UNITS};

const CHUNK_UNITS: u32 = CHUNK / UNIT;
/// Retired units that make the writer ask for a grace period by itself and look whether an earlier one is over.
const BATCH_UNITS: u32 = 1 << 13;

/// Whose chunks a block is cut from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolId(u32);

impl PoolId {
    /// The pool of all tables that have none of their own.
    pub const SHARED: Self = Self(0);
}

/// The use of a chunk of 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Free,
    /// Cut by this pool.
    Of(PoolId),
    /// So many tables of earlier writers reach into it.
    Adopted(u32),
}

/// Blocks that are cut from chunks of one owner.
#[derive(Debug)]
struct Pool {
    free: FreeLists,
    /// The chunk being cut: next unit and end.
    next: u32,
    end: u32,
    used_units: u64,
    /// Units freed since free blocks were last joined.
    unjoined_units: u64,
}

impl Pool {
    fn new() -> Self {
        Self { free: FreeLists::new(), next: 0, end: 0, used_units: 0, unjoined_units: 0 }
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

    /// Cuts the units from `next` to `end` from now on, and keeps what was left before as a free block. If what was left is longer, it is
    /// the other way round.
    fn cut_next(&mut self, next: u32, end: u32) {
        if end - next > self.end - self.next {
            self.free.put(self.next, self.end - self.next);
            (self.next, self.end) = (next, end);
        } else {
            self.free.put(next, end - next);
        }
    }
}

/// Blocks that wait for one grace period.
#[derive(Debug, Default)]
struct Batch {
    blocks: Vec<Block>,
    /// All chunks of these, with the units in use.
    pools: Vec<(PoolId, u64)>,
    /// Chunks of tables that an earlier writer built.
    chunks: Vec<u32>,
    /// Something outside the image waits as well; see [`Space::mark`].
    marked: bool,
}

/// The allocator of one image.
#[derive(Debug)]
pub(crate) struct Space {
    chunks: Vec<Chunk>,
    /// For each chunk: whether anything was stored to it since its pages were given back.
    touched: Vec<bool>,
    /// By number.
    pools: Vec<Pool>,
    /// Numbers that no table has.
    spare: Vec<PoolId>,
    pending: Batch,
    pending_units: u32,
    /// Batches by the ticket of their grace period, oldest first.
    limbo: VecDeque<(u64, Batch)>,
    /// Batches whose grace period is over so far.
    freed_batches: u64,
    used_units: u64,
    limbo_units: u64,
    peak_units: u64,
    /// Free chunks that only removals may use.
    reserve: usize,
    is_removing: bool,
    /// Called for every block that is free again.
    #[cfg(feature = "poison")]
    pub on_release: OnRelease,
    /// Called for every word that readers find, after it was stored.
    #[cfg(feature = "poison")]
    pub on_publish: OnPublish,
}

/// Chunks kept for removals: one of so many, ...
const RESERVE_PART: usize = 16;
/// ... and no more than these.
const RESERVE_MOST: usize = 16;

/// The tests' reaction to a publication.
#[cfg(feature = "poison")]
#[derive(Default)]
pub(crate) struct OnPublish(pub Option<alloc::boxed::Box<dyn Fn() + Send + Sync>>);

#[cfg(feature = "poison")]
impl core::fmt::Debug for OnPublish {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OnPublish")
    }
}

/// The tests' treatment of a block that must not be read any more.
#[cfg(feature = "poison")]
#[derive(Default)]
pub(crate) struct OnRelease(pub Option<alloc::boxed::Box<dyn FnMut(Block) + Send + Sync>>);

#[cfg(feature = "poison")]
impl core::fmt::Debug for OnRelease {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OnRelease")
    }
}

/// The use of a [`Space`], bytes.
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
        // The rest of the header's last chunk is cut first.
        space.pool(PoolId::SHARED).next =
            (reserved.next_multiple_of(u64::from(LINE)) / u64::from(UNIT)) as u32;
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
            match *state {
                Chunk::Free => *state = Chunk::Adopted(1),
                Chunk::Adopted(tables) => *state = Chunk::Adopted(tables + 1),
                Chunk::Of(_) => {} // the header's
            }
        }
        // The writer before may have stored anywhere.
        space.touched.fill(true);
        let others: Vec<u32> = (0..space.chunks.len() as u32)
            .filter(|&chunk| space.chunks[chunk as usize] == Chunk::Free)
            .collect();
        for &chunk in &others {
            space.chunks[chunk as usize] = Chunk::Adopted(1);
        }
        space.pending.chunks = others;
        space
    }

    fn behind(size: u64, reserved: u64) -> Self {
        let mut chunks = alloc::vec![Chunk::Free; (size / u64::from(CHUNK)) as usize];
        let first = reserved.div_ceil(u64::from(CHUNK)) as usize;
        chunks[..first].fill(Chunk::Of(PoolId::SHARED));
        let end = (first as u64 * u64::from(CHUNK) / u64::from(UNIT)).min(Self::last_unit(size));
        let shared = Pool { next: end as u32, end: end as u32, ..Pool::new() };
        Self {
            touched: alloc::vec![false; chunks.len()],
            reserve: (chunks.len() / RESERVE_PART).min(RESERVE_MOST),
            is_removing: false,
            chunks,
            pools: alloc::vec![shared],
            spare: Vec::new(),
            pending: Batch::default(),
            pending_units: 0,
            limbo: VecDeque::new(),
            freed_batches: 0,
            used_units: 0,
            limbo_units: 0,
            peak_units: 0,
            #[cfg(feature = "poison")]
            on_release: OnRelease::default(),
            #[cfg(feature = "poison")]
            on_publish: OnPublish::default(),
        }
    }

    /// Lets what is allocated from now on come from the reserve as well, or not any more.
    pub fn use_reserve(&mut self, is_removing: bool) {
        self.is_removing = is_removing;
    }

    /// Whether `count` more chunks may be claimed.
    fn may_claim(&self, count: usize) -> bool {
        let reserve = if self.is_removing { 0 } else { self.reserve };
        let free = self.chunks.iter().filter(|state| **state == Chunk::Free);
        free.take(count + reserve).count() == count + reserve
    }

    #[cfg(feature = "poison")]
    pub fn published(&self) {
        if let Some(on_publish) = &self.on_publish.0 {
            on_publish();
        }
    }

    /// A pool of a table's own, for [`Space::retire_pool`] or [`Space::discard`].
    pub fn new_pool(&mut self) -> PoolId {
        self.spare.pop().unwrap_or_else(|| {
            self.pools.push(Pool::new());
            PoolId(self.pools.len() as u32 - 1)
        })
    }

    fn pool(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id.0 as usize]
    }

    /// The pool that `block` was cut from.
    pub fn owner(&self, block: Block) -> PoolId {
        match self.chunks[(block.at / CHUNK_UNITS) as usize] {
            Chunk::Of(pool) => pool,
            Chunk::Free | Chunk::Adopted(_) => PoolId::SHARED,
        }
    }

    /// The first unit of the guard at the end of an image of `size` bytes.
    fn last_unit(size: u64) -> u64 {
        (size - u64::from(GUARD)) / u64::from(UNIT)
    }

    /// A block of `units` of `pool`, aligned to a line when it is longer than one and never across two when it is not.
    pub fn allocate(&mut self, pool: PoolId, units: u32, grace: &mut impl Grace) -> Result<Block, Error> {
        if let Some(block) = self.try_allocate(pool, units, grace) {
            return Ok(block);
        }
        // Everything retired becomes free when its grace periods are over: worth the wait before giving up.
        self.synchronize(grace);
        self.join_all();
        self.try_allocate(pool, units, grace).ok_or_else(|| self.full(units))
    }

    /// The error that `units` more do not fit.
    pub fn full(&self, units: u32) -> Error {
        Error::Full {
            needed: u64::from(units * UNIT),
            size: self.chunks.len() as u64 * u64::from(CHUNK),
            waiting: self.limbo_units * u64::from(UNIT),
        }
    }

    fn try_allocate(&mut self, id: PoolId, units: u32, grace: &mut impl Grace) -> Option<Block> {
        let pool = self.pool(id);
        let at = if units >= CHUNK_UNITS {
            self.take_chunks(id, units)?
        } else {
            match pool.free.take(units).or_else(|| pool.cut(units)) {
                Some(at) => at,
                None => self.fresh(id, units, grace)?,
            }
        };
        self.pool(id).used_units += u64::from(units);
        self.used_units += u64::from(units);
        self.peak_units = self.peak_units.max(self.used_units + self.limbo_units);
        Some(Block { at, units })
    }

    /// Cuts from a chunk that is free, unless so much lies free in the pool's own that joining it is worth more.
    fn fresh(&mut self, id: PoolId, units: u32, grace: &mut impl Grace) -> Option<u32> {
        if self.reclaim(grace)
            && let Some(at) = self.pool(id).free.take(units)
        {
            return Some(at);
        }
        let pool = self.pool(id);
        if pool.unjoined_units > pool.used_units / 4 {
            self.join(id);
            if let Some(at) = self.pool(id).free.take(units) {
                return Some(at);
            }
        }
        if !self.may_claim(1) {
            return None;
        }
        let chunk = self.chunks.iter().position(|state| *state == Chunk::Free)? as u32;
        self.chunks[chunk as usize] = Chunk::Of(id);
        self.touched[chunk as usize] = true;
        let guard = Self::last_unit(self.chunks.len() as u64 * u64::from(CHUNK));
        let pool = self.pool(id);
        pool.free.put(pool.next, pool.end - pool.next);
        pool.next = chunk * CHUNK_UNITS;
        pool.end = u64::from(pool.next + CHUNK_UNITS).min(guard) as u32;
        pool.cut(units)
    }

    fn join_all(&mut self) {
        for id in 0..self.pools.len() as u32 {
            self.join(PoolId(id));
        }
    }

    /// Joins neighbouring free blocks of a pool and gives whole free chunks back.
    fn join(&mut self, id: PoolId) {
        let pool = &mut self.pools[id.0 as usize];
        pool.unjoined_units = 0;
        let mut blocks = pool.free.drain();
        blocks.sort_unstable_by_key(|block| block.at);
        let mut blocks = blocks.into_iter().peekable();
        while let Some(Block { mut at, mut units }) = blocks.next() {
            while let Some(next) = blocks.next_if(|next| next.at == at + units) {
                units += next.units;
            }
            let end = at + units;
            let (first, last) = (at.div_ceil(CHUNK_UNITS), end / CHUNK_UNITS);
            if first < last {
                self.chunks[first as usize..last as usize].fill(Chunk::Free);
                pool.free.put(at, first * CHUNK_UNITS - at);
                at = last * CHUNK_UNITS;
            }
            pool.free.put(at, end - at);
        }
    }

    /// Whole chunks in a row for a large root; the rest of the last is cut next.
    fn take_chunks(&mut self, id: PoolId, units: u32) -> Option<u32> {
        let count = units.div_ceil(CHUNK_UNITS) as usize;
        if !self.may_claim(count) {
            return None;
        }
        // The last chunk holds the guard, so that a root does not end in it.
        let chunks = &self.chunks[..self.chunks.len() - 1];
        let first = chunks.windows(count).position(|run| run.iter().all(|state| *state == Chunk::Free))?;
        self.chunks[first..first + count].fill(Chunk::Of(id));
        self.touched[first..first + count].fill(true);
        let at = first as u32 * CHUNK_UNITS;
        self.pool(id).cut_next(at + units, at + count as u32 * CHUNK_UNITS);
        Some(at)
    }

    /// Gives back a block that no reader has ever seen.
    pub fn free(&mut self, block: Block) {
        let owner = self.owner(block);
        self.pool(owner).used_units -= u64::from(block.units);
        self.used_units -= u64::from(block.units);
        self.release(block);
    }

    fn release(&mut self, block: Block) {
        #[cfg(feature = "poison")]
        if let Some(on_release) = &mut self.on_release.0 {
            on_release(block);
        }
        let owner = self.owner(block);
        // The whole chunks of a large root are free at once; its last, shared with other blocks, is not.
        let whole = block.units / CHUNK_UNITS;
        let first = (block.at / CHUNK_UNITS) as usize;
        self.chunks[first..first + whole as usize].fill(Chunk::Free);
        let (at, units) = (block.at + whole * CHUNK_UNITS, block.units % CHUNK_UNITS);
        let pool = self.pool(owner);
        pool.free.put(at, units);
        pool.unjoined_units += u64::from(units);
    }

    /// Gives back all chunks of a pool whose blocks no reader has ever seen. O(chunks).
    pub fn discard(&mut self, id: PoolId) {
        self.used_units -= self.pool(id).used_units;
        self.release_pool(id);
    }

    fn release_pool(&mut self, id: PoolId) {
        *self.pool(id) = Pool::new();
        self.spare.push(id);
        for (_chunk, state) in
            self.chunks.iter_mut().enumerate().filter(|(_, state)| **state == Chunk::Of(id))
        {
            *state = Chunk::Free;
            #[cfg(feature = "poison")]
            if let Some(on_release) = &mut self.on_release.0 {
                on_release(Block { at: _chunk as u32 * CHUNK_UNITS, units: CHUNK_UNITS });
            }
        }
    }

    /// Takes back all blocks of a pool, which readers may still hold; nothing may be allocated from it any more. O(1) now, O(chunks)
    /// after the grace period.
    pub fn retire_pool(&mut self, id: PoolId) {
        let used = core::mem::take(&mut self.pool(id).used_units);
        self.used_units -= used;
        self.limbo_units += used;
        self.pending.pools.push((id, used));
    }

    /// Takes back a block that readers may still hold.
    pub fn retire(&mut self, block: Block, grace: &mut impl Grace) {
        let owner = self.owner(block);
        self.pool(owner).used_units -= u64::from(block.units);
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

    /// Lets something outside the image wait for readers that run now: it may go when [`Space::is_over`] is true for the returned mark.
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
        let Batch { blocks, pools, chunks, marked } = &self.pending;
        !blocks.is_empty() || !pools.is_empty() || !chunks.is_empty() || *marked
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
            for (pool, units) in batch.pools {
                self.limbo_units -= units;
                self.release_pool(pool);
            }
            for chunk in batch.chunks {
                let state = &mut self.chunks[chunk as usize];
                *state = match *state {
                    Chunk::Adopted(1) => Chunk::Free,
                    Chunk::Adopted(tables) => Chunk::Adopted(tables - 1),
                    other => other, // the header's
                };
            }
        }
        self.freed_batches > before
    }

    /// Runs of whole free chunks whose pages hold something, as byte ranges: it is for the caller to give them back.
    pub fn take_unused(&mut self) -> Vec<Range<u64>> {
        self.join_all();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (chunk, state) in self.chunks.iter().enumerate() {
            if *state != Chunk::Free || !self.touched[chunk] {
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

    /// Waits until nothing waits any more, or for as long as `grace` waits for a reader: [`Space::waiting`] tells afterwards.
    pub fn synchronize(&mut self, grace: &mut impl Grace) {
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
            claimed: self.chunks.iter().filter(|state| **state != Chunk::Free).count() as u64
                * u64::from(CHUNK),
            peak: self.peak_units * unit,
        }
    }
}
