//! The forwarding node: mirrors the kernel's links, addresses, neighbours, rules and routes into prefix tables, and forwards by them in XDP.
//!
//! Prefix tables live in an image ([`trieline_lpm`]) whose map type is a BPF arena or a memory-mapped BPF array ([`ImageMapType`]). Each value
//! in them is the number of an [`Action`]; an action leads to a ready-made header ([`Adjacency`]). The XDP program
//! (`xdp/node.bpf.c`) walks all three without locks while one process, the owner of the [`Dataplane`], changes them.
//! Everything is pinned, so that forwarding goes on without the process and a new one takes it over.

pub mod api;
pub mod audit;
pub mod bypass;
pub mod capture;
pub mod daemon;
pub mod dataplane;
pub mod decoders;
pub mod drops;
pub mod fib;
pub mod filter;
pub mod kernel;
pub mod rib;
pub mod sid_hook;
pub mod srv6;
pub mod xdp;

pub use bypass::rx_handlers::RxHandlers;
pub use capture::ring::{CAPTURE_ALL, Capture, CaptureCounts, CaptureOptions, Captured, SNAP_MAX};
pub use dataplane::{
    Dataplane,
    actions::Actions,
    pinned_maps::{PinnedMaps, open_readonly},
    test_run::{Outcome, TestRun},
};
pub use filter::{
    maps::{Filter, FilterCount, Filters},
    rule::{FilterAction, FilterMatch, FilterRule},
};
pub use kernel::seg6::{CsidLengths, Endpoint, Flavours};
pub use sid_hook::{
    maps::{SidHook, SidHooks, find_program},
    rule::SidHookRule,
};
pub use srv6::csids::{CsidMap, Csids, Steps};
pub use srv6::sids::SidCount;
pub use trieline_bpf::{ImageMapType, ImageMemory, ReaderGrace};
#[doc(hidden)] // public for the tests that compare layouts
pub use xdp::layout;
pub use xdp::{
    action::{Action, Adjacency, DropReason, FlowLabel, Headend, PassReason, Target},
    action_map::Used,
    attachment::{AttachMode, Attachment},
    counters::{Counters, Kind, PortCount, VERDICTS, Verdict, VerdictCount},
    error::{Error, Result},
    heartbeat::Heartbeat,
    local_addrs::{FlowKeys, LocalAddrBits, LocalAddrs},
    options::{Options, difference, pinned_options},
    pins::{abandon, detach_all, sweep},
    ports::{Port, PortFlags},
    probe::{DriverXdp, Occupant, Probe, driver_xdp, occupant, probe, takes_redirects},
    rules::{RULES_MAX, Rule, RuleAction, Rules, VALUE_THROW, is_rules},
    table_ids::{TABLE4, TABLE6},
};
