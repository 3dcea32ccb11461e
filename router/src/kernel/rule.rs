//! Policy rules (`ip rule`): which packets are looked up in which table, and in what order.

use super::attribute::{Attributes, FLAG_DUMP, Request, read_address, read_text, read_u32};
use super::message;
use std::net::IpAddr;
use trieline_lpm::{IpPrefix, Prefix};

mod text;

/// The action of a rule on the packets that it selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FibRuleAction {
    /// Looks them up in a table.
    Table(u32),
    /// Looks them up in the table of the VRF that they came in by, if any (`l3mdev`).
    Vrf,
    /// Nothing.
    Nop,
    /// Goes on with the first rule of this priority; nothing, where there is none.
    GoTo(u32),
    /// Drops them.
    Blackhole,
    /// Drops them with an ICMP error.
    Unreachable,
    /// Likewise, administratively prohibited.
    Prohibit,
    /// Something else.
    Other,
}

/// The device that the kernel found by the name in a rule. When the rule is made, any name of the device will do, later only its own name. The
/// rule keeps the device until that goes or gets another name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// None: the rule selects no packet until a device of the name comes.
    #[default]
    Nowhere,
    /// The device of this index.
    To(u32),
    /// A device that has no such name by now, or whose name was not reported: only the kernel knows it.
    Unknown,
}

/// A rule of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Address family.
    pub family: u8,
    /// Order; the lowest comes first.
    pub priority: u32,
    /// Only packets from here.
    pub from: Option<IpPrefix>,
    /// Only packets to here.
    pub to: Option<IpPrefix>,
    /// Only packets that come in by the device of this name.
    pub iif: Option<String>,
    /// That device. A decoded rule says only whether there is one; see [`KernelState`](crate::rib::kernel_state::KernelState).
    pub attached: Attached,
    /// Only packets for which this device was chosen already, as those that a VRF device sends on (`oif`).
    pub oif: Option<String>,
    /// Only packets whose mark is this, in the bits of the mask; no bits: any.
    pub mark: u32,
    /// See `mark`.
    pub mask: u32,
    /// It selects the packets that it would not select otherwise (`not`).
    pub inverted: bool,
    /// The rule's action.
    pub then: FibRuleAction,
    /// The next rule decides where the table answers by its default route (`suppress_prefixlength 0`); errors count.
    pub suppress_default: bool,
    /// It selects by a range of users without 0 (`uidrange`), to whom no forwarded packet belongs.
    pub of_others: bool,
    /// A selector or action of the rule that only the kernel can follow.
    pub kernel: Option<&'static str>,
    /// The rule's whole message, to distinguish rules.
    pub key: Vec<u8>,
}

/// Bytes of `struct fib_rule_hdr`.
const FIXED: usize = 12;
const ACTION_TO_TABLE: u8 = 1;
const ACTION_GOTO: u8 = 2;
const ACTION_NOP: u8 = 3;
const ACTION_BLACKHOLE: u8 = 6;
const ACTION_UNREACHABLE: u8 = 7;
const ACTION_PROHIBIT: u8 = 8;
const INVERT: u32 = 0x2;
const PERMANENT: u32 = 0x1;
/// The kernel has no device by the name of the incoming one.
const NO_IIF: u32 = 0x8;
/// Whether a jump has a target, and whether devices are there: they change by themselves.
const PASSING: u32 = 0x4 | NO_IIF | 0x10;

/// Decodes the payload of a rule message.
pub fn decode(payload: &[u8]) -> Option<Rule> {
    let fixed = payload.first_chunk::<FIXED>()?;
    let flags = read_u32(&fixed[8..])?;
    let mut key = payload.to_vec();
    key[8..12].copy_from_slice(&(flags & !PASSING).to_ne_bytes());
    let (mut table, mut vrf, mut target) = (u32::from(fixed[4]), false, 0);
    let mut rule = Rule {
        family: fixed[0],
        priority: 0,
        from: None,
        to: None,
        iif: None,
        attached: Attached::Nowhere,
        oif: None,
        mark: 0,
        mask: 0,
        inverted: flags & INVERT != 0,
        then: FibRuleAction::Other,
        suppress_default: false,
        of_others: false,
        kernel: None,
        key,
    };
    if fixed[3] != 0 {
        rule.kernel = Some("XDP does not see the type of service");
    }
    if flags & !(PERMANENT | INVERT | PASSING) != 0 {
        rule.kernel = Some("it has a flag that is not known");
    }
    // A rule that cannot be read is one all the same.
    let mut damaged = false;
    let mut number = |value| {
        let number = read_u32(value);
        damaged |= number.is_none();
        number.unwrap_or_default()
    };
    let mut prefixes = [None; 2];
    for (kind, value) in Attributes::new(&payload[FIXED..]) {
        match kind {
            1 => prefixes[0] = Some(prefix(value, fixed[1])),
            2 => prefixes[1] = Some(prefix(value, fixed[2])),
            3 => {
                rule.iif = Some(read_text(value));
                rule.attached = if flags & NO_IIF == 0 { Attached::Unknown } else { Attached::Nowhere };
            }
            6 => rule.priority = number(value),
            10 => rule.mark = number(value),
            16 => rule.mask = number(value),
            // FRA_SUPPRESS_IFGROUP: -1 is off
            13 => {
                if read_u32(value) != Some(u32::MAX) {
                    rule.kernel = Some("`suppress_ifgroup` is not followed");
                }
            }
            14 => match read_u32(value) {
                Some(u32::MAX) => {}
                Some(0) => rule.suppress_default = true,
                _ => rule.kernel = Some("`suppress_prefixlength` is followed for 0 only"),
            },
            15 => table = number(value),
            // padding; protocol: who made it
            18 | 21 => {}
            17 => rule.oif = Some(read_text(value)),
            19 => vrf = value.first().is_some_and(|on| *on != 0),
            4 => target = number(value),
            11 => rule.kernel = Some("realms are not kept"),
            12 => rule.kernel = Some("tunnels are not seen"),
            // A forwarded packet is of user 0, that is of no socket.
            20 if read_u32(value).is_some_and(|first| first > 0) => rule.of_others = true,
            20 => rule.kernel = Some("users are not seen"),
            22..=24 | 28 | 29 => rule.kernel = Some("XDP does not see the protocol or port"),
            25 | 30 => rule.kernel = Some("XDP does not see the type of service"),
            26 | 27 => rule.kernel = Some("XDP does not see the flow label"),
            _ => rule.kernel = Some("it selects by something unknown"),
        }
    }
    let unread = |prefix: &Option<Option<IpPrefix>>, len| prefix.map_or(len != 0, |prefix| prefix.is_none());
    if damaged || unread(&prefixes[0], fixed[1]) || unread(&prefixes[1], fixed[2]) {
        rule.kernel = Some("it cannot be read");
    }
    [rule.to, rule.from] = prefixes.map(Option::flatten);
    if rule.inverted && vrf {
        rule.kernel = Some("`not` is not followed with `l3mdev`");
    }
    rule.then = match fixed[7] {
        ACTION_TO_TABLE if vrf => FibRuleAction::Vrf,
        ACTION_TO_TABLE => FibRuleAction::Table(table),
        ACTION_NOP => FibRuleAction::Nop,
        ACTION_GOTO => FibRuleAction::GoTo(target),
        ACTION_BLACKHOLE => FibRuleAction::Blackhole,
        ACTION_UNREACHABLE => FibRuleAction::Unreachable,
        ACTION_PROHIBIT => FibRuleAction::Prohibit,
        _ => FibRuleAction::Other,
    };
    if rule.then == FibRuleAction::Other {
        rule.kernel.get_or_insert("its action is not followed");
    }
    Some(rule)
}

fn prefix(bytes: &[u8], len: u8) -> Option<IpPrefix> {
    match read_address(bytes)? {
        IpAddr::V4(addr) => Some(IpPrefix::V4(Prefix::new(addr.into(), len.into()).ok()?)),
        IpAddr::V6(addr) => Some(IpPrefix::V6(Prefix::new(addr.into(), len.into()).ok()?)),
    }
}

impl Rule {
    /// A rule that looks every packet up in a table, as the kernel's own do.
    pub fn lookup(family: u8, priority: u32, then: FibRuleAction) -> Self {
        let (from, to, iif, attached, oif, mark, mask) = Default::default();
        let (inverted, suppress_default, of_others, kernel, key) = Default::default();
        Self {
            family,
            priority,
            from,
            to,
            iif,
            attached,
            oif,
            mark,
            mask,
            inverted,
            then,
            suppress_default,
            of_others,
            kernel,
            key,
        }
    }

    /// Whether the kernel takes both for the same rule.
    pub fn is_equal(&self, other: &Self) -> bool {
        self.priority == other.priority && self.iif == other.iif && self.key == other.key
    }

    /// Whether it selects packets by an incoming device that only the kernel knows.
    pub fn is_by_unknown_device(&self) -> bool {
        self.iif.is_some() && self.attached == Attached::Unknown
    }

    /// Whether it selects by another incoming device than this one, or by one that does not exist.
    pub fn is_by_other_device(&self, ifindex: u32) -> bool {
        self.iif.is_some()
            && match self.attached {
                Attached::Nowhere => true,
                Attached::To(device) => device != ifindex,
                Attached::Unknown => false,
            }
    }

    /// Whether marks matter to it.
    pub fn selects_mark(&self) -> bool {
        self.mask != 0
    }

    /// Whether it may select packets that have no mark, as far as that goes: their mark is 0.
    pub fn takes_unmarked(&self) -> bool {
        self.mark & self.mask == 0
    }

    /// Whether it looks every packet up in a table.
    pub fn is_plain(&self) -> bool {
        let all = self.from.is_none() && self.to.is_none() && self.iif.is_none() && self.oif.is_none();
        let all = all && !self.selects_mark() && !self.inverted && !self.suppress_default && !self.of_others;
        all && self.kernel.is_none() && matches!(self.then, FibRuleAction::Table(_))
    }
}

/// Asks for all rules of a family.
pub fn dump(family: u8) -> Request {
    let mut fixed = [0; FIXED];
    fixed[0] = family;
    Request::new(message::GET_RULE, FLAG_DUMP, &fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fixed: [u8; 12], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let request = Request::new(0, 0, &fixed);
        let request =
            attributes.iter().fold(request, |request, (kind, value)| request.attribute(*kind, value));
        request.finish(0).split_off(super::super::attribute::HEADER)
    }

    #[test]
    fn rules_name_selectors_that_only_the_kernel_follows() {
        let fixed = [2, 16, 8, 0, 100, 0, 0, 1, 0, 0, 0, 0];
        let prefixes: [(u16, &[u8]); 4] =
            [(1, &[10, 9, 0, 0]), (2, &[10, 0, 0, 0]), (3, b"eth0\0"), (6, &7u32.to_ne_bytes())];
        let reported = decode(&message(fixed, &prefixes)).unwrap();
        assert_eq!(reported.to_string(), "7: from 10.0.0.0/8 to 10.9.0.0/16 iif eth0 lookup 100");
        assert_eq!((reported.kernel, reported.then), (None, FibRuleAction::Table(100)));
        for (kind, value, why) in [
            (10, 1u32, None),
            (16, 1, None),
            (14, u32::MAX, None),
            (14, 0, None),
            (14, 1, Some("suppress_prefixlength")),
            (13, 3, Some("suppress_ifgroup")),
            (22, 6, Some("protocol")),
            (99, 0, Some("unknown")),
        ] {
            let value = value.to_ne_bytes();
            let all = [&prefixes[..], &[(kind, &value)]].concat();
            let kernel = decode(&message(fixed, &all)).unwrap().kernel;
            assert_eq!(kernel.is_some(), why.is_some(), "{kind} {value:?}");
            assert!(kernel.is_none_or(|reported| reported.contains(why.unwrap_or("?"))), "{kernel:?}");
        }
        // `not`, `goto`, `suppress_prefixlength 0`
        let mut inverted = fixed;
        (inverted[7], inverted[8]) = (ACTION_GOTO, 2);
        let (target, off) = (90u32.to_ne_bytes(), 0u32.to_ne_bytes());
        let all = [&prefixes[..], &[(4, &target)]].concat();
        let rule = decode(&message(inverted, &all)).unwrap();
        assert_eq!((rule.then, rule.inverted, rule.kernel), (FibRuleAction::GoTo(90), true, None));
        assert_eq!(rule.to_string(), "7: not from 10.0.0.0/8 to 10.9.0.0/16 iif eth0 goto 90");
        let all = [&prefixes[..], &[(14, &off)]].concat();
        let rule = decode(&message(fixed, &all)).unwrap();
        assert!(
            rule.suppress_default && rule.to_string().ends_with("lookup 100 suppress_prefixlength 0"),
            "{rule}"
        );
        // marks, and all else that it selects by, in the words of ip rule
        let numbers = |first: u16, last: u16| u32::from(first) | u32::from(last) << 16;
        let all = |more: &[(u16, u32)]| {
            let more: Vec<_> = more.iter().map(|(kind, value)| (*kind, value.to_ne_bytes())).collect();
            let more = more.iter().map(|(kind, value)| (*kind, &value[..]));
            decode(&message(fixed, &prefixes.iter().copied().chain(more).collect::<Vec<_>>())).unwrap()
        };
        for (mark, mask, text, unmarked) in [
            (7, u32::MAX, "fwmark 0x7", false),
            (0x10, 0xf0, "fwmark 0x10/0xf0", false),
            (0, 0xff, "fwmark 0/0xff", true),
            (0x10, 0xf, "fwmark 0x10/0xf", true),
        ] {
            let rule = all(&[(10, mark), (16, mask)]);
            assert_eq!((rule.takes_unmarked(), rule.kernel), (unmarked, None), "{text}");
            assert!(rule.to_string().contains(&format!(" to 10.9.0.0/16 {text} iif eth0 lookup")), "{rule}");
        }
        let rule =
            all(&[(22, 17), (24, numbers(53, 53)), (23, numbers(5, 9)), (13, 7), (14, 3), (11, 0x3_0004)]);
        let tail =
            "ipproto udp sport 5-9 dport 53 lookup 100 suppress_prefixlength 3 suppress_ifgroup 7 realms 3/4";
        assert!(rule.to_string().ends_with(tail), "{rule}");
        // a device that goes away changes a flag, not the rule
        let mut detached = fixed;
        detached[8] = 8;
        let detached = decode(&message(detached, &prefixes)).unwrap();
        assert!(detached.is_equal(&reported) && !detached.is_by_unknown_device());
        assert!(reported.is_by_unknown_device() && detached.is_by_other_device(7));
    }

    /// A rule that cannot be read whole may select any packet: those that come to it are the kernel's.
    #[test]
    fn a_rule_is_never_overlooked() {
        let fixed = [2, 16, 0, 0, 100, 0, 0, 1, 0, 0, 0, 0];
        let to: (u16, &[u8]) = (1, &[10, 9, 0, 0]);
        assert_eq!(decode(&message(fixed, &[to])).unwrap().kernel, None);
        for more in [(1, &[10u8, 9][..]), (6, &[1]), (10, &[]), (15, &[1, 2]), (4, &[])] {
            let rule = decode(&message(fixed, &[to, more])).unwrap();
            assert_eq!(rule.kernel, Some("it cannot be read"), "{more:?}");
        }
        assert!(decode(&message(fixed, &[])).unwrap().kernel.is_some(), "a length without a prefix");
        for (flags, known) in [(1u32, true), (0x1c, true), (0x20, false), (0x1_0000, false)] {
            let mut flagged = fixed;
            flagged[8..].copy_from_slice(&flags.to_ne_bytes());
            assert_eq!(decode(&message(flagged, &[to])).unwrap().kernel.is_none(), known, "{flags:#x}");
        }
    }
}
