//! Structures that others published, written anew from their papers: what trieline's own is measured against.
//!
//! They are for experiments and for readers of the papers, keep everything on the heap and borrow exclusively to change. Use
//! [`crate::Table`] or a map for work.

pub mod poptrie;

pub use poptrie::Poptrie;
