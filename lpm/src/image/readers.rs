//! Readers in other threads of the writer's process, and the grace period that their epochs give.

use super::Image;
use super::epoch::{Board, FIRST, Slot, Writer};
use super::error::Error;
use super::sync::AtomicU64;
use crate::{Grace, Memory, Reader};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;

/// An epoch and slots on the heap.
#[derive(Debug)]
pub(crate) struct HeapBoard {
    /// Alone on its line, as each pin loads it.
    epoch: Line<AtomicU64>,
    slots: Box<[Slot]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

impl HeapBoard {
    pub fn new(slots: usize) -> Self {
        Self { epoch: Line(AtomicU64::new(FIRST)), slots: (0..slots).map(|_| Slot::new()).collect() }
    }
}

impl Board for HeapBoard {
    fn epoch(&self) -> &AtomicU64 {
        &self.epoch.0
    }

    fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

/// The grace period of an image that other threads of this process read while it is changed.
///
/// Each reading thread has a [`ThreadReader`] and pins it for as long as it looks up. A pin costs a store and a memory fence, no
/// loop, no lock, no system call, whatever the writer does. Replaced memory is reused once no older pin is left. A reader that stays pinned
/// stops reclamation and nothing else. A change that then needs more memory than is left waits for it as long as the
/// [patience](Epochs::with_patience) lasts. After that it is refused with [`Error::Full`] before anything has changed.
///
/// ```
/// use std::sync::Arc;
/// use trieline_lpm::{Epochs, HeapMemory, Image, Table};
///
/// let memory = Arc::new(HeapMemory::new(1 << 20));
/// let mut image = Image::create(memory, Epochs::new(8), 1)?;
/// let mut table = Table::<u32>::create(&mut image, 0, [("192.0.2.0/24".parse()?, 7)])?;
/// let mut reader = image.readers().register()?;
/// std::thread::scope(|scope| {
///     scope.spawn(move || {
///         for host in 0..=255 {
///             let value = reader.pin().lookup4(0, 0xc000_0200 + host);
///             assert!(matches!(value, Some(7 | 8)));
///         }
///     });
///     table.insert(&mut image, "192.0.2.128/25".parse().unwrap(), 8)
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Epochs {
    writer: Writer,
    board: Arc<HeapBoard>,
}

impl Epochs {
    /// Room for `slots` readers at a time: 64 bytes each.
    pub fn new(slots: usize) -> Self {
        let board = Arc::new(HeapBoard::new(slots));
        Self { writer: Writer::new(&*board), board }
    }

    /// How long a change waits for pinned readers when the memory is used up: 100 ms if not set. Without the feature `std` it is only
    /// rough, for lack of a clock.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.writer.set_patience(patience);
        self
    }

    /// Makes readers of the image in `memory`, whose writer must use these epochs; [`Image::readers`] sees to that by itself.
    pub fn readers<M: Memory + Clone>(&self, memory: M) -> Readers<M> {
        Readers { memory, board: Arc::clone(&self.board) }
    }
}

impl Grace for Epochs {
    fn begin(&mut self) -> u64 {
        self.writer.begin(&*self.board)
    }

    fn passed(&mut self) -> u64 {
        self.writer.passed(&*self.board)
    }

    fn wait(&mut self, ticket: u64) {
        self.writer.wait(&*self.board, ticket);
    }
}

impl<M: Memory + Clone> Image<M, Epochs> {
    /// Makes readers of this image for other threads. The memory is shared by cloning it: `Arc<HeapMemory>`.
    pub fn readers(&self) -> Readers<M> {
        self.grace.readers(self.memory.clone())
    }
}

/// Makes a [`ThreadReader`] for each thread that asks. Clone it and send it freely.
#[derive(Debug, Clone)]
pub struct Readers<M> {
    memory: M,
    board: Arc<HeapBoard>,
}

impl<M: Memory + Clone> Readers<M> {
    /// A reader for one thread. O(slots). An error when all slots are taken, or the memory holds no image.
    pub fn register(&self) -> Result<ThreadReader<M>, Error> {
        Reader::new(self.memory.words())?;
        let slots = &self.board.slots;
        let free =
            |slot: &Slot| slot.owner.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let slot = slots.iter().position(free).ok_or(Error::NoSlot { slots: slots.len() })?;
        Ok(ThreadReader { memory: self.memory.clone(), board: Arc::clone(&self.board), slot })
    }
}

/// One thread's reader; dropping it gives the slot back.
pub struct ThreadReader<M> {
    memory: M,
    board: Arc<HeapBoard>,
    slot: usize,
}

impl<M> fmt::Debug for ThreadReader<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadReader").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl<M: Memory> ThreadReader<M> {
    /// Holds the image as it is for as long as the guard lives. Take one for a batch of lookups, not for ever.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_> {
        let slot = &self.board.slots[self.slot];
        slot.pin(self.board.epoch());
        Pinned { slot, reader: Reader::checked(self.memory.words()) }
    }
}

impl<M> Drop for ThreadReader<M> {
    fn drop(&mut self) {
        let slot = &self.board.slots[self.slot];
        slot.unpin(); // a guard may have been forgotten
        slot.owner.store(0, Ordering::Release);
    }
}

/// A reader that nothing is reused under; dropping it ends that.
///
/// It does not implement `Deref` to [`Reader`], because a reader can be copied and the copy must not outlive the guard:
///
/// ```compile_fail,E0505
/// # use std::sync::Arc;
/// # use trieline_lpm::{Epochs, HeapMemory, Image};
/// # let image = Image::create(Arc::new(HeapMemory::new(1 << 16)), Epochs::new(1), 1).unwrap();
/// # let mut reader = image.readers().register().unwrap();
/// let pinned = reader.pin();
/// let escaped = pinned.reader();
/// drop(pinned);
/// escaped.lookup4(0, 1);
/// ```
#[derive(Debug)]
pub struct Pinned<'a> {
    slot: &'a Slot,
    reader: Reader<'a>,
}

impl<'a> Pinned<'a> {
    /// A guard of a slot that has just been pinned.
    #[cfg(feature = "shm")]
    pub(crate) fn new(slot: &'a Slot, reader: Reader<'a>) -> Self {
        Self { slot, reader }
    }
}

impl Pinned<'_> {
    /// The image's reader, for as long as this guard lives.
    #[inline]
    pub fn reader(&self) -> Reader<'_> {
        self.reader
    }

    /// [`Reader::lookup4`].
    #[inline]
    pub fn lookup4(&self, id: u32, addr: u32) -> Option<u32> {
        self.reader.lookup4(id, addr)
    }

    /// [`Reader::lookup6`].
    #[inline]
    pub fn lookup6(&self, id: u32, addr: u128) -> Option<u32> {
        self.reader.lookup6(id, addr)
    }
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.unpin();
    }
}
