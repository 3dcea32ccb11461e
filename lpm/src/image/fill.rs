//! Gives another value to the addresses that a prefix covers and no other prefix inside it does, wherever the image holds them. The nodes
//! below stay, but for those whose runs change.

use super::build::{Builder, Nodes};
use super::error::Error;
use super::layout::{DIRECT_BITS, Kind, NODE8, NODE8_IPV6, REF_NODE, REF_OFFSET, SKIP, Skip, UNIT, kind_of};
use super::palette::Palette;
use super::runs::PublishedWord;
use super::runs::{Spans, starts};
use super::space::Block;
use super::step::run_of;
use super::walk;
use super::words::{ahead, load};
use crate::prefix_store::{Change, PrefixStore};
use crate::{Address, Grace, Prefix};
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

/// One prefix whose addresses change their value.
pub(crate) struct Fill<'a, A: Address> {
    prefix_store: &'a PrefixStore<A>,
    from: u32,
    to: u32,
    /// The codes of the two, if they have one.
    codes: [Option<u8>; 2],
    /// The outermost prefixes inside whose value is `from` as well: what they cover keeps it. Those behind the place reached.
    kept: &'a [Prefix<A>],
}

/// So many slots ahead, a node is asked for.
const AHEAD: usize = 16;

/// How much of a prefix keeps its value.
#[derive(PartialEq, Eq)]
enum Kept {
    Nothing,
    Part,
    Whole,
}

const EACH_BYTE: u32 = 0x0101_0101;

/// 255 in each byte of `word` that is `byte`, else 0.
fn bytes_of(word: u32, byte: u8) -> u32 {
    const LOW: u32 = 0x7f * EACH_BYTE;
    let differs = word ^ (u32::from(byte) * EACH_BYTE);
    (!(((differs & LOW) + LOW) | differs | LOW) >> 7) * 0xff
}

/// The outermost prefixes inside that of `change` which have the value that it takes from others.
fn kept<A: Address, G: Grace>(
    nodes: &Nodes<'_, G>,
    prefix_store: &PrefixStore<A>,
    change: &Change<A>,
) -> Vec<Prefix<A>> {
    let mut kept: Vec<Prefix<A>> = Vec::new();
    if change.before() != 0 {
        prefix_store.each_inside(change.prefix, |prefix, value| {
            let is_outer = || kept.last().is_none_or(|last| !last.covers(&prefix));
            if value == change.before() && prefix != change.prefix && is_outer() && !nodes.is_exact(&prefix) {
                kept.push(prefix);
            }
        });
    }
    kept
}

/// The first address of a node's slot. Key bits behind the last are 0.
pub(super) fn child<A: Address>(addr: A, depth: u16, stride: u16, slot: usize) -> A {
    let bits = stride.min(A::WIDTH - depth);
    addr.with_bits(depth, bits, slot >> (stride - bits))
}

/// `addr`, of `depth` bits, with the bits of the skip at byte offset `at`, and how many it has then.
fn skip_path<A: Address>(words: &[AtomicU32], at: u32, addr: A, depth: u16) -> (A, u16) {
    const PART: u16 = 16;
    let (bits, len) = walk::skip_bits(words, at);
    let end = depth + len as u16;
    let path = (depth..end).step_by(PART.into()).fold(addr, |path, start| {
        let part = bits << (start - depth) >> (128 - PART);
        let len = PART.min(end - start);
        path.with_bits(start, len, part as usize >> (PART - len))
    });
    (path, end)
}

impl<'a, A: Address> Fill<'a, A> {
    fn new(
        prefix_store: &'a PrefixStore<A>,
        change: &Change<A>,
        kept: &'a [Prefix<A>],
        palette: Option<&Palette>,
    ) -> Self {
        let (from, to) = (change.before(), change.after());
        let codes = [from, to].map(|value| palette.and_then(|palette| palette.code(value)));
        Self { prefix_store, from, to, codes, kept }
    }

    /// Changes the codes of the leaf6 or leaf8 `old`, all of `prefix`, where they are. False: its runs do not stay, and nothing has been done.
    fn codes_in_place(
        &mut self,
        words: &[AtomicU32],
        kind: Kind,
        old: u32,
        prefix: Prefix<A>,
        published_words: &mut Vec<PublishedWord>,
    ) -> bool {
        let [Some(from), to] = self.codes else { return true };
        let at = (old & REF_OFFSET) * UNIT;
        let code_words = (at + kind.refs) as usize / 4..;
        let code_words = code_words.take((walk::runs(words, at, kind) as usize).div_ceil(4));
        if !code_words.clone().any(|word| bytes_of(words[word].load(Ordering::Relaxed), from) != 0) {
            return true;
        }
        let Some(to) = to else { return false };
        // Runs may be cut, and others may join.
        if self.kept(prefix) != Kept::Nothing
            || code_words.clone().any(|word| bytes_of(words[word].load(Ordering::Relaxed), to) != 0)
        {
            return false;
        }
        for word in code_words {
            let codes = words[word].load(Ordering::Relaxed);
            // Also behind the last run, where nothing is looked at.
            let entry = codes ^ (bytes_of(codes, from) & (u32::from(from ^ to) * EACH_BYTE));
            if entry != codes {
                published_words.push(PublishedWord { word, entry });
            }
        }
        true
    }

    /// The first of those that keep their value which ends at `addr` or behind it. Asked in the order of addresses.
    fn next_kept(&mut self, addr: A) -> Option<&Prefix<A>> {
        while self.kept.first().is_some_and(|first| first.last() < addr) {
            self.kept = &self.kept[1..];
        }
        self.kept.first()
    }

    /// How much of `prefix` keeps its value. Asked in the order of addresses.
    fn kept(&mut self, prefix: Prefix<A>) -> Kept {
        match self.next_kept(prefix.addr()) {
            Some(first) if first.covers(&prefix) => Kept::Whole,
            Some(first) if prefix.covers(first) => Kept::Part,
            _ => Kept::Nothing,
        }
    }
}

impl<G: Grace> Builder<'_, G> {
    /// Brings the words from index `first` on that `change` covers in line with it, each reached by `depth` bits. It changes only those
    /// whose number, counted from there, `is_meant`.
    pub fn fill_words<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        change: &Change<A>,
        first: usize,
        depth: u16,
        is_meant: impl Fn(usize) -> bool,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<(), Error> {
        let slots = 0..1 << (depth - change.prefix.len());
        if change.is_bare {
            // Without a prefix inside, all slots are meant, and none holds a node, but perhaps a direct12 that has become empty.
            slots.clone().for_each(|slot| self.nodes.replace(self.entry(first + slot)));
            published_words
                .extend(slots.map(|slot| PublishedWord { word: first + slot, entry: change.after() }));
            return Ok(());
        }
        let kept = kept(&self.nodes, prefix_store, change);
        let mut fill = Fill::new(prefix_store, change, &kept, self.nodes.palette);
        let slots = slots.filter(|slot| is_meant(*slot));
        self.fill_each(&mut fill, change.prefix, first, slots, depth, published_words)
    }

    /// Brings the words of the ascending `slots` in line, counted from index `first`, the word of the first addresses of `prefix`. Each is
    /// reached by `depth` bits.
    fn fill_each<A: Address>(
        &mut self,
        fill: &mut Fill<'_, A>,
        prefix: Prefix<A>,
        first: usize,
        slots: impl Iterator<Item = usize>,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<(), Error> {
        for slot in slots {
            let word = first + slot;
            // If it is a value, the line is of no use.
            let later = load(self.nodes.words, (word + AHEAD) as u32 * 4);
            ahead(self.nodes.words, ((later & REF_OFFSET) * UNIT) as usize / 4);
            let entry = self.entry(word);
            // Most need no look at what keeps its value.
            if entry & REF_NODE == 0 && entry != fill.from {
                continue;
            }
            let addr = child(prefix.addr(), prefix.len(), depth - prefix.len(), slot);
            if let Some(entry) = self.fill(fill, entry, addr, depth, published_words)? {
                published_words.push(PublishedWord { word, entry });
            }
        }
        Ok(())
    }

    /// The new entry for `entry`, reached by the first `depth` bits of `addr`, after `change`, which covers all of it; None if it stays.
    pub fn fill_entry<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        change: &Change<A>,
        entry: u32,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        if change.is_bare {
            self.nodes.replace(entry);
            return Ok((entry != change.after()).then_some(change.after()));
        }
        let kept = kept(&self.nodes, prefix_store, change);
        let mut fill = Fill::new(prefix_store, change, &kept, self.nodes.palette);
        self.fill(&mut fill, entry, change.prefix.addr(), depth, published_words)
    }

    /// The new entry for the bitmap node `entry` at `depth` after `change`, which covers some of its `slots`; None if it stays.
    pub fn fill_node<A: Address>(
        &mut self,
        prefix_store: &PrefixStore<A>,
        change: &Change<A>,
        entry: u32,
        depth: u16,
        slots: Range<usize>,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        let kept = kept(&self.nodes, prefix_store, change);
        let mut fill = Fill::new(prefix_store, change, &kept, self.nodes.palette);
        self.fill_slots(&mut fill, entry, change.prefix.addr().masked(depth), depth, slots, published_words)
    }

    fn fill<A: Address>(
        &mut self,
        fill: &mut Fill<'_, A>,
        entry: u32,
        addr: A,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        if entry & REF_NODE == 0 && entry != fill.from {
            return Ok(None);
        }
        let kept = fill.kept(Prefix::truncated(addr, depth));
        if kept == Kept::Whole {
            return Ok(None);
        }
        if entry & REF_NODE == 0 {
            let has_part = kept == Kept::Part;
            return if has_part {
                self.slot(fill.prefix_store, addr, depth).map(Some)
            } else {
                Ok(Some(fill.to))
            };
        }
        match (self.nodes.kind, kind_of(entry)) {
            (kind, _) if kind.is_direct(entry) => {
                let (first, prefix) = ((entry & REF_OFFSET) * UNIT / 4, Prefix::truncated(addr, depth));
                let slots = 0..1 << DIRECT_BITS;
                self.fill_each(fill, prefix, first as usize, slots, depth + DIRECT_BITS, published_words)?;
                Ok(None)
            }
            (NODE8 | NODE8_IPV6, SKIP) => self.fill_skip(fill, entry, addr, depth, published_words),
            (kind, id) if id == kind.id || id == kind.leaf() => {
                self.fill_slots(fill, entry, addr, depth, 0..1 << kind.stride, published_words)
            }
            _ => {
                if !walk::may_hold(self.nodes.words, self.nodes.kind, entry, fill.from) {
                    return Ok(None);
                }
                self.nodes.replace(entry);
                self.slot(fill.prefix_store, addr, depth).map(Some)
            }
        }
    }

    fn fill_slots<A: Address>(
        &mut self,
        fill: &mut Fill<'_, A>,
        old: u32,
        addr: A,
        depth: u16,
        slots: Range<usize>,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        let kind = self.nodes.kind;
        let is_whole_leaf = kind_of(old) == kind.leaf() && slots.len() == 1 << kind.stride;
        if is_whole_leaf
            && fill.codes_in_place(
                self.nodes.words,
                kind,
                old,
                Prefix::truncated(addr, depth),
                published_words,
            )
        {
            return Ok(None);
        }
        let mark = self.pieces.len();
        let entry = self.fill_exceptions(fill, old, addr, depth, &slots, published_words);
        let entry = entry.and_then(|()| self.fill_runs(fill, old, slots, mark, published_words));
        self.pieces.truncate(mark);
        entry
    }

    /// Finds the pieces of a bitmap node that get another ref than all others: children, and what keeps its value.
    fn fill_exceptions<A: Address>(
        &mut self,
        fill: &mut Fill<'_, A>,
        old: u32,
        addr: A,
        depth: u16,
        slots: &Range<usize>,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<(), Error> {
        let kind = self.nodes.kind;
        let is_leaf = kind_of(old) == kind.leaf();
        if is_leaf && fill.kept.is_empty() {
            return Ok(());
        }
        let node = (old & REF_OFFSET) * UNIT;
        let end = depth + kind.stride;
        let starts = starts(self.nodes.words, node, kind);
        let first = run_of(self.nodes.words, node, kind, slots.start as u32);
        for (run, span) in (first..).zip(Spans::within(starts, slots)) {
            let entry = if is_leaf {
                let codes = load(self.nodes.words, (node + kind.refs + run) & !3);
                let code = (codes >> (8 * (run % 4))) as u8;
                self.nodes.palette.map_or(0, |palette| palette.value(code))
            } else {
                load(self.nodes.words, node + kind.refs + 4 * run)
            };
            if entry & REF_NODE == 0 && (entry != fill.from || fill.kept.is_empty()) {
                continue;
            }
            let first_of = |slot| child(addr, depth, kind.stride, slot);
            let last = || Prefix::truncated(first_of(span.end - 1), end).last();
            if entry & REF_NODE == 0
                && fill.next_kept(first_of(span.start)).is_none_or(|kept| kept.addr() > last())
            {
                continue;
            }
            for slot in span {
                let below = child(addr, depth, kind.stride, slot);
                let entry = if entry & REF_NODE != 0 {
                    self.fill(fill, entry, below, end, published_words)?
                } else {
                    match fill.kept(Prefix::truncated(below, end)) {
                        Kept::Nothing => None,
                        Kept::Whole => Some(entry),
                        Kept::Part => Some(self.slot(fill.prefix_store, below, end)?),
                    }
                };
                if let Some(entry) = entry {
                    self.piece(slot..slot + 1, entry);
                }
            }
        }
        Ok(())
    }

    /// Gives all other `slots` of a bitmap node that have the one value the other.
    fn fill_runs<A: Address>(
        &mut self,
        fill: &Fill<'_, A>,
        old: u32,
        slots: Range<usize>,
        mark: usize,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        let Self { runs, nodes, pieces } = self;
        let kind = nodes.kind;
        let [runs, _, with] = &mut **runs;
        runs.read(nodes.words, old, kind);
        let was_coded = runs.is_coded();
        let units = walk::bitmap_units(old, kind, runs.len() as u32);
        let mut codes = nodes.palette.filter(|_| was_coded);
        let has_code = |value: u32| codes.is_none_or(|palette| palette.code(value).is_some());
        if (pieces.len() > mark || !has_code(fill.to))
            && let Some(palette) = codes.take()
        {
            runs.decode(palette);
        }
        let code = |value: u32| codes.map_or(Some(value), |palette| palette.code(value).map(u32::from));
        let Some(from) = code(fill.from) else { return Ok(None) };
        let to = code(fill.to).unwrap_or(0);
        if pieces.len() == mark && !runs.contains(from) {
            return Ok(None);
        }
        with.fill(runs, slots, from, to, &pieces[mark..], 1 << kind.stride);
        if runs.is_coded() == was_coded
            && runs.in_place(with, ((old & REF_OFFSET) * UNIT + kind.refs) / 4, published_words)
        {
            return Ok(None);
        }
        nodes.replaced.push(Block { at: old & REF_OFFSET, units });
        nodes.bitmap(with).map(Some)
    }

    fn fill_skip<A: Address>(
        &mut self,
        fill: &mut Fill<'_, A>,
        old: u32,
        addr: A,
        depth: u16,
        published_words: &mut Vec<PublishedWord>,
    ) -> Result<Option<u32>, Error> {
        let at = (old & REF_OFFSET) * UNIT;
        let next = at + offset_of!(Skip, next) as u32;
        let otherwise = at + offset_of!(Skip, otherwise) as u32;
        let old_next = load(self.nodes.words, next);
        let mut new = [old_next, load(self.nodes.words, otherwise)];
        let (path, end) = skip_path(self.nodes.words, at, addr, depth);
        let (all, behind) = (Prefix::truncated(addr, depth), Prefix::truncated(path, end));
        // Prefixes that keep the value of all other keys were nothing to this node, and are something now.
        let mut inside = fill.kept.iter().take_while(|prefix| all.covers(prefix));
        if new[1] == fill.from && inside.any(|prefix| !behind.covers(prefix)) {
            self.nodes.replace(old);
            return self.slot(fill.prefix_store, addr, depth).map(Some);
        }
        if let Some(entry) = self.fill(fill, old_next, path, end, published_words)? {
            new[0] = entry;
        }
        if new[1] == fill.from {
            new[1] = fill.to;
        }
        if new[0] == new[1] {
            // Nothing is left behind the skip.
            self.nodes.replaced.push(walk::skip_block(self.nodes.words, old));
            return Ok(Some(new[1]));
        }
        for (at, entry) in [next, otherwise].into_iter().zip(new) {
            if load(self.nodes.words, at) != entry {
                published_words.push(PublishedWord { word: at as usize / 4, entry });
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found() {
        let bytes = [0, 1, 0x7f, 0x80, 0x81, 0xff];
        for n in 0..6usize.pow(4) {
            let word = core::array::from_fn(|at| bytes[n / 6usize.pow(at as u32) % 6]);
            for byte in bytes {
                let found = bytes_of(u32::from_le_bytes(word), byte).to_le_bytes();
                assert_eq!(
                    found,
                    word.map(|other| if other == byte { 0xff } else { 0 }),
                    "{byte} in {word:?}"
                );
            }
        }
    }
}
