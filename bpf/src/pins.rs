//! Directories of pins: in a BPF file system, each locked by the one process that changes what is pinned there.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// `f_type` of a BPF file system.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Whether `path` is in a BPF file system.
pub fn is_bpffs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as u64 == BPF_FS_MAGIC)
}

/// Makes a directory for pins and takes the lock on it that its owner holds, as long as the descriptor is open. That may be in this process, or in
/// a child made by fork that has not called exec.
pub fn own(pins: &Path) -> Result<OwnedFd> {
    own_within(pins, PATIENCE)
}

/// The same at once or not at all, for those who look whether the owner is dead.
pub fn own_now(pins: &Path) -> Result<OwnedFd> {
    own_within(pins, Duration::ZERO)
}

fn own_within(pins: &Path, patience: Duration) -> Result<OwnedFd> {
    let begin = Instant::now();
    loop {
        if let Some(directory) = own_once(pins)? {
            return Ok(directory);
        }
        if begin.elapsed() >= patience {
            return Err(Error::InUse { path: pins.into() });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// None where another process holds the lock, or has removed the directory since: an empty one looks like a dead owner's.
fn own_once(pins: &Path) -> Result<Option<OwnedFd>> {
    let fail = |what: &str, e: io::Error| Error::kernel(format!("{what} {}", pins.display()), e);
    // The directory may be missing, and its parents too: the nearest one there is tells the file system.
    let nearest = pins.ancestors().find_map(|path| rustix::fs::statfs(path).ok());
    if nearest.is_none_or(|fs| fs.f_type as u64 != BPF_FS_MAGIC) {
        return Err(Error::NotBpffs { path: pins.into() });
    }
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(pins) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(fail("cannot make", e)),
        _ => {}
    }
    let directory: OwnedFd = match fs::File::open(pins) {
        Ok(directory) => directory.into(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail("cannot open", e)),
    };
    match rustix::fs::flock(&directory, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(is_at(&directory, pins).then_some(directory)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(fail("cannot lock", e.into())),
    }
}

/// How long an owner that ends, or a process that checks whether the owner is dead, may still hold the lock.
const PATIENCE: Duration = Duration::from_secs(1);

fn is_at(directory: &OwnedFd, path: &Path) -> bool {
    let same =
        |one: &rustix::fs::Stat, two: &rustix::fs::Stat| (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino);
    matches!((rustix::fs::fstat(directory), rustix::fs::stat(path)), (Ok(one), Ok(two)) if same(&one, &two))
}
