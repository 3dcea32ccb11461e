//! Means of the system for processes that share files: mapped bytes, and locks that end with their owner.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use super::error::SharedError;
use crate::Memory;
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

/// An image in a mapped file.
#[derive(Debug)]
pub struct SharedMemory(MmapRaw);

impl SharedMemory {
    /// `map` must be a multiple of 8 bytes long.
    pub(super) fn new(map: MmapRaw) -> Self {
        Self(map)
    }
}

// SAFETY: a mapping is aligned to a page, does not move with the value and lives until it is dropped. The file's new pages are
// zero; every process goes through this type, hence through atomics. (A reader's mapping cannot be written; `Reader` only
// loads.) That a file is made shorter while it is mapped cannot be prevented here. An access is then a signal that ends the process,
// no wrong memory.
unsafe impl Memory for SharedMemory {
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: as above; the length is that of the mapping.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 4) }
    }
}
