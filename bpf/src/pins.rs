//! Directories of pins: in a BPF file system, each locked by the one process that changes what is pinned there.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// `f_type` of a BPF file system.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Whether `path` is in a BPF file system.
pub fn is_bpffs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as u64 == BPF_FS_MAGIC)
}

/// Makes a directory for pins and takes the lock on it that its owner holds, as long as the descriptor is open: in this process, or in
/// a child made by fork that has not called exec.
pub fn own(pins: &Path) -> Result<OwnedFd> {
    own_within(pins, PATIENCE)
}

/// The same at once or not at all, for those who look whether the owner is dead.
pub fn own_now(pins: &Path) -> Result<OwnedFd> {
    own_within(pins, Duration::ZERO)
}

fn own_within(pins: &Path, patience: Duration) -> Result<OwnedFd> {
    let fail = |what: &str, e: io::Error| Error::kernel(format!("{what} {}", pins.display()), e);
    if !pins.exists() {
        // Parents too, so look at the nearest one there is.
        let existing = pins.ancestors().find(|p| p.exists()).unwrap_or(pins);
        if !is_bpffs(existing) {
            return Err(Error::NotBpffs { path: pins.into() });
        }
        fs::create_dir_all(pins).map_err(|e| fail("making", e))?;
    } else if !is_bpffs(pins) {
        return Err(Error::NotBpffs { path: pins.into() });
    }
    let directory: OwnedFd = fs::File::open(pins).map_err(|e| fail("opening", e))?.into();
    match lock(&directory, patience) {
        // Removed and made again meanwhile, it would be another's lock.
        Ok(()) if is_at(&directory, pins) => Ok(directory),
        Ok(()) => Err(Error::InUse { path: pins.into() }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse { path: pins.into() }),
        Err(e) => Err(fail("locking", e.into())),
    }
}

/// How long an owner that ends, or somebody who looks whether the owner is dead, may still hold the lock.
const PATIENCE: Duration = Duration::from_secs(1);

fn lock(directory: &OwnedFd, patience: Duration) -> rustix::io::Result<()> {
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(directory, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if begin.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(20));
            }
            locked => return locked,
        }
    }
}

fn is_at(directory: &OwnedFd, path: &Path) -> bool {
    let same =
        |one: &rustix::fs::Stat, two: &rustix::fs::Stat| (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino);
    matches!((rustix::fs::fstat(directory), rustix::fs::stat(path)), (Ok(one), Ok(two)) if same(&one, &two))
}
