//! The kernel's netlink messages, decoded.
//!
//! Every decoder reads one message's payload and returns `None` for a message that is too short or of another
//! family. The kernel may add attributes and families at any time, so an unknown one is never an error. Where one could say that packets
//! go elsewhere, they are the kernel's: `known` has the lists.

pub mod addr;
pub mod attribute;
pub mod ethtool;
pub mod generic;
pub mod inet6;
pub mod kernel_hooks;
pub mod known;
pub mod link;
pub mod neigh;
pub mod netconf;
pub mod netdev;
pub mod nexthop;
pub mod optional;
pub mod route;
pub mod rule;
pub mod seg6;
pub mod socket;
pub mod traffic;
pub mod xfrm;

/// Message types of the route family (`linux/rtnetlink.h`).
pub mod message {
    /// A link was added or changed.
    pub const NEW_LINK: u16 = 16;
    /// A link is gone.
    pub const DEL_LINK: u16 = 17;
    /// Asks for links.
    pub const GET_LINK: u16 = 18;
    /// An address was added or changed.
    pub const NEW_ADDR: u16 = 20;
    /// An address is gone.
    pub const DEL_ADDR: u16 = 21;
    /// Asks for addresses.
    pub const GET_ADDR: u16 = 22;
    /// A route was added or replaced.
    pub const NEW_ROUTE: u16 = 24;
    /// A route is gone.
    pub const DEL_ROUTE: u16 = 25;
    /// Asks for routes.
    pub const GET_ROUTE: u16 = 26;
    /// A neighbour was added or changed.
    pub const NEW_NEIGH: u16 = 28;
    /// A neighbour is gone.
    pub const DEL_NEIGH: u16 = 29;
    /// Asks for neighbours.
    pub const GET_NEIGH: u16 = 30;
    /// A policy rule was added.
    pub const NEW_RULE: u16 = 32;
    /// A policy rule is gone.
    pub const DEL_RULE: u16 = 33;
    /// Asks for policy rules.
    pub const GET_RULE: u16 = 34;
    /// Asks for queueing disciplines.
    pub const GET_DISCIPLINE: u16 = 38;
    /// Asks for filters of traffic control.
    pub const GET_FILTER: u16 = 46;
    /// A device's forwarding settings changed.
    pub const NEW_NETCONF: u16 = 80;
    /// A device's forwarding settings are gone.
    pub const DEL_NETCONF: u16 = 81;
    /// A next hop object was added or replaced.
    pub const NEW_NEXTHOP: u16 = 104;
    /// A next hop object is gone.
    pub const DEL_NEXTHOP: u16 = 105;
    /// Asks for next hop objects.
    pub const GET_NEXTHOP: u16 = 106;
    /// Asks for forwarding settings.
    pub const GET_NETCONF: u16 = 82;
}

/// Address families as netlink writes them.
pub mod family {
    /// Any family.
    pub const UNSPEC: u8 = 0;
    /// IPv4.
    pub const INET: u8 = 2;
    /// IPv6.
    pub const INET6: u8 = 10;
}

/// A routing table: address family and number.
pub type TableKey = (u8, u32);

/// The table of the addresses that are the node's own.
pub const TABLE_LOCAL: u32 = 255;
/// The table that routes go to unless said otherwise.
pub const TABLE_MAIN: u32 = 254;
/// The table the kernel asks last; empty nearly everywhere.
pub const TABLE_DEFAULT: u32 = 253;
