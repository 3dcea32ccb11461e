//! Makes snapshots: an image as small as its content, then what it was made from.

use super::contents::{ENTRY_MORE, HEADER_BYTES, Stored, TABLE_BYTES};
use super::error::{MAGIC, SnapshotError, VERSION};
use crate::image::layout::{CHUNK, VALUE_MAX};
use crate::io::Sink;
use crate::{Error, HeapMemory, Image, IpMap, Memory, NoReaders, Prefix, Table};
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// Slots of a directory that a snapshot may have.
const TABLES_MAX: u32 = 1 << 20;

/// Tables on their way into a snapshot; see [`super::Snapshot`] for an example.
#[derive(Debug, Default)]
pub struct Builder {
    tables: BTreeMap<u32, Packed>,
    names: BTreeMap<u32, String>,
}

/// The sizes of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Prefixes of all tables.
    pub prefixes: u64,
}

type Heap = Image<HeapMemory, NoReaders>;
type Create = fn(&Packed, u32, &mut Heap) -> Result<(), Error>;

/// A table's prefixes as the section holds them, and how to make the table of them.
#[derive(Debug)]
struct Packed {
    family: u8,
    key_bits: u16,
    count: usize,
    entries: Vec<u8>,
    create: Create,
}

impl Packed {
    fn new<A: Stored>(
        key_bits: u16,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<Self, Error> {
        let mut sorted: Vec<(Prefix<A>, u32)> = prefixes.into_iter().collect();
        // Stable: of equal prefixes the last counts.
        sorted.sort_by_key(|(prefix, _)| *prefix);
        sorted.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 = next.1;
            }
            is_same
        });
        let key_bytes = usize::from(key_bits).div_ceil(8);
        let mut entries = Vec::with_capacity(sorted.len() * (key_bytes + ENTRY_MORE));
        for (prefix, value) in &sorted {
            if !(1..=VALUE_MAX).contains(value) {
                return Err(Error::Value { value: *value });
            }
            if prefix.len() > key_bits {
                return Err(Error::TooLong { len: prefix.len(), key_bits });
            }
            for at in (0..key_bits).step_by(64) {
                let count = (key_bytes - usize::from(at / 8)).min(8);
                entries.extend_from_slice(&prefix.addr().word_at(at).to_be_bytes()[..count]);
            }
            entries.extend_from_slice(&prefix.len().to_le_bytes());
            entries.extend_from_slice(&value.to_le_bytes());
        }
        Ok(Self { family: A::FAMILY, key_bits, count: sorted.len(), entries, create: create::<A> })
    }

    fn key_bytes(&self) -> usize {
        usize::from(self.key_bits).div_ceil(8)
    }
}

/// Makes the table of packed entries.
fn create<A: Stored>(packed: &Packed, id: u32, image: &mut Heap) -> Result<(), Error> {
    let key_bytes = packed.key_bytes();
    let prefixes = packed.entries.chunks_exact(key_bytes + ENTRY_MORE).map(|entry| {
        let (key, more) = entry.split_at(key_bytes);
        let len = u16::from_le_bytes([more[0], more[1]]);
        let value = u32::from_le_bytes([more[2], more[3], more[4], more[5]]);
        (Prefix::truncated(A::from_bytes(key), len), value)
    });
    Table::<A>::create_narrow(image, id, packed.key_bits, prefixes).map(|_| ())
}

impl Builder {
    /// A snapshot without tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `prefixes` (any order; of equal ones the last counts) in as table `id`, replacing what it had. O(n log n), O(n) if sorted.
    pub fn table<A: Stored>(
        &mut self,
        id: u32,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<(), Error> {
        self.table_narrow(id, A::WIDTH, prefixes)
    }

    /// As [`Builder::table`], a table of keys of `key_bits` bits, as [`Table::create_narrow`] makes them.
    pub fn table_narrow<A: Stored>(
        &mut self,
        id: u32,
        key_bits: u16,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<(), Error> {
        if id >= TABLES_MAX {
            return Err(Error::NoSuchTable { id, tables: TABLES_MAX });
        }
        self.tables.insert(id, Packed::new(key_bits, prefixes)?);
        Ok(())
    }

    /// Names a value.
    pub fn name(&mut self, value: u32, name: &str) {
        self.names.insert(value, name.into());
    }

    /// Builds the image and writes `path` (`-` is standard output): aside, then renamed, so that other processes open the old file or the
    /// new one. The image's memory is built twice, the second time in no more chunks of 64 KiB than it needs.
    pub fn save(&self, path: &Path) -> Result<Saved, SnapshotError> {
        let image = self.image().map_err(|source| SnapshotError::Image { path: path.into(), source })?;
        let failed = |source| SnapshotError::Io { path: path.into(), source };
        let mut sink = Sink::create_plain(path).map_err(failed)?;
        let saved = self.write(&image, &mut sink).map_err(failed)?;
        sink.finish().map_err(failed)?;
        Ok(saved)
    }

    /// An image of all tables.
    fn image(&self) -> Result<Heap, Error> {
        let guess =
            self.tables.values().map(|table| (table.count * (8 + 4 * table.key_bytes()) + (1 << 14)) as u64);
        let mut chunks = guess.sum::<u64>().div_ceil(CHUNK.into()).max(1) + 16;
        let most = (1u64 << 32) / u64::from(CHUNK);
        let first = loop {
            match self.build(chunks.min(most)) {
                Err(Error::Full { .. } | Error::Size { .. }) if chunks < most => chunks *= 2,
                built => break built?,
            }
        };
        let stats = first.stats();
        for chunks in stats.claimed / u64::from(CHUNK)..stats.size / u64::from(CHUNK) {
            match self.build(chunks) {
                Err(Error::Full { .. } | Error::Size { .. }) => {}
                built => return built,
            }
        }
        Ok(first)
    }

    fn build(&self, chunks: u64) -> Result<Heap, Error> {
        let tables = self.tables.last_key_value().map_or(1, |(id, _)| id + 1);
        let memory = HeapMemory::new(chunks as usize * CHUNK as usize);
        let mut image = Image::create(memory, NoReaders::default(), tables)?;
        for (id, table) in &self.tables {
            (table.create)(table, *id, &mut image)?;
        }
        Ok(image)
    }

    fn write(&self, image: &Heap, to: &mut impl Write) -> std::io::Result<Saved> {
        let words = image.memory.words();
        let mut crc = 0;
        let mut chunk = Vec::with_capacity(CHUNK as usize);
        for words in words.chunks(CHUNK as usize / 4) {
            chunk.clear();
            for word in words {
                chunk.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            crc = crc32c::crc32c_append(crc, &chunk);
            to.write_all(&chunk)?;
        }
        let image_bytes = words.len() as u64 * 4;
        let section = self.section(crc);
        to.write_all(&section)?;
        let file_bytes = image_bytes + section.len() as u64;
        let prefixes = self.tables.values().map(|table| table.count as u64).sum();
        Ok(Saved { image_bytes, file_bytes, prefixes })
    }

    fn section(&self, image_crc: u32) -> Vec<u8> {
        let tables_end = HEADER_BYTES + TABLE_BYTES * self.tables.len();
        let names_at = tables_end + self.tables.values().map(|table| table.entries.len()).sum::<usize>();
        let names: usize = self.names.values().map(|name| 8 + name.len()).sum();
        let bytes = (names_at + names).next_multiple_of(8);
        let mut section = Vec::with_capacity(bytes);
        section.extend(MAGIC.to_le_bytes());
        section.extend(VERSION.to_le_bytes());
        section.extend((HEADER_BYTES as u16).to_le_bytes());
        section.extend((bytes as u64).to_le_bytes());
        section.extend((names_at as u64).to_le_bytes());
        section.extend((self.tables.len() as u32).to_le_bytes());
        section.extend((self.names.len() as u32).to_le_bytes());
        section.extend(image_crc.to_le_bytes());
        let crc_at = section.len();
        section.resize(HEADER_BYTES, 0);
        let mut at = tables_end;
        for (id, table) in &self.tables {
            section.extend(id.to_le_bytes());
            section.extend([table.family, 0]);
            section.extend(table.key_bits.to_le_bytes());
            section.extend((table.count as u64).to_le_bytes());
            section.extend((at as u64).to_le_bytes());
            section.extend(((table.key_bytes() + ENTRY_MORE) as u32).to_le_bytes());
            section.extend([0; 4]);
            at += table.entries.len();
        }
        for table in self.tables.values() {
            section.extend_from_slice(&table.entries);
        }
        for (value, name) in &self.names {
            section.extend(value.to_le_bytes());
            section.extend((name.len() as u32).to_le_bytes());
            section.extend(name.as_bytes());
        }
        section.resize(bytes, 0);
        let crc = crc32c::crc32c(&section);
        section[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        section
    }
}

impl TryFrom<&IpMap<u32>> for Builder {
    type Error = Error;

    /// A snapshot of a map's prefixes: IPv4 as table 0, IPv6 as table 1. An error: a value that is not 1 to 2^31−1. O(n).
    fn try_from(map: &IpMap<u32>) -> Result<Self, Error> {
        let mut builder = Self::new();
        builder.table(0, map.v4.iter().map(|(prefix, value)| (prefix, *value)))?;
        builder.table(1, map.v6.iter().map(|(prefix, value)| (prefix, *value)))?;
        Ok(builder)
    }
}
