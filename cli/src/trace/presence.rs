//! Whether anything is left of what a trace is to follow: it is said when nothing is, and the trace ends when nothing can come any more.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trieline_trace::{Cgroup, Client, sees_host_processes};

use super::args::What;

/// How often it is looked for, and how often while nothing is there: for a name all of /proc is read.
const EVERY: Duration = Duration::from_millis(100);
const EVERY_WAITING: Duration = Duration::from_secs(1);

/// What is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Somebody.
    Some,
    /// Nobody, but others of the name or in the cgroup would be traced: in words.
    Waiting(String),
    /// Nobody, and nobody can come: in words.
    Nothing(String),
}

/// Looks for processes.
#[derive(Debug)]
pub struct Presence {
    processes: Vec<u32>,
    comm: Option<String>,
    /// Who had the name when it was last looked for.
    called: Option<u32>,
    /// Its directory and its number.
    cgroup: Option<(PathBuf, u64)>,
    left: Left,
    next: Instant,
}

impl Presence {
    /// For what the command line names.
    pub fn new(what: &What, cgroup: Option<Cgroup>) -> anyhow::Result<Presence> {
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
        Ok(Presence {
            processes,
            // Elsewhere /proc does not show all that hooks see.
            comm: what.comm.clone().filter(|_| sees_host_processes()),
            called: None,
            cgroup: directory.zip(cgroup.map(|cgroup| cgroup.number)),
            left: Left::Some,
            next: Instant::now(),
        })
    }

    /// Looks, if it is time to.
    pub fn look(&mut self) -> &Left {
        if Instant::now() >= self.next {
            self.left = self.find();
            self.next = Instant::now() + if self.left == Left::Some { EVERY } else { EVERY_WAITING };
        }
        &self.left
    }

    fn find(&mut self) -> Left {
        if !self.processes.is_empty() && !self.processes.iter().any(|process| is_alive(*process)) {
            return Left::Nothing("no process that was named was left".into());
        }
        if let Some((directory, number)) = &self.cgroup {
            let name = directory.display();
            if fs::metadata(directory).map(|found| found.ino()).ok() != Some(*number) {
                return Left::Nothing(format!(
                    "the cgroup {name} is gone: what is started again under its name is in another"
                ));
            }
            // The root has no such file.
            let events = fs::read_to_string(directory.join("cgroup.events")).unwrap_or_default();
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

/// Whether a process has a thread that has not ended (`man 5 proc_pid_stat`: the state, and 17 fields on the number of threads, behind the
/// name in parentheses). One that nobody has waited for has its number still.
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
    use std::process::Command;

    fn presence(processes: Vec<u32>, cgroup: Option<(PathBuf, u64)>) -> Presence {
        Presence { processes, comm: None, called: None, cgroup, left: Left::Some, next: Instant::now() }
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_is_gone() {
        let mut child = Command::new("true").spawn().unwrap();
        let mut presence = presence(vec![child.id()], None);
        let start = Instant::now();
        while *presence.look() == Left::Some {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        assert_eq!(*presence.look(), Left::Nothing("no process that was named was left".into()));
        assert!(Path::new("/proc").join(child.id().to_string()).exists());
        child.wait().unwrap();
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
    }

    #[test]
    fn an_empty_cgroup_is_waited_for_and_a_removed_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("group");
        fs::create_dir(&group).unwrap();
        let number = fs::metadata(&group).unwrap().ino();
        let find = |events: &str| {
            fs::write(group.join("cgroup.events"), events).unwrap();
            presence(Vec::new(), Some((group.clone(), number))).find()
        };
        assert_eq!(find("populated 1\nfrozen 0\n"), Left::Some);
        assert!(matches!(find("populated 0\nfrozen 0\n"), Left::Waiting(text) if text.ends_with("group")));
        assert!(matches!(presence(Vec::new(), Some((group.clone(), number + 1))).find(), Left::Nothing(_)));
        fs::remove_dir_all(&group).unwrap();
        assert!(matches!(presence(Vec::new(), Some((group, number))).find(), Left::Nothing(_)));
    }

    #[test]
    fn processes_have_names() {
        let own = name(std::process::id()).unwrap();
        assert!(processes().any(|process| name(process).as_ref() == Some(&own)));
    }
}
