//! The runs that prefixes make of the next sixteen or 32 key bits: what ranges and ranges32 nodes are written from.

use super::layout::REF_NODE;
use crate::{Address, Prefix};
use alloc::vec::Vec;
use core::ops::Range;

/// Runs of equal refs, ascending.
pub(super) struct Ranges {
    runs: Vec<Run>,
    most: usize,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// The first of its slots.
    pub start: u64,
    /// The entry.
    pub entry: u32,
}

/// Prefixes that outlast the runs' key bits.
pub(super) struct Longer<'a, A> {
    pub entries: &'a [(Prefix<A>, u32)],
    /// The value of the shorter prefixes that cover them.
    pub cover: u32,
}

impl Ranges {
    /// No runs yet; `most` runs are too many.
    pub fn new(most: usize) -> Self {
        Self { runs: Vec::with_capacity(most), most }
    }

    /// The runs that sorted `entries` make of the `bits` key bits from `depth` on; None if they are more than `most`. A slot with
    /// longer prefixes is a run of its own, which holds their index in `longer` and [`REF_NODE`].
    pub fn of<'a, A: Address>(
        mut entries: &'a [(Prefix<A>, u32)],
        depth: u16,
        bits: u16,
        most: usize,
        default: u32,
        longer: &mut Vec<Longer<'a, A>>,
    ) -> Option<Self> {
        let end = depth + bits;
        let mut ranges = Self::new(most);
        ranges.push(0, default)?;
        // The prefixes that are open at the place reached, each with its end and value.
        let mut open: Vec<(u64, u32)> = Vec::new();
        while let Some(((prefix, value), rest)) = entries.split_first() {
            let start = prefix.addr().word_at(depth) >> (64 - bits);
            ranges.close(&mut open, start, default)?;
            if prefix.len() <= end {
                ranges.push(start, *value)?;
                open.push((start + (1 << (end - prefix.len())), *value));
                entries = rest;
            } else {
                let is_inside = |(p, _): &&(Prefix<A>, u32)| p.addr().common_bits(prefix.addr()) >= end;
                let (inside, behind) = entries.split_at(entries.iter().take_while(is_inside).count());
                let cover = open.last().map_or(default, |(_, value)| *value);
                ranges.push(start, REF_NODE | longer.len() as u32)?;
                longer.push(Longer { entries: inside, cover });
                open.push((start + 1, cover));
                entries = behind;
            }
        }
        ranges.close(&mut open, (1 << bits) - 1, default)?;
        Some(ranges)
    }

    /// Ends the open prefixes that reach no farther than `until`.
    fn close(&mut self, open: &mut Vec<(u64, u32)>, until: u64, default: u32) -> Option<()> {
        while let Some((end, _)) = open.pop_if(|(end, _)| *end <= until) {
            self.push(end, open.last().map_or(default, |(_, value)| *value))?;
        }
        Some(())
    }

    /// From `start` on, behind all others, the ref is `entry`. None if that is a run too many.
    pub fn push(&mut self, start: u64, entry: u32) -> Option<()> {
        self.runs.pop_if(|last| last.start == start);
        if entry & REF_NODE == 0 && self.runs.last().is_some_and(|last| last.entry == entry) {
            return Some(());
        }
        if self.runs.len() == self.most {
            return None;
        }
        self.runs.push(Run { start, entry });
        Some(())
    }

    /// The ascending runs `old`, which reach to `end`, with `entry` in `slots`; None if they are more than `most`.
    pub fn painted(
        old: impl Iterator<Item = Run> + Clone,
        end: u64,
        slots: Range<u64>,
        entry: u32,
        most: usize,
    ) -> Option<Self> {
        let mut ranges = Self::new(most);
        for run in old.clone().take_while(|run| run.start < slots.start) {
            ranges.push(run.start, run.entry)?;
        }
        ranges.push(slots.start, entry)?;
        if slots.end < end {
            let across = old.clone().take_while(|run| run.start <= slots.end).last()?;
            ranges.push(slots.end, across.entry)?;
            for run in old.skip_while(|run| run.start <= slots.end) {
                ranges.push(run.start, run.entry)?;
            }
        }
        Some(ranges)
    }

    /// The runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }
}

/// Where each run but the first starts, in descending order, 0 behind that.
pub(super) fn descending<const N: usize>(runs: &[Run]) -> [u32; N] {
    let mut starts = [0; N];
    starts.iter_mut().zip(runs[1..].iter().rev()).for_each(|(to, run)| *to = run.start as u32);
    starts
}
