//! Which attributes and flags of routes, next hop objects and neighbours trieline knows. The kernel adds attributes over time, and one of
//! them may say that a packet goes elsewhere. So an attribute that no list here has makes the route the kernel's.

use super::attribute::{Attributes, read_u32};
use std::fmt;

/// A part of a route that trieline does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// An attribute (`RTA_*`).
    Attribute(u16),
    /// An attribute of a next hop in `RTA_MULTIPATH`.
    HopAttribute(u16),
    /// A metric (`RTAX_*`).
    Metric(u16),
    /// A feature in the metric `RTAX_FEATURES`.
    Features(u32),
    /// The metrics of each next hop of an IPv6 route: the kernel tells those of one.
    HopMetrics,
    /// Flags (`RTM_F_*`, `RTNH_F_*`).
    Flags(u32),
    /// A message whose parts do not fit.
    Damaged,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(kind) => write!(f, "route attribute {kind}"),
            Self::HopAttribute(kind) => write!(f, "next hop attribute {kind}"),
            Self::Metric(kind) => write!(f, "route metric {kind}"),
            Self::Features(bits) => write!(f, "route features {bits:#x}"),
            Self::HopMetrics => f.write_str("the metrics of each next hop: the kernel tells those of one"),
            Self::Flags(bits) => write!(f, "route flags {bits:#x}"),
            Self::Damaged => f.write_str("a damaged route message"),
        }
    }
}

/// Attributes of one kind of object.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// They decide what trieline does.
    followed: &'static [u16],
    /// They change nothing for a packet that is forwarded.
    harmless: &'static [u16],
}

impl Known {
    /// Whether an attribute is on one of the lists.
    pub fn has(&self, kind: u16) -> bool {
        self.followed.contains(&kind) || self.harmless.contains(&kind)
    }

    /// The first attribute that is on neither list.
    pub fn first_unknown(&self, mut attributes: Attributes<'_>) -> Option<u16> {
        attributes.find_map(|(kind, _)| (!self.has(kind)).then_some(kind))
    }
}

/// `RTA_*` of a route. The kernel writes the others only into answers about one packet, or of MPLS and multicast.
pub const ROUTE: Known = Known {
    // DST SRC OIF GATEWAY PRIORITY PREFSRC METRICS MULTIPATH CACHEINFO TABLE VIA ENCAP_TYPE ENCAP NH_ID
    followed: &[1, 2, 4, 5, 6, 7, 8, 9, 12, 15, 18, 21, 22, 30],
    // FLOW: realms, for netfilter and tc. PREF: chooses among routes of one metric, which are the kernel's. PAD.
    harmless: &[11, 20, 24],
};

/// `RTA_*` of a next hop in `RTA_MULTIPATH`.
pub const HOP: Known = Known {
    // GATEWAY VIA ENCAP_TYPE ENCAP
    followed: &[5, 18, 21, 22],
    // FLOW PAD
    harmless: &[11, 24],
};

/// `RTAX_*` of a route.
pub const METRICS: Known = Known {
    // MTU HOPLIMIT FEATURES
    followed: &[2, 10, METRIC_FEATURES],
    // Of the node's own connections: LOCK WINDOW RTT RTTVAR SSTHRESH CWND ADVMSS REORDERING INITCWND RTO_MIN INITRWND QUICKACK
    // CC_ALGO FASTOPEN_NO_COOKIE
    harmless: &[1, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 16, 17],
};

const METRIC_FEATURES: u16 = 12;
/// Of TCP: ECN, SACK, TIMESTAMP, TCP_USEC_TS. ALLFRAG, which old kernels have, is not among them: it fragments what is forwarded.
const FEATURES: u32 = 0x1 | 0x2 | 0x4 | 0x10;

/// `NHA_*` of a next hop object.
pub const NEXTHOP: Known = Known {
    // ID GROUP GROUP_TYPE BLACKHOLE OIF GATEWAY ENCAP_TYPE ENCAP FDB
    followed: &[1, 2, 3, 4, 5, 6, 7, 8, 11],
    // RES_GROUP: timers. OP_FLAGS: how to read weights. GROUP_STATS HW_STATS_ENABLE HW_STATS_USED: counters.
    harmless: &[12, 14, 15, 16, 17],
};

/// `NDA_*` of a neighbour.
pub const NEIGHBOUR: Known = Known {
    // DST LLADDR
    followed: &[1, 2],
    // CACHEINFO PROBES PROTOCOL FLAGS_EXT: age, and who keeps it
    harmless: &[3, 4, 12, 15],
};

/// `IFLA_VLAN_*` of a VLAN device.
pub const VLAN: Known = Known {
    // ID EGRESS_QOS PROTOCOL
    followed: &[1, 3, 5],
    // FLAGS: states of the device, which are followed as such. INGRESS_QOS: priorities, for EGRESS_QOS alone.
    harmless: &[2, 4],
};

/// `RTNH_F_*`: states of the moment (DEAD, OFFLOAD, LINKDOWN, UNRESOLVED, TRAP), PERVASIVE, which the kernel does not read, and ONLINK.
pub const HOP_FLAGS: u32 = 0x7f;

/// `RTM_F_*`, with those of a next hop in the low byte: NOTIFY, CLONED, EQUALIZE, PREFIX, LOOKUP_TABLE, FIB_MATCH, OFFLOAD, TRAP,
/// OFFLOAD_FAILED.
pub const ROUTE_FLAGS: u32 = HOP_FLAGS | 0xff00 | 0x2000_0000;

/// The part of a route's metrics (`RTA_METRICS`) that trieline does not know.
pub fn unknown_metric(metrics: Attributes<'_>) -> Option<Unknown> {
    let kind = METRICS.first_unknown(metrics.clone()).map(Unknown::Metric);
    let features = || metrics.clone().find(METRIC_FEATURES).and_then(read_u32).map(|bits| bits & !FEATURES);
    kind.or_else(|| features().filter(|bits| *bits != 0).map(Unknown::Features))
}
