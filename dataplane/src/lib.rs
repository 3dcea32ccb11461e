//! The XDP program of trieline and everything that loads, maps, pins and attaches it.
//!
//! Prefix tables live in an image ([`trieline_lpm`]) whose map type is a BPF arena or a memory-mapped BPF array ([`ImageMapType`]); each value
//! in them is the number of an [`Action`]; an action leads to a ready-made header ([`Adjacency`]). The XDP program
//! (`bpf/node.bpf.c`) walks all three without locks while one process, the owner of the [`Dataplane`], changes them.
//! Everything is pinned, so that forwarding goes on without the process and a new one takes it over.

mod action;
mod action_map;
mod actions;
mod capture;
mod counters;
mod csids;
mod dataplane;
mod error;
mod filters;
mod heartbeat;
pub mod kernel_hooks;
#[doc(hidden)] // public for the tests that compare layouts
pub mod layout;
mod load;
mod local_addrs;
mod options;
mod pins;
mod ports;
mod probe;
mod rules;
mod rx_handlers;
mod sid_hooks;
mod sids;
mod sys;
mod test_run;

pub use action::{Action, Adjacency, DropReason, Flavour, FlowLabel, Headend, PassReason};
pub use action_map::Used;
pub use actions::Actions;
pub use capture::{CAPTURE_ALL, Capture, CaptureCounts, CaptureOptions, Captured, SNAP_MAX};
pub use counters::{Counters, Kind, PortCount, VERDICTS, Verdict, VerdictCount};
pub use csids::{CsidMap, Csids, Steps};
pub use dataplane::{AttachMode, Attachment, Dataplane};
pub use error::{Error, Result};
pub use filters::{Filter, FilterAction, FilterCount, Filters};
pub use heartbeat::Heartbeat;
pub use local_addrs::{FlowKeys, LocalAddrBits, LocalAddrs};
pub use options::{Options, difference, pinned_options};
pub use pins::{PinnedMaps, abandon, detach_all, open_readonly, sweep};
pub use ports::{Port, PortFlags};
pub use probe::{Probe, probe, takes_redirects};
pub use rules::{MAIN4, MAIN6, RULES_MAX, Rule, RuleAction, Rules, VALUE_THROW, is_rules};
pub use rx_handlers::RxHandlers;
pub use sid_hooks::{SidHook, SidHooks, find_program};
pub use sids::SidCount;
pub use test_run::{Outcome, TestRun};
pub use trieline_bpf::{ImageMapType, ImageMemory, ReaderGrace};
