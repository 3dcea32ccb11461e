//! The tables in the image, as they were last written.

use crate::kernel::TABLE_MAIN;
use crate::rib::table::Ip;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use trieline_lpm::{Prefix, Table};

/// A table in the image.
#[derive(Debug)]
pub struct Written<A: Ip> {
    /// The table, once it was built.
    pub table: Option<Table<A>>,
    /// Why the table is not as the kernel's, and since when: the family's packets are left to the kernel meanwhile.
    pub blocked: Option<(String, Instant)>,
    /// The image may have other words than were written: the table is built once more, without trust in them.
    pub(super) is_damaged: bool,
    /// Its number there.
    pub(super) id: u32,
}

impl<A: Ip> Written<A> {
    /// Its number in the image.
    pub fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn new(id: u32) -> Self {
        Self { table: None, blocked: None, is_damaged: false, id }
    }
}

/// A family's tables in the image.
#[derive(Debug)]
pub struct Published<A: Ip> {
    /// Local and main together.
    pub main: Written<A>,
    /// Other kernel tables, by number.
    pub others: BTreeMap<u32, Written<A>>,
}

impl<A: Ip> Published<A> {
    pub(super) fn new(id: u32) -> Self {
        Self { main: Written::new(id), others: BTreeMap::new() }
    }

    /// Whether packets may be forwarded by these tables.
    pub fn is_current(&self) -> bool {
        self.main.table.is_some() && self.blocked().is_none()
    }

    /// Why packets may not, and since when.
    pub fn blocked(&self) -> Option<&(String, Instant)> {
        self.main.blocked.as_ref().or_else(|| self.others.values().find_map(|table| table.blocked.as_ref()))
    }

    /// A table by the kernel's number of it; under main's number it is local and main together.
    pub fn get(&self, number: u32) -> Option<&Written<A>> {
        if number == TABLE_MAIN { Some(&self.main) } else { self.others.get(&number) }
    }

    /// Lets a table be built once more when it is written next.
    pub fn set_damaged(&mut self, number: u32) {
        let written = if number == TABLE_MAIN { Some(&mut self.main) } else { self.others.get_mut(&number) };
        if let Some(written) = written {
            written.is_damaged = true;
        }
    }

    /// The other tables' kernel numbers by their ids in the image. O(tables).
    pub fn numbers(&self) -> HashMap<u32, u32> {
        self.others.iter().map(|(number, written)| (written.id, *number)).collect()
    }

    /// Whether a table of a few has just this value for one address.
    pub(super) fn has(&self, addr: A, id: u32, mut others: impl Iterator<Item = u32>) -> bool {
        let is = |written: &Written<A>| value(&written.table, addr) == Some(id);
        is(&self.main) || others.any(|number| self.others.get(&number).is_some_and(is))
    }
}

fn value<A: Ip>(table: &Option<Table<A>>, addr: A) -> Option<u32> {
    table.as_ref()?.get(&Prefix::host(addr))
}

/// Counts of what was published.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Prefixes written or removed one by one.
    pub prefixes: u64,
    /// Whole tables written.
    pub tables: u64,
    /// Times that the image had no room.
    pub full: u64,
}
