//! One page with every figure: the published works' figures F1 to F9, each with the published points and ours, then all documents whole.

mod age;
mod contents;
mod figures;
mod fill;
mod html;
mod markdown;
#[cfg(test)]
mod tests;

pub use age::Old;
pub use contents::{Page, State};
pub use figures::{FIGURES, Figure};
