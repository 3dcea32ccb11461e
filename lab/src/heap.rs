//! A global allocator that counts what each thread holds, and can ask for huge pages. So every structure's memory is measured the same way,
//! and none wins by its pages.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Blocks of this size and more are mapped one by one, at multiples of [`HUGE`].
const LARGE: usize = 1 << 20;
/// A huge page on x86-64 and on aarch64 with pages of 4 KiB.
const HUGE: usize = 2 << 20;

thread_local! {
    // No destructor and a constant to begin with, so that using it never allocates.
    static HELD: Cell<isize> = const { Cell::new(0) };
}
static HUGE_PAGES: AtomicBool = AtomicBool::new(false);
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The allocator; a program that runs the experiment `engines` installs it with `#[global_allocator]`.
///
/// Small blocks are the system allocator's. Blocks of a MiB and more are mappings of their own, zeroed by the kernel when they are first
/// touched.
#[derive(Debug)]
pub struct Counting;

/// Bytes that this thread has allocated and not freed: what was asked for, without the allocator's overhead. None when the program has
/// not installed [`Counting`].
pub fn held() -> Option<isize> {
    INSTALLED.load(Ordering::Relaxed).then(|| HELD.with(Cell::get))
}

/// Whether blocks of a MiB and more are put on huge pages from now on (`madvise(MADV_HUGEPAGE)`), in all threads.
pub fn huge_pages(wanted: bool) {
    HUGE_PAGES.store(wanted, Ordering::Relaxed);
}

fn count(bytes: isize) {
    // A thread that is ending counts no more.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

/// Bytes of the mapping for a large block: whole huge pages, the block at its beginning.
fn mapped(size: usize) -> usize {
    size.next_multiple_of(HUGE)
}

fn map(size: usize) -> *mut u8 {
    let length = mapped(size) + HUGE;
    // SAFETY: a new mapping wherever the kernel likes; nothing else is touched.
    let Ok(base) = (unsafe {
        mmap_anonymous(null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }) else {
        return null_mut();
    };
    let lead = base.addr().next_multiple_of(HUGE) - base.addr();
    let block = base.cast::<u8>().wrapping_add(lead);
    // SAFETY: both ends belong to the mapping just made and have no users.
    unsafe {
        if lead > 0 {
            let _ = munmap(base, lead);
        }
        let _ = munmap(block.wrapping_add(mapped(size)).cast(), HUGE - lead);
        if HUGE_PAGES.load(Ordering::Relaxed) {
            // Advice: where it is refused, small pages do.
            let _ = madvise(block.cast(), mapped(size), Advice::LinuxHugepage);
        }
    }
    block
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= HUGE
}

// SAFETY: every block is the system allocator's or a mapping of its own, at least as large and as aligned as wanted. The layout alone
// decides between the two, so that each block goes back where it came from.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = if is_large(layout) {
            map(layout.size())
        } else {
            // SAFETY: the caller's promises are the system allocator's.
            unsafe { System.alloc(layout) }
        };
        if !block.is_null() {
            if !INSTALLED.load(Ordering::Relaxed) {
                INSTALLED.store(true, Ordering::Relaxed);
            }
            count(layout.size() as isize);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            // SAFETY: as `alloc`; a new mapping is zero.
            return unsafe { self.alloc(layout) };
        }
        // SAFETY: the caller's promises are the system allocator's.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            count(layout.size() as isize);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `alloc` put it there by the same rule.
        unsafe {
            if is_large(layout) {
                let _ = munmap(block.cast(), mapped(layout.size()));
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` makes a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if is_large(layout) && is_large(new) && mapped(layout.size()) == mapped(size) {
            count(size as isize - layout.size() as isize);
            return block;
        }
        if !is_large(layout) && !is_large(new) {
            // SAFETY: the caller's promises are the system allocator's.
            let moved = unsafe { System.realloc(block, layout, size) };
            if !moved.is_null() {
                count(size as isize - layout.size() as isize);
            }
            return moved;
        }
        // SAFETY: a new block; both are at least as long as what is copied.
        unsafe {
            let moved = self.alloc(new);
            if let Some(moved) = NonNull::new(moved) {
                moved.as_ptr().copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn allocations_of_every_size_are_counted() {
        let before = held().unwrap();
        let mut bytes = vec![7u8; 100];
        for size in [1000, LARGE - 1, LARGE, 3 * HUGE, 3 * HUGE + 5, LARGE + 3, 10] {
            bytes.resize(size, 7);
            bytes.shrink_to_fit();
            assert_eq!(held().unwrap() - before, size as isize);
            assert!(bytes.iter().all(|byte| *byte == 7), "{size}");
            if size >= LARGE {
                assert_eq!(bytes.as_ptr().addr() % HUGE, 0);
            }
        }
        drop(bytes);
        assert_eq!(held().unwrap(), before);
        assert!(vec![0u64; LARGE].iter().all(|word| *word == 0));
    }
}
