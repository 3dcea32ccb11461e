//! Reads the files of filters beside the daemon.

use super::copies;
use super::error::Error;
use super::rule::FilterRule;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use trieline_lpm::io::{ImportError, ReadOptions};
use trieline_lpm::{Address, Prefix};

/// The prefixes of a file, in order, each with the value 1.
#[derive(Debug)]
pub struct Set {
    /// IPv4.
    pub v4: Vec<(Prefix<u32>, u32)>,
    /// IPv6.
    pub v6: Vec<(Prefix<u128>, u32)>,
    /// Lines passed over because they are wrong.
    pub bad: u64,
    /// Why it is not that of the filter's file.
    pub problem: Option<String>,
}

/// Lists of filters that SID hooks ask, by their number.
pub type Bound = BTreeMap<u32, Vec<String>>;

/// Which files are to be read.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// Those of one filter or all, as they are configured.
    Again(Option<String>),
    /// Those of a new configuration, some of them asked by SID hooks.
    These(Bound),
}

/// A job done.
#[derive(Debug)]
pub struct Read {
    pub job: u64,
    pub wanted: Wanted,
    pub rules: Vec<FilterRule>,
    /// One for each configured filter; none where its file was not to be read.
    pub sets: Result<Vec<Option<Set>>, Error>,
}

/// A thread that reads, one job after another.
#[derive(Debug)]
pub struct Reader {
    jobs: Sender<(u64, Wanted, Vec<FilterRule>)>,
    done: Receiver<Read>,
    pipe: UnixStream,
}

impl Reader {
    /// Starts the thread, which ends with the value.
    pub fn start() -> std::io::Result<Self> {
        let (jobs, asked) = channel::<(u64, Wanted, Vec<FilterRule>)>();
        let (answer, done) = channel();
        let (pipe, wake) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        std::thread::Builder::new().name("filters".into()).spawn(move || {
            for (job, wanted, rules) in asked {
                let is_wanted = |rule: &FilterRule| match &wanted {
                    Wanted::Again(Some(name)) => rule.name == *name,
                    Wanted::Again(None) | Wanted::These(_) => true,
                };
                let one = |rule: &FilterRule| {
                    is_wanted(rule).then(|| read(rule).inspect(|_| copies::keep(rule))).transpose()
                };
                let sets = rules.iter().map(one).collect();
                if answer.send(Read { job, wanted, rules, sets }).is_err() {
                    return;
                }
                // A full pipe wakes as well as one byte more would.
                let _ = std::io::Write::write(&mut &wake, &[0]);
            }
        })?;
        Ok(Self { jobs, done, pipe })
    }

    /// Readable when something may be done.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Begins a job.
    pub fn send_request(&self, job: u64, wanted: Wanted, rules: Vec<FilterRule>) {
        // The thread ends with this value only.
        let _ = self.jobs.send((job, wanted, rules));
    }

    /// The next job that is done.
    pub fn next(&mut self) -> Option<Read> {
        let mut bytes = [0; 64];
        while self.pipe.read(&mut bytes).is_ok_and(|len| len == bytes.len()) {}
        self.done.try_recv().ok()
    }
}

/// Reads a filter's file: text, JSON, `ip route` or MRT, packed or not. O(n log n).
pub fn read(rule: &FilterRule) -> Result<Set, Error> {
    let file = rule.file.as_ref().ok_or_else(|| Error::NoFile { name: rule.name.clone() })?;
    let fail = |source| Error::File { name: rule.name.clone(), source };
    let options = ReadOptions { skip_bad: rule.skip_bad, truncate: rule.truncate, ..ReadOptions::default() };
    let list = trieline_lpm::io::read(file, &options).map_err(fail)?;
    if !list.keys.is_empty() {
        let what = "has keys that are not IP addresses; expected IPv4 and IPv6 prefixes".into();
        return Err(fail(ImportError::Whole { path: file.clone(), what }));
    }
    if let Some(first) = &list.first_bad {
        tracing::warn!(
            filter = rule.name,
            bad_lines = list.bad,
            first,
            "the file has bad lines; trielined skips them (skip_bad)"
        );
    }
    if list.truncated > 0 {
        tracing::warn!(
            filter = rule.name,
            prefixes = list.truncated,
            "prefixes have host bits; trielined clears them (truncate)"
        );
    }
    let set =
        Set { v4: sorted(list.prefixes.v4), v6: sorted(list.prefixes.v6), bad: list.bad, problem: None };
    if set.v4.is_empty() && set.v6.is_empty() {
        // Good for a list that fills later, and what a download that failed leaves.
        tracing::warn!(filter = rule.name, file = %file.display(), "the file has no prefixes; the filter matches no packet");
    }
    Ok(set)
}

fn sorted<A: Address>(prefixes: Vec<(Prefix<A>, Option<u32>)>) -> Vec<(Prefix<A>, u32)> {
    let mut sorted: Vec<_> = prefixes.into_iter().map(|(prefix, _)| (prefix, 1)).collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}
