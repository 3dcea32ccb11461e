//! Checks an image that may be damaged or hostile, step by step, before it is trusted.

use super::build::ROOT_IPV6;
use super::error::Error;
use super::header::header;
use super::layout::{
    CHUNK, DIR_BITS, DIR_ENTRY, DIRECT_BITS, DIRECT_UNITS, DIRECTORY, EXACT_BITS_MAX, GUARD, Keys, Kind,
    LEAF6, LEAF8, LINE, NODE6, PALETTE, RANGES, RANGES_VALUES, RANGES32, RANGES32_BITS, RANGES32_REFS,
    REF_NODE, REF_OFFSET, SKIP, SKIP_MAX, Skip, TableHeader, UNIT, kind_of,
};
use super::runs::{counted, starts};
use super::walk::{self, leaf_units, runs};
use super::words::{directory, load, load64};
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::AtomicU32;

/// The findings of [`verify`] in a sound image.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Size of the image, bytes.
    pub size: u64,
    /// Slots in the directory.
    pub slots: u32,
    /// Writers that have opened the image so far.
    pub generation: u32,
    /// Its tables by id.
    pub tables: Vec<TableReport>,
}

/// A table of a sound image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableReport {
    /// Its slot in the directory.
    pub id: u32,
    /// 4, 6 or 0: [`crate::Address::FAMILY`].
    pub family: u8,
    /// Width of the keys.
    pub key_bits: u16,
    /// Address bits that index the root.
    pub root_bits: u16,
    /// Prefixes, by the table's header.
    pub prefixes: u32,
    /// Value of the prefix of length 0; 0 = none.
    pub fallback: u32,
    /// Bytes of header, root and palette.
    pub root_bytes: u64,
    /// Bytes of the nodes.
    pub node_bytes: u64,
    /// Number of nodes by the kinds' names in `image.h`, without the ones that do not occur.
    pub nodes: Vec<(&'static str, u32)>,
    /// Most nodes that a lookup visits.
    pub steps: u32,
}

/// Checks the whole image in `words`: header, directory, and every node of every table. O(bytes), and one bit of memory for
/// eight bytes of the image.
///
/// A sound image has no offset outside itself and no cycle. It has no block that two others share bytes with, and no node below the last
/// key bit. Whether it gives the right answers only its prefixes can tell. No writer may change it meanwhile.
pub fn verify(words: &[AtomicU32]) -> Result<Report, Error> {
    let header = header(words)?;
    let mut check = Check::new(words, header.size, header.tables);
    let mut report =
        Report { size: header.size, slots: header.tables, generation: header.generation, tables: Vec::new() };
    for id in 0..header.tables {
        let word = directory(words, id);
        if word != 0 {
            let table = check.table(word, DIRECTORY + DIR_ENTRY * id)?;
            report.tables.push(TableReport { id, ..table });
        }
    }
    Ok(report)
}

/// The chunks that each table of the image reaches into, by id; the image is checked.
pub(super) fn chunks(words: &[AtomicU32], size: u64, tables: u32) -> Result<Vec<(u32, Vec<u32>)>, Error> {
    let mut check = Check::new(words, size, tables);
    let mut all = Vec::new();
    for id in 0..tables {
        let word = directory(words, id);
        if word != 0 {
            check.table(word, DIRECTORY + DIR_ENTRY * id)?;
            let mut chunks = core::mem::take(&mut check.chunks);
            chunks.sort_unstable();
            chunks.dedup();
            all.push((id, chunks));
        }
    }
    Ok(all)
}

struct Check<'a> {
    words: &'a [AtomicU32],
    size: u64,
    /// One bit a unit: some block holds it.
    taken: Vec<u64>,
    kind: Kind,
    key_bits: u16,
    has_palette: bool,
    table: TableReport,
    counts: [u32; 4],
    /// Chunks of the table being checked, some more than once.
    chunks: Vec<u32>,
}

const NAMES4: [&str; 4] = ["node6", "leaf6", "ranges", "none"];
const NAMES6: [&str; 4] = ["direct12", "node8", "skip", "leaf8"];
const NAMES: [&str; 4] = ["ranges32", "node8", "skip", "none"];

/// The names in `image.h` of the kinds of nodes of a table of this family.
pub(super) const fn names(family: u8) -> [&'static str; 4] {
    match family {
        4 => NAMES4,
        6 => NAMES6,
        _ => NAMES,
    }
}

fn damaged<T>(what: &'static str, at: u32) -> Result<T, Error> {
    Err(Error::Damaged { what, at })
}

impl<'a> Check<'a> {
    fn new(words: &'a [AtomicU32], size: u64, tables: u32) -> Self {
        let mut check = Self {
            words,
            size,
            taken: alloc::vec![0; (size / u64::from(UNIT)).div_ceil(64) as usize],
            kind: NODE6,
            key_bits: 0,
            has_palette: false,
            table: TableReport::default(),
            counts: [0; 4],
            chunks: Vec::new(),
        };
        let reserved = u64::from(DIRECTORY) + u64::from(DIR_ENTRY) * u64::from(tables);
        for unit in 0..reserved.div_ceil(u64::from(UNIT)) {
            check.taken[unit as usize / 64] |= 1 << (unit % 64);
        }
        check
    }

    /// Checks the table of root word `word`, found at byte offset `found`.
    fn table(&mut self, word: u32, found: u32) -> Result<TableReport, Error> {
        let (root, bits) = (word & !DIR_BITS, (word & DIR_BITS) as u16);
        if root < DIRECTORY + LINE || bits > 24 || u64::from(root) + (4u64 << bits) > self.size {
            return damaged("directory entry", found);
        }
        let at = root - size_of::<TableHeader>() as u32;
        let field = |field: usize| load(self.words, at + field as u32);
        let keys = field(offset_of!(TableHeader, key_family));
        let (root_bits, Keys { family, key_bits, has_exact }) = (keys.to_le_bytes()[1], Keys::of(keys));
        let width_fits = match family {
            4 => key_bits == 32,
            6 => key_bits == 128,
            0 => (1..=2048).contains(&key_bits),
            _ => false,
        };
        let palette = field(offset_of!(TableHeader, palette));
        if !width_fits
            || u16::from(root_bits) != bits
            || (palette != 0 && (palette != PALETTE as u32 || family == 0))
            || field(offset_of!(TableHeader, fallback)) & REF_NODE != 0
        {
            return damaged("table header", at);
        }
        self.kind = Kind::of_family(family);
        self.key_bits = key_bits;
        self.has_palette = palette != 0;
        self.counts = [0; 4];
        let block = walk::table_block(root, bits, self.has_palette);
        self.table = TableReport {
            family,
            key_bits,
            root_bits: bits,
            prefixes: field(offset_of!(TableHeader, prefixes)),
            fallback: field(offset_of!(TableHeader, fallback)),
            root_bytes: u64::from(block.units) * u64::from(UNIT),
            ..TableReport::default()
        };
        self.take(at, u64::from(block.units) * u64::from(UNIT), found)?;
        for slot in 0..1u32 << bits {
            self.entry(root + 4 * slot, bits, 0)?;
        }
        if self.has_palette {
            for entry in (root + (4 << bits)..).step_by(4).take(PALETTE) {
                self.value(load(self.words, entry), entry)?;
            }
        }
        let buckets = if has_exact { self.exact(root, at)? } else { 0 };
        self.table.nodes = names(family)
            .into_iter()
            .zip(self.counts)
            .chain([("bucket", buckets)])
            .filter(|(_, count)| *count > 0)
            .collect();
        Ok(core::mem::take(&mut self.table))
    }

    /// Checks the hash table of the table whose root is at `root` and whose header is at `at`. Returns how many buckets it has.
    fn exact(&mut self, root: u32, at: u32) -> Result<u32, Error> {
        let Some((slots, hash)) = walk::exact(self.words, root)
            .filter(|(slots, hash)| *slots >= DIRECTORY && hash.bits <= EXACT_BITS_MAX && hash.is_sound())
        else {
            return damaged("hash table", at);
        };
        let word = at + offset_of!(TableHeader, exact) as u32;
        let bytes = 4u64 << hash.bits;
        self.take(slots, bytes, word)?;
        self.table.root_bytes += bytes.next_multiple_of(UNIT.into());
        let mut buckets = 0;
        for found in (slots..).step_by(4).take(1 << hash.bits) {
            let Some(block) = hash.block(load(self.words, found)) else { continue };
            let (at, bytes) = (u64::from(block.at) * u64::from(UNIT), block.units * UNIT);
            if at < u64::from(LINE) || at >= self.size - u64::from(GUARD) {
                return damaged("offset outside the image in the ref", found);
            }
            let at = at as u32;
            self.take(at, bytes.into(), found)?;
            self.table.node_bytes += u64::from(bytes);
            let log = kind_of(load(self.words, found));
            let (first, step) = if hash.is_short() { (at + 4, 8) } else { (at + (16 << log), 4) };
            for value in (first..).step_by(step).take(1 << log) {
                self.value(load(self.words, value), value)?;
            }
            let entries: Vec<_> = hash.entries(self.words, load(self.words, found)).collect();
            let used = (first..).step_by(step).take(1 << log).filter(|at| load(self.words, *at) != 0).count();
            let slot = ((found - slots) / 4) as usize;
            let is_own = |name| {
                let key = hash.key(slot, name);
                hash.takes(key) && hash.slot(hash.of(key)) == slot
            };
            let is_single = |name| entries.iter().filter(|(other, _)| *other == name).count() == 1;
            if entries.is_empty()
                || entries.len() != used
                || !entries.iter().all(|(name, _)| is_own(*name) && is_single(*name))
            {
                return damaged("bucket", at);
            }
            buckets += 1;
        }
        self.table.steps = self.table.steps.max(1);
        Ok(buckets)
    }

    fn value(&self, value: u32, at: u32) -> Result<(), Error> {
        if value & REF_NODE == 0 { Ok(()) } else { damaged("a node where a value belongs", at) }
    }

    /// Takes `bytes` from byte offset `at` for a block that the word at `found` leads to.
    fn take(&mut self, at: u32, bytes: u64, found: u32) -> Result<(), Error> {
        let end = u64::from(at) + bytes;
        if end > self.size {
            return damaged("a block that ends outside the image: the ref", found);
        }
        for unit in at / UNIT..end.div_ceil(u64::from(UNIT)) as u32 {
            let (word, bit) = (unit as usize / 64, 1 << (unit % 64));
            if self.taken[word] & bit != 0 {
                return damaged("a block that another shares (or a cycle): the ref", found);
            }
            self.taken[word] |= bit;
        }
        self.chunks.extend(at / CHUNK..=((end - 1) / u64::from(CHUNK)) as u32);
        Ok(())
    }

    /// Checks what the ref at byte offset `found`, reached by `depth` key bits and `steps` nodes, leads to.
    fn entry(&mut self, found: u32, depth: u16, steps: u32) -> Result<(), Error> {
        self.entry_in(found, depth, steps, None)
    }

    /// As [`Check::entry`]; `part` are the slots that a ranges32 node above leaves to this one.
    fn entry_in(
        &mut self,
        found: u32,
        depth: u16,
        steps: u32,
        part: Option<Range<u64>>,
    ) -> Result<(), Error> {
        let entry = load(self.words, found);
        if entry & REF_NODE == 0 {
            return Ok(());
        }
        if depth >= self.key_bits {
            return damaged("a node below the last key bit: the ref", found);
        }
        let (kind, is_v4) = (kind_of(entry), self.kind == NODE6);
        let unit = entry & REF_OFFSET;
        let at = u64::from(unit) * u64::from(UNIT);
        if at < u64::from(LINE) || at >= self.size - u64::from(GUARD) {
            return damaged("offset outside the image in the ref", found);
        }
        let at = at as u32;
        let steps = steps + 1;
        if steps > self.key_bits.div_ceil(self.kind.stride).into() {
            return damaged("more nodes than a lookup visits: the ref", found);
        }
        self.table.steps = self.table.steps.max(steps);
        self.counts[kind as usize] += 1;
        let is_direct = self.kind.is_direct(entry);
        let bytes = match (is_v4, kind) {
            _ if is_direct => self.direct(at, depth, steps, found)?,
            (true, RANGES) => self.ranges(at)?,
            (true, 3) => return damaged("node kind in the ref", found),
            (false, LEAF8) if self.table.family != 6 => return damaged("node kind in the ref", found),
            (_, id) if id == self.kind.leaf() && !self.has_palette => {
                return damaged("a leaf without a palette: the ref", found);
            }
            (false, SKIP) => walk::skip_block(self.words, entry).units * UNIT,
            (false, RANGES32) => walk::ranges32_bytes(self.words, at),
            _ => self.bitmap(at, kind)?,
        };
        self.take(at, bytes.into(), found)?;
        self.table.node_bytes += u64::from(bytes.next_multiple_of(UNIT));
        match (is_v4, kind) {
            _ if is_direct => {
                let depth = depth + DIRECT_BITS;
                (at..at + bytes).step_by(4).try_for_each(|slot| self.entry(slot, depth, steps))
            }
            (true, LEAF6 | RANGES) | (false, LEAF8) => Ok(()),
            (false, SKIP) => self.skip(at, depth, steps),
            (false, RANGES32) => self.ranges32(at, depth, steps, part),
            _ => {
                let depth = depth + self.kind.stride;
                let refs = at + self.kind.refs..at + bytes;
                refs.step_by(4).try_for_each(|slot| self.entry(slot, depth, steps))
            }
        }
    }

    /// Bytes of the direct12 at `at`, the node number `steps` of a walk, at `depth`, which the ref at `found` leads to.
    fn direct(&self, at: u32, depth: u16, steps: u32, found: u32) -> Result<u32, Error> {
        let bytes = DIRECT_UNITS * UNIT;
        if steps != 1 || depth != ROOT_IPV6 || u64::from(at) + u64::from(bytes) > self.size - u64::from(GUARD)
        {
            return damaged(
                "a direct12 that is not below a root of 12 bits, or at the image's end: the ref",
                found,
            );
        }
        Ok(bytes)
    }

    /// Bytes of the bitmap node at `at`.
    fn bitmap(&self, at: u32, kind: u32) -> Result<u32, Error> {
        let runs = runs(self.words, at, self.kind);
        let starts = starts(self.words, at, self.kind);
        if starts[0] & 1 == 0 {
            return damaged("run bitmap", at);
        }
        if self.kind != NODE6
            && counted(&starts).into_iter().ne((at..).step_by(8).take(5).map(|at| load64(self.words, at)))
        {
            return damaged("run counts", at);
        }
        let is_leaf = kind == self.kind.leaf();
        Ok(if is_leaf { leaf_units(self.kind, runs) * UNIT } else { self.kind.refs + 4 * runs })
    }

    /// Bytes of the ranges node at `at`.
    fn ranges(&self, at: u32) -> Result<u32, Error> {
        let starts: Vec<u32> = walk::ranges_starts(self.words, at).collect();
        if !starts.windows(2).all(|pair| pair[0] > pair[1] || pair[1] == 0) {
            return damaged("range starts", at);
        }
        let bytes = RANGES_VALUES + 4 * walk::ranges_values(self.words, at);
        (at + RANGES_VALUES..at + bytes)
            .step_by(4)
            .try_for_each(|value| self.value(load(self.words, value), value))?;
        Ok(bytes)
    }

    /// Checks the ranges32 node at `at`, which is for the slots `part` if another is above it.
    fn ranges32(&mut self, at: u32, depth: u16, steps: u32, part: Option<Range<u64>>) -> Result<(), Error> {
        let (starts, is_leaf) = walk::ranges32_starts(self.words, at);
        if part.is_some() && !is_leaf {
            return damaged("a third ranges32 for the same key bits", at);
        }
        if starts[0] == 0 {
            return damaged("a ranges32 of one run", at);
        }
        let Range { start: first, mut end } = part.unwrap_or(0..1 << RANGES32_BITS);
        let refs = (at + RANGES32_REFS..at + walk::ranges32_bytes(self.words, at)).step_by(4);
        for (run, found) in refs.enumerate() {
            // The first run, which is the last here, has no start of its own.
            let start = starts.get(run).map_or(0, |start| u64::from(*start)).max(first);
            if start >= end || (start == first && starts.get(run).is_some_and(|start| *start != 0)) {
                return damaged("range starts", at);
            }
            let entry = load(self.words, found);
            if !is_leaf {
                if entry & REF_NODE != 0 && kind_of(entry) != RANGES32 {
                    return damaged("node kind below a ranges32 in the ref", found);
                }
                self.entry_in(found, depth, steps, Some(start..end))?;
            } else {
                if entry & REF_NODE != 0 && end - start != 1 {
                    return damaged("a node for more than one slot of a ranges32: the ref", found);
                }
                self.entry(found, depth + RANGES32_BITS, steps)?;
            }
            end = start;
        }
        Ok(())
    }

    fn skip(&mut self, at: u32, depth: u16, steps: u32) -> Result<(), Error> {
        let field = |field: usize| load(self.words, at + field as u32);
        let len = field(offset_of!(Skip, len));
        let most = SKIP_MAX.min(self.key_bits - depth);
        if len == 0 || len > most.into() || field(offset_of!(Skip, otherwise)) & REF_NODE != 0 {
            return damaged("skip", at);
        }
        self.entry(at + offset_of!(Skip, next) as u32, depth + len as u16, steps)
    }
}
