//! SRv6 as the kernel models it: encapsulation and endpoint behaviours hang on routes; the tunnel source is a setting.

use super::attribute::{Attributes, Request, read_address, read_u8, read_u32};
use super::family;
use super::generic;
use super::socket::Error;
use std::net::{IpAddr, Ipv6Addr};

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
    /// One that is left to the kernel: `SEG6_LOCAL_ACTION_*`, and its parameters as far as they are known.
    OtherLocal(u32, Vec<Operand>),
    /// A kind of tunnel that is left to the kernel: `LWTUNNEL_ENCAP_*`.
    Other(u16),
}

impl Encap {
    /// Whether the route is a SID's, be its behaviour known here or not.
    pub fn is_sid(&self) -> bool {
        matches!(self, Self::Seg6Local(_) | Self::OtherLocal(..) | Self::Other(TYPE_SEG6_LOCAL))
    }

    /// The most bytes that it puts in front of a packet.
    pub fn pushes(&self) -> usize {
        const IPV6_HEADER: usize = 40;
        match self {
            Self::Seg6 { list, .. } | Self::Seg6Local(Behaviour { operand: Operand::List(list), .. }) => {
                IPV6_HEADER + list.srh.len()
            }
            _ => 0,
        }
    }

    /// The address whose route decides where the packets go: the first segment, or an endpoint's next hop.
    pub fn decided_by(&self) -> Option<IpAddr> {
        let first = |list: &SegmentList| list.segments.first().map(|segment| IpAddr::V6(*segment));
        match self {
            Self::Seg6 { list, .. } | Self::Seg6Local(Behaviour { operand: Operand::List(list), .. }) => {
                first(list)
            }
            Self::Seg6Local(Behaviour { operand: Operand::NextHop(next_hop), .. }) => Some(*next_hop),
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

/// An SRv6 endpoint behaviour as a route has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Behaviour {
    /// Which.
    pub endpoint: Endpoint,
    /// Its flavours.
    pub flavours: Flavours,
    /// Its operand.
    pub operand: Operand,
}

/// The endpoint behaviours that trieline knows (RFC 8986), by the kernel's numbers (`SEG6_LOCAL_ACTION_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Endpoint {
    /// End (4.1): to the next segment.
    End = 1,
    /// End.X (4.2): to the next segment, by a next hop.
    EndX = 2,
    /// End.T (4.3): to the next segment, by a table.
    EndT = 3,
    /// End.DX2 (4.9): decapsulate and send the inner frame by a device.
    EndDx2 = 4,
    /// End.DX6 (4.4): as End.DX4, with IPv6 inside.
    EndDx6 = 5,
    /// End.DX4 (4.5): decapsulate and forward the inner IPv4 packet as if it went to the next hop; 0.0.0.0 = to its own destination.
    EndDx4 = 6,
    /// End.DT6 (4.6): decapsulate and look the inner IPv6 packet up in a table.
    EndDt6 = 7,
    /// End.DT4 (4.7).
    EndDt4 = 8,
    /// End.B6: another SRH is inserted.
    EndB6 = 9,
    /// End.B6.Encaps (4.13): to the next segment, within an outer header.
    EndB6Encaps = 10,
    /// End.DT46 (4.8): either family inside.
    EndDt46 = 16,
}

/// The operand of an endpoint behaviour.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Nothing.
    None,
    /// Where packets go.
    NextHop(IpAddr),
    /// Where they are looked up.
    Table(TableRef),
    /// Number of the device that they leave by.
    Device(u32),
    /// Further segments.
    List(SegmentList),
}

/// Flavours of an endpoint behaviour (RFC 8986 4.16, RFC 9800 4.1): a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flavours {
    /// Penultimate segment pop.
    pub psp: bool,
    /// Ultimate segment pop.
    pub usp: bool,
    /// Ultimate segment decapsulation.
    pub usd: bool,
    /// NEXT-C-SID.
    pub next_csid: Option<CsidLengths>,
}

/// Lengths of NEXT-C-SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CsidLengths {
    /// Bytes of the locator block.
    pub block: u8,
    /// Bytes of node and function.
    pub node_function: u8,
}

impl Flavours {
    /// PSP alone.
    pub const PSP: Self = Self { psp: true, usp: false, usd: false, next_csid: None };

    /// NEXT-C-SID alone, with a locator block, and node and function, of so many bytes.
    pub const fn next_csid(block: u8, node_function: u8) -> Self {
        Self { psp: false, usp: false, usd: false, next_csid: Some(CsidLengths { block, node_function }) }
    }

    /// As `ip route` calls them.
    pub fn names(&self) -> Vec<&'static str> {
        let all = [
            (self.psp, "psp"),
            (self.usp, "usp"),
            (self.usd, "usd"),
            (self.next_csid.is_some(), "next-csid"),
        ];
        all.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
    }
}

/// Each behaviour with the attributes that it takes besides its own number and counters. The first that is there is its operand.
const ENDPOINTS: [(Endpoint, &[u16]); 11] = [
    (Endpoint::End, &[LOCAL_FLAVORS]),
    (Endpoint::EndX, &[LOCAL_NH6, LOCAL_FLAVORS]),
    (Endpoint::EndT, &[LOCAL_TABLE]),
    (Endpoint::EndDx2, &[LOCAL_OIF]),
    (Endpoint::EndDx6, &[LOCAL_NH6]),
    (Endpoint::EndDx4, &[LOCAL_NH4]),
    (Endpoint::EndDt6, &[LOCAL_VRFTABLE, LOCAL_TABLE]),
    (Endpoint::EndDt4, &[LOCAL_VRFTABLE]),
    (Endpoint::EndB6, &[LOCAL_SRH]),
    (Endpoint::EndB6Encaps, &[LOCAL_SRH]),
    (Endpoint::EndDt46, &[LOCAL_VRFTABLE]),
];

/// A behaviour of the kernel's, known here or not, as `ip route` calls it.
pub fn endpoint_name(number: u32) -> &'static str {
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
    NAMES.get(number as usize).copied().unwrap_or("unknown")
}

impl Endpoint {
    /// As `ip route` calls it.
    pub fn name(self) -> &'static str {
        endpoint_name(self as u32)
    }
}

impl Behaviour {
    /// The tables that it looks up in by themselves, as (family, number).
    pub fn tables(&self) -> Vec<(u8, u32)> {
        let Operand::Table(TableRef::Table(table)) = self.operand else { return Vec::new() };
        let families: &[u8] = match self.endpoint {
            Endpoint::EndDt4 => &[family::INET],
            Endpoint::EndDt46 => &[family::INET, family::INET6],
            _ => &[family::INET6],
        };
        families.iter().map(|family| (*family, table)).collect()
    }
}

const TYPE_SEG6: u16 = 5;
/// `RTA_ENCAP_TYPE` of endpoints.
pub(crate) const TYPE_SEG6_LOCAL: u16 = 7;
/// `SEG6_LOCAL_ACTION_END_BPF`
pub(crate) const ACTION_END_BPF: u32 = 15;
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
const OPERATION_USP: u32 = 1 << 2;
const OPERATION_USD: u32 = 1 << 3;
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
    let number = attributes.clone().find(LOCAL_ACTION).and_then(read_u32)?;
    Some(match decode_behaviour(&attributes, number) {
        Some(behaviour) => Encap::Seg6Local(behaviour),
        None => {
            let operands = attributes.filter_map(|(kind, value)| decode_operand(kind, value));
            Encap::OtherLocal(number, operands.collect())
        }
    })
}

fn decode_behaviour(attributes: &Attributes<'_>, number: u32) -> Option<Behaviour> {
    let (endpoint, takes) = *ENDPOINTS.iter().find(|(endpoint, _)| *endpoint as u32 == number)?;
    let known = |kind| kind == LOCAL_ACTION || kind == LOCAL_COUNTERS || takes.contains(&kind);
    if !attributes.clone().all(|(kind, _)| known(kind)) {
        return None;
    }
    let flavours = decode_flavours(attributes.clone().find(LOCAL_FLAVORS))?;
    let operand = if takes == [LOCAL_FLAVORS] {
        Operand::None
    } else {
        takes.iter().find_map(|kind| decode_operand(*kind, attributes.clone().find(*kind)?))?
    };
    Some(Behaviour { endpoint, flavours, operand })
}

fn decode_operand(kind: u16, value: &[u8]) -> Option<Operand> {
    match (kind, read_address(value)) {
        (LOCAL_NH4, Some(next_hop @ IpAddr::V4(_))) | (LOCAL_NH6, Some(next_hop @ IpAddr::V6(_))) => {
            Some(Operand::NextHop(next_hop))
        }
        (LOCAL_TABLE, _) => read_u32(value).map(|table| Operand::Table(TableRef::Table(table))),
        (LOCAL_VRFTABLE, _) => read_u32(value).map(|table| Operand::Table(TableRef::Vrf(table))),
        (LOCAL_OIF, _) => read_u32(value).map(Operand::Device),
        (LOCAL_SRH, _) => segment_list(value).map(Operand::List),
        _ => None,
    }
}

/// `None`: flavours that are left to the kernel.
fn decode_flavours(bytes: Option<&[u8]>) -> Option<Flavours> {
    let Some(bytes) = bytes else { return Some(Flavours::default()) };
    let attributes = Attributes::new(bytes);
    let bytes_of =
        |kind, default| attributes.clone().find(kind).map_or(Some(default), read_u8).map(|bits| bits / 8);
    let operations = attributes.clone().find(FLAVOR_OPERATION).and_then(read_u32)?;
    let all = OPERATION_PSP | OPERATION_USP | OPERATION_USD | OPERATION_NEXT_CSID;
    if operations & !all != 0 || attributes.clone().any(|(kind, _)| kind > FLAVOR_FUNCTION_BITS) {
        return None;
    }
    let has = |operation| operations & operation != 0;
    let next_csid = if has(OPERATION_NEXT_CSID) {
        let block = bytes_of(FLAVOR_BLOCK_BITS, BLOCK_BITS)?;
        Some(CsidLengths { block, node_function: bytes_of(FLAVOR_FUNCTION_BITS, FUNCTION_BITS)? })
    } else {
        None
    };
    Some(Flavours { psp: has(OPERATION_PSP), usp: has(OPERATION_USP), usd: has(OPERATION_USD), next_csid })
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
