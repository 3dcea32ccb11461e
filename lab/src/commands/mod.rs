//! The commands of `trieline-lab`.

mod demo;
mod run;

pub use run::{Command, run};
