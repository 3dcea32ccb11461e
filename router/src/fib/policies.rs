//! The lookup id that every device's packets meet: a table's number, or a chain of rules, made, kept and given back.

use crate::bypass::netfilter::Reach;
use crate::dataplane::actions::Actions;
use crate::fib::action_index::ActionIndex;
use crate::fib::lookup_ids::{LookupIds, merged};
use crate::fib::readers::{Reader, Readers, place};
use crate::kernel::{TABLE_MAIN, TableKey, family};
use crate::rib::kernel_state::KernelState;
use crate::rib::policy::{FibRules, Ingress, LOOPBACK, PolicyAction, PolicyRule};
use crate::xdp::rules::{RULES_MAX, Rule, RuleAction, Rules, is_rules};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trieline_bpf::ReaderGrace;

/// Lookup ids by device, and the chains of rules behind some of them.
#[derive(Debug)]
pub struct Policies {
    /// The lookup ids.
    pub lookup_ids: LookupIds,
    /// Rules that are made, by what they say.
    policies: HashMap<Vec<Rule>, u32>,
    /// Rules left to the kernel, with the reason; IPv4 and IPv6.
    pub punted: [BTreeSet<String>; 2],
    /// Tables whose default routes got numbers of their own since this was last taken.
    pub set_apart: Vec<TableKey>,
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
        let (policies, punted, set_apart) = Default::default();
        Self { lookup_ids: LookupIds::new(tables, used, grace), policies, punted, set_apart }
    }

    /// The policy rules for the packets of each device.
    fn entries(&mut self, kernel: &KernelState, devices: &BTreeSet<u32>) -> Wanted {
        let mut wanted = Vec::new();
        let (mut readers, mut own) = (BTreeMap::<u32, Reader>::new(), <[Vec<PolicyRule>; 2]>::default());
        for family in [family::INET, family::INET6] {
            let marks = kernel.bypass.marks(family, kernel.settings.bypass_netfilter);
            let rules = FibRules::new(kernel.rules(family), marks.as_deref());
            let sent = Ingress { name: "lo", device: LOOPBACK, vrf: None, filtered: false, reversed: false };
            own[place(family)] = rules.entries(sent, |_| {});
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
                // Linux looks IPv4 sources up, IPv6 ones not.
                let reversed = family == family::INET;
                let filtered = reversed && kernel.rp_filter(link) != 0;
                let reader = readers.entry(link.ifindex).or_default();
                reader.vrf = link.vrf_table.map(|_| link.ifindex);
                let mut take = |reads: Vec<PolicyRule>, asks: Vec<PolicyRule>| {
                    wanted.push((family, link.ifindex, behind(&parts, reads.clone())));
                    (reader.reads[place(family)], reader.asks[place(family)]) = (reads, asks);
                };
                let ingress =
                    Ingress { name: &link.name, device: link.ifindex, vrf: None, filtered, reversed };
                if let Some((_, table)) = kernel.declared_vrf_of(link) {
                    let device = Ingress { filtered: false, reversed: false, ..ingress };
                    take(vec![PolicyRule::all(PolicyAction::Table(table))], rules.entries(device, |_| {}));
                    continue;
                }
                let ingress = match link.vrf_table {
                    Some(table) => {
                        let vrf = Some((link.ifindex, table));
                        Ingress { device: LOOPBACK, vrf, reversed: false, ..ingress }
                    }
                    None => {
                        let vrf = link.master.zip(kernel.vrf_of(link)).map(|(vrf, (_, table))| (vrf, table));
                        Ingress { vrf, ..ingress }
                    }
                };
                let is_port = |index: u32| devices.contains(&index);
                let reported = is_port(link.ifindex) || link.parent.is_some_and(is_port);
                let entries = rules.entries(ingress, |why| punted.extend(reported.then_some(why)));
                take(entries.clone(), entries);
            }
        }
        self.lookup_ids.readers = Readers::new(readers.into_values(), own);
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
            self.lookup_ids.give(key, &mut open);
        }
        self.lookup_ids.of.clear();
        for (family, ifindex, entries) in wanted {
            if let Some(lookup) = self.lookup(family, &entries, action_index, rules, actions) {
                self.lookup_ids.of.insert((family, ifindex), lookup);
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
                PolicyAction::Table(table) => match self.lookup_ids.of_table(family, table) {
                    Some(id) => {
                        self.table((family, table), id, entry.suppress_default, action_index, actions)
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

    /// Gives back what nothing uses: to be called when ports and actions name nothing but what [`LookupIds::of`] and
    /// [`LookupIds::of_table`] say. `named` as for [`Policies::refresh`]; `closed` gets the tables that lose their number.
    /// Packets that are under way may still use them: [`Policies::reclaim`] returns whether none can.
    pub fn release_unused(
        &mut self,
        named: &BTreeSet<TableKey>,
        rules: &mut Rules,
        mut closed: impl FnMut(TableKey),
    ) {
        rules.release_inherited();
        self.lookup_ids.retire_inherited();
        let used: BTreeSet<u32> = self.lookup_ids.of.values().copied().collect();
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
        let is_used = |key, id| tables.contains(&id) || named.contains(&key);
        self.lookup_ids.retire_unused(is_used).into_iter().for_each(&mut closed);
    }

    /// Takes back numbers whose grace period has passed, and has their tables removed; whether some still wait.
    pub fn reclaim(&mut self, remove: impl FnMut(u32)) -> bool {
        self.lookup_ids.reclaim(remove)
    }
}
