#![doc = include_str!("../README.md")]

mod cost;
mod decode;
mod error;
mod filter;
mod histogram;
mod hooks;
mod join;
mod layout;
mod record;
mod ring;
mod summary;
mod tracer;

pub use cost::{Cost, Delta, Effort, calibrate};
pub use decode::{Decode, Pattern};
pub use error::{Error, Result};
pub use filter::{Cgroup, Filter};
pub use hooks::{Leaves, Options, Refusal, Rung};
pub use join::{By, Counts, Joiner, Message};
pub use record::{Flags, IdAt, Point, Record, Transport};
pub use summary::{Stage, Summary};
pub use tracer::{Seen, Tracer};
