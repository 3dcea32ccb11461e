//! Bitmap nodes of runs with inline values: an adaptive root, then nodes of 6 bits (`bitmap6`) or of 8 bits with cumulative ranks
//! (`bitmap8`). One load of the bitmap, one of the ref, usually in the same line. With `bitmap8+hash40`, a hash of the first 40
//! bits leads past the upper levels of IPv6.

use trieline_lpm::Address;

use super::{
    Candidate,
    hash::Hash40,
    space::{Refused, Space, Touch, UNIT, load8, load32, load64},
    spread::{Entry, NODE, descend, root_bits, spread},
};

/// An adaptive root and nodes of `STRIDE` bits: 6 or 8.
pub struct Bitmap<const STRIDE: u16> {
    root: u32,
    bits: u16,
}

/// Bytes before a node's refs: a bitmap of 64 bits, or four ranks and four bitmaps.
const fn head(stride: u16) -> u32 {
    if stride == 6 { 8 } else { 40 }
}

/// The places of the nodes at one depth, for direct links to them.
type Found = Vec<(u64, u32)>;

impl<const STRIDE: u16> Bitmap<STRIDE> {
    fn build<A: Address>(
        space: &mut Space,
        entries: &[Entry<A>],
        found: &mut Option<Found>,
    ) -> Result<Self, Refused> {
        let bits = root_bits::<A>(entries.len());
        let root = space.block(4 << bits, 64)?;
        let slots = descend(spread(entries, 0, bits, 0), |inside, cover| {
            Self::node(space, inside, bits, cover, found)
        })?;
        for (at, slot) in (root..).step_by(4).zip(slots) {
            space.put32(at, slot);
        }
        Ok(Bitmap { root, bits })
    }

    fn node<A: Address>(
        space: &mut Space,
        entries: &[Entry<A>],
        depth: u16,
        cover: u32,
        found: &mut Option<Found>,
    ) -> Result<u32, Refused> {
        let slots = descend(spread(entries, depth, STRIDE, cover), |inside, cover| {
            Self::node(space, inside, depth + STRIDE, cover, found)
        })?;
        let mut starts = [0u64; 4];
        let mut refs: Vec<u32> = Vec::new();
        for (slot, entry) in slots.iter().enumerate() {
            if refs.last() != Some(entry) || entry & NODE != 0 {
                starts[slot / 64] |= 1 << (slot % 64);
                refs.push(*entry);
            }
        }
        if let ([value], 0) = (&refs[..], refs[0] & NODE) {
            return Ok(*value);
        }
        let at = space.node(head(STRIDE) as usize + 4 * refs.len())?;
        if STRIDE == 6 {
            space.put64(at, starts[0]);
        } else {
            let mut before = 0;
            for (word, bits) in (0..).zip(starts) {
                space.put(at + word, &[before]);
                space.put64(at + 8 + 8 * word, bits);
                before = before.wrapping_add(bits.count_ones() as u8);
            }
        }
        for (at, entry) in (at + head(STRIDE)..).step_by(4).zip(&refs) {
            space.put32(at, *entry);
        }
        let node = NODE | (at / UNIT);
        if let (Some(found), Some((prefix, _))) = (found, entries.first())
            && depth == Hash40::BITS
        {
            found.push((Hash40::key(prefix.addr()), node));
        }
        Ok(node)
    }

    #[inline(always)]
    fn walk<A: Address, T: Touch>(
        memory: &[u8],
        mut entry: u32,
        mut depth: u16,
        address: A,
        touch: &mut T,
    ) -> u32 {
        while entry & NODE != 0 && depth < A::WIDTH {
            touch.step();
            let node = (entry & !NODE).wrapping_mul(UNIT);
            let slot = address.bits_at(depth, STRIDE) as u32;
            let run = if STRIDE == 6 {
                (load64(memory, node, touch) << (63 - slot)).count_ones()
            } else {
                let word = slot / 64;
                let starts = load64(memory, node.wrapping_add(8 + 8 * word), touch);
                u32::from(load8(memory, node.wrapping_add(word), touch))
                    + (starts << (63 - slot % 64)).count_ones()
            };
            entry = load32(memory, node.wrapping_add(head(STRIDE) - 4 + 4 * run), touch);
            depth += STRIDE;
        }
        entry
    }

    #[inline(always)]
    fn find<A: Address, T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32 {
        let entry = load32(memory, self.root + 4 * address.bits_at(0, self.bits) as u32, touch);
        Self::walk(memory, entry, self.bits, address, touch)
    }
}

impl<A: Address, const STRIDE: u16> Candidate<A> for Bitmap<STRIDE> {
    const NAME: &'static str = if STRIDE == 6 { "bitmap6" } else { "bitmap8" };

    fn build(space: &mut Space, entries: &[Entry<A>]) -> Result<Self, Refused> {
        Self::build(space, entries, &mut None)
    }

    #[inline(always)]
    fn lookup<T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32 {
        self.find(memory, address, touch)
    }
}

/// `bitmap8` with a hash of 40 bits before it.
pub struct Hashed {
    trie: Bitmap<8>,
    hash: Hash40,
}

impl<A: Address> Candidate<A> for Hashed {
    const NAME: &'static str = "bitmap8+hash40";

    fn build(space: &mut Space, entries: &[Entry<A>]) -> Result<Self, Refused> {
        if A::FAMILY != 6 {
            return Err(Refused::Unfit("made for IPv6, where most prefixes end behind 40 bits".into()));
        }
        let mut found = Some(Found::new());
        let trie = Bitmap::build(space, entries, &mut found)?;
        let hash = Hash40::build(space, &found.unwrap_or_default())?;
        Ok(Hashed { trie, hash })
    }

    #[inline(always)]
    fn lookup<T: Touch>(&self, memory: &[u8], address: A, touch: &mut T) -> u32 {
        match self.hash.lookup(memory, Hash40::key(address), touch) {
            0 => self.trie.find(memory, address, touch),
            node => Bitmap::<8>::walk(memory, node, Hash40::BITS, address, touch),
        }
    }
}
