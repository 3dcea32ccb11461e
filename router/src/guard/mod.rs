//! Guards of what XDP must not bypass: netfilter, other programs and receive handlers of the kernel, filters and SID hooks behind tunnels.
//!
//! The packet's half is `guard.bpf.h`.

pub mod bypass;
pub mod rx_handler_scan;
pub mod rx_handlers;
