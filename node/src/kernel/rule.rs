//! Policy rules: only whether they are the kernel's own three, because anything else can change any answer.

use super::attribute::{Attributes, FLAG_DUMP, Request, read_u32};
use super::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, message};

/// What of a rule decides whether it is one of the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// Address family.
    pub family: u8,
    /// Order; the lowest comes first.
    pub priority: u32,
    /// Table looked up.
    pub table: u32,
    /// Looks the table up for every packet.
    pub plain: bool,
    /// The rule of VRF devices (`l3mdev`), which concerns only packets of such a device.
    pub vrf: bool,
}

const ACTION_TO_TABLE: u8 = 1;
const INVERT: u32 = 0x2;

/// Decodes the payload of a rule message.
pub fn decode(payload: &[u8]) -> Option<Rule> {
    let fixed = payload.first_chunk::<12>()?;
    let (mut table, mut priority, mut vrf) = (u32::from(fixed[4]), 0, false);
    let flags = read_u32(&fixed[8..])?;
    // destination or source prefix, TOS, action, inverted
    let mut plain =
        fixed[1] == 0 && fixed[2] == 0 && fixed[3] == 0 && fixed[7] == ACTION_TO_TABLE && flags & INVERT == 0;
    for (kind, value) in Attributes::new(&payload[12..]) {
        match kind {
            6 => priority = read_u32(value)?,
            15 => table = read_u32(value)?,
            19 => vrf = value.first().is_some_and(|on| *on != 0),
            13 | 14 => plain &= read_u32(value) == Some(u32::MAX), // FRA_SUPPRESS_*: -1 is off
            18 | 21 => {}                                          // padding, protocol: who made it
            _ => plain = false,
        }
    }
    Some(Rule { family: fixed[0], priority, table, plain: plain && !vrf, vrf })
}

/// Whether `rules`, those of one family, answer as the kernel's own rules do: local, main, then perhaps default.
pub fn are_default(rules: &[Rule]) -> bool {
    let mut rest: Vec<_> = rules.iter().filter(|rule| !rule.vrf).collect();
    rest.sort_by_key(|rule| rule.priority);
    rest.iter().all(|rule| rule.plain)
        && matches!(rest[..], [local, main, ref more @ ..]
            if local.table == TABLE_LOCAL && main.table == TABLE_MAIN && more.iter().all(|rule| rule.table == TABLE_DEFAULT))
}

/// Asks for all rules of a family.
pub fn dump(family: u8) -> Request {
    let mut fixed = [0; 12];
    fixed[0] = family;
    Request::new(message::GET_RULE, FLAG_DUMP, &fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(priority: u32, table: u32) -> Rule {
        Rule { family: 2, priority, table, plain: true, vrf: false }
    }

    #[test]
    fn only_the_kernels_own_rules_are_default() {
        let default = [rule(0, 255), rule(32766, 254), rule(32767, 253)];
        assert!(are_default(&default) && are_default(&default[..2]));
        assert!(are_default(&[&default[..], &[Rule { vrf: true, plain: false, ..rule(1000, 0) }]].concat()));
        assert!(!are_default(&[]), "no rules: no answers");
        assert!(!are_default(&default[1..]), "local is asked first");
        assert!(!are_default(&[rule(0, 254), rule(1, 255)]), "the order counts");
        assert!(!are_default(&[&default[..], &[rule(100, 100)]].concat()));
        assert!(!are_default(&[rule(0, 255), Rule { plain: false, ..rule(1, 254) }]));
    }
}
