#![doc = include_str!("../README.md")]

#[doc(hidden)] // for libtrieline
pub mod deferred;
mod error;
mod grace;
mod image_map;
mod key;
mod lpm_trie;
mod pages;
#[doc(hidden)] // for the router
pub mod pins;
#[doc(hidden)] // for the router
pub mod probe;
#[doc(hidden)] // for the router
pub mod sys;
mod tables;
mod value;

pub use error::{Error, Result};
pub use grace::ReaderGrace;
pub use image_map::{ImageMap, ImageMapType, ImageMemory, Mapping};
pub use key::KeyType;
pub use lpm_trie::{Entries, LpmTrie, Reading};
pub use tables::{Options, Tables};
pub use value::ValueType;
