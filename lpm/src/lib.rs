//! Longest-prefix-match tables in one flat memory image that Rust and eBPF both walk while it is updated.
//!
//! The image (`include/trieline/image.h`, [`image::layout`]) is bytes in, bytes out: 32-bit offsets, no pointers. It lives
//! wherever a [`Memory`] puts it: the heap, a BPF arena, a memory-mapped BPF array. One writer ([`Image`], [`Table`]) changes
//! it; any number of readers ([`Reader`], the C header `trieline/lpm.h` in a BPF program) look addresses up meanwhile,
//! without locks. [`Grace`] is whoever waits until no reader can hold a replaced node.
//!
//! ```
//! use trieline_lpm::{HeapMemory, Image, NoReaders, Prefix, Table};
//!
//! let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 1)?;
//! let mut table = Table::<u32>::create(&mut image, 0, [("192.0.2.0/24".parse()?, 7)])?;
//! table.insert(&mut image, "192.0.2.128/25".parse()?, 8)?;
//! assert_eq!(image.reader().lookup4(0, 0xc000_02c8), Some(8)); // 192.0.2.200
//! assert_eq!(table.lookup(0xc000_0201), Some((Prefix::new(0xc000_0200, 24)?, 7)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod image;
#[cfg(feature = "std")]
pub mod io;
pub mod oracle;
mod prefix;
mod table;

pub use image::grace::{Grace, NoReaders};
pub use image::lookup::Reader;
pub use image::memory::{HeapMemory, Memory};
pub use image::{Error, Image, ImageStats};
pub use prefix::{Address, IpPrefix, Prefix, PrefixError};
pub use table::Table;
