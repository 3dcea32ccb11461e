//! From the kernel's policy rules to the tables that decide for one device's packets, in their order.
//!
//! What can be known beforehand is decided here: incoming device, VRF, marks (XDP sees packets before anybody marks them).
//! Source and destination are left for each packet. Where only the kernel can tell whether a rule selects a packet, the
//! packets that come to that rule are its own; those that an earlier table decides are not.

use crate::kernel::rule::{Rule, Then};
use crate::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use std::collections::HashMap;
use trieline_dataplane::RULES_MAX;
use trieline_lpm::IpPrefix;

/// The device that a node's own packets come in by, as rules see it.
pub const LOOPBACK: &str = "lo";

/// Which routes decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decides {
    /// Tables local and main, merged.
    Main,
    /// One kernel table.
    Table(u32),
    /// None: the kernel does.
    Kernel,
    /// None: dropped.
    Blackhole,
    /// None: the kernel drops it and answers.
    Unreachable,
    /// Likewise.
    Prohibit,
}

/// One step: packets from and to these prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// Only packets from here.
    pub from: Option<IpPrefix>,
    /// Only packets to here.
    pub to: Option<IpPrefix>,
    /// What they meet.
    pub decides: Decides,
}

impl Step {
    /// A step for every packet.
    pub fn all(decides: Decides) -> Self {
        Self { from: None, to: None, decides }
    }

    fn is_all(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }
}

/// Whose packets.
#[derive(Debug, Clone, Copy)]
pub struct Inlet<'a> {
    /// Name of the device that they come in by; "lo": a VRF device sends them on, as if they were the node's.
    pub device: &'a str,
    /// The VRF it belongs to, and its table.
    pub vrf: Option<(&'a str, u32)>,
    /// The kernel asks the way back too, by rules in which the device that the packet leaves by is the incoming one.
    pub reversed: bool,
}

/// Rules of one family in the kernel's order, found by incoming device.
#[derive(Debug, Default)]
pub struct Rules<'a> {
    /// Those for every device, with their places in the order.
    any: Vec<(usize, &'a Rule)>,
    by_device: HashMap<&'a str, Vec<(usize, &'a Rule)>>,
    /// There are some for packets whose device was chosen already.
    chosen: bool,
}

impl<'a> Rules<'a> {
    /// Rules of one family, those of one priority in the kernel's order.
    pub fn new(rules: impl Iterator<Item = &'a Rule>) -> Self {
        let mut sorted = Self::default();
        let mut all: Vec<_> = rules.collect();
        all.sort_by_key(|rule| rule.priority); // stable
        for (place, rule) in all.into_iter().enumerate() {
            match &rule.iif {
                _ if rule.inverted => sorted.any.push((place, rule)),
                // No device was chosen for a packet that comes in.
                _ if rule.oif.is_some() => sorted.chosen = true,
                None => sorted.any.push((place, rule)),
                Some(device) => sorted.by_device.entry(device).or_default().push((place, rule)),
            }
        }
        sorted
    }

    /// Whether the incoming device matters to any of them.
    pub fn tell_devices_apart(&self) -> bool {
        !self.by_device.is_empty()
    }

    /// Whether a packet whose destination no table but local and main has is decided by those two, wherever it comes from.
    pub fn end_in_main(&self) -> bool {
        let mut rules: Vec<_> = self.any.iter().chain(self.by_device.values().flatten()).copied().collect();
        rules.sort_by_key(|(place, _)| *place);
        let plain = |table: u32| {
            let is = |(_, rule): &(usize, &Rule)| rule.is_plain() && rule.then == Then::Table(table);
            rules.iter().position(is)
        };
        let asks = |(_, rule): &(usize, &Rule)| {
            rule.kernel.is_none() && matches!(rule.then, Then::Table(_) | Then::Vrf | Then::Nop)
        };
        let first = plain(TABLE_LOCAL).zip(plain(TABLE_MAIN)).filter(|(local, main)| local < main);
        first.is_some_and(|(_, main)| rules[..main].iter().all(asks))
    }

    /// The rules of a device, in order.
    fn of(&self, device: &str) -> impl Iterator<Item = &'a Rule> {
        let own = self.by_device.get(device);
        let mut rules: Vec<_> = self.any.iter().chain(own.into_iter().flatten()).copied().collect();
        rules.sort_by_key(|(place, _)| *place);
        rules.into_iter().map(|(_, rule)| rule)
    }

    /// The steps for packets of `inlet`; `left` is told what is left to the kernel, and why.
    pub fn steps(&self, inlet: Inlet<'_>, mut left: impl FnMut(String)) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        // Kernels differ in whether such a rule means the VRF or the device in it.
        let unclear = |name: &str| inlet.vrf.is_some() && self.by_device.contains_key(name);
        let trouble = if unclear(inlet.device) || inlet.vrf.is_some_and(|(name, _)| unclear(name)) {
            Some("rules select packets of its VRF by incoming device")
        } else if inlet.device == LOOPBACK && self.chosen {
            Some("rules select packets by a device that was chosen before")
        } else if inlet.reversed && self.tell_devices_apart() {
            Some("rules select by incoming device, and rp_filter asks them the way back")
        } else {
            None
        };
        if let Some(why) = trouble {
            left(format!(
                "dev {}: {why}",
                inlet.vrf.map_or(inlet.device, |(name, _)| if inlet.device == LOOPBACK {
                    name
                } else {
                    inlet.device
                })
            ));
            return vec![Step::all(Decides::Kernel)];
        }
        let mut local_asked = false;
        for rule in self.of(inlet.device) {
            let decides = match (rule.then, inlet.vrf) {
                _ if rule.kernel.is_some() => Decides::Kernel,
                (Then::Table(TABLE_MAIN), _) if local_asked => Decides::Main,
                (Then::Table(TABLE_MAIN), _) => {
                    left(format!("{rule}: table local is not asked first"));
                    Decides::Kernel
                }
                (Then::Table(table), _) => Decides::Table(table),
                (Then::Vrf, Some((_, table))) => Decides::Table(table),
                (Then::Vrf, None) | (Then::Nop, _) => continue,
                (Then::Blackhole, _) => Decides::Blackhole,
                (Then::Unreachable, _) => Decides::Unreachable,
                (Then::Prohibit, _) => Decides::Prohibit,
                (Then::Other, _) => Decides::Kernel,
            };
            if let Some(why) = rule.kernel {
                left(format!("{rule}: {why}"));
            }
            // Whom an inverted rule selects is not said by its prefixes.
            let (from, to) = if rule.inverted { (None, None) } else { (rule.from, rule.to) };
            let step = Step { from, to, decides };
            local_asked |= step.is_all() && decides == Decides::Table(TABLE_LOCAL);
            // Both tables are one in the image.
            if step == Step::all(Decides::Main)
                && steps.last() == Some(&Step::all(Decides::Table(TABLE_LOCAL)))
            {
                steps.pop();
            }
            steps.push(step);
            if step.is_all() && !matches!(decides, Decides::Main | Decides::Table(_)) {
                break;
            }
            if steps.len() == RULES_MAX {
                left(format!("{rule}: more than {RULES_MAX} rules"));
                steps[RULES_MAX - 1] = Step::all(Decides::Kernel);
                break;
            }
        }
        // Nearly everywhere it is empty; else what no table before it has is the kernel's.
        steps.pop_if(|last| *last == Step::all(Decides::Table(TABLE_DEFAULT)));
        if steps.is_empty() {
            left("no rule: no route".to_owned());
            steps.push(Step::all(Decides::Kernel));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Then = Then::Table(TABLE_LOCAL);
    const MAIN: Then = Then::Table(TABLE_MAIN);

    fn rule(priority: u32, then: Then) -> Rule {
        Rule::lookup(2, priority, then)
    }

    fn from(priority: u32, net: &str, then: Then) -> Rule {
        Rule { from: Some(net.parse().unwrap()), ..rule(priority, then) }
    }

    fn steps(rules: &[Rule], inlet: Inlet<'_>) -> (Vec<Step>, Vec<String>) {
        let mut left = Vec::new();
        let steps = Rules::new(rules.iter()).steps(inlet, |why| left.push(why));
        (steps, left)
    }

    const PORT: Inlet<'_> = Inlet { device: "n0", vrf: None, reversed: false };
    const TENANT: Inlet<'_> = Inlet { device: "n0", vrf: Some(("red", 100)), reversed: false };

    /// The steps, when nothing is left to the kernel.
    fn plain(rules: &[Rule], inlet: Inlet<'_>) -> Vec<Decides> {
        let (steps, left) = steps(rules, inlet);
        assert!(left.is_empty(), "{left:?}");
        steps.into_iter().map(|step| step.decides).collect()
    }

    #[test]
    fn the_default_rules_are_one_table() {
        let default = [rule(0, LOCAL), rule(32766, MAIN), rule(32767, Then::Table(TABLE_DEFAULT))];
        assert_eq!(plain(&default, PORT), [Decides::Main]);
        let with_vrfs = [&default[..], &[rule(1000, Then::Vrf)]].concat();
        assert_eq!(plain(&with_vrfs, PORT), [Decides::Main]);
        // a VRF's table comes between the two; main alone is in the merged table too, as local has been asked
        assert_eq!(
            plain(&with_vrfs, TENANT),
            [Decides::Table(TABLE_LOCAL), Decides::Table(100), Decides::Main]
        );
        // as the kernel's documentation advises: local is asked last
        let advised = [rule(1000, Then::Vrf), rule(32765, LOCAL), rule(32766, MAIN)];
        assert_eq!(plain(&advised, TENANT), [Decides::Table(100), Decides::Main]);
        assert_eq!(plain(&advised, PORT), [Decides::Main]);
    }

    #[test]
    fn main_decides_when_only_tables_are_asked_before() {
        let default = [rule(0, LOCAL), rule(32766, MAIN), rule(32767, Then::Table(TABLE_DEFAULT))];
        let ends = |rules: &[Rule]| Rules::new(rules.iter()).end_in_main();
        assert!(ends(&default) && ends(&default[..2]));
        assert!(!ends(&[]) && !ends(&default[1..]) && !ends(&[rule(0, MAIN), rule(1, LOCAL)]));
        let with = |other: Rule| ends(&[&default[..], &[other]].concat());
        assert!(with(rule(1000, Then::Vrf)) && with(from(100, "10.0.0.0/8", Then::Table(100))));
        assert!(!with(rule(100, Then::Prohibit)) && with(rule(40000, Then::Prohibit)));
        assert!(!with(Rule { kernel: Some("why"), ..rule(100, Then::Table(100)) }));
    }

    #[test]
    fn rules_are_asked_by_priority_and_device() {
        let here = |name: &str, rule: Rule| Rule { iif: Some(name.into()), ..rule };
        let rules = [
            rule(32766, MAIN),
            rule(0, LOCAL),
            from(10, "10.0.0.0/8", Then::Table(7)),
            here("n1", rule(5, Then::Table(5))),
            here("n0", rule(20, Then::Table(6))),
            Rule { oif: Some("n1".into()), ..rule(1, Then::Table(8)) },
            rule(30, Then::Nop),
            from(15, "10.1.0.0/16", Then::Prohibit),
        ];
        let (steps, left) = steps(&rules, PORT);
        assert!(left.is_empty(), "{left:?}");
        let net = |text: &str, decides| Step { from: Some(text.parse().unwrap()), to: None, decides };
        assert_eq!(
            steps,
            [
                Step::all(Decides::Table(TABLE_LOCAL)),
                net("10.0.0.0/8", Decides::Table(7)),
                net("10.1.0.0/16", Decides::Prohibit),
                Step::all(Decides::Table(6)),
                Step::all(Decides::Main)
            ]
        );
        let reversed = Inlet { reversed: true, ..PORT };
        assert_eq!(super::tests::steps(&rules, reversed).0, [Step::all(Decides::Kernel)]);
    }

    #[test]
    fn what_only_the_kernel_can_tell_is_its_own_and_is_said() {
        let marked =
            Rule { kernel: Some("marks of packets are not seen"), ..from(5, "10.0.0.0/8", Then::Table(9)) };
        let rules = [rule(0, LOCAL), marked.clone(), rule(32766, MAIN)];
        let (some, left) = steps(&rules, PORT);
        assert_eq!(left, ["5: from 10.0.0.0/8 lookup 9: marks of packets are not seen"]);
        assert_eq!((some.len(), some[1].decides), (3, Decides::Kernel));
        // for all packets: nothing after it is asked
        let rules = [rule(0, LOCAL), Rule { from: None, ..marked }, rule(32766, MAIN)];
        assert_eq!(steps(&rules, PORT).0.len(), 2);
        // `not`: everybody else's packets, through any device
        let inverted = Rule {
            inverted: true,
            iif: Some("n1".into()),
            kernel: Some("`not` is not followed"),
            ..from(5, "10.0.0.0/8", Then::Table(9))
        };
        assert_eq!(
            steps(&[rule(0, LOCAL), inverted, rule(32766, MAIN)], PORT).0[1..],
            [Step::all(Decides::Kernel)]
        );
        // no rules, no answers; main without local before it; more rules than a packet follows
        assert_eq!(steps(&[], PORT).0, [Step::all(Decides::Kernel)]);
        assert_eq!(steps(&[rule(1, MAIN), rule(2, LOCAL)], PORT).0, [Step::all(Decides::Kernel)]);
        let many: Vec<_> = (0..40).map(|n| rule(n, Then::Table(n + 1))).collect();
        let (steps, left) = super::tests::steps(&many, PORT);
        assert_eq!((steps.len(), steps[RULES_MAX - 1].decides, left.len()), (RULES_MAX, Decides::Kernel, 1));
    }

    #[test]
    fn devices_of_a_vrf_in_rules_are_the_kernels() {
        for name in ["n0", "red"] {
            let rules = [
                rule(0, LOCAL),
                Rule { iif: Some(name.into()), ..rule(5, Then::Table(9)) },
                rule(32766, MAIN),
            ];
            assert_eq!(steps(&rules, TENANT).0, [Step::all(Decides::Kernel)]);
        }
    }
}
