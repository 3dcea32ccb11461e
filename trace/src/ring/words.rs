//! The memory of a BPF array, mapped: the words that hooks store and the tracer loads.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;

use libbpf_rs::MapHandle;
use memmap2::{MmapOptions, MmapRaw};

use crate::error::{Error, Result};

/// A BPF array that is mapped.
#[derive(Debug)]
pub(super) struct Words(pub(super) MmapRaw);

impl Words {
    /// The first `words` words of a map; an error if it has not so many.
    pub(super) fn of(map: &MapHandle, words: usize) -> Result<Words> {
        let bytes = words.checked_mul(8).ok_or(ErrorKind::OutOfMemory.into());
        let mapped = bytes.and_then(|bytes| MmapOptions::new().len(bytes).map_raw_read_only(&map.as_fd()));
        mapped.map(Words).map_err(Error::system("cannot map a ring"))
    }

    pub(super) fn get(&self) -> &[AtomicU64] {
        // SAFETY: mapped until drop, page-aligned; the kernel zeroes and never moves it; in this process the words
        // are only loaded, atomically.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 8) }
    }
}
