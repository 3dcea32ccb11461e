//! SRv6 as the kernel models it: encapsulation and endpoint behaviours hang on routes; the tunnel source is a setting.

use super::attribute::{Attributes, Request, read_address, read_u8, read_u32};
use super::family;
use super::generic;
use super::socket::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use trieline_dataplane::{Flavour, Steps};

/// A route's encapsulation or behaviour, besides forwarding (`RTA_ENCAP`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Encap {
    /// `encap seg6`: the packet is wrapped.
    Seg6 {
        /// How.
        mode: Mode,
        /// By which segments.
        list: SegmentList,
    },
    /// `encap seg6local`: an endpoint behaviour.
    Seg6Local(Behaviour),
    /// A kind of tunnel that is left to the kernel: `LWTUNNEL_ENCAP_*`.
    Other(u16),
}

impl Encap {
    /// How packets to such an endpoint are given another destination that stands in this one; `None`: they are not.
    pub fn steps(&self) -> Option<Steps> {
        match self {
            Self::Seg6Local(Behaviour::End { flavour } | Behaviour::EndX { flavour, .. }) => match *flavour {
                Flavour::NextCsid { block, node_function } => Some(Steps::Next { block, node_function }),
                Flavour::Plain | Flavour::Psp => None,
            },
            // Flavours or attributes that are not known here. The operator answers for a program's steps.
            Self::Seg6Local(Behaviour::Other(ACTION_END_BPF)) => None,
            Self::Seg6Local(Behaviour::Other(_)) | Self::Other(TYPE_SEG6_LOCAL) => Some(Steps::Unknown),
            _ => None,
        }
    }
}

/// The segments of an encapsulation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SegmentList {
    /// The SRH as the kernel pushes it, inner "next header" not yet filled in.
    pub srh: Vec<u8>,
    /// Segments in the order they are visited; where an SRH is inserted, the last is the place of the destination.
    pub segments: Vec<Ipv6Addr>,
}

/// Which routing table a decapsulated packet is looked up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TableRef {
    /// This one alone (`table`).
    Table(u32),
    /// That of the VRF that has this table (`vrftable`).
    Vrf(u32),
}

/// Mode of `encap seg6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// SRH inserted into the packet.
    Inline,
    /// H.Encaps: outer IPv6 header and SRH.
    Encap,
    /// H.Encaps.L2.
    L2Encap,
    /// H.Encaps.Red: the first segment only in the outer header.
    EncapRed,
    /// H.Encaps.L2.Red.
    L2EncapRed,
    /// One this program does not know.
    Unknown(u32),
}

impl Mode {
    /// As `ip route` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Encap => "encap",
            Self::L2Encap => "l2encap",
            Self::EncapRed => "encap.red",
            Self::L2EncapRed => "l2encap.red",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// An SRv6 endpoint behaviour (RFC 8986).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Behaviour {
    /// End.
    End {
        /// PSP or NEXT-C-SID.
        flavour: Flavour,
    },
    /// End.X.
    EndX {
        /// Where packets go on the way to their next segment.
        next_hop: Ipv6Addr,
        /// NEXT-C-SID.
        flavour: Flavour,
    },
    /// End.T: the next segment is looked up in this table.
    EndT {
        /// Its number.
        table: u32,
    },
    /// End.DX2: decapsulate and send the inner frame by a device.
    EndDx2 {
        /// Its number.
        device: u32,
    },
    /// End.DX4: decapsulate and forward the inner IPv4 packet as if it went to this address; 0.0.0.0 = to its own
    /// destination.
    EndDx4(Ipv4Addr),
    /// End.DX6: likewise an IPv6 packet.
    EndDx6(Ipv6Addr),
    /// End.DT4.
    EndDt4 {
        /// Where the inner packet is looked up.
        table: TableRef,
    },
    /// End.DT6.
    EndDt6 {
        /// Where the inner packet is looked up.
        table: TableRef,
    },
    /// End.DT46.
    EndDt46 {
        /// Where the inner packet is looked up.
        table: TableRef,
    },
    /// End.B6: another SRH is inserted.
    EndB6 {
        /// By which segments.
        list: SegmentList,
    },
    /// End.B6.Encaps: to the next segment, within an outer header.
    EndB6Encaps {
        /// By which segments.
        list: SegmentList,
    },
    /// A behaviour that is left to the kernel: `SEG6_LOCAL_ACTION_*`.
    Other(u32),
}

impl Behaviour {
    /// The tables that it looks up in by themselves, as (family, number).
    pub fn tables(&self) -> Vec<(u8, u32)> {
        match self {
            Self::EndT { table } => vec![(family::INET6, *table)],
            Self::EndDt4 { table: TableRef::Table(table) } => vec![(family::INET, *table)],
            Self::EndDt6 { table: TableRef::Table(table) } => vec![(family::INET6, *table)],
            Self::EndDt46 { table: TableRef::Table(table) } => {
                vec![(family::INET, *table), (family::INET6, *table)]
            }
            _ => Vec::new(),
        }
    }

    /// As `ip route` calls it.
    pub fn name(&self) -> &'static str {
        const NAMES: [&str; 17] = [
            "unspec",
            "End",
            "End.X",
            "End.T",
            "End.DX2",
            "End.DX6",
            "End.DX4",
            "End.DT6",
            "End.DT4",
            "End.B6",
            "End.B6.Encaps",
            "End.BM",
            "End.S",
            "End.AS",
            "End.AM",
            "End.BPF",
            "End.DT46",
        ];
        let number = self.number();
        NAMES.get(number as usize).copied().unwrap_or("unknown")
    }

    /// `SEG6_LOCAL_ACTION_*`.
    fn number(&self) -> u32 {
        match self {
            Self::End { .. } => ACTION_END,
            Self::EndX { .. } => ACTION_END_X,
            Self::EndT { .. } => ACTION_END_T,
            Self::EndDx2 { .. } => ACTION_END_DX2,
            Self::EndDx4(_) => ACTION_END_DX4,
            Self::EndDx6(_) => ACTION_END_DX6,
            Self::EndDt4 { .. } => ACTION_END_DT4,
            Self::EndDt6 { .. } => ACTION_END_DT6,
            Self::EndDt46 { .. } => ACTION_END_DT46,
            Self::EndB6 { .. } => ACTION_END_B6,
            Self::EndB6Encaps { .. } => ACTION_END_B6_ENCAPS,
            Self::Other(number) => *number,
        }
    }
}

const TYPE_SEG6: u16 = 5;
/// `RTA_ENCAP_TYPE` of endpoints.
pub(super) const TYPE_SEG6_LOCAL: u16 = 7;
const ACTION_END: u32 = 1;
const ACTION_END_X: u32 = 2;
const ACTION_END_T: u32 = 3;
const ACTION_END_DX2: u32 = 4;
const ACTION_END_DX6: u32 = 5;
const ACTION_END_DX4: u32 = 6;
const ACTION_END_DT6: u32 = 7;
const ACTION_END_DT4: u32 = 8;
const ACTION_END_B6: u32 = 9;
const ACTION_END_B6_ENCAPS: u32 = 10;
const ACTION_END_BPF: u32 = 15;
const ACTION_END_DT46: u32 = 16;
const LOCAL_ACTION: u16 = 1;
const LOCAL_SRH: u16 = 2;
const LOCAL_TABLE: u16 = 3;
const LOCAL_NH4: u16 = 4;
const LOCAL_NH6: u16 = 5;
const LOCAL_OIF: u16 = 7;
const LOCAL_VRFTABLE: u16 = 9;
const LOCAL_COUNTERS: u16 = 10;
const LOCAL_FLAVORS: u16 = 11;
const FLAVOR_OPERATION: u16 = 1;
const FLAVOR_BLOCK_BITS: u16 = 2;
const FLAVOR_FUNCTION_BITS: u16 = 3;
const OPERATION_PSP: u32 = 1 << 1;
const OPERATION_NEXT_CSID: u32 = 1 << 4;
/// The kernel's lengths of NEXT-C-SID where none are given, in bits.
const BLOCK_BITS: u8 = 32;
const FUNCTION_BITS: u8 = 16;
const SRH_FIXED: usize = 8;

/// Appends what of `RTA_ENCAP` is lasting: all but the values of the counters of an endpoint.
pub fn key(bytes: &[u8], key: &mut Vec<u8>) {
    for (kind, value) in Attributes::new(bytes) {
        key.extend_from_slice(&((value.len() as u32) << 16 | u32::from(kind)).to_ne_bytes());
        if kind != LOCAL_COUNTERS {
            key.extend_from_slice(value);
        }
    }
}

/// Decodes `RTA_ENCAP` of type `kind`.
pub fn decode(kind: u16, bytes: &[u8]) -> Encap {
    let decoded = match kind {
        TYPE_SEG6 => decode_seg6(bytes),
        TYPE_SEG6_LOCAL => decode_local(bytes),
        _ => None,
    };
    decoded.unwrap_or(Encap::Other(kind))
}

/// `SEG6_IPTUNNEL_SRH`: `struct seg6_iptunnel_encap`, that is the mode, then the SRH.
fn decode_seg6(bytes: &[u8]) -> Option<Encap> {
    let mut attributes = Attributes::new(bytes);
    let (1, tunnel) = attributes.next()? else { return None };
    if attributes.next().is_some() {
        return None; // an option newer than this program, such as the table to look the outer header up in
    }
    let mode = match read_u32(tunnel)? {
        0 => Mode::Inline,
        1 => Mode::Encap,
        2 => Mode::L2Encap,
        3 => Mode::EncapRed,
        4 => Mode::L2EncapRed,
        other => Mode::Unknown(other),
    };
    Some(Encap::Seg6 { mode, list: segment_list(tunnel.get(4..)?)? })
}

fn segment_list(srh: &[u8]) -> Option<SegmentList> {
    let len = (usize::from(*srh.get(1)?) + 1) * 8;
    let srh = srh.get(..len)?.to_vec();
    let count = usize::from(*srh.get(4)?) + 1;
    let list = srh.get(SRH_FIXED..SRH_FIXED + 16 * count)?;
    let segments =
        list.chunks_exact(16).rev().filter_map(|c| <[u8; 16]>::try_from(c).ok()).map(Ipv6Addr::from);
    Some(SegmentList { segments: segments.collect(), srh })
}

/// The attributes of `encap seg6local`. One that this program does not know, or that the behaviour does not take, leaves it to
/// the kernel.
fn decode_local(bytes: &[u8]) -> Option<Encap> {
    let attributes = Attributes::new(bytes);
    let action = attributes.clone().find(LOCAL_ACTION).and_then(read_u32)?;
    let number = |kind| attributes.clone().find(kind).and_then(read_u32);
    let address6 = |kind| match attributes.clone().find(kind).and_then(read_address) {
        Some(IpAddr::V6(address)) => Some(address),
        _ => None,
    };
    let list = || attributes.clone().find(LOCAL_SRH).and_then(segment_list);
    let flavour = decode_flavour(attributes.clone().find(LOCAL_FLAVORS));
    let vrf = number(LOCAL_VRFTABLE).map(TableRef::Vrf);
    let (behaviour, takes): (Option<Behaviour>, &[u16]) = match action {
        ACTION_END => (flavour.map(|flavour| Behaviour::End { flavour }), &[LOCAL_FLAVORS]),
        ACTION_END_X => {
            let both = address6(LOCAL_NH6).zip(flavour);
            (
                both.map(|(next_hop, flavour)| Behaviour::EndX { next_hop, flavour }),
                &[LOCAL_NH6, LOCAL_FLAVORS],
            )
        }
        ACTION_END_T => (number(LOCAL_TABLE).map(|table| Behaviour::EndT { table }), &[LOCAL_TABLE]),
        ACTION_END_DX2 => (number(LOCAL_OIF).map(|device| Behaviour::EndDx2 { device }), &[LOCAL_OIF]),
        ACTION_END_DX6 => (address6(LOCAL_NH6).map(Behaviour::EndDx6), &[LOCAL_NH6]),
        ACTION_END_DX4 => {
            let next_hop = match attributes.clone().find(LOCAL_NH4).and_then(read_address) {
                Some(IpAddr::V4(address)) => Some(Behaviour::EndDx4(address)),
                _ => None,
            };
            (next_hop, &[LOCAL_NH4])
        }
        ACTION_END_DT4 => (vrf.map(|table| Behaviour::EndDt4 { table }), &[LOCAL_VRFTABLE]),
        ACTION_END_DT46 => (vrf.map(|table| Behaviour::EndDt46 { table }), &[LOCAL_VRFTABLE]),
        ACTION_END_DT6 => {
            let table = vrf.or(number(LOCAL_TABLE).map(TableRef::Table));
            (table.map(|table| Behaviour::EndDt6 { table }), &[LOCAL_VRFTABLE, LOCAL_TABLE])
        }
        ACTION_END_B6 => (list().map(|list| Behaviour::EndB6 { list }), &[LOCAL_SRH]),
        ACTION_END_B6_ENCAPS => (list().map(|list| Behaviour::EndB6Encaps { list }), &[LOCAL_SRH]),
        _ => (None, &[]),
    };
    let known =
        |(kind, _): (u16, &[u8])| kind == LOCAL_ACTION || kind == LOCAL_COUNTERS || takes.contains(&kind);
    let behaviour = behaviour.filter(|_| attributes.clone().all(known));
    Some(Encap::Seg6Local(behaviour.unwrap_or(Behaviour::Other(action))))
}

/// `None`: flavours that are left to the kernel. Linux asks for NEXT-C-SID first, and then for no other.
fn decode_flavour(bytes: Option<&[u8]>) -> Option<Flavour> {
    let Some(bytes) = bytes else { return Some(Flavour::Plain) };
    let attributes = Attributes::new(bytes);
    let bits = |kind, default| attributes.clone().find(kind).map_or(Some(default), read_u8);
    let operations = attributes.clone().find(FLAVOR_OPERATION).and_then(read_u32)?;
    let known = attributes.clone().all(|(kind, _)| kind <= FLAVOR_FUNCTION_BITS);
    match operations {
        _ if !known || operations & !(OPERATION_PSP | OPERATION_NEXT_CSID) != 0 => None,
        0 => Some(Flavour::Plain),
        OPERATION_PSP => Some(Flavour::Psp),
        _ => {
            let (block, node_function) =
                (bits(FLAVOR_BLOCK_BITS, BLOCK_BITS)?, bits(FLAVOR_FUNCTION_BITS, FUNCTION_BITS)?);
            Some(Flavour::NextCsid { block: block / 8, node_function: node_function / 8 })
        }
    }
}

const SEG6_GET_TUNSRC: u8 = 4;
const SEG6_ATTR_DST: u16 = 1;

/// Reads the source address of encapsulated packets (`ip sr tunsrc`); `None`: not set, the kernel chooses one, or this kernel
/// has no SRv6.
pub fn tunnel_source() -> Result<Option<Ipv6Addr>, Error> {
    let Some((mut socket, id)) = generic::family(b"SEG6\0")? else { return Ok(None) };
    let mut source = None;
    socket.request(Request::new(id, 0, &[SEG6_GET_TUNSRC, 1, 0, 0]), |message| {
        source = generic::attributes(message.payload).find(SEG6_ATTR_DST).and_then(read_address);
    })?;
    Ok(match source {
        Some(IpAddr::V6(source)) if !source.is_unspecified() => Some(source),
        _ => None,
    })
}
