//! The XDP program of trieline and everything that loads, maps, pins and attaches it.
//!
//! Prefix tables live in an image ([`trieline_lpm`]) whose home is a BPF arena or a memory-mapped BPF array ([`Home`]); each value
//! in them is the number of an [`Action`]; an action leads to a ready-made header ([`Adjacency`]). The XDP program
//! (`bpf/node.bpf.c`) walks all three without locks while one process, the owner of the [`Dataplane`], changes them.
//! Everything is pinned, so that forwarding goes on without the process and a new one takes it over.

mod actions;
pub mod beside;
mod capture;
mod counters;
mod csids;
mod dataplane;
mod error;
mod fib;
mod filters;
mod functions;
mod handlers;
#[doc(hidden)] // public for the tests that compare layouts
pub mod layout;
mod life;
mod load;
mod options;
mod own;
mod pins;
mod ports;
mod probe;
mod records;
mod rules;
mod sids;
mod sys;
mod trial;

pub use actions::Actions;
pub use capture::{CAPTURE_ALL, Capture, CaptureCounts, CaptureOptions, Captured, SNAP_MAX};
pub use counters::{Counters, Kind, PortCount, VERDICTS, Verdict, VerdictCount};
pub use csids::{CsidMap, Csids, Steps};
pub use dataplane::{AttachMode, Attachment, Dataplane};
pub use error::{Error, Result};
pub use fib::{Action, Adjacency, DropReason, Flavour, FlowLabel, Headend, PassReason};
pub use filters::{Filter, FilterAction, FilterCount, Filters};
pub use functions::{Function, Functions, find_program};
pub use handlers::Handlers;
pub use life::Life;
pub use options::{Options, difference, pinned_options};
pub use own::{FlowKeys, OwnAddresses, OwnBits};
pub use pins::{View, abandon, detach_all, open_readonly, sweep};
pub use ports::{Port, PortFlags};
pub use probe::{Probe, probe, takes_redirects};
pub use records::Used;
pub use rules::{MAIN4, MAIN6, RULES_MAX, Rule, Rules, Then, VALUE_THROW, is_rules};
pub use sids::SidCount;
pub use trial::{Outcome, Trial};
pub use trieline_bpf::{Home, ImageMemory, ReaderGrace};
