//! How a lookup passes single nodes.

use super::layout::{self, Kind, Skip};
use super::words::{load, load64};
use crate::Address;
use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

/// How many of the starts in `pair` (four of a ranges node's) lie above the key bits whose complement to 0xffff is `rest`. For
/// both halves: bits 16 and 48 of the sum.
#[inline]
pub(super) fn above(pair: u64, rest: u64) -> u64 {
    const LOW: u64 = 0x0000_ffff_0000_ffff;
    const CARRY: u64 = 0x0001_0000_0001_0000;
    (((pair & LOW) + rest) & CARRY) + (((pair >> 16 & LOW) + rest) & CARRY)
}

/// How many key bits the skip at byte offset `node` takes, and whether those of `addr` from `depth` on differ from its.
#[inline]
pub(super) fn skip<A: Address>(words: &[AtomicU32], node: u32, addr: A, depth: u16) -> (u16, bool) {
    let field = |field: usize| load(words, node.wrapping_add(field as u32));
    let len = (field(offset_of!(Skip, len)) & layout::SKIP_LEN) as u16;
    let differ = addr.word_at(depth) >> 32 ^ u64::from(field(offset_of!(Skip, bits)));
    if len <= layout::SKIP_SHORT {
        return (len, differ >> (layout::SKIP_SHORT - len) != 0);
    }
    let more = load64(words, node.wrapping_add(size_of::<Skip>() as u32));
    let second = addr.word_at(depth.saturating_add(layout::SKIP_SHORT)) ^ more;
    (len, differ != 0 || second.wrapping_shr(u32::from(layout::SKIP_MAX.wrapping_sub(len))) != 0)
}

/// Index of the run that covers `slot` of the bitmap node at byte offset `node`.
#[inline]
pub(super) fn run_of(words: &[AtomicU32], node: u32, kind: Kind, slot: u32) -> u32 {
    if kind.stride == 6 {
        return (load64(words, node) << (63 - slot)).count_ones().wrapping_sub(1);
    }
    let (word, bit) = (slot / 64, slot % 64);
    let before = load(words, node.wrapping_add(layout::NODE8_BEFORE)) >> (8 * word) & 0xff;
    let inside = (load64(words, node.wrapping_add(8 * word)) << (63 - bit)).count_ones();
    (before + inside).wrapping_sub(1)
}
