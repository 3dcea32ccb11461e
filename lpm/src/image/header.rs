//! Reads and checks an image's header, before anything behind it is believed.

use super::error::Error;
use super::layout::{CHUNK, DIR_ENTRY, DIRECTORY, ImageHeader, MAGIC, VERSION};
use super::words;
use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

/// The largest image, bytes: what 32-bit offsets reach.
pub(super) const MOST: u64 = 1 << 32;

/// Reads and checks the header of the image in `words`.
pub(crate) fn header(words: &[AtomicU32]) -> Result<ImageHeader, Error> {
    let word = |at: usize| words::load(words, at as u32);
    // Entries of the directory are 64 bits.
    if !words.as_ptr().addr().is_multiple_of(8) {
        return Err(Error::Unaligned);
    }
    let magic = word(offset_of!(ImageHeader, magic));
    if magic != MAGIC {
        return Err(Error::NotAnImage { found: magic });
    }
    let version = word(offset_of!(ImageHeader, version));
    let at = offset_of!(ImageHeader, size);
    let header = ImageHeader {
        magic,
        version: version as u16,
        header_bytes: (version >> 16) as u16,
        size: u64::from(word(at)) | u64::from(word(at + 4)) << 32,
        tables: word(offset_of!(ImageHeader, tables)),
        generation: word(offset_of!(ImageHeader, generation)),
        ..ImageHeader::default()
    };
    if header.version != VERSION {
        return Err(Error::Version { found: header.version });
    }
    let damaged = |what, at| Err(Error::Damaged { what, at });
    // Offsets have 32 bits.
    if header.size > (words.len() as u64 * 4).min(MOST) || !header.size.is_multiple_of(u64::from(CHUNK)) {
        return damaged("size", offset_of!(ImageHeader, size) as u32);
    }
    if u64::from(DIRECTORY) + u64::from(DIR_ENTRY) * u64::from(header.tables) > header.size {
        return damaged("number of tables", offset_of!(ImageHeader, tables) as u32);
    }
    Ok(header)
}
