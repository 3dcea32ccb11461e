//! The filter of a trace: processes, their names, cgroups, ports, transports; checked before any hook is attached.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::intf::tr_limits;
use crate::record::Transport;

/// Processes that one trace can name.
pub(crate) const PROCESSES_MAX: usize = tr_limits::TR_TGIDS_MAX.0 as usize;
/// `TASK_COMM_LEN` less the zero.
pub(crate) const COMM_MAX: usize = 15;
/// Number of the first PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Of the first cgroup namespace (`PROC_CGROUP_INIT_INO`, there as well).
const HOST_CGROUP_NAMESPACE: &str = "cgroup:[4026531835]";

/// The filter of a trace; all that is named must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Processes; none: any.
    pub processes: Vec<u32>,
    /// Also processes that descend from these, up to four generations.
    pub descendants: bool,
    /// Name of the process (its main thread's, `/proc/PID/comm`).
    pub comm: Option<String>,
    /// Processes of this cgroup and below it.
    pub cgroup: Option<Cgroup>,
    /// Local or remote port; leaves Unix sockets out.
    pub port: Option<u16>,
    /// Transports.
    pub transports: Vec<Transport>,
    /// This process is left out, whatever it is called and wherever it is: the tracer that sends what it finds.
    pub except: Option<u32>,
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            processes: Vec::new(),
            descendants: false,
            comm: None,
            cgroup: None,
            port: None,
            transports: Transport::SOCKETS.to_vec(),
            except: None,
        }
    }
}

/// A cgroup of the unified hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its number: the directory's inode.
    pub number: u64,
    /// Levels below the root.
    pub level: u32,
}

impl Cgroup {
    /// Where the unified hierarchy is mounted: /sys/fs/cgroup, or below it where there are old hierarchies as well.
    pub fn root() -> Result<PathBuf> {
        Ok(Mount::find()?.at)
    }

    /// The directory in full, where it is given so or below [`Cgroup::root`]: without links and `..`.
    pub fn directory(path: &Path) -> Result<PathBuf> {
        directory(&Cgroup::root()?, path)
    }

    /// From its directory, in full or below [`Cgroup::root`].
    pub fn open(path: &Path) -> Result<Cgroup> {
        if !is_namespace("cgroup", HOST_CGROUP_NAMESPACE) {
            return Err(Error::CgroupNamespace);
        }
        let mount = Mount::find()?;
        let full = directory(&mount.at, path)?;
        let number = fs::metadata(&full).map_err(|source| Error::File { path: full.clone(), source })?.ino();
        let Some(level) = mount.level(&full).filter(|_| full.join("cgroup.controllers").exists()) else {
            return Err(Error::Argument(format!(
                "{}: no cgroup of the unified hierarchy (cgroup2)",
                full.display()
            )));
        };
        Ok(Cgroup { number, level })
    }
}

fn directory(root: &Path, path: &Path) -> Result<PathBuf> {
    let below = path.strip_prefix(root).unwrap_or(path);
    let full = root.join(below.strip_prefix("/").unwrap_or(below));
    fs::canonicalize(&full).map_err(|source| Error::File { path: full, source })
}

/// Where the unified hierarchy is mounted, and which part of it.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    at: PathBuf,
    /// The cgroup that is seen there, below the hierarchy's root.
    of: PathBuf,
}

impl Mount {
    fn find() -> Result<Mount> {
        let path = Path::new("/proc/self/mountinfo");
        let mounts = fs::read_to_string(path).map_err(|source| Error::File { path: path.into(), source })?;
        Mount::parse(&mounts)
            .ok_or_else(|| Error::Argument("no unified hierarchy of cgroups (cgroup2) is mounted".into()))
    }

    /// A cgroup2 in /proc/PID/mountinfo (`man 5 proc`). Its root and the mount point are the fourth field and the fifth; the file system's
    /// type is behind ` - `.
    fn parse(mounts: &str) -> Option<Mount> {
        let is_unified =
            |line: &&str| line.split_once(" - ").is_some_and(|(_, fs)| fs.starts_with("cgroup2 "));
        let mut fields = mounts.lines().find(is_unified)?.split(' ').skip(3).map(PathBuf::from);
        let of = fields.next()?;
        Some(Mount { at: fields.next()?, of })
    }

    /// How far below the hierarchy's root a directory is; `None`: it is elsewhere.
    fn level(&self, directory: &Path) -> Option<u32> {
        let below = directory.strip_prefix(&self.at).ok()?;
        let names = self.of.components().chain(below.components());
        Some(names.filter(|part| matches!(part, Component::Normal(_))).count() as u32)
    }
}

impl Filter {
    /// Whether it names nothing.
    pub(crate) fn is_open(&self) -> bool {
        self.processes.is_empty() && self.comm.is_none() && self.cgroup.is_none() && self.port.is_none()
    }

    /// Refuses what would trace nothing.
    pub fn check(&self) -> Result<()> {
        if self.is_open() {
            return Err(Error::Argument(
                "nothing to trace: expected a process, a name, a cgroup or a port".into(),
            ));
        }
        if self.processes.len() > PROCESSES_MAX {
            let count = self.processes.len();
            return Err(Error::Argument(format!("{count} processes: expected at most {PROCESSES_MAX}")));
        }
        if !self.processes.is_empty() {
            check_processes_are_the_hosts()?;
        }
        for &process in &self.processes {
            check_process(process)?;
        }
        match &self.comm {
            Some(comm) if comm.is_empty() || comm.len() > COMM_MAX => {
                return Err(Error::Argument(format!(
                    "process name `{comm}`: expected 1 to {COMM_MAX} bytes, as /proc/PID/comm has it"
                )));
            }
            _ => {}
        }
        if self.port == Some(0) {
            return Err(Error::Argument("port 0: expected 1 to 65535".into()));
        }
        if self.transports.is_empty() {
            return Err(Error::Argument("no transport to trace".into()));
        }
        Ok(())
    }
}

/// Whether process numbers here are those that hooks see: not in a container with numbers of its own.
pub fn sees_host_processes() -> bool {
    is_namespace("pid", HOST_PID_NAMESPACE)
}

fn is_namespace(kind: &str, name: &str) -> bool {
    fs::read_link(Path::new("/proc/self/ns").join(kind)).is_ok_and(|own| own.as_os_str() == name)
}

/// Refuses to name processes by numbers that hooks do not see.
pub(crate) fn check_processes_are_the_hosts() -> Result<()> {
    if sees_host_processes() { Ok(()) } else { Err(Error::PidNamespace) }
}

/// A number that is a thread's, not a process's, would trace nothing.
pub(crate) fn check_process(process: u32) -> Result<()> {
    let path = Path::new("/proc").join(process.to_string()).join("status");
    let status = fs::read_to_string(path).map_err(|_| Error::NoProcess(process))?;
    let leader: Option<u32> =
        status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|id| id.trim().parse().ok());
    match leader {
        Some(leader) if leader != process => {
            Err(Error::Argument(format!("{process} is a thread of process {leader}: trace that")))
        }
        _ => Ok(()),
    }
}

/// The number of a process's network namespace; `None`: it is gone.
pub(crate) fn network_namespace(process: &str) -> Option<u32> {
    fs::metadata(format!("/proc/{process}/ns/net")).ok().map(|namespace| namespace.ino() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(filter: Filter) -> String {
        filter.check().unwrap_err().to_string()
    }

    #[test]
    fn filters_that_trace_nothing_are_refused() {
        assert!(says(Filter::default()).contains("nothing to trace"));
        assert!(says(Filter { port: Some(0), ..Default::default() }).contains("port 0"));
        let long = Some("a-name-of-sixteen".to_owned());
        assert!(says(Filter { comm: long, ..Default::default() }).contains("1 to 15 bytes"));
        let nobody = Filter { processes: vec![u32::MAX], ..Default::default() };
        assert!(matches!(nobody.check(), Err(Error::NoProcess(u32::MAX) | Error::PidNamespace)));
        assert!(says(Filter { processes: (1..=17).collect(), ..Default::default() }).contains("at most 16"));
        let none = Filter { port: Some(80), transports: Vec::new(), ..Default::default() };
        assert!(says(none).contains("no transport"));
    }

    #[test]
    fn the_unified_hierarchy_is_found_beside_old_ones() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let mount = Mount::parse(mounts).unwrap();
        assert_eq!(mount, Mount { at: "/sys/fs/cgroup/unified".into(), of: "/".into() });
        assert_eq!(mount.level(&mount.at.join("a/b")), Some(2));
        assert_eq!(mount.level(Path::new("/sys/fs/cgroup")), None);
        assert_eq!(Mount::parse("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"), None);
        // A part of it is mounted: hooks count from the root.
        let part = Mount::parse("41 31 0:38 /docker/web /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n").unwrap();
        assert_eq!(part.level(Path::new("/sys/fs/cgroup/a")), Some(3));
    }

    #[test]
    fn links_and_steps_back_are_no_levels() {
        let root = std::env::temp_dir().join(format!("trieline-cgroup-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).unwrap();
        let root = fs::canonicalize(root).unwrap();
        for path in ["a/../a/b", "/a/b", "link", "a/b/."] {
            assert_eq!(directory(&root, Path::new(path)).unwrap(), root.join("a/b"), "{path}");
        }
        assert!(directory(&root, Path::new("c")).is_err());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_thread_is_no_process() {
        let thread = std::thread::spawn(|| {
            let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            check_process(number).unwrap_err().to_string()
        });
        assert!(thread.join().unwrap().contains("is a thread of process"));
    }
}
