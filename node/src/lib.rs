//! Mirrors the kernel's links, addresses, neighbours and routes into trieline's tables.

pub mod answer;
pub mod bypass;
pub mod chain;
pub mod control;
pub mod daemon;
pub mod family;
pub mod filter;
pub mod function;
pub mod hint;
pub mod instance;
pub mod kernel;
pub mod ledger;
pub mod mirror;
pub mod path;
pub mod pcapng;
pub mod ports;
pub mod publish;
pub mod resolve;
pub mod rib;
pub mod room;
pub mod show;
pub mod status;
pub mod taken;
pub mod tenant;
pub mod views;
pub mod world;
