//! A bitmap node as the writer works on it: where runs start and what each holds.

use super::build::Swing;
use super::layout::{Kind, LEAF6, NODE6, REF_NODE, REF_OFFSET, UNIT, kind_of};
use super::lookup::starts;
use super::palette::Palette;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

/// The runs of a node of up to 256 slots.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Bit i of word i / 64: slot i starts a run.
    starts: [u64; 4],
    refs: [u32; 256],
    len: usize,
    /// The refs are codes of a palette.
    is_coded: bool,
}

impl Runs {
    /// No runs yet.
    pub fn new() -> Self {
        Self { starts: [0; 4], refs: [0; 256], len: 0, is_coded: false }
    }

    /// Forgets all runs.
    pub fn clear(&mut self) {
        self.starts = [0; 4];
        self.len = 0;
        self.is_coded = false;
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// What each run holds.
    pub fn refs(&self) -> &[u32] {
        &self.refs[..self.len]
    }

    /// The value of all slots, if they share one.
    pub fn single(&self, palette: Option<&Palette>) -> Option<u32> {
        match (self.refs(), palette) {
            ([code], Some(palette)) if self.is_coded => Some(palette.value(*code as u8)),
            ([entry], _) if *entry & REF_NODE == 0 => Some(*entry),
            _ => None,
        }
    }

    /// Index of the run that `slot` lies in.
    pub fn at(&self, slot: usize) -> usize {
        let inside = self.starts[slot / 64] << (63 - slot % 64);
        self.before(slot / 64) + inside.count_ones() as usize - 1
    }

    /// Runs that start before word `word`.
    fn before(&self, word: usize) -> usize {
        self.starts[..word].iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Adds a run from `slot`, behind all others; it joins the last one if both hold the same value.
    pub fn push(&mut self, slot: usize, entry: u32) {
        if self.len == 0 || entry & REF_NODE != 0 || entry != self.refs[self.len - 1] {
            self.starts[slot / 64] |= 1 << (slot % 64);
            self.refs[self.len] = entry;
            self.len += 1;
        }
    }

    /// The runs of the slots.
    pub fn of_slots(&mut self, slots: &[u32]) {
        self.clear();
        for (slot, entry) in slots.iter().enumerate() {
            self.push(slot, *entry);
        }
    }

    /// Reads the bitmap node that `entry` leads to; a leaf6's codes stay codes.
    pub fn read(&mut self, words: &[AtomicU32], entry: u32, kind: Kind) {
        let node = (entry & REF_OFFSET) * UNIT;
        self.starts = [0; 4];
        for word in 0..kind.words() {
            self.starts[word as usize] = starts(words, node, kind, word);
        }
        self.len = self.before(4);
        self.is_coded = kind == NODE6 && kind_of(entry) == LEAF6;
        let at = ((node + kind.refs) / 4) as usize;
        if self.is_coded {
            for (word, refs) in words[at..at + self.len.div_ceil(4)].iter().zip(self.refs.chunks_mut(4)) {
                let bytes = word.load(Ordering::Relaxed).to_le_bytes();
                refs.iter_mut().zip(bytes).for_each(|(entry, byte)| *entry = byte.into());
            }
        } else {
            for (entry, word) in self.refs[..self.len].iter_mut().zip(&words[at..at + self.len]) {
                *entry = word.load(Ordering::Relaxed);
            }
        }
    }

    /// Makes `out` what these runs are with `entry` in the slots `from..to`. `slots` is the node's number of slots.
    pub fn splice(&self, from: usize, to: usize, slots: usize, entry: u32, out: &mut Runs) {
        out.is_coded = self.is_coded;
        // Runs before: those that start before `from`.
        let left = if from == 0 { 0 } else { self.at(from - 1) + 1 };
        out.refs[..left].copy_from_slice(&self.refs[..left]);
        out.len = left;
        for word in 0..4 {
            out.starts[word] = self.starts[word] & below(word, from);
        }
        out.push(from, entry);
        if to < slots {
            let right = self.at(to);
            out.push(to, self.refs[right]);
            let rest = &self.refs[right + 1..self.len];
            out.refs[out.len..out.len + rest.len()].copy_from_slice(rest);
            out.len += rest.len();
            for word in 0..4 {
                out.starts[word] |= self.starts[word] & !below(word, to + 1);
            }
        }
    }

    /// Takes over the runs of another.
    pub fn copy(&mut self, from: &Runs) {
        self.starts = from.starts;
        self.refs[..from.len].copy_from_slice(from.refs());
        self.len = from.len;
        self.is_coded = from.is_coded;
    }

    /// Whether `slot` leads to a node.
    pub fn is_node(&self, slot: usize) -> bool {
        !self.is_coded && self.refs[self.at(slot)] & REF_NODE != 0
    }

    /// Where `new` has the same runs and only their refs differ: adds the words to store to `swings`, the refs beginning at word
    /// index `refs`. Returns whether that is so.
    pub fn in_place(&self, new: &Runs, refs: u32, swings: &mut Vec<Swing>) -> bool {
        if (self.starts, self.is_coded) != (new.starts, new.is_coded) {
            return false;
        }
        let of_word = if self.is_coded { 4 } else { 1 };
        let pairs = self.refs().chunks(of_word).zip(new.refs().chunks(of_word));
        for (word, (_, new)) in pairs.enumerate().filter(|(_, (old, new))| old != new) {
            let entry = if self.is_coded { packed(new) } else { new[0] };
            swings.push(Swing { word: refs as usize + word, entry });
        }
        true
    }

    /// The bitmap.
    pub fn starts(&self) -> &[u64; 4] {
        &self.starts
    }

    /// Whether the refs are codes.
    pub fn is_coded(&self) -> bool {
        self.is_coded
    }

    /// Makes codes of the values, if all have one.
    pub fn encode(&mut self, palette: &Palette) -> bool {
        if self.is_coded {
            return true;
        }
        let mut codes = [0u32; 64];
        if self.len > codes.len() {
            return false;
        }
        for (code, entry) in codes.iter_mut().zip(self.refs()) {
            if entry & REF_NODE != 0 {
                return false;
            }
            let Some(found) = palette.code(*entry) else { return false };
            *code = found.into();
        }
        self.refs[..self.len].copy_from_slice(&codes[..self.len]);
        self.is_coded = true;
        true
    }

    /// Makes values of the codes.
    pub fn decode(&mut self, palette: &Palette) {
        if core::mem::take(&mut self.is_coded) {
            self.refs[..self.len].iter_mut().for_each(|entry| *entry = palette.value(*entry as u8));
        }
    }
}

/// Up to four codes as a word of the image.
pub(super) fn packed(codes: &[u32]) -> u32 {
    codes.iter().rev().fold(0, |word, code| word << 8 | code)
}

/// The bits of word `word` of a bitmap that stand for slots before `slot`.
fn below(word: usize, slot: usize) -> u64 {
    match slot.saturating_sub(word * 64) {
        0 => 0,
        bits @ 1..=63 => (1 << bits) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn slots(runs: &Runs, count: usize) -> Vec<u32> {
        (0..count).map(|slot| runs.refs()[runs.at(slot)]).collect()
    }

    #[test]
    fn splice_says_what_the_slots_say() {
        let mut seed = 1u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let (mut runs, mut out) = (Runs::new(), Runs::new());
        for round in 0..20_000 {
            let count = if round % 2 == 0 { 64 } else { 256 };
            let mut want: Vec<u32> = (0..count).map(|_| random(3) as u32 * random(2) as u32).collect();
            if round % 5 == 0 {
                want[random(count as u64) as usize] = REF_NODE | 9;
            }
            runs.of_slots(&want);
            assert_eq!(slots(&runs, count), want);
            let from = random(count as u64) as usize;
            let to = from + 1 + random((count - from) as u64) as usize;
            let entry = random(3) as u32;
            want[from..to].fill(entry);
            runs.splice(from, to, count, entry, &mut out);
            assert_eq!(slots(&out, count), want, "{from}..{to}");
            runs.of_slots(&want);
            assert_eq!((out.len(), out.starts()), (runs.len(), runs.starts()), "as few runs as can be");
        }
    }
}
