//! Which daemon is meant: one a network namespace, with its pins, its socket and its lock.

use rustix::fs::{FlockOperation, flock};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process may check whether the owner of a lock is dead.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where BPF objects are pinned.
const BPFFS: &str = "/sys/fs/bpf";
/// `f_type` of a BPF file system (`BPF_FS_MAGIC`).
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
/// Sockets and locks.
const RUN: &str = "/run/trieline";
/// The group whose members may ask the daemon without being root.
pub const READERS: &str = "trieline";
/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// Why an instance cannot be found or claimed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace does not exist.
    #[error("network namespace {name}: {source} (looked for {})", path.display())]
    Namespace {
        /// As given.
        name: String,
        /// File that was opened.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file or directory is in the way.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user could hold it.
    #[error("{} belongs to user {owner}, not to user {wanted}; {}", path.display(), if *wanted == 0 { "remove it" } else { "run it as root" })]
    Foreign {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The required owner: the user this process runs as.
        wanted: u32,
    },
    /// Another process than a daemon has locked the lock file.
    #[error("{} is locked by process {holder}, which is not the trielined that wrote it; end that process", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// The process that holds the lock.
        holder: String,
    },
    /// There is a daemon already.
    #[error(
        "trielined is already running in this network namespace (process {pid}); see `trieline node status`, or end it first"
    )]
    Running {
        /// Its process id, as it wrote it down.
        pid: String,
    },
    /// `ip netns exec` has put another /sys over the one with the pins.
    #[error(
        "{BPFFS} is not a BPF file system in this mount namespace; `ip netns exec` hides the system's; \
         use `-n NAMESPACE`, or nsenter --net=/run/netns/NAMESPACE"
    )]
    Hidden,
    /// A packet could run on a processor in the middle of another one.
    #[error(
        "cannot run on a PREEMPT_RT kernel: packets on one processor would share the XDP program's scratch memory; \
         use a kernel without PREEMPT_RT"
    )]
    Realtime,
    /// It could not be mounted.
    #[error(
        "cannot mount a BPF file system on {BPFFS}: {source}; try `mount -t bpf bpf {BPFFS}`, in a container -v {BPFFS}:{BPFFS}"
    )]
    Mount {
        /// The system's error.
        source: io::Error,
    },
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::File { path: path.into(), source }
}

/// Moves this thread into a network namespace, given by its name (`ip netns`) or by a path. Mounts stay as they are. Call it
/// before other threads are started.
pub fn enter_namespace(name: &str) -> Result<(), Error> {
    let path = if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMESPACES).join(name) };
    let error = |source: io::Error| Error::Namespace { name: name.into(), path: path.clone(), source };
    let file = File::open(&path).map_err(error)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|errno| error(errno.into()))
}

/// The instance of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The namespace's inode.
    pub inode: u64,
}

impl Instance {
    /// That of the namespace this thread is in.
    pub fn current() -> Result<Self, Error> {
        let path = Path::new("/proc/thread-self/ns/net");
        Ok(Self { inode: fs::metadata(path).map_err(file_error(path))?.ino() })
    }

    fn name(&self) -> String {
        format!("netns-{}", self.inode)
    }

    /// Directory of its pins.
    pub fn pins(&self) -> PathBuf {
        Path::new(BPFFS).join("trieline").join(self.name())
    }

    /// Its daemon's socket.
    pub fn socket(&self) -> PathBuf {
        Path::new(RUN).join(self.name()).with_extension("sock")
    }

    /// Its daemon's socket for questions only.
    pub fn read_socket(&self) -> PathBuf {
        Path::new(RUN).join(self.name()).with_extension("read.sock")
    }

    /// Its lock.
    fn lock(&self) -> PathBuf {
        Path::new(RUN).join(self.name()).with_extension("lock")
    }

    /// The lock of a running capture.
    pub fn capture_lock(&self) -> PathBuf {
        Path::new(RUN).join(self.name()).with_extension("capture")
    }

    /// Removes what instances without pins left beside their sockets: of namespaces that are gone. Returns how many there were.
    pub fn sweep(&self) -> Result<usize, Error> {
        let path = Path::new(RUN);
        let mut swept = 0;
        for entry in fs::read_dir(path).map_err(file_error(path))?.flatten() {
            let other = entry.file_name().to_str().and_then(Self::of_file);
            if let Some(other) = other.filter(|other| other != self && !other.pins().exists()) {
                swept += usize::from(other.forget()?);
            }
        }
        Ok(swept)
    }

    /// Whose file that is.
    fn of_file(name: &str) -> Option<Self> {
        let (inode, _) = name.strip_prefix("netns-")?.split_once('.')?;
        Some(Self { inode: inode.parse().ok()? })
    }

    /// Claims the instance for this process, until the returned file is closed.
    pub fn claim(&self) -> Result<File, Error> {
        self.claim_within(PATIENCE)
    }

    fn claim_within(&self, patience: Duration) -> Result<File, Error> {
        own_folder(Path::new(RUN), 0o755)?;
        let path = self.lock();
        let begin = Instant::now();
        loop {
            let mut file = private_file(&path)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                // Another namespace's daemon that starts looks whether the owner is dead.
                if begin.elapsed() < patience {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                return Err(match holder_of(&mut file) {
                    Ok(pid) => Error::Running { pid },
                    Err(holder) => Error::Locked { path, holder },
                });
            }
            // `forget` may have removed it between the two: a lock that others cannot find locks nothing.
            let ours = file.metadata().map_err(file_error(&path))?;
            if !fs::metadata(&path).is_ok_and(|found| (found.dev(), found.ino()) == (ours.dev(), ours.ino()))
            {
                continue;
            }
            file.set_len(0).and_then(|()| file.rewind()).map_err(file_error(&path))?;
            writeln!(file, "{}", std::process::id()).map_err(file_error(&path))?;
            return Ok(file);
        }
    }

    /// The process of the daemon that holds this instance; `None`: none does, or this process may not look. Changes nothing.
    pub fn runner(&self) -> Option<String> {
        let mut file = File::open(self.lock()).ok()?;
        // A shared lock: two that look do not see each other.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => None,
            Err(_) => Some(holder_of(&mut file).unwrap_or_else(|holder| holder)),
        }
    }

    /// Removes socket and locks, unless a daemon runs; whether it did.
    pub fn forget(&self) -> Result<bool, Error> {
        let Ok(_claim) = self.claim_within(Duration::ZERO) else { return Ok(false) };
        for path in [self.socket(), self.read_socket(), self.capture_lock(), self.lock()] {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::File { path, source });
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

/// Opens a file that only its owner may open, and so lock; makes it when it is missing. One that others could open until now
/// is closed to them.
pub fn private_file(path: &Path) -> Result<File, Error> {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let no_links = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = options.mode(0o600).custom_flags(no_links).open(path).map_err(file_error(path))?;
    make_own(path, &file.metadata().map_err(file_error(path))?, 0o600)?;
    Ok(file)
}

/// Makes a directory that only its owner may write to, or sees to it that it is one.
fn own_folder(path: &Path, mode: u32) -> Result<(), Error> {
    let make = || {
        fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(file_error(path))?;
        make_own(path, &fs::symlink_metadata(path).map_err(file_error(path))?, mode)
    };
    // Another namespace's daemon that starts may remove it in between: without pins it looks like a dead owner's.
    const TRIES: usize = 100;
    for _ in 1..TRIES {
        match make() {
            Err(Error::File { source, .. })
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
            made => return made,
        }
    }
    make()
}

/// Refuses what belongs to another user; gives it the rights `mode`, whatever the umask of the process that made it.
fn make_own(path: &Path, found: &fs::Metadata, mode: u32) -> Result<(), Error> {
    let wanted = rustix::process::geteuid().as_raw();
    if found.uid() != wanted {
        return Err(Error::Foreign { path: path.into(), owner: found.uid(), wanted });
    }
    if found.mode() & 0o7777 != mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(file_error(path))?;
    }
    Ok(())
}

/// The process that wrote its number into a lock file, if that one holds the lock; else who does.
pub fn holder_of(file: &mut File) -> Result<String, String> {
    let mut written = String::new();
    // Only for messages.
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut written));
    let written = written.trim().to_owned();
    let inode = file.metadata().map(|meta| meta.ino().to_string()).unwrap_or_default();
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // `1: FLOCK  ADVISORY  WRITE 4711 00:1a:1234 0 EOF`
    let holds = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let of_file = words.get(5).and_then(|place| place.rsplit(':').next()) == Some(inode.as_str());
        (words.get(1) == Some(&"FLOCK") && of_file)
            .then(|| words.get(4).map(|pid| (*pid).to_owned()))
            .flatten()
    };
    match locks.lines().find_map(holds) {
        Some(holder) if holder != written => Err(holder),
        None if !Path::new("/proc").join(&written).exists() => Err("unknown".into()),
        _ => Ok(written),
    }
}

/// Makes sure that other users cannot lock or change the pins of an instance, or those of others.
pub fn secure_pins(pins: &Path) -> Result<(), Error> {
    if let Some(parent) = pins.parent() {
        own_folder(parent, 0o700)?;
    }
    own_folder(pins, 0o700)
}

/// Whether the file system at the pins' place is one for BPF.
pub fn has_bpffs() -> bool {
    rustix::fs::statfs(BPFFS).is_ok_and(|stat| stat.f_type as u32 == BPF_FS_MAGIC)
}

/// Whether this process is in a mount namespace of its own in which the pins are out of sight, as `ip netns exec` makes.
pub fn is_hidden() -> bool {
    let namespace = |process: &str| fs::metadata(format!("/proc/{process}/ns/mnt")).map(|meta| meta.ino());
    let apart = match (namespace("self"), namespace("1")) {
        (Ok(ours), Ok(system)) => ours != system,
        // In a container the system's may be out of sight.
        _ => false,
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    !has_bpffs() && (apart || is_netns_exec(&mounts))
}

/// Fails on a kernel with PREEMPT_RT. Since Linux 6.18 it may run a packet's softirq in the middle of another one on the same processor. The XDP
/// program's per-CPU memory (`scratch_frames`, which the guard walks in) is for one packet.
pub fn refuse_realtime() -> Result<(), Error> {
    let realtime = std::fs::read_to_string("/sys/kernel/realtime");
    if realtime.is_ok_and(|text| is_realtime(&text)) { Err(Error::Realtime) } else { Ok(()) }
}

/// Whether the file that only such kernels have says so.
fn is_realtime(text: &str) -> bool {
    text.trim() == "1"
}

/// Mounts a BPF file system where the pins go, when there is none. Fails if other processes would not see the pins.
pub fn ensure_bpffs() -> Result<(), Error> {
    if has_bpffs() {
        return Ok(());
    }
    if is_hidden() {
        return Err(Error::Hidden);
    }
    rustix::mount::mount("bpf", BPFFS, "bpf", rustix::mount::MountFlags::empty(), Some(c"mode=0700"))
        .map_err(|errno| Error::Mount { source: errno.into() })
}

/// Whether /sys is the one that `ip netns exec` mounts over the system's: its source is the namespace's name.
fn is_netns_exec(mountinfo: &str) -> bool {
    let source = |line: &str| {
        let (mount, rest) = line.split_once(" - ")?;
        let words: Vec<&str> = rest.split(' ').collect();
        let is_sys = mount.split(' ').nth(4) == Some("/sys") && words.first() == Some(&"sysfs");
        is_sys.then(|| words.get(1).map(|source| (*source).to_owned())).flatten()
    };
    let name = mountinfo.lines().filter_map(source).next_back();
    name.is_some_and(|name| !name.is_empty() && Path::new(NAMESPACES).join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the sweep of another namespace's daemon does, between any two calls.
    #[test]
    fn a_folder_that_another_process_removes_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pins");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let removed = scope.spawn(|| {
                let mut removed = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    removed += usize::from(fs::remove_dir(&folder).is_ok());
                }
                removed
            });
            let begin = Instant::now();
            let mut made = Ok(());
            while made.is_ok() && begin.elapsed() < Duration::from_millis(300) {
                made = own_folder(&folder, 0o700);
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            made.unwrap();
            assert!(removed.join().unwrap() > 10);
        });
    }

    #[test]
    fn a_realtime_kernel_is_known_by_its_file() {
        assert!(is_realtime("1\n") && !is_realtime("0\n"));
    }

    #[test]
    fn the_system_itself_is_no_netns_exec() {
        let system =
            "23 27 0:22 / /sys rw,relatime - sysfs sysfs rw\n52 23 0:40 / /sys/fs/bpf rw - bpf bpf rw\n";
        assert!(!is_netns_exec(system) && !is_netns_exec("") && !is_netns_exec("nonsense - \n"));
        assert!(!is_netns_exec("55 51 0:39 / /sys rw,relatime - sysfs no-such-namespace rw\n"));
    }
}
