//! Readers' slots in a file: how processes take one, how the writer learns that the owner of one has died, and the grace period.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use super::error::SharedError;
use super::file::{self, Access, SharedMemory, failed};
use crate::image::epoch::{Board, FIRST, Slot, Writer};
use crate::{Error, Grace, Memory, Pinned, Reader};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use memmap2::MmapRaw;
use std::borrow::ToOwned;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The first bytes of a readers' file: "TRRD".
pub const MAGIC: u32 = 0x4452_5254;
/// Version of a readers' file.
pub const VERSION: u16 = 1;
/// Readers that an image has room for.
pub const SLOTS: u32 = 256;
/// Where the slots begin, and how long they may be: the largest page of any machine, so that they can be mapped alone.
pub const SECTION: usize = 65536;

/// The header of a readers' file, little-endian. Two sections of [`SECTION`] bytes follow each other: this and zeros, which readers
/// map read-only, and `slots` times
/// [`Slot`](crate::image::epoch::Slot).
#[repr(C)]
#[derive(Debug)]
pub struct BoardHeader {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// 128.
    pub header_bytes: u16,
    /// Slots in the second section.
    pub slots: u32,
    /// 0.
    pub reserved: u32,
    /// A random number, which the image's file repeats: so that an image is not changed or read with the slots of another.
    pub id: u64,
    /// 0.
    pub reserved_line: [u64; 5],
    /// The epoch, alone on its line. Stored by the writer only.
    pub epoch: AtomicU64,
    /// 0.
    pub reserved_end: [u64; 7],
}

const HEADER: usize = size_of::<BoardHeader>();
const _: () = assert!(HEADER == 128 && core::mem::offset_of!(BoardHeader, epoch) == 64);
/// Epochs from here on are damage: no writer counts that far.
const LAST: u64 = 1 << 62;
/// The byte that the writer locks. A reader locks the first byte of its slot.
const WRITER: u64 = 0;

/// Bytes of a readers' file.
const BYTES: u64 = 2 * SECTION as u64;
/// Slots that a section has room for.
const SLOTS_MOST: u64 = (SECTION / size_of::<Slot>()) as u64;

/// Byte of slot `slot` in the file.
const fn slot_at(slot: usize) -> u64 {
    (SECTION as u64).saturating_add((slot as u64).saturating_mul(size_of::<Slot>() as u64))
}

/// A readers' file, mapped.
#[derive(Debug)]
struct Mapped {
    file: File,
    path: PathBuf,
    header: MmapRaw,
    slots: MmapRaw,
    count: usize,
    id: u64,
    /// The byte that this process has locked.
    locked: Option<u64>,
    /// The process that maps it.
    process: u32,
}

impl Mapped {
    fn map(file: File, path: PathBuf, slots: u32, id: u64, header: Access) -> Result<Self, SharedError> {
        let mapped = |at, access| file::map(&file, at, SECTION, access).map_err(failed(&path, "map"));
        let (header, slot_map) = (mapped(0, header)?, mapped(SECTION as u64, Access::Write)?);
        let process = std::process::id();
        Ok(Self { file, path, header, slots: slot_map, count: slots as usize, id, locked: None, process })
    }

    /// Takes or gives back a slot's lock; false also if the system refuses, as if another process had it.
    fn lock(&self, slot: usize, take: bool) -> bool {
        file::lock(&self.file, slot_at(slot), take).unwrap_or(false)
    }
}

/// Gives the lock back by name. Closing the file would keep it for as long as a child that another thread forks has the file open, up to
/// its exec. A forked child that drops its copy gives nothing back: the lock is its parent's.
impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(at) = self.locked.filter(|_| self.process == std::process::id()) {
            let _ = file::lock(&self.file, at, false);
        }
    }
}

impl Board for Mapped {
    fn epoch(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a section long, aligned to a page, and lives as long as `self`. All writers of this word use atomics, and
        // here it is only loaded unless the mapping is the writer's.
        unsafe { &(*self.header.as_ptr().cast::<BoardHeader>()).epoch }
    }

    fn slots(&self) -> &[Slot] {
        // SAFETY: as above; the count has been checked to fit a section. All of a slot is atomics or padding.
        unsafe { core::slice::from_raw_parts(self.slots.as_ptr().cast(), self.count) }
    }

    fn clear_if_dead(&self, slot: usize) -> bool {
        // While we have the lock, no other process can take the slot, so we clear the dead one's state.
        let dead = self.lock(slot, true);
        if dead {
            self.slots()[slot].unpin();
            self.lock(slot, false);
        }
        dead
    }
}

/// The header of a readers' file.
struct Found {
    slots: u32,
    id: u64,
    epoch: u64,
}

/// Reads and checks the header. None: the file is empty or its making was broken off, so it has no users.
fn read(file: &File, path: &Path) -> Result<Option<Found>, SharedError> {
    let len = file.metadata().map_err(failed(path, "read"))?.len();
    let mut bytes = [0; HEADER];
    let there = len.min(HEADER as u64) as usize;
    file.read_exact_at(&mut bytes[..there], 0).map_err(failed(path, "read"))?;
    let long = |at: usize| bytes[at..].first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
    let (first, slots, id, epoch) = (long(0), long(8), long(16), long(64));
    let wrong = |what| Err(SharedError::Readers { path: path.to_owned(), what });
    match first as u32 {
        // The magic is written last, under the writer's lock: without it a writer was ended while it made the file.
        0 => return Ok(None),
        MAGIC => {}
        _ => return wrong("it begins with something else"),
    }
    if first >> 32 != u64::from(VERSION) | (HEADER as u64) << 16 {
        return wrong("it is of another version");
    }
    if len != BYTES || slots == 0 || slots > SLOTS_MOST || id == 0 {
        return wrong("its size or its number of slots is damaged");
    }
    if !(FIRST..LAST).contains(&epoch) {
        return wrong("its epoch is damaged");
    }
    Ok(Some(Found { slots: slots as u32, id, epoch }))
}

/// The grace period of an image that other processes read while it is changed: the writer's side of a readers' file.
///
/// [`super::SharedImage`] has one of its own. On its own it serves an image that lies elsewhere, such as in a BPF map that processes map.
/// With XDP readers beside them, see [`crate::Both`].
#[derive(Debug)]
pub struct ProcessEpochs {
    writer: Writer,
    board: Mapped,
}

impl ProcessEpochs {
    /// Makes the readers' file `path`, or goes on with the one that is there, whose readers may be running. An error
    /// when another writer has it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, SharedError> {
        Self::with_slots(path.as_ref(), SLOTS, true)
    }

    /// Goes on with the readers' file `path`, which must be there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SharedError> {
        Self::with_slots(path.as_ref(), SLOTS, false)
    }

    pub(super) fn with_slots(path: &Path, slots: u32, create: bool) -> Result<Self, SharedError> {
        let fail = |action| failed(path, action);
        let file = loop {
            let mut options = file::options();
            let file = options.write(true).create(create).open(path).map_err(fail("open"))?;
            if !file::lock(&file, WRITER, true).map_err(fail("lock"))? {
                return Err(SharedError::Busy { path: path.to_owned() });
            }
            // Between opening and locking, another process may have removed the file and made another.
            let ours = file.metadata().map_err(fail("read"))?;
            match std::fs::symlink_metadata(path) {
                Ok(now) if (now.dev(), now.ino()) == (ours.dev(), ours.ino()) => break file,
                Ok(_) => {}
                Err(_) if create => {}
                Err(error) => return Err(fail("open")(error)),
            }
        };
        let found = match read(&file, path)? {
            Some(found) => found,
            None if create => Self::format(&file, slots).map_err(fail("write"))?,
            None => return Err(SharedError::Readers { path: path.to_owned(), what: "it is empty" }),
        };
        let mut board = Mapped::map(file, path.to_owned(), found.slots, found.id, Access::Write)?;
        board.locked = Some(WRITER);
        debug_assert_eq!(board.epoch().load(Ordering::Relaxed), found.epoch);
        Ok(Self { writer: Writer::new(&board), board })
    }

    /// Writes a new file's header, its magic last: until then readers refuse it.
    fn format(file: &File, slots: u32) -> std::io::Result<Found> {
        file.set_len(0)?;
        file::allocate(file, BYTES)?;
        // The standard library's source of random numbers.
        let id = std::hash::RandomState::new().build_hasher().finish() | 1;
        file.write_all_at(&u64::from(slots).to_le_bytes(), 8)?;
        file.write_all_at(&id.to_le_bytes(), 16)?;
        file.write_all_at(&FIRST.to_le_bytes(), 64)?;
        let first = u64::from(MAGIC) | u64::from(VERSION) << 32 | (HEADER as u64) << 48;
        file.write_all_at(&first.to_le_bytes(), 0)?;
        Ok(Found { slots, id, epoch: FIRST })
    }

    /// [`crate::Epochs::with_patience`].
    pub fn set_patience(&mut self, patience: Duration) {
        self.writer.set_patience(patience);
    }

    pub(super) fn id(&self) -> u64 {
        self.board.id
    }
}

impl Grace for ProcessEpochs {
    fn begin(&mut self) -> u64 {
        self.writer.begin(&self.board)
    }

    fn passed(&mut self) -> u64 {
        self.writer.passed(&self.board)
    }

    fn wait(&mut self, ticket: u64) {
        self.writer.wait(&self.board, ticket);
    }
}

/// A reader's slot in a readers' file, until it is dropped or its process ends.
///
/// [`super::SharedReader`] has one of its own. A process made by fork must open its own: its parent's is not mapped there.
#[derive(Debug)]
pub struct Registration {
    board: Mapped,
    slot: usize,
}

impl Registration {
    /// Takes a free slot. O(slots) system calls at the worst. An error when all are taken.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SharedError> {
        let path = path.as_ref();
        let file = file::options().write(true).open(path).map_err(failed(path, "open"))?;
        let Some(found) = read(&file, path)? else {
            return Err(SharedError::Readers { path: path.to_owned(), what: "it is empty" });
        };
        let mut board = Mapped::map(file, path.to_owned(), found.slots, found.id, Access::Read)?;
        // A writer that asks whether an owner is dead has its lock for a moment: look again before giving up.
        for _ in 0..3 {
            for slot in 0..board.count {
                if file::lock(&board.file, slot_at(slot), true).map_err(failed(path, "lock"))? {
                    board.slots()[slot].unpin(); // the owner before may have died pinned
                    board.slots()[slot].owner.store(std::process::id(), Ordering::Relaxed);
                    board.locked = Some(slot_at(slot));
                    return Ok(Self { board, slot });
                }
            }
            std::thread::yield_now();
        }
        Err(SharedError::NoSlot { path: board.path.clone(), slots: found.slots })
    }

    /// Holds the image in `memory`, whose writer must use the same readers' file, as it is for as long as the guard lives.
    pub fn pin<'a>(&'a mut self, memory: &'a impl Memory) -> Result<Pinned<'a>, Error> {
        Ok(self.pin_reader(Reader::new(memory.words())?))
    }

    #[inline]
    pub(super) fn pin_checked<'a>(&'a mut self, memory: &'a SharedMemory) -> Pinned<'a> {
        self.pin_reader(Reader::checked(memory.words()))
    }

    #[inline]
    fn pin_reader<'a>(&'a self, reader: Reader<'a>) -> Pinned<'a> {
        let slot = &self.board.slots()[self.slot];
        slot.pin(self.board.epoch());
        Pinned::new(slot, reader)
    }

    pub(super) fn id(&self) -> u64 {
        self.board.id
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let slot = &self.board.slots()[self.slot];
        slot.unpin(); // a guard may have been forgotten
        slot.owner.store(0, Ordering::Relaxed);
    }
}
