//! Names of threads and of their processes, as /proc has them when a thread is first seen.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use trieline_trace::Record;

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub process: u32,
    /// The process's name, that of its main thread.
    pub process_name: String,
    /// Its own name.
    pub name: String,
}

/// All that were seen. A thread's number may become that of another process's thread.
#[derive(Debug, Default)]
pub struct Threads(HashMap<(u32, u32), Thread>);

impl Threads {
    /// The thread has ended: its number may be another's of the same process.
    pub fn forget(&mut self, number: u32) {
        self.0.retain(|(_, thread), _| *thread != number);
    }

    /// The thread of a record.
    pub fn get(&mut self, record: &Record) -> &Thread {
        self.find(record.process, record.thread)
    }

    /// By the host's numbers.
    fn find(&mut self, process: u32, number: u32) -> &Thread {
        self.0.entry((process, number)).or_insert_with(|| {
            check(number).filter(|thread| thread.process == process).unwrap_or_else(|| unknown(process))
        })
    }
}

fn check(number: u32) -> Option<Thread> {
    // Elsewhere the numbers are other processes'.
    if !trieline_trace::sees_host_processes() {
        return None;
    }
    let folder = Path::new("/proc").join(number.to_string());
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let process = field("Tgid:")?.parse().ok()?;
    let comm = |number: u32| fs::read_to_string(Path::new("/proc").join(number.to_string()).join("comm"));
    let process_name = comm(process).ok()?.trim_end().to_owned();
    Some(Thread { process, process_name, name: comm(number).ok()?.trim_end().to_owned() })
}

/// One that was gone before it was looked at.
fn unknown(process: u32) -> Thread {
    Thread { process, process_name: "unknown".into(), name: "unknown".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_its_process_and_its_name() {
        let found = std::thread::Builder::new()
            .name("a-thread".into())
            .spawn(|| {
                let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                Threads::default().find(std::process::id(), number).clone()
            })
            .unwrap()
            .join()
            .unwrap();
        if trieline_trace::sees_host_processes() {
            assert_eq!((found.process, found.name.as_str()), (std::process::id(), "a-thread"));
        }
        assert_eq!(Threads::default().find(1, u32::MAX).name, "unknown");
    }

    /// Names are read once, so only what is forgotten can be another's: here the number's next thread is the same one by another name.
    #[test]
    fn a_thread_that_has_ended_is_forgotten() {
        if !trieline_trace::sees_host_processes() {
            return;
        }
        let worker = || {
            let rename = |name: &str| fs::write("/proc/thread-self/comm", name).unwrap();
            let (process, number) =
                (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get() as u32);
            let mut threads = Threads::default();
            rename("first");
            let first = threads.find(process, number).name.clone();
            threads.find(process, process);
            rename("second");
            threads.forget(process);
            let known = threads.find(process, number).name.clone();
            threads.forget(number);
            (first, known, threads.0.len(), threads.find(process, number).name.clone())
        };
        let (first, known, left, second) = std::thread::spawn(worker).join().unwrap();
        assert_eq!((&first[..], &known[..], left, &second[..]), ("first", "first", 0, "second"));
    }
}
