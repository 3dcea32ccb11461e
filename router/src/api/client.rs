//! The source of commands' answers: the running daemon by its socket, or the maps that it pinned.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::time::Duration;

use crate::dataplane::pinned_maps::{PinnedMaps, open_readonly};
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;

use crate::api::control::{self, Job, Request};
use crate::api::instance::{self, Instance, READERS, holder_of, is_hidden, private_file};
use crate::api::status::Status;
use crate::filter::JobStatus;

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The instance cannot be used.
    #[error(transparent)]
    Instance(#[from] instance::Error),
    /// The maps cannot be opened.
    #[error(transparent)]
    Dataplane(#[from] crate::xdp::error::Error),
    /// The daemon did not answer.
    #[error(transparent)]
    Control(#[from] control::Error),
    /// The maps are gone, the daemon is not.
    #[error(
        "trielined runs, but `trieline node detach` has removed its tables: the kernel forwards alone until you start trielined again"
    )]
    Detached,
    /// There are no maps.
    #[error(
        "{0}; no trielined was started in this network namespace: start it, or name another namespace by -n NETNS"
    )]
    NotStarted(crate::xdp::error::Error),
    /// The socket is another user's.
    #[error("cannot ask trielined: {source} ({}); run as root, or ask as a member of group {READERS}", path.display())]
    NotRoot {
        /// The socket.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
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
        Err(error @ crate::xdp::error::Error::NotPinned { .. }) => {
            match send_request(instance, &Request::Status, |_: Status| false)? {
                None => Err(Error::Detached),
                Some(_) => Err(Error::NotStarted(error)),
            }
        }
        opened => Ok(opened?),
    }
}

/// How long the daemon may take for each part of an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks the daemon; `each` gets every line of its answer until it returns false. Where no daemon runs, that error is the value, for
/// callers that can do without one.
pub fn send_request<T: DeserializeOwned>(
    instance: &Instance,
    request: &Request,
    each: impl FnMut(T) -> bool,
) -> Result<Option<control::Error>, Error> {
    send_within(instance, PATIENCE, request, each)
}

/// The same with another patience. A process that may not use the socket for commands asks at the one for questions.
fn send_within<T: DeserializeOwned>(
    instance: &Instance,
    patience: Duration,
    request: &Request,
    mut each: impl FnMut(T) -> bool,
) -> Result<Option<control::Error>, Error> {
    let mut done = control::send_request(&instance.socket(), patience, request, &mut each);
    if is_denied(&done) && !request.changes() {
        done = control::send_request(&instance.read_socket(), patience, request, each);
    }
    match done {
        Ok(()) => Ok(None),
        Err(control::Error::NotRunning { path, source }) if source.kind() == ErrorKind::PermissionDenied => {
            Err(Error::NotRoot { path, source })
        }
        Err(absent @ control::Error::NotRunning { .. }) => Ok(Some(absent)),
        Err(error) => Err(error.into()),
    }
}

fn is_denied(done: &Result<(), control::Error>) -> bool {
    matches!(done, Err(control::Error::NotRunning { source, .. }) if source.kind() == ErrorKind::PermissionDenied)
}

/// The one line of an answer; the error inside means that no daemon runs.
pub fn one<T: DeserializeOwned>(
    instance: &Instance,
    request: &Request,
) -> Result<Result<T, control::Error>, Error> {
    one_within(instance, PATIENCE, request)
}

/// The same with another patience.
pub fn one_within<T: DeserializeOwned>(
    instance: &Instance,
    patience: Duration,
    request: &Request,
) -> Result<Result<T, control::Error>, Error> {
    let mut answer = None;
    let absent = send_within(instance, patience, request, |line| {
        answer = Some(line);
        false
    })?;
    match (answer, absent) {
        (_, Some(absent)) => Ok(Err(absent)),
        (Some(answer), None) => Ok(Ok(answer)),
        (None, None) => Err(control::Error::Broken(ErrorKind::UnexpectedEof.into()).into()),
    }
}

/// Has trielined read files, and waits until their content is in force; returns the keys that only a restart follows.
pub fn job(instance: &Instance, request: &Request) -> Result<Vec<String>, Error> {
    let Job { job } = one(instance, request)??;
    loop {
        match one(instance, &Request::Job { job })?? {
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
