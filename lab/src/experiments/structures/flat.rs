//! A direct table of 20 bits, then plain arrays of 16 refs, one cache line each: no bitmap, no population count.

use trieline_lpm::Address;

use super::{
    Candidate,
    space::{Refused, Space, Touch, UNIT, load32},
    spread::{Entry, NODE, descend, spread},
};

const ROOT: u16 = 20;
const STRIDE: u16 = 4;

/// See the module.
pub struct Flat {
    root: u32,
}

fn array<A: Address>(
    space: &mut Space,
    entries: &[Entry<A>],
    (depth, stride): (u16, u16),
    cover: u32,
) -> Result<u32, Refused> {
    let at = space.block(4 << stride, 64)?;
    let slots = descend(spread(entries, depth, stride, cover), |inside, cover| {
        Ok(NODE | (array(space, inside, (depth + stride, STRIDE), cover)? / UNIT))
    })?;
    for (at, slot) in (at..).step_by(4).zip(slots) {
        space.put32(at, slot);
    }
    Ok(at)
}

impl<A: Address> Candidate<A> for Flat {
    const NAME: &'static str = "flat-20-4-4-4";

    fn build(space: &mut Space, entries: &[Entry<A>]) -> Result<Self, Refused> {
        Ok(Flat { root: array(space, entries, (0, ROOT), 0)? })
    }

    #[inline(always)]
    fn lookup<T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32 {
        let mut entry = load32(memory, self.root + 4 * address.bits_at(0, ROOT) as u32, touch);
        let mut depth = ROOT;
        while entry & NODE != 0 && depth < A::WIDTH {
            touch.step();
            let slot = address.bits_at(depth, STRIDE) as u32;
            entry = load32(memory, (entry & !NODE).wrapping_mul(UNIT).wrapping_add(4 * slot), touch);
            depth += STRIDE;
        }
        entry
    }
}
