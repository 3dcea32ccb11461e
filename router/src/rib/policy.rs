//! From the kernel's policy rules to the tables that decide for one device's packets, in their order.
//!
//! Incoming device, VRF and marks are known beforehand, so they are decided here (XDP sees packets before any part of the kernel marks
//! them). Source and destination are left for each packet. Where only the kernel can tell whether a rule selects a packet, the packets that
//! come to that rule are its own. Those that an earlier table decides are not.

use crate::kernel::rule::{Attached, FibRuleAction, Rule};
use crate::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use crate::xdp::rules::RULES_MAX;
use std::collections::{HashMap, HashSet};
use trieline_lpm::IpPrefix;

/// The device that a node's own packets come in by, as rules see it: `lo` has this number in every network namespace.
pub const LOOPBACK: u32 = 1;

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
    /// The device that they come in by, or the VRF device that sends them on.
    pub name: &'a str,
    /// The number of the incoming device. [`LOOPBACK`]: a VRF device sends them on, as if they were the node's.
    pub device: u32,
    /// The VRF's number and table, if there is one.
    pub vrf: Option<(u32, u32)>,
    /// It has a reverse path filter (`rp_filter`).
    pub filtered: bool,
    /// The kernel looks the source up, too, by rules in which the device that the packet leaves by is the incoming one.
    pub reversed: bool,
}

/// Rules of one family in the kernel's order, found by incoming device.
#[derive(Debug, Default)]
pub struct FibRules<'a> {
    /// Those for every device, with their places in the order.
    any: Vec<(usize, &'a Rule)>,
    by_device: HashMap<u32, Vec<(usize, &'a Rule)>>,
    /// There are some for packets whose device was chosen already.
    chosen: bool,
    /// Incoming devices that are named.
    devices: HashSet<u32>,
    /// Table local, which has the node's own addresses, may not be asked first for packets of each device.
    before_local: bool,
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
        let mut is_before = true;
        for (place, rule) in all.into_iter().enumerate() {
            sorted.priorities.insert(rule.priority); // where others go on, even if it selects no packet
            let is_nobodys = rule.of_others || marks.is_none() && !rule.takes_unmarked();
            if is_nobodys && !rule.inverted {
                continue;
            }
            sorted.chosen |= rule.oif.is_some();
            is_before &= !(rule.is_plain() && rule.then == FibRuleAction::Table(TABLE_LOCAL));
            let moves = matches!(rule.then, FibRuleAction::GoTo(_)) || is_routed(rule.attached);
            sorted.before_local |= is_before && moves;
            match rule.attached {
                Attached::To(device) => {
                    sorted.devices.insert(device);
                    if rule.inverted {
                        sorted.any.push((place, rule));
                    } else {
                        sorted.by_device.entry(device).or_default().push((place, rule));
                    }
                }
                Attached::Nowhere if rule.iif.is_some() && !rule.inverted => {}
                _ => sorted.any.push((place, rule)),
            }
        }
        sorted
    }

    /// Whether the device that a forwarded packet leaves by matters to any of them, when the kernel looks its source up.
    fn select_routed(&self) -> bool {
        self.devices.iter().any(|device| is_routed(Attached::To(*device)))
    }

    /// The rules of a device, in order.
    fn of(&self, device: u32) -> impl Iterator<Item = &'a Rule> {
        let own = self.by_device.get(&device);
        let mut rules: Vec<_> = self.any.iter().chain(own.into_iter().flatten()).copied().collect();
        rules.sort_by_key(|(place, _)| *place);
        rules.into_iter().map(|(_, rule)| rule)
    }

    /// Why all packets of `ingress` are the kernel's.
    fn trouble(&self, ingress: Ingress<'_>) -> Option<String> {
        // Kernels differ in whether such a rule means the VRF or the device in it.
        let unclear = |(vrf, _)| [ingress.device, vrf].iter().any(|device| self.devices.contains(device));
        let why = if ingress.vrf.is_some_and(unclear) {
            "rules select packets of its VRF by incoming device"
        } else if ingress.device == LOOPBACK && ingress.vrf.is_some() && self.chosen {
            "rules select packets by a device that was chosen before"
        } else if ingress.reversed && ingress.filtered && self.select_routed() {
            "rules select by incoming device, and rp_filter looks up the reverse path in them"
        } else if ingress.reversed && self.before_local && self.select_routed() {
            // Then the device that a packet leaves by says whether its source is the node's own.
            "rules select by incoming device before table local is asked"
        } else {
            return None;
        };
        Some(format!("dev {}: {why}", ingress.name))
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
        if rule.is_by_unknown_device() {
            return Some("no device has this name now, and the kernel found one by it".to_owned());
        }
        let marks = self.marks.filter(|_| rule.selects_mark());
        rule.kernel.map(str::to_owned).or_else(|| marks.map(|who| format!("packets may have marks ({who})")))
    }

    /// Whether a rule does something: one that goes on with a rule that is not there does not.
    fn leads_on(&self, rule: &Rule) -> bool {
        !matches!(rule.then, FibRuleAction::GoTo(target) if !self.priorities.contains(&target))
    }
}

/// Whether a rule for this incoming device selects packets that others sent, or their sources: `iif lo` is for the node's own.
fn is_routed(attached: Attached) -> bool {
    matches!(attached, Attached::To(device) if device != LOOPBACK)
}

/// Whose packets a rule selects, of those that come in by a device; `None`: nobody's. `kernel_only`: by something that only the kernel
/// can tell.
fn selected(rule: &Rule, device: u32, kernel_only: bool) -> Option<PolicyRule> {
    let all = PolicyRule::all(PolicyAction::Kernel);
    // No device was chosen for a packet that comes in, and it belongs to user 0.
    let elsewhere = rule.of_others || rule.oif.is_some() || rule.is_by_other_device(device);
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
#[path = "policy_tests.rs"]
mod tests;
