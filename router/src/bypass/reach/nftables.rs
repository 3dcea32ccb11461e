//! Rules of nftables, those of iptables-nft among them, read as far as they tell whom they select.

use super::{Device, Match, Rule, Rules, Target};
use crate::bypass::netfilter::{FIXED, GET_RULE, NEW_RULE, read_be32, table_name};
use crate::kernel::attribute::{Attributes, FLAG_DUMP, Request, read_text, read_u32};
use crate::kernel::family;
use crate::kernel::socket::{Error, Netlink};
use std::collections::HashMap;
use trieline_lpm::{IpPrefix, Prefix};

/// Expressions that only compute, count or log. `limit` and `quota` end the rule; `notrack` sets connection tracking aside, which neither
/// drops nor changes the packet.
const PURE: [&str; 12] = [
    "byteorder",
    "counter",
    "ct",
    "exthdr",
    "fib",
    "limit",
    "log",
    "lookup",
    "notrack",
    "quota",
    "range",
    "rt",
];
/// Those of them whose work XDP's packets miss: it is reported.
const COUNTING: [&str; 2] = ["counter", "log"];
/// Named objects (`NFT_OBJECT_*`) that likewise do nothing to the packet: counter, quota, limit, timeout of connections.
const PURE_OBJECTS: [u32; 4] = [OBJECT_COUNTER, 2, 4, 7];
const OBJECT_COUNTER: u32 = 1;
/// Matches of iptables that only look.
/// Not those of tcp, udp, icmp, multiport and hashlimit: they drop packets, whatever the rule.
pub const PURE_MATCHES: [&str; 8] =
    ["addrtype", "comment", "conntrack", "limit", "mark", "pkttype", "quota", "state"];
/// Targets of iptables that log, or set connection tracking aside.
const PURE_TARGETS: [&str; 5] = ["CT", "LOG", "NFLOG", "NOTRACK", "TRACE"];
/// Where the target CT has the name of a helper, which may drop packets: `struct xt_ct_target_info`.
const CT_HELPER_AT: usize = 12;
/// Those of them that look at connections.
const STATEFUL: [&str; 2] = ["conntrack", "state"];
/// Targets that write addresses of whole connections. (MASQUERADE and REDIRECT write the node's own: answers go to the kernel.)
const WRITERS: [&str; 3] = ["DNAT", "NETMAP", "SNAT"];

/// Whether a match or a target of iptables belongs to whole connections.
pub fn is_whole(name: &str) -> bool {
    STATEFUL.contains(&name) || WRITERS.contains(&name)
}

/// Whether a target of iptables does nothing to the packet; `about`: its parameters.
pub fn is_pure_target(name: &str, about: &[u8]) -> bool {
    let helps = || about.get(CT_HELPER_AT).is_none_or(|byte| *byte != 0);
    PURE_TARGETS.contains(&name) && (name != "CT" || !helps())
}

const META_IIF: u32 = 4;
const META_OIF: u32 = 5;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
const META_NFTRACE: u32 = 12;
/// Parts of a connection that `ct … set` may write without effect on its packets: mark, labels, zone, mask of events.
const CT_QUIET: [u32; 4] = [3, 13, 17, 18];
const NETWORK_HEADER: u32 = 1;
const OP_EQ: u32 = 0;
const OP_NEQ: u32 = 1;
/// `NFT_REG_VERDICT`
const VERDICT: u32 = 0;
const ACCEPT: i32 = 1;
const CONTINUE: i32 = -1;
const BREAK: i32 = -2;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;

/// The content of a register.
enum Loaded {
    Name,
    Number,
    Family,
    /// So many bytes of an address: its family, source or destination, which of them count.
    Address {
        v4: bool,
        source: bool,
        mask: Option<Vec<u8>>,
    },
}

/// The rules of all tables, by the table's name as nft writes it. O(rules).
pub fn rules(socket: &mut Netlink) -> Result<HashMap<String, Rules>, Error> {
    let mut found: HashMap<String, Rules> = HashMap::new();
    socket.dump(Request::new(GET_RULE, FLAG_DUMP, &[family::UNSPEC, 0, 0, 0]), |message| {
        if message.kind == NEW_RULE
            && let Some((table, chain, rule)) = decode(message.payload)
        {
            found.entry(table).or_default().entry(chain).or_default().push(rule);
        }
    })?;
    Ok(found)
}

/// Decodes a rule: its table, its chain, and what it is.
pub fn decode(payload: &[u8]) -> Option<(String, String, Rule)> {
    let attributes = Attributes::new(payload.get(FIXED..)?);
    let table = table_name(*payload.first()?, &read_text(attributes.clone().find(1)?))?;
    let chain = read_text(attributes.clone().find(2)?);
    let expressions = attributes.find(4).unwrap_or_default();
    let mut reading = Reading { family: *payload.first()?, registers: HashMap::new(), matches: Vec::new() };
    let (mut then, mut counts) = (Target::Nothing, false);
    for (_, expression) in Attributes::new(expressions) {
        let attributes = Attributes::new(expression);
        let name = attributes.clone().find(1).map(read_text).unwrap_or_default();
        let about = Attributes::new(attributes.find(2).unwrap_or_default());
        counts |= COUNTING.contains(&name.as_str())
            || name == "objref" && about.clone().find(1).and_then(read_be32) == Some(OBJECT_COUNTER)
            || name == "target"
                && about.clone().find(1).map(read_text).is_some_and(|name| name.ends_with("LOG"));
        match reading.read(&name, about) {
            None => {}
            Some(last) => {
                then = last;
                break;
            }
        }
    }
    Some((table, chain, Rule { matches: reading.matches, then, counts }))
}

/// A rule that is being read.
struct Reading {
    /// Of the table.
    family: u8,
    registers: HashMap<u32, Loaded>,
    matches: Vec<Match>,
}

impl Reading {
    /// Reads an expression; what the rule does, if it is the one that does it.
    fn read(&mut self, name: &str, about: Attributes<'_>) -> Option<Target> {
        let number = |kind| about.clone().find(kind).and_then(read_be32);
        match name {
            "meta" if number(1).is_none() && number(2) == Some(META_NFTRACE) => {}
            "meta" => {
                let Some(register) = number(1) else { return Some(Target::Acts) };
                let loaded = match number(2) {
                    Some(META_IIF | META_OIF) => Some(Loaded::Number),
                    Some(META_IIFNAME | META_OIFNAME) => Some(Loaded::Name),
                    Some(META_NFPROTO) => Some(Loaded::Family),
                    _ => None,
                };
                self.load(register, loaded);
            }
            "payload" => {
                let Some(register) = number(1) else { return Some(Target::Acts) };
                let loaded = self.address(number(2), number(3));
                self.load(register, loaded);
            }
            "bitwise" => {
                let (from, to) = (number(1), number(2)?);
                let loaded = from.and_then(|from| self.registers.remove(&from));
                let data = |kind| about.clone().find(kind).and_then(|data| Attributes::new(data).find(1));
                let plain = data(5).is_some_and(|xor| xor.iter().all(|byte| *byte == 0));
                let loaded = match (loaded, data(4)) {
                    (Some(Loaded::Address { v4, source, mask: None }), Some(mask)) if plain => {
                        Some(Loaded::Address { v4, source, mask: Some(mask.to_vec()) })
                    }
                    _ => None,
                };
                self.load(to, loaded);
            }
            "cmp" => self.compare(&about),
            "immediate" => {
                let register = number(1);
                if register != Some(VERDICT) {
                    self.load(register?, None);
                    return None;
                }
                return Some(verdict(about.find(2).and_then(|data| Attributes::new(data).find(2))));
            }
            "match" => {
                let name = about.clone().find(1).map(read_text).unwrap_or_default();
                if !PURE_MATCHES.contains(&name.as_str()) {
                    return Some(Target::Acts);
                }
                if is_whole(&name) {
                    self.matches.push(Match::Whole);
                }
            }
            "objref" if number(1).is_some_and(|kind| PURE_OBJECTS.contains(&kind)) => {}
            "target" => {
                let name = about.clone().find(1).map(read_text).unwrap_or_default();
                if is_pure_target(&name, about.clone().find(3).unwrap_or_default()) {
                    return None;
                }
                if is_whole(&name) {
                    self.matches.push(Match::Whole);
                }
                return Some(Target::Acts);
            }
            "nat" => {
                self.matches.push(Match::Whole);
                return Some(Target::Acts);
            }
            "ct" if number(1).is_none() && number(2).is_some_and(|key| CT_QUIET.contains(&key)) => {
                self.matches.push(Match::Whole);
            }
            // With a verdict as its result, a set can do anything; without a register that is written, `ct` writes the connection.
            "lookup" if number(3) == Some(VERDICT) => return Some(Target::Acts),
            "ct" | "exthdr" | "rt" | "fib" | "byteorder"
                if number(if name == "byteorder" { 2 } else { 1 }).is_none() =>
            {
                return Some(Target::Acts);
            }
            name if PURE.contains(&name) => {
                if name == "ct" {
                    self.matches.push(Match::Whole);
                }
                self.registers.clear();
            }
            _ => return Some(Target::Acts),
        }
        None
    }

    fn load(&mut self, register: u32, loaded: Option<Loaded>) {
        // Registers of 4 and of 16 bytes overlap: only the last one that was loaded counts.
        self.registers.clear();
        if let Some(loaded) = loaded {
            self.registers.insert(register, loaded);
        }
    }

    /// An address at this place of the network header, where the table or the rule is of one family.
    fn address(&self, base: Option<u32>, offset: Option<u32>) -> Option<Loaded> {
        let has = |family| self.matches.contains(&Match::Family(family));
        let v4 = match self.family {
            family::INET => true,
            family::INET6 => false,
            _ if has(family::INET) => true,
            _ if has(family::INET6) => false,
            _ => return None,
        };
        let source = match (base?, v4, offset?) {
            (NETWORK_HEADER, true, 12) | (NETWORK_HEADER, false, 8) => true,
            (NETWORK_HEADER, true, 16) | (NETWORK_HEADER, false, 24) => false,
            _ => return None,
        };
        Some(Loaded::Address { v4, source, mask: None })
    }

    fn compare(&mut self, about: &Attributes<'_>) {
        let number = |kind| about.clone().find(kind).and_then(read_be32);
        let value = about.clone().find(3).and_then(|data| Attributes::new(data).find(1));
        let (Some(register), Some(op), Some(value)) = (number(1), number(2), value) else { return };
        let Some(loaded) = self.registers.get(&register) else { return };
        let others = op == OP_NEQ;
        if op != OP_EQ && !others {
            return;
        }
        let found = match loaded {
            Loaded::Name => Some(Match::Device(Device::Name(value.to_vec()), others)),
            Loaded::Number => read_u32(value).map(|number| Match::Device(Device::Number(number), others)),
            Loaded::Family if !others => match value {
                [2] => Some(Match::Family(family::INET)),
                [10] => Some(Match::Family(family::INET6)),
                _ => None,
            },
            Loaded::Address { v4, source, mask } if !others => {
                let whole = vec![0xff; value.len()];
                prefix(*v4, value, mask.as_ref().unwrap_or(&whole))
                    .map(|prefix| if *source { Match::From(prefix) } else { Match::To(prefix) })
            }
            _ => None,
        };
        self.matches.extend(found);
    }
}

/// The prefix of an address's first bytes under a mask.
pub fn prefix(v4: bool, value: &[u8], mask: &[u8]) -> Option<IpPrefix> {
    let ones = mask.iter().map(|byte| byte.leading_ones()).take_while(|ones| *ones > 0);
    let len: u32 = ones.sum();
    let set: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    // One run of ones, and no more bytes than an address has.
    if len != set || len == 0 || mask.len() != value.len() || value.len() > if v4 { 4 } else { 16 } {
        return None;
    }
    let mut bytes = [0; 16];
    bytes[..value.len()].copy_from_slice(value);
    if v4 {
        let address = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Some(IpPrefix::V4(Prefix::truncated(address, len as u16)))
    } else {
        Some(IpPrefix::V6(Prefix::truncated(u128::from_be_bytes(bytes), len as u16)))
    }
}

fn verdict(attributes: Option<&[u8]>) -> Target {
    let attributes = Attributes::new(attributes.unwrap_or_default());
    let code = attributes.clone().find(1).and_then(read_be32).map(u32::cast_signed);
    match code {
        Some(ACCEPT | CONTINUE | BREAK | RETURN) => Target::Nothing,
        Some(JUMP | GOTO) => attributes.find(2).map_or(Target::Acts, |chain| Target::Chain(read_text(chain))),
        _ => Target::Acts,
    }
}
