//! The owner's side of the actions: numbers and records given out, changed, and used again after a grace period.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use trieline_lpm::Grace;

use crate::error::{Error, Result};
use crate::fib::{Action, Adjacency, Records, check_outer, pack, record, record_of};
use crate::layout::tl_action_kind;
use trieline_bpf::ReaderGrace;

/// What waits for a grace period.
#[derive(Debug)]
enum Limbo {
    Action(u32),
    Record(u32),
}

/// The actions of this dataplane, written by their one owner.
#[derive(Debug)]
pub struct Actions {
    records: Records,
    grace: ReaderGrace,
    free_actions: Vec<u32>,
    free_records: Vec<u32>,
    limbo: VecDeque<(u64, Limbo)>,
    allocated: Vec<bool>,
    inherited: Vec<u32>,
    used: u32,
}

impl Actions {
    /// Takes the two maps over: actions that are set stay so until [`Actions::release_inherited`].
    pub(crate) fn new(records: Records, grace: ReaderGrace) -> Self {
        let mut allocated = vec![false; records.action_count as usize];
        let mut record_used = vec![false; records.adjacency_count as usize];
        let mut inherited = Vec::new();
        for (id, word) in records.set_actions() {
            allocated[id as usize] = true;
            inherited.push(id);
            if let Some(used) = record_of(word).and_then(|index| record_used.get_mut(index as usize)) {
                *used = true;
            }
        }
        // The stacks end with the lowest number, so that a small set stays in few cache lines.
        let free_actions = (1..records.action_count).rev().filter(|&id| !allocated[id as usize]).collect();
        let free_records = (0..records.adjacency_count).rev().filter(|&i| !record_used[i as usize]).collect();
        let used = inherited.len() as u32;
        Self {
            records,
            grace,
            free_actions,
            free_records,
            limbo: VecDeque::new(),
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

    /// Makes `id` mean `action`, for all routes with that value at once.
    pub fn set(&mut self, id: u32, action: &Action) -> Result<()> {
        if !self.allocated.get(id as usize).is_some_and(|a| *a) {
            return Err(Error::argument(format!("action {id} is not allocated")));
        }
        let word = match action {
            Action::Pass(reason) => pack(tl_action_kind::TL_ACTION_VERDICT, reason.verdict(), 0),
            Action::Drop(reason) => pack(tl_action_kind::TL_ACTION_VERDICT, reason.verdict(), 0),
            Action::Forward(adjacency) => {
                pack(tl_action_kind::TL_ACTION_FORWARD, 0, self.new_record(adjacency, &[])?)
            }
            Action::Encaps { adjacency, outer } => {
                check_outer(outer)?;
                pack(tl_action_kind::TL_ACTION_ENCAPS, 0, self.new_record(adjacency, outer)?)
            }
            Action::EndDx4 { adjacency: Some(adjacency) } => {
                pack(tl_action_kind::TL_ACTION_END_DX4, 0, self.new_record(adjacency, &[])?)
            }
            Action::EndDx4 { adjacency: None } => pack(tl_action_kind::TL_ACTION_END_DX4_TABLE, 0, 0),
            Action::Table(view) => pack(tl_action_kind::TL_ACTION_TABLE, 0, *view),
        };
        let before = self.records.words()[id as usize].swap(word, Ordering::Release);
        if let Some(index) = record_of(before) {
            let ticket = self.grace.begin();
            self.limbo.push_back((ticket, Limbo::Record(index)));
        }
        Ok(())
    }

    /// What `id` means; `None` when it is not set.
    pub fn get(&self, id: u32) -> Option<Action> {
        self.records.action(id)
    }

    /// Gives a number back. No table may hold it any more; packets that have just read it still find the action, and the
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
        self.records.action_count - 1
    }

    /// Takes back what a grace period has freed. Does not block.
    pub fn reclaim(&mut self) {
        if self.limbo.is_empty() {
            return;
        }
        let passed = self.grace.passed();
        while self.limbo.front().is_some_and(|(ticket, _)| *ticket <= passed) {
            match self.limbo.pop_front() {
                Some((_, Limbo::Record(index))) => self.free_records.push(index),
                Some((_, Limbo::Action(id))) => {
                    let word = self.records.words()[id as usize].swap(0, Ordering::Release);
                    self.free_records.extend(record_of(word));
                    self.free_actions.push(id);
                }
                None => {}
            }
        }
    }

    /// Waits until something in limbo is free; false when nothing is there.
    fn wait_for_one(&mut self) -> bool {
        let Some(&(ticket, _)) = self.limbo.front() else { return false };
        self.grace.wait(ticket);
        self.reclaim();
        true
    }

    /// Writes a record where no action leads to.
    fn new_record(&mut self, adjacency: &Adjacency, outer: &[u8]) -> Result<u32> {
        if adjacency.vlan.is_some_and(|vid| !(1..=4094).contains(&vid)) {
            return Err(Error::argument(format!("VLAN {:?}: must be 1 to 4094", adjacency.vlan)));
        }
        if self.free_records.is_empty() {
            self.reclaim();
        }
        while self.free_records.is_empty() && self.wait_for_one() {}
        let full = Error::Bpf(trieline_bpf::Error::Full {
            what: "adjacency",
            capacity: self.records.adjacency_count,
        });
        let index = self.free_records.pop().ok_or(full)?;
        self.records.write(index, &record(adjacency, outer));
        Ok(index)
    }
}
