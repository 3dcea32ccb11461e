//! The way that every packet goes (`node.bpf.c` and its headers), and what loads, maps, pins and attaches it.

pub mod action;
pub mod action_map;
pub mod attachment;
pub mod counters;
pub mod damage;
pub mod error;
pub mod heartbeat;
pub mod layout;
pub mod load;
pub mod local_addrs;
pub mod maps;
pub mod options;
pub mod pins;
pub mod ports;
pub mod probe;
pub mod rules;
pub mod sys;
pub mod table_ids;
