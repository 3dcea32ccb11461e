//! Free blocks of an image, in lists by their size.

use crate::image::layout::{LINE, UNIT};
use alloc::vec::Vec;

pub(super) const LINE_UNITS: u32 = LINE / UNIT;

/// A run of units in the image: a node or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// First unit.
    pub at: u32,
    /// Length in units.
    pub units: u32,
}

/// Free blocks by size. None that fits a line straddles two; a longer one starts on a line.
#[derive(Debug)]
pub struct FreeLists {
    /// By size in units; the last list holds all that are at least that long, with their sizes in `long`.
    lists: Vec<Vec<u32>>,
    long: Vec<u32>,
    /// Bit n: `lists[n]` is not empty.
    filled: [u64; LISTS / 64],
}

/// Sizes that have a list of their own: up to 255 units, 2 KiB, so every node but a direct12.
const LISTS: usize = 256;

impl FreeLists {
    pub fn new() -> Self {
        Self { lists: (0..LISTS).map(|_| Vec::new()).collect(), long: Vec::new(), filled: [0; LISTS / 64] }
    }

    /// Adds the free run of `units` from `at`, cut where a line begins if it does not start on one.
    pub fn put(&mut self, at: u32, units: u32) {
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
    pub fn take(&mut self, units: u32) -> Option<u32> {
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

    pub fn drain(&mut self) -> Vec<Block> {
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
