//! trieline as its user sees it: real binaries, real kernel routes, real packets.

// A failed expectation here is a failed test, also outside of functions marked as such.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod bed;
mod beside;
mod bond;
mod capture;
mod checksum;
mod churn;
mod devices;
mod draw;
mod errors;
mod exits;
mod faults;
mod filter;
mod forward;
mod function;
mod guard;
mod hooks;
mod lifecycle;
mod lpm_trie;
mod marks;
mod million;
mod mirror;
mod neighbour;
mod nexthop;
mod policy;
mod redirect;
mod restart;
mod routes;
mod rules;
mod scale;
mod settings;
mod srv6;
mod stale;
mod status;
mod table;
mod taken;
mod tenant;
mod told;
mod trace;
mod trace_devices;
mod trace_join;
mod trace_stamp;
mod vlan;
mod vrf;
