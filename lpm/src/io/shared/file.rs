//! Means of the system for processes that share files: mapped bytes, and locks that end with their owner.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use super::error::SharedError;
use crate::Memory;
use crate::image::memory::HUGE_PAGE;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::AtomicU32;
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::borrow::ToOwned;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The error of an `action` on `path`.
pub(super) fn failed<'a>(path: &'a Path, action: &'static str) -> impl FnOnce(io::Error) -> SharedError + 'a {
    move |source| SharedError::Io { path: path.to_owned(), action, source }
}

/// `path` with `suffix` behind its last component.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Options that do not follow a link at the last component, which another user may have made.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW);
    options
}

/// The access that a process has to a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Maps `bytes` from `at` on, both multiples of 64 KiB, of a file that is known to be that long.
///
/// A process made by fork has no such mapping: two processes with one slot would end each other's pins.
pub(super) fn map(file: &File, at: u64, bytes: usize, access: Access) -> io::Result<MmapRaw> {
    let mut options = MmapOptions::new();
    options.offset(at).len(bytes);
    let map = match access {
        Access::Read => options.map_raw_read_only(file)?,
        Access::Write => options.map_raw(file)?,
    };
    map.advise(Advice::DontFork)?;
    Ok(map)
}

/// Allocates the whole file now: a hole that cannot be filled later would be a signal in the middle of a change.
pub(super) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let Ok(len) = libc::off_t::try_from(bytes) else { return Err(io::ErrorKind::FileTooLarge.into()) };
    // SAFETY: a call on a descriptor that `file` keeps open; it takes no pointers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Takes (or gives back) the byte `at` of `file` for this open file; returns whether it was free.
///
/// The lock belongs to the open file description, not to the process (`F_OFD_SETLK`, Linux ≥ 3.15): two readers of one process are two
/// owners. The kernel gives it back when the last descriptor is closed, however the process ends.
pub(super) fn lock(file: &File, at: u64, take: bool) -> io::Result<bool> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut range: libc::flock = unsafe { core::mem::zeroed() };
    range.l_type = if take { libc::F_WRLCK } else { libc::F_UNLCK } as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = at as libc::off_t;
    range.l_len = 1;
    // SAFETY: the descriptor is open and the pointer leads to a `flock` that lives through the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// An image in a mapped file. It begins at a multiple of 2 MiB and lies on huge pages where the file can have them.
#[derive(Debug)]
pub struct SharedMemory {
    /// Address space that nothing else is mapped in.
    reserved: NonNull<libc::c_void>,
    reserved_bytes: usize,
    /// Where the file is in it, and bytes of the image.
    start: NonNull<libc::c_void>,
    bytes: usize,
    /// The process that maps it: one made by fork has nothing there, or something of its own.
    process: u32,
}

impl SharedMemory {
    /// Maps the first `bytes` of a file that is known to be that long.
    ///
    /// A process made by fork has no such mapping; see [`map`].
    pub(super) fn map(file: &File, bytes: usize, access: Access) -> io::Result<Self> {
        let Some(reserved_bytes) = bytes.checked_add(HUGE_PAGE) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses a place where nothing is mapped.
        let reserved =
            mapped(unsafe { libc::mmap(ptr::null_mut(), reserved_bytes, libc::PROT_NONE, none, -1, 0) })?;
        // SAFETY: less than `HUGE_PAGE`, which is how much longer the reserved part is.
        let start = unsafe { reserved.byte_add(reserved.as_ptr().cast::<u8>().align_offset(HUGE_PAGE)) };
        let memory = Self { reserved, reserved_bytes, start, bytes, process: std::process::id() };
        // No mapping has no bytes; no image either.
        if bytes == 0 {
            return Ok(memory);
        }
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the descriptor is open, and `bytes` from `start` on lie in the reserved part, where nothing else is.
        mapped(unsafe { libc::mmap(start.as_ptr(), bytes, protection, fixed, file.as_raw_fd(), 0) })?;
        // SAFETY: advice about the part that has just been mapped.
        if unsafe { libc::madvise(start.as_ptr(), bytes, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // The writer does it for all.
        if access == Access::Write {
            memory.collapse();
        }
        Ok(memory)
    }

    /// Puts the file's whole huge pages onto such. The kernel refuses it before Linux 6.1, and on file systems that have none: they stay as
    /// they are.
    fn collapse(&self) {
        let whole = self.bytes & !HUGE_PAGE.wrapping_sub(1);
        if whole > 0 {
            // SAFETY: advice about this mapping, whose bytes stay as they are.
            let _ = unsafe { libc::madvise(self.start.as_ptr(), whole, libc::MADV_COLLAPSE) };
        }
    }
}

/// The place that `mmap` has returned.
fn mapped(at: *mut libc::c_void) -> io::Result<NonNull<libc::c_void>> {
    let at = if at == libc::MAP_FAILED { None } else { NonNull::new(at) };
    at.ok_or_else(io::Error::last_os_error)
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: all that is mapped there is this value's, and no reference to it is left.
            unsafe { libc::munmap(self.reserved.as_ptr(), self.reserved_bytes) };
        }
    }
}

// SAFETY: the mapping belongs to this value alone, and all access to it is atomic.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

// SAFETY: a mapping is aligned to a page, does not move with the value and lives until it is dropped. The file's new pages are
// zero; every process goes through this type, hence through atomics. (A reader's mapping cannot be written; `Reader` only
// loads.) That a file is made shorter while it is mapped cannot be prevented here. An access is then a signal that ends the process,
// no wrong memory.
unsafe impl Memory for SharedMemory {
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: as above; so many bytes are mapped there.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / 4) }
    }
}

#[cfg(test)]
mod tests {
    // A failed unwrap fails the test.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use core::sync::atomic::Ordering;
    use std::os::unix::fs::FileExt;
    use std::string::ToString;

    /// Whatever the size, and whether or not the file system has huge pages.
    #[test]
    fn an_image_begins_at_a_huge_page_and_shows_the_file() {
        for folder in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
            for bytes in [0, 1 << 16, HUGE_PAGE, 2 * HUGE_PAGE + (3 << 16)] {
                let file = options().write(true).create_new(true).open(folder.path().join(bytes.to_string()));
                let file = file.unwrap();
                if bytes > 0 {
                    allocate(&file, bytes as u64).unwrap();
                    file.write_all_at(&7u32.to_le_bytes(), bytes as u64 - 4).unwrap();
                }
                let read = SharedMemory::map(&file, bytes, Access::Read).unwrap();
                let written = SharedMemory::map(&file, bytes, Access::Write).unwrap();
                assert_eq!((read.words().len(), written.words().len()), (bytes / 4, bytes / 4));
                for (place, word) in read.words().iter().enumerate() {
                    let expected = if 4 * place + 4 == bytes { 7 } else { 0 };
                    assert_eq!(word.load(Ordering::Relaxed), expected);
                }
                assert!(read.words().as_ptr().addr().is_multiple_of(HUGE_PAGE));
                if let Some(first) = written.words().first() {
                    first.store(9, Ordering::Relaxed);
                    assert_eq!(read.words()[0].load(Ordering::Relaxed), 9);
                }
            }
        }
    }
}
