//! The experiments by name.

pub mod forward;
