#![doc = include_str!("../README.md")]

mod entry;
mod error;
mod handle;
mod kinds;
mod load;
mod table;
