//! Where an image's bytes live, seen by its writer and by readers in user space.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use alloc::alloc::Layout;
use alloc::sync::Arc;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

/// The bytes of an image as words that other threads, processes and BPF programs read meanwhile.
///
/// # Safety
///
/// [`Memory::words`] returns the same memory every time, aligned to 8 bytes, readable and writable until the value is
/// dropped, also when the value is moved. New pages of it read as zero; and only atomic operations touch it.
pub unsafe trait Memory {
    /// The whole image, one 32-bit word after the other.
    fn words(&self) -> &[AtomicU32];
}

/// An image on the heap, for tables that only this process reads.
///
/// Aligned to a page, a large one to a huge page, if the kernel gives one (Linux, feature `std`). Lookups in a large table wait for address
/// translation otherwise. Pages that nothing was stored to take no memory.
#[derive(Debug)]
pub struct HeapMemory {
    block: NonNull<u8>,
    layout: Layout,
    /// Where the image begins in the block.
    skip: usize,
    words: usize,
}

const PAGE: usize = 4096;
pub(crate) const HUGE_PAGE: usize = 2 << 20;

impl HeapMemory {
    /// Zeroed memory of `bytes`, rounded up to a whole 64-bit word.
    ///
    /// # Panics
    ///
    /// If the system cannot give such memory.
    pub fn new(bytes: usize) -> Self {
        let Some((bytes, align, layout)) = Self::layout(bytes) else {
            panic!("{bytes} bytes are more than an address space holds")
        };
        // SAFETY: the layout's size is not 0.
        let Some(block) = NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) }) else {
            alloc::alloc::handle_alloc_error(layout)
        };
        let skip = block.as_ptr().align_offset(align);
        let memory = Self { block, layout, skip, words: bytes / 4 };
        memory.ask_for_huge_pages();
        memory
    }

    /// Bytes of the image, a multiple of 8; its alignment; and the block to allocate, which is never empty. None: no address space is so
    /// large.
    fn layout(bytes: usize) -> Option<(usize, usize, Layout)> {
        let bytes = bytes.checked_next_multiple_of(8)?;
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        // Aligned by hand: for an alignment, an allocator clears the memory itself, and so touches all of it.
        let layout = Layout::from_size_align(bytes.checked_add(align)?, 8).ok()?;
        Some((bytes, align, layout))
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: the block is `align` longer than the image, and `skip` less than that.
        unsafe { self.block.add(self.skip) }
    }

    fn ask_for_huge_pages(&self) {
        #[cfg(all(feature = "std", target_os = "linux", not(miri)))]
        {
            unsafe extern "C" {
                fn madvise(at: *mut u8, bytes: usize, advice: i32) -> i32;
            }
            const MADV_HUGEPAGE: i32 = 14;
            let whole = self.words.saturating_mul(4) & !(HUGE_PAGE - 1);
            if whole > 0 {
                // SAFETY: advice about memory of our own. A kernel without huge pages refuses, which changes nothing.
                let _ = unsafe { madvise(self.start().as_ptr(), whole, MADV_HUGEPAGE) };
            }
        }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and this is its only owner.
        unsafe { alloc::alloc::dealloc(self.block.as_ptr(), self.layout) }
    }
}

// SAFETY: the block belongs to this value alone, and all access to it is atomic.
unsafe impl Send for HeapMemory {}
// SAFETY: as above.
unsafe impl Sync for HeapMemory {}

// SAFETY: the block does not move with the value, is aligned to 8 and zeroed.
unsafe impl Memory for HeapMemory {
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: `words` words from `start` on lie in the block, zeroed; all access is by atomics.
        unsafe { core::slice::from_raw_parts(self.start().as_ptr().cast(), self.words) }
    }
}

// SAFETY: the memory of the value that all clones share, which does not move and lives as long as any of them.
unsafe impl<M: Memory + ?Sized> Memory for Arc<M> {
    fn words(&self) -> &[AtomicU32] {
        (**self).words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn sizes_that_no_address_space_has() {
        for bytes in [usize::MAX, usize::MAX - 7, usize::MAX - 8, usize::MAX - HUGE_PAGE, isize::MAX as usize]
        {
            assert!(HeapMemory::layout(bytes).is_none(), "{bytes}");
        }
        for bytes in [0, 1, 8, PAGE, HUGE_PAGE - 1, HUGE_PAGE, 1 << 30] {
            let (whole, align, layout) = HeapMemory::layout(bytes).unwrap();
            assert!(whole >= bytes && whole.is_multiple_of(8) && layout.size() == whole + align);
        }
        let lens: Vec<_> = [0, 1, 9].map(|bytes| HeapMemory::new(bytes).words().len()).into();
        assert_eq!(lens, [0, 2, 4]);
    }
}
