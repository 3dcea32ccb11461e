//! Every decoder by a number, so that a fuzzer can hand bytes to each. Nothing else uses it.

use crate::bypass::netfilter::Hook;
use crate::bypass::{hooks, iptables, netfilter, reach};
use crate::kernel::attribute::{Attributes, HEADER};
use crate::kernel::kernel_hooks::LegacyTable;
use crate::kernel::socket::{Message, messages};
use crate::kernel::{
    addr, ethtool, generic, inet6, link, neigh, netconf, nexthop, route, rule, seg6, traffic, xfrm,
};

/// Hands `bytes` to the decoder of this number (of 19); returns its result, in words.
pub fn decode(which: u8, bytes: &[u8]) -> String {
    let message = Message { kind: 0, flags: 0, sequence: 0, payload: bytes };
    match which % 19 {
        0 => format!("{:?}", link::decode(bytes)),
        1 => format!("{:?}", addr::decode(bytes)),
        2 => format!("{:?}", neigh::decode(bytes).map(|reported| (reported, reported.usable()))),
        3 => route::decode(bytes).map_or_else(String::new, |reported| {
            let mut key = Vec::new();
            reported.nhg_key(&mut key);
            format!("{reported:?} {:?} {}", reported.nhg(), key.len())
        }),
        4 => format!("{:?}", route::decode_source(bytes)),
        5 => format!("{:?}", nexthop::decode(bytes)),
        6 => rule::decode(bytes).map_or_else(String::new, |reported| format!("{reported} {reported:?}")),
        7 => format!("{:?}", netconf::decode(bytes)),
        8 => format!("{:?}", inet6::decode(bytes)),
        9 => {
            let (kind, encap) =
                bytes.split_first().map_or((0, bytes), |(kind, rest)| (u16::from(*kind % 9), rest));
            let mut key = Vec::new();
            seg6::key(encap, &mut key);
            format!("{:?} {}", seg6::decode(kind, encap), key.len())
        }
        10 => format!(
            "{:?}",
            generic::attributes(bytes).map(|(kind, value)| (kind, value.len())).collect::<Vec<_>>()
        ),
        11 => format!("{:?}", ethtool::decode(message)),
        12 => format!("{:?}", hooks::decode(bytes, Hook::Forward).map(|reported| reported.to_string())),
        13 => {
            format!("{:?}", netfilter::decode_chain(bytes).map(|reported| (reported.to_string(), reported)))
        }
        14 => format!("{:?}", netfilter::decode_dormant(bytes)),
        15 => format!("{:?}", traffic::decode_discipline(bytes)),
        16 => {
            let mut policies = xfrm::Policies::default();
            policies.add(bytes);
            format!("{policies:?} {:?}", Attributes::new(bytes).find(1))
        }
        17 => legacy(bytes),
        _ => format!("{:?}", reach::nftables::decode(bytes)),
    }
}

/// A table of the legacy iptables: the kernel's header, then its entries.
fn legacy(bytes: &[u8]) -> String {
    let Some((info, entries)) = bytes.split_first_chunk() else { return String::new() };
    let table = LegacyTable { info: *info, entries: entries.into() };
    format!("{:?}", iptables::decode_table(false, &table))
        + &format!("{:?}", iptables::decode_table(true, &table))
}

/// The messages of a datagram, each with its payload's place.
pub fn datagram(bytes: &[u8]) -> Vec<(u16, usize)> {
    messages(bytes).map(|message| (message.kind, message.payload.len() + HEADER)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the bytes, every decoder returns something, and the same again.
    #[test]
    fn decoders_are_total() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        for round in 0..20_000usize {
            // Small numbers look like types and lengths.
            let bytes: Vec<u8> =
                (0..round % 300).map(|at| random() & if at % 2 == 0 { 0x1f } else { 0x01 }).collect();
            for which in 0..19 {
                assert_eq!(decode(which, &bytes), decode(which, &bytes));
            }
            let _ = datagram(&bytes);
        }
    }
}
