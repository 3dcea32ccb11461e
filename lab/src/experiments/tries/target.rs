//! The targets of measurements: a classic trie, the product's table, or the kernel's routes, each filled and ready to be timed.

use trieline_lpm::image::verify::verify;
use trieline_lpm::{HeapMemory, Image, Memory, NoReaders, Table};

use super::{
    super::touched::Touched,
    kernel::{Kernel, Statistics},
};
use crate::{
    Error, Result,
    experiments::structure::failed,
    measure::thread_seconds,
    rivals::{Figures, Trie},
    tables::kinds::Entry,
};

/// Something that looks addresses up.
pub trait Target {
    /// Looks all of them up; seconds, and the sum of the values found, 0 for none.
    fn turn(&self, addresses: &[u32]) -> Result<(f64, u64)>;
    /// Its statistics.
    fn made_of(&self) -> Result<Made>;
    /// Distinct cache lines of 64 bytes that a lookup reads, in the mean; None where it cannot be known.
    fn lines(&self, addresses: &[u32], expected: &[u32]) -> Result<Option<f64>>;
}

/// The statistics of a structure.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Nodes that have children.
    pub nodes: usize,
    /// Its memory.
    pub bytes: usize,
    /// Nodes above a leaf: mean.
    pub depth_mean: Option<f64>,
    /// And at the most.
    pub depth_max: usize,
    /// A trie's figures.
    pub figures: Option<Figures>,
    /// The kernel's.
    pub statistics: Option<Statistics>,
}

/// A classic trie.
pub struct Classic<T>(T);

impl<T: Trie<u32>> Classic<T> {
    /// Fills an empty one, prefix by prefix.
    pub fn filled(mut trie: T, entries: &[Entry<u32>]) -> Box<dyn Target>
    where
        T: 'static,
    {
        for (prefix, value) in entries {
            trie.insert(*prefix, *value);
        }
        Box::new(Self(trie))
    }
}

impl<T: Trie<u32>> Target for Classic<T> {
    fn turn(&self, addresses: &[u32]) -> Result<(f64, u64)> {
        Ok(timed(addresses, |address| self.0.lookup(address).map_or(0, |(_, value)| value)))
    }

    fn made_of(&self) -> Result<Made> {
        let figures = self.0.figures();
        Ok(Made {
            nodes: figures.internal,
            bytes: figures.bytes,
            depth_mean: Some(figures.depth_mean()),
            depth_max: figures.depth_max(),
            figures: Some(figures),
            statistics: None,
        })
    }

    fn lines(&self, addresses: &[u32], _: &[u32]) -> Result<Option<f64>> {
        let (mut touched, mut total) = (Vec::new(), 0);
        for address in addresses {
            self.0.trace(*address, &mut |visit| {
                for load in visit.loads.iter().filter(|load| load.bytes > 0) {
                    touched.extend(load.address / 64..=(load.address + load.bytes - 1) / 64);
                }
            });
            touched.sort_unstable();
            touched.dedup();
            total += touched.len();
            touched.clear();
        }
        Ok(Some(total as f64 / addresses.len() as f64))
    }
}

/// The product's table in an image on the heap.
pub struct Trieline {
    image: Image<HeapMemory, NoReaders>,
    entries: Vec<Entry<u32>>,
}

const ID: u32 = 0;

impl Trieline {
    /// Fills one.
    pub fn filled(entries: &[Entry<u32>]) -> Result<Box<dyn Target>> {
        let size = (8 << 20) + (64 * entries.len()).next_multiple_of(1 << 20);
        let mut image = Image::create(HeapMemory::new(size), NoReaders::default(), 1).map_err(failed)?;
        Table::create(&mut image, ID, entries.iter().copied()).map_err(failed)?;
        Ok(Box::new(Self { image, entries: entries.to_vec() }))
    }
}

impl Target for Trieline {
    fn turn(&self, addresses: &[u32]) -> Result<(f64, u64)> {
        let reader = self.image.reader();
        let table = reader.table::<u32>(ID).ok_or_else(|| Error::Image("it has no table".into()))?;
        Ok(timed(addresses, |address| table.lookup(address).unwrap_or(0)))
    }

    fn made_of(&self) -> Result<Made> {
        let report = verify(self.image.memory().words()).map_err(failed)?;
        let [table] = &report.tables[..] else { return Err(Error::Image("it has no table".into())) };
        Ok(Made {
            // The root is one.
            nodes: 1 + table.nodes.iter().map(|(_, count)| *count as usize).sum::<usize>(),
            bytes: (table.root_bytes + table.node_bytes) as usize,
            depth_max: 1 + table.steps as usize,
            ..Made::default()
        })
    }

    fn lines(&self, addresses: &[u32], expected: &[u32]) -> Result<Option<f64>> {
        Ok(Some(Touched::by_trieline(&self.entries, addresses, expected)?.lines))
    }
}

impl Target for Kernel {
    fn turn(&self, addresses: &[u32]) -> Result<(f64, u64)> {
        self.turn(addresses)
    }

    fn made_of(&self) -> Result<Made> {
        let statistics = self.statistics()?;
        Ok(Made {
            nodes: statistics.figures.internal,
            bytes: statistics.figures.bytes,
            depth_mean: Some(statistics.depth_mean),
            depth_max: statistics.depth_max,
            figures: None,
            statistics: Some(statistics),
        })
    }

    fn lines(&self, _: &[u32], _: &[u32]) -> Result<Option<f64>> {
        Ok(None)
    }
}

/// CPU seconds of this thread for independent lookups in a loop.
#[inline(always)]
fn timed(addresses: &[u32], lookup: impl Fn(u32) -> u32) -> (f64, u64) {
    let began = thread_seconds();
    let sum = addresses.iter().map(|address| u64::from(lookup(*address))).sum();
    (thread_seconds() - began, sum)
}
