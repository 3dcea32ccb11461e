//! A bitmap node as the writer works on it: where runs start and what each holds.

use super::layout::{Kind, REF_NODE, REF_OFFSET, UNIT, kind_of};
use super::palette::Palette;
use super::words::{count_ones, has_popcnt, load64};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

/// Slots of a bitmap node that get another ref.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub from: u16,
    pub to: u16,
    pub entry: u32,
}

/// A word to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishedWord {
    /// Its index in the image.
    pub word: usize,
    /// The entry to store.
    pub entry: u32,
}

/// The runs of a node of up to 256 slots.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Bit i of word i / 64: slot i starts a run.
    starts: [u64; 4],
    /// The ref of each run, unless that is ...
    refs: [u32; 256],
    /// ... a code of a palette.
    codes: [u8; 256],
    len: usize,
    is_coded: bool,
}

impl Runs {
    /// No runs yet.
    pub fn new() -> Self {
        Self { starts: [0; 4], refs: [0; 256], codes: [0; 256], len: 0, is_coded: false }
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

    /// The ref of each run, if not codes.
    pub fn refs(&self) -> &[u32] {
        &self.refs[..self.len]
    }

    /// The codes as words of the image.
    pub fn code_words(&self) -> impl Iterator<Item = u32> + '_ {
        let (words, _) = self.codes.as_chunks();
        words[..self.len.div_ceil(4)].iter().map(|codes| u32::from_le_bytes(*codes))
    }

    /// Clears what is left of the last word of codes.
    fn pad(&mut self) {
        self.codes[self.len..self.len.next_multiple_of(4)].fill(0);
    }

    /// The ref or code of a run.
    fn get(&self, run: usize) -> u32 {
        if self.is_coded { self.codes[run].into() } else { self.refs[run] }
    }

    fn add(&mut self, entry: u32) {
        if self.is_coded {
            self.codes[self.len] = entry as u8;
        } else {
            self.refs[self.len] = entry;
        }
        self.len += 1;
    }

    /// Adds what the runs `from` of `other` hold.
    fn add_all(&mut self, other: &Runs, from: Range<usize>) {
        let to = self.len..self.len + from.len();
        self.len = to.end;
        if self.is_coded {
            self.codes[to].copy_from_slice(&other.codes[from]);
        } else {
            self.refs[to].copy_from_slice(&other.refs[from]);
        }
    }

    /// Whether a run holds `entry`.
    pub fn contains(&self, entry: u32) -> bool {
        if self.is_coded {
            self.codes[..self.len].contains(&(entry as u8))
        } else {
            self.refs().contains(&entry)
        }
    }

    /// The value of all slots, if they share one.
    pub fn single(&self, palette: Option<&Palette>) -> Option<u32> {
        match (self.len, palette) {
            (1, Some(palette)) if self.is_coded => Some(palette.value(self.codes[0])),
            (1, _) => Some(self.refs[0]).filter(|entry| entry & REF_NODE == 0),
            _ => None,
        }
    }

    /// Index of the run that `slot` lies in.
    pub fn at(&self, slot: usize) -> usize {
        let inside = self.starts[slot / 64] << (63 - slot % 64);
        self.before(slot / 64) + ones(inside) - 1
    }

    /// Runs that start before word `word`.
    fn before(&self, word: usize) -> usize {
        self.starts[..word].iter().map(|bits| ones(*bits)).sum()
    }

    /// Adds a run from `slot`, behind all others; it joins the last one if both hold the same value.
    pub fn push(&mut self, slot: usize, entry: u32) {
        if self.len == 0 || entry & REF_NODE != 0 || entry != self.get(self.len - 1) {
            self.starts[slot / 64] |= 1 << (slot % 64);
            self.add(entry);
        }
    }

    /// The runs of the slots.
    pub fn of_slots(&mut self, slots: &[u32]) {
        self.clear();
        for (slot, entry) in slots.iter().enumerate() {
            self.push(slot, *entry);
        }
    }

    /// Reads the bitmap node that `entry` leads to; codes stay codes.
    pub fn read(&mut self, words: &[AtomicU32], entry: u32, kind: Kind) {
        let node = (entry & REF_OFFSET) * UNIT;
        self.starts = starts(words, node, kind);
        self.len = self.before(4);
        self.is_coded = kind_of(entry) == kind.leaf();
        let at = ((node + kind.refs) / 4) as usize;
        if self.is_coded {
            let words = &words[at..at + self.len.div_ceil(4)];
            for (codes, word) in self.codes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *codes = word.load(Ordering::Relaxed).to_le_bytes();
            }
        } else {
            for (entry, word) in self.refs[..self.len].iter_mut().zip(&words[at..at + self.len]) {
                *entry = word.load(Ordering::Relaxed);
            }
        }
    }

    /// Makes `out` what these runs are with `entry` in the slots `from..to`. `slots` is the node's number of slots.
    pub fn splice(&self, from: usize, to: usize, slots: usize, entry: u32, out: &mut Runs) {
        out.copy_before(self, from);
        out.push(from, entry);
        out.copy_behind(self, to, slots);
    }

    /// Makes these runs those of `old` up to `slot`.
    fn copy_before(&mut self, old: &Runs, slot: usize) {
        self.is_coded = old.is_coded;
        self.len = 0;
        self.add_all(old, 0..if slot == 0 { 0 } else { old.at(slot - 1) + 1 });
        for word in 0..4 {
            self.starts[word] = old.starts[word] & below(word, slot);
        }
    }

    /// Adds the runs of `old` from `slot` on, of `count` slots.
    fn copy_behind(&mut self, old: &Runs, slot: usize, count: usize) {
        if slot < count {
            let right = old.at(slot);
            self.push(slot, old.get(right));
            self.add_all(old, right + 1..old.len);
            for word in 0..4 {
                self.starts[word] |= old.starts[word] & !below(word, slot + 1);
            }
        }
        if self.is_coded {
            self.pad();
        }
    }

    /// Makes these runs what `old` is with `to` in those of its `slots` that hold the value `from`, but for the ascending `pieces`.
    /// `count` is the node's number of slots.
    pub fn fill(
        &mut self,
        old: &Runs,
        slots: Range<usize>,
        from: u32,
        to: u32,
        pieces: &[Piece],
        count: usize,
    ) {
        self.copy_before(old, slots.start);
        let mut pieces = pieces.iter().peekable();
        let runs = (old.at(slots.start)..).zip(Spans::within(old.starts, &slots));
        for (entry, span) in runs.map(|(run, span)| (old.get(run), span)) {
            if entry != from && entry & REF_NODE == 0 {
                self.push(span.start, entry);
                continue;
            }
            let all = if entry == from { to } else { entry };
            let mut at = span.start;
            while let Some(piece) = pieces.next_if(|piece| usize::from(piece.from) < span.end) {
                if at < piece.from.into() {
                    self.push(at, all);
                }
                self.push(piece.from.into(), piece.entry);
                at = piece.to.into();
            }
            if at < span.end {
                self.push(at, all);
            }
        }
        self.copy_behind(old, slots.end, count);
    }

    /// Whether `slot` leads to a node.
    pub fn is_node(&self, slot: usize) -> bool {
        !self.is_coded && self.refs[self.at(slot)] & REF_NODE != 0
    }

    /// Where `new` has the same runs and only their refs differ: adds the words to store to `published_words`, the refs beginning at word
    /// index `refs`. Returns whether that is so.
    pub fn in_place(&self, new: &Runs, refs: u32, published_words: &mut Vec<PublishedWord>) -> bool {
        let is_same = self.starts.iter().zip(&new.starts).all(|(old, new)| old == new);
        if !is_same || self.is_coded != new.is_coded {
            return false;
        }
        let refs = refs as usize;
        if self.is_coded {
            for (word, (old, entry)) in self.code_words().zip(new.code_words()).enumerate() {
                if old != entry {
                    published_words.push(PublishedWord { word: refs + word, entry });
                }
            }
        } else {
            for (run, (old, &entry)) in self.refs().iter().zip(new.refs()).enumerate() {
                if *old != entry {
                    published_words.push(PublishedWord { word: refs + run, entry });
                }
            }
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
        for (code, entry) in self.codes.iter_mut().zip(&self.refs[..self.len]) {
            let Some(found) = palette.code(*entry) else { return false };
            *code = found;
        }
        self.is_coded = true;
        self.pad();
        true
    }

    /// Makes values of the codes.
    pub fn decode(&mut self, palette: &Palette) {
        if core::mem::take(&mut self.is_coded) {
            let codes = &self.codes[..self.len];
            self.refs.iter_mut().zip(codes).for_each(|(entry, code)| *entry = palette.value(*code));
        }
    }
}

/// The bitmap of the node at byte offset `at`.
pub(super) fn starts(words: &[AtomicU32], at: u32, kind: Kind) -> [u64; 4] {
    let mut starts = [0; 4];
    for (word, bits) in (0..kind.words()).zip(&mut starts) {
        *bits = load64(words, at + 8 * word);
    }
    starts
}

/// The 64-bit words that a node8 has for this bitmap: `starts` and what follows it.
pub(super) fn counted(starts: &[u64; 4]) -> [u64; 5] {
    let (mut before, mut count) = (0, 0);
    for (word, bits) in starts.iter().enumerate() {
        before |= u64::from(count) << (8 * word);
        count += bits.count_ones();
    }
    let [one, two, three, four] = *starts;
    [one, two, three, four, before]
}

/// The slots of each run.
pub(super) struct Spans {
    starts: [u64; 4],
    /// Start of the run to come.
    next: usize,
    /// The end of the last.
    end: usize,
}

impl Spans {
    /// Of the runs in `slots`, which the first and the last may reach beyond.
    pub fn within(mut starts: [u64; 4], slots: &Range<usize>) -> Self {
        for (word, bits) in starts.iter_mut().enumerate() {
            *bits &= !below(word, slots.start + 1) & below(word, slots.end);
        }
        Self { starts, next: slots.start, end: slots.end }
    }

    /// Takes out the first start.
    fn start(&mut self) -> usize {
        let Some(word) = (self.next / 64..self.end.div_ceil(64)).find(|word| self.starts[*word] != 0) else {
            return self.end;
        };
        let bits = self.starts[word];
        self.starts[word] = bits & (bits - 1);
        word * 64 + bits.trailing_zeros() as usize
    }
}

impl Iterator for Spans {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.next;
        (start < self.end).then(|| {
            self.next = self.start();
            start..self.next
        })
    }
}

pub(super) fn ones(bits: u64) -> usize {
    count_ones(bits, has_popcnt()) as usize
}

/// The bits of word `word` of a bitmap that stand for slots before `slot`.
pub(super) fn below(word: usize, slot: usize) -> u64 {
    match slot.saturating_sub(word * 64) {
        0 => 0,
        bits @ 1..=63 => (1 << bits) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use alloc::vec::Vec;

    fn slots_of(runs: &Runs, count: usize) -> Vec<u32> {
        (0..count).map(|slot| runs.refs()[runs.at(slot)]).collect()
    }

    #[test]
    fn splice_matches_the_slots() {
        let mut random = Random(1);
        let mut random = |below: u64| random.below(below as usize) as u64;
        let (mut runs, mut out) = (Runs::new(), Runs::new());
        for round in 0..20_000 {
            let count = if round % 2 == 0 { 64 } else { 256 };
            let mut want: Vec<u32> = (0..count).map(|_| random(3) as u32 * random(2) as u32).collect();
            if round % 5 == 0 {
                want[random(count as u64) as usize] = REF_NODE | 9;
            }
            runs.of_slots(&want);
            assert_eq!(slots_of(&runs, count), want);
            let from = random(count as u64) as usize;
            let to = from + 1 + random((count - from) as u64) as usize;
            let entry = random(3) as u32;
            want[from..to].fill(entry);
            runs.splice(from, to, count, entry, &mut out);
            assert_eq!(slots_of(&out, count), want, "{from}..{to}");
            runs.of_slots(&want);
            assert_eq!((out.len(), out.starts()), (runs.len(), runs.starts()), "as few runs as can be");
        }
    }

    #[test]
    fn fill_matches_the_slots() {
        let mut random = Random(2);
        let (mut runs, mut out) = (Runs::new(), Runs::new());
        for round in 0..20_000 {
            let count = if round % 2 == 0 { 64 } else { 256 };
            let mut want: Vec<u32> = (0..count).map(|_| (random.below(3) * random.below(2)) as u32).collect();
            if round % 5 == 0 {
                want[random.below(count)] = REF_NODE | 9;
            }
            runs.of_slots(&want);
            let start = random.below(count);
            let slots = start..start + 1 + random.below(count - start);
            let [from, to] = [(); 2].map(|()| random.below(3) as u32);
            // A piece is part of a node's slots, or of those that have the one value.
            let at = slots.start + random.below(slots.len());
            let may_be_piece = want[at] == from || want[at] & REF_NODE != 0;
            for entry in want[slots.clone()].iter_mut().filter(|entry| **entry == from) {
                *entry = to;
            }
            let mut pieces = Vec::new();
            if round % 3 == 0 && may_be_piece {
                pieces.push(Piece { from: at as u16, to: at as u16 + 1, entry: random.below(3) as u32 });
                want[at] = pieces[0].entry;
            }
            out.fill(&runs, slots.clone(), from, to, &pieces, count);
            runs.of_slots(&want);
            assert_eq!(slots_of(&out, count), want, "{from} to {to} in {slots:?} but {pieces:?}");
            assert_eq!((out.len(), out.starts()), (runs.len(), runs.starts()), "as few runs as can be");
        }
    }
}
