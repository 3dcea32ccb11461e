//! The kernel's state, mirrored: settings, rules, neighbours, and the routes of each table in the kernel's order.

pub mod dump;
mod expiry;
pub mod family;
pub mod kernel_state;
pub mod mirror;
pub mod nexthop_group;
pub mod policy;
pub mod resync;
pub mod table;
pub mod tenant;
