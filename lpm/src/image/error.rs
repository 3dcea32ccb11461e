//! Errors of an image and its tables, each with a way out.

use super::layout::{MAGIC, VERSION};

/// The error of making or changing an image or a table. Nothing has changed when one of these is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No memory left, also after waiting for a grace period.
    #[error(
        "the image is full: {needed} more bytes do not fit into its {size} bytes; {waiting} of them wait for \
         readers to end"
    )]
    Full {
        /// Bytes that were needed.
        needed: u64,
        /// Size of the image.
        size: u64,
        /// Bytes that were replaced, and that readers which have not ended may hold.
        waiting: u64,
    },
    /// The memory cannot hold an image.
    #[error(
        "invalid size {size} for an image of {tables} tables: expected a multiple of 64 KiB from {least} bytes to 4 GiB"
    )]
    Size {
        /// Bytes given.
        size: u64,
        /// Tables asked for.
        tables: u32,
        /// Bytes it takes at least.
        least: u64,
    },
    /// A table id outside the directory.
    #[error("invalid table id {id}: expected one below {tables}, the slots of the image's directory")]
    NoSuchTable {
        /// The id given.
        id: u32,
        /// Slots in the directory.
        tables: u32,
    },
    /// A value outside 1 ... 2^31-1.
    #[error("invalid value {value}: expected 1 to 2147483647")]
    Value {
        /// The value given.
        value: u32,
    },
    /// A table for keys of so many bits cannot be made of keys of this type.
    #[error("keys of {bits} bits do not fit into a table for keys of {most}")]
    KeyBits {
        /// Bits asked for.
        bits: u16,
        /// Bits of the type.
        most: u16,
    },
    /// A prefix is longer than the table's keys.
    #[error("a prefix of {len} bits in a table for keys of {key_bits}")]
    TooLong {
        /// Length of the prefix.
        len: u16,
        /// Width of the table's keys.
        key_bits: u16,
    },
    /// All reader slots have a reader.
    #[error("all {slots} reader slots are taken")]
    NoSlot {
        /// Slots in all.
        slots: usize,
    },
    /// The memory holds something else.
    #[error("not a trieline image: it begins with {found:#010x}, expected {MAGIC:#010x}")]
    NotAnImage {
        /// The first word.
        found: u32,
    },
    /// The image is of another version.
    #[error("cannot read image version {found}: this program reads version {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// The image is where it cannot be read in place.
    #[error("cannot use the image: it does not begin at a multiple of 8 bytes in memory")]
    Unaligned,
    /// The table is not the image's: it belongs to another image, its id has been given to another table, or it was removed.
    #[error(
        "table {id} is not this image's any more: it was removed or made again, or it belongs to another image; \
         make it with `Table::create`"
    )]
    Stale {
        /// Its id.
        id: u32,
    },
    /// The image contradicts itself.
    #[error("damaged image: {what} at byte {at}")]
    Damaged {
        /// The defect.
        what: &'static str,
        /// Offset in the image.
        at: u32,
    },
}
