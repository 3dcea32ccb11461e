//! The rules that hold the tree together and that no compiler checks: who may import whom, and what may not be committed.

mod imports;
mod tree;
