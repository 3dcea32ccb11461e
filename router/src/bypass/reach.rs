//! Which of the packets that XDP forwards netfilter's rules can reach. A rule that only matches devices which are not trieline's does
//! nothing to them. One that only matches a source or a destination prefix concerns those packets alone. A rule of whole connections
//! concerns their answers, too, and so all packets; likewise a rule that is not understood.

use super::netfilter::{Chain, Hook, Reach};
use std::collections::HashMap;
use trieline_lpm::IpPrefix;

pub mod legacy;
pub mod nftables;

/// A test of a device's name or number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The name begins with these bytes, or, with 16 of them, is that name padded with zeros.
    Name(Vec<u8>),
    /// The number.
    Number(u32),
}

/// Something that a rule selects packets by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// By the device that the packet comes in or goes out by; `true`: by all others.
    Device(Device, bool),
    /// The source is in this prefix.
    From(IpPrefix),
    /// The destination is in this prefix.
    To(IpPrefix),
    /// The rule belongs to whole connections: it looks at their state or writes addresses of them. So packets that it does not select
    /// matter, too: their answers. The devices alone say whom it concerns. Where no rule of the
    /// chain acts, it reaches no packet.
    Whole,
    /// The packet is of this address family.
    Family(u8),
}

/// The target of the packets that a rule selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Nothing to the packet: it goes on, or is done with this chain.
    Nothing,
    /// The rules of this chain.
    Chain(String),
    /// Something, or what is not understood.
    Acts,
}

/// A rule, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// All of these select.
    pub matches: Vec<Match>,
    /// The rule's target.
    pub then: Target,
    /// It counts or logs them.
    pub counts: bool,
}

/// Rules of the chains of one table, by name.
pub type Rules = HashMap<String, Vec<Rule>>;

/// A device that forwarded packets come in or go out by: number and name.
pub type Own = (u32, String);

/// Known facts about the packets that XDP forwards.
#[derive(Debug, Clone, Copy)]
pub struct Forwarded<'a> {
    /// Every device that they may come in or go out by.
    pub devices: &'a [Own],
}

/// Jumps deeper than this are not followed; the kernel allows 16.
const DEEPEST: usize = 16;
/// More rules than this are not looked at, counted each time that they are met.
const MOST: usize = 10_000;
/// More parts than this are all packets.
const PARTS: usize = 8;

/// A chain and those that it jumps to, as far as they were followed.
struct Followed {
    /// The packets that rules act on.
    parts: Vec<Reach>,
    /// Rules that may still be looked at.
    left: usize,
    /// Some rules belong to whole connections.
    whole: bool,
}

impl Forwarded<'_> {
    /// The packets that the rules of a chain can reach; `rules` are those of its table. `None`: all packets.
    pub fn reached(&self, chain: &Chain, rules: &Rules) -> Option<Vec<Reach>> {
        if chain.drops || matches!(chain.hook, Hook::Ingress | Hook::Egress) {
            return None;
        }
        let mut followed = Followed { parts: Vec::new(), left: MOST, whole: false };
        self.follow(&chain.name, rules, Reach::default(), 0, &mut followed)?;
        let Followed { mut parts, whole, .. } = followed;
        parts.sort_unstable();
        parts.dedup();
        (parts.len() <= PARTS && (!whole || parts.is_empty())).then_some(parts)
    }

    /// Whether a rule of a chain, or of one that it jumps to, counts packets that XDP may forward.
    pub fn counted(&self, chain: &Chain, rules: &Rules) -> bool {
        let (mut chains, mut at) = (vec![chain.name.as_str()], 0);
        while let Some(name) = chains.get(at) {
            at += 1;
            for rule in rules.get(*name).into_iter().flatten() {
                if self.selected(rule, Reach::default()).is_none() {
                    continue;
                }
                if rule.counts {
                    return true;
                }
                if let Target::Chain(target) = &rule.then
                    && !chains.contains(&target.as_str())
                {
                    chains.push(target);
                }
            }
        }
        false
    }

    fn follow(
        &self,
        chain: &str,
        rules: &Rules,
        within: Reach,
        depth: usize,
        followed: &mut Followed,
    ) -> Option<()> {
        // A chain that no rule is in is empty.
        for rule in rules.get(chain).into_iter().flatten() {
            followed.left = followed.left.checked_sub(1)?;
            let Some(reach) = self.selected(rule, within) else { continue };
            followed.whole |= rule.matches.contains(&Match::Whole);
            match &rule.then {
                Target::Nothing => {}
                Target::Acts if reach.from.is_none() && reach.to.is_none() && reach.family.is_none() => {
                    return None;
                }
                Target::Acts => {
                    if !followed.parts.contains(&reach) {
                        followed.parts.push(reach);
                    }
                }
                Target::Chain(_) if depth == DEEPEST => return None,
                Target::Chain(target) => self.follow(target, rules, reach, depth + 1, followed)?,
            }
        }
        Some(())
    }

    /// Those of `within` that a rule may select; `None`: none of them.
    fn selected(&self, rule: &Rule, within: Reach) -> Option<Reach> {
        let mut reach = within;
        for one in &rule.matches {
            match one {
                Match::Device(device, others) => {
                    let meets = |own: &Own| device.is(own) != *others;
                    // Where a hook knows of no device, the name is empty.
                    let none = (0, String::new());
                    if !self.devices.iter().any(meets) && !meets(&none) {
                        return None;
                    }
                }
                Match::Whole => {}
                Match::Family(family) if !reach.concerns(*family) => return None,
                Match::Family(family) => reach.family = Some(*family),
                Match::From(prefix) => reach.from = Some(narrower(reach.from, *prefix)?),
                Match::To(prefix) => reach.to = Some(narrower(reach.to, *prefix)?),
            }
        }
        Some(reach)
    }
}

/// The prefix that two prefixes have in common.
fn narrower(one: Option<IpPrefix>, other: IpPrefix) -> Option<IpPrefix> {
    match (one, other) {
        (None, _) => Some(other),
        (Some(IpPrefix::V4(one)), IpPrefix::V4(other)) if one.covers(&other) => Some(IpPrefix::V4(other)),
        (Some(IpPrefix::V4(one)), IpPrefix::V4(other)) => other.covers(&one).then_some(IpPrefix::V4(one)),
        (Some(IpPrefix::V6(one)), IpPrefix::V6(other)) if one.covers(&other) => Some(IpPrefix::V6(other)),
        (Some(IpPrefix::V6(one)), IpPrefix::V6(other)) => other.covers(&one).then_some(IpPrefix::V6(one)),
        _ => None,
    }
}

/// `IFNAMSIZ`: a name with the zeros behind it.
const NAME: usize = 16;

impl Device {
    fn is(&self, (number, name): &Own) -> bool {
        match self {
            Self::Number(wanted) => wanted == number,
            Self::Name(wanted) => {
                let mut padded = [0; NAME];
                let len = name.len().min(NAME);
                padded[..len].copy_from_slice(&name.as_bytes()[..len]);
                padded.starts_with(wanted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::family;

    fn name(text: &str) -> Device {
        let mut padded = text.as_bytes().to_vec();
        padded.resize(NAME, 0);
        Device::Name(padded)
    }

    fn reached(rules: &[(&str, Vec<Rule>)]) -> Option<Vec<Reach>> {
        let devices = [(3, "n0".to_owned()), (4, "n1".to_owned())];
        let rules = rules.iter().map(|(name, rules)| ((*name).to_owned(), rules.clone())).collect();
        let chain = Chain {
            tool: "nftables",
            table: "ip t".into(),
            name: "base".into(),
            hook: Hook::Forward,
            v4: true,
            v6: false,
            rules: 1,
            drops: false,
            devices: Vec::new(),
            reach: None,
            counts: false,
        };
        Forwarded { devices: &devices }.reached(&chain, &rules)
    }

    fn rule(matches: &[Match], then: Target) -> Rule {
        Rule { matches: matches.to_vec(), then, counts: false }
    }

    #[test]
    fn devices_of_others_are_out_of_reach() {
        for (device, others, none) in [
            (name("docker0"), false, true),
            (name("n1"), false, false),
            (name("n1"), true, false),
            (Device::Name(b"docker".to_vec()), false, true),
            (Device::Name(b"n".to_vec()), false, false),
            (Device::Name(Vec::new()), true, true),
            (Device::Number(9), false, true),
            (Device::Number(4), false, false),
            (Device::Number(9), true, false),
        ] {
            let rules = [rule(&[Match::Device(device.clone(), others)], Target::Acts)];
            let expected = none.then(Vec::new);
            assert_eq!(reached(&[("base", rules.to_vec())]), expected, "{device:?} {others}");
        }
    }

    #[test]
    fn jumps_are_followed_and_prefixes_narrowed() {
        let net: IpPrefix = "172.17.0.0/16".parse().unwrap();
        let host: IpPrefix = "172.17.0.2/32".parse().unwrap();
        let jump = |matches: &[Match]| rule(matches, Target::Chain("more".into()));
        let more = |matches: &[Match]| ("more", vec![rule(matches, Target::Acts)]);
        let part = |from| Some(vec![Reach { from, ..Reach::default() }]);
        let from = |prefix| [Match::From(prefix)];
        assert_eq!(reached(&[("base", vec![jump(&from(net))]), more(&from(host))]), part(Some(host)));
        assert_eq!(reached(&[("base", vec![jump(&from(host))]), more(&from(net))]), part(Some(host)));
        assert_eq!(reached(&[("base", vec![jump(&[])]), more(&[])]), None);
        assert_eq!(reached(&[("base", vec![jump(&[])])]), Some(Vec::new()), "an empty chain");
        let whole = |device, then| {
            let matches = [Match::Device(name(device), false), Match::From(net), Match::Whole];
            reached(&[("base", vec![rule(&matches, then)])])
        };
        let acts = |device| whole(device, Target::Acts);
        assert_eq!((acts("docker0"), acts("n0")), (Some(Vec::new()), None), "answers come back");
        assert_eq!(whole("n0", Target::Nothing), Some(Vec::new()), "nothing acts, whatever the state");
        let guarded = vec![rule(&[Match::Whole], Target::Nothing), rule(&from(net), Target::Acts)];
        assert_eq!(reached(&[("base", guarded)]), None, "answers are of a state that a rule acts by");
        let round = [("base", vec![jump(&[])]), ("more", vec![rule(&[], Target::Chain("base".into()))])];
        assert_eq!(reached(&round), None, "a circle");
        let other = [Match::Family(family::INET6), Match::Family(family::INET)];
        assert_eq!(reached(&[("base", vec![rule(&other, Target::Acts)])]), Some(Vec::new()));
    }
}
