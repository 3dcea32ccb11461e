//! DIR-24-8 (Gupta, Lin, McKeown, INFOCOM 1998; DPDK's rte_fib): a direct table of 24 bits, then arrays of 256. Two loads at the
//! most, whatever the table; entries of 16 bits where values and groups fit, else of 32.

use trieline_lpm::Address;

use super::{
    Candidate,
    space::{Refused, Space, Touch, load16, load32},
    spread::{Entry, spread},
};

/// See the module.
pub struct Dir24 {
    root: u32,
    groups: u32,
    narrow: bool,
}

impl Dir24 {
    fn put(&self, space: &mut Space, base: u32, index: usize, value: u32) {
        if self.narrow {
            space.put16(base + 2 * index as u32, value as u16);
        } else {
            space.put32(base + 4 * index as u32, value);
        }
    }

    #[inline(always)]
    fn load<T: Touch>(&self, memory: &[u8], base: u32, index: u32, touch: &mut T) -> u32 {
        if self.narrow {
            load16(memory, base.wrapping_add(2 * index), touch).into()
        } else {
            load32(memory, base.wrapping_add(index.wrapping_mul(4)), touch)
        }
    }

    #[inline(always)]
    fn group_bit(&self) -> u32 {
        if self.narrow { 1 << 15 } else { 1 << 31 }
    }
}

impl<A: Address> Candidate<A> for Dir24 {
    const NAME: &'static str = "dir-24-8";

    fn build(space: &mut Space, entries: &[Entry<A>]) -> Result<Self, Refused> {
        if A::WIDTH != 32 {
            return Err(Refused::Unfit(format!("IPv4 only: two levels cannot hold {} bits", A::WIDTH)));
        }
        let slots = spread(entries, 0, 24, 0);
        let narrow = entries.iter().all(|(_, value)| *value < 1 << 15) && slots.deeper.len() < 1 << 15;
        let width = if narrow { 2 } else { 4 };
        let root = space.block(width << 24, 64)?;
        let groups = space.block(slots.deeper.len() * (width << 8), 64)?;
        let dir = Dir24 { root, groups, narrow };
        for (slot, value) in slots.values.iter().enumerate() {
            dir.put(space, root, slot, *value);
        }
        for (group, (slot, inside)) in slots.deeper.iter().enumerate() {
            dir.put(space, root, *slot, dir.group_bit() | group as u32);
            for (within, value) in spread(inside, 24, 8, slots.values[*slot]).values.iter().enumerate() {
                dir.put(space, groups, 256 * group + within, *value);
            }
        }
        Ok(dir)
    }

    #[inline(always)]
    fn lookup<T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32 {
        let entry = self.load(memory, self.root, address.bits_at(0, 24) as u32, touch);
        if entry & self.group_bit() == 0 {
            return entry;
        }
        touch.step();
        let index = (entry & !self.group_bit()).wrapping_mul(256) + address.bits_at(24, 8) as u32;
        self.load(memory, self.groups, index, touch)
    }
}
