//! Actions and adjacencies: what the values in the prefix tables stand for.
//!
//! The XDP program reads `actions[value]` as one word and follows it to `adjacencies[index]`. A new record is written where no
//! action leads to, then the word is stored; the record before is used again after a grace period. So a packet sees the
//! whole old or the whole new header, and no route's value changes when a neighbour does.

use crate::kernel::seg6::{CsidLengths, Endpoint, Flavours};
use crate::xdp::counters::Verdict;
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_action_kind as Kind, tl_limits, tl_verdict};
use serde::{Deserialize, Serialize};

/// Bytes of an IPv6 header.
const IPV6: usize = 40;

/// The treatment of packets whose longest match has this action's number as its value. SRv6 by RFC 8986, as Linux does it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The kernel does it.
    Pass(PassReason),
    /// Dropped.
    Drop(DropReason),
    /// Forwarded, to a gateway.
    Forward(Adjacency),
    /// Forwarded, to the destination itself: it is on the link. XDP leaves a source to the kernel if the kernel may tell it of shorter ways
    /// ([`crate::PortFlags::redirects4`]).
    Deliver(Adjacency),
    /// SRv6 H.Encaps, H.Encaps.Red (5.1, 5.2) or those of L2 (5.3, 5.4): an outer header is pushed.
    Encaps {
        /// Towards the first segment. `mtu` is that of the encapsulated packet.
        adjacency: Adjacency,
        /// IPv6 header and, but for a reduced one with one segment, SRH, as they leave over an IPv4 packet. They have 40 bytes, or
        /// 48 and 16 for each segment. The payload length and the last next header are filled in for each packet. Over an IPv6
        /// packet, traffic class, flow label and hop limit are too.
        outer: Vec<u8>,
        /// The packet's part that goes inside, and the flow label.
        headend: Headend,
    },
    /// H.Insert: an SRH is put into IPv6 packets.
    Insert {
        /// Towards the first segment.
        adjacency: Adjacency,
        /// IPv6 header and SRH; of the header only the destination counts.
        outer: Vec<u8>,
    },
    /// An SRv6 endpoint behaviour.
    Endpoint {
        /// Which.
        endpoint: Endpoint,
        /// Its flavours.
        flavours: Flavours,
        /// Where its packets go.
        target: Target,
    },
    /// Looked up again, by another lookup id ([`crate::Rules`]), whose action is the packet's; not more than once.
    Table(u32),
    /// A group of equal cost: a flow takes one of its members, each its share of the flows by its weight. None is itself a group.
    Group(Vec<(u16, Action)>),
}

/// Where the packets of an endpoint go. Each behaviour takes some of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Where the port's table says: the next segment (End), or the packet inside (End.DX4, End.DX6 without a next hop).
    Port,
    /// To this neighbour.
    Adjacency(Adjacency),
    /// Where this table says; for a cross-connect (End.DX4, End.DX6), the VRF that its next hop is in.
    Lookup(u32),
    /// Where the table of the inner packet's family says.
    Lookups {
        /// Number of the table for IPv4.
        ipv4: u32,
        /// Number of the table for IPv6.
        ipv6: u32,
    },
    /// The inner frame leaves by this device.
    Device {
        /// Its number.
        ifindex: u32,
        /// Longest packet in such a frame.
        mtu: u16,
    },
    /// An SRH is inserted.
    Insert {
        /// As [`Action::Insert`].
        adjacency: Adjacency,
        /// As [`Action::Insert`].
        outer: Vec<u8>,
    },
    /// An outer header is pushed.
    Encaps {
        /// As [`Action::Encaps`].
        adjacency: Adjacency,
        /// As [`Action::Encaps`].
        outer: Vec<u8>,
        /// As [`Action::Encaps`].
        headend: Headend,
    },
}

/// Differences of a headend from the default H.Encaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Headend {
    /// The whole frame goes inside.
    pub l2: bool,
    /// The source of the outer flow label.
    pub label: FlowLabel,
    /// As RFC 8986 (5.1) and RFC 6040 (4.1) say, where Linux does otherwise. The outer header keeps its hop limit, its class
    /// is the inner one, and the packet inside is a hop older. A frame inside stays as it came; its ECN is not copied.
    pub rfc: bool,
}

/// The outer flow label, by sysctl `seg6_flowlabel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowLabel {
    /// 0: an IPv6 packet's own, otherwise 0.
    #[default]
    Inner,
    /// −1: 0.
    Zero,
    /// 1: a hash of the flow.
    Hash,
}

/// The reason why the kernel gets a packet that a route matches; in JSON by the name of its verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassReason {
    /// Address of this node.
    Local,
    /// Unreachable route: the kernel answers.
    Unreachable,
    /// Prohibit route: the kernel answers.
    Prohibit,
    /// The next hop's link-layer address is not known: the kernel resolves it.
    Unresolved,
    /// A route only the kernel can follow.
    #[default]
    Unsupported,
    /// The output device is not given to the dataplane.
    NoDevice,
    /// The output device takes no redirected frames at present.
    NoXdpXmit,
    /// The output device is down or without carrier.
    NoCarrier,
    /// No room for one more next hop or table.
    TableFull,
    /// A policy rule only the kernel can follow.
    Rule,
    /// End.DX4 with an on-link next hop, in whose place Linux asks for the inner destination.
    OnLink,
}

/// The reason why XDP drops a packet that a route matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Blackhole route.
    Blackhole,
}

/// Next hop on a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Adjacency {
    /// Device that sends: for a VLAN device the one below it, with `vlan`. Must be given to the dataplane
    /// ([`crate::Dataplane::set_device`]).
    pub ifindex: u32,
    /// Largest IP packet.
    pub mtu: u16,
    /// MAC address of the next hop.
    pub destination: [u8; 6],
    /// MAC address of the device.
    pub source: [u8; 6],
    /// 802.1Q tag to send with, 1 … 4094.
    pub vlan: Option<u16>,
}

/// The parts that a target is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Port,
    Adjacency,
    Lookup,
    Lookups,
    Device,
    Insert,
    Encaps,
}

impl Target {
    fn shape(&self) -> Shape {
        match self {
            Target::Port => Shape::Port,
            Target::Adjacency(_) => Shape::Adjacency,
            Target::Lookup(_) => Shape::Lookup,
            Target::Lookups { .. } => Shape::Lookups,
            Target::Device { .. } => Shape::Device,
            Target::Insert { .. } => Shape::Insert,
            Target::Encaps { .. } => Shape::Encaps,
        }
    }
}

/// Each behaviour with the targets that it takes, and what the XDP program calls that. The attributes that the kernel takes for it are in
/// `kernel::seg6`.
const ENDPOINT_KINDS: [(Endpoint, Shape, Kind); 15] = [
    (Endpoint::End, Shape::Port, Kind::TL_ACTION_END),
    (Endpoint::EndX, Shape::Adjacency, Kind::TL_ACTION_END_X),
    (Endpoint::EndT, Shape::Lookup, Kind::TL_ACTION_END_T),
    (Endpoint::EndDx2, Shape::Device, Kind::TL_ACTION_END_DX2),
    (Endpoint::EndDx4, Shape::Adjacency, Kind::TL_ACTION_END_DX4),
    (Endpoint::EndDx4, Shape::Port, Kind::TL_ACTION_END_DX4_TABLE),
    (Endpoint::EndDx4, Shape::Lookup, Kind::TL_ACTION_END_DX4_VRF),
    (Endpoint::EndDx6, Shape::Adjacency, Kind::TL_ACTION_END_DX6),
    (Endpoint::EndDx6, Shape::Port, Kind::TL_ACTION_END_DX6_TABLE),
    (Endpoint::EndDx6, Shape::Lookup, Kind::TL_ACTION_END_DX6_VRF),
    (Endpoint::EndDt4, Shape::Lookup, Kind::TL_ACTION_END_DT4),
    (Endpoint::EndDt6, Shape::Lookup, Kind::TL_ACTION_END_DT6),
    (Endpoint::EndDt46, Shape::Lookups, Kind::TL_ACTION_END_DT46),
    (Endpoint::EndB6, Shape::Insert, Kind::TL_ACTION_END_B6),
    (Endpoint::EndB6Encaps, Shape::Encaps, Kind::TL_ACTION_END_B6_ENCAPS),
];

/// The kind of action; `None`: the behaviour does not take that target.
pub(crate) fn endpoint_kind(endpoint: Endpoint, target: &Target) -> Option<Kind> {
    let found = ENDPOINT_KINDS.iter().find(|row| (row.0, row.1) == (endpoint, target.shape()))?;
    Some(found.2)
}

/// The behaviour and its target's shape of a kind of action; `None`: the kind is not an endpoint's.
pub(crate) fn endpoint_of(kind: Kind) -> Option<(Endpoint, Shape)> {
    ENDPOINT_KINDS.iter().find(|row| row.2 == kind).map(|(endpoint, shape, _)| (*endpoint, *shape))
}

pub(crate) const PASS: [(PassReason, tl_verdict); 11] = [
    (PassReason::Local, tl_verdict::TL_PASS_LOCAL),
    (PassReason::Unreachable, tl_verdict::TL_PASS_UNREACHABLE),
    (PassReason::Prohibit, tl_verdict::TL_PASS_PROHIBIT),
    (PassReason::Unresolved, tl_verdict::TL_PASS_UNRESOLVED),
    (PassReason::Unsupported, tl_verdict::TL_PASS_UNSUPPORTED),
    (PassReason::NoDevice, tl_verdict::TL_PASS_NO_DEVICE),
    (PassReason::NoXdpXmit, tl_verdict::TL_PASS_NO_XDP_XMIT),
    (PassReason::NoCarrier, tl_verdict::TL_PASS_NO_CARRIER),
    (PassReason::TableFull, tl_verdict::TL_PASS_TABLE_FULL),
    (PassReason::Rule, tl_verdict::TL_PASS_RULE),
    (PassReason::OnLink, tl_verdict::TL_PASS_ON_LINK),
];

impl PassReason {
    pub(crate) fn verdict(self) -> u8 {
        PASS.iter().find(|(reason, _)| *reason == self).map_or(0, |(_, verdict)| verdict.0 as u8)
    }

    /// Name of the verdict its packets are counted under.
    pub fn name(self) -> &'static str {
        Verdict::of(self.verdict().into()).map_or("", |verdict| verdict.name)
    }
}

impl DropReason {
    pub(crate) fn verdict(self) -> u8 {
        match self {
            DropReason::Blackhole => tl_verdict::TL_DROP_BLACKHOLE.0 as u8,
        }
    }

    /// Name of the verdict its packets are counted under.
    pub fn name(self) -> &'static str {
        Verdict::of(self.verdict().into()).map_or("", |verdict| verdict.name)
    }
}

impl Action {
    /// An endpoint behaviour without flavours.
    pub fn endpoint(endpoint: Endpoint, target: Target) -> Self {
        Action::Endpoint { endpoint, flavours: Flavours::default(), target }
    }

    /// Whether it belongs to a SID, whose packets are counted.
    pub fn is_endpoint(&self) -> bool {
        match self {
            Action::Endpoint { .. } => true,
            Action::Group(members) => members.iter().any(|(_, member)| member.is_endpoint()),
            _ => false,
        }
    }

    /// Whether the XDP program can do it.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Action::Encaps { adjacency, outer, .. } => {
                check_outer(outer, IPV6)?;
                check_vlan(adjacency)
            }
            Action::Insert { adjacency, outer } => {
                check_outer(outer, IPV6 + 8 + 16)?;
                check_vlan(adjacency)
            }
            Action::Forward(adjacency) | Action::Deliver(adjacency) => check_vlan(adjacency),
            Action::Endpoint { endpoint, flavours, target } => {
                check_flavours(*endpoint, flavours)?;
                target.check(*endpoint)
            }
            Action::Group(members) => {
                let fits = 1..=tl_limits::TL_BUCKETS.0 as usize;
                if !fits.contains(&members.len())
                    || members.iter().any(|(weight, member)| {
                        *weight == 0 || matches!(member, Action::Group(_) | Action::Table(_))
                    })
                {
                    return Err(Error::argument(format!(
                        "group of {} members: must be 1 to {}, no groups, weights from 1",
                        members.len(),
                        fits.end()
                    )));
                }
                members.iter().try_for_each(|(_, member)| member.check())
            }
            _ => Ok(()),
        }
    }
}

impl Target {
    fn check(&self, endpoint: Endpoint) -> Result<()> {
        if endpoint_kind(endpoint, self).is_none() {
            return Err(Error::argument(format!("{} does not take {self:?}", endpoint.name())));
        }
        match self {
            Target::Encaps { adjacency, outer, .. } => {
                check_outer(outer, IPV6)?;
                check_vlan(adjacency)
            }
            Target::Insert { adjacency, outer } => {
                check_outer(outer, IPV6 + 8 + 16)?;
                check_vlan(adjacency)
            }
            Target::Adjacency(adjacency) => check_vlan(adjacency),
            _ => Ok(()),
        }
    }
}

/// Whether the XDP program can do these flavours of a behaviour.
pub(crate) fn check_flavours(endpoint: Endpoint, flavours: &Flavours) -> Result<()> {
    let can = match endpoint {
        Endpoint::End => Flavours { next_csid: flavours.next_csid, ..Flavours::PSP },
        // The program could do PSP, too; Linux has it for End only.
        Endpoint::EndX => Flavours { next_csid: flavours.next_csid, ..Flavours::default() },
        _ => Flavours::default(),
    };
    if let Some(flavour) = flavours.names().iter().find(|flavour| !can.names().contains(flavour)) {
        return Err(Error::argument(format!(
            "{} has no flavour {}",
            endpoint.name(),
            flavour.to_uppercase()
        )));
    }
    match flavours.next_csid {
        Some(CsidLengths { block, node_function })
            if block == 0 || node_function == 0 || u32::from(block) + u32::from(node_function) > 16 =>
        {
            Err(Error::argument(format!(
                "NEXT-C-SID lengths of {block} and {node_function} bytes: must be at least 1, together at most 16"
            )))
        }
        _ => Ok(()),
    }
}

fn check_vlan(adjacency: &Adjacency) -> Result<()> {
    if adjacency.vlan.is_some_and(|vid| !(1..=4094).contains(&vid)) {
        return Err(Error::argument(format!("VLAN {:?}: must be 1 to 4094", adjacency.vlan)));
    }
    Ok(())
}

/// A header to push: IPv6 alone or with an SRH of whole segments, at least `least` bytes.
fn check_outer(outer: &[u8], least: usize) -> Result<()> {
    let (len, most) = (outer.len(), tl_limits::TL_OUTER_LONG.0 as usize);
    let fits = (least..=most).contains(&len) && outer[0] >> 4 == 6;
    let srh = fits
        && (len == IPV6
            || (len >= IPV6 + 24
            && (len - IPV6) % 16 == 8
            && outer[6] == 43 // next header: routing
            && usize::from(outer[41]) == (len - IPV6) / 8 - 1 // SRH length
            && outer[42] == 4)); // routing type: segment routing
    if srh {
        Ok(())
    } else {
        Err(Error::argument(format!(
            "outer header of {len} bytes: must be IPv6 and an SRH of 1 to 32 segments"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_in_json_has_the_name_of_its_verdict() {
        for (reason, _) in PASS {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }

    #[test]
    fn flavours_that_the_program_cannot_do_are_refused() {
        let usd = Flavours { usd: true, ..Flavours::default() };
        let usp = Flavours { usp: true, ..Flavours::PSP };
        let both = Flavours { psp: true, ..Flavours::next_csid(4, 2) };
        let takes = |endpoint, flavours| check_flavours(endpoint, &flavours).is_ok();
        for flavours in [Flavours::default(), Flavours::PSP, Flavours::next_csid(4, 2), both] {
            assert!(takes(Endpoint::End, flavours), "{flavours:?}");
        }
        assert!(takes(Endpoint::EndX, Flavours::next_csid(4, 2)));
        for endpoint in [Endpoint::End, Endpoint::EndX, Endpoint::EndDx4] {
            assert!(!takes(endpoint, usd) && !takes(endpoint, usp), "{endpoint:?}");
        }
        assert!(!takes(Endpoint::EndX, Flavours::PSP) && !takes(Endpoint::EndT, Flavours::PSP));
        for (block, node_function) in [(0, 2), (4, 0), (12, 5)] {
            assert!(!takes(Endpoint::End, Flavours::next_csid(block, node_function)));
        }
    }

    #[test]
    fn a_behaviour_takes_its_own_targets_only() {
        assert_eq!(endpoint_kind(Endpoint::EndT, &Target::Lookup(1)), Some(Kind::TL_ACTION_END_T));
        assert_eq!(endpoint_kind(Endpoint::EndT, &Target::Port), None);
        for (endpoint, shape, kind) in ENDPOINT_KINDS {
            assert_eq!(endpoint_of(kind), Some((endpoint, shape)));
        }
        assert_eq!(endpoint_of(Kind::TL_ACTION_FORWARD), None);
    }
}
