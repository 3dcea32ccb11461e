#![doc = include_str!("../README.md")]

mod cost;
mod decode;
mod error;
mod filter;
mod hooks;
mod join;
mod layout;
mod payers;
mod record;
mod ring;
mod rings;
mod runtime;
mod sends;
mod stamps;
mod summary;
mod tracer;
mod usage;
mod user;

pub use cost::{Cost, Delta, Effort, Gate, Live, LiveCost, Rounds, TransportCost, calibrate};
pub use decode::{Decode, Decoded, Length, MessageId, Pattern};
pub use error::{Error, Result};
pub use filter::{Cgroup, Filter, sees_host_processes};
/// Times of a stage ([`Summary::stages`]), in nanoseconds.
pub use hdrhistogram::Histogram;
pub use hooks::{Backend, Client, Leaves, Options, Refusal};
pub use join::{By, Counts, Hop, HopCounts, Hops, Joiner, Message, Offset, Passes, offsets};
pub use payers::Payer;
pub use record::{Ends, Event, Flags, IdAt, Kind, Point, Record, Socket, Transport};
pub use rings::Rings;
pub use runtime::Runtime;
pub use stamps::{StampAt, Stamps};
pub use summary::{Part, Place, Stage, Summary};
pub use tracer::{Seen, Tracer};
pub use usage::Usage;
pub use user::{Probe, ProbeAt};
