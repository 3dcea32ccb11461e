//! A short sorted list of entries: all of a small table, or what lies under one slot of a node.

use crate::prefetch::prefetch;
use crate::prefix::Entry;
use crate::{Address, Prefix};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// The entries that a change comes upon.
pub(super) struct Found {
    pub old: Option<u32>,
    /// The value of the longest other prefix of 1 bit or more that covers it, if a prefix from this slot on is it.
    pub above: Option<u32>,
    pub is_bare: bool,
}

/// Sorted entries, then free places. A slice, because its two words let a slot have two; free places are found by the order.
#[derive(Clone, Debug)]
pub(super) struct Bucket<A: Address>(Box<[A::Entry]>);

impl<A: Address> Bucket<A> {
    /// Places by which a bucket grows: about 32 bytes, so that little lies idle.
    const STEP: usize = {
        let step = 32 / size_of::<A::Entry>();
        if step < 2 { 2 } else { step }
    };

    pub fn new(entries: &[A::Entry]) -> Self {
        Self(entries.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty() // the last entry's removal takes the free places with it
    }

    /// Entries and free places.
    pub fn places(&self) -> usize {
        self.0.len()
    }

    /// Whether another entry needs more memory.
    pub fn is_full(&self) -> bool {
        self.0.last().is_none_or(|last| !last.is_free())
    }

    /// The entries.
    pub fn entries(&self) -> &[A::Entry] {
        let len = self.0.partition_point(|entry| !entry.is_free());
        &self.0[..len]
    }

    /// Asks for all of it.
    pub fn ahead(&self) {
        let first = self.0.as_ptr();
        (0..size_of_val(&*self.0)).step_by(64).for_each(|at| prefetch(first.wrapping_byte_add(at)));
    }

    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        let key = A::Entry::key(prefix);
        self.find(&key).ok().map(|at| self.0[at].value())
    }

    /// Where the entry is, or where it belongs.
    #[inline]
    fn find(&self, key: &<A::Entry as Entry<A>>::Key) -> Result<usize, usize> {
        let at = count(&self.0, |entry: &A::Entry| entry.compare(key) == Ordering::Less);
        match self.0.get(at) {
            Some(entry) if entry.compare(key) == Ordering::Equal => Ok(at),
            _ => Err(at),
        }
    }

    /// Adds, changes or removes; returns what there was and is around it. O(log n + n/8) for the move.
    pub fn set(&mut self, prefix: &Prefix<A>, value: Option<u32>) -> Found {
        let found = self.find(&A::Entry::key(prefix));
        let (Ok(at) | Err(at)) = found;
        let old = found.ok().map(|at| self.0[at].value());
        let next = self.0.get(at + usize::from(found.is_ok()));
        let is_bare = next.is_none_or(|next| next.is_free() || !prefix.contains(next.addr()));
        let needs_above = value.is_none() || (old.is_none() && !is_bare);
        let above = if needs_above { self.above(at, prefix.addr()) } else { None };
        match (found, value) {
            (Ok(at), Some(value)) => self.0[at] = A::Entry::new(prefix, value),
            (Ok(at), None) => self.remove(at),
            (Err(at), Some(value)) => {
                if self.is_full() {
                    self.resize(self.0.len() + Self::STEP);
                }
                let behind = self.0.len() - 1;
                self.0.copy_within(at..behind, at + 1);
                self.0[at] = A::Entry::new(prefix, value);
            }
            (Err(_), None) => {}
        }
        Found { old, above, is_bare }
    }

    /// The value of the longest of the entries before `at`, of one bit or more, that covers `addr`, which none of them lies behind.
    fn above(&self, at: usize, addr: A) -> Option<u32> {
        const NEAR: usize = 16;
        let mut entries = &self.0[..at];
        loop {
            let (far, near) = entries.split_at(entries.len().saturating_sub(NEAR));
            if let Some(above) = near.iter().rev().find(|entry| entry.covers(addr)) {
                return (above.len() > 0).then(|| above.value());
            }
            // Nothing longer covers it than the bits that it shares with one before it.
            let same = far.last()?.addr().common_bits(addr);
            let limit = A::Entry::key(&Prefix::truncated(addr, same));
            entries = &far[..count(far, |entry: &A::Entry| entry.compare(&limit) != Ordering::Greater)];
        }
    }

    fn remove(&mut self, at: usize) {
        let places = self.0.len();
        self.0.copy_within(at + 1.., at);
        self.0[places - 1] = A::Entry::free();
        if at == 0 && self.0[0].is_free() {
            self.0 = Box::default();
        } else if places > 2 * Self::STEP && self.0[places - 2 * Self::STEP].is_free() {
            self.resize(places - Self::STEP); // one step stays free, for the next to come
        }
    }

    /// Gives it exactly so many places.
    fn resize(&mut self, places: usize) {
        let mut entries = core::mem::take(&mut self.0).into_vec();
        entries.reserve_exact(places.saturating_sub(entries.len()));
        entries.resize(places, A::Entry::free());
        self.0 = entries.into_boxed_slice();
    }

    /// The entries, then free places.
    pub fn all(&self) -> &[A::Entry] {
        &self.0
    }

    /// The entries from `prefix` on (behind it, if `open`), then free places.
    pub fn from(&self, prefix: &Prefix<A>, open: bool) -> &[A::Entry] {
        let key = A::Entry::key(prefix);
        let before = if open { Ordering::Greater } else { Ordering::Equal };
        &self.0[count(&self.0, |entry: &A::Entry| entry.compare(&key) < before)..]
    }

    /// The entries up to `prefix` (before it, if `open`).
    pub fn until(&self, prefix: &Prefix<A>, open: bool) -> &[A::Entry] {
        let key = A::Entry::key(prefix);
        let behind = if open { Ordering::Equal } else { Ordering::Greater };
        &self.0[..count(&self.0, |entry: &A::Entry| entry.compare(&key) < behind)]
    }

    /// Calls `each` with the prefixes of at most `len` bits that contain `addr`, longest first, until it returns false.
    pub fn covering(&self, addr: A, len: u16, mut each: impl FnMut(&A::Entry) -> bool) {
        let mut limit = Prefix::truncated(addr, len);
        let mut entries = &self.0[..];
        loop {
            // The last prefix at or before `limit` either covers it, or nothing longer than the bits that the two share does.
            let key = A::Entry::key(&limit);
            let count = count(entries, |entry: &A::Entry| entry.compare(&key) != Ordering::Greater);
            let Some((last, before)) = entries[..count].split_last() else { return };
            let same = last.addr().common_bits(limit.addr());
            limit = if same < last.len() {
                Prefix::truncated(addr, same)
            } else if each(last) && last.len() > 0 {
                Prefix::truncated(addr, last.len() - 1)
            } else {
                return;
            };
            entries = before;
        }
    }
}

/// Number of entries, in order, that are `before` some place: [`slice::partition_point`] for a list that is not in the cache. It looks
/// at every eighth entry at once instead of at one after another, so that the memory is waited for once.
#[inline]
fn count<E>(entries: &[E], before: impl Fn(&E) -> bool) -> usize {
    const LINE: usize = 8;
    let (mut start, mut rest) = (0, entries);
    while rest.len() > 16 * LINE {
        let (low, high) = rest.split_at(rest.len() / 2);
        (start, rest) = if before(&high[0]) { (start + low.len(), high) } else { (start, low) };
    }
    let lines = rest.chunks(LINE).map(|line| usize::from(before(&line[0]))).sum::<usize>();
    let first = lines.saturating_sub(1) * LINE;
    let line = rest[first..].iter().take(LINE);
    start + first + line.map(|entry| usize::from(before(entry))).sum::<usize>()
}

/// Sorts entries by prefix and keeps the last of equal ones. O(n log n), O(n) if sorted; large ones are parted first by their
/// leading bits, which keeps the sorted parts in the cache.
pub(super) fn sort<A: Address>(entries: &mut Vec<A::Entry>) {
    if !entries.is_sorted_by(|one, two| one.order(two) != Ordering::Greater) {
        match entries.first() {
            Some(first) if entries.len() > 1024 => {
                let first = first.addr();
                let same = entries.iter().map(|entry| entry.addr().common_bits(first)).min().unwrap_or(0);
                part::<A>(entries, same);
            }
            _ => entries.sort_by(Entry::order),
        }
    }
    entries.dedup_by(|later, kept| {
        let equal = kept.order(later) == Ordering::Equal;
        if equal {
            *kept = *later;
        }
        equal
    });
}

/// Sorts entries that share their first `depth` bits by the next 16, then each part by itself.
fn part<A: Address>(entries: &mut Vec<A::Entry>, depth: u16) {
    let bits = (A::WIDTH - depth).min(16);
    let mut ends = alloc::vec![0usize; (1 << bits) + 1];
    for entry in &*entries {
        ends[entry.addr().bits_at(depth, bits) + 1] += 1;
    }
    for at in 1..ends.len() {
        ends[at] += ends[at - 1];
    }
    let mut parted = alloc::vec![A::Entry::free(); entries.len()];
    for entry in &*entries {
        let place = &mut ends[entry.addr().bits_at(depth, bits)];
        parted[*place] = *entry;
        *place += 1; // the starts become the ends
    }
    let mut start = 0;
    for &end in &ends[..1 << bits] {
        parted[start..end].sort_by(Entry::order);
        start = end;
    }
    *entries = parted;
}
