//! The flat memory that every candidate is built into and walked in: little-endian words at offsets. Each load is reported, so that lines
//! and pages are counted by the very code that is timed.

use std::{fmt, sync::atomic::Ordering};

use trieline_lpm::{HeapMemory, Memory};

/// Why a structure does not hold a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It would be larger than the run allows.
    Memory {
        /// Bytes at which it stopped.
        limit: u64,
    },
    /// It knows no keys or values of this kind.
    Unfit(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Memory { limit } => write!(f, "over the limit of {} MiB", limit >> 20),
            Refused::Unfit(why) => f.write_str(why),
        }
    }
}

/// Bytes a unit of [`Space::node`]: what offsets in refs count in.
pub const UNIT: u32 = 8;
/// A cache line.
const LINE: u64 = 64;

/// Memory that grows while a structure is built.
#[derive(Debug)]
pub struct Space {
    bytes: Vec<u8>,
    /// Holes of 1 ... 7 units before a line's end, by their number of units.
    holes: [Vec<u32>; 8],
    limit: u64,
}

impl Space {
    /// An empty one of at most `limit` bytes.
    pub fn new(limit: u64) -> Space {
        Space { bytes: Vec::new(), holes: Default::default(), limit: limit.min(1 << 32) }
    }

    /// A block of zeroes at a multiple of `align`; its offset.
    pub fn block(&mut self, bytes: usize, align: usize) -> Result<u32, Refused> {
        let at = self.bytes.len().next_multiple_of(align);
        if (at + bytes) as u64 > self.limit {
            return Err(Refused::Memory { limit: self.limit });
        }
        self.bytes.resize(at + bytes, 0);
        Ok(at as u32)
    }

    /// A block for a node, at a multiple of [`UNIT`]: one that fits a line straddles none, a larger one begins on a line.
    pub fn node(&mut self, bytes: usize) -> Result<u32, Refused> {
        let units = bytes.div_ceil(UNIT as usize);
        if let Some(hole) = (units..8).find_map(|size| self.holes.get_mut(size)?.pop().map(|at| (at, size))) {
            let (at, size) = hole;
            if size > units {
                self.holes[size - units].push(at + units as u32 * UNIT);
            }
            return Ok(at);
        }
        let end = self.bytes.len().next_multiple_of(UNIT as usize) as u64;
        let left = end.next_multiple_of(LINE) - end;
        let size = units as u64 * u64::from(UNIT);
        if size > left && left > 0 {
            self.holes[(left / u64::from(UNIT)) as usize].push(end as u32);
            return self.block(size as usize, LINE as usize);
        }
        self.block(size as usize, UNIT as usize)
    }

    /// Writes bytes.
    pub fn put(&mut self, at: u32, bytes: &[u8]) {
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a word of 16 bits.
    pub fn put16(&mut self, at: u32, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    /// Writes a word of 32 bits.
    pub fn put32(&mut self, at: u32, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// Writes a word of 64 bits.
    pub fn put64(&mut self, at: u32, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    /// Done: where walks read.
    pub fn freeze(self) -> Frozen {
        let unused: usize = self.holes.iter().enumerate().map(|(units, list)| units * 8 * list.len()).sum();
        let used = (self.bytes.len() - unused) as u64;
        let memory = HeapMemory::new(self.bytes.len().max(1));
        for (word, bytes) in memory.words().iter().zip(self.bytes.chunks(4)) {
            let mut four = [0; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            word.store(u32::from_le_bytes(four), Ordering::Relaxed);
        }
        Frozen { memory, used }
    }
}

/// A page.
pub const PAGE: usize = 4096;

/// A finished structure's memory: the same as an image's, from the beginning of a page on and with the same huge pages.
#[derive(Debug)]
pub struct Frozen {
    memory: HeapMemory,
    /// Bytes in use, without holes.
    pub used: u64,
}

impl Frozen {
    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        let words = self.memory.words();
        // SAFETY: four bytes a word, alive as long as `self`; nothing is stored to them any more.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
    }
}

/// Receives each load and each node of a walk.
pub trait Touch {
    /// So many bytes at an offset are read.
    fn load(&mut self, at: u32, bytes: u32);
    /// A node below the root is entered.
    fn step(&mut self);
}

/// Ignores them: the walk that is timed.
impl Touch for () {
    #[inline(always)]
    fn load(&mut self, _: u32, _: u32) {}
    #[inline(always)]
    fn step(&mut self) {}
}

macro_rules! load {
    ($name:ident, $word:ty) => {
        /// The word at an offset, 0 outside: every structure pays the same one comparison a load, as the product's reader does.
        #[inline(always)]
        pub fn $name<T: Touch>(memory: &[u8], at: u32, touch: &mut T) -> $word {
            const BYTES: usize = size_of::<$word>();
            touch.load(at, BYTES as u32);
            let at = at as usize;
            match memory.get(at..at + BYTES).and_then(|bytes| bytes.first_chunk::<BYTES>()) {
                Some(bytes) => <$word>::from_le_bytes(*bytes),
                None => 0,
            }
        }
    };
}
load!(load8, u8);
load!(load16, u16);
load!(load32, u32);
load!(load64, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_fit_a_line_straddle_none_and_fill_holes() {
        let mut space = Space::new(1 << 20);
        let mut taken: Vec<(u32, u32)> = Vec::new();
        for bytes in [40, 40, 16, 8, 64, 24, 100, 8, 12, 56, 24, 300, 16] {
            let at = space.node(bytes).unwrap();
            let end = at + bytes.next_multiple_of(8) as u32;
            assert!(bytes > 64 || at / 64 == (end - 1) / 64, "{bytes} at {at}");
            assert!(taken.iter().all(|&(from, to)| end <= from || to <= at), "{bytes} at {at}");
            taken.push((at, end));
        }
        let used: u32 = taken.iter().map(|(from, to)| to - from).sum();
        let frozen = space.freeze();
        assert_eq!((frozen.used, frozen.bytes().as_ptr() as usize % PAGE), (u64::from(used), 0));
    }

    #[test]
    fn a_limit_is_kept() {
        let mut space = Space::new(100);
        assert_eq!(space.block(64, 64), Ok(0));
        assert_eq!(space.block(64, 64), Err(Refused::Memory { limit: 100 }));
    }
}
