//! The section behind a snapshot's image: its tables' prefixes and the names of values, read where they lie.

use super::error::{SnapshotError, VERSION};
use super::map::Bytes;
use crate::image::layout::VALUE_MAX;
use crate::image::verify::{Report, TableReport};
use crate::io::KeyPrefix;
use crate::{Address, Key, Prefix};
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::format;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// Bytes of `struct tl_snapshot`.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes of `struct tl_snapshot_table`.
pub(super) const TABLE_BYTES: usize = 32;
/// Bytes of an entry beside its key.
pub(super) const ENTRY_MORE: usize = 6;

/// Keys that a snapshot can hold.
pub trait Stored: Address {
    /// The key in network order; `bytes` has exactly its bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
}

impl Stored for u32 {
    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.iter().fold(0, |key, byte| key << 8 | Self::from(*byte))
    }
}

impl Stored for u128 {
    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.iter().fold(0, |key, byte| key << 8 | Self::from(*byte))
    }
}

impl<const BITS: u16, const BYTES: usize> Stored for Key<BITS, BYTES> {
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut key = [0; BYTES];
        let count = BYTES.min(bytes.len());
        key[..count].copy_from_slice(&bytes[..count]);
        Self::new(key)
    }
}

/// A table as the section describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableInfo {
    /// Id in the image's directory.
    pub id: u32,
    /// 4, 6 or 0.
    pub family: u8,
    /// Width of the keys.
    pub key_bits: u16,
    /// Number of prefixes.
    pub entries: u64,
    /// Where the first is, in the file.
    at: usize,
}

impl TableInfo {
    fn key_bytes(&self) -> usize {
        usize::from(self.key_bits).div_ceil(8)
    }

    fn entry_bytes(&self) -> usize {
        self.key_bytes() + ENTRY_MORE
    }

    /// The result of `of` for the `nth` entry's key, length and value.
    fn entry<T>(&self, bytes: &Bytes, nth: usize, of: impl FnOnce(&[u8], u16, u32) -> T) -> T {
        // The widest key has 256 bytes.
        let mut entry = [0; 256 + ENTRY_MORE];
        let entry = &mut entry[..self.entry_bytes()];
        bytes.copy_to(self.at + nth * entry.len(), entry);
        let (key, more) = entry.split_at(self.key_bytes());
        let len = u16::from_le_bytes([more[0], more[1]]);
        let value = u32::from_le_bytes([more[2], more[3], more[4], more[5]]);
        of(key, len, value)
    }
}

/// A section whose header has been checked.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: &'a Path,
    bytes: &'a Bytes,
    /// Its first byte, in the file.
    start: usize,
    /// Of the names, in the file.
    names_at: usize,
    names: u32,
    tables: Vec<TableInfo>,
}

impl<'a> Section<'a> {
    pub fn new(path: &'a Path, bytes: &'a Bytes, start: usize) -> Result<Self, SnapshotError> {
        let damaged =
            |what: String, at: usize| SnapshotError::Damaged { path: path.into(), what, at: at as u64 };
        let version = bytes.u32(start + 4);
        if version as u16 != VERSION {
            return Err(SnapshotError::Version { path: path.into(), found: version as u16 });
        }
        if version >> 16 != HEADER_BYTES as u32 {
            return Err(damaged(
                format!("header of {} bytes, expected {HEADER_BYTES}", version >> 16),
                start + 6,
            ));
        }
        let len = bytes.len() - start;
        if bytes.u64(start + 8) != len as u64 || !len.is_multiple_of(8) {
            let what = format!(
                "the section has {} bytes, the file {len}: it is cut short or longer",
                bytes.u64(start + 8)
            );
            return Err(damaged(what, start + 8));
        }
        let (names_at, count, names) = (bytes.u64(start + 16), bytes.u32(start + 24), bytes.u32(start + 28));
        let after = HEADER_BYTES as u64 + TABLE_BYTES as u64 * u64::from(count);
        if after > len as u64 || names_at < after || names_at > len as u64 {
            return Err(damaged(format!("{count} tables, names at {names_at}"), start + 16));
        }
        let mut tables: Vec<TableInfo> = Vec::new();
        for nth in 0..count as usize {
            let place = start + HEADER_BYTES + TABLE_BYTES * nth;
            let kind = bytes.u32(place + 4);
            let at = bytes.u64(place + 16);
            let table = TableInfo {
                id: bytes.u32(place),
                family: kind as u8,
                key_bits: (kind >> 16) as u16,
                entries: bytes.u64(place + 8),
                at: start.saturating_add(at.min(len as u64) as usize),
            };
            let is_known = match table.family {
                4 => table.key_bits == 32,
                6 => table.key_bits == 128,
                0 => (1..=2048).contains(&table.key_bits),
                _ => false,
            };
            let size =
                table.entries.checked_mul(table.entry_bytes() as u64).and_then(|size| size.checked_add(at));
            if !is_known
                || bytes.u32(place + 24) as usize != table.entry_bytes()
                || at < after
                || size.is_none_or(|end| end > names_at)
                || tables.last().is_some_and(|before| before.id >= table.id)
            {
                return Err(damaged(format!("description of table {}", table.id), place));
            }
            tables.push(table);
        }
        Ok(Self { path, bytes, start, names_at: start + names_at as usize, names, tables })
    }

    fn damaged(&self, what: String, at: usize) -> SnapshotError {
        SnapshotError::Damaged { path: self.path.into(), what, at: at as u64 }
    }

    /// Compares both checksums, the tables with those of the image, and checks every entry.
    pub fn verify(&self, image: &Report) -> Result<(), SnapshotError> {
        for (what, from, to, expected_at, field) in [
            ("image", 0, self.start, self.start + 32, None),
            ("section", self.start, self.bytes.len(), self.start + 36, Some(self.start + 36)),
        ] {
            let (found, expected) = (checksum(self.bytes, from, to, field), self.bytes.u32(expected_at));
            if found != expected {
                let what = format!("checksum of the {what}: {found:#010x}, expected {expected:#010x}");
                return Err(self.damaged(what, from));
            }
        }
        for (nth, table) in self.tables.iter().enumerate() {
            let is_it = |built: &TableReport| {
                (built.id, built.family, built.key_bits) == (table.id, table.family, table.key_bits)
                    && u64::from(built.prefixes) == table.entries
            };
            if !image.tables.iter().any(is_it) {
                let what = format!("table {} is not in the image as it is described", table.id);
                return Err(self.damaged(what, self.start + HEADER_BYTES + TABLE_BYTES * nth));
            }
            self.verify_table(table)?;
        }
        self.names().map(|_| ())
    }

    fn verify_table(&self, table: &TableInfo) -> Result<(), SnapshotError> {
        let (key_bytes, step) = (table.key_bytes(), table.entry_bytes());
        let mut before: Option<Vec<u8>> = None;
        let mut entry = std::vec![0; step];
        for nth in 0..table.entries as usize {
            let at = table.at + nth * step;
            self.bytes.copy_to(at, &mut entry);
            let (key, more) = entry.split_at_mut(key_bytes);
            let len = u16::from_le_bytes([more[0], more[1]]);
            let value = u32::from_le_bytes([more[2], more[3], more[4], more[5]]);
            let whole = usize::from(len / 8);
            let is_masked = len <= table.key_bits
                && key.get(whole).is_none_or(|byte| byte & (0xff >> (len % 8)) == 0)
                && key.iter().skip(whole + 1).all(|byte| *byte == 0);
            if !is_masked || !(1..=VALUE_MAX).contains(&value) {
                return Err(self.damaged(
                    format!("entry {} of table {}: length {len}, value {value}", nth + 1, table.id),
                    at,
                ));
            }
            // In this order lengths compare as bytes, too.
            [more[0], more[1]] = len.to_be_bytes();
            if let Some(before) = &mut before {
                if before[..] >= entry[..key_bytes + 2] {
                    return Err(
                        self.damaged(format!("entry {} of table {} is out of order", nth + 1, table.id), at)
                    );
                }
                before.copy_from_slice(&entry[..key_bytes + 2]);
            } else {
                before = Some(entry[..key_bytes + 2].to_vec());
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<BTreeMap<u32, String>, SnapshotError> {
        let mut names = BTreeMap::new();
        let mut at = self.names_at;
        for _ in 0..self.names {
            let mut head = [0; 8];
            self.bytes.copy_to(at, &mut head);
            let [a, b, c, d, e, f, g, h] = head;
            let (value, len) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
            let left = self.bytes.len().checked_sub(at + head.len());
            if left.is_none_or(|left| len > left) {
                return Err(self.damaged(format!("name of value {value} ends behind the file"), at));
            }
            let mut text = std::vec![0; len];
            self.bytes.copy_to(at + head.len(), &mut text);
            let text = String::from_utf8(text)
                .map_err(|_| self.damaged(format!("name of value {value}: not UTF-8"), at))?;
            names.insert(value, text);
            at += head.len() + len;
        }
        Ok(names)
    }

    pub fn contents(self) -> Result<Contents<'a>, SnapshotError> {
        let names = self.names()?;
        Ok(Contents { path: self.path, bytes: self.bytes, tables: self.tables, names })
    }
}

/// CRC-32C of bytes `from` ... `to`, multiples of 4, the word at `zero` taken as 0.
fn checksum(bytes: &Bytes, from: usize, to: usize, zero: Option<usize>) -> u32 {
    let mut crc = 0;
    let mut copy = Vec::with_capacity(4096);
    let mut at = from;
    for words in bytes.words()[from / 4..to / 4].chunks(1024) {
        copy.clear();
        for word in words {
            let bytes = if zero == Some(at) { [0; 4] } else { word.load(Ordering::Relaxed).to_ne_bytes() };
            copy.extend_from_slice(&bytes);
            at += 4;
        }
        crc = crc32c::crc32c_append(crc, &copy);
    }
    crc
}

/// The prefixes and names that the image of a snapshot was made from.
#[derive(Debug)]
pub struct Contents<'a> {
    path: &'a Path,
    bytes: &'a Bytes,
    tables: Vec<TableInfo>,
    names: BTreeMap<u32, String>,
}

impl<'a> Contents<'a> {
    /// The tables, by ascending id.
    pub fn tables(&self) -> &[TableInfo] {
        &self.tables
    }

    /// The names of values.
    pub fn names(&self) -> &BTreeMap<u32, String> {
        &self.names
    }

    /// The prefixes of table `id`; an error when there is none with keys of `A`.
    pub fn entries<A: Stored>(&self, id: u32) -> Result<Entries<'a, A>, SnapshotError> {
        self.entries_narrow(id, A::WIDTH)
    }

    /// As [`Contents::entries`] of a table of keys of `key_bits` bits, which stand in the first bits of those of `A`.
    pub fn entries_narrow<A: Stored>(&self, id: u32, key_bits: u16) -> Result<Entries<'a, A>, SnapshotError> {
        let is_it = |table: &&TableInfo| {
            table.id == id && (table.family, table.key_bits) == (A::FAMILY, key_bits) && key_bits <= A::WIDTH
        };
        match self.tables.iter().find(is_it) {
            Some(table) => Ok(Entries { bytes: self.bytes, table: *table, keys: PhantomData }),
            None => Err(SnapshotError::NoTable { path: self.path.into(), id, key_bits }),
        }
    }

    /// The prefixes of a table of these contents, in order, whatever its keys are.
    pub fn key_prefixes(&self, table: &TableInfo) -> impl Iterator<Item = (KeyPrefix, u32)> + 'a {
        let (bytes, table) = (self.bytes, *table);
        (0..table.entries as usize).map(move |nth| {
            table.entry(bytes, nth, |key, len, value| (KeyPrefix::truncated(key, len), value))
        })
    }
}

/// The prefixes of one table, in order, read from the file as the caller goes on.
#[derive(Debug, Clone, Copy)]
pub struct Entries<'a, A> {
    bytes: &'a Bytes,
    table: TableInfo,
    keys: PhantomData<A>,
}

impl<'a, A: Stored> Entries<'a, A> {
    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.table.entries as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `nth` in order. Panics when there are not so many.
    fn entry(&self, nth: usize) -> (Prefix<A>, u32) {
        debug_assert!(nth < self.len());
        let prefix = |key: &[u8], len, value| (Prefix::truncated(A::from_bytes(key), len), value);
        self.table.entry(self.bytes, nth, prefix)
    }

    /// All in order: by address, shorter first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + ExactSizeIterator + Clone + 'a {
        (0..self.len()).map(move |nth| self.entry(nth))
    }

    /// How many lie before `prefix`. O(log n).
    fn before(&self, prefix: Prefix<A>) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle).0 < prefix { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The value of exactly this prefix. O(log n).
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        let at = self.before(prefix);
        let (found, value) = (at < self.len()).then(|| self.entry(at))?;
        (found == prefix).then_some(value)
    }

    /// The longest prefix that contains `addr`. O(k log n), k being the number of lengths tried.
    pub fn longest(&self, addr: A) -> Option<(Prefix<A>, u32)> {
        self.longest_of(addr, A::WIDTH)
    }

    fn longest_of(&self, addr: A, most: u16) -> Option<(Prefix<A>, u32)> {
        let mut most = most;
        loop {
            let bound = Prefix::truncated(addr, most);
            let at = self.before(bound);
            let is_it = at < self.len() && self.entry(at).0 == bound;
            let (found, value) = if is_it { self.entry(at) } else { self.entry(at.checked_sub(1)?) };
            if found.len() <= most && found.contains(addr) {
                return Some((found, value));
            }
            // A prefix that contains `addr` and stands before `found` contains its address, too.
            most = found.addr().common_bits(addr).min(most.checked_sub(1)?);
        }
    }

    /// All prefixes that cover `prefix`, itself included, longest first.
    pub fn covering(self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> + 'a {
        let mut most = Some(prefix.len());
        std::iter::from_fn(move || {
            let found = self.longest_of(prefix.addr(), most?)?;
            most = found.0.len().checked_sub(1);
            Some(found)
        })
    }

    /// The prefixes that `outer` covers, itself included, in order. O(log n) to start.
    pub fn covered(self, outer: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> + 'a {
        let from = self.before(outer);
        (from..self.len()).map(move |nth| self.entry(nth)).take_while(move |(prefix, _)| outer.covers(prefix))
    }
}
