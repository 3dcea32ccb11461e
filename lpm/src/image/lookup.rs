//! Lookups in user space: the Rust twin of `include/trieline/lpm.h`.

use super::Error;
use super::layout::{self, ImageHeader, Kind, Skip, TableHeader};
use crate::Address;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

/// Looks addresses up in an image, also while its writer changes it. Copy it freely.
///
/// A reader never reads outside its memory and ends after a bounded number of steps, whatever the bytes are. Beside a
/// writer in another process it is right only as long as a grace period covers it; see [`crate::Grace`].
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    words: &'a [AtomicU32],
}

/// Default routes that may change under one lookup before it takes what it finds. (A thread can be held up, so more than the C
/// header allows.)
const TRIES: u32 = 64;

/// Loads the 32-bit word at byte offset `at`; 0 outside the image, as an arena page that was never filled.
#[inline]
pub(super) fn load(words: &[AtomicU32], at: u32) -> u32 {
    words.get(at as usize / 4).map_or(0, |word| word.load(Ordering::Acquire))
}

impl<'a> Reader<'a> {
    /// A reader of the image in `words`; an error when there is none or one of another version.
    pub fn new(words: &'a [AtomicU32]) -> Result<Self, Error> {
        let header = super::header(words)?;
        debug_assert_eq!(header.magic, layout::MAGIC);
        Ok(Self { words })
    }

    /// Reads an image whose header has been checked.
    pub(crate) fn checked(words: &'a [AtomicU32]) -> Self {
        Self { words }
    }

    /// Longest match of an IPv4 address in table `id`: O(1), at most six nodes. None: no prefix or no such table.
    #[inline]
    pub fn lookup4(&self, id: u32, addr: u32) -> Option<u32> {
        self.lookup(id, addr)
    }

    /// Longest match of an IPv6 address in table `id`: O(1), at most sixteen nodes. None: no prefix or no such table.
    #[inline]
    pub fn lookup6(&self, id: u32, addr: u128) -> Option<u32> {
        self.lookup(id, addr)
    }

    /// Longest match of `addr` in table `id`, which must be of that family.
    #[inline]
    pub fn lookup<A: Address>(&self, id: u32, addr: A) -> Option<u32> {
        let mut value = 0;
        for _ in 0..TRIES {
            let word = self.table_word(id);
            value = self.walk(word, addr);
            if value != 0 || word == 0 {
                break;
            }
            // A changed fallback comes with a root of its own: the same word says that the two belong together.
            let header = (word & !layout::DIR_BITS).wrapping_sub(size_of::<TableHeader>() as u32);
            value = self.load(header.wrapping_add(offset_of!(TableHeader, fallback) as u32));
            if self.table_word(id) == word {
                break;
            }
        }
        (value != 0).then_some(value)
    }

    /// Longest match of `addr` among the prefixes of 1 bit and more under directory word `word`; 0 = none.
    #[inline]
    fn walk<A: Address>(&self, word: u32, addr: A) -> u32 {
        let (root, bits) = (word & !layout::DIR_BITS, (word & layout::DIR_BITS) as u16);
        if root == 0 {
            return 0;
        }
        let kind = Kind::of_family(A::FAMILY);
        let mut depth = bits;
        let mut entry = self.load(root.wrapping_add(4 * addr.bits_at(0, bits.min(24)) as u32));
        // No sound table takes more steps than key bits by strides.
        for _ in 0..A::WIDTH.div_ceil(kind.stride) {
            if entry & layout::REF_NODE == 0 {
                break;
            }
            let node = (entry & layout::REF_OFFSET) * layout::UNIT;
            let slot = addr.bits_at(depth, kind.stride) as u32;
            let mut step = kind.stride;
            match layout::kind_of(entry) {
                layout::RAW8 if A::FAMILY != 4 => entry = self.load(node.wrapping_add(4 * slot)),
                layout::SKIP if A::FAMILY != 4 => {
                    let field = |at: usize| self.load(node.wrapping_add(at as u32));
                    let (len, differs) = skip(self.words, node, addr, depth);
                    if differs {
                        entry = field(offset_of!(Skip, otherwise));
                        break;
                    }
                    entry = field(offset_of!(Skip, next));
                    step = len;
                }
                _ => {
                    let run = run_of(self.words, node, kind, slot);
                    entry = self.load(node.wrapping_add(kind.refs).wrapping_add(run.wrapping_mul(4)));
                }
            }
            depth = depth.saturating_add(step);
        }
        // Still a node only in a damaged image.
        if entry & layout::REF_NODE != 0 { 0 } else { entry }
    }

    /// The directory word of table `id`; 0 when there is no such table.
    #[inline]
    pub fn table_word(&self, id: u32) -> u32 {
        if id >= self.load(offset_of!(ImageHeader, tables) as u32) {
            return 0;
        }
        self.load(layout::DIRECTORY.wrapping_add(id.wrapping_mul(4)))
    }

    #[inline]
    fn load(&self, at: u32) -> u32 {
        load(self.words, at)
    }
}

/// How many key bits the skip at byte offset `node` takes, and whether those of `addr` from `depth` on differ from its.
#[inline]
pub(super) fn skip<A: Address>(words: &[AtomicU32], node: u32, addr: A, depth: u16) -> (u16, bool) {
    let len =
        (load(words, node.wrapping_add(offset_of!(Skip, len) as u32)) & u32::from(layout::SKIP_MAX)) as u16;
    let differ = addr.word_at(depth) ^ load64(words, node);
    if len < 64 {
        return (len, differ >> 1 >> (63 - len) != 0);
    }
    let second = addr.word_at(depth.saturating_add(64)) ^ load64(words, node.wrapping_add(8));
    (len, differ != 0 || second >> 1 >> (127 - len) != 0)
}

/// Index of the run that covers `slot` of the node at byte offset `node`.
#[inline]
pub(super) fn run_of(words: &[AtomicU32], node: u32, kind: Kind, slot: u32) -> u32 {
    let (word, bit) = (slot / 64, slot % 64);
    let starts = starts(words, node, kind, word);
    let before = if kind.stride == 6 { 0 } else { load(words, node) >> (8 * word) & 0xff };
    (before + (starts << (63 - bit)).count_ones()).wrapping_sub(1)
}

/// The `word`-th 64 bits of a node's run starts.
#[inline]
pub(super) fn starts(words: &[AtomicU32], node: u32, kind: Kind, word: u32) -> u64 {
    load64(words, node.wrapping_add(kind.starts + 8 * word))
}

/// Loads the 64 bits at byte offset `at`.
#[inline]
pub(super) fn load64(words: &[AtomicU32], at: u32) -> u64 {
    u64::from(load(words, at)) | u64::from(load(words, at.wrapping_add(4))) << 32
}
