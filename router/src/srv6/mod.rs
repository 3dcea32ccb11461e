//! SRv6: from the kernel's seg6 routes to actions, compressed SIDs, and the counters of local SIDs.
//!
//! The packet's half: `srv6.bpf.h` chooses; `encap.bpf.h`, `decap.bpf.h` and `endpoint.bpf.h` do it.

pub mod csids;
pub mod resolve;
pub mod sids;
pub mod steps;
