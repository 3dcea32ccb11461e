//! The product in the experiment: everything that depends on how its tables are called stands here.

use std::sync::Arc;

use trieline_lpm::{Epochs, HeapMemory, Image, Prefix, Table, TableReader};

use super::engine::{BATCH, Change, Engine, ReadWhile, Search};
use crate::{Error, Result, tables::generate::Wide};

/// Bytes of the image for a prefix: several times what one takes, so that it never has to wait for memory.
const BYTES: usize = 64;
const ID: u32 = 0;

/// A table in an image on the heap, which other threads may read.
pub struct Ours<A: Wide> {
    image: Image<Arc<HeapMemory>, Epochs>,
    table: Table<A>,
}

impl<A: Wide> Ours<A> {
    /// Of the n-th prefix with the n-th value.
    pub fn build(prefixes: &[Prefix<A>], values: &[u32]) -> Result<Self> {
        let size = (8 << 20) + (BYTES * prefixes.len()).next_multiple_of(1 << 20);
        let memory = Arc::new(HeapMemory::new(size));
        let mut image = Image::create(memory, Epochs::new(2), 1).map_err(failed)?;
        let valued = prefixes.iter().copied().zip(values.iter().copied());
        let table = Table::create(&mut image, ID, valued).map_err(failed)?;
        Ok(Self { image, table })
    }
}

fn failed(error: trieline_lpm::Error) -> Error {
    Error::Image(error.to_string())
}

/// The reader that a caller takes once for many lookups; None if there were no such table.
pub struct Taken<'a, A: Wide>(Option<TableReader<'a, A>>);

impl<A: Wide> Search<A> for Taken<'_, A> {
    #[inline(always)]
    fn lookup(&self, addr: A) -> u32 {
        self.0.as_ref().and_then(|table| table.lookup(addr)).unwrap_or(0)
    }

    #[inline(always)]
    fn lookup_batch(&self, addrs: &[A], values: &mut [u32]) {
        match &self.0 {
            Some(table) => table.lookup_batch(addrs, values),
            None => values.fill(0),
        }
    }
}

impl<A: Wide> Engine<A> for Ours<A> {
    const BATCHES: bool = true;
    type Reader<'a>
        = Taken<'a, A>
    where
        Self: 'a;

    fn search(&self) -> Taken<'_, A> {
        Taken(self.image.reader().table(ID))
    }

    fn apply(&mut self, changes: &[Change<A>]) -> Option<bool> {
        Some(self.table.apply(&mut self.image, changes.iter().copied()).is_ok())
    }

    fn change(&mut self, (prefix, value): Change<A>) -> bool {
        match value {
            Some(value) => self.table.insert(&mut self.image, prefix, value).is_ok(),
            None => self.table.remove(&mut self.image, &prefix).is_ok_and(|old| old.is_some()),
        }
    }

    fn bytes(&self) -> u64 {
        self.image.stats().used
    }

    fn untouched(&self) -> u64 {
        let stats = self.image.stats();
        stats.size - stats.claimed
    }

    fn reader(&self) -> Option<ReadWhile<A>> {
        // One thread reads at a time, and there are two slots.
        let mut reader = self.image.readers().register().ok()?;
        Some(Box::new(move |addrs| {
            let pinned = reader.pin();
            let mut values = [0; BATCH];
            let values = &mut values[..addrs.len().min(BATCH)];
            pinned.reader().lookup_batch(ID, &addrs[..values.len()], values);
            values.iter().map(|value| u64::from(*value)).sum()
        }))
    }
}
