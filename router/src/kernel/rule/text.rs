//! A policy rule as `ip rule` writes it, with all that it selects by: what is left to the kernel is named by it.

use super::{FIXED, FibRuleAction, Rule};
use crate::kernel::attribute::{Attributes, read_u8, read_u16, read_u32};
use crate::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use std::fmt;
use trieline_lpm::IpPrefix;

/// A prefix; a single address without its length.
struct Net<'a>(Option<&'a IpPrefix>);

impl fmt::Display for Net<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(prefix) = self.0 else { return f.write_str("all") };
        let text = prefix.to_string();
        let single = match prefix {
            IpPrefix::V4(_) => text.strip_suffix("/32"),
            IpPrefix::V6(_) => text.strip_suffix("/128"),
        };
        f.write_str(single.unwrap_or(&text))
    }
}

/// The name of an IP protocol, of those that have ports; the others by number.
fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        58 => "ipv6-icmp".into(),
        132 => "sctp".into(),
        other => other.to_string(),
    }
}

/// Two numbers, or one where they are the same.
fn range<N: fmt::Display + PartialEq>(first: Option<N>, last: Option<N>) -> String {
    match (first, last) {
        (Some(first), Some(last)) if first != last => format!("{first}-{last}"),
        (first, _) => first.map_or_else(String::new, |first| first.to_string()),
    }
}

fn ports(value: &[u8]) -> String {
    range(read_u16(value), value.get(2..).and_then(read_u16))
}

/// Both numbers even where they are the same.
fn users(value: &[u8]) -> String {
    let number = |at: usize| value.get(at..).and_then(read_u32).unwrap_or_default();
    format!("{}-{}", number(0), number(4))
}

/// `FRA_FLOW`: the realm of the source, if any, and that of the destination.
fn realms(value: &[u8]) -> String {
    match read_u32(value).map_or((0, 0), |both| (both >> 16, both & 0xffff)) {
        (0, to) => to.to_string(),
        (from, to) => format!("{from}/{to}"),
    }
}

impl Rule {
    /// An attribute of the kernel's message.
    fn reported(&self, kind: u16) -> Option<&[u8]> {
        Attributes::new(self.key.get(FIXED..)?).find(kind)
    }

    /// Whom it selects beside source and destination: words of `ip rule`, each with a space before it.
    fn selectors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tos) = self.key.get(3).filter(|tos| **tos != 0) {
            write!(f, " tos 0x{tos:02x}")?;
        }
        match (self.mark, self.mask) {
            (0, 0) => {}
            (0, u32::MAX) => f.write_str(" fwmark 0")?,
            (0, mask) => write!(f, " fwmark 0/{mask:#x}")?,
            (mark, u32::MAX) => write!(f, " fwmark {mark:#x}")?,
            (mark, mask) => write!(f, " fwmark {mark:#x}/{mask:#x}")?,
        }
        for (word, device) in [("iif", &self.iif), ("oif", &self.oif)] {
            if let Some(device) = device {
                write!(f, " {word} {device}")?;
            }
        }
        let text = |kind, write: fn(&[u8]) -> String| self.reported(kind).map(write);
        let mask = |kind| self.reported(kind).and_then(read_u16).filter(|mask| *mask != u16::MAX);
        let masked = |kind| mask(kind).map_or_else(String::new, |mask| format!("/{mask:#x}"));
        for (word, value) in [
            ("uidrange", text(20, users)),
            ("ipproto", text(22, |value| protocol(read_u8(value).unwrap_or_default()))),
            ("sport", text(23, ports).map(|ports| ports + &masked(28))),
            ("dport", text(24, ports).map(|ports| ports + &masked(29))),
            (
                "tun_id",
                text(12, |value| value.first_chunk().map_or(0, |id| u64::from_be_bytes(*id)).to_string()),
            ),
            ("dscp", text(25, |value| read_u8(value).unwrap_or_default().to_string())),
            (
                "flowlabel",
                text(26, |value| {
                    format!("{:#x}", u32::from_be_bytes(*value.first_chunk().unwrap_or(&[0; 4])))
                }),
            ),
        ] {
            if let Some(value) = value {
                write!(f, " {word} {value}")?;
            }
        }
        Ok(())
    }

    /// Which routes of its table do not count.
    fn suppressed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, kind) in [("suppress_prefixlength", 14), ("suppress_ifgroup", 13)] {
            if let Some(number) = self.reported(kind).and_then(read_u32).filter(|number| *number != u32::MAX)
            {
                write!(f, " {word} {number}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    /// As `ip rule` writes it, but for names of numbers (`/etc/iproute2`) and devices that are not there (`[detached]`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.inverted { "not " } else { "" };
        write!(f, "{}: {not}from {}", self.priority, Net(self.from.as_ref()))?;
        if self.to.is_some() {
            write!(f, " to {}", Net(self.to.as_ref()))?;
        }
        self.selectors(f)?;
        match self.then {
            FibRuleAction::Table(TABLE_LOCAL) => f.write_str(" lookup local")?,
            FibRuleAction::Table(TABLE_MAIN) => f.write_str(" lookup main")?,
            FibRuleAction::Table(TABLE_DEFAULT) => f.write_str(" lookup default")?,
            FibRuleAction::Table(table) => write!(f, " lookup {table}")?,
            FibRuleAction::Vrf => f.write_str(" lookup [l3mdev-table]")?,
            FibRuleAction::Nop => f.write_str(" nop")?,
            FibRuleAction::Blackhole => f.write_str(" blackhole")?,
            FibRuleAction::Unreachable => f.write_str(" unreachable")?,
            FibRuleAction::Prohibit => f.write_str(" prohibit")?,
            FibRuleAction::GoTo(target) => write!(f, " goto {target}")?,
            FibRuleAction::Other => {}
        }
        self.suppressed(f)?;
        match self.reported(11) {
            Some(value) => write!(f, " realms {}", realms(value)),
            None => Ok(()),
        }
    }
}
