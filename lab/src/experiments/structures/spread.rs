//! Shared by all builders: sorted prefixes spread over the slots of a node, and the size of an adaptive root.

use trieline_lpm::Address;

use super::space::Refused;
pub use crate::tables::kinds::Entry;

/// In a ref or root slot: the rest leads to a node.
pub const NODE: u32 = 1 << 31;

/// The slots of a node: `values[i]` is the longest match of at most `depth + stride` bits, and `deeper` lists the slots with longer
/// prefixes and those prefixes.
pub struct Spread<'e, A> {
    /// By slot; 0 = none.
    pub values: Vec<u32>,
    /// Slots with longer prefixes, in order.
    pub deeper: Vec<(usize, &'e [Entry<A>])>,
}

/// Spreads `entries`, all of more than `depth` bits and equal in those, over the 2^`stride` slots of the next `stride` bits; `cover`
/// is the value of the longest shorter prefix.
pub fn spread<A: Address>(mut entries: &[Entry<A>], depth: u16, stride: u16, cover: u32) -> Spread<'_, A> {
    let mut values = vec![cover; 1 << stride];
    let mut deeper = Vec::new();
    let end = depth + stride;
    while let Some(((prefix, value), rest)) = entries.split_first() {
        let slot = prefix.addr().bits_at(depth, stride);
        if prefix.len() <= end {
            // Sorted order: a covering prefix is painted before those it covers.
            values[slot..slot + (1 << (end - prefix.len()))].fill(*value);
            entries = rest;
        } else {
            let same = |(other, _): &&Entry<A>| other.addr().bits_at(depth, stride) == slot;
            let (inside, behind) = entries.split_at(entries.iter().take_while(same).count());
            deeper.push((slot, inside));
            entries = behind;
        }
    }
    Spread { values, deeper }
}

/// Replaces the value of each slot with longer prefixes by what `child` makes of them and it.
pub fn descend<A: Address>(
    spread: Spread<'_, A>,
    mut child: impl FnMut(&[Entry<A>], u32) -> Result<u32, Refused>,
) -> Result<Vec<u32>, Refused> {
    let Spread { mut values, deeper } = spread;
    for (slot, inside) in deeper {
        values[slot] = child(inside, values[slot])?;
    }
    Ok(values)
}

/// Root bits by the table's size, for structures whose root may adapt: a small table must be small, a large one shallow.
pub fn root_bits<A: Address>(prefixes: usize) -> u16 {
    match (A::FAMILY, prefixes) {
        (4, ..=64) | (0 | 6, ..=256) => 8,
        (4, ..=4096) => 12,
        (4, ..=200_000) | (0 | 6, _) => 16,
        _ => 18,
    }
}
