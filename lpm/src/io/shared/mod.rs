//! Images in files that several processes map: one writes, the others look up meanwhile, without locks.
//!
//! An image `PATH` is two files. `PATH` holds the image, from its first byte on, so that every other reader of images reads it too. Then
//! come 4 KiB with a number that names the readers' file. `PATH.readers` holds the readers' slots
//! ([`BoardHeader`], [`crate::image::epoch`] tells the protocol). A reader maps the image read-only, so it needs the permission to write for
//! `PATH.readers` alone.
//!
//! ```
//! use trieline_lpm::Table;
//! use trieline_lpm::io::shared::{SharedImage, SharedReader};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("routes");
//! // One process:
//! let mut image = SharedImage::create(&path, 1 << 20, 1)?;
//! let mut table = Table::<u32>::create(&mut image, 0, [("192.0.2.0/24".parse()?, 7)])?;
//! // Any other:
//! let mut reader = SharedReader::open(&path)?;
//! assert_eq!(reader.pin().lookup4(0, 0xc000_0201), Some(7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Promised.** Readers never wait and are never wrong while one writer runs, is stopped, is killed or is replaced by
//! [`SharedImage::open`]. There is never a second writer: a lock that ends with its owner sees to that. A reader that dies while it is
//! pinned holds nothing back for longer than the writer takes to look. One that is stopped while pinned, or never lets go, stops
//! reclamation only. A change that then does not fit is refused ([`crate::Error::Full`]) and has changed nothing. Damaged
//! files are errors, or give wrong answers; no lookup leaves the mapping.
//!
//! **Not promised.** A process that may write `PATH.readers` can clear another reader's slot, and so make its answers wrong; it cannot
//! change the image. If a process makes either file shorter while it is mapped, the kernel ends the processes that touch the missing part
//! (SIGBUS). A file cannot be sealed against it, so keep both in a directory that only trusted users may write to. Removing `PATH.readers`
//! while readers run leaves them unprotected only if its image then gets a writer. That is refused: the image names the file that it
//! belongs to. A process made by fork has none of its parent's mappings and must open the image itself; touching the parent's reader there
//! ends it (SIGSEGV). Such a child, until it calls exec or ends, also keeps the locks of a parent that is killed. (A parent that drops its
//! image or reader gives them back.) For as long, a killed writer counts as there ([`SharedError::Busy`]), and a reader that was killed
//! while it was pinned stops reclamation. So do not fork without exec. File systems that several machines share do not share memory: both
//! files must lie on a local one, best `/dev/shm`.
//!
//! **Huge pages.** The writer asks the kernel to put the image on huge pages (`MADV_COLLAPSE`, Linux 6.1, `/dev/shm` and other tmpfs). Single lookups
//! in 19 MiB took 8 % less time so. To make an image of 64 MiB took 32 to 87 ms instead of 16. (AMD EPYC, two virtual CPUs, 26 November 2026.)

mod error;
mod file;
mod slots;

pub use error::SharedError;
pub use file::SharedMemory;
pub use slots::{BoardHeader, MAGIC, ProcessEpochs, Registration, SECTION, SLOTS, VERSION};

use crate::image::Image;
use crate::{Error, Memory, Pinned, Reader};
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use file::{Access, beside, failed};
use std::borrow::ToOwned;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes behind the image: the readers' file's number, then zeros.
const TRAILER: u64 = 4096;

/// The readers' file of the image `path`.
fn readers_of(path: &Path) -> PathBuf {
    beside(path, ".readers")
}

/// Maps the image in `file` and checks that it belongs to the readers' file `id`.
fn map_image(file: &File, path: &Path, id: u64, access: Access) -> Result<SharedMemory, SharedError> {
    let len = file.metadata().map_err(failed(path, "read"))?.len();
    let mut found = [0; 8];
    // The file may say anything; an image never has more.
    let bytes = (len.saturating_sub(TRAILER) & !0xffff).min(1 << 32);
    if len < TRAILER
        || file.read_exact_at(&mut found, len - TRAILER).is_err()
        || u64::from_le_bytes(found) != id
    {
        return Err(SharedError::Unpaired { path: path.to_owned(), readers: readers_of(path) });
    }
    let memory = usize::try_from(bytes)
        .map_err(|_| io::ErrorKind::FileTooLarge.into())
        .and_then(|bytes| SharedMemory::map(file, bytes, access));
    memory.map_err(failed(path, "map"))
}

/// The writer of an image that other processes read: an [`Image`] in a file. See the [module](self).
#[derive(Debug)]
pub struct SharedImage {
    image: Image<SharedMemory, ProcessEpochs>,
}

impl SharedImage {
    /// Makes an image of `bytes` (a multiple of 64 KiB, all allocated at once) for tables 0 … `tables`-1 at `path`.
    ///
    /// An image that is there is replaced in one step, at the end. Its readers keep the old one until they open `path` again, see
    /// [`SharedReader::is_current`]. An error when another writer has it.
    pub fn create(path: impl AsRef<Path>, bytes: usize, tables: u32) -> Result<Self, SharedError> {
        let path = path.as_ref();
        let grace = ProcessEpochs::create(readers_of(path))?;
        // The lock is ours, so a file of this name is what a killed writer left.
        let aside = beside(path, ".new");
        let fail = |action| failed(&aside, action);
        match std::fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail("remove")(error)),
            _ => {}
        }
        let file = file::options().write(true).create_new(true).open(&aside).map_err(fail("make"))?;
        let made = Self::format(&file, &aside, bytes, tables, grace)
            .and_then(|image| std::fs::rename(&aside, path).map_err(failed(path, "make")).map(|()| image));
        if made.is_err() {
            // The first error is worth more than a failure of this removal.
            let _ = std::fs::remove_file(&aside);
        }
        made
    }

    fn format(
        file: &File,
        path: &Path,
        bytes: usize,
        tables: u32,
        grace: ProcessEpochs,
    ) -> Result<Self, SharedError> {
        let broken = |source| SharedError::Image { path: path.to_owned(), source };
        let size = bytes as u64;
        if !size.is_multiple_of(1 << 16) || size == 0 || size > 1 << 32 {
            let least = crate::image::least_size(tables);
            return Err(broken(Error::Size { size, tables, least }));
        }
        file::allocate(file, size + TRAILER).map_err(failed(path, "allocate"))?;
        file.write_all_at(&grace.id().to_le_bytes(), size).map_err(failed(path, "write"))?;
        let memory = map_image(file, path, grace.id(), Access::Write)?;
        Ok(Self { image: Image::create(memory, grace, tables).map_err(broken)? })
    }

    /// Takes over the image that an earlier writer left, whose readers may be running: as [`Image::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SharedError> {
        let path = path.as_ref();
        let grace = ProcessEpochs::open(readers_of(path))?;
        let file = file::options().write(true).open(path).map_err(failed(path, "open"))?;
        let memory = map_image(&file, path, grace.id(), Access::Write)?;
        let broken = |source| SharedError::Image { path: path.to_owned(), source };
        Ok(Self { image: Image::open(memory, grace).map_err(broken)? })
    }

    /// [`crate::Epochs::with_patience`].
    pub fn set_patience(&mut self, patience: Duration) {
        self.image.grace.set_patience(patience);
    }
}

impl Deref for SharedImage {
    type Target = Image<SharedMemory, ProcessEpochs>;

    fn deref(&self) -> &Self::Target {
        &self.image
    }
}

impl DerefMut for SharedImage {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.image
    }
}

/// A reader of an image in a file, for one thread of any process; open one for each thread.
#[derive(Debug)]
pub struct SharedReader {
    path: PathBuf,
    /// Device and inode of the image.
    file: (u64, u64),
    memory: SharedMemory,
    registration: Registration,
}

impl SharedReader {
    /// Opens the image `path` and takes a slot in its readers' file. O(slots) system calls at the worst.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SharedError> {
        let path = path.as_ref();
        let registration = Registration::open(readers_of(path))?;
        let file = file::options().open(path).map_err(failed(path, "open"))?;
        let memory = map_image(&file, path, registration.id(), Access::Read)?;
        Reader::new(memory.words()).map_err(|source| SharedError::Image { path: path.to_owned(), source })?;
        let metadata = file.metadata().map_err(failed(path, "read"))?;
        Ok(Self { path: path.to_owned(), file: (metadata.dev(), metadata.ino()), memory, registration })
    }

    /// Holds the image as it is for as long as the guard lives: a store and a memory fence, no loop, no system call. Take one for a batch of
    /// lookups, not for ever.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_> {
        self.registration.pin_checked(&self.memory)
    }

    /// Whether the path still names this image: [`SharedImage::create`] puts another in its place. One system call.
    pub fn is_current(&self) -> Result<bool, SharedError> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(now) => Ok((now.dev(), now.ino()) == self.file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(&self.path, "read")(error)),
        }
    }
}
