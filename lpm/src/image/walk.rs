//! Walks over the blocks of a table that this process wrote: to retire what is replaced.

use super::exact::Hash;
use super::layout::{
    DIR_BITS, DIRECT_BITS, DIRECT_UNITS, Keys, Kind, LINE, NODE6, NODE8, PALETTE, RANGES, RANGES_STARTS,
    RANGES_VALUES, RANGES32, RANGES32_REFS, RANGES32_STARTS, REF_NODE, REF_OFFSET, SKIP, SKIP_SHORT, Skip,
    TableHeader, UNIT, kind_of,
};
use super::runs::starts;
use super::space::Block;
use super::words::{load, load64};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

/// Size of a skip of `len` bits in units.
pub(crate) const fn skip_units(len: u32) -> u32 {
    let words = if len > SKIP_SHORT as u32 { 1 } else { 0 };
    size_of::<Skip>() as u32 / UNIT + words
}

/// The bits of the skip at byte offset `at`, the first one highest, and how many they are.
pub(super) fn skip_bits(words: &[AtomicU32], at: u32) -> (u128, u32) {
    let field = |field: usize| load(words, at + field as u32);
    let len = field(offset_of!(Skip, len));
    let more = if len > SKIP_SHORT.into() { load64(words, at + size_of::<Skip>() as u32) } else { 0 };
    (u128::from(field(offset_of!(Skip, bits))) << 96 | u128::from(more) << 32, len)
}

/// The block of the skip that `entry` leads to.
pub(super) fn skip_block(words: &[AtomicU32], entry: u32) -> Block {
    let at = entry & REF_OFFSET;
    Block { at, units: skip_units(skip_bits(words, at * UNIT).1) }
}

/// Size in units of a bitmap node of `runs` runs that are bytes.
pub(crate) const fn leaf_units(kind: Kind, runs: u32) -> u32 {
    (kind.refs + runs).div_ceil(UNIT)
}

/// Size in units of the bitmap node of `runs` runs that `entry` leads to.
pub(crate) const fn bitmap_units(entry: u32, kind: Kind, runs: u32) -> u32 {
    if kind_of(entry) == kind.leaf() { leaf_units(kind, runs) } else { kind.units(runs) }
}

/// Runs of the bitmap node at byte offset `at`.
pub(super) fn runs(words: &[AtomicU32], at: u32, kind: Kind) -> u32 {
    starts(words, at, kind).iter().map(|bits| bits.count_ones()).sum()
}

/// The starts of the ranges node at byte offset `at`, in the order they have there.
pub(super) fn ranges_starts(words: &[AtomicU32], at: u32) -> impl Iterator<Item = u32> + '_ {
    (0..RANGES_STARTS as u32).map(move |start| load(words, at + 2 * start) >> (16 * (start % 2)) & 0xffff)
}

/// Values of the ranges node at byte offset `at`.
pub(super) fn ranges_values(words: &[AtomicU32], at: u32) -> u32 {
    1 + ranges_starts(words, at).filter(|start| *start != 0).count() as u32
}

/// Whether a slot that `entry`, a node or a value, covers may have `value` as no prefix inside it gives it.
pub(super) fn may_hold(words: &[AtomicU32], kind: Kind, entry: u32, value: u32) -> bool {
    let at = (entry & REF_OFFSET) * UNIT;
    match (kind, kind_of(entry)) {
        _ if entry & REF_NODE == 0 => entry == value,
        (NODE6, RANGES) => {
            (0..ranges_values(words, at)).any(|run| load(words, at + RANGES_VALUES + 4 * run) == value)
        }
        (NODE8, RANGES32) => (RANGES32_REFS..ranges32_bytes(words, at))
            .step_by(4)
            .any(|run| may_hold(words, kind, load(words, at + run), value)),
        _ => true,
    }
}

/// The starts of the ranges32 node at byte offset `at`, in descending order, and whether it is a leaf.
pub(super) fn ranges32_starts(words: &[AtomicU32], at: u32) -> ([u32; RANGES32_STARTS], bool) {
    let mut starts = core::array::from_fn(|start| load(words, at + 4 * start as u32));
    let is_leaf = starts[0] > starts[RANGES32_STARTS - 1];
    if !is_leaf {
        starts.reverse();
    }
    (starts, is_leaf)
}

/// Bytes of the ranges32 node at byte offset `at`.
pub(super) fn ranges32_bytes(words: &[AtomicU32], at: u32) -> u32 {
    let starts = ranges32_starts(words, at).0.iter().filter(|start| **start != 0).count() as u32;
    RANGES32_REFS + 4 * (1 + starts)
}

/// The block of a table whose root is at byte offset `root`: header, root, palette.
pub(crate) fn table_block(root: u32, bits: u16, has_palette: bool) -> Block {
    let palette = if has_palette { 4 * PALETTE as u32 } else { 0 };
    Block { at: (root - LINE) / UNIT, units: (LINE + (4 << bits) + palette) / UNIT }
}

/// The word of the header of the table whose root is at byte offset `root`.
pub(super) fn header(words: &[AtomicU32], root: u32, field: usize) -> u32 {
    load(words, root - size_of::<TableHeader>() as u32 + field as u32)
}

/// Visits every node that `entry` leads to, children first.
pub(crate) fn own_nodes(words: &[AtomicU32], entry: u32, kind: Kind, visit: &mut impl FnMut(Block)) {
    if entry & REF_NODE == 0 {
        return;
    }
    let unit = entry & REF_OFFSET;
    let at = unit * UNIT;
    let units = match (kind, kind_of(entry)) {
        _ if kind.is_direct(entry) => {
            for slot in 0..1 << DIRECT_BITS {
                own_nodes(words, load(words, at + 4 * slot), kind, visit);
            }
            DIRECT_UNITS
        }
        (_, id) if id == kind.leaf() => leaf_units(kind, runs(words, at, kind)),
        (NODE6, RANGES) => (RANGES_VALUES + 4 * ranges_values(words, at)).div_ceil(UNIT),
        (_, SKIP) => {
            own_nodes(words, load(words, at + offset_of!(Skip, next) as u32), kind, visit);
            skip_units(skip_bits(words, at).1)
        }
        (NODE8, RANGES32) => {
            let bytes = ranges32_bytes(words, at);
            for entry in (at + RANGES32_REFS..at + bytes).step_by(4) {
                own_nodes(words, load(words, entry), kind, visit);
            }
            bytes.div_ceil(UNIT)
        }
        _ => {
            let runs = runs(words, at, kind);
            for run in 0..runs {
                own_nodes(words, load(words, at + kind.refs + 4 * run), kind, visit);
            }
            kind.units(runs)
        }
    };
    visit(Block { at: unit, units });
}

/// The block of the table of root word `word`.
pub(crate) fn root_block(words: &[AtomicU32], word: u32) -> Block {
    let root = word & !DIR_BITS;
    let has_palette = header(words, root, offset_of!(TableHeader, palette)) != 0;
    table_block(root, (word & DIR_BITS) as u16, has_palette)
}

/// Visits every block of the table of root word `word`.
pub(crate) fn own_table(words: &[AtomicU32], word: u32, visit: &mut impl FnMut(Block)) {
    let (root, bits) = (word & !DIR_BITS, (word & DIR_BITS) as u16);
    let kind = Kind::of_family(Keys::of(header(words, root, offset_of!(TableHeader, key_family))).family);
    for slot in 0..1u32 << bits {
        own_nodes(words, load(words, root + 4 * slot), kind, visit);
    }
    if let Some((slots, hash)) = exact(words, root) {
        for slot in 0..1 << hash.bits {
            hash.block(load(words, slots + 4 * slot)).into_iter().for_each(&mut *visit);
        }
        visit(exact_block(slots, hash.bits));
    }
    visit(root_block(words, word));
}

/// The words of a table's header.
pub(super) type Header = [AtomicU32; size_of::<TableHeader>() / 4];

/// The header of the table whose root is at byte offset `root`, if it lies in the image.
fn whole_header(words: &[AtomicU32], root: u32) -> Option<&Header> {
    words.get((root as usize / 4).checked_sub(size_of::<Header>() / 4)?..)?.first_chunk()
}

/// The hash table of the table whose root is at byte offset `root`: the byte offset of its words, and its hash. None: it has none.
pub(super) fn exact(words: &[AtomicU32], root: u32) -> Option<(u32, Hash)> {
    let header = whole_header(words, root)?;
    let field = |field: usize| header[field / 4].load(Ordering::Acquire);
    let keys = Keys::of(field(offset_of!(TableHeader, key_family)));
    keys.has_exact.then(|| (field(offset_of!(TableHeader, exact)) & !DIR_BITS, hash(header)))
}

/// The hash of the table of this header.
#[inline(always)]
pub(super) fn hash(header: &Header) -> Hash {
    let field = |field: usize| header[field / 4].load(Ordering::Acquire);
    let field64 = |at: usize| u64::from(field(at)) | u64::from(field(at + 4)) << 32;
    let multiplier = offset_of!(TableHeader, multiplier);
    Hash {
        key_bits: Keys::of(field(offset_of!(TableHeader, key_family))).key_bits,
        bits: (field(offset_of!(TableHeader, exact)) & DIR_BITS) as u16,
        multiplier: [field64(multiplier), field64(multiplier + 8)],
        mask: field64(offset_of!(TableHeader, mask)),
        first: field64(offset_of!(TableHeader, first)),
    }
}

/// The block of a hash table's words.
pub(crate) fn exact_block(slots: u32, bits: u16) -> Block {
    Block { at: slots / UNIT, units: (4u32 << bits).div_ceil(UNIT) }
}
