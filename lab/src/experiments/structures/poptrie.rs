//! Poptrie (Asai and Ohara, SIGCOMM 2015): a direct table of 18 bits, then nodes of 6 bits whose children and leaves are
//! arrays apart, compressed by two bitmaps.

use trieline_lpm::Address;

use super::{
    Candidate,
    space::{Refused, Space, Touch, UNIT, load16, load32, load64},
    spread::{Entry, NODE, descend, spread},
};

const ROOT: u16 = 18;
const STRIDE: u16 = 6;
/// Children, leaf runs, offset of the leaves, offset of the children in [`UNIT`]s.
const NODE_BYTES: u32 = 24;

/// See the module.
pub struct Poptrie {
    root: u32,
    /// Leaves are 16 bits wide, as in the paper, where all values fit; else 32.
    narrow: bool,
}

impl Poptrie {
    fn leaf_bytes(&self) -> u32 {
        if self.narrow { 2 } else { 4 }
    }

    /// Fills the node at `at`.
    fn fill<A: Address>(
        &self,
        space: &mut Space,
        at: u32,
        entries: &[Entry<A>],
        depth: u16,
        cover: u32,
    ) -> Result<(), Refused> {
        let slots = spread(entries, depth, STRIDE, cover);
        let children: u64 = slots.deeper.iter().fold(0, |bits, (slot, _)| bits | 1 << slot);
        let mut runs = 0u64;
        let mut leaves: Vec<u32> = Vec::new();
        for (slot, value) in slots.values.iter().enumerate() {
            // Slots with a child have no leaf: the run before goes on behind them.
            if children >> slot & 1 == 0 && leaves.last() != Some(value) {
                runs |= 1 << slot;
                leaves.push(*value);
            }
        }
        let leaves_at = space.block(leaves.len() * self.leaf_bytes() as usize, self.leaf_bytes() as usize)?;
        for (at, leaf) in (leaves_at..).step_by(self.leaf_bytes() as usize).zip(&leaves) {
            if self.narrow { space.put16(at, *leaf as u16) } else { space.put32(at, *leaf) }
        }
        let children_at = space.block(slots.deeper.len() * NODE_BYTES as usize, UNIT as usize)?;
        space.put64(at, children);
        space.put64(at + 8, runs);
        space.put32(at + 16, leaves_at);
        space.put32(at + 20, children_at);
        for ((slot, inside), child) in slots.deeper.iter().zip((children_at..).step_by(NODE_BYTES as usize)) {
            self.fill(space, child, inside, depth + STRIDE, slots.values[*slot])?;
        }
        Ok(())
    }
}

impl<A: Address> Candidate<A> for Poptrie {
    const NAME: &'static str = "poptrie";

    fn build(space: &mut Space, entries: &[Entry<A>]) -> Result<Self, Refused> {
        let root = space.block(4 << ROOT, 64)?;
        let narrow = entries.iter().all(|(_, value)| *value < 1 << 16);
        let poptrie = Poptrie { root, narrow };
        let slots = descend(spread(entries, 0, ROOT, 0), |inside, cover| {
            let at = space.block(NODE_BYTES as usize, UNIT as usize)?;
            poptrie.fill(space, at, inside, ROOT, cover)?;
            Ok(NODE | (at / UNIT))
        })?;
        for (at, slot) in (root..).step_by(4).zip(slots) {
            space.put32(at, slot);
        }
        Ok(poptrie)
    }

    #[inline(always)]
    fn lookup<T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32 {
        let direct = load32(memory, self.root + 4 * address.bits_at(0, ROOT) as u32, touch);
        if direct & NODE == 0 {
            return direct;
        }
        let mut node = (direct & !NODE) * UNIT;
        let mut depth = ROOT;
        loop {
            touch.step();
            let slot = address.bits_at(depth, STRIDE) as u32;
            let children = load64(memory, node, touch);
            if children >> slot & 1 == 0 {
                let run = (load64(memory, node + 8, touch) << (63 - slot)).count_ones();
                let leaves = load32(memory, node + 16, touch);
                // A slot without child has a run at or before it.
                let leaf = leaves.wrapping_add(run.wrapping_sub(1).wrapping_mul(self.leaf_bytes()));
                return if self.narrow {
                    load16(memory, leaf, touch).into()
                } else {
                    load32(memory, leaf, touch)
                };
            }
            let child = (children << (63 - slot)).count_ones() - 1;
            node = load32(memory, node + 20, touch).wrapping_add(child * NODE_BYTES);
            depth += STRIDE;
            if depth >= A::WIDTH {
                return 0;
            }
        }
    }
}
