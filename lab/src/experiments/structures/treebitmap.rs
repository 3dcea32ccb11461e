//! Tree bitmap (Eatherton, Varghese, Dittia, CCR 2004): prefixes stay where they are (no leaf pushing), so an update touches one
//! node; a lookup remembers the deepest match and reads its value at the end. A direct root, then 6 bits a node.

use trieline_lpm::Address;

use super::{
    Candidate,
    space::{Refused, Space, Touch, UNIT, load32, load64},
    spread::{Entry, root_bits},
};

const STRIDE: u16 = 6;
/// Prefixes inside, children, offset of the values, offset of the children, both in [`UNIT`]s.
const NODE_BYTES: u32 = 24;
/// Root slot: value of the longest prefix that ends above, node in [`UNIT`]s or 0.
const SLOT_BYTES: u32 = 8;

/// See the module.
pub struct TreeBitmap {
    root: u32,
    bits: u16,
}

/// For each slot, the bits of the prefixes of 0 ... 5 bits that contain it: prefix `p` of `len` bits is bit 2^len − 1 + p.
const COVERING: [u64; 64] = {
    let mut masks = [0; 64];
    let mut slot = 0;
    while slot < 64 {
        let mut len = 0;
        while len < STRIDE as usize {
            masks[slot] |= 1u64 << ((1 << len) - 1 + (slot >> (STRIDE as usize - len)));
            len += 1;
        }
        slot += 1;
    }
    masks
};

/// Fills the node at `at`; `entries` have at least `depth` bits.
fn fill<A: Address>(space: &mut Space, at: u32, mut entries: &[Entry<A>], depth: u16) -> Result<(), Refused> {
    let (mut inside, mut values) = (0u64, Vec::new());
    let mut children: Vec<(usize, &[Entry<A>])> = Vec::new();
    while let Some(((prefix, value), rest)) = entries.split_first() {
        let slot = prefix.addr().bits_at(depth, STRIDE);
        if prefix.len() < depth + STRIDE {
            let len = prefix.len() - depth;
            let bit = (1 << len) - 1 + (slot >> (STRIDE - len));
            inside |= 1 << bit;
            values.push((bit, *value));
            entries = rest;
        } else {
            let same = |(other, _): &&Entry<A>| other.addr().bits_at(depth, STRIDE) == slot;
            let (below, behind) = entries.split_at(entries.iter().take_while(same).count());
            children.push((slot, below));
            entries = behind;
        }
    }
    values.sort_unstable();
    let values_at = if values.is_empty() { 0 } else { space.block(4 * values.len(), UNIT as usize)? };
    for (at, (_, value)) in (values_at..).step_by(4).zip(&values) {
        space.put32(at, *value);
    }
    let children_at = space.block(children.len() * NODE_BYTES as usize, UNIT as usize)?;
    space.put64(at, inside);
    space.put64(at + 8, children.iter().fold(0, |bits, (slot, _)| bits | 1 << slot));
    space.put32(at + 16, values_at / UNIT);
    space.put32(at + 20, children_at / UNIT);
    for ((_, below), child) in children.iter().zip((children_at..).step_by(NODE_BYTES as usize)) {
        fill(space, child, below, depth + STRIDE)?;
    }
    Ok(())
}

impl<A: Address> Candidate<A> for TreeBitmap {
    const NAME: &'static str = "treebitmap";

    fn build(space: &mut Space, entries: &[Entry<A>]) -> Result<Self, Refused> {
        let bits = root_bits::<A>(entries.len());
        let root = space.block((SLOT_BYTES as usize) << bits, 64)?;
        let mut left = entries;
        while let Some(((prefix, value), rest)) = left.split_first() {
            let slot = prefix.addr().bits_at(0, bits);
            if prefix.len() < bits {
                for slot in slot..slot + (1 << (bits - prefix.len())) {
                    space.put32(root + SLOT_BYTES * slot as u32, *value);
                }
                left = rest;
            } else {
                let same = |(other, _): &&Entry<A>| other.addr().bits_at(0, bits) == slot;
                let (below, behind) = left.split_at(left.iter().take_while(same).count());
                let node = space.block(NODE_BYTES as usize, UNIT as usize)?;
                fill(space, node, below, bits)?;
                space.put32(root + SLOT_BYTES * slot as u32 + 4, node / UNIT);
                left = behind;
            }
        }
        Ok(TreeBitmap { root, bits })
    }

    #[inline(always)]
    fn lookup<T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32 {
        let slot = self.root + SLOT_BYTES * address.bits_at(0, self.bits) as u32;
        let mut node = load32(memory, slot + 4, touch).wrapping_mul(UNIT);
        // Where the best value is: in the root slot, else behind a node's bitmap.
        let mut best = slot;
        let mut depth = self.bits;
        while node != 0 {
            touch.step();
            let slot = address.bits_at(depth, STRIDE);
            let inside = load64(memory, node, touch);
            let matching = inside & COVERING[slot % 64];
            if matching != 0 {
                let before = (inside & ((1 << matching.ilog2()) - 1)).count_ones();
                best = load32(memory, node + 16, touch).wrapping_mul(UNIT).wrapping_add(4 * before);
            }
            let children = load64(memory, node + 8, touch);
            if children >> slot & 1 == 0 || depth + STRIDE > A::WIDTH {
                break;
            }
            let child = (children << (63 - slot)).count_ones() - 1;
            node = load32(memory, node + 20, touch).wrapping_mul(UNIT).wrapping_add(child * NODE_BYTES);
            depth += STRIDE;
        }
        load32(memory, best, touch)
    }
}
