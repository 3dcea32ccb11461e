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
mod sends;
mod summary;
mod tracer;

pub use cost::{Cost, Delta, Effort, calibrate};
pub use decode::{Decode, Decoded, Length, MessageId, Pattern};
pub use error::{Error, Result};
pub use filter::{Cgroup, Filter};
pub use hooks::{Leaves, Options, Refusal, Rung};
pub use join::{By, Counts, Joiner, Message};
pub use record::{Flags, IdAt, Kind, Point, Record, Transport};
pub use summary::{Stage, Summary};
pub use tracer::{Seen, Tracer};
