//! Walks over the blocks of a table: to retire what is replaced, and to find what an earlier writer's tables occupy.

use super::Error;
use super::layout::{
    CHUNK, DIR_BITS, Kind, LINE, RAW8, RAW8_BYTES, REF_NODE, REF_OFFSET, SKIP, SKIP_MAX, Skip, TableHeader,
    UNIT, kind_of,
};
use super::lookup::{load, starts};
use super::space::Block;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

/// Size of a skip in units.
pub(crate) const SKIP_UNITS: u32 = size_of::<Skip>() as u32 / UNIT;

/// Size of a raw node in units.
pub(crate) const RAW8_UNITS: u32 = RAW8_BYTES / UNIT;

/// Runs of the node at byte offset `at`.
fn runs(words: &[AtomicU32], at: u32, kind: Kind) -> u32 {
    (0..kind.words()).map(|word| starts(words, at, kind, word).count_ones()).sum()
}

/// The block of a table of directory word `word`: header and root.
pub(crate) fn table_block(word: u32) -> Block {
    let header = size_of::<TableHeader>() as u32;
    Block { at: ((word & !DIR_BITS) - header) / UNIT, units: (header + (4 << (word & DIR_BITS))) / UNIT }
}

/// Visits every node that `entry` leads to, in an image that this process wrote, children first.
pub(crate) fn own_nodes(words: &[AtomicU32], entry: u32, kind: Kind, visit: &mut impl FnMut(Block)) {
    if entry & REF_NODE == 0 {
        return;
    }
    let unit = entry & REF_OFFSET;
    let at = unit * UNIT;
    if kind_of(entry) == SKIP {
        own_nodes(words, load(words, at + offset_of!(Skip, next) as u32), kind, visit);
        return visit(Block { at: unit, units: SKIP_UNITS });
    }
    if kind_of(entry) == RAW8 {
        for slot in 0..256 {
            own_nodes(words, load(words, at + 4 * slot), kind, visit);
        }
        return visit(Block { at: unit, units: RAW8_UNITS });
    }
    let runs = runs(words, at, kind);
    for run in 0..runs {
        own_nodes(words, load(words, at + kind.refs + 4 * run), kind, visit);
    }
    visit(Block { at: unit, units: kind.units(runs) });
}

/// Visits every block of the table of directory word `word`, in an image that this process wrote.
pub(crate) fn own_table(words: &[AtomicU32], word: u32, visit: &mut impl FnMut(Block)) {
    let root = word & !DIR_BITS;
    let kind = Kind::of_family(family(words, root));
    for slot in 0..1u32 << (word & DIR_BITS) {
        own_nodes(words, load(words, root + 4 * slot), kind, visit);
    }
    visit(table_block(word));
}

fn family(words: &[AtomicU32], root: u32) -> u8 {
    let header = root - size_of::<TableHeader>() as u32;
    load(words, header + offset_of!(TableHeader, key_family) as u32).to_le_bytes()[0]
}

/// The chunks that a table reaches into, every step checked: the image may be damaged.
pub(crate) fn chunks(words: &[AtomicU32], size: u64, word: u32) -> Result<Vec<u32>, Error> {
    let (root, bits) = (word & !DIR_BITS, (word & DIR_BITS) as u16);
    let damaged = |what, at| Error::Damaged { what, at };
    if root < LINE || bits > 24 || u64::from(root) + (4u64 << bits) > size {
        return Err(damaged("directory word", word));
    }
    let family = family(words, root);
    if family != 4 && family != 6 {
        return Err(damaged("table header", root - LINE));
    }
    let mut walk = Walk {
        words,
        size,
        kind: Kind::of_family(family),
        key_bits: if family == 4 { 32 } else { 128 },
        // No two nodes share bytes in a sound image, and none is smaller than this.
        left: size / 16,
        chunks: BTreeSet::new(),
    };
    walk.mark(root - LINE, LINE + (4 << bits));
    for slot in 0..1u32 << bits {
        walk.entry(load(words, root + 4 * slot), bits, root + 4 * slot)?;
    }
    Ok(walk.chunks.into_iter().collect())
}

struct Walk<'a> {
    words: &'a [AtomicU32],
    size: u64,
    kind: Kind,
    key_bits: u16,
    left: u64,
    chunks: BTreeSet<u32>,
}

impl Walk<'_> {
    fn mark(&mut self, at: u32, bytes: u32) {
        let last = (u64::from(at) + u64::from(bytes) - 1) / u64::from(CHUNK);
        self.chunks.extend(at / CHUNK..=last as u32);
    }

    /// Checks what the ref `entry`, found at byte offset `found` after `depth` key bits, leads to.
    fn entry(&mut self, entry: u32, depth: u16, found: u32) -> Result<(), Error> {
        if entry & REF_NODE == 0 {
            return Ok(());
        }
        let damaged = |what, at| Err(Error::Damaged { what, at });
        let at = u64::from(entry & REF_OFFSET) * u64::from(UNIT);
        let kind = kind_of(entry);
        if kind != self.kind.id && (self.key_bits != 128 || (kind != SKIP && kind != RAW8)) {
            return damaged("node kind in the ref", found);
        }
        if depth >= self.key_bits {
            return damaged("a node below the last key bit: the ref", found);
        }
        let least = match kind {
            RAW8 => RAW8_BYTES,
            SKIP => size_of::<Skip>() as u32,
            _ => self.kind.refs,
        };
        if at < u64::from(LINE) || at + u64::from(least) > self.size {
            return damaged("offset outside the image in the ref", found);
        }
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return damaged("more nodes than fit: a cycle through the ref", found),
        };
        let at = at as u32;
        if kind == RAW8 {
            self.mark(at, RAW8_BYTES);
            for found in (at..at + RAW8_BYTES).step_by(4) {
                self.entry(load(self.words, found), depth + 8, found)?;
            }
            return Ok(());
        }
        if kind == SKIP {
            let len = load(self.words, at + offset_of!(Skip, len) as u32);
            let next = at + offset_of!(Skip, next) as u32;
            if len == 0 || len > SKIP_MAX.into() || load(self.words, next + 4) & REF_NODE != 0 {
                return damaged("skip", at);
            }
            self.mark(at, size_of::<Skip>() as u32);
            return self.entry(load(self.words, next), depth + len as u16, next);
        }
        let runs = runs(self.words, at, self.kind);
        if starts(self.words, at, self.kind, 0) & 1 == 0
            || u64::from(at) + u64::from(self.kind.refs) + 4 * u64::from(runs) > self.size
        {
            return damaged("run bitmap", at);
        }
        self.mark(at, self.kind.units(runs) * UNIT);
        for run in 0..runs {
            let found = at + self.kind.refs + 4 * run;
            self.entry(load(self.words, found), depth + self.kind.stride, found)?;
        }
        Ok(())
    }
}
