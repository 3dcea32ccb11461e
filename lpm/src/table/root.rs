//! A table's root in the image: building it whole, and repainting the part of it that short prefixes cover.

use crate::image::Error;
use crate::image::build::{Builder, Swing};
use crate::image::layout::{DIR_BITS, LINE, PALETTE, TableHeader, UNIT};
use crate::image::palette::Palette;
use crate::image::walk::table_block;
use crate::shadow::Shadow;
use crate::{Address, Grace, Image, Memory, Prefix};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

/// Where a table is in the image.
#[derive(Debug, Default)]
pub(super) struct Root {
    /// Offset of slot 0, bytes.
    pub at: u32,
    /// Address bits that index it.
    pub bits: u16,
    /// For each slot, the value of the longest prefix of 1 ... `bits`-1 bits that covers it; 0 = none.
    pub cover: Vec<u32>,
    pub palette: Option<Box<Palette>>,
}

/// Root bits for a table of `prefixes`: a small table must be small (1 KiB up to 64 prefixes), a large one shallow.
pub(super) fn root_bits<A: Address>(prefixes: usize) -> u16 {
    match (A::FAMILY, prefixes) {
        (4, ..=64) | (0 | 6, ..=256) => 8,
        (4, ..=4096) => 12,
        (4, ..=200_000) | (0 | 6, _) => 16,
        _ => 18,
    }
}

/// A table of fewer prefixes saves nothing by a palette.
const PALETTE_MIN: usize = 4096;

impl Root {
    /// Index of a slot's word in the image.
    pub fn index(&self, slot: usize) -> usize {
        self.at as usize / 4 + slot
    }

    /// A word of the table's header.
    pub fn header<'a>(&self, words: &'a [AtomicU32], field: usize) -> &'a AtomicU32 {
        &words[(self.at as usize - size_of::<TableHeader>() + field) / 4]
    }

    fn block(&self) -> crate::image::space::Block {
        table_block(self.at, self.bits, self.palette.is_some())
    }

    /// Builds table `id` aside and publishes it for all addresses at once.
    pub fn build<M: Memory, G: Grace, A: Address>(
        image: &mut Image<M, G>,
        id: u32,
        shadow: &Shadow<A>,
    ) -> Result<Self, Error> {
        let bits = root_bits::<A>(shadow.len());
        let count = 1usize << bits;
        let has_palette = A::FAMILY == 4 && shadow.len() > PALETTE_MIN;
        let values = || shadow.iter().filter(|(prefix, _)| prefix.len() > 0).map(|(_, value)| value);
        let mut palette = has_palette.then(|| Palette::of(values())).flatten().map(Box::new);
        let mut cover = alloc::vec![0; count];
        let mut long = Vec::with_capacity(shadow.len());
        paint(shadow.iter(), bits, 0, &mut cover, &mut long);

        let mut builder = image.builder::<A>(palette.as_deref());
        let mut build = || {
            let units = table_block(LINE, bits, builder.nodes.palette.is_some()).units;
            let at = builder.nodes.allocate(units)?.at * UNIT + LINE;
            slots(&long, bits, 0..count, |slot, inside| {
                let entry = builder.subtree(inside, bits, cover[slot])?;
                builder.nodes.words[at as usize / 4 + slot].store(entry, Ordering::Relaxed);
                Ok(())
            })?;
            Ok(at)
        };
        let at = match build() {
            Ok(at) => at,
            Err(error) => return Err(builder.abandon(error)),
        };
        let words = image.memory.words();
        if let Some(palette) = &mut palette {
            palette.place(words, at as usize / 4 + count);
        }
        let root = Self { at, bits, cover, palette };
        let fallback = shadow.get(&Prefix::truncated(A::ZERO, 0)).unwrap_or(0);
        let header = [
            (offset_of!(TableHeader, fallback), fallback),
            (
                offset_of!(TableHeader, key_family),
                u32::from(A::FAMILY) | u32::from(bits) << 8 | u32::from(A::WIDTH) << 16,
            ),
            (offset_of!(TableHeader, prefixes), shadow.len() as u32),
            (offset_of!(TableHeader, root_bytes), 4 * count as u32),
            (offset_of!(TableHeader, palette), if root.palette.is_some() { PALETTE as u32 } else { 0 }),
        ];
        for word in (0..size_of::<TableHeader>()).step_by(4) {
            root.header(words, word).store(0, Ordering::Relaxed);
        }
        for (field, value) in header {
            root.header(words, field).store(value, Ordering::Relaxed);
        }
        image.swing_directory(id, at | u32::from(bits));
        Ok(root)
    }

    /// A root that differs in its fallback only, at `at`, published by the directory word: a lookup that found nothing sees by it
    /// whether the fallback it then read belongs to what it had found.
    pub fn change_fallback<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        id: u32,
        at: u32,
        fallback: u32,
    ) {
        let old = self.block();
        let words = image.memory.words();
        let from = (old.at * UNIT / 4) as usize;
        let to = (at - LINE) as usize / 4;
        for word in 0..(old.units * UNIT / 4) as usize {
            words[to + word].store(words[from + word].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.at = at;
        self.header(words, offset_of!(TableHeader, fallback)).store(fallback, Ordering::Relaxed);
        image.swing_root(id, at | u32::from(self.bits) & DIR_BITS, old);
        if let Some(palette) = &mut self.palette {
            palette.moved(&mut image.space, at as usize / 4 + (1 << self.bits));
        }
    }

    /// Units of a block for [`Root::change_fallback`].
    pub fn units(&self) -> u32 {
        self.block().units
    }

    /// Builds the root slots anew whose longest short prefix has changed with `prefix`, which is shorter than the root's bits.
    /// Adds what `cover` shall be from the first slot on to `covers`.
    pub fn repaint<A: Address, G: Grace>(
        &self,
        builder: &mut Builder<'_, G>,
        shadow: &Shadow<A>,
        prefix: Prefix<A>,
        swings: &mut Vec<Swing>,
        covers: &mut Vec<(usize, Vec<u32>)>,
    ) -> Result<(), Error> {
        let bits = self.bits;
        let first = prefix.addr().bits_at(0, bits);
        let mut cover =
            alloc::vec![shadow.inherited(prefix.addr(), prefix.len() - 1); 1 << (bits - prefix.len())];
        let mut long = Vec::new();
        paint(shadow.within(prefix), bits, first, &mut cover, &mut long);
        slots(&long, bits, first..first + cover.len(), |slot, inside| {
            let cover = cover[slot - first];
            if cover != self.cover[slot] {
                let word = self.index(slot);
                builder.nodes.replace(builder.nodes.words[word].load(Ordering::Relaxed));
                swings.push(Swing { word, entry: builder.subtree(inside, bits, cover)? });
            }
            Ok(())
        })?;
        covers.push((first, cover));
        Ok(())
    }
}

/// Paints the prefixes shorter than `bits` over `cover` (the root slots from `first` on) and collects the longer ones.
fn paint<A: Address>(
    prefixes: impl Iterator<Item = (Prefix<A>, u32)>,
    bits: u16,
    first: usize,
    cover: &mut [u32],
    long: &mut Vec<(Prefix<A>, u32)>,
) {
    for (prefix, value) in prefixes {
        if prefix.len() >= bits {
            long.push((prefix, value));
        } else if prefix.len() > 0 {
            let slot = prefix.addr().bits_at(0, bits) - first;
            cover[slot..slot + (1 << (bits - prefix.len()))].fill(value);
        }
    }
}

/// Calls `each` with every one of the root slots `range` and the prefixes of `long` that lie in it.
fn slots<A: Address>(
    mut long: &[(Prefix<A>, u32)],
    bits: u16,
    range: Range<usize>,
    mut each: impl FnMut(usize, &[(Prefix<A>, u32)]) -> Result<(), Error>,
) -> Result<(), Error> {
    for slot in range {
        let (inside, behind) =
            long.split_at(long.iter().take_while(|(p, _)| p.addr().bits_at(0, bits) == slot).count());
        each(slot, inside)?;
        long = behind;
    }
    Ok(())
}
