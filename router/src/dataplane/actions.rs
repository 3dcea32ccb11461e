//! The owner's side of the actions: numbers, records and counters given out, changed, and used again after a grace period.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;

use trieline_lpm::Grace;

use crate::srv6::sids::Sids;
use crate::xdp::action::Action;
use crate::xdp::action_map::{BUCKETS, Encoded, OUTER_MAX, Parts, Records, Used, Word, encode, shares};
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_action_kind, tl_adjacency};
use trieline_bpf::ReaderGrace;

/// A record that waits for a grace period.
#[derive(Debug)]
enum Limbo {
    Action(u32),
    /// The records of a word that no action holds any more.
    Word(u64),
}

/// Elements of one map that are free; the lowest is the last, so that a small set stays in few cache lines.
#[derive(Debug)]
struct Free {
    what: &'static str,
    capacity: u32,
    list: Vec<u32>,
}

impl Free {
    fn new(what: &'static str, capacity: u32, used: &[bool]) -> Self {
        let list = (0..capacity).rev().filter(|i| !used.get(*i as usize).is_some_and(|used| *used)).collect();
        Self { what, capacity, list }
    }
}

/// The actions of this dataplane, written by their one owner.
#[derive(Debug)]
pub struct Actions {
    records: Records,
    sids: Sids,
    grace: ReaderGrace,
    free_actions: Vec<u32>,
    adjacencies: Free,
    /// No adjacency from here on was ever given out.
    reach: u32,
    long_outers: Free,
    groups: Free,
    limbo: VecDeque<(u64, Limbo)>,
    /// The ticket of the last repair: once its grace period has passed, no packet reads the records that repairs left behind.
    repaired: Option<u64>,
    allocated: Vec<bool>,
    inherited: Vec<u32>,
    used: u32,
}

impl Actions {
    /// Takes the maps over: actions that are set stay so until [`Actions::release_inherited`].
    pub(crate) fn new(records: Records, mut sids: Sids, grace: ReaderGrace) -> Self {
        let mut allocated = vec![false; records.actions.count as usize];
        let mut adjacencies = vec![false; records.adjacencies.count as usize];
        let mut long_outers = vec![false; records.long_outers.count as usize];
        let mut groups = vec![false; records.groups.count as usize];
        let mut inherited = Vec::new();
        let mark = |used: &mut [bool], indices: Vec<u32>| {
            for index in indices {
                if let Some(used) = used.get_mut(index as usize) {
                    *used = true;
                }
            }
        };
        for (id, word) in records.set_actions() {
            allocated[id as usize] = true;
            inherited.push(id);
            sids.inherit(id, Word::unpack(word).counter);
            let parts = records.parts(word);
            mark(&mut adjacencies, parts.adjacencies);
            mark(&mut long_outers, parts.long_outers);
            mark(&mut groups, parts.groups);
        }
        // The stack ends with the lowest number, as in `Free`.
        let free_actions = (1..records.actions.count).rev().filter(|&id| !allocated[id as usize]).collect();
        let used = inherited.len() as u32;
        let reach = adjacencies.iter().rposition(|used| *used).map_or(0, |last| last as u32 + 1);
        Self {
            free_actions,
            reach,
            adjacencies: Free::new("adjacency", records.adjacencies.count, &adjacencies),
            long_outers: Free::new("long outer header", records.long_outers.count, &long_outers),
            groups: Free::new("group", records.groups.count, &groups),
            records,
            sids,
            grace,
            limbo: VecDeque::new(),
            repaired: None,
            allocated,
            inherited,
            used,
        }
    }

    /// A number for an action, ≥ 1; packets that meet it before [`Actions::set`] are passed. Waits for a grace period (some
    /// 20 ms) only when all that is free has just been released.
    pub fn alloc(&mut self) -> Result<u32> {
        self.reclaim();
        while self.free_actions.is_empty() && self.wait_for_one() {}
        let full = Error::Bpf(trieline_bpf::Error::Full { what: "action", capacity: self.capacity() });
        let id = self.free_actions.pop().ok_or(full)?;
        self.allocated[id as usize] = true;
        self.used += 1;
        Ok(id)
    }

    /// Makes `id` mean `action`, for all routes with that value at once. An SRv6 endpoint gets counters (while there are some),
    /// which stay the number's until it is released.
    pub fn set(&mut self, id: u32, action: &Action) -> Result<()> {
        if !self.allocated.get(id as usize).is_some_and(|a| *a) {
            return Err(Error::argument(format!("action {id} is not allocated")));
        }
        action.check()?;
        let counter = if action.is_endpoint() { self.sids.take(id)? } else { 0 };
        let word = self.write(action, counter)?;
        let before = self.records.words()[id as usize].swap(word, Ordering::Release);
        if self.records.parts(before) != Parts::default() {
            let ticket = self.grace.begin();
            self.limbo.push_back((ticket, Limbo::Word(before)));
        }
        Ok(())
    }

    /// Whether the maps have `action` under `id`, byte for byte.
    pub fn holds(&self, id: u32, action: &Action) -> bool {
        self.records.holds(id, action)
    }

    /// As [`Actions::set`], for an action whose word or records were damaged: the old word is not trusted. The records that it led to are
    /// free again after [`Actions::count`].
    pub fn repair(&mut self, id: u32, action: &Action) -> Result<()> {
        action.check()?;
        let counter = if action.is_endpoint() { self.sids.take(id)? } else { 0 };
        let word = self.write(action, counter)?;
        self.records.words()[id as usize].store(word, Ordering::Release);
        self.repaired = Some(self.grace.begin());
        Ok(())
    }

    /// Once a grace period has passed since the last repair: finds out which records actions, or what waits for a grace period, lead to.
    /// All others are free. Not while an action is being written: until its word is there, nothing leads to its records.
    pub fn count(&mut self) {
        if self.repaired.take_if(|ticket| *ticket <= self.grace.passed()).is_none() {
            return;
        }
        let mut used = Parts::default();
        let waiting = self.limbo.iter().filter_map(|(_, limbo)| match limbo {
            Limbo::Word(word) => Some(*word),
            Limbo::Action(_) => None,
        });
        for word in self.records.set_actions().map(|(_, word)| word).chain(waiting) {
            let Parts { adjacencies, long_outers, groups } = self.records.parts(word);
            used.adjacencies.extend(adjacencies);
            used.long_outers.extend(long_outers);
            used.groups.extend(groups);
        }
        let free = |free: &mut Free, used: Vec<u32>| {
            let mut is_used = vec![false; free.capacity as usize];
            used.iter().filter_map(|index| is_used.get_mut(*index as usize).map(|used| *used = true)).count();
            *free = Free::new(free.what, free.capacity, &is_used);
        };
        free(&mut self.adjacencies, used.adjacencies);
        free(&mut self.long_outers, used.long_outers);
        free(&mut self.groups, used.groups);
    }

    /// Writes what an action's word leads to. On an error nothing is kept.
    fn write(&mut self, action: &Action, counter: u16) -> Result<u64> {
        match encode(action) {
            Encoded::Word(word) => Ok(Word { counter, ..word }.pack()),
            Encoded::Record(word, record, long) => {
                let index = self.write_record(*record, long)?;
                Ok(Word { counter, index, ..word }.pack())
            }
            Encoded::Group(members) => self.write_group(members, counter),
        }
    }

    fn write_record(&mut self, mut record: tl_adjacency, long: &[u8]) -> Result<u32> {
        let index = self.take(|actions| &mut actions.adjacencies)?;
        self.reach = self.reach.max(index + 1);
        if !long.is_empty() {
            debug_assert!(long.len() > OUTER_MAX);
            match self.take(|actions| &mut actions.long_outers) {
                Ok(place) => {
                    self.records.write_long(place, long);
                    record.long_outer = place;
                }
                Err(error) => {
                    self.adjacencies.list.push(index);
                    return Err(error);
                }
            }
        }
        self.records.write_adjacency(index, &record);
        Ok(index)
    }

    fn write_group(&mut self, members: &[(u16, Action)], counter: u16) -> Result<u64> {
        let mut words = Vec::with_capacity(members.len());
        let written = (|| {
            for (_, member) in members {
                words.push(self.write(member, counter)?);
            }
            self.take(|actions| &mut actions.groups)
        })();
        let index = match written {
            Ok(index) => index,
            Err(error) => {
                for word in words {
                    self.free(self.records.parts(word));
                }
                return Err(error);
            }
        };
        let weights: Vec<u16> = members.iter().map(|(weight, _)| *weight).collect();
        let mut buckets = [0; BUCKETS];
        let owners =
            words.iter().zip(shares(&weights)).flat_map(|(word, share)| std::iter::repeat_n(*word, share));
        buckets.iter_mut().zip(owners).for_each(|(bucket, word)| *bucket = word);
        self.records.write_group(index, &buckets);
        Ok(Word { kind: tl_action_kind::TL_ACTION_GROUP, detail: 0, counter, index }.pack())
    }

    /// The action `id`; `None` if it is not set. A group comes as its buckets say, 128 in all.
    pub fn get(&self, id: u32) -> Option<Action> {
        self.records.action(id)
    }

    /// Neighbours that the program has sent packets to since the last call. O(adjacencies in use).
    pub fn take_used(&mut self) -> BTreeSet<Used> {
        self.records.take_used(self.reach)
    }

    /// Slot of the counters of an SRv6 endpoint.
    pub(crate) fn sids(&self) -> &Sids {
        &self.sids
    }

    /// Gives a number back. No table may hold it any more. Packets that have just read it still find the action, and the
    /// number is used again after a grace period.
    pub fn release(&mut self, id: u32) {
        let Some(allocated) = self.allocated.get_mut(id as usize) else { return };
        if std::mem::take(allocated) {
            self.used -= 1;
            let ticket = self.grace.begin();
            self.limbo.push_back((ticket, Limbo::Action(id)));
        }
    }

    /// After a restart, once every table is this process's own: releases the actions found in the maps. How many.
    pub fn release_inherited(&mut self) -> u32 {
        let inherited = std::mem::take(&mut self.inherited);
        for &id in &inherited {
            self.release(id);
        }
        inherited.len() as u32
    }

    /// Numbers in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Numbers there are.
    pub fn capacity(&self) -> u32 {
        self.records.actions.count - 1
    }

    /// Takes back what a grace period has freed. Does not block.
    pub fn reclaim(&mut self) {
        if self.limbo.is_empty() {
            return;
        }
        let passed = self.grace.passed();
        while self.limbo.front().is_some_and(|(ticket, _)| *ticket <= passed) {
            match self.limbo.pop_front() {
                Some((_, Limbo::Word(word))) => self.free(self.records.parts(word)),
                Some((_, Limbo::Action(id))) => {
                    let word = self.records.words()[id as usize].swap(0, Ordering::Release);
                    self.free(self.records.parts(word));
                    self.sids.give(id);
                    self.free_actions.push(id);
                }
                None => {}
            }
        }
    }

    fn free(&mut self, parts: Parts) {
        self.adjacencies.list.extend(parts.adjacencies);
        self.long_outers.list.extend(parts.long_outers);
        self.groups.list.extend(parts.groups);
    }

    /// Waits until something in limbo is free; false when nothing is there.
    fn wait_for_one(&mut self) -> bool {
        let Some(&(ticket, _)) = self.limbo.front() else { return false };
        self.grace.wait(ticket);
        self.reclaim();
        true
    }

    /// An element where no action leads to.
    fn take(&mut self, of: impl Fn(&mut Self) -> &mut Free) -> Result<u32> {
        if of(self).list.is_empty() {
            self.reclaim();
        }
        while of(self).list.is_empty() && self.wait_for_one() {}
        let free = of(self);
        let full = Error::Bpf(trieline_bpf::Error::Full { what: free.what, capacity: free.capacity });
        free.list.pop().ok_or(full)
    }
}
