//! What is traced: processes, their names, cgroups, ports, transports; checked before any hook is attached.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::record::Transport;

/// `TR_TGIDS_MAX`.
pub(crate) const PROCESSES_MAX: usize = 16;
/// `TASK_COMM_LEN` less the zero.
pub(crate) const COMM_MAX: usize = 15;
/// Number of the first PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// What is traced; all that is named must hold.
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
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            processes: Vec::new(),
            descendants: false,
            comm: None,
            cgroup: None,
            port: None,
            transports: Transport::ALL.to_vec(),
        }
    }
}

/// A cgroup of the unified hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its number: the directory's inode.
    pub number: u64,
    /// How far below the root.
    pub level: u32,
}

impl Cgroup {
    /// Where the unified hierarchy is mounted: /sys/fs/cgroup, or below it where there are old hierarchies as well.
    pub fn root() -> Result<PathBuf> {
        let path = Path::new("/proc/self/mountinfo");
        let mounts = fs::read_to_string(path).map_err(|source| Error::File { path: path.into(), source })?;
        mounted(&mounts)
            .ok_or_else(|| Error::Argument("no unified hierarchy of cgroups (cgroup2) is mounted".into()))
    }

    /// The directory in full, where it is given so or below [`Cgroup::root`].
    pub fn directory(path: &Path) -> Result<PathBuf> {
        let root = Cgroup::root()?;
        let below = path.strip_prefix(&root).unwrap_or(path);
        Ok(root.join(below.strip_prefix("/").unwrap_or(below)))
    }

    /// From its directory, in full or below [`Cgroup::root`].
    pub fn open(path: &Path) -> Result<Cgroup> {
        let full = Cgroup::directory(path)?;
        let below = full.strip_prefix(Cgroup::root()?).unwrap_or(&full);
        let number = fs::metadata(&full).map_err(|source| Error::File { path: full.clone(), source })?.ino();
        if !full.join("cgroup.controllers").exists() {
            return Err(Error::Argument(format!(
                "{}: no cgroup of the unified hierarchy (cgroup2)",
                full.display()
            )));
        }
        let level = below.components().filter(|part| matches!(part, Component::Normal(_))).count() as u32;
        Ok(Cgroup { number, level })
    }
}

/// The mount point of a cgroup2 in /proc/PID/mountinfo (`man 5 proc`): the fifth field, the file system's type behind ` - `.
fn mounted(mounts: &str) -> Option<PathBuf> {
    let is_unified = |line: &&str| line.split_once(" - ").is_some_and(|(_, fs)| fs.starts_with("cgroup2 "));
    mounts.lines().find(is_unified)?.split(' ').nth(4).map(PathBuf::from)
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
        if !self.processes.is_empty() && !sees_host_processes() {
            return Err(Error::PidNamespace);
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
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == HOST_PID_NAMESPACE)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn says(filter: Filter) -> String {
        filter.check().unwrap_err().to_string()
    }

    #[test]
    fn what_would_trace_nothing_is_refused() {
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
        assert_eq!(mounted(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mounted("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"), None);
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
