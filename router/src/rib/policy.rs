//! From the kernel's policy rules to the tables that decide for one device's packets, in their order.
//!
//! Incoming device, VRF and marks are known beforehand, so they are decided here (XDP sees packets before any part of the kernel marks
//! them). Source and destination are left for each packet. Where only the kernel can tell whether a rule selects a packet, the packets that
//! come to that rule are its own. Those that an earlier table decides are not.

use crate::kernel::rule::{FibRuleAction, Rule};
use crate::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use crate::xdp::rules::RULES_MAX;
use std::collections::{HashMap, HashSet};
use trieline_lpm::IpPrefix;

/// The device that a node's own packets come in by, as rules see it.
pub const LOOPBACK: &str = "lo";

/// Which routes decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyAction {
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
    /// The step at this place, which is a later one, or none.
    GoTo(usize),
}

/// One step: packets from and to these prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyRule {
    /// Only packets from here.
    pub from: Option<IpPrefix>,
    /// Only packets to here.
    pub to: Option<IpPrefix>,
    /// All others, in place of these.
    pub inverted: bool,
    /// The action on selected packets.
    pub action: PolicyAction,
    /// Unless it is the table's default route.
    pub suppress_default: bool,
}

impl PolicyRule {
    /// A step for every packet.
    pub fn all(action: PolicyAction) -> Self {
        Self { from: None, to: None, inverted: false, action, suppress_default: false }
    }

    fn is_all(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }
}

/// Whose packets.
#[derive(Debug, Clone, Copy)]
pub struct Ingress<'a> {
    /// Name of the device that they come in by; "lo": a VRF device sends them on, as if they were the node's.
    pub device: &'a str,
    /// The VRF it belongs to, and its table.
    pub vrf: Option<(&'a str, u32)>,
    /// The kernel asks the way back too, by rules in which the device that the packet leaves by is the incoming one.
    pub reversed: bool,
}

/// Rules of one family in the kernel's order, found by incoming device.
#[derive(Debug, Default)]
pub struct FibRules<'a> {
    /// Those for every device, with their places in the order.
    any: Vec<(usize, &'a Rule)>,
    by_device: HashMap<&'a str, Vec<(usize, &'a Rule)>>,
    /// There are some for packets whose device was chosen already.
    chosen: bool,
    /// Incoming devices that are named.
    devices: HashSet<&'a str>,
    priorities: HashSet<u32>,
    /// Why packets may have marks by the time that the kernel asks the rules.
    marks: Option<&'a str>,
}

impl<'a> FibRules<'a> {
    /// Rules of one family, those of one priority in the kernel's order. A packet that XDP sees has the mark 0, unless something
    /// on the node (`marks`) sets another before the kernel asks the rules. Then those that select by marks are the kernel's.
    pub fn new(rules: impl Iterator<Item = &'a Rule>, marks: Option<&'a str>) -> Self {
        let mut sorted = Self { marks, ..Self::default() };
        let mut all: Vec<_> = rules.collect();
        all.sort_by_key(|rule| rule.priority); // stable
        for (place, rule) in all.into_iter().enumerate() {
            sorted.priorities.insert(rule.priority); // where others go on, even if it selects no packet
            if marks.is_none() && !rule.inverted && !rule.takes_unmarked() {
                continue;
            }
            sorted.chosen |= rule.oif.is_some();
            sorted.devices.extend(rule.iif.as_deref());
            match &rule.iif {
                _ if rule.inverted => sorted.any.push((place, rule)),
                None => sorted.any.push((place, rule)),
                Some(device) => sorted.by_device.entry(device).or_default().push((place, rule)),
            }
        }
        sorted
    }

    /// Whether the incoming device matters to any of them.
    pub fn select_by_device(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Whether a packet whose destination no table but local and main has is decided by those two, wherever it comes from.
    pub fn end_in_main(&self) -> bool {
        let mut rules: Vec<_> = self.any.iter().chain(self.by_device.values().flatten()).copied().collect();
        rules.sort_by_key(|(place, _)| *place);
        let plain = |table: u32| {
            let is = |(_, rule): &(usize, &Rule)| rule.is_plain() && rule.then == FibRuleAction::Table(table);
            rules.iter().position(is)
        };
        let asks = |(_, rule): &(usize, &Rule)| {
            rule.kernel.is_none()
                && matches!(rule.then, FibRuleAction::Table(_) | FibRuleAction::Vrf | FibRuleAction::Nop)
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

    /// Why all packets of `ingress` are the kernel's.
    fn trouble(&self, ingress: Ingress<'_>) -> Option<String> {
        // Kernels differ in whether such a rule means the VRF or the device in it.
        let unclear = |name: &str| ingress.vrf.is_some() && self.devices.contains(name);
        let why = if unclear(ingress.device) || ingress.vrf.is_some_and(|(name, _)| unclear(name)) {
            "rules select packets of its VRF by incoming device"
        } else if ingress.device == LOOPBACK && self.chosen {
            "rules select packets by a device that was chosen before"
        } else if ingress.reversed && self.select_by_device() {
            "rules select by incoming device, and rp_filter looks up the reverse path in them"
        } else {
            return None;
        };
        let vrf = ingress.vrf.filter(|_| ingress.device == LOOPBACK);
        Some(format!("dev {}: {why}", vrf.map_or(ingress.device, |(name, _)| name)))
    }

    /// The steps for packets of `ingress`; `punted` gets each rule left to the kernel, with the reason.
    pub fn entries(&self, ingress: Ingress<'_>, mut punted: impl FnMut(String)) -> Vec<PolicyRule> {
        if let Some(why) = self.trouble(ingress) {
            punted(why);
            return vec![PolicyRule::all(PolicyAction::Kernel)];
        }
        let mut compiled = Compiled::default();
        // All packets go on from the rules of this priority.
        let mut resumed = 0;
        for rule in self.of(ingress.device).filter(|rule| self.leads_on(rule)) {
            if rule.priority < resumed {
                continue;
            }
            let kernel_only = self.kernel_only(rule);
            let Some(whom) = selected(rule, ingress.device, kernel_only.is_some()) else { continue };
            let action = match (rule.then, ingress.vrf) {
                _ if kernel_only.is_some() => PolicyAction::Kernel,
                (FibRuleAction::Table(TABLE_MAIN), _) if compiled.local_looked_up => PolicyAction::Main,
                (FibRuleAction::Table(TABLE_MAIN), _) => {
                    punted(format!("{rule}: table local is not the first rule"));
                    PolicyAction::Kernel
                }
                (FibRuleAction::Table(table), _) => PolicyAction::Table(table),
                (FibRuleAction::Vrf, Some((_, table))) => PolicyAction::Table(table),
                (FibRuleAction::Vrf, None) | (FibRuleAction::Nop, _) => continue,
                (FibRuleAction::GoTo(target), _) if whom.is_all() && compiled.reached <= rule.priority => {
                    resumed = target;
                    continue;
                }
                (FibRuleAction::GoTo(target), _) => PolicyAction::GoTo(target as usize),
                (FibRuleAction::Blackhole, _) => PolicyAction::Blackhole,
                (FibRuleAction::Unreachable, _) => PolicyAction::Unreachable,
                (FibRuleAction::Prohibit, _) => PolicyAction::Prohibit,
                (FibRuleAction::Other, _) => PolicyAction::Kernel,
            };
            if let Some(why) = kernel_only {
                punted(format!("{rule}: {why}"));
            }
            let suppress_default =
                rule.suppress_default && matches!(action, PolicyAction::Main | PolicyAction::Table(_));
            if !compiled.push(PolicyRule { action, suppress_default, ..whom }, rule.priority) {
                punted(format!("{rule}: more than {RULES_MAX} rules"));
                break;
            }
            if compiled.is_complete(rule.priority) {
                break;
            }
        }
        let mut entries = compiled.finish();
        if entries.is_empty() {
            punted("no rule: no route".to_owned());
            entries.push(PolicyRule::all(PolicyAction::Kernel));
        }
        entries
    }

    /// A selector or action of the rule that only the kernel can follow.
    fn kernel_only(&self, rule: &Rule) -> Option<String> {
        let marks = self.marks.filter(|_| rule.selects_mark());
        rule.kernel.map(str::to_owned).or_else(|| marks.map(|who| format!("packets may have marks ({who})")))
    }

    /// Whether a rule does something: one that goes on with a rule that is not there does not.
    fn leads_on(&self, rule: &Rule) -> bool {
        !matches!(rule.then, FibRuleAction::GoTo(target) if !self.priorities.contains(&target))
    }
}

/// Whose packets a rule selects, of those that come in by a device; `None`: nobody's. `kernel_only`: by something that only the kernel
/// can tell.
fn selected(rule: &Rule, device: &str, kernel_only: bool) -> Option<PolicyRule> {
    let all = PolicyRule::all(PolicyAction::Kernel);
    // No device was chosen for a packet that comes in.
    let elsewhere = rule.oif.is_some() || rule.iif.as_ref().is_some_and(|name| name != device);
    match rule.inverted {
        // Then whom an inverted rule selects is not said by its prefixes.
        true if kernel_only || elsewhere || !rule.takes_unmarked() => Some(all),
        true if rule.from.is_none() && rule.to.is_none() => None,
        false if elsewhere => None,
        inverted => Some(PolicyRule { from: rule.from, to: rule.to, inverted, ..all }),
    }
}

/// Steps in the making. Where they go on is a priority until all are there.
#[derive(Default)]
struct Compiled {
    entries: Vec<PolicyRule>,
    /// Of the rules that they were made from.
    priorities: Vec<u32>,
    /// Every packet that comes to the next step has been looked up in table local.
    local_looked_up: bool,
    /// The highest priority that some packets go on at.
    reached: u32,
    /// The policy is full.
    full: bool,
}

impl Compiled {
    /// Adds a step; whether there was room for it.
    fn push(&mut self, entry: PolicyRule, priority: u32) -> bool {
        let local = PolicyRule::all(PolicyAction::Table(TABLE_LOCAL));
        // Unless packets go past it.
        self.local_looked_up |= entry == local && self.reached <= priority;
        // Both tables are one in the image.
        let last = self.entries.last().zip(self.priorities.last());
        if entry == PolicyRule::all(PolicyAction::Main)
            && last.is_some_and(|(last, priority)| *last == local && self.reached <= *priority)
        {
            self.entries.pop();
            self.priorities.pop();
        }
        if let PolicyAction::GoTo(target) = entry.action {
            self.reached = self.reached.max(target as u32);
        }
        if self.entries.len() == RULES_MAX - 1 {
            self.full = true;
            self.entries.push(PolicyRule::all(PolicyAction::Kernel));
        } else {
            self.entries.push(entry);
        }
        self.priorities.push(priority);
        !self.full
    }

    /// Whether no packet comes to rules after those of this priority.
    fn is_complete(&self, priority: u32) -> bool {
        let ends = |entry: &PolicyRule| {
            let goes_on =
                matches!(entry.action, PolicyAction::Main | PolicyAction::Table(_) | PolicyAction::GoTo(_));
            entry.is_all() && !goes_on
        };
        self.entries.last().is_some_and(ends) && self.reached <= priority
    }

    fn finish(mut self) -> Vec<PolicyRule> {
        // Nearly everywhere it is empty; else what no table before it has is the kernel's.
        self.entries.pop_if(|last| *last == PolicyRule::all(PolicyAction::Table(TABLE_DEFAULT)));
        self.priorities.truncate(self.entries.len());
        // Jumps beyond the last step that fits go to it: the kernel decides.
        let beyond = self.entries.len() - usize::from(self.full);
        for entry in &mut self.entries {
            if let PolicyAction::GoTo(target) = &mut entry.action {
                let place = self.priorities.iter().position(|priority| *priority as usize >= *target);
                *target = place.unwrap_or(beyond);
            }
        }
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: FibRuleAction = FibRuleAction::Table(TABLE_LOCAL);
    const MAIN: FibRuleAction = FibRuleAction::Table(TABLE_MAIN);

    fn rule(priority: u32, then: FibRuleAction) -> Rule {
        Rule::lookup(2, priority, then)
    }

    fn from(priority: u32, net: &str, then: FibRuleAction) -> Rule {
        Rule { from: Some(net.parse().unwrap()), ..rule(priority, then) }
    }

    fn entries(rules: &[Rule], ingress: Ingress<'_>) -> (Vec<PolicyRule>, Vec<String>) {
        let mut punted = Vec::new();
        let entries = FibRules::new(rules.iter(), None).entries(ingress, |why| punted.push(why));
        (entries, punted)
    }

    const PORT: Ingress<'_> = Ingress { device: "n0", vrf: None, reversed: false };
    const TENANT: Ingress<'_> = Ingress { device: "n0", vrf: Some(("red", 100)), reversed: false };

    /// The steps, when nothing is left to the kernel.
    fn plain(rules: &[Rule], ingress: Ingress<'_>) -> Vec<PolicyAction> {
        let (entries, punted) = entries(rules, ingress);
        assert!(punted.is_empty(), "{punted:?}");
        entries.into_iter().map(|entry| entry.action).collect()
    }

    #[test]
    fn the_default_rules_are_one_table() {
        let default = [rule(0, LOCAL), rule(32766, MAIN), rule(32767, FibRuleAction::Table(TABLE_DEFAULT))];
        assert_eq!(plain(&default, PORT), [PolicyAction::Main]);
        let with_vrfs = [&default[..], &[rule(1000, FibRuleAction::Vrf)]].concat();
        assert_eq!(plain(&with_vrfs, PORT), [PolicyAction::Main]);
        // a VRF's table comes between the two; main alone is in the merged table too, as local has been asked
        assert_eq!(
            plain(&with_vrfs, TENANT),
            [PolicyAction::Table(TABLE_LOCAL), PolicyAction::Table(100), PolicyAction::Main]
        );
        // as the kernel's documentation advises: local comes last
        let advised = [rule(1000, FibRuleAction::Vrf), rule(32765, LOCAL), rule(32766, MAIN)];
        assert_eq!(plain(&advised, TENANT), [PolicyAction::Table(100), PolicyAction::Main]);
        assert_eq!(plain(&advised, PORT), [PolicyAction::Main]);
    }

    #[test]
    fn main_decides_after_rules_that_look_up_tables_only() {
        let default = [rule(0, LOCAL), rule(32766, MAIN), rule(32767, FibRuleAction::Table(TABLE_DEFAULT))];
        let ends = |rules: &[Rule]| FibRules::new(rules.iter(), None).end_in_main();
        assert!(ends(&default) && ends(&default[..2]));
        assert!(!ends(&[]) && !ends(&default[1..]) && !ends(&[rule(0, MAIN), rule(1, LOCAL)]));
        let with = |other: Rule| ends(&[&default[..], &[other]].concat());
        assert!(
            with(rule(1000, FibRuleAction::Vrf)) && with(from(100, "10.0.0.0/8", FibRuleAction::Table(100)))
        );
        assert!(!with(rule(100, FibRuleAction::Prohibit)) && with(rule(40000, FibRuleAction::Prohibit)));
        assert!(!with(Rule { kernel: Some("why"), ..rule(100, FibRuleAction::Table(100)) }));
    }

    #[test]
    fn rules_apply_by_priority_and_device() {
        let here = |name: &str, rule: Rule| Rule { iif: Some(name.into()), ..rule };
        let rules = [
            rule(32766, MAIN),
            rule(0, LOCAL),
            from(10, "10.0.0.0/8", FibRuleAction::Table(7)),
            here("n1", rule(5, FibRuleAction::Table(5))),
            here("n0", rule(20, FibRuleAction::Table(6))),
            Rule { oif: Some("n1".into()), ..rule(1, FibRuleAction::Table(8)) },
            rule(30, FibRuleAction::Nop),
            from(15, "10.1.0.0/16", FibRuleAction::Prohibit),
        ];
        let (entries, punted) = entries(&rules, PORT);
        assert!(punted.is_empty(), "{punted:?}");
        let net =
            |text: &str, action| PolicyRule { from: Some(text.parse().unwrap()), ..PolicyRule::all(action) };
        assert_eq!(
            entries,
            [
                PolicyRule::all(PolicyAction::Table(TABLE_LOCAL)),
                net("10.0.0.0/8", PolicyAction::Table(7)),
                net("10.1.0.0/16", PolicyAction::Prohibit),
                PolicyRule::all(PolicyAction::Table(6)),
                PolicyRule::all(PolicyAction::Main)
            ]
        );
        let reversed = Ingress { reversed: true, ..PORT };
        assert_eq!(super::tests::entries(&rules, reversed).0, [PolicyRule::all(PolicyAction::Kernel)]);
    }

    #[test]
    fn rules_that_xdp_cannot_follow_are_passed_and_reported() {
        let by_user =
            Rule { kernel: Some("users are not seen"), ..from(5, "10.0.0.0/8", FibRuleAction::Table(9)) };
        let rules = [rule(0, LOCAL), by_user.clone(), rule(32766, MAIN)];
        let (some, punted) = entries(&rules, PORT);
        assert_eq!(punted, ["5: from 10.0.0.0/8 lookup 9: users are not seen"]);
        assert_eq!((some.len(), some[1].action), (3, PolicyAction::Kernel));
        // for all packets: no rule after it counts
        let rules = [rule(0, LOCAL), Rule { from: None, ..by_user }, rule(32766, MAIN)];
        assert_eq!(entries(&rules, PORT).0.len(), 2);
        // `not`: only the kernel knows whose
        let inverted = Rule {
            inverted: true,
            kernel: Some("users are not seen"),
            ..from(5, "10.0.0.0/8", FibRuleAction::Table(9))
        };
        assert_eq!(
            entries(&[rule(0, LOCAL), inverted, rule(32766, MAIN)], PORT).0[1..],
            [PolicyRule::all(PolicyAction::Kernel)]
        );
        // no rules, no answers; main without local before it; more rules than a packet follows
        assert_eq!(entries(&[], PORT).0, [PolicyRule::all(PolicyAction::Kernel)]);
        assert_eq!(
            entries(&[rule(1, MAIN), rule(2, LOCAL)], PORT).0,
            [PolicyRule::all(PolicyAction::Kernel)]
        );
        let many: Vec<_> = (0..40).map(|n| rule(n, FibRuleAction::Table(n + 1))).collect();
        let (entries, punted) = super::tests::entries(&many, PORT);
        assert_eq!(
            (entries.len(), entries[RULES_MAX - 1].action, punted.len()),
            (RULES_MAX, PolicyAction::Kernel, 1)
        );
    }

    #[test]
    fn not_selects_everybody_else() {
        let not = |priority, rule: Rule| Rule { inverted: true, priority, ..rule };
        let rules = [
            rule(0, LOCAL),
            not(5, from(0, "10.0.0.0/8", FibRuleAction::Table(5))),
            not(6, rule(0, FibRuleAction::Table(6))),
            not(7, Rule { iif: Some("n0".into()), ..rule(0, FibRuleAction::Table(7)) }),
            not(8, Rule { iif: Some("n1".into()), ..from(0, "10.0.0.0/8", FibRuleAction::Table(8)) }),
            not(9, Rule { oif: Some("n0".into()), ..rule(0, FibRuleAction::Table(9)) }),
            rule(32766, MAIN),
        ];
        let (entries, punted) = entries(&rules, PORT);
        assert!(punted.is_empty(), "{punted:?}");
        let others = PolicyRule {
            from: Some("10.0.0.0/8".parse().unwrap()),
            inverted: true,
            ..PolicyRule::all(PolicyAction::Table(5))
        };
        let all = [PolicyAction::Table(8), PolicyAction::Table(9), PolicyAction::Main].map(PolicyRule::all);
        assert_eq!(
            entries,
            [&[PolicyRule::all(PolicyAction::Table(TABLE_LOCAL)), others][..], &all].concat()
        );
        let reversed = Ingress { reversed: true, ..PORT };
        assert_eq!(super::tests::entries(&rules, reversed).0, [PolicyRule::all(PolicyAction::Kernel)]);
    }

    #[test]
    fn marks_are_zero_unless_something_sets_them() {
        let marked = |priority, mark, mask, then| Rule { mark, mask, ..rule(priority, then) };
        let rules = [
            rule(0, LOCAL),
            marked(3, 7, u32::MAX, FibRuleAction::Prohibit),
            Rule { inverted: true, ..marked(4, 7, u32::MAX, FibRuleAction::Table(4)) },
            Rule { inverted: true, ..marked(5, 0, 0xff, FibRuleAction::Table(5)) },
            marked(6, 0, 0xff, FibRuleAction::Table(6)),
            marked(7, 0x10, 0xf, FibRuleAction::Table(7)),
            from(8, "10.0.0.0/8", FibRuleAction::GoTo(9)),
            marked(9, 1, 1, FibRuleAction::Table(9)),
            rule(32766, MAIN),
        ];
        // (1) nothing sets marks: 7 is nobody's, though others go on there
        let expected = [4, 6, 7].map(PolicyAction::Table);
        let ends = [PolicyAction::GoTo(5), PolicyAction::Main];
        assert_eq!(plain(&rules, PORT), [&[PolicyAction::Table(TABLE_LOCAL)], &expected[..], &ends].concat());
        // (2) something may: the first that asks for it is the kernel's
        let mut punted = Vec::new();
        let entries =
            FibRules::new(rules.iter(), Some("n0: ingress filters")).entries(PORT, |why| punted.push(why));
        assert_eq!(entries, [PolicyAction::Table(TABLE_LOCAL), PolicyAction::Kernel].map(PolicyRule::all));
        assert_eq!(punted, ["3: from all fwmark 0x7 prohibit: packets may have marks (n0: ingress filters)"]);
    }

    #[test]
    fn goto_skips_rules() {
        let to = |priority, target| rule(priority, FibRuleAction::GoTo(target));
        let action = |rules: &[Rule]| plain(rules, PORT);
        // (1) all packets: what is skipped is not there; a jump to nowhere is none
        let some = [
            rule(0, LOCAL),
            to(5, 20),
            rule(10, FibRuleAction::Table(1)),
            rule(20, FibRuleAction::Table(2)),
            to(25, 26),
        ];
        let with_main = [&some[..], &[rule(32766, MAIN)]].concat();
        assert_eq!(
            action(&with_main),
            [TABLE_LOCAL, 2]
                .map(PolicyAction::Table)
                .into_iter()
                .chain([PolicyAction::Main])
                .collect::<Vec<_>>()
        );
        // (2) some packets: past what ends the others' way
        let some = [
            rule(0, LOCAL),
            from(5, "10.0.0.0/8", FibRuleAction::GoTo(20)),
            to(6, 15),
            rule(7, FibRuleAction::Table(7)),
            rule(15, FibRuleAction::Prohibit),
            rule(20, FibRuleAction::Table(2)),
            rule(32766, MAIN),
        ];
        let expected = [
            PolicyAction::Table(TABLE_LOCAL),
            PolicyAction::GoTo(5),
            PolicyAction::GoTo(4),
            PolicyAction::Table(7),
            PolicyAction::Prohibit,
            PolicyAction::Table(2),
            PolicyAction::Main,
        ];
        assert_eq!(action(&some), expected);
        // (3) past table local, which has then not been asked
        let some = [from(0, "10.0.0.0/8", FibRuleAction::GoTo(20)), rule(1, LOCAL), rule(20, MAIN)];
        let (entries, punted) = entries(&some, PORT);
        assert_eq!((entries.len(), entries[2].action, punted.len()), (3, PolicyAction::Kernel, 1));
        // (4) beyond the last step that fits
        let many = (1..40).map(|n| rule(n, FibRuleAction::Table(n)));
        let many: Vec<_> = many.chain([from(0, "10.0.0.0/8", FibRuleAction::GoTo(39))]).collect();
        let (entries, _) = super::tests::entries(&many, PORT);
        assert_eq!((entries.len(), entries[0].action), (RULES_MAX, PolicyAction::GoTo(RULES_MAX - 1)));
        // (5) past all
        let some = [
            from(0, "10.0.0.0/8", FibRuleAction::GoTo(9)),
            rule(1, FibRuleAction::Table(1)),
            rule(9, FibRuleAction::Nop),
        ];
        assert_eq!(action(&some), [PolicyAction::GoTo(2), PolicyAction::Table(1)]);
    }

    #[test]
    fn a_table_but_for_its_default_route_is_a_step_of_its_own() {
        let suppress = Rule { suppress_default: true, ..rule(100, MAIN) };
        let rules = [rule(0, LOCAL), suppress.clone(), rule(200, FibRuleAction::Table(7)), rule(32766, MAIN)];
        let (entries, punted) = entries(&rules, PORT);
        assert!(punted.is_empty(), "{punted:?}");
        let suppress_default = PolicyRule { suppress_default: true, ..PolicyRule::all(PolicyAction::Main) };
        let rest = [PolicyAction::Table(7), PolicyAction::Main].map(PolicyRule::all);
        assert_eq!(
            entries,
            [&[PolicyRule::all(PolicyAction::Table(TABLE_LOCAL)), suppress_default][..], &rest].concat()
        );
        let only = [rule(0, LOCAL), suppress];
        assert!(
            !FibRules::new(only.iter(), None).end_in_main()
                && FibRules::new(rules.iter(), None).end_in_main()
        );
    }

    #[test]
    fn devices_of_a_vrf_in_rules_are_the_kernels() {
        for name in ["n0", "red"] {
            let rules = [
                rule(0, LOCAL),
                Rule { iif: Some(name.into()), ..rule(5, FibRuleAction::Table(9)) },
                rule(32766, MAIN),
            ];
            assert_eq!(entries(&rules, TENANT).0, [PolicyRule::all(PolicyAction::Kernel)]);
        }
    }
}
