//! Tables of any kind of key behind one trait: in Rust the kind is a type, in C a number.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use trieline_bpf::{ImageMemory, ReaderGrace};
use trieline_lpm::{Image, Prefix, Reader, Table, with_key};

use crate::entry::{CEntry, CKey, prefix, prefixes};
use crate::error::{Error, Result};

/// The writer's side of the image.
pub type Writer = Image<ImageMemory, ReaderGrace>;

/// `TRIELINE_IPV4`, `TRIELINE_IPV6` or `TRIELINE_KEY(bits)`: the family in the upper half, the width in bits in the lower.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kind(pub u32);

impl Kind {
    /// `TRIELINE_IPV4`.
    pub const IPV4: Kind = Kind(4 << 16 | 32);
    /// `TRIELINE_IPV6`.
    pub const IPV6: Kind = Kind(6 << 16 | 128);

    /// Width of its keys.
    fn bits(self) -> u16 {
        self.0 as u16
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Kind::IPV4 => f.write_str("IPv4 addresses"),
            Kind::IPV6 => f.write_str("IPv6 addresses"),
            Kind(bits) => write!(f, "keys of {bits} bits"),
        }
    }
}

/// A table of this process. Pointers to keys have as many bytes as the kind says; callers promise that.
pub trait AnyTable: Send {
    /// Prefixes in it.
    fn len(&self) -> usize;
    /// Many changes; value 0 removes. How many prefixes changed.
    ///
    /// # Safety
    ///
    /// As [`prefixes`] asks; so for all below.
    unsafe fn apply(&mut self, image: &mut Writer, entries: *const CEntry, count: usize) -> Result<usize>;
    /// One change; 0 removes. The value before, or 0.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn set(&mut self, image: &mut Writer, key: *const u8, length: u32, value: u32) -> Result<u32>;
    /// The value of exactly this prefix, or 0.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn get(&self, key: *const u8, length: u32) -> Result<u32>;
    /// Longest match: value and prefix length.
    ///
    /// # Safety
    ///
    /// As above, and `key` is not null.
    unsafe fn longest(&self, key: *const u8) -> Option<(u32, u16)>;
}

impl<A: CKey> AnyTable for Table<A> {
    fn len(&self) -> usize {
        Table::len(self)
    }

    unsafe fn apply(&mut self, image: &mut Writer, entries: *const CEntry, count: usize) -> Result<usize> {
        // SAFETY: the caller promises it.
        let changes = unsafe { prefixes::<A>(self.key_bits(), entries, count) }?;
        let change = |(prefix, value): (Prefix<A>, u32)| (prefix, (value != 0).then_some(value));
        Ok(Table::apply(self, image, changes.into_iter().map(change))?)
    }

    unsafe fn set(&mut self, image: &mut Writer, key: *const u8, length: u32, value: u32) -> Result<u32> {
        // SAFETY: the caller promises it.
        let prefix = unsafe { prefix::<A>(&String::new, self.key_bits(), key, length) }?;
        let before = match value {
            0 => self.remove(image, &prefix),
            value => self.insert(image, prefix, value),
        };
        Ok(before?.unwrap_or(0))
    }

    unsafe fn get(&self, key: *const u8, length: u32) -> Result<u32> {
        // SAFETY: the caller promises it.
        let prefix = unsafe { prefix::<A>(&String::new, self.key_bits(), key, length) }?;
        Ok(Table::get(self, &prefix).unwrap_or(0))
    }

    unsafe fn longest(&self, key: *const u8) -> Option<(u32, u16)> {
        // SAFETY: the caller promises it.
        let (prefix, value) = self.lookup(unsafe { A::read(key, self.key_bits()) })?;
        Some((value, prefix.len()))
    }
}

unsafe fn make<A: CKey>(
    kind: Kind,
    image: &mut Writer,
    id: u32,
    entries: *const CEntry,
    count: usize,
) -> Result<Box<dyn AnyTable>> {
    // SAFETY: the caller promises it.
    let prefixes = unsafe { prefixes::<A>(kind.bits(), entries, count) }?;
    let table = Table::<A>::create_narrow(image, id, kind.bits(), prefixes)?;
    // A C program learns of it by an error. It knows whether no answer is better than an old one: not so for a list to block.
    Ok(Box::new(table.refuse_when_full()))
}

/// Makes table `id`, replacing what is there.
///
/// # Safety
///
/// As [`prefixes`] asks.
pub unsafe fn create(
    kind: Kind,
    image: &mut Writer,
    id: u32,
    entries: *const CEntry,
    count: usize,
) -> Result<Box<dyn AnyTable>> {
    // SAFETY: the caller promises it.
    unsafe {
        match kind {
            Kind::IPV4 => make::<u32>(kind, image, id, entries, count),
            Kind::IPV6 => make::<u128>(kind, image, id, entries, count),
            Kind(bits) => with_key!(bits, K => make::<K>(kind, image, id, entries, count))
                .unwrap_or_else(|| Err(no_kind(kind))),
        }
    }
}

/// Looks up in the image as programs do; 0: nothing.
///
/// # Safety
///
/// `key` has as many bytes as the kind says.
pub unsafe fn lookup(kind: Kind, reader: Reader<'_>, id: u32, key: *const u8) -> Result<u32> {
    // SAFETY: the caller promises it.
    let found = unsafe {
        match kind {
            Kind::IPV4 => find::<u32>(kind, reader, id, key),
            Kind::IPV6 => find::<u128>(kind, reader, id, key),
            Kind(bits) => {
                with_key!(bits, K => find::<K>(kind, reader, id, key)).ok_or_else(|| no_kind(kind))?
            }
        }
    };
    Ok(found.unwrap_or(0))
}

unsafe fn find<A: CKey>(kind: Kind, reader: Reader<'_>, id: u32, key: *const u8) -> Option<u32> {
    // SAFETY: the caller promises it.
    reader.lookup_narrow(id, kind.bits(), unsafe { A::read(key, kind.bits()) })
}

fn no_kind(kind: Kind) -> Error {
    Error::Argument(format!(
        "invalid kind of key {:#x}: expected TRIELINE_IPV4, TRIELINE_IPV6 or TRIELINE_KEY of 1 to 2048 bits",
        kind.0
    ))
}
