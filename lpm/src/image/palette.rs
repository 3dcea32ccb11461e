//! The values of a table as one-byte codes: what a leaf6 holds instead of values.

use super::layout::PALETTE;
use super::space::Space;
use crate::Grace;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

/// The writer's side of a table's palette. Code 0 is value 0.
///
/// A code belongs to its value as long as a prefix has the value, and then until no reader can hold the code.
#[derive(Debug)]
pub(crate) struct Palette {
    /// Word index in the image of the value of code 0.
    at: usize,
    /// Value and code, by the value's hash, linear probing; value 0 = empty.
    slots: Box<[(u32, u8); SLOTS]>,
    values: [u32; PALETTE],
    /// Prefixes that have the value of each code.
    prefixes: [u32; PALETTE],
    free: Vec<u8>,
    /// Codes of values that no prefix has any more, with the mark after which they may have another.
    leaving: Vec<(u64, u8)>,
    /// A value came for which no code was free: prefixes are no longer counted, codes stay with their values.
    full: bool,
}

/// Fewer free codes than this make the writer ask for a grace period.
const FEW: usize = 32;

/// Four for each code, so that probes are short.
const SLOTS: usize = 1024;

fn slot_of(value: u32) -> usize {
    (value.wrapping_mul(0x9e37_79b1) >> 22) as usize
}

impl Palette {
    /// A palette for prefixes of these values, if it can hold them.
    pub fn of(values: impl Iterator<Item = u32>) -> Option<Self> {
        let mut palette = Self {
            at: 0,
            slots: Box::new([(0, 0); SLOTS]),
            values: [0; PALETTE],
            prefixes: [0; PALETTE],
            free: (1..=u8::MAX).rev().collect(),
            leaving: Vec::new(),
            full: false,
        };
        for value in values {
            if let Some(code) = palette.code(value) {
                palette.prefixes[usize::from(code)] += 1;
            } else {
                let code = palette.free.pop()?;
                palette.enter(value, code);
            }
        }
        Some(palette)
    }

    /// Writes the palette to the image, at word index `at`.
    pub fn place(&mut self, words: &[AtomicU32], at: usize) {
        self.at = at;
        for (word, value) in words[at..at + PALETTE].iter().zip(self.values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The code of a value; None if it has none.
    #[inline]
    pub fn code(&self, value: u32) -> Option<u8> {
        if value == 0 {
            return Some(0);
        }
        let mut slot = slot_of(value);
        loop {
            match self.slots[slot] {
                (found, code) if found == value => return Some(code),
                (0, _) => return None,
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }

    /// The value of a code.
    #[inline]
    pub fn value(&self, code: u8) -> u32 {
        self.values[usize::from(code)]
    }

    /// Whether there are values without a code; a new palette may hold them.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Another prefix has this value from now on; gives it a code if one is free. Before nodes with it are built.
    ///
    /// If few codes are free, asks for a grace period for those that wait for one. Too little memory may wait for anybody else to ask.
    pub fn acquire(&mut self, words: &[AtomicU32], space: &mut Space, grace: &mut impl Grace, value: u32) {
        if self.full {
            return;
        }
        if let Some(code) = self.code(value) {
            self.prefixes[usize::from(code)] += 1;
            return;
        }
        if self.free.len() < FEW && !self.leaving.is_empty() {
            space.begin(grace);
            space.reclaim(grace);
        }
        let free = &mut self.free;
        self.leaving.retain(|(mark, code)| {
            let is_over = space.is_over(*mark);
            if is_over {
                free.push(*code);
            }
            !is_over
        });
        if let Some(code) = self.free.pop() {
            self.enter(value, code);
            words[self.at + usize::from(code)].store(value, Ordering::Relaxed);
        } else {
            self.full = true;
        }
    }

    /// One prefix less has this value. After its nodes have been replaced.
    pub fn release(&mut self, space: &mut Space, value: u32) {
        let Some(code) = self.code(value).filter(|code| *code != 0 && !self.full) else { return };
        let prefixes = &mut self.prefixes[usize::from(code)];
        *prefixes -= 1;
        if *prefixes == 0 {
            self.forget(value);
            self.leaving.push((space.mark(), code));
        }
    }

    fn enter(&mut self, value: u32, code: u8) {
        let mut slot = slot_of(value);
        while self.slots[slot].0 != 0 {
            slot = (slot + 1) % SLOTS;
        }
        self.slots[slot] = (value, code);
        self.values[usize::from(code)] = value;
        self.prefixes[usize::from(code)] = 1;
    }

    /// Takes a value out of the probe sequence and closes the gap.
    fn forget(&mut self, value: u32) {
        let mut gap = slot_of(value);
        while self.slots[gap].0 != value {
            gap = (gap + 1) % SLOTS;
        }
        let mut slot = gap;
        loop {
            self.slots[gap] = (0, 0);
            loop {
                slot = (slot + 1) % SLOTS;
                let (found, _) = self.slots[slot];
                if found == 0 {
                    return;
                }
                // An entry may move into the gap unless its own first slot lies behind the gap.
                let reach = (slot + SLOTS - slot_of(found)) % SLOTS;
                if reach >= (slot + SLOTS - gap) % SLOTS {
                    break;
                }
            }
            self.slots[gap] = self.slots[slot];
            gap = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoReaders;

    /// A grace period that a reader holds up.
    #[derive(Default)]
    struct Held(u64);

    impl Grace for Held {
        fn begin(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }
        fn passed(&mut self) -> u64 {
            0
        }
        fn wait(&mut self, _: u64) {}
    }

    #[test]
    fn codes_come_and_go() {
        let words: Vec<AtomicU32> = (0..PALETTE).map(|_| AtomicU32::new(0)).collect();
        let mut space = Space::new(1 << 17, 64);
        let held = &mut Held::default();
        let mut palette = Palette::of([7, 7, 9].into_iter()).unwrap();
        palette.place(&words, 0);
        let nine = palette.code(9).unwrap();
        assert_eq!((palette.code(0), palette.code(8), palette.value(nine)), (Some(0), None, 9));
        palette.release(&mut space, 9);
        palette.release(&mut space, 7);
        assert_eq!((palette.code(9), palette.code(7).is_some()), (None, true));
        // Values that share a first slot.
        let values = || (1..=200).map(|value| value * 1024);
        values().for_each(|value| palette.acquire(&words, &mut space, held, value));
        assert!(values().all(|value| palette.code(value).is_some()));
        values().for_each(|value| palette.release(&mut space, value));
        assert!(values().all(|value| palette.code(value).is_none()) && palette.code(7).is_some());
        for value in 1..=54 {
            palette.acquire(&words, &mut space, held, value * 2000);
        }
        assert_eq!(palette.code(54 * 2000), None, "7 has a code, and 201 wait for their readers");
        assert!(palette.is_full());

        let mut palette = Palette::of([7, 9].into_iter()).unwrap();
        palette.place(&words, 0);
        palette.release(&mut space, 9);
        space.synchronize(&mut NoReaders::default());
        (1..=254).for_each(|value| palette.acquire(&words, &mut space, held, value * 2000));
        assert_eq!((palette.code(2000), palette.is_full()), (Some(nine), false), "its grace period is over");
        assert_eq!(words[usize::from(nine)].load(Ordering::Relaxed), 2000);
    }

    #[test]
    fn codes_of_single_prefixes_are_reused() {
        let words: Vec<AtomicU32> = (0..PALETTE).map(|_| AtomicU32::new(0)).collect();
        let (mut space, grace) = (Space::new(1 << 17, 64), &mut NoReaders::default());
        let mut palette = Palette::of([1].into_iter()).unwrap();
        palette.place(&words, 0);
        for value in 2..2000 {
            palette.acquire(&words, &mut space, grace, value);
            let code = palette.code(value).expect("codes come free");
            assert_eq!(words[usize::from(code)].load(Ordering::Relaxed), value);
            palette.release(&mut space, value - 1);
        }
        assert!(!palette.is_full());
    }

    #[test]
    fn too_many_values() {
        assert!(Palette::of(1..=255).is_some());
        assert!(Palette::of(1..=256).is_none());
    }
}
