//! The commands of `trieline-lab`.

mod all;
mod compare;
mod demo;
mod draw;
mod profile;
mod report;
mod run;

pub use run::{Command, run};
mod shared;
