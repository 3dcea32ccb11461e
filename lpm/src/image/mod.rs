//! The flat image: its layout, its one writer, and what readers may do meanwhile.

pub(crate) mod batch;
pub(crate) mod build;
pub(crate) mod edit;
pub mod epoch;
mod error;
pub(crate) mod exact;
pub(crate) mod fill;
pub mod grace;
pub mod graph;
pub(crate) mod header;
pub mod layout;
pub mod lookup;
pub mod memory;
#[cfg(all(test, loom))]
pub(crate) mod model;
#[cfg(all(test, loom))]
mod model_exact;
#[cfg(all(test, loom))]
mod model_fallback;
pub(crate) mod palette;
mod place;
pub(crate) mod ranges;
pub mod readers;
pub(crate) mod runs;
pub(crate) mod space;
mod splice;
mod step;
pub(crate) mod sync;
pub mod verify;
pub(crate) mod walk;
pub(crate) mod words;

pub use error::Error;

use crate::{Address, Grace, Memory, Reader};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use build::{Builder, Scratch};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use exact::Exact;
use header::{MOST, header};
use layout::{CHUNK, DIR_ENTRY, DIRECTORY, ImageHeader, Kind, MAGIC, VERSION};
use palette::Palette;
use space::{PoolId, Space};

/// The use of an image's memory, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageStats {
    /// Size of the image: the limit.
    pub size: u64,
    /// In tables and nodes that this writer built and readers find.
    pub used: u64,
    /// Replaced and waiting for a grace period.
    pub limbo: u64,
    /// The most that `used` and `limbo` have come to.
    pub peak: u64,
    /// In chunks that hold anything at all, free blocks between and tables of an earlier writer included.
    pub claimed: u64,
    /// Slots in the directory.
    pub tables: u32,
    /// Slots that hold a table.
    pub tables_used: u32,
    /// Writers that have opened this image so far.
    pub generation: u32,
}

/// The one writer of an image. [`crate::Table`] holds the tables' contents and changes the image through this.
///
/// Only one may exist for an image at a time, in all processes; the caller that makes the memory ensures that.
#[derive(Debug)]
pub struct Image<M, G> {
    pub(crate) memory: M,
    pub(crate) grace: G,
    pub(crate) space: Space,
    scratch: Scratch,
    /// Chunks of tables that an earlier writer built and that have not been replaced yet.
    adopted: BTreeMap<u32, Vec<u32>>,
    /// By id: the [`Stamp`] of the [`crate::Table`] that may change the table. Ids behind the end have none.
    owners: Vec<Option<Stamp>>,
    size: u64,
    tables: u32,
    generation: u32,
}

/// Tells one [`crate::Table`] from all others that this process has made, of whatever image and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// One that there has not been.
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Bytes of the header and the directory.
fn reserved(tables: u32) -> u64 {
    u64::from(DIRECTORY) + u64::from(DIR_ENTRY) * u64::from(tables)
}

/// The smallest image of `tables` tables, bytes.
pub(crate) fn least_size(tables: u32) -> u64 {
    (reserved(tables) + 1).next_multiple_of(u64::from(CHUNK))
}

impl<M: Memory, G: Grace> Image<M, G> {
    /// Formats `memory` as an image without tables, for ids 0 ... `tables`-1.
    pub fn create(memory: M, grace: G, tables: u32) -> Result<Self, Error> {
        let words = memory.words();
        let size = (words.len() as u64 * 4).min(MOST);
        let reserved = reserved(tables);
        let least = least_size(tables);
        if size < least || !size.is_multiple_of(u64::from(CHUNK)) {
            return Err(Error::Size { size, tables, least });
        }
        let header = [
            (offset_of!(ImageHeader, size), size as u32),
            (offset_of!(ImageHeader, size) + 4, (size >> 32) as u32),
            (offset_of!(ImageHeader, tables), tables),
            (offset_of!(ImageHeader, generation), 1),
            (offset_of!(ImageHeader, version), u32::from(VERSION) | DIRECTORY << 16),
            // Last: a thread that sees the magic sees all.
            (offset_of!(ImageHeader, magic), MAGIC),
        ];
        let was_image = words[0].swap(0, Ordering::AcqRel) == MAGIC;
        words[1..DIRECTORY as usize / 4].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        // A reader that kept a table of an earlier image here sees that it is gone.
        (0..tables).for_each(|id| _ = words::swing(words, id, 0));
        for (at, value) in header {
            words[at / 4].store(value, Ordering::Release);
        }
        // The memory was an image and may still be read: nothing is used before a grace period has passed.
        let space = if was_image {
            Space::of_existing(size, reserved, core::iter::empty())
        } else {
            Space::new(size, reserved)
        };
        let scratch = Scratch::new();
        Ok(Self {
            memory,
            grace,
            space,
            scratch,
            adopted: BTreeMap::new(),
            owners: Vec::new(),
            size,
            tables,
            generation: 1,
        })
    }

    /// Takes over the image that an earlier writer left, perhaps while readers use it.
    ///
    /// Its tables stay as they are until [`crate::Table::create`] replaces each; then their memory is reclaimed. O(nodes).
    pub fn open(memory: M, grace: G) -> Result<Self, Error> {
        let words = memory.words();
        let header = header(words)?;
        let adopted: BTreeMap<_, _> =
            verify::chunks(words, header.size, header.tables)?.into_iter().collect();
        let reserved = reserved(header.tables);
        let space = Space::of_existing(header.size, reserved, adopted.values().map(Vec::as_slice));
        let generation = header.generation.wrapping_add(1);
        words[offset_of!(ImageHeader, generation) / 4].store(generation, Ordering::Release);
        // The earlier writer may have been killed in the middle of a change.
        let changing = |id: &u32| {
            words::entry(words, *id).is_some_and(|entry| words::is_changing(entry.load(Ordering::Relaxed)))
        };
        (0..header.tables).filter(changing).for_each(|id| words::count_change(words, id));
        let (size, tables) = (header.size, header.tables);
        let scratch = Scratch::new();
        Ok(Self { memory, grace, space, scratch, adopted, owners: Vec::new(), size, tables, generation })
    }

    /// The memory that the image is in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// A reader of this image that the compiler keeps apart from changes.
    pub fn reader(&self) -> Reader<'_> {
        Reader::checked(self.memory.words())
    }

    /// The use of the memory. O(chunks + tables).
    pub fn stats(&self) -> ImageStats {
        let usage = self.space.usage();
        let reader = self.reader();
        ImageStats {
            size: self.size,
            used: usage.used,
            limbo: usage.limbo,
            peak: usage.peak,
            claimed: usage.claimed,
            tables: self.tables,
            tables_used: (0..self.tables).filter(|id| reader.table_word(*id) != 0).count() as u32,
            generation: self.generation,
        }
    }

    /// Makes memory whose grace period has passed usable, and asks for one for what was replaced since. Does not block; call it
    /// when idle. Returns whether something still waits.
    pub fn reclaim(&mut self) -> bool {
        self.space.begin(&mut self.grace);
        self.space.reclaim(&mut self.grace);
        self.space.waiting()
    }

    /// Waits until all that was replaced is usable again, or as long as the grace period waits for a reader that does not end
    /// ([`Grace::wait`]). Returns whether all of it is.
    pub fn synchronize(&mut self) -> bool {
        self.space.synchronize(&mut self.grace);
        !self.space.waiting()
    }

    /// Memory that held something and is free now, as byte ranges of whole 64 KiB. Its owner may give the pages back, which read as
    /// zero from then on. It returns each range once. O(free blocks); call it after much was removed and [`Image::synchronize`].
    pub fn take_unused(&mut self) -> Vec<Range<u64>> {
        self.space.take_unused()
    }

    /// Takes back ranges of [`Image::take_unused`] whose pages could not be given back: it will return their free parts again.
    pub fn offer_unused(&mut self, ranges: &[Range<u64>]) {
        self.space.offer_unused(ranges);
    }

    /// Fills every block with `word` once its grace period is over, so that a reader that still holds it is found out. For tests.
    #[cfg(feature = "poison")]
    pub fn poison(&mut self, word: u32)
    where
        M: Clone + Send + Sync + 'static,
    {
        let memory = self.memory.clone();
        let fill = move |block: space::Block| {
            let (first, count) = (block.at * layout::UNIT / 4, block.units * layout::UNIT / 4);
            let words = &memory.words()[first as usize..(first + count) as usize];
            words.iter().for_each(|place| place.store(word, Ordering::Relaxed));
        };
        self.space.on_release.0 = Some(alloc::boxed::Box::new(fill));
    }

    /// Calls `look` after every single store that readers can see, in the middle of a change. For tests.
    #[cfg(feature = "poison")]
    pub fn on_publish(&mut self, look: impl Fn() + Send + Sync + 'static) {
        self.space.on_publish.0 = Some(alloc::boxed::Box::new(look));
    }

    /// Removes table `id`, for all addresses at once. O(1) now and O(chunks) after the grace period for a large table, O(nodes) for one that
    /// had at most 4096 prefixes when it was built. A [`crate::Table`] of that id cannot be changed any more: [`Error::Stale`].
    pub fn remove_table(&mut self, id: u32) -> Result<(), Error> {
        self.check_table(id)?;
        if let Some(owner) = self.owners.get_mut(id as usize) {
            *owner = None;
        }
        self.publish_directory(id, 0);
        Ok(())
    }

    /// The directory leads to the root of `word` for table `id`, whatever was stored there. When the table is replaced, whatever by, nothing is
    /// done with the nodes that the word leads to. Nodes of a pool of their own are freed by their chunks all the same.
    pub(crate) fn abandon(&mut self, id: u32, word: u32, pool: PoolId) {
        words::swing(self.memory.words(), id, word);
        if pool == PoolId::SHARED {
            self.adopted.insert(id, Vec::new());
        }
    }

    /// A builder of nodes in `pool` for a table of `A`.
    pub(crate) fn builder<'a, A: Address>(
        &'a mut self,
        pool: PoolId,
        palette: Option<&'a Palette>,
        exact: Option<&'a Exact>,
    ) -> Builder<'a, G> {
        let kind = Kind::of_family(A::FAMILY);
        let words = self.memory.words();
        let mut builder =
            Builder::new(words, &mut self.space, pool, &mut self.grace, kind, palette, &mut self.scratch);
        builder.nodes.exact = exact;
        builder
    }

    pub(crate) fn check_table(&self, id: u32) -> Result<(), Error> {
        if id < self.tables { Ok(()) } else { Err(Error::NoSuchTable { id, tables: self.tables }) }
    }

    /// Makes a [`crate::Table`] the one that may change table `id`, whose number has been checked.
    pub(crate) fn own(&mut self, id: u32) -> Stamp {
        let (at, stamp) = (id as usize, Stamp::new());
        if self.owners.len() <= at {
            self.owners.resize(at + 1, None);
        }
        self.owners[at] = Some(stamp);
        stamp
    }

    /// An error unless the [`crate::Table`] of `stamp` may change table `id`: another would edit blocks that are no longer its own.
    #[inline]
    pub(crate) fn check_owner(&self, id: u32, stamp: Option<Stamp>) -> Result<(), Error> {
        let is_owner = stamp.is_some() && self.owners.get(id as usize) == Some(&stamp);
        if is_owner { Ok(()) } else { Err(Error::Stale { id }) }
    }

    /// Publishes a table by its word in the directory and retires what was there.
    pub(crate) fn publish_directory(&mut self, id: u32, word: u32) {
        let words = self.memory.words();
        let old = words::swing(words, id, word);
        #[cfg(feature = "poison")]
        self.space.published();
        if let Some(chunks) = self.adopted.remove(&id) {
            self.space.retire_adopted(chunks);
        } else if old != 0 {
            let (space, grace) = (&mut self.space, &mut self.grace);
            match space.owner(walk::root_block(words, old)) {
                PoolId::SHARED => walk::own_table(words, old, &mut |block| space.retire(block, grace)),
                own => space.retire_pool(own),
            }
        }
        self.space.begin(&mut self.grace);
    }
}
