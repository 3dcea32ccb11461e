//! The source of commands' answers: the running daemon by its socket, or the maps that it pinned.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use trieline_dataplane::{PinnedMaps, open_readonly};

use crate::control::{self, Request};
use crate::filter::JobStatus;
use crate::instance::{self, Instance, holder_of, is_hidden, private_file};

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The instance cannot be used.
    #[error(transparent)]
    Instance(#[from] instance::Error),
    /// The maps cannot be opened.
    #[error(transparent)]
    Dataplane(#[from] trieline_dataplane::Error),
    /// The daemon did not answer.
    #[error(transparent)]
    Control(#[from] control::Error),
    /// The maps are gone, the daemon is not.
    #[error(
        "trielined runs, but `trieline node detach` has removed its tables: the kernel forwards alone until you start trielined again"
    )]
    Detached,
    /// There are no maps.
    #[error("{0} (no trielined was started in this network namespace; another one? -n NETNS)")]
    NotStarted(trieline_dataplane::Error),
    /// The socket is root's.
    #[error("cannot ask trielined: {source} ({}); run as root", path.display())]
    NotRoot {
        /// The socket.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An answer to a request that makes a job.
    #[error("cannot read trielined's answer: {0}; expected a job")]
    NotAJob(Value),
    /// Something else than a job's status.
    #[error("cannot read trielined's answer: {0}; expected a job's status")]
    NotAStatus(#[from] serde_json::Error),
    /// A job failed.
    #[error("{0}; nothing has changed")]
    JobFailed(String),
    /// Another capture runs.
    #[error("another capture runs in this network namespace (process {0}); expected one at a time")]
    CaptureRuns(String),
    /// The capture's lock file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Opens what is pinned.
pub fn open(instance: &Instance) -> Result<PinnedMaps, Error> {
    match open_readonly(&instance.pins()) {
        Err(_) if is_hidden() => Err(instance::Error::Hidden.into()),
        Err(error @ trieline_dataplane::Error::NotPinned { .. }) => {
            match send_request(instance, &Request::Status, |_| false)? {
                None => Err(Error::Detached),
                Some(_) => Err(Error::NotStarted(error)),
            }
        }
        opened => Ok(opened?),
    }
}

/// Asks the daemon; `each` gets every line of its answer until it returns false. Where no daemon runs, that error is the value, for
/// callers that can do without one.
pub fn send_request(
    instance: &Instance,
    request: &Request,
    each: impl FnMut(Value) -> bool,
) -> Result<Option<control::Error>, Error> {
    match control::send_request(&instance.socket(), request, each) {
        Ok(()) => Ok(None),
        Err(control::Error::NotRunning { path, source }) if source.kind() == ErrorKind::PermissionDenied => {
            Err(Error::NotRoot { path, source })
        }
        Err(absent @ control::Error::NotRunning { .. }) => Ok(Some(absent)),
        Err(error) => Err(error.into()),
    }
}

/// The one line of an answer; the error inside means that no daemon runs.
pub fn one(instance: &Instance, request: &Request) -> Result<Result<Value, control::Error>, Error> {
    let mut answer = Value::Null;
    let absent = send_request(instance, request, |line| {
        answer = line;
        false
    })?;
    Ok(absent.map_or(Ok(answer), Err))
}

/// Has trielined read files, and waits until their content is in force; returns the keys that only a restart follows.
pub fn job(instance: &Instance, request: &Request) -> Result<Vec<String>, Error> {
    let answer = one(instance, request)??;
    let Some(job) = answer.get("job").and_then(Value::as_u64) else { return Err(Error::NotAJob(answer)) };
    loop {
        let status: JobStatus = serde_json::from_value(one(instance, &Request::Job { job })??)?;
        match status {
            JobStatus { failed: Some(error), .. } => return Err(Error::JobFailed(error)),
            JobStatus { done: true, waits, .. } => return Ok(waits),
            JobStatus { .. } => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The right to capture, until the file is closed.
pub fn claim_capture(instance: &Instance) -> Result<File, Error> {
    let path = instance.capture_lock();
    let failed = |source| Error::File { path: path.clone(), source };
    let mut file = private_file(&path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let (Ok(pid) | Err(pid)) = holder_of(&mut file);
        return Err(Error::CaptureRuns(pid));
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}
