//! Netfilter: the chains that forwarded packets meet, and those of nftables as the kernel tells them.

use crate::kernel::attribute::{Attributes, FLAG_DUMP, Request, read_text};
use crate::kernel::family;
use crate::kernel::socket::{Error, Netlink};
use std::fmt;
use trieline_lpm::IpPrefix;

/// Where a chain hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// A device's packets before anything else of the stack.
    Ingress,
    /// Before the route lookup.
    Prerouting,
    /// Packets delivered to the node; SRv6 endpoints too, with `nf_hooks_lwtunnel`.
    Input,
    /// Forwarded packets.
    Forward,
    /// Packets that the node sends; SRv6 headends too, with `nf_hooks_lwtunnel`.
    Output,
    /// Before a packet leaves.
    Postrouting,
    /// A device's packets after all else.
    Egress,
}

impl Hook {
    /// The hooks of IP by their numbers (`NF_INET_*`).
    pub const INET: [Self; 6] =
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting, Self::Ingress];
    /// Those of a device (`NF_NETDEV_*`).
    const NETDEV: [Self; 2] = [Self::Ingress, Self::Egress];

    /// As nft writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Egress => "egress",
        }
    }
}

/// The packets that rules can do something to: from and to these prefixes, `None` any; of this family, `None` both.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reach {
    /// Sources.
    pub from: Option<IpPrefix>,
    /// Destinations.
    pub to: Option<IpPrefix>,
    /// Address family.
    pub family: Option<u8>,
}

impl Reach {
    /// Whether it is all packets of a family.
    pub fn is_all_of(&self, family: u8) -> bool {
        self.concerns(family) && self.from.is_none() && self.to.is_none()
    }

    /// Whether it may be packets of a family.
    pub fn concerns(&self, family: u8) -> bool {
        self.family.is_none_or(|own| own == family)
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.to) {
            (Some(from), Some(to)) => write!(f, "from {from} to {to}"),
            (Some(from), None) => write!(f, "from {from}"),
            (None, Some(to)) => write!(f, "to {to}"),
            (None, None) => f.write_str("of one family"),
        }
    }
}

/// A chain at a hook, of nftables or iptables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The tool that made it: `nftables`, `iptables`, `ip6tables`.
    pub tool: &'static str,
    /// Its table, for nftables with the family: `inet fw`.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Where it hangs.
    pub hook: Hook,
    /// Sees packets of IPv4.
    pub v4: bool,
    /// Sees packets of IPv6.
    pub v6: bool,
    /// Rules in it, without those of chains that they jump to.
    pub rules: u32,
    /// Drops what no rule decides.
    pub drops: bool,
    /// Devices it is bound to, by name or, with a final `*`, by the beginning of names. Empty: not bound.
    pub devices: Vec<String>,
    /// The packets that its rules can do something to; `None`: all, or it is not known.
    pub reach: Option<Vec<Reach>>,
    /// Its rules, or those that they jump to, count packets that XDP may forward.
    pub counts: bool,
}

/// A chain of nftables at hook forward with one rule that may do anything, for tests.
#[cfg(test)]
pub fn forward_chain(table: &str, v4: bool, v6: bool) -> Chain {
    Chain {
        tool: "nftables",
        table: table.into(),
        name: "forward".into(),
        hook: Hook::Forward,
        v4,
        v6,
        rules: 1,
        drops: false,
        devices: Vec::new(),
        reach: None,
        counts: false,
    }
}

impl Chain {
    /// Whether it can do anything to a packet.
    pub fn acts(&self) -> bool {
        (self.rules > 0 || self.drops) && self.reach.as_ref().is_none_or(|parts| !parts.is_empty())
    }

    /// Whether it sees packets of a family, and can do something to some of them.
    pub fn concerns(&self, family: u8) -> bool {
        let sees = if family == family::INET { self.v4 } else { self.v6 };
        sees && self.reach.as_ref().is_none_or(|parts| parts.iter().any(|part| part.concerns(family)))
    }

    /// Whether all packets of a family have to meet it.
    pub fn meets_all(&self, family: u8) -> bool {
        let all = |parts: &Vec<Reach>| parts.iter().any(|part| part.is_all_of(family));
        self.concerns(family) && self.reach.as_ref().is_none_or(all)
    }

    /// Where only some packets of a family have to meet it: which.
    pub fn parts(&self, family: u8) -> impl Iterator<Item = Reach> {
        let parts = self.reach.iter().flatten().copied();
        parts.filter(move |part| self.concerns(family) && part.concerns(family) && !part.is_all_of(family))
    }

    /// Whether it sees packets of one of these devices.
    pub fn is_at(&self, devices: &[&str]) -> bool {
        let names = |bound: &String, device: &&str| match bound.strip_suffix('*') {
            Some(start) => device.starts_with(start),
            None => bound == device,
        };
        self.devices.is_empty()
            || self.devices.iter().any(|bound| devices.iter().any(|device| names(bound, device)))
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool, table, name, hook, rules, .. } = self;
        let plural = if *rules == 1 { "" } else { "s" };
        write!(f, "{tool} table {table}, chain {name} (hook {}): {rules} rule{plural}", hook.name())?;
        if self.drops { write!(f, ", policy drop") } else { Ok(()) }
    }
}

/// `NFNLGRP_NFTABLES`: every change of nftables.
pub const GROUP: u32 = 7;

const SUBSYSTEM: u16 = 10 << 8; // NFNL_SUBSYS_NFTABLES
const NEW_TABLE: u16 = SUBSYSTEM;
const GET_TABLE: u16 = SUBSYSTEM | 1;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const GET_CHAIN: u16 = SUBSYSTEM | 4;
pub(super) const NEW_RULE: u16 = SUBSYSTEM | 6;
pub(super) const GET_RULE: u16 = SUBSYSTEM | 7;
/// Elements of sets and generations: no chain changes by them alone.
const QUIET: [u16; 4] = [SUBSYSTEM | 12, SUBSYSTEM | 14, SUBSYSTEM | 15, SUBSYSTEM | 18];

const FAMILY_INET: u8 = 1;
const FAMILY_NETDEV: u8 = 5;
/// `struct nfgenmsg`: family, version, resource id.
pub(super) const FIXED: usize = 4;
const TABLE_DORMANT: u32 = 1;
const DROP: u32 = 0;

pub(super) fn read_be32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Whether a message of [`GROUP`] may be about chains.
pub fn is_about_chains(kind: u16) -> bool {
    !QUIET.contains(&kind)
}

/// A table's name, as nft writes it.
pub(super) fn table_name(family: u8, name: &str) -> Option<String> {
    let family = match family {
        family::INET => "ip",
        family::INET6 => "ip6",
        FAMILY_INET => "inet",
        FAMILY_NETDEV => "netdev",
        _ => return None, // arp and bridge: no packets that are routed
    };
    Some(format!("{family} {name}"))
}

/// Decodes a table that is asleep: its chains see nothing.
pub(crate) fn decode_dormant(payload: &[u8]) -> Option<String> {
    let attributes = Attributes::new(payload.get(FIXED..)?);
    let flags = attributes.clone().find(2).and_then(read_be32)?;
    let name = table_name(*payload.first()?, &read_text(attributes.find(1)?))?;
    (flags & TABLE_DORMANT != 0).then_some(name)
}

/// Decodes a chain that hangs at a hook. The kernel counts what uses a chain; nothing but its rules can use one at a hook.
pub(crate) fn decode_chain(payload: &[u8]) -> Option<Chain> {
    let family = *payload.first()?;
    let (mut table, mut name, mut hook, mut rules, mut drops) = (None, None, None, 0, false);
    for (kind, value) in Attributes::new(payload.get(FIXED..)?) {
        match kind {
            1 => table = table_name(family, &read_text(value)),
            3 => name = Some(read_text(value)),
            4 => hook = Some(value),
            5 => drops = read_be32(value) == Some(DROP),
            6 => rules = read_be32(value)?,
            _ => {}
        }
    }
    let (number, mut devices) = (Attributes::new(hook?).find(1).and_then(read_be32)?, Vec::new());
    for (kind, value) in Attributes::new(hook?) {
        match kind {
            3 => devices.push(read_text(value)),
            4 => devices.extend(Attributes::new(value).map(|(kind, value)| match kind {
                1 => read_text(value),
                _ => read_text(value) + "*", // the beginning of names
            })),
            _ => {}
        }
    }
    devices.sort_unstable();
    devices.dedup();
    let hooks = if family == FAMILY_NETDEV { &Hook::NETDEV[..] } else { &Hook::INET };
    Some(Chain {
        tool: "nftables",
        table: table?,
        name: name?,
        hook: *hooks.get(number as usize)?,
        v4: family != family::INET6,
        v6: family != family::INET,
        rules,
        drops,
        devices,
        reach: None,
        counts: false,
    })
}

/// Asks for all chains of nftables that hang at a hook. O(chains), rules are not looked at.
pub fn chains(socket: &mut Netlink) -> Result<Vec<Chain>, Error> {
    let any = [family::UNSPEC, 0, 0, 0];
    let mut asleep = Vec::new();
    socket.dump(Request::new(GET_TABLE, FLAG_DUMP, &any), |message| {
        asleep.extend((message.kind == NEW_TABLE).then(|| decode_dormant(message.payload)).flatten());
    })?;
    let mut chains = Vec::new();
    socket.dump(Request::new(GET_CHAIN, FLAG_DUMP, &any), |message| {
        chains.extend((message.kind == NEW_CHAIN).then(|| decode_chain(message.payload)).flatten());
    })?;
    chains.retain(|chain| !asleep.contains(&chain.table));
    Ok(chains)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    // Answers of Linux 6.18, recorded; the ruleset stands above each.

    /// table inet fw { chain forward { type filter hook forward priority 0; policy drop; (three rules) } }
    const FORWARD: &str = "0100000207000100667700000c000300666f7277617264000c000200000000000000000114000400\
        080001000000000208000200000000000800050000\
        0000000b00070066696c746572000008000a00000000010800060000000003";
    /// chain other { accept }, which chain forward jumps to
    const JUMPED_TO: &str =
        "0100000207000100667700000a0003006f746865720000000c00020000000000000000020800060000000002";
    /// table netdev nd { chain eg { type filter hook egress device lo priority 0; } }
    const EGRESS: &str = "05000002070001006e64000007000300656700000c000200000000000000000228000400080001000000\
        000108000200000000000c000400070001006c6f0000070003006c6f000008000500000000010b00070066696c7465720000\
        08000a00000000010800060000000000";
    /// table ip6 nat6 { chain post { type nat hook postrouting priority 100; masquerade; } }
    const NAT: &str = "0a000002090001006e6174360000000009000300706f7374000000000c0002000000000000000001\
        14000400080001000000000408000200000000640800050000000001080007006e61740008000a00000000010800060000000001";
    /// table inet sleepy { flags dormant; }
    const DORMANT: &str =
        "010000020b000100736c65657079000008000300000000010c00040000000000000000040800020000000001";
    /// table inet fw
    const AWAKE: &str = "01000002070001006677000008000300000000030c00040000000000000000010800020000000000";

    #[test]
    fn a_chain_has_its_hook_rules_and_policy() {
        let forward = decode_chain(&bytes(FORWARD)).unwrap();
        let reported = "nftables table inet fw, chain forward (hook forward): 3 rules, policy drop";
        assert_eq!(forward.to_string(), reported);
        assert!(forward.acts() && forward.v4 && forward.v6 && forward.is_at(&[]));
        let nat = decode_chain(&bytes(NAT)).unwrap();
        assert_eq!(nat.to_string(), "nftables table ip6 nat6, chain post (hook postrouting): 1 rule");
        assert_eq!((nat.concerns(family::INET), nat.concerns(family::INET6)), (false, true));
        assert_eq!(decode_chain(&bytes(JUMPED_TO)), None, "at no hook");
    }

    #[test]
    fn a_device_chain_is_at_its_devices() {
        let mut egress = decode_chain(&bytes(EGRESS)).unwrap();
        assert_eq!(
            (egress.hook, egress.acts(), &egress.devices[..]),
            (Hook::Egress, false, &["lo".into()][..])
        );
        assert!(egress.is_at(&["n0", "lo"]) && !egress.is_at(&["n0", "lo0"]));
        egress.devices = vec!["n*".into()];
        assert!(egress.is_at(&["n0"]) && !egress.is_at(&["lo"]));
    }

    #[test]
    fn tables_can_sleep() {
        assert_eq!(decode_dormant(&bytes(DORMANT)).as_deref(), Some("inet sleepy"));
        assert_eq!(decode_dormant(&bytes(AWAKE)), None);
    }

    #[test]
    fn messages_that_are_cut_short_are_none_or_less() {
        for message in [FORWARD, EGRESS, NAT] {
            let whole = bytes(message);
            let full = decode_chain(&whole).unwrap();
            for end in 0..whole.len() {
                if let Some(cut) = decode_chain(&whole[..end]) {
                    assert_eq!(
                        (cut.table, cut.name, cut.hook),
                        (full.table.clone(), full.name.clone(), full.hook)
                    );
                }
            }
        }
    }

    #[test]
    fn elements_of_sets_are_no_news() {
        assert!([0, 2, 3, 5, 6, 8, 22].iter().all(|kind| is_about_chains(SUBSYSTEM | kind)));
        assert!(!is_about_chains(SUBSYSTEM | 12) && !is_about_chains(SUBSYSTEM | 15));
    }
}
