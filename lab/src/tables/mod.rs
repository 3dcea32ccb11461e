//! The tables that experiments run on: read from files, or generated in the Internet's shape.

pub mod destinations;
pub mod generate;
pub mod kinds;
mod random;
pub mod reference;
mod shape;
pub mod source;

pub use random::Random;
pub use source::{Source, Tables};
