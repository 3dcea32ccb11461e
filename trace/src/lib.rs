#![doc = include_str!("../README.md")]

mod backend;
mod check;
mod cost;
mod decode;
mod error;
mod filter;
mod hooks;
mod intf;
mod join;
mod layout;
mod options;
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

pub use backend::{Backend, Refusal};
pub use cost::{Cost, Effort, Live, LiveCost, TransportCost, calibrate};
pub use decode::{DECODERS, Decode, Decoded, Decoder, Length, MessageId, Pattern};
pub use error::{Error, Result};
pub use filter::{Cgroup, Filter, sees_host_processes};
/// Times of a stage ([`Summary::stages`]), in nanoseconds.
pub use hdrhistogram::Histogram;
pub use join::{By, Counts, Hop, HopCounts, Hops, Joiner, Message, Offset, Part, Passes, Place, offsets};
pub use options::{Client, Leaves, Options};
pub use payers::Payer;
pub use record::{Ends, Event, Flags, IdAt, Kind, Point, Record, Socket, Transport};
pub use rings::Rings;
pub use runtime::Runtime;
pub use stamps::{StampAt, Stamps};
pub use summary::{Stage, Summary};
pub use tracer::{Seen, Tracer};
pub use trieline_sampling::Median;
pub use usage::Usage;
pub use user::{Probe, ProbeAt};
