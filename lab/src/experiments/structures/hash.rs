//! A static perfect hash from the first 40 bits of an address to a ref: hash and displace, one load of a displacement, one of
//! the slot. It answers unknown addresses with 0: a hint, not a table.

use trieline_lpm::Address;

use super::space::{Refused, Space, Touch, load16, load32, load64};

/// See the module.
pub struct Hash40 {
    displacements: u32,
    slots: u32,
    /// 64 − log2 of the number of displacements.
    shift: u32,
    /// Number of slots − 1.
    mask: u32,
}

/// Key + 1, ref, padding.
const SLOT_BYTES: u32 = 16;

impl Hash40 {
    /// Of the address.
    pub const BITS: u16 = 40;

    /// The first 40 bits.
    #[inline(always)]
    pub fn key<A: Address>(address: A) -> u64 {
        address.word_at(0) >> 24
    }

    #[inline(always)]
    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> u32 {
        (hash >> self.shift) as u32
    }

    #[inline(always)]
    fn slot(&self, hash: u64, displacement: u16) -> u32 {
        ((hash >> 20) as u32).wrapping_add(displacement.into()) & self.mask
    }

    /// Of distinct keys.
    pub fn build(space: &mut Space, nodes: &[(u64, u32)]) -> Result<Self, Refused> {
        let count = (nodes.len() * 8 / 5).next_power_of_two().max(16);
        let buckets = (nodes.len() / 5).next_power_of_two().max(2);
        let mut hash =
            Hash40 { displacements: 0, slots: 0, shift: 64 - buckets.ilog2(), mask: count as u32 - 1 };
        hash.displacements = space.block(2 * buckets, 64)?;
        hash.slots = space.block(count * SLOT_BYTES as usize, 64)?;
        let mut by_bucket: Vec<Vec<(u64, u32)>> = vec![Vec::new(); buckets];
        for &(key, node) in nodes {
            by_bucket[hash.bucket(Self::hash(key)) as usize].push((key, node));
        }
        let mut order: Vec<usize> = (0..buckets).collect();
        order.sort_by_key(|bucket| std::cmp::Reverse(by_bucket[*bucket].len()));
        let mut taken = vec![false; count];
        for bucket in order {
            let keys = &by_bucket[bucket];
            let places = |displacement: u16| -> Vec<u32> {
                keys.iter().map(|(key, _)| hash.slot(Self::hash(*key), displacement)).collect()
            };
            let free = |places: &Vec<u32>| {
                let mut sorted = places.clone();
                sorted.sort_unstable();
                sorted.windows(2).all(|pair| pair[0] != pair[1])
                    && places.iter().all(|at| !taken[*at as usize])
            };
            // A bucket that fits nowhere stays out: its keys take the way through the trie.
            let Some((displacement, places)) = (0..=u16::MAX)
                .map(|displacement| (displacement, places(displacement)))
                .find(|(_, places)| free(places))
            else {
                continue;
            };
            space.put16(hash.displacements + 2 * bucket as u32, displacement);
            for (at, (key, node)) in places.into_iter().zip(keys) {
                taken[at as usize] = true;
                space.put64(hash.slots + at * SLOT_BYTES, key + 1);
                space.put32(hash.slots + at * SLOT_BYTES + 8, *node);
            }
        }
        Ok(hash)
    }

    /// The ref of a key; 0 when it is not known.
    #[inline(always)]
    pub fn lookup<T: Touch>(&self, memory: &[u8], key: u64, touch: &mut T) -> u32 {
        let hash = Self::hash(key);
        let displacement = load16(memory, self.displacements.wrapping_add(2 * self.bucket(hash)), touch);
        let at = self.slots.wrapping_add(self.slot(hash, displacement).wrapping_mul(SLOT_BYTES));
        if load64(memory, at, touch) != key + 1 {
            return 0;
        }
        load32(memory, at + 8, touch)
    }
}
