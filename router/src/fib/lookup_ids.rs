//! Lookup ids: numbers of tables in the image, and what decides for the packets of each device.
//!
//! A number that is given out names nothing else until a grace period after it was given back. Those that an earlier daemon
//! gave out are not used before nothing names them any more.

use crate::fib::readers::Readers;
use crate::kernel::{TABLE_MAIN, TableKey, family};
use crate::xdp::table_ids::{OTHER_TABLES, TABLE4, TABLE6};
use std::collections::{BTreeMap, HashMap, VecDeque};
use trieline_bpf::ReaderGrace;
use trieline_lpm::Grace;

/// Lookup ids by kernel table and by device.
#[derive(Debug)]
pub struct LookupIds {
    given: BTreeMap<TableKey, u32>,
    /// The lowest last.
    free: Vec<u32>,
    limbo: VecDeque<(u64, u32)>,
    /// Given out by the daemon before.
    inherited: Vec<u32>,
    grace: ReaderGrace,
    /// Of the packets that come in by a device, or that a VRF device sends on, by family and device.
    pub(super) of: HashMap<(u8, u32), u32>,
    /// All whose packets meet routes.
    pub readers: Readers,
}

/// The table of local and main together.
pub(super) fn merged(family: u8) -> u32 {
    if family == family::INET { TABLE4 } else { TABLE6 }
}

impl LookupIds {
    /// Nothing is given out; `used` are the numbers that an earlier daemon's image uses, of `tables`.
    pub(super) fn new(tables: u32, used: impl Fn(u32) -> bool, grace: ReaderGrace) -> Self {
        let all = (OTHER_TABLES.start..tables).rev();
        let (inherited, free) = all.partition(|id| used(*id));
        let (given, limbo, of, readers) = Default::default();
        Self { given, free, limbo, inherited, grace, of, readers }
    }

    /// The lookup id of a device's packets, or of those that a VRF device sends on; `None`: the kernel's.
    pub fn of(&self, family: u8, ifindex: u32) -> Option<u32> {
        self.of.get(&(family, ifindex)).copied()
    }

    /// The lookup id that is one kernel table; for main one that has the node's own addresses too. `None`: there is none, as nothing
    /// was known to use it.
    pub fn of_table(&self, family: u8, table: u32) -> Option<u32> {
        if table == TABLE_MAIN { Some(merged(family)) } else { self.given.get(&(family, table)).copied() }
    }

    /// Kernel tables with a number in the image.
    pub fn tables(&self) -> impl Iterator<Item = (TableKey, u32)> + '_ {
        self.given.iter().map(|(key, id)| (*key, *id))
    }

    /// Gives a kernel table a number, unless it has one or none is free. `open` makes the table in the image; whether it could.
    pub(super) fn give(&mut self, key: TableKey, open: impl FnOnce(TableKey, u32) -> bool) {
        if !self.given.contains_key(&key)
            && let Some(id) = self.free.pop()
        {
            if open(key, id) {
                self.given.insert(key, id);
            } else {
                self.free.push(id);
            }
        }
    }

    /// Retires the numbers that the daemon before gave out: nothing names them any more.
    pub(super) fn retire_inherited(&mut self) {
        for id in std::mem::take(&mut self.inherited) {
            self.retire(id);
        }
    }

    /// Takes the number from each table for which `is_used` returns false; returns the tables.
    pub(super) fn retire_unused(&mut self, is_used: impl Fn(TableKey, u32) -> bool) -> Vec<TableKey> {
        let unused: Vec<_> = self.tables().filter(|(key, id)| !is_used(*key, *id)).collect();
        for (key, id) in &unused {
            self.given.remove(key);
            self.retire(*id);
        }
        unused.into_iter().map(|(key, _)| key).collect()
    }

    fn retire(&mut self, id: u32) {
        let ticket = self.grace.begin();
        self.limbo.push_back((ticket, id));
    }

    /// Takes back numbers whose grace period has passed, and has their tables removed; whether some still wait.
    pub(super) fn reclaim(&mut self, mut remove: impl FnMut(u32)) -> bool {
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
