#![doc = include_str!("../README.md")]
#![no_std]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod graph;
pub mod image;
#[cfg(feature = "std")]
pub mod io;
mod key;
pub mod map;
pub mod ops;
pub mod oracle;
mod prefetch;
mod prefix;
mod prefix_store;
#[cfg(test)]
mod random;
mod table;

pub use image::grace::{Both, Grace, NoReaders};
pub use image::lookup::{Reader, TableReader};
pub use image::memory::{HeapMemory, Memory};
pub use image::readers::{Epochs, Pinned, Readers, ThreadReader};
pub use image::{Error, Image, ImageStats};
pub use key::Key;
pub use map::{IpMap, Ipv4Map, Ipv6Map, Map};
pub use prefix::{Address, IpPrefix, Prefix, PrefixError};
pub use table::Table;
