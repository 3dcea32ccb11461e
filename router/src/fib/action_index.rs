//! The index of actions: which number in the tables stands for which nexthop group or neighbour, and what it does at present.
//!
//! A table's value is an action's number. When a neighbour changes its MAC address, trielined rewrites one action and touches no route,
//! however many routes use it.

use crate::dataplane::actions::Actions;
use crate::fib::cause::Cause;
use crate::fib::meaning::{Host, Meaning};
use crate::fib::resolve::{Resolved, Resolver};
use crate::kernel::TableKey;
use crate::rib::nexthop_group::{KeyMap, NhgId};
use crate::rib::policy::PolicyAction;
use crate::xdp::action::{Action, DropReason, PassReason};
use crate::xdp::error::Error;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// An action in the dataplane.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    id: u32,
    action: Action,
    /// Why the action passes.
    cause: Option<Cause>,
}

/// The object that a number in the tables stands for.
#[derive(Debug, Clone, Copy)]
pub enum ActionOwner {
    /// A nexthop group.
    NexthopGroup(NhgId),
    /// A neighbour on this link, by a route of this MTU (0: the link's).
    Neighbour(u32, u32),
}

/// Numbers of nexthop groups and neighbours.
#[derive(Debug)]
pub struct ActionIndex {
    nhgs: Vec<Option<Entry>>,
    hosts: KeyMap<Host, Entry>,
    /// The action "the kernel decides".
    kernel: u32,
    /// Actions of the default routes of tables that rules leave out; at first, and where there is none, the kernel decides.
    defaults: BTreeMap<TableKey, (Option<NhgId>, Entry)>,
    /// The same, for whatever there was no room for.
    full: u32,
    /// Actions of rules that decide by themselves.
    fixed: HashMap<PolicyAction, u32>,
    /// Times that an action could not be written because the dataplane's room was used up.
    pub refused: u64,
    /// Actions rewritten because an object that they depend on changed.
    pub rewritten: u64,
}

impl ActionIndex {
    /// An empty index.
    pub fn new(actions: &mut Actions) -> Result<Self, Error> {
        let kernel = actions.alloc()?;
        actions.set(kernel, &Action::Pass(PassReason::Unsupported))?;
        let full = actions.alloc()?;
        actions.set(full, &Action::Pass(PassReason::TableFull))?;
        let (nhgs, hosts, defaults, fixed) = Default::default();
        Ok(Self { nhgs, hosts, kernel, full, defaults, fixed, refused: 0, rewritten: 0 })
    }

    /// The number of "the kernel decides".
    pub fn kernel(&self) -> u32 {
        self.kernel
    }

    /// The number of what there was no room for.
    pub fn full(&self) -> u32 {
        self.full
    }

    /// The number of what a rule decides by itself, without a table.
    pub fn fixed(&mut self, actions: &mut Actions, policy_action: PolicyAction) -> u32 {
        let Some(action) = decided(policy_action) else { return self.kernel };
        if let Some(id) = self.fixed.get(&policy_action) {
            return *id;
        }
        match enter(actions, Ok(action)) {
            Ok(entry) => {
                self.fixed.insert(policy_action, entry.id);
                entry.id
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// The number that a table's default route has, and nothing else, from now on; whether it is a new one. `None`: the image or the action
    /// map is full.
    pub fn reserve_default(&mut self, actions: &mut Actions, table: TableKey) -> Option<(u32, bool)> {
        if let Some((_, entry)) = self.defaults.get(&table) {
            return Some((entry.id, false));
        }
        match enter(actions, Err(PassReason::Unsupported.into())) {
            Ok(entry) => {
                let id = entry.id;
                self.defaults.insert(table, (None, entry));
                Some((id, true))
            }
            Err(error) => {
                self.refuse(&error);
                None
            }
        }
    }

    /// Whether a table's default route has a number of its own.
    pub fn has_default(&self, table: TableKey) -> bool {
        self.defaults.contains_key(&table)
    }

    /// The number of a default route with that nexthop group, when it is one of its own.
    pub fn default_route(
        &mut self,
        actions: &mut Actions,
        resolver: &Resolver<'_>,
        table: TableKey,
        nhg: NhgId,
    ) -> Option<u32> {
        let (known, entry) = self.defaults.get_mut(&table)?;
        if known.replace(nhg) != Some(nhg) {
            write(actions, entry, resolver.nhg(nhg), &mut self.refused);
        }
        Some(entry.id)
    }

    /// The number of a nexthop group; its action is resolved if it has none yet.
    pub fn nhg(&mut self, actions: &mut Actions, resolver: &Resolver<'_>, nhg: NhgId) -> u32 {
        let index = nhg as usize;
        if let Some(Some(entry)) = self.nhgs.get(index) {
            return entry.id;
        }
        match enter(actions, resolver.nhg(nhg)) {
            Ok(entry) => {
                let id = entry.id;
                self.nhgs.resize(self.nhgs.len().max(index + 1), None);
                self.nhgs[index] = Some(entry);
                id
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// The number of a neighbour on a link.
    pub fn host(&mut self, actions: &mut Actions, resolver: &Resolver<'_>, host: Host) -> u32 {
        if let Some(entry) = self.hosts.get(&host) {
            return entry.id;
        }
        match enter(actions, resolver.host(host)) {
            Ok(entry) => {
                let id = entry.id;
                self.hosts.insert(host, entry);
                id
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// Rewrites the actions of the nexthop groups that `concerned` picks, where they differ.
    pub fn refresh_nhgs(
        &mut self,
        actions: &mut Actions,
        resolver: &Resolver<'_>,
        mut concerned: impl FnMut(NhgId) -> bool,
    ) {
        for (index, entry) in self.nhgs.iter_mut().enumerate() {
            let nhg = index as NhgId;
            if let Some(entry) = entry
                && concerned(nhg)
            {
                self.rewritten += u64::from(write(actions, entry, resolver.nhg(nhg), &mut self.refused));
            }
        }
        for (nhg, entry) in self.defaults.values_mut() {
            if let Some(nhg) = nhg.filter(|nhg| concerned(*nhg)) {
                self.rewritten += u64::from(write(actions, entry, resolver.nhg(nhg), &mut self.refused));
            }
        }
    }

    /// Rewrites the actions of the neighbours that `concerned` picks, where they differ.
    pub fn refresh_hosts(
        &mut self,
        actions: &mut Actions,
        resolver: &Resolver<'_>,
        mut concerned: impl FnMut(&Host) -> bool,
    ) {
        for (host, entry) in self.hosts.iter_mut().filter(|(host, _)| concerned(host)) {
            self.rewritten += u64::from(write(actions, entry, resolver.host(*host), &mut self.refused));
        }
    }

    /// Gives back the number of a nexthop group that no route uses any more.
    pub fn release_nhg(&mut self, actions: &mut Actions, nhg: NhgId) {
        if let Some(entry) = self.nhgs.get_mut(nhg as usize).and_then(Option::take) {
            actions.release(entry.id);
        }
        // Of a default route that is gone.
        for (known, _) in self.defaults.values_mut() {
            known.take_if(|known| *known == nhg);
        }
    }

    /// Gives back the numbers of neighbours that no prefix uses any more.
    pub fn retain_hosts(&mut self, actions: &mut Actions, used: impl Fn(&Host, u32) -> bool) {
        self.hosts.retain(|host, entry| {
            let used = used(host, entry.id);
            if !used {
                actions.release(entry.id);
            }
            used
        });
    }

    /// The present action of a nexthop group's number.
    pub fn action(&self, nhg: NhgId) -> Option<&Action> {
        self.nhgs.get(nhg as usize)?.as_ref().map(|entry| &entry.action)
    }

    /// Why a nexthop group's packets are the kernel's, if they are.
    pub fn cause(&self, nhg: NhgId) -> Option<&Cause> {
        self.nhgs.get(nhg as usize)?.as_ref()?.cause.as_ref()
    }

    /// The number of a meaning in a table, and the action that the dataplane is to have under it; `None`: no action belongs to it.
    pub fn find(&self, table: TableKey, meaning: Meaning) -> Option<(u32, Action)> {
        let entry = match meaning {
            Meaning::NexthopGroup(nhg) => self.nhgs.get(nhg as usize).and_then(Option::as_ref),
            Meaning::Default(_) => self.defaults.get(&table).map(|(_, entry)| entry),
            Meaning::Host(host) => self.hosts.get(&host),
            Meaning::Kernel => return Some((self.kernel, Action::Pass(PassReason::Unsupported))),
            Meaning::Throw => return None,
        };
        let full = || (self.full, Action::Pass(PassReason::TableFull));
        Some(entry.map_or_else(full, |entry| (entry.id, entry.action.clone())))
    }

    /// All numbers with the actions that the dataplane is to have under them. O(nexthop groups).
    pub fn all(&self) -> impl Iterator<Item = (u32, Action)> + '_ {
        let of = |entry: &Entry| (entry.id, entry.action.clone());
        let own = [
            (self.kernel, Action::Pass(PassReason::Unsupported)),
            (self.full, Action::Pass(PassReason::TableFull)),
        ];
        let fixed = self.fixed.iter().filter_map(|(policy_action, id)| Some((*id, decided(*policy_action)?)));
        let nhgs = self.nhgs.iter().flatten().map(of);
        let defaults = self.defaults.values().map(move |(_, entry)| of(entry));
        own.into_iter().chain(fixed).chain(nhgs).chain(defaults).chain(self.hosts.values().map(of))
    }

    /// Writes the actions that the dataplane does not have as it should; how many. Without room for one its packets are the
    /// kernel's.
    pub fn repair(&mut self, actions: &mut Actions) -> usize {
        let damaged: Vec<_> = self.all().filter(|(id, action)| !actions.holds(*id, action)).collect();
        for (id, action) in &damaged {
            if let Err(error) = actions.repair(*id, action) {
                count_refused(&mut self.refused, &error);
                let pass = Action::Pass(PassReason::TableFull);
                // A pass needs no room.
                let _ = actions.repair(*id, &pass);
                let of = |entry: &&mut Entry| entry.id == *id;
                let defaults = self.defaults.values_mut().map(|(_, entry)| entry);
                let mut all = self.nhgs.iter_mut().flatten().chain(defaults).chain(self.hosts.values_mut());
                // The next refresh tries again.
                let blocked = |entry: &mut Entry| (entry.action, entry.cause) = (pass.clone(), Some(FULL));
                all.find(of).into_iter().for_each(blocked);
            }
        }
        damaged.len()
    }

    /// The nexthop group or neighbour that each number stands for. O(nexthop groups).
    pub fn numbers(&self) -> KeyMap<u32, ActionOwner> {
        let nhgs = self.nhgs.iter().enumerate();
        let nhgs = nhgs
            .filter_map(|(nhg, entry)| Some((entry.as_ref()?.id, ActionOwner::NexthopGroup(nhg as NhgId))));
        let defaults = self
            .defaults
            .values()
            .filter_map(|(nhg, entry)| Some((entry.id, ActionOwner::NexthopGroup((*nhg)?))));
        let nhgs = nhgs.chain(defaults);
        nhgs.chain(
            self.hosts.iter().map(|((_, link, mtu), entry)| (entry.id, ActionOwner::Neighbour(*link, *mtu))),
        )
        .collect()
    }

    /// The neighbours that have numbers, with their links; may repeat.
    pub fn hosts(&self) -> impl Iterator<Item = (IpAddr, u32)> + '_ {
        self.hosts.keys().map(|(address, link, _)| (*address, *link))
    }

    /// Numbers in use for nexthop groups and for neighbours.
    pub fn len(&self) -> (usize, usize) {
        (self.nhgs.iter().flatten().count(), self.hosts.len())
    }

    /// Nexthop groups that `counts` picks, and neighbours, whose packets wait for a MAC address.
    pub fn unresolved(&self, counts: impl Fn(NhgId) -> bool) -> usize {
        let waits = |entry: &Entry| entry.action == Action::Pass(PassReason::Unresolved);
        let nhgs = self.nhgs.iter().enumerate();
        let nhgs = nhgs.filter(|(nhg, entry)| entry.as_ref().is_some_and(waits) && counts(*nhg as NhgId));
        nhgs.count() + self.hosts.values().filter(|entry| waits(entry)).count()
    }

    fn refuse(&mut self, error: &Error) -> u32 {
        count_refused(&mut self.refused, error);
        self.full
    }
}

/// The action of a rule that decides by itself.
fn decided(policy_action: PolicyAction) -> Option<Action> {
    match policy_action {
        PolicyAction::Blackhole => Some(Action::Drop(DropReason::Blackhole)),
        PolicyAction::Unreachable => Some(Action::Pass(PassReason::Unreachable)),
        PolicyAction::Prohibit => Some(Action::Pass(PassReason::Prohibit)),
        PolicyAction::Kernel => Some(Action::Pass(PassReason::Rule)),
        PolicyAction::Main | PolicyAction::Table(_) | PolicyAction::GoTo(_) => None,
    }
}

fn count_refused(refused: &mut u64, error: &Error) {
    *refused += 1;
    if *refused == 1 {
        tracing::error!(
            "no room for an action: {error}; the kernel forwards packets of further next hops (logged once). `next_hops` sets the number of actions and adjacencies; that of groups and long outer headers is fixed"
        );
    }
}

/// The cause of an action without room.
const FULL: Cause = Cause::Verdict(PassReason::TableFull);

/// The dataplane's action, and the cause where it leaves that to the kernel.
fn settled(resolved: Resolved<Action>) -> (Action, Option<Cause>) {
    match resolved {
        Ok(action) => (action, None),
        Err(cause) => (Action::Pass(cause.reason()), Some(cause)),
    }
}

fn enter(actions: &mut Actions, resolved: Resolved<Action>) -> Result<Entry, Error> {
    let id = actions.alloc()?;
    let (action, cause) = settled(resolved);
    match actions.set(id, &action) {
        Ok(()) => Ok(Entry { id, action, cause }),
        Err(error) => {
            actions.release(id);
            Err(error)
        }
    }
}

/// Writes the action where it differs; whether it did. Without room for it the packets are the kernel's: the old action is wrong by now.
fn write(actions: &mut Actions, entry: &mut Entry, resolved: Resolved<Action>, refused: &mut u64) -> bool {
    let (action, cause) = settled(resolved);
    entry.cause = cause;
    if entry.action == action {
        return false;
    }
    entry.action = match actions.set(entry.id, &action) {
        Ok(()) => action,
        Err(error) => {
            count_refused(refused, &error);
            let pass = Action::Pass(PassReason::TableFull);
            // A pass needs no room; should even that fail, the next refresh tries again.
            let _ = actions.set(entry.id, &pass);
            entry.cause = Some(FULL);
            pass
        }
    };
    true
}
