//! Whether any process of a trace is left: if none is, the tracer reports it, and if none can come any more, the trace ends.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trieline_trace::{Cgroup, Client, sees_host_processes};

use crate::args::What;

/// How often it is looked for, and how often while nothing is there: for a name all of /proc is read.
const EVERY: Duration = Duration::from_millis(100);
const EVERY_WAITING: Duration = Duration::from_secs(1);

/// The processes that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// At least one process runs.
    Some,
    /// No process runs, but others of the name or in the cgroup would be traced: in words.
    Waiting(String),
    /// No process runs, and none can come: in words.
    Nothing(String),
}

/// A cgroup by its name.
#[derive(Debug)]
struct Group {
    directory: PathBuf,
    number: u64,
    /// The command line's, by which it is looked up again.
    what: What,
    /// When that is next done: all cgroups are read for it.
    next: Instant,
}

impl Group {
    /// The cgroup that has the name now, if there is one and it is another.
    fn successor(&mut self) -> Option<(PathBuf, Cgroup)> {
        // Mostly it has the same place.
        let place = if self.directory.exists() {
            self.directory.clone()
        } else if Instant::now() >= self.next {
            self.next = Instant::now() + EVERY_WAITING;
            Cgroup::directory(&self.what.place().ok().flatten()?).ok()?
        } else {
            return None;
        };
        let cgroup = Cgroup::open(&place).ok().filter(|cgroup| cgroup.number != self.number)?;
        Some((place, cgroup))
    }
}

/// Looks for processes.
#[derive(Debug)]
pub struct Liveness {
    processes: Vec<u32>,
    comm: Option<String>,
    /// The process that had the name at the last look.
    called: Option<u32>,
    /// The cgroup that is traced, and how to find the next one of its name.
    cgroup: Option<Group>,
    /// Another cgroup has its name now: not reported yet.
    moved: Option<Cgroup>,
    left: Left,
    next: Instant,
}

impl Liveness {
    /// For what the command line names.
    pub fn new(what: &What, cgroup: Option<Cgroup>) -> anyhow::Result<Liveness> {
        let place = what.place()?;
        let directory = place.as_deref().map(Cgroup::directory).transpose()?;
        let is_open = what.comm.is_none() && place.is_none() && what.port.is_none();
        let clients = what.client.iter().map(|client| match client {
            Client::Process(process) => Some(*process),
            Client::Name(_) => None,
        });
        let processes = if is_open && what.pid.is_empty() {
            clients.collect::<Option<Vec<u32>>>().unwrap_or_default()
        } else {
            what.pid.clone()
        };
        Ok(Liveness {
            processes,
            // Elsewhere /proc does not show all that hooks see.
            comm: what.comm.clone().filter(|_| sees_host_processes()),
            called: None,
            cgroup: directory.zip(cgroup).map(|(directory, Cgroup { number, .. })| Group {
                directory,
                number,
                what: what.clone(),
                next: Instant::now(),
            }),
            moved: None,
            left: Left::Some,
            next: Instant::now(),
        })
    }

    /// Looks, if it is time to.
    pub fn check(&mut self) -> &Left {
        if Instant::now() >= self.next {
            self.left = self.find();
            let is_quick = self.left == Left::Some || self.cgroup.is_some();
            self.next = Instant::now() + if is_quick { EVERY } else { EVERY_WAITING };
        }
        &self.left
    }

    /// The cgroup that has taken the place of the one that was traced, once: a service that was started again.
    pub fn moved(&mut self) -> Option<Cgroup> {
        self.moved.take()
    }

    fn find(&mut self) -> Left {
        if !self.processes.is_empty() && !self.processes.iter().any(|process| is_alive(*process)) {
            return Left::Nothing("all named processes have ended".into());
        }
        if let Some(group) = &mut self.cgroup {
            if fs::metadata(&group.directory).map(|found| found.ino()).ok() != Some(group.number) {
                let Some((directory, cgroup)) = group.successor() else {
                    return Left::Waiting(format!("the cgroup {} is gone", group.directory.display()));
                };
                (group.directory, group.number) = (directory, cgroup.number);
                self.moved = Some(cgroup);
            }
            let name = group.directory.display();
            // The root has no such file.
            let events = fs::read_to_string(group.directory.join("cgroup.events")).unwrap_or_default();
            if events.lines().any(|line| line == "populated 0") {
                return Left::Waiting(format!("no process is in the cgroup {name}"));
            }
        }
        if let Some(comm) = &self.comm {
            let is_called = |process: &u32| name(*process).as_deref() == Some(comm) && is_alive(*process);
            self.called = self.called.filter(is_called).or_else(|| processes().find(is_called));
            if self.called.is_none() {
                return Left::Waiting(format!("no process is called {comm}"));
            }
        }
        Left::Some
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn name(process: u32) -> Option<String> {
    let name = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("comm")).ok()?;
    Some(name.strip_suffix('\n').unwrap_or(&name).to_owned())
}

/// Whether a process has a thread that has not ended. The state, and 17 fields on the number of threads, are behind the name in parentheses
/// (`man 5 proc_pid_stat`). An ended process keeps its number until its parent has waited for it.
fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    let Ok(stat) = stat else { return false };
    let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let is_zombie = fields.next().is_some_and(|state| ["Z", "X"].contains(&state));
    let threads = fields.nth(16).and_then(|threads| threads.parse().ok()).unwrap_or(0);
    !is_zombie || threads > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use std::process::Command;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        what: What,
    }

    fn liveness(processes: Vec<u32>, cgroup: Option<(PathBuf, u64)>) -> Liveness {
        let what = || Line::parse_from(["trieline"]).what;
        let group = |(directory, number)| Group { directory, number, what: what(), next: Instant::now() };
        let (cgroup, next) = (cgroup.map(group), Instant::now());
        Liveness { processes, comm: None, called: None, cgroup, moved: None, left: Left::Some, next }
    }

    #[test]
    fn zombies_count_as_ended() {
        let mut child = Command::new("true").spawn().unwrap();
        let mut liveness = liveness(vec![child.id()], None);
        let start = Instant::now();
        while *liveness.check() == Left::Some {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        assert_eq!(*liveness.check(), Left::Nothing("all named processes have ended".into()));
        assert!(Path::new("/proc").join(child.id().to_string()).exists());
        child.wait().unwrap();
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
    }

    #[test]
    fn an_empty_cgroup_and_a_removed_one_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("group");
        fs::create_dir(&group).unwrap();
        let number = fs::metadata(&group).unwrap().ino();
        let find = |events: &str| {
            fs::write(group.join("cgroup.events"), events).unwrap();
            liveness(Vec::new(), Some((group.clone(), number))).find()
        };
        assert_eq!(find("populated 1\nfrozen 0\n"), Left::Some);
        assert!(matches!(find("populated 0\nfrozen 0\n"), Left::Waiting(text) if text.ends_with("group")));
        // Another file has the name, and it is not a cgroup.
        let mut gone = liveness(Vec::new(), Some((group.clone(), number + 1)));
        assert!(matches!(gone.find(), Left::Waiting(text) if text.ends_with("is gone")));
        fs::remove_dir_all(&group).unwrap();
        let mut gone = liveness(Vec::new(), Some((group, number)));
        assert!(matches!(gone.find(), Left::Waiting(text) if text.ends_with("is gone")));
        assert_eq!(gone.moved(), None);
    }

    #[test]
    fn processes_have_names() {
        let own = name(std::process::id()).unwrap();
        assert!(processes().any(|process| name(process).as_ref() == Some(&own)));
    }
}
