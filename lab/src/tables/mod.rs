//! The tables that experiments run on: read from files, or generated in the Internet's shape.

pub mod destinations;
pub mod generate;
pub mod kinds;
pub mod reference;
mod shape;
pub mod source;

pub use source::{Source, Tables};
pub use trieline_testbed::random::Random;
