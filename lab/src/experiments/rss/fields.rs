//! The header fields that choose a queue, as the bytes that are hashed.

use serde::{Deserialize, Serialize};

use super::flows::Flow;
use crate::object::types::lab_rss_fields;

/// Which fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fields {
    /// None: one packet to each queue in turn, to see reordering.
    Packet,
    /// Both addresses (`ethtool` letters `sd`).
    Ip,
    /// Addresses and ports (`sdfn`).
    IpPorts,
    /// The addresses of the outer IPv6 header: all that most NICs hash of SRv6.
    Outer,
    /// With the outer flow label (RFC 6438).
    OuterLabel,
    /// Addresses and ports of the packet inside the tunnel.
    Inner,
}

impl Fields {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Fields::Packet => "packet",
            Fields::Ip => "ip",
            Fields::IpPorts => "ip-ports",
            Fields::Outer => "outer",
            Fields::OuterLabel => "outer-label",
            Fields::Inner => "inner",
        }
    }

    /// As the steering program knows it.
    pub(super) fn number(self) -> u32 {
        match self {
            Fields::Packet => lab_rss_fields::LAB_RSS_PACKET.0,
            Fields::Ip => lab_rss_fields::LAB_RSS_IP.0,
            Fields::IpPorts => lab_rss_fields::LAB_RSS_IP_PORTS.0,
            Fields::Outer => lab_rss_fields::LAB_RSS_OUTER.0,
            Fields::OuterLabel => lab_rss_fields::LAB_RSS_OUTER_LABEL.0,
            Fields::Inner => lab_rss_fields::LAB_RSS_INNER.0,
        }
    }

    /// The bytes of a flow that are hashed, in the order of Microsoft's specification: source, destination, ports. The flow label
    /// is not in that specification; here its four bytes follow the addresses.
    pub fn input(self, flow: &Flow) -> Vec<u8> {
        let mut input = Vec::with_capacity(super::toeplitz::INPUT_BYTES);
        match self {
            Fields::Packet => {}
            Fields::Ip | Fields::IpPorts | Fields::Inner => {
                input.extend(flow.source.octets());
                input.extend(flow.destination.octets());
                if self != Fields::Ip {
                    input.extend(flow.ports.iter().flat_map(|port| port.to_be_bytes()));
                }
            }
            Fields::Outer | Fields::OuterLabel => {
                input.extend(flow.outer.source.octets());
                input.extend(flow.outer.destination.octets());
                if self == Fields::OuterLabel {
                    input.extend(flow.outer.label.to_be_bytes());
                }
            }
        }
        input
    }
}
