//! The rules that hold the tree together and that no compiler checks: who may import whom, and files that may not be committed.

// A failed expectation here is a failed test, also outside of functions marked as such.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod constants;
mod docs;
mod help;
mod imports;
mod modules;
mod tree;
mod unsafe_sizes;
