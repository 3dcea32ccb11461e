//! SRv6 as the kernel models it: encapsulation and endpoint behaviours hang on routes; the tunnel source is a setting.

use super::attribute::{Attributes, Request, read_address, read_u32};
use super::generic;
use super::socket::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a route does with packets beside forwarding them (`RTA_ENCAP`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Encap {
    /// `encap seg6`: the packet is wrapped.
    Seg6 {
        /// How.
        mode: Mode,
        /// The SRH as the kernel pushes it, inner "next header" not yet filled in.
        srh: Vec<u8>,
        /// Segments in the order they are visited.
        segments: Vec<Ipv6Addr>,
    },
    /// `encap seg6local`: an endpoint behaviour.
    Seg6Local(Behaviour),
    /// A kind of tunnel that is left to the kernel: `LWTUNNEL_ENCAP_*`.
    Other(u16),
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

/// An SRv6 endpoint behaviour.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Behaviour {
    /// End.DX4: decapsulate and forward the inner IPv4 packet as if it went to this address; 0.0.0.0 = to its own
    /// destination.
    EndDx4(Ipv4Addr),
    /// A behaviour that is left to the kernel: `SEG6_LOCAL_ACTION_*`.
    Other(u32),
}

impl Behaviour {
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
        match self {
            Self::EndDx4(_) => "End.DX4",
            Self::Other(action) => NAMES.get(*action as usize).copied().unwrap_or("unknown"),
        }
    }
}

const TYPE_SEG6: u16 = 5;
const TYPE_SEG6_LOCAL: u16 = 7;
const ACTION_END_DX4: u32 = 6;
const SRH_FIXED: usize = 8;

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
    let srh = tunnel.get(4..)?;
    let len = (usize::from(*srh.get(1)?) + 1) * 8;
    let srh = srh.get(..len)?.to_vec();
    let count = usize::from(*srh.get(4)?) + 1;
    let list = srh.get(SRH_FIXED..SRH_FIXED + 16 * count)?;
    let segments =
        list.chunks_exact(16).rev().filter_map(|c| <[u8; 16]>::try_from(c).ok()).map(Ipv6Addr::from);
    Some(Encap::Seg6 { mode, segments: segments.collect(), srh })
}

fn decode_local(bytes: &[u8]) -> Option<Encap> {
    let (mut action, mut next_hop, mut plain) = (None, None, true);
    for (kind, value) in Attributes::new(bytes) {
        match kind {
            1 => action = read_u32(value),
            4 => next_hop = read_address(value),
            _ => plain = false, // counters, flavours, other parameters: the kernel does those
        }
    }
    Some(Encap::Seg6Local(match (action?, next_hop) {
        (ACTION_END_DX4, Some(IpAddr::V4(next_hop))) if plain => Behaviour::EndDx4(next_hop),
        (action, _) => Behaviour::Other(action),
    }))
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
