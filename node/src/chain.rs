//! From the kernel's policy rules to the tables that decide for one device's packets, in their order.
//!
//! What can be known beforehand is decided here: incoming device, VRF, marks (XDP sees packets before anybody marks them).
//! Source and destination are left for each packet. Where only the kernel can tell whether a rule selects a packet, the
//! packets that come to that rule are its own; those that an earlier table decides are not.

use crate::kernel::rule::{Rule, Then};
use crate::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use std::collections::{HashMap, HashSet};
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
    /// The step at this place, which is a later one, or none.
    GoTo(usize),
}

/// One step: packets from and to these prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// Only packets from here.
    pub from: Option<IpPrefix>,
    /// Only packets to here.
    pub to: Option<IpPrefix>,
    /// All others, in place of these.
    pub inverted: bool,
    /// What they meet.
    pub decides: Decides,
    /// Unless it is the table's default route.
    pub but_default: bool,
}

impl Step {
    /// A step for every packet.
    pub fn all(decides: Decides) -> Self {
        Self { from: None, to: None, inverted: false, decides, but_default: false }
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
    /// Incoming devices that are named.
    devices: HashSet<&'a str>,
    priorities: HashSet<u32>,
    /// Why packets may have marks by the time that the kernel asks the rules.
    marks: Option<&'a str>,
}

impl<'a> Rules<'a> {
    /// Rules of one family, those of one priority in the kernel's order. A packet that XDP sees has the mark 0, unless something
    /// on the node (`marks`) sets another before the kernel asks the rules: then those that select by marks are the kernel's.
    pub fn new(rules: impl Iterator<Item = &'a Rule>, marks: Option<&'a str>) -> Self {
        let mut sorted = Self { marks, ..Self::default() };
        let mut all: Vec<_> = rules.collect();
        all.sort_by_key(|rule| rule.priority); // stable
        for (place, rule) in all.into_iter().enumerate() {
            sorted.priorities.insert(rule.priority); // where others go on, even if it selects nobody
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
    pub fn tell_devices_apart(&self) -> bool {
        !self.devices.is_empty()
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

    /// Why all packets of `inlet` are the kernel's.
    fn trouble(&self, inlet: Inlet<'_>) -> Option<String> {
        // Kernels differ in whether such a rule means the VRF or the device in it.
        let unclear = |name: &str| inlet.vrf.is_some() && self.devices.contains(name);
        let why = if unclear(inlet.device) || inlet.vrf.is_some_and(|(name, _)| unclear(name)) {
            "rules select packets of its VRF by incoming device"
        } else if inlet.device == LOOPBACK && self.chosen {
            "rules select packets by a device that was chosen before"
        } else if inlet.reversed && self.tell_devices_apart() {
            "rules select by incoming device, and rp_filter asks them the way back"
        } else {
            return None;
        };
        let vrf = inlet.vrf.filter(|_| inlet.device == LOOPBACK);
        Some(format!("dev {}: {why}", vrf.map_or(inlet.device, |(name, _)| name)))
    }

    /// The steps for packets of `inlet`; `left` is told what is left to the kernel, and why.
    pub fn steps(&self, inlet: Inlet<'_>, mut left: impl FnMut(String)) -> Vec<Step> {
        if let Some(why) = self.trouble(inlet) {
            left(why);
            return vec![Step::all(Decides::Kernel)];
        }
        let mut made = Made::default();
        // All packets go on from the rules of this priority.
        let mut resumed = 0;
        for rule in self.of(inlet.device).filter(|rule| self.leads_on(rule)) {
            if rule.priority < resumed {
                continue;
            }
            let unseen = self.unseen(rule);
            let Some(whom) = selected(rule, inlet.device, unseen.is_some()) else { continue };
            let decides = match (rule.then, inlet.vrf) {
                _ if unseen.is_some() => Decides::Kernel,
                (Then::Table(TABLE_MAIN), _) if made.local_asked => Decides::Main,
                (Then::Table(TABLE_MAIN), _) => {
                    left(format!("{rule}: table local is not asked first"));
                    Decides::Kernel
                }
                (Then::Table(table), _) => Decides::Table(table),
                (Then::Vrf, Some((_, table))) => Decides::Table(table),
                (Then::Vrf, None) | (Then::Nop, _) => continue,
                (Then::GoTo(target), _) if whom.is_all() && made.reached <= rule.priority => {
                    resumed = target;
                    continue;
                }
                (Then::GoTo(target), _) => Decides::GoTo(target as usize),
                (Then::Blackhole, _) => Decides::Blackhole,
                (Then::Unreachable, _) => Decides::Unreachable,
                (Then::Prohibit, _) => Decides::Prohibit,
                (Then::Other, _) => Decides::Kernel,
            };
            if let Some(why) = unseen {
                left(format!("{rule}: {why}"));
            }
            let but_default = rule.but_default && matches!(decides, Decides::Main | Decides::Table(_));
            if !made.push(Step { decides, but_default, ..whom }, rule.priority) {
                left(format!("{rule}: more than {RULES_MAX} rules"));
                break;
            }
            if made.is_complete(rule.priority) {
                break;
            }
        }
        let mut steps = made.finish();
        if steps.is_empty() {
            left("no rule: no route".to_owned());
            steps.push(Step::all(Decides::Kernel));
        }
        steps
    }

    /// What a rule selects packets by, or does, that only the kernel can.
    fn unseen(&self, rule: &Rule) -> Option<String> {
        let marks = self.marks.filter(|_| rule.asks_mark());
        rule.kernel.map(str::to_owned).or_else(|| marks.map(|who| format!("packets may have marks ({who})")))
    }

    /// Whether a rule does something: one that goes on with a rule that is not there does not.
    fn leads_on(&self, rule: &Rule) -> bool {
        !matches!(rule.then, Then::GoTo(target) if !self.priorities.contains(&target))
    }
}

/// Whose packets a rule selects, of those that come in by a device; `None`: nobody's. `unseen`: by something that only the kernel
/// can tell.
fn selected(rule: &Rule, device: &str, unseen: bool) -> Option<Step> {
    let all = Step::all(Decides::Kernel);
    // No device was chosen for a packet that comes in.
    let elsewhere = rule.oif.is_some() || rule.iif.as_ref().is_some_and(|name| name != device);
    match rule.inverted {
        // Then whom an inverted rule selects is not said by its prefixes.
        true if unseen || elsewhere || !rule.takes_unmarked() => Some(all),
        true if rule.from.is_none() && rule.to.is_none() => None,
        false if elsewhere => None,
        inverted => Some(Step { from: rule.from, to: rule.to, inverted, ..all }),
    }
}

/// Steps in the making. Where they go on is a priority until all are there.
#[derive(Default)]
struct Made {
    steps: Vec<Step>,
    /// Of the rules that they were made from.
    priorities: Vec<u32>,
    /// Every packet that comes to the next step has been looked up in table local.
    local_asked: bool,
    /// The highest priority that some packets go on at.
    reached: u32,
    /// There is no room for more.
    full: bool,
}

impl Made {
    /// Adds a step; whether there was room for it.
    fn push(&mut self, step: Step, priority: u32) -> bool {
        let local = Step::all(Decides::Table(TABLE_LOCAL));
        // Unless packets go past it.
        self.local_asked |= step == local && self.reached <= priority;
        // Both tables are one in the image.
        let last = self.steps.last().zip(self.priorities.last());
        if step == Step::all(Decides::Main)
            && last.is_some_and(|(last, priority)| *last == local && self.reached <= *priority)
        {
            self.steps.pop();
            self.priorities.pop();
        }
        if let Decides::GoTo(target) = step.decides {
            self.reached = self.reached.max(target as u32);
        }
        if self.steps.len() == RULES_MAX - 1 {
            self.full = true;
            self.steps.push(Step::all(Decides::Kernel));
        } else {
            self.steps.push(step);
        }
        self.priorities.push(priority);
        !self.full
    }

    /// Whether no packet comes to rules after those of this priority.
    fn is_complete(&self, priority: u32) -> bool {
        let ends = |step: &Step| {
            let goes_on = matches!(step.decides, Decides::Main | Decides::Table(_) | Decides::GoTo(_));
            step.is_all() && !goes_on
        };
        self.steps.last().is_some_and(ends) && self.reached <= priority
    }

    fn finish(mut self) -> Vec<Step> {
        // Nearly everywhere it is empty; else what no table before it has is the kernel's.
        self.steps.pop_if(|last| *last == Step::all(Decides::Table(TABLE_DEFAULT)));
        self.priorities.truncate(self.steps.len());
        // What would go on beyond the last step that there was room for goes on at it: the kernel's.
        let beyond = self.steps.len() - usize::from(self.full);
        for step in &mut self.steps {
            if let Decides::GoTo(target) = &mut step.decides {
                let place = self.priorities.iter().position(|priority| *priority as usize >= *target);
                *target = place.unwrap_or(beyond);
            }
        }
        self.steps
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
        let steps = Rules::new(rules.iter(), None).steps(inlet, |why| left.push(why));
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
        let ends = |rules: &[Rule]| Rules::new(rules.iter(), None).end_in_main();
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
        let net = |text: &str, decides| Step { from: Some(text.parse().unwrap()), ..Step::all(decides) };
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
        let by_user = Rule { kernel: Some("users are not seen"), ..from(5, "10.0.0.0/8", Then::Table(9)) };
        let rules = [rule(0, LOCAL), by_user.clone(), rule(32766, MAIN)];
        let (some, left) = steps(&rules, PORT);
        assert_eq!(left, ["5: from 10.0.0.0/8 lookup 9: users are not seen"]);
        assert_eq!((some.len(), some[1].decides), (3, Decides::Kernel));
        // for all packets: nothing after it is asked
        let rules = [rule(0, LOCAL), Rule { from: None, ..by_user }, rule(32766, MAIN)];
        assert_eq!(steps(&rules, PORT).0.len(), 2);
        // `not`: nobody knows whose
        let inverted = Rule {
            inverted: true,
            kernel: Some("users are not seen"),
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
    fn not_selects_everybody_else() {
        let not = |priority, rule: Rule| Rule { inverted: true, priority, ..rule };
        let rules = [
            rule(0, LOCAL),
            not(5, from(0, "10.0.0.0/8", Then::Table(5))),
            not(6, rule(0, Then::Table(6))),
            not(7, Rule { iif: Some("n0".into()), ..rule(0, Then::Table(7)) }),
            not(8, Rule { iif: Some("n1".into()), ..from(0, "10.0.0.0/8", Then::Table(8)) }),
            not(9, Rule { oif: Some("n0".into()), ..rule(0, Then::Table(9)) }),
            rule(32766, MAIN),
        ];
        let (steps, left) = steps(&rules, PORT);
        assert!(left.is_empty(), "{left:?}");
        let others = Step {
            from: Some("10.0.0.0/8".parse().unwrap()),
            inverted: true,
            ..Step::all(Decides::Table(5))
        };
        let all = [Decides::Table(8), Decides::Table(9), Decides::Main].map(Step::all);
        assert_eq!(steps, [&[Step::all(Decides::Table(TABLE_LOCAL)), others][..], &all].concat());
        let reversed = Inlet { reversed: true, ..PORT };
        assert_eq!(super::tests::steps(&rules, reversed).0, [Step::all(Decides::Kernel)]);
    }

    #[test]
    fn marks_are_zero_unless_something_sets_them() {
        let marked = |priority, mark, mask, then| Rule { mark, mask, ..rule(priority, then) };
        let rules = [
            rule(0, LOCAL),
            marked(3, 7, u32::MAX, Then::Prohibit),
            Rule { inverted: true, ..marked(4, 7, u32::MAX, Then::Table(4)) },
            Rule { inverted: true, ..marked(5, 0, 0xff, Then::Table(5)) },
            marked(6, 0, 0xff, Then::Table(6)),
            marked(7, 0x10, 0xf, Then::Table(7)),
            from(8, "10.0.0.0/8", Then::GoTo(9)),
            marked(9, 1, 1, Then::Table(9)),
            rule(32766, MAIN),
        ];
        // (1) nothing sets marks: 7 is nobody's, though others go on there
        let expected = [4, 6, 7].map(Decides::Table);
        let ends = [Decides::GoTo(5), Decides::Main];
        assert_eq!(plain(&rules, PORT), [&[Decides::Table(TABLE_LOCAL)], &expected[..], &ends].concat());
        // (2) something may: the first that asks for it is the kernel's
        let mut left = Vec::new();
        let steps = Rules::new(rules.iter(), Some("n0: ingress filters")).steps(PORT, |why| left.push(why));
        assert_eq!(steps, [Decides::Table(TABLE_LOCAL), Decides::Kernel].map(Step::all));
        assert_eq!(left, ["3: from all fwmark 0x7 prohibit: packets may have marks (n0: ingress filters)"]);
    }

    #[test]
    fn goto_skips_rules() {
        let to = |priority, target| rule(priority, Then::GoTo(target));
        let decides = |rules: &[Rule]| plain(rules, PORT);
        // (1) all packets: what is skipped is not there; a jump to nowhere is none
        let some =
            [rule(0, LOCAL), to(5, 20), rule(10, Then::Table(1)), rule(20, Then::Table(2)), to(25, 26)];
        let with_main = [&some[..], &[rule(32766, MAIN)]].concat();
        assert_eq!(
            decides(&with_main),
            [TABLE_LOCAL, 2].map(Decides::Table).into_iter().chain([Decides::Main]).collect::<Vec<_>>()
        );
        // (2) some packets: past what ends the others' way
        let some = [
            rule(0, LOCAL),
            from(5, "10.0.0.0/8", Then::GoTo(20)),
            to(6, 15),
            rule(7, Then::Table(7)),
            rule(15, Then::Prohibit),
            rule(20, Then::Table(2)),
            rule(32766, MAIN),
        ];
        let expected = [
            Decides::Table(TABLE_LOCAL),
            Decides::GoTo(5),
            Decides::GoTo(4),
            Decides::Table(7),
            Decides::Prohibit,
            Decides::Table(2),
            Decides::Main,
        ];
        assert_eq!(decides(&some), expected);
        // (3) past table local, which has then not been asked
        let some = [from(0, "10.0.0.0/8", Then::GoTo(20)), rule(1, LOCAL), rule(20, MAIN)];
        let (steps, left) = steps(&some, PORT);
        assert_eq!((steps.len(), steps[2].decides, left.len()), (3, Decides::Kernel, 1));
        // (4) beyond the last that there is room for
        let many = (1..40).map(|n| rule(n, Then::Table(n)));
        let many: Vec<_> = many.chain([from(0, "10.0.0.0/8", Then::GoTo(39))]).collect();
        let (steps, _) = super::tests::steps(&many, PORT);
        assert_eq!((steps.len(), steps[0].decides), (RULES_MAX, Decides::GoTo(RULES_MAX - 1)));
        // (5) past all
        let some = [from(0, "10.0.0.0/8", Then::GoTo(9)), rule(1, Then::Table(1)), rule(9, Then::Nop)];
        assert_eq!(decides(&some), [Decides::GoTo(2), Decides::Table(1)]);
    }

    #[test]
    fn a_table_but_for_its_default_route_is_a_step_of_its_own() {
        let suppress = Rule { but_default: true, ..rule(100, MAIN) };
        let rules = [rule(0, LOCAL), suppress.clone(), rule(200, Then::Table(7)), rule(32766, MAIN)];
        let (steps, left) = steps(&rules, PORT);
        assert!(left.is_empty(), "{left:?}");
        let but_default = Step { but_default: true, ..Step::all(Decides::Main) };
        let rest = [Decides::Table(7), Decides::Main].map(Step::all);
        assert_eq!(steps, [&[Step::all(Decides::Table(TABLE_LOCAL)), but_default][..], &rest].concat());
        let only = [rule(0, LOCAL), suppress];
        assert!(!Rules::new(only.iter(), None).end_in_main() && Rules::new(rules.iter(), None).end_in_main());
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
