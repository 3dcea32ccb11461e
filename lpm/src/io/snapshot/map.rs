//! The bytes of a snapshot: mapped from a file, or on the heap. All reads are atomic, for another process could write to the file.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use crate::{HeapMemory, Memory as _};
use core::sync::atomic::{AtomicU32, Ordering};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::path::Path;

/// Bytes that begin at a multiple of 8 and are read as little-endian words.
#[derive(Debug)]
pub(super) struct Bytes {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Mapped(MmapRaw),
    Heap(HeapMemory),
}

impl Bytes {
    /// Maps a whole file read-only.
    pub fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let at = file.metadata()?;
        if !at.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a file; expected one that can be mapped",
            ));
        }
        let len = usize::try_from(at.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if len < 4 {
            return Ok(Self::copy(&[]));
        }
        let map = MmapOptions::new().len(len).map_raw_read_only(&file)?;
        Ok(Self { memory: Memory::Mapped(map), len })
    }

    /// A copy on the heap.
    pub fn copy(bytes: &[u8]) -> Self {
        let memory = HeapMemory::new(bytes.len());
        for (word, four) in memory.words().iter().zip(bytes.chunks(4)) {
            let mut value = [0; 4];
            value[..four.len()].copy_from_slice(four);
            word.store(u32::from_le_bytes(value), Ordering::Relaxed);
        }
        Self { memory: Memory::Heap(memory), len: bytes.len() }
    }

    /// Whole words.
    pub fn words(&self) -> &[AtomicU32] {
        match &self.memory {
            // SAFETY: the mapping is that long, page-aligned, readable, and stays until `self` is dropped. Other processes may write it, so
            // only atomic loads touch it, which need no permission to write on the processors that `words.rs` lets through.
            Memory::Mapped(map) => unsafe {
                core::slice::from_raw_parts(map.as_ptr().cast::<AtomicU32>(), self.len / 4)
            },
            Memory::Heap(memory) => &memory.words()[..self.len / 4],
        }
    }

    /// All bytes, also those behind the last whole word.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The word at `at`, a multiple of 4; 0 outside.
    pub fn u32(&self, at: usize) -> u32 {
        self.words().get(at / 4).map_or(0, |word| u32::from_le(word.load(Ordering::Relaxed)))
    }

    /// The 64-bit word at `at`, a multiple of 4.
    pub fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at.saturating_add(4))) << 32
    }

    /// Copies from `at` on, which may be odd; zeros from outside.
    pub fn copy_to(&self, at: usize, to: &mut [u8]) {
        let mut word = self.u32(at).to_le_bytes();
        for (nth, byte) in to.iter_mut().enumerate() {
            let at = at.saturating_add(nth);
            if nth > 0 && at.is_multiple_of(4) {
                word = self.u32(at).to_le_bytes();
            }
            *byte = word[at % 4];
        }
    }
}
