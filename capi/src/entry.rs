//! Prefixes as C passes them: key bytes in network order, a length in bits, a value.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use trieline_lpm::io::KeyPrefix;
use trieline_lpm::{Address, Key, Prefix, PrefixError};

use crate::error::{Error, Result};

/// `struct trieline_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CEntry {
    key: *const u8,
    length: u32,
    value: u32,
}

/// A key that a table is searched for, as bytes.
pub trait CKey: Address {
    /// The key of `bits` bits, `WIDTH` or less, in the bytes at `from`.
    ///
    /// # Safety
    ///
    /// As many bytes as `bits` take can be read there.
    unsafe fn read(from: *const u8, bits: u16) -> Self;

    /// The prefix of its first `length` bits.
    ///
    /// # Safety
    ///
    /// As for [`CKey::read`].
    unsafe fn prefix(
        from: *const u8,
        bits: u16,
        length: u16,
    ) -> std::result::Result<Prefix<Self>, PrefixError> {
        // SAFETY: the caller promises it.
        Prefix::new(unsafe { Self::read(from, bits) }, length)
    }
}

impl CKey for u32 {
    unsafe fn read(from: *const u8, _: u16) -> Self {
        // SAFETY: the caller promises four bytes.
        u32::from_be_bytes(unsafe { from.cast::<[u8; 4]>().read() })
    }
}

impl CKey for u128 {
    unsafe fn read(from: *const u8, _: u16) -> Self {
        // SAFETY: the caller promises sixteen bytes.
        u128::from_be_bytes(unsafe { from.cast::<[u8; 16]>().read() })
    }
}

impl<const BITS: u16, const BYTES: usize> CKey for Key<BITS, BYTES> {
    unsafe fn read(from: *const u8, bits: u16) -> Self {
        let mut key = [0; BYTES];
        let bytes = usize::from(bits).div_ceil(8).min(BYTES);
        // SAFETY: the caller promises so many bytes.
        key[..bytes].copy_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
        Self::new(key)
    }

    unsafe fn prefix(
        from: *const u8,
        bits: u16,
        length: u16,
    ) -> std::result::Result<Prefix<Self>, PrefixError> {
        // SAFETY: the caller promises so many bytes.
        let key = unsafe { std::slice::from_raw_parts(from, usize::from(bits).div_ceil(8)) };
        // By way of the very bytes, so that an error shows them.
        KeyPrefix::new(key, length).map(|prefix| prefix.prefix())
    }
}

/// The prefix of `length` bits of the key of `bits` bits at `key`; `what` names it in errors.
///
/// # Safety
///
/// `key` is null or as [`CKey::read`] asks.
pub unsafe fn prefix<A: CKey>(
    what: &dyn Fn() -> String,
    bits: u16,
    key: *const u8,
    length: u32,
) -> Result<Prefix<A>> {
    if key.is_null() {
        return Err(Error::null(&format!("{}key", what())));
    }
    let prefix = match u16::try_from(length) {
        // SAFETY: the caller promises it.
        Ok(length) if length <= bits => unsafe { A::prefix(key, bits, length) },
        _ => Err(PrefixError::Length { len: length, max: bits }),
    };
    prefix.map_err(|error| Error::Argument(format!("{}{error}", what())))
}

/// `count` entries from C, as prefixes.
///
/// # Safety
///
/// `entries` is null or has `count` entries, each with a key of `bits` bits or null.
pub unsafe fn prefixes<A: CKey>(
    bits: u16,
    entries: *const CEntry,
    count: usize,
) -> Result<Vec<(Prefix<A>, u32)>> {
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
        let prefix = unsafe { prefix(&|| format!("entry {at}: "), bits, entry.key, entry.length) }?;
        Ok((prefix, entry.value))
    };
    entries.iter().enumerate().map(of).collect()
}
