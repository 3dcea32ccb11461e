//! The kernel's processing that packets bypass when XDP forwards them: netfilter, traffic control, offloads, IPsec, other programs, receive
//! handlers.
//!
//! `netfilter`, `iptables` and `hooks` read what the kernel has; `reach` says which packets its rules can decide about. `state` is what was
//! read last, as decisions about routes ask for it; `scan` reads it all and names it. `rx_handlers` lists who takes a device's packets.

pub mod hooks;
pub mod iptables;
pub mod netfilter;
pub mod reach;
pub mod rx_handler_scan;
pub mod rx_handlers;
pub mod scan;
pub mod state;
