//! Snapshots: an image in a file, mapped and used at once, with the prefixes it was made from.
//!
//! A program that builds a large table at each start can save it once instead. Opening checks the file, at the speed of reading it, and
//! builds nothing. Processes that open the same file share its memory. Every way to look up works as in any other image.
//!
//! ```
//! use trieline_lpm::IpMap;
//! use trieline_lpm::io::snapshot::{Builder, Snapshot};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("routes.img");
//! let routes = IpMap::from([("192.0.2.0/24".parse()?, 7), ("2001:db8::/32".parse()?, 8)]);
//! let mut builder = Builder::try_from(&routes)?; // IPv4 is table 0, IPv6 is table 1
//! builder.name(7, "upstream");
//! builder.save(&path)?;
//!
//! let snapshot = Snapshot::open(&path)?; // mapped and checked
//! assert_eq!(snapshot.reader().lookup4(0, 0xc000_0201), Some(7)); // 192.0.2.1
//! assert_eq!(snapshot.reader().lookup6(1, 0x2001_0db8 << 96), Some(8)); // 2001:db8::
//! assert_eq!(snapshot.contents()?.names()[&7], "upstream");
//! # Ok(()) }
//! ```
//!
//! Values are numbers from 1 to 2^31−1. [`Builder::table`] saves other tables: keys of any width, ids of one's own. The example of
//! [`Snapshot`] changes the table of a file again.
//!
//! **Checks.** [`Snapshot::open`] walks the whole image and compares both checksums. A CRC-32C finds every change within 32
//! bits in a row and, in files up to 256 MiB, every two flipped bits. Anything else by chance (bad disks, cut and mixed files) with
//! probability 1 − 2^−32. The checks are not a proof against intent. A program that can write the file can give it any answers, but cannot
//! lead a lookup outside it or make it run on.
//!
//! **To replace a snapshot, rename a new file over it** ([`Builder::save`] does). If a mapped file is cut short, the kernel ends processes
//! that touch the missing part (SIGBUS). A file that is overwritten changes under its readers.
//!
//! # The file
//!
//! An image holds what lookups need; what its tables were made from stands behind it, so that they can be listed, compared and
//! changed again. All numbers are little-endian, offsets are bytes.
//!
//! ```c
//! // 0                the image: header.size bytes, a multiple of 64 KiB (include/trieline/image.h)
//! // header.size      struct tl_snapshot: here begins the section; what follows has its offset from here
//! // 64               struct tl_snapshot_table [tables], by ascending id
//! // ...              the entries of each table
//! // names_at         names, by ascending value, one after the other; then zeros up to a multiple of 8
//!
//! struct tl_snapshot {
//!     __u32 magic;          // "TRIS", 0x53495254
//!     __u16 version;        // 1
//!     __u16 header_bytes;   // 64
//!     __u64 bytes;          // of the section, a multiple of 8; it ends the file
//!     __u64 names_at;
//!     __u32 tables;
//!     __u32 names;
//!     __u32 image_crc;      // CRC-32C of the image's bytes
//!     __u32 crc;            // CRC-32C of the section, this field taken as 0
//!     __u32 reserved[6];
//! };
//!
//! struct tl_snapshot_table {
//!     __u32 id;             // in the image's directory
//!     __u8 family;          // 4 = IPv4, 6 = IPv6, 0 = other keys
//!     __u8 reserved0;
//!     __u16 key_bits;       // 32, 128, or 1 .. 2048
//!     __u64 entries;
//!     __u64 at;             // of the first entry
//!     __u32 entry_bytes;    // key bytes + 6
//!     __u32 reserved1;
//! };
//!
//! // An entry, packed; entries ascend by key, then by length, and none occurs twice:
//! //     __u8 key[(key_bits + 7) / 8];  in network order, bits behind the length 0
//! //     __u16 length;                  bits of the prefix
//! //     __u32 value;                   1 .. 2^31-1
//! //
//! // A name, packed: what a value stands for (a next hop, a country):
//! //     __u32 value; __u32 bytes; __u8 text[bytes];   UTF-8
//! ```

mod build;
mod contents;
mod error;
mod map;

pub use build::{Builder, Saved};
pub use contents::{Contents, Entries, Stored, TableInfo};
pub use error::{MAGIC, SnapshotError, VERSION};

use crate::Reader;
use crate::image::verify::{Report, verify};
use crate::image::{self, layout};
use crate::io::format::Format;
use crate::io::list::PrefixList;
use contents::{HEADER_BYTES, Section};
use core::mem::offset_of;
use core::sync::atomic::AtomicU32;
use map::Bytes;
use std::path::{Path, PathBuf};

/// A table of an image, as its header describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// Id in the directory.
    pub id: u32,
    /// 4, 6 or 0.
    pub family: u8,
    /// Width of the keys.
    pub key_bits: u16,
    /// Key bits that index the root.
    pub root_bits: u16,
    /// Prefixes in the table.
    pub prefixes: u32,
}

/// A snapshot that is open for lookups, in memory that this process maps from its file.
///
/// ```
/// use trieline_lpm::io::snapshot::{Builder, Snapshot};
/// use trieline_lpm::{HeapMemory, Image, NoReaders, Table};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("table.img");
/// let mut builder = Builder::new();
/// builder.table::<u32>(0, [("192.0.2.0/24".parse()?, 7), ("192.0.2.128/25".parse()?, 8)])?;
/// builder.save(&path)?;
///
/// let snapshot = Snapshot::open(&path)?;
/// assert_eq!(snapshot.reader().lookup4(0, 0xc000_02c8), Some(8)); // 192.0.2.200
///
/// // The prefixes, and a table that can be changed again.
/// let contents = snapshot.contents()?;
/// let entries = contents.entries::<u32>(0)?;
/// assert_eq!(entries.longest(0xc000_02c8), Some(("192.0.2.128/25".parse()?, 8)));
/// let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 1)?;
/// let mut table = Table::<u32>::create(&mut image, 0, entries.iter())?;
/// table.remove(&mut image, &"192.0.2.128/25".parse()?)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    bytes: Bytes,
    image_bytes: usize,
}

impl Snapshot {
    /// Maps `path` read-only and checks all of it: the image step by step, both checksums, and that prefixes are sound and ascend.
    /// O(file), no memory beside the mapping. A bare image (without a section) is walked, too.
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        let snapshot = Self::open_unverified(path)?;
        snapshot.verify()?;
        Ok(snapshot)
    }

    /// Maps `path` read-only and looks at its headers only: O(1). Lookups stay inside the file and end, whatever its bytes are, but
    /// may give wrong answers where it is damaged. For who wrote the file himself.
    pub fn open_unverified(path: &Path) -> Result<Self, SnapshotError> {
        let bytes = Bytes::map(path).map_err(|source| SnapshotError::Io { path: path.into(), source })?;
        Self::of(path, bytes)
    }

    /// A snapshot that was read to the heap, such as one from standard input; `path` is for messages. Unverified.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, SnapshotError> {
        Self::of(path, Bytes::copy(bytes))
    }

    fn of(path: &Path, bytes: Bytes) -> Result<Self, SnapshotError> {
        let header = image::header::header(bytes.words());
        let header = header.map_err(|source| SnapshotError::Image { path: path.into(), source })?;
        Ok(Self { path: path.into(), bytes, image_bytes: header.size as usize })
    }

    /// Checks all of the file, as [`Snapshot::open`] does, and that the section describes the image's tables. Returns the parts of the
    /// image.
    pub fn verify(&self) -> Result<Report, SnapshotError> {
        let report = verify(self.words())
            .map_err(|source| SnapshotError::Image { path: self.path.clone(), source })?;
        if let Some(section) = self.section()? {
            section.verify(&report)?;
        }
        Ok(report)
    }

    /// Looks addresses up. Table ids are those it was built with.
    pub fn reader(&self) -> Reader<'_> {
        Reader::checked(self.words())
    }

    /// The image's words.
    pub fn words(&self) -> &[AtomicU32] {
        &self.bytes.words()[..self.image_bytes / 4]
    }

    /// Bytes of the image.
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes as u64
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file has the prefixes that the image was made from.
    pub fn has_prefixes(&self) -> bool {
        self.bytes.len() >= self.image_bytes + HEADER_BYTES && self.bytes.u32(self.image_bytes) == MAGIC
    }

    /// The prefixes and names. O(tables + names).
    pub fn contents(&self) -> Result<Contents<'_>, SnapshotError> {
        let section = self.section()?;
        section.ok_or_else(|| SnapshotError::NoPrefixes { path: self.path.clone() })?.contents()
    }

    /// The tables in the image's directory, as the headers of their roots describe them.
    pub fn directory(&self) -> impl Iterator<Item = Root> + '_ {
        let reader = self.reader();
        let tables = self.bytes.u32(offset_of!(layout::ImageHeader, tables));
        let tables = (0..tables).filter_map(move |id| Some((id, reader.table_word(id), reader.keys(id)?)));
        tables.map(|(id, word, keys)| {
            let header = ((word & !layout::DIR_BITS) as usize).saturating_sub(layout::LINE as usize);
            Root {
                id,
                family: keys.family,
                key_bits: keys.key_bits,
                root_bits: (word & layout::DIR_BITS) as u16,
                prefixes: self.bytes.u32(header + offset_of!(layout::TableHeader, prefixes)),
            }
        })
    }

    fn section(&self) -> Result<Option<Section<'_>>, SnapshotError> {
        if self.has_prefixes() {
            Section::new(&self.path, &self.bytes, self.image_bytes).map(Some)
        } else {
            Ok(None)
        }
    }

    /// All prefixes of the file, as from any other. Several tables of a family and width are laid over one another.
    pub fn to_list(&self) -> Result<PrefixList, SnapshotError> {
        let contents = self.contents()?;
        let mut list = PrefixList::new(Format::Snapshot);
        for table in contents.tables() {
            match table.family {
                4 => {
                    let entries = contents.entries::<u32>(table.id)?;
                    list.prefixes.v4.extend(entries.iter().map(|(prefix, value)| (prefix, Some(value))));
                }
                6 => {
                    let entries = contents.entries::<u128>(table.id)?;
                    list.prefixes.v6.extend(entries.iter().map(|(prefix, value)| (prefix, Some(value))));
                }
                _ => {
                    let prefixes = contents.key_prefixes(table);
                    let prefixes = prefixes.map(|(prefix, value)| (prefix, Some(value)));
                    list.keys.entry(table.key_bits).or_default().extend(prefixes);
                }
            }
        }
        list.names = contents.names().clone();
        Ok(list)
    }
}

/// Saves a list's prefixes, IPv4 as table 0 and IPv6 as table 1, with its names. Those without a value get 1.
pub fn save_list(path: &Path, list: &PrefixList) -> Result<Saved, SnapshotError> {
    let mut builder = Builder::new();
    let failed = |source| SnapshotError::Image { path: path.into(), source };
    let value = |value: Option<u32>| value.unwrap_or(1);
    builder
        .table(0, list.prefixes.v4.iter().map(|(prefix, with)| (*prefix, value(*with))))
        .map_err(failed)?;
    builder
        .table(1, list.prefixes.v6.iter().map(|(prefix, with)| (*prefix, value(*with))))
        .map_err(failed)?;
    for (value, name) in &list.names {
        builder.name(*value, name);
    }
    builder.save(path)
}

#[cfg(test)]
mod tests;
