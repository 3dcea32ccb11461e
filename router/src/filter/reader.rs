//! Reads the files of filters beside the daemon.

use super::copies;
use super::error::Error;
use super::rule::FilterRule;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use trieline_lpm::io::{ImportError, PrefixList, ReadOptions};
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

/// The most bytes of a file, unpacked: three times what ten million IPv4 prefixes need.
const BYTES: u64 = 512 << 20;
/// The longest time that a file is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads a filter's file: text, JSON, `ip route` or MRT, packed or not. O(n log n).
pub fn read(rule: &FilterRule) -> Result<Set, Error> {
    let file = rule.file.as_ref().ok_or_else(|| Error::NoFile { name: rule.name.clone() })?;
    let fail = |source| Error::File { name: rule.name.clone(), source };
    let options = ReadOptions {
        set: true,
        regular: true,
        limit: Some(BYTES),
        skip_bad: rule.skip_bad,
        truncate: rule.truncate,
        ..ReadOptions::default()
    };
    let list = read_in_time(file, options, PATIENCE).and_then(|list| list.not_blank(file)).map_err(fail)?;
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
        // Good for a list that fills later: it has a comment.
        tracing::warn!(filter = rule.name, file = %file.display(), "the file has no prefixes; the filter matches no packet");
    }
    Ok(set)
}

/// Files that were given up, and that a thread still tries to read.
static GIVEN_UP: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Reads a file on a thread of its own: a file on a server that does not answer can block for ever, and nothing can end that. Such a thread
/// stays until the server answers; the file is not read a second time beside it.
fn read_in_time(file: &Path, options: ReadOptions, patience: Duration) -> Result<PrefixList, ImportError> {
    let late = |what: String| ImportError::Whole { path: file.into(), what };
    let given_up = || GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner);
    if given_up().contains(file) {
        return Err(late(
            "it is still being read since an earlier try; expected a file system that answers".into(),
        ));
    }
    let (done, result) = channel();
    let path = file.to_path_buf();
    let thread = std::thread::Builder::new().name("list".into()).spawn(move || {
        let list = trieline_lpm::io::read(&path, &options);
        let mut given_up = given_up();
        given_up.remove(&path);
        // Nobody waits any more, if it was given up.
        let _ = done.send(list);
    });
    if let Err(source) = thread {
        return Err(ImportError::Io { path: file.into(), source });
    }
    if let Ok(list) = result.recv_timeout(patience) {
        return list;
    }
    let mut given_up = given_up();
    // The thread may have come to its end meanwhile; it sends while it holds the lock.
    result.try_recv().unwrap_or_else(|_| {
        given_up.insert(file.into());
        let seconds = patience.as_secs();
        Err(late(format!("it was not read within {seconds} s; expected a file system that answers")))
    })
}

fn sorted<A: Address>(prefixes: Vec<(Prefix<A>, Option<u32>)>) -> Vec<(Prefix<A>, u32)> {
    let mut sorted: Vec<_> = prefixes.into_iter().map(|(prefix, _)| (prefix, 1)).collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::rule::{FilterAction, FilterMatch};
    use std::io::Write as _;

    #[test]
    fn a_list_that_cannot_be_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let rule = |skip_bad| FilterRule {
            file: Some(path.clone()),
            skip_bad,
            ..FilterRule::new("threats", FilterMatch::Source, FilterAction::Drop)
        };
        for (content, what) in [
            (&b""[..], "0 bytes"),
            (b"<html>502 Bad Gateway</html>\n", "1 bad lines and no good one"),
            (b"{\"error\": \"try later\"}\n", "skip_bad"),
        ] {
            std::fs::write(&path, content).unwrap();
            let error = read(&rule(true)).unwrap_err().to_string();
            assert!(error.starts_with("filter threats: ") && error.contains(what), "{error}");
        }
        std::fs::write(&path, "; nothing today\n").unwrap();
        assert!(read(&rule(true)).unwrap().v4.is_empty());
        std::fs::write(&path, "; Spamhaus\n192.0.2.0/24 ; SBL1\n198.51.100.1-198.51.100.2 0\n").unwrap();
        assert_eq!(read(&rule(false)).unwrap().v4.len(), 3);
    }

    #[test]
    fn a_file_that_blocks_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let refused = read_in_time(&path, ReadOptions { regular: true, ..ReadOptions::default() }, PATIENCE);
        assert!(refused.unwrap_err().to_string().contains("not a regular file"));
        // Without that test, reading blocks as on a server that does not answer. Another that reads the file meanwhile is no reason to refuse.
        let patience = Duration::from_millis(50);
        let beside = path.clone();
        let beside = std::thread::spawn(move || read_in_time(&beside, ReadOptions::default(), PATIENCE));
        std::thread::sleep(patience);
        let late = read_in_time(&path, ReadOptions::default(), patience).unwrap_err().to_string();
        assert!(late.contains("not read within"), "{late}");
        let again = read_in_time(&path, ReadOptions::default(), patience).unwrap_err().to_string();
        assert!(again.contains("still being read"), "{again}");
        // It answers at last.
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(b"10.0.0.0/8\n").unwrap();
        let gone = || !GIVEN_UP.lock().unwrap().contains(&path);
        assert!((0..1000).any(|_| gone() || {
            std::thread::sleep(Duration::from_millis(5));
            false
        }));
        beside.join().unwrap().unwrap();
    }
}
