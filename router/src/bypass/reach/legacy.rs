//! Rules of the legacy iptables, read from a table's entries as far as they tell whom they select.

use super::nftables::{PURE_MATCHES, is_pure_target, is_whole, prefix};
use super::{Device, Match, Rule, Rules, Target};
use crate::kernel::attribute::{read_text, read_u16, read_u32};

/// Where the parts of an entry stand, which differ between the families.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// It is of IPv6.
    pub ipv6: bool,
    /// `target_offset`; `next_offset` follows it.
    pub offsets_at: usize,
    /// Bytes before the first match.
    pub matches_at: usize,
    /// `flags` and `invflags`.
    pub flags_at: usize,
}

/// `struct ipt_entry`
pub const IPV4: Entry = Entry { ipv6: false, offsets_at: 88, matches_at: 112, flags_at: 82 };
/// `struct ip6t_entry`
pub const IPV6: Entry = Entry { ipv6: true, offsets_at: 140, matches_at: 168, flags_at: 131 };

/// `struct xt_entry_match` and `xt_entry_target`: size, name, revision.
const HEADER: usize = 32;
const NAME: usize = 16;
const INVERT_IN: u8 = 0x01;
const INVERT_OUT: u8 = 0x02;
const INVERT_SOURCE: u8 = 0x08;
const INVERT_DESTINATION: u8 = 0x10;
/// Of a standard target, `-NF_ACCEPT - 1` and `-NF_REPEAT - 1`, which is a return.
const ACCEPT: i32 = -2;
const RETURN: i32 = -5;
/// The target of the entry that names a chain, or ends the table.
const ERROR: &str = "ERROR";

/// The chains of a table: those of `known`, by the places of their first entry and of their policy. Also all that rules jump to, named
/// by their place. `None`: damaged.
pub fn rules(entry: Entry, entries: &[u8], known: &[(usize, usize, &str)]) -> Option<Rules> {
    let mut rules = Rules::new();
    // A user's chain ends where the next is named.
    let mut wanted: Vec<_> = known.iter().map(|(at, end, name)| (*at, *end, (*name).to_owned())).collect();
    while let Some((first, end, name)) = wanted.pop() {
        if rules.contains_key(&name) {
            continue;
        }
        let (mut at, mut chain) = (first, Vec::new());
        while at < entries.len().min(end) {
            let one = entries.get(at..)?;
            let next = usize::from(read_u16(one.get(entry.offsets_at + 2..)?)?);
            let one = one.get(..next).filter(|one| one.len() >= entry.matches_at)?;
            if target(entry, one)?.0 == ERROR {
                break;
            }
            let rule = read(entry, one, at + next)?;
            if let Target::Chain(name) = &rule.then {
                wanted.push((name.parse().ok()?, usize::MAX, name.clone()));
            }
            chain.push(rule);
            at += next;
        }
        rules.insert(name, chain);
    }
    Some(rules)
}

/// The name of an entry's target, and what it is about.
fn target(entry: Entry, one: &[u8]) -> Option<(String, &[u8])> {
    let at = usize::from(read_u16(one.get(entry.offsets_at..)?)?);
    let target = one.get(at..)?;
    Some((read_text(target.get(2..HEADER - 1)?), target.get(HEADER..)?))
}

/// An entry as a rule; `next` is the place of the entry behind it.
fn read(entry: Entry, one: &[u8], next: usize) -> Option<Rule> {
    let address = if entry.ipv6 { 16 } else { 4 };
    let part = |at: usize, len: usize| one.get(at..at + len);
    let (flags, inverted) = (*one.get(entry.flags_at)?, *one.get(entry.flags_at + 1)?);
    let mut matches = Vec::new();
    for (at, source) in [(0, true), (address, false)] {
        let (value, mask) = (part(at, address)?, part(2 * address + at, address)?);
        let inverted = inverted & if source { INVERT_SOURCE } else { INVERT_DESTINATION } != 0;
        if let Some(prefix) = prefix(!entry.ipv6, value, mask).filter(|_| !inverted) {
            matches.push(if source { Match::From(prefix) } else { Match::To(prefix) });
        }
    }
    for (at, invert) in [(0, INVERT_IN), (NAME, INVERT_OUT)] {
        let (name, mask) = (part(4 * address + at, NAME)?, part(4 * address + 2 * NAME + at, NAME)?);
        let len = mask.iter().take_while(|byte| **byte == 0xff).count();
        // Any device, or a mask that iptables does not write.
        if len > 0 && mask[len..].iter().all(|byte| *byte == 0) {
            matches.push(Match::Device(Device::Name(name[..len].to_vec()), inverted & invert != 0));
        }
    }
    let (name, about) = target(entry, one)?;
    let end = usize::from(read_u16(one.get(entry.offsets_at..)?)?);
    let mut acts = false;
    let mut at = entry.matches_at;
    while at < end {
        let one = one.get(at..end)?;
        let size = usize::from(read_u16(one)?);
        let one = one.get(..size).filter(|one| one.len() >= HEADER)?;
        let name = read_text(&one[2..HEADER - 1]);
        acts |= !PURE_MATCHES.contains(&name.as_str());
        if is_whole(&name) {
            matches.push(Match::Whole);
        }
        at += size;
    }
    if is_whole(&name) {
        matches.push(Match::Whole);
    }
    // Those of IPv6: PROTO, TOS, GOTO; of IPv4: FRAG, GOTO.
    acts |= flags & !0x07 != 0;
    let then = match read_u32(about).map(u32::cast_signed) {
        _ if !acts && is_pure_target(&name, about) => Target::Nothing,
        _ if acts || !name.is_empty() => Target::Acts,
        Some(ACCEPT | RETURN) => Target::Nothing,
        Some(place) if place >= 0 && place.cast_unsigned() as usize == next => Target::Nothing,
        Some(place) if place >= 0 => Target::Chain(place.to_string()),
        _ => Target::Acts,
    };
    Some(Rule { matches, then, counts: true })
}
