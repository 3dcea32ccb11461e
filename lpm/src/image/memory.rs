//! Where an image's bytes live, seen by its writer and by readers in user space.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The bytes of an image as words that other threads, processes and BPF programs read meanwhile.
///
/// # Safety
///
/// [`Memory::words`] returns the same memory every time, aligned to 8 bytes, readable and writable until the value is
/// dropped, also when the value is moved; new pages of it read as zero; and only atomic operations touch it.
pub unsafe trait Memory {
    /// The whole image, one 32-bit word after the other.
    fn words(&self) -> &[AtomicU32];
}

/// An image on the heap, for tables that only this process reads.
#[derive(Debug)]
pub struct HeapMemory(Box<[AtomicU64]>);

impl HeapMemory {
    /// Zeroed memory of `bytes`, rounded up to a whole 64-bit word.
    pub fn new(bytes: usize) -> Self {
        let mut words = Vec::new();
        words.resize_with(bytes.div_ceil(8), || AtomicU64::new(0));
        Self(words.into_boxed_slice())
    }
}

// SAFETY: the box's memory does not move with the box, is aligned to 8 and zeroed.
unsafe impl Memory for HeapMemory {
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: an AtomicU64 has the size of two AtomicU32 and a stricter alignment; all access is by 32-bit atomics.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 2) }
    }
}

// SAFETY: the memory of the value that all clones share, which does not move and lives as long as any of them.
unsafe impl<M: Memory + ?Sized> Memory for Arc<M> {
    fn words(&self) -> &[AtomicU32] {
        (**self).words()
    }
}
