//! The lookup id that every device's packets meet: numbers of tables in the image, and chains of rules, made, kept and given back.
//!
//! A number that is given out names nothing else until a grace period after it was given back. Those that an earlier daemon
//! gave out are not used before nothing names them any more.

use crate::bypass::netfilter::Reach;
use crate::dataplane::actions::Actions;
use crate::fib::action_index::ActionIndex;
use crate::kernel::{TABLE_MAIN, TableKey, family};
use crate::rib::kernel_state::KernelState;
use crate::rib::policy::{FibRules, Ingress, LOOPBACK, PolicyAction, PolicyRule};
use crate::xdp::rules::{RULES_MAX, Rule, RuleAction, Rules, is_rules};
use crate::xdp::table_ids::{OTHER_TABLES, TABLE4, TABLE6};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use trieline_bpf::ReaderGrace;
use trieline_lpm::Grace;

/// Numbers of tables in the image.
#[derive(Debug)]
struct Ids {
    given: BTreeMap<TableKey, u32>,
    /// The lowest last.
    free: Vec<u32>,
    limbo: VecDeque<(u64, u32)>,
    /// Given out by the daemon before.
    inherited: Vec<u32>,
    grace: ReaderGrace,
}

/// Lookup ids by device.
#[derive(Debug)]
pub struct Policies {
    ids: Ids,
    /// Rules that are made, by what they say.
    policies: HashMap<Vec<Rule>, u32>,
    /// Lookup id of the packets that come in by a device, or that a VRF device sends on, by family and device.
    of: HashMap<(u8, u32), u32>,
    /// Rules left to the kernel, with the reason; IPv4 and IPv6.
    pub punted: [BTreeSet<String>; 2],
    /// Tables whose default routes got numbers of their own since this was last taken.
    pub set_apart: Vec<TableKey>,
    /// Whether local and main decide where no other table has a route; IPv4 and IPv6.
    ends_in_main: [bool; 2],
}

fn place(family: u8) -> usize {
    usize::from(family == family::INET6)
}

/// The table of local and main together.
fn merged(family: u8) -> u32 {
    if family == family::INET { TABLE4 } else { TABLE6 }
}

/// The same steps behind those that leave `parts` to the kernel.
fn behind(parts: &BTreeSet<Reach>, entries: Vec<PolicyRule>) -> Vec<PolicyRule> {
    if parts.is_empty() {
        return entries;
    }
    if parts.len() + entries.len() > RULES_MAX {
        return vec![PolicyRule::all(PolicyAction::Kernel)];
    }
    let all = PolicyRule::all(PolicyAction::Kernel);
    let first = parts.iter().map(|part| PolicyRule { from: part.from, to: part.to, ..all });
    let moved = entries.into_iter().map(|entry| match entry.action {
        PolicyAction::GoTo(place) => PolicyRule { action: PolicyAction::GoTo(place + parts.len()), ..entry },
        _ => entry,
    });
    first.chain(moved).collect()
}

/// A device's steps: family, device, and what decides.
type Wanted = Vec<(u8, u32, Vec<PolicyRule>)>;

impl Policies {
    /// Nothing is given out; `used` are the numbers that an earlier daemon's image uses, of `tables`.
    pub fn new(tables: u32, used: impl Fn(u32) -> bool, grace: ReaderGrace) -> Self {
        let all = (OTHER_TABLES.start..tables).rev();
        let (inherited, free) = all.partition(|id| used(*id));
        let ids = Ids { given: BTreeMap::new(), free, limbo: VecDeque::new(), inherited, grace };
        let (policies, of, punted, set_apart) = Default::default();
        Self { ids, policies, of, punted, set_apart, ends_in_main: [false; 2] }
    }

    /// The lookup id of a device's packets, or of those that a VRF device sends on; `None`: the kernel's.
    pub fn of(&self, family: u8, ifindex: u32) -> Option<u32> {
        self.of.get(&(family, ifindex)).copied()
    }

    /// The lookup id that is one kernel table; for main one that has the node's own addresses too. `None`: there is none, as nothing
    /// was known to use it.
    pub fn of_table(&self, family: u8, table: u32) -> Option<u32> {
        if table == TABLE_MAIN { Some(merged(family)) } else { self.ids.given.get(&(family, table)).copied() }
    }

    /// Whether local and main decide where no other table has a route, whatever the packet's source and device.
    pub fn end_in_main(&self, family: u8) -> bool {
        self.ends_in_main[place(family)]
    }

    /// Kernel tables with a number in the image.
    pub fn tables(&self) -> impl Iterator<Item = (TableKey, u32)> + '_ {
        self.ids.given.iter().map(|(key, id)| (*key, *id))
    }

    /// The policy rules for the packets of each device.
    fn entries(&mut self, kernel: &KernelState, devices: &BTreeSet<u32>) -> Wanted {
        let mut wanted = Vec::new();
        for family in [family::INET, family::INET6] {
            let marks = kernel.bypass.marks(family, kernel.settings.bypass_netfilter);
            let rules = FibRules::new(kernel.rules(family), marks.as_deref());
            self.ends_in_main[place(family)] = rules.end_in_main();
            let parts = kernel.parts(family);
            let punted = &mut self.punted[place(family)];
            punted.clear();
            for link in kernel.links.values() {
                // Lookup ids of other links are not used, and there may be many.
                let is_given = |index: u32| devices.contains(&index) || kernel.disabled.contains(&index);
                let asked = link.vrf_table.is_some()
                    || kernel.declared_vrf_of(link).is_some()
                    || is_given(link.ifindex)
                    || link.parent.is_some_and(is_given)
                    || link.master.is_some_and(is_given);
                if !asked {
                    continue;
                }
                let reversed = family == family::INET && kernel.rp_filter(link.ifindex) != 0;
                if let Some((_, table)) = kernel.declared_vrf_of(link) {
                    let entries = vec![PolicyRule::all(PolicyAction::Table(table))];
                    wanted.push((family, link.ifindex, behind(&parts, entries)));
                    continue;
                }
                let ingress = match link.vrf_table {
                    Some(table) => {
                        Ingress { device: LOOPBACK, vrf: Some((&link.name, table)), reversed: false }
                    }
                    None => Ingress { device: &link.name, vrf: kernel.vrf_of(link), reversed },
                };
                let is_port = |index: u32| devices.contains(&index);
                let reported = is_port(link.ifindex) || link.parent.is_some_and(is_port);
                let entries = rules.entries(ingress, |why| punted.extend(reported.then_some(why)));
                wanted.push((family, link.ifindex, behind(&parts, entries)));
            }
        }
        wanted
    }

    /// Finds the policy of each device again. `named`: tables that routes name; `devices`: those whose rules left to the kernel are
    /// reported. `open` makes a table whose packets are the kernel's until it is written. Unused policies are kept until
    /// [`Policies::release_unused`].
    pub fn refresh(
        &mut self,
        (kernel, devices): (&KernelState, &BTreeSet<u32>),
        named: impl Iterator<Item = TableKey>,
        action_index: &mut ActionIndex,
        (rules, actions): (&mut Rules, &mut Actions),
        mut open: impl FnMut(TableKey, u32) -> bool,
    ) {
        let wanted = self.entries(kernel, devices);
        let stepped = wanted.iter().flat_map(|(family, _, entries)| {
            entries.iter().filter_map(|entry| match entry.action {
                PolicyAction::Table(table) => Some((*family, table)),
                _ => None,
            })
        });
        let used: BTreeSet<TableKey> =
            stepped.chain(named).filter(|(_, table)| *table != TABLE_MAIN).collect();
        for key in used {
            if !self.ids.given.contains_key(&key)
                && let Some(id) = self.ids.free.pop()
            {
                if open(key, id) {
                    self.ids.given.insert(key, id);
                } else {
                    self.ids.free.push(id);
                }
            }
        }
        self.of.clear();
        for (family, ifindex, entries) in wanted {
            if let Some(lookup) = self.lookup(family, &entries, action_index, rules, actions) {
                self.of.insert((family, ifindex), lookup);
            }
        }
    }

    /// The lookup id of some steps, made when it is new.
    fn lookup(
        &mut self,
        family: u8,
        entries: &[PolicyRule],
        action_index: &mut ActionIndex,
        rules: &mut Rules,
        actions: &mut Actions,
    ) -> Option<u32> {
        let mut chain = Vec::with_capacity(entries.len());
        for entry in entries {
            let then = match entry.action {
                PolicyAction::Main => self.table(
                    (family, TABLE_MAIN),
                    merged(family),
                    entry.suppress_default,
                    action_index,
                    actions,
                ),
                PolicyAction::Table(table) => match self.ids.given.get(&(family, table)) {
                    Some(id) => {
                        self.table((family, table), *id, entry.suppress_default, action_index, actions)
                    }
                    None => {
                        self.punted[place(family)]
                            .insert(format!("table {table}: the image has no room for another table"));
                        RuleAction::Value(action_index.full())
                    }
                },
                PolicyAction::GoTo(place) => RuleAction::GoTo(place),
                other => RuleAction::Value(action_index.fixed(actions, other)),
            };
            chain.push(Rule { from: entry.from, to: entry.to, inverted: entry.inverted, then });
        }
        if let [Rule { from: None, to: None, then: RuleAction::Table(id), .. }] = chain[..] {
            return Some(id);
        }
        if let Some(lookup) = self.policies.get(&chain) {
            return Some(*lookup);
        }
        match rules.make(&chain) {
            Ok(lookup) => {
                self.policies.insert(chain, lookup);
                Some(lookup)
            }
            Err(error) => {
                self.punted[place(family)].insert(format!("no room for more rules: {error}"));
                None
            }
        }
    }

    /// A table that decides, but by its default route when that is left out.
    fn table(
        &mut self,
        key: TableKey,
        id: u32,
        suppress_default: bool,
        action_index: &mut ActionIndex,
        actions: &mut Actions,
    ) -> RuleAction {
        if !suppress_default {
            return RuleAction::Table(id);
        }
        match action_index.reserve_default(actions, key) {
            Some((number, new)) => {
                self.set_apart.extend(new.then_some(key));
                RuleAction::Except(id, number)
            }
            None => RuleAction::Value(action_index.full()),
        }
    }

    /// Gives back what nothing uses: to be called when ports and actions name nothing but what [`Policies::of`] and
    /// [`Policies::of_table`] say. `named` as for [`Policies::refresh`]; `closed` gets the tables that lose their number.
    /// Packets that are under way may still use them: [`Policies::reclaim`] returns whether none can.
    pub fn release_unused(
        &mut self,
        named: &BTreeSet<TableKey>,
        rules: &mut Rules,
        mut closed: impl FnMut(TableKey),
    ) {
        rules.release_inherited();
        for id in std::mem::take(&mut self.ids.inherited) {
            self.ids.retire(id);
        }
        let used: BTreeSet<u32> = self.of.values().copied().collect();
        self.policies.retain(|_, lookup| {
            let kept = used.contains(lookup);
            if !kept {
                rules.release(*lookup);
            }
            kept
        });
        let mut tables: BTreeSet<u32> = used.into_iter().filter(|lookup| !is_rules(*lookup)).collect();
        for rule in self.policies.keys().flatten() {
            if let RuleAction::Table(id) | RuleAction::Except(id, _) = rule.then {
                tables.insert(id);
            }
        }
        let ids = &mut self.ids;
        let unused: Vec<_> =
            ids.given.iter().filter(|(key, id)| !tables.contains(id) && !named.contains(key)).collect();
        let unused: Vec<(TableKey, u32)> = unused.into_iter().map(|(key, id)| (*key, *id)).collect();
        for (key, id) in unused {
            ids.given.remove(&key);
            closed(key);
            ids.retire(id);
        }
    }

    /// Takes back numbers whose grace period has passed, and has their tables removed; whether some still wait.
    pub fn reclaim(&mut self, remove: impl FnMut(u32)) -> bool {
        self.ids.reclaim(remove)
    }
}

impl Ids {
    fn retire(&mut self, id: u32) {
        let ticket = self.grace.begin();
        self.limbo.push_back((ticket, id));
    }

    fn reclaim(&mut self, mut remove: impl FnMut(u32)) -> bool {
        if self.limbo.is_empty() {
            return false;
        }
        let passed = self.grace.passed();
        while let Some((_, id)) = self.limbo.pop_front_if(|(ticket, _)| *ticket <= passed) {
            remove(id);
            self.free.push(id);
        }
        !self.limbo.is_empty()
    }
}
