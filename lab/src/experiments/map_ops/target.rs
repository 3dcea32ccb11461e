//! The targets of operations: an LPM_TRIE, and an image with its writer, each with its programs loaded. Here lies how each operation is
//! timed, and that it was really done.

use std::{hint::black_box, time::Instant};

use libbpf_rs::{MapCore, MapFlags};
use trieline_bpf::{
    ImageMapType, ReaderGrace, {ImageMap, ImageMemory},
};
use trieline_lpm::{Image, Table};

use crate::{
    Error, Result,
    error::During,
    experiments::{
        comparison::compare,
        structure::{Mode, Structure, Which, failed, fill_trie, trie_key},
    },
    generator::ADDRESSES,
    tables::kinds::Entry,
};

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Of a key that is there.
    Lookup,
    /// Another value for a key that is there.
    Update,
    /// Of every key, once.
    Delete,
    /// The whole map.
    Free,
}

impl Op {
    /// As in a row.
    pub fn name(self) -> &'static str {
        match self {
            Op::Lookup => "lookup",
            Op::Update => "update",
            Op::Delete => "delete",
            Op::Free => "free",
        }
    }
}

/// The place of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A BPF program.
    Bpf,
    /// This process.
    User,
    /// The kernel's threads.
    Kernel,
}

impl Place {
    /// As in a row.
    pub fn name(self) -> &'static str {
        match self {
            Place::Bpf => "bpf",
            Place::User => "user",
            Place::Kernel => "kernel",
        }
    }
}

/// Laps of a turn of updates.
const LAPS: usize = 10;
/// Changes between two looks for memory that can be used again.
const RECLAIM: usize = 64;

/// A structure that is operated on.
pub trait Target {
    /// Which.
    fn which(&self) -> Which;
    /// The operations that can be timed, in the order of a round.
    fn operations(&self) -> &'static [(Op, Place)];
    /// Times an operation, and checks afterwards that it was done; nanoseconds each and how many. The structure is then full again.
    fn time(&mut self, op: Op, place: Place) -> Result<(f64, usize)>;
    /// Answers compared so far.
    fn checked(&self) -> u64;
}

/// LPM_TRIE.
pub struct Trie<'e> {
    entries: &'e [Entry<u32>],
    addresses: Vec<u32>,
    structure: Structure,
    checked: u64,
    /// The value that the next update gives.
    value: u32,
}

/// Lookups of a turn: whole laps, at least a million.
fn lookups(entries: usize) -> u32 {
    (ADDRESSES.div_ceil(entries) * entries) as u32
}

fn addresses(entries: &[Entry<u32>]) -> Vec<u32> {
    entries.iter().map(|(prefix, _)| prefix.addr()).collect()
}

/// Nanoseconds of `work`, each of `count`.
fn each(count: usize, work: impl FnOnce() -> Result<()>) -> Result<(f64, usize)> {
    let began = Instant::now();
    work()?;
    Ok((began.elapsed().as_secs_f64() * 1e9 / count as f64, count))
}

/// A failure when so many of the operations did not do what they should.
fn done(structure: &str, missing: usize) -> Result<()> {
    if missing == 0 {
        Ok(())
    } else {
        Err(Error::Refused { structure: structure.to_owned(), count: missing })
    }
}

impl<'e> Trie<'e> {
    /// Fills one.
    pub fn new(entries: &'e [Entry<u32>]) -> Result<Self> {
        let addresses = addresses(entries);
        let structure = Structure::lpm_trie(entries, &addresses)?;
        let mut trie = Self { entries, addresses, structure, checked: 0, value: 0 };
        trie.expect(|n| entries[n].1)?;
        Ok(trie)
    }

    /// Compares the answer of every entry, and counts the entries.
    fn expect(&mut self, value: impl Fn(usize) -> u32) -> Result<()> {
        let expected: Vec<u32> = (0..self.entries.len()).map(value).collect();
        compare("hosts", &self.structure, expected.len(), &self.addresses, &expected)?;
        self.checked += expected.len() as u64;
        let there = expected.iter().filter(|value| **value != 0).count();
        done("lpm_trie", self.structure.trie()?.keys().count().abs_diff(there))
    }

    /// All deleted: filled again.
    fn refill(&mut self) -> Result<()> {
        self.expect(|_| 0)?;
        fill_trie(&self.structure.trie()?, self.entries)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.entries.iter().map(|(prefix, _)| trie_key(prefix).collect()).collect()
    }
}

impl Target for Trie<'_> {
    fn which(&self) -> Which {
        Which::LpmTrie
    }

    fn operations(&self) -> &'static [(Op, Place)] {
        &[
            (Op::Lookup, Place::Bpf),
            (Op::Lookup, Place::User),
            (Op::Update, Place::Bpf),
            (Op::Update, Place::User),
            (Op::Delete, Place::Bpf),
            (Op::Delete, Place::User),
            (Op::Free, Place::Kernel),
        ]
    }

    fn time(&mut self, op: Op, place: Place) -> Result<(f64, usize)> {
        let count = self.entries.len();
        match (op, place) {
            (Op::Lookup, Place::Bpf) => {
                let timed = self.structure.time(Mode::Loop, lookups(count))?;
                Ok((timed.ns(), timed.lookups as usize))
            }
            (Op::Lookup, _) => {
                let (keys, map) = (self.keys(), self.structure.trie()?);
                let mut missing = 0;
                let timed = each(count, || {
                    for key in &keys {
                        let found =
                            map.lookup(key, MapFlags::ANY).during(|| "cannot look a key up".into())?;
                        missing += usize::from(found.is_none());
                    }
                    Ok(())
                })?;
                done("lpm_trie", missing)?;
                Ok(timed)
            }
            (Op::Update, Place::Bpf) => {
                self.value += 1;
                // The programs' list of addresses ends there.
                let laps = LAPS.min(ADDRESSES / count).max(1);
                let timed = self.structure.change("update", (laps * count) as u32, self.value)?;
                let value = self.value;
                self.expect(|_| value)?;
                Ok((timed.ns(), timed.lookups as usize))
            }
            (Op::Update, _) => {
                let keys = self.keys();
                let map = self.structure.trie()?;
                let timed = each(LAPS * count, || {
                    for lap in 1..=LAPS as u32 {
                        for (key, (_, value)) in keys.iter().zip(self.entries) {
                            let value = if lap == LAPS as u32 { *value } else { lap };
                            map.update(key, &value.to_ne_bytes(), MapFlags::EXIST)
                                .during(|| "cannot update a key".into())?;
                        }
                    }
                    Ok(())
                })?;
                let entries = self.entries;
                self.expect(|n| entries[n].1)?;
                Ok(timed)
            }
            (_, Place::Bpf) => {
                let timed = self.structure.change("delete", count as u32, 0)?;
                self.refill()?;
                Ok((timed.ns(), timed.lookups as usize))
            }
            _ => {
                let (keys, map) = (self.keys(), self.structure.trie()?);
                let timed = each(count, || {
                    keys.iter().try_for_each(|key| map.delete(key).during(|| "cannot delete a key".into()))
                })?;
                self.refill()?;
                Ok(timed)
            }
        }
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

/// An image in its map type, its writer, and the programs that read it.
pub struct Live<'e> {
    entries: &'e [Entry<u32>],
    addresses: Vec<u32>,
    image: Image<ImageMemory, ReaderGrace>,
    table: Table<u32>,
    structure: Structure,
    checked: u64,
    /// Must outlive the programs' use of it.
    _map: ImageMap,
}

impl<'e> Live<'e> {
    /// Fills one of `size` bytes.
    pub fn new(
        map_type: ImageMapType,
        size: u64,
        entries: &'e [Entry<u32>],
        grace: &ReaderGrace,
    ) -> Result<Self> {
        // Tables replaced between two grace periods take memory too.
        let map = ImageMap::create(map_type, (size + (16 << 20)).next_power_of_two()).map_err(failed)?;
        let mut image = Image::create(map.memory(), grace.clone(), 1).map_err(failed)?;
        let table = Table::create(&mut image, 0, entries.iter().copied()).map_err(failed)?;
        let addresses = addresses(entries);
        let structure = Structure::over(&map, &addresses)?;
        let mut live = Self { entries, addresses, image, table, structure, checked: 0, _map: map };
        live.expect(|n| entries[n].1)?;
        Ok(live)
    }

    /// Compares what the programs find for every entry, and counts the entries.
    fn expect(&mut self, value: impl Fn(usize) -> u32) -> Result<()> {
        let expected: Vec<u32> = (0..self.entries.len()).map(value).collect();
        compare("hosts", &self.structure, expected.len(), &self.addresses, &expected)?;
        self.checked += expected.len() as u64;
        let there = expected.iter().filter(|value| **value != 0).count();
        done("trieline", self.table.len().abs_diff(there))
    }
}

impl Target for Live<'_> {
    fn which(&self) -> Which {
        self.structure.which
    }

    fn operations(&self) -> &'static [(Op, Place)] {
        &[
            (Op::Lookup, Place::Bpf),
            (Op::Lookup, Place::User),
            (Op::Update, Place::User),
            (Op::Delete, Place::User),
            (Op::Free, Place::Kernel),
        ]
    }

    fn time(&mut self, op: Op, place: Place) -> Result<(f64, usize)> {
        let count = self.entries.len();
        let (entries, image, table) = (self.entries, &mut self.image, &mut self.table);
        match (op, place) {
            (Op::Lookup, Place::Bpf) => {
                let timed = self.structure.time(Mode::Loop, 4 * lookups(count))?;
                Ok((timed.ns(), timed.lookups as usize))
            }
            (Op::Lookup, _) => {
                let laps = ADDRESSES.div_ceil(count);
                let reader = image.reader();
                let Some(reader) = reader.table::<u32>(0) else { return Err(done_none()) };
                let mut missing = 0;
                let timed = each(laps * count, || {
                    for _ in 0..laps {
                        for address in &self.addresses {
                            missing += usize::from(black_box(reader.lookup(*address)).is_none());
                        }
                    }
                    Ok(())
                })?;
                done("trieline", missing)?;
                Ok(timed)
            }
            (Op::Update, _) => {
                let mut missing = 0;
                let timed = each(LAPS * count, || {
                    for lap in 1..=LAPS as u32 {
                        for (n, (prefix, value)) in entries.iter().enumerate() {
                            // Always another than it has, the right one at last.
                            let value = value + lap % LAPS as u32;
                            let old = table.insert(image, *prefix, value).map_err(failed)?;
                            missing += usize::from(old.is_none_or(|old| old == value));
                            if n % RECLAIM == 0 {
                                image.reclaim();
                            }
                        }
                    }
                    Ok(())
                })?;
                done("trieline", missing)?;
                self.expect(|n| entries[n].1)?;
                Ok(timed)
            }
            _ => {
                let mut missing = 0;
                let timed = each(count, || {
                    for (n, (prefix, _)) in entries.iter().enumerate() {
                        missing += usize::from(table.remove(image, prefix).map_err(failed)?.is_none());
                        if n % RECLAIM == 0 {
                            image.reclaim();
                        }
                    }
                    Ok(())
                })?;
                done("trieline", missing)?;
                self.expect(|_| 0)?;
                self.table.replace(&mut self.image, entries.iter().copied()).map_err(failed)?;
                self.expect(|n| entries[n].1)?;
                Ok(timed)
            }
        }
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

fn done_none() -> Error {
    Error::Image("the table that was just made is not there".into())
}
