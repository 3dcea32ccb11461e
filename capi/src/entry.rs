//! Prefixes as C passes them: key bytes in network order, a length in bits, a value.

use trieline_lpm::{Address, Key, Prefix};

use crate::error::{Error, Result};

/// `struct trieline_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CEntry {
    key: *const u8,
    length: u32,
    value: u32,
}

/// What a table is searched for, as bytes.
pub trait CKey: Address {
    /// The key in the bytes at `from`.
    ///
    /// # Safety
    ///
    /// As many bytes as `WIDTH` takes can be read there.
    unsafe fn read(from: *const u8) -> Self;
}

impl CKey for u32 {
    unsafe fn read(from: *const u8) -> Self {
        // SAFETY: the caller promises four bytes.
        u32::from_be_bytes(unsafe { from.cast::<[u8; 4]>().read() })
    }
}

impl CKey for u128 {
    unsafe fn read(from: *const u8) -> Self {
        // SAFETY: the caller promises sixteen bytes.
        u128::from_be_bytes(unsafe { from.cast::<[u8; 16]>().read() })
    }
}

impl<const BITS: u16, const BYTES: usize> CKey for Key<BITS, BYTES> {
    unsafe fn read(from: *const u8) -> Self {
        // SAFETY: the caller promises BYTES bytes.
        Self::new(unsafe { from.cast::<[u8; BYTES]>().read() })
    }
}

/// The prefix of `length` bits of the key at `key`; `what` names it in errors.
///
/// # Safety
///
/// `key` is null or as [`CKey::read`] asks.
pub unsafe fn prefix<A: CKey>(what: &dyn Fn() -> String, key: *const u8, length: u32) -> Result<Prefix<A>> {
    if key.is_null() {
        return Err(Error::null(&format!("{}key", what())));
    }
    // A length past 16 bits is too long for any key, and so is this one.
    let length = length.min(u16::MAX.into()) as u16;
    // SAFETY: the caller promises it.
    Prefix::new(unsafe { A::read(key) }, length)
        .map_err(|error| Error::Argument(format!("{}{error}", what())))
}

/// `count` entries from C, as prefixes.
///
/// # Safety
///
/// `entries` is null or has `count` entries, each with a key of `A`'s bytes or null.
pub unsafe fn prefixes<A: CKey>(entries: *const CEntry, count: usize) -> Result<Vec<(Prefix<A>, u32)>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if entries.is_null() {
        return Err(Error::null("entries"));
    }
    // SAFETY: the caller promises it.
    let entries = unsafe { std::slice::from_raw_parts(entries, count) };
    let of = |(at, entry): (usize, &CEntry)| {
        // SAFETY: the caller promises it of each key.
        let prefix = unsafe { prefix(&|| format!("entry {at}: "), entry.key, entry.length) }?;
        Ok((prefix, entry.value))
    };
    entries.iter().enumerate().map(of).collect()
}
