//! Intervals (as DXR, CCR 2012, and PlanB, NSDI 2026): an adaptive direct root, then the boundaries between stretches of equal answers,
//! sorted, in a static B+-tree of 64-byte lines. A tree covers a window of the key (16 bits of IPv4, 32 of wider keys);
//! a stretch with longer prefixes leads to a tree over the next window.

use trieline_lpm::Address;

use super::{
    Candidate,
    space::{Refused, Space, Touch, UNIT, load8, load32, load64},
    spread::{Entry, NODE, descend, root_bits, spread},
};

/// See the module.
pub struct Intervals {
    root: u32,
    bits: u16,
}

/// A ref: [`NODE`], inner levels above the leaf in 3 bits, offset in [`UNIT`]s.
const LEVELS_SHIFT: u32 = 28;

/// Geometry of a window of 16 or 32 bits.
struct Window {
    /// Bits of a boundary.
    bits: u16,
    /// Boundaries in a leaf line, behind the word that counts them. An inner line has as many behind the offset of its children.
    keys: usize,
}

/// A leaf's lane before its keys holds how many 64-bit words of keys follow (itself included); an inner line's first 32 bits the
/// offset of its children, which lie one after the other.
const NARROW: Window = Window { bits: 16, keys: 30 };
const BROAD: Window = Window { bits: 32, keys: 15 };

fn window<A: Address>() -> &'static Window {
    if A::WIDTH <= 32 { &NARROW } else { &BROAD }
}

impl Window {
    fn key_bytes(&self) -> usize {
        usize::from(self.bits / 8)
    }

    /// Bytes of a leaf in an array of leaves: a line of keys, then a value more than keys, whole lines.
    fn leaf_bytes(&self) -> usize {
        64 + (4 * (self.keys + 1)).next_multiple_of(64)
    }

    /// Writes the boundaries `keys` behind the first four bytes at `at`, padded up to `bytes`. A key is stored less 1: "greater than"
    /// then leaves the largest number for padding.
    fn put_keys(&self, space: &mut Space, at: u32, keys: &[u64], bytes: usize) {
        let places = (at + 4..at + bytes as u32).step_by(self.key_bytes());
        for (at, key) in places.zip(keys.iter().map(|key| key - 1).chain(std::iter::repeat(u64::MAX))) {
            space.put(at, &key.to_le_bytes()[..self.key_bytes()]);
        }
    }
}

/// Boundaries and the ref from each on; the first boundary is 0.
fn boundaries<A: Address>(
    space: &mut Space,
    mut entries: &[Entry<A>],
    depth: u16,
    cover: u32,
) -> Result<Vec<(u64, u32)>, Refused> {
    let bits = window::<A>().bits;
    let end = depth + bits;
    // Bits of the key below `end`, as a number; a key that ends inside the window is filled up with zeroes.
    let place = |address: A| address.word_at(depth) >> (64 - bits);
    let mut runs = vec![(0u64, cover)];
    let mut set = |at: u64, entry: u32| match runs.last_mut() {
        Some(last) if last.0 == at => last.1 = entry,
        _ => runs.push((at, entry)),
    };
    // Prefixes that are open: where each ends, and what holds behind it.
    let mut open: Vec<(u64, u32)> = Vec::new();
    let mut current = cover;
    while let Some(((prefix, value), rest)) = entries.split_first() {
        let at = place(prefix.addr());
        while let Some((until, outer)) = open.pop_if(|(until, _)| *until <= at) {
            set(until, outer);
            current = outer;
        }
        if prefix.len() <= end {
            open.push((at + (1 << (end - prefix.len())), current));
            set(at, *value);
            current = *value;
            entries = rest;
        } else {
            let (inside, behind) =
                entries.split_at(entries.iter().take_while(|(other, _)| place(other.addr()) == at).count());
            let child = tree(space, inside, end, current)?;
            set(at, child);
            set(at + 1, current);
            entries = behind;
        }
    }
    while let Some((until, outer)) = open.pop() {
        set(until, outer);
    }
    runs.retain(|(at, _)| *at < 1 << bits);
    runs.dedup_by(|next, last| next.1 == last.1 && next.1 & NODE == 0);
    Ok(runs)
}

/// A tree of the entries below `depth`; its ref, or the value when there is but one.
fn tree<A: Address>(space: &mut Space, entries: &[Entry<A>], depth: u16, cover: u32) -> Result<u32, Refused> {
    let window = window::<A>();
    let runs = boundaries(space, entries, depth, cover)?;
    if let [(_, value)] = runs[..]
        && value & NODE == 0
    {
        return Ok(value);
    }
    let leaf_runs = window.keys + 1;
    if runs.len() <= leaf_runs {
        // A lone leaf is as long as it must be.
        let keys = (4 + (runs.len() - 1) * window.key_bytes()).next_multiple_of(8);
        let bytes = keys + 4 * runs.len();
        let at = space.node(bytes)?;
        leaf(space, window, at, &runs, keys);
        return Ok(NODE | (at / UNIT));
    }
    // Leaves, then lines above until one is enough; each level in one block.
    let size = window.leaf_bytes();
    let leaves = runs.len().div_ceil(leaf_runs);
    let mut below = space.block(leaves * size, 64)?;
    for (runs, at) in runs.chunks(leaf_runs).zip((below..).step_by(size)) {
        leaf(space, window, at, runs, 64);
    }
    let mut firsts: Vec<u64> = runs.chunks(leaf_runs).map(|runs| runs[0].0).collect();
    let (mut levels, mut stride) = (0, size as u32);
    while firsts.len() > 1 {
        let lines = firsts.len().div_ceil(window.keys + 1);
        let at = space.block(64 * lines, 64)?;
        for (line, group) in (0u32..).zip(firsts.chunks(window.keys + 1)) {
            space.put32(at + 64 * line, below + stride * (window.keys as u32 + 1) * line);
            window.put_keys(space, at + 64 * line, &group[1..], 64);
        }
        firsts = firsts.chunks(window.keys + 1).map(|group| group[0]).collect();
        (below, stride, levels) = (at, 64, levels + 1);
    }
    Ok(NODE | levels << LEVELS_SHIFT | (below / UNIT))
}

fn leaf(space: &mut Space, window: &Window, at: u32, runs: &[(u64, u32)], keys: usize) {
    let boundaries: Vec<u64> = runs[1..].iter().map(|(at, _)| *at).collect();
    window.put_keys(space, at, &boundaries, keys);
    space.put32(at, keys as u32 / 8);
    for (at, (_, entry)) in (at + keys as u32..).step_by(4).zip(runs) {
        space.put32(at, *entry);
    }
}

/// How many of the boundaries in `words` 64-bit words at `at` are not behind `key`; the first 32 bits are none.
#[inline(always)]
fn count<A: Address, T: Touch>(memory: &[u8], at: u32, words: u32, key: u32, touch: &mut T) -> u32 {
    let mut total = 0;
    for word in 0..words {
        let mut lanes = load64(memory, at.wrapping_add(8 * word), touch);
        if word == 0 {
            lanes |= 0xffff_ffff;
        }
        total += if window::<A>().bits == 16 { behind16(lanes, key) } else { behind32(lanes, key) };
    }
    total
}

/// How many of four numbers of 16 bits are less than `key`, without SIMD: in each lane of 32 bits, key + 0xffff − number carries
/// into bit 16 where the number is less.
#[inline(always)]
fn behind16(lanes: u64, key: u32) -> u32 {
    const EVEN: u64 = 0x0000_ffff_0000_ffff;
    const CARRY: u64 = 0x0001_0000_0001_0000;
    let keys = u64::from(key) | u64::from(key) << 32;
    let even = (keys + (EVEN - (lanes & EVEN))) & CARRY;
    let odd = (keys + (EVEN - (lanes >> 16 & EVEN))) & CARRY;
    let sum = (even >> 16) + (odd >> 16);
    (sum + (sum >> 32)) as u32 & 7
}

#[inline(always)]
fn behind32(lanes: u64, key: u32) -> u32 {
    u32::from((lanes as u32) < key) + u32::from(((lanes >> 32) as u32) < key)
}

impl<A: Address> Candidate<A> for Intervals {
    const NAME: &'static str = "intervals";

    fn build(space: &mut Space, entries: &[Entry<A>]) -> Result<Self, Refused> {
        let bits = root_bits::<A>(entries.len());
        let root = space.block(4 << bits, 64)?;
        let slots = descend(spread(entries, 0, bits, 0), |inside, cover| tree(space, inside, bits, cover))?;
        for (at, slot) in (root..).step_by(4).zip(slots) {
            space.put32(at, slot);
        }
        Ok(Intervals { root, bits })
    }

    #[inline(always)]
    fn lookup<T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32 {
        let window = window::<A>();
        let mut entry = load32(memory, self.root + 4 * address.bits_at(0, self.bits) as u32, touch);
        let mut depth = self.bits;
        while entry & NODE != 0 && depth < A::WIDTH {
            let key = (address.word_at(depth) >> (64 - window.bits)) as u32;
            let levels = (entry & !NODE) >> LEVELS_SHIFT;
            let mut at = (entry & ((1 << LEVELS_SHIFT) - 1)).wrapping_mul(UNIT);
            for level in (0..levels).rev() {
                touch.step();
                let children = load32(memory, at, touch);
                let stride = if level == 0 { window.leaf_bytes() as u32 } else { 64 };
                at = children.wrapping_add(count::<A, T>(memory, at, 8, key, touch).wrapping_mul(stride));
            }
            touch.step();
            let words = u32::from(load8(memory, at, touch)) & 15;
            let run = count::<A, T>(memory, at, words, key, touch);
            entry = load32(memory, at.wrapping_add(8 * words + 4 * run), touch);
            depth += window.bits;
        }
        entry
    }
}
