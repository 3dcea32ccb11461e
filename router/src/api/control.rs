//! The daemon's socket: one JSON request a line, answered by lines of JSON; the last line has the key `end`, or is the only one. Commands
//! and daemon are built together, so both sides of it are here.

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Requests that the daemon answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Request {
    /// State of the daemon: one line, a [`crate::api::status::Status`].
    Status,
    /// Answers of a table in the image, for each address: one line, a list of [`crate::api::route::Explained`].
    Explain {
        /// The addresses, each with the table's id.
        asked: Vec<(std::net::IpAddr, u32)>,
    },
    /// Filters and what they counted: one line, a list of [`crate::filter::FilterStatus`].
    Filters,
    /// SRv6 endpoints of all tables with their packets: one line, a list of [`crate::api::route::SidStatus`] without hooks.
    Sids,
    /// SID hooks: one line, a list of [`crate::sid_hook::SidHookStatus`].
    SidHooks,
    /// Reads a filter's file again, or all filters' files: one line, a [`Job`].
    Reload {
        /// The filter.
        filter: Option<String>,
    },
    /// Follows the configuration as it is now, all of it or nothing: one line, a [`Job`].
    Reconfigure,
    /// Compares everything: lines of [`crate::audit::AuditLine`], then [`End`].
    Audit {
        /// Whether tables and actions are to be written once more if anything differs.
        repair: bool,
    },
    /// How far a job has come: one line, a [`crate::filter::JobStatus`].
    Job {
        /// Its number.
        job: u64,
    },
    /// Routes, one line each ([`crate::api::route::Route`]), then [`End`].
    Show {
        /// Only this family: 4 or 6.
        family: Option<u8>,
        /// Only this prefix and what it covers.
        prefix: Option<String>,
        /// Table local too.
        local: bool,
        /// Only this table.
        table: Option<u32>,
        /// Only the table of this VRF.
        vrf: Option<String>,
    },
}

impl Request {
    /// Whether it changes what the daemon does.
    pub fn changes(&self) -> bool {
        match self {
            Self::Reload { .. } | Self::Reconfigure => true,
            Self::Audit { repair } => *repair,
            Self::Status
            | Self::Explain { .. }
            | Self::Filters
            | Self::Sids
            | Self::SidHooks
            | Self::Job { .. }
            | Self::Show { .. } => false,
        }
    }
}

/// The requests that a connection may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// All.
    Full,
    /// Those that change nothing.
    Read,
}

impl Access {
    /// The longest request, bytes: addresses of a whole batch, or those of a command line.
    fn longest(self) -> usize {
        match self {
            Self::Full => 16 << 20,
            Self::Read => 64 << 10,
        }
    }
}

/// A job that was begun.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub job: u64,
}

/// The last line of an answer of several.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct End {
    /// True.
    pub end: bool,
}

/// The daemon's refusal of a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    pub error: String,
}

/// Why a daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No daemon.
    #[error("trielined does not run in this network namespace ({}: {source})", path.display())]
    NotRunning {
        /// Its socket.
        path: std::path::PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It stopped in the middle.
    #[error("trielined did not answer: {0}")]
    Broken(#[from] io::Error),
    /// It answered with something else than JSON.
    #[error("cannot read trielined's answer: {0}")]
    Nonsense(#[from] serde_json::Error),
    /// It refused.
    #[error("trielined: {0}")]
    Refused(String),
}

/// Connects to the daemon at `socket`. A daemon that hangs with a full queue of connections does not block for longer than `patience`.
fn connect(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&stream, Timeout::Send, Some(patience))?;
    sockopt::set_socket_timeout(&stream, Timeout::Recv, Some(patience))?;
    net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}

/// Sends a request to the daemon at `socket`; `each` gets every line of the answer until it returns false. The daemon may take `patience` for
/// each part of its answer.
pub fn send_request<T: DeserializeOwned>(
    socket: &Path,
    patience: Duration,
    request: &Request,
    mut each: impl FnMut(T) -> bool,
) -> Result<(), Error> {
    let mut stream = connect(socket, patience).map_err(|source| match source.kind() {
        // It hangs: its queue of connections is full.
        io::ErrorKind::WouldBlock => Error::Broken(source),
        _ => Error::NotRunning { path: socket.into(), source },
    })?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    for line in BufReader::new(stream).lines() {
        let value: Value = serde_json::from_str(&line?)?;
        if value.get("error").is_some() {
            let Refusal { error } = serde_json::from_value(value)?;
            return Err(Error::Refused(error));
        }
        if value.get("end").is_some() || !each(serde_json::from_value(value)?) {
            return Ok(());
        }
    }
    Ok(())
}

/// A connected command, on the daemon's side. Never blocks.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    access: Access,
    input: Vec<u8>,
    /// So much of it was looked at for the end of a request.
    scanned: usize,
    output: Vec<u8>,
    written: usize,
}

impl Client {
    /// Takes a connection.
    pub fn new(stream: UnixStream, access: Access) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, access, input: Vec::new(), scanned: 0, output: Vec::new(), written: 0 })
    }

    /// The requests that it may make.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Reads what is there; the next whole request, when there is one. An error ends the connection.
    pub fn request(&mut self) -> io::Result<Option<Result<Request, serde_json::Error>>> {
        let mut chunk = [0; 65536];
        loop {
            let end = self.input[self.scanned..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| end + self.scanned) {
                self.scanned = 0;
                let line: Vec<u8> = self.input.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)));
            }
            self.scanned = self.input.len();
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.input.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.input.len() > self.access.longest() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    /// Adds a line to the answer.
    pub fn answer(&mut self, line: &impl Serialize) -> Result<(), serde_json::Error> {
        serde_json::to_writer(&mut self.output, line)?;
        self.output.push(b'\n');
        Ok(())
    }

    /// Whether anything waits to be written.
    pub fn has_output(&self) -> bool {
        self.written < self.output.len()
    }

    /// Writes as much as goes. An error ends the connection.
    pub fn write(&mut self) -> io::Result<()> {
        while self.has_output() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => self.written += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::status::{DeviceStatus, FamilyStatus, Punted, Refused, Status};
    use crate::bypass::scan::Bypassed;
    use crate::filter::rule::{FilterAction, FilterMatch, FilterRule};
    use crate::filter::{FilterStatus, JobStatus};
    use crate::sid_hook::SidHookStatus;
    use crate::sid_hook::rule::{Sample, SidHookRule, What};
    use crate::xdp::counters::{Kind, VerdictCount};

    /// Its JSON, read and written again.
    fn again<T: Serialize + DeserializeOwned>(line: &T) -> (Value, T) {
        let value = serde_json::to_value(line).unwrap();
        let read: T = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
        (value, read)
    }

    fn filters() -> Vec<FilterStatus> {
        let count = crate::FilterCount { packets: 1, bytes: 60 };
        let plain = |action| FilterRule::new("f", FilterMatch::Source, action);
        let whole = FilterRule {
            file: Some("/etc/f".into()),
            protocol: Some(6),
            ports: vec![22..=22, 8000..=8080],
            link: true,
            skip_bad: true,
            truncate: true,
            ..FilterRule::new("g", FilterMatch::Destination, FilterAction::Drop)
        };
        let mut all: Vec<_> =
            FilterAction::ALL.into_iter().map(|action| FilterStatus::of(plain(action), count)).collect();
        all.push(FilterStatus {
            prefixes4: Some(1),
            prefixes6: Some(2),
            bad_lines: Some(3),
            loaded: Some(4),
            inside: true,
            problem: Some("p".into()),
            ..FilterStatus::of(whole, count)
        });
        all
    }

    #[test]
    fn filters_come_back_with_the_keys_of_the_configuration() {
        for filter in filters() {
            assert_eq!(again(&filter).1, filter);
        }
        let all = filters();
        let (value, _) = again(&all);
        assert_eq!((&value[4]["match"], &value[4]["action"]), (&"destination".into(), &"drop".into()));
        assert_eq!(value[4]["ports"], serde_json::json!(["22", "8000-8080"]));
        assert!(value[0].get("ports").is_none() && value[0].get("file").is_none());
    }

    #[test]
    fn sid_hooks_come_back_with_the_keys_of_the_configuration() {
        let sample = |rate| What::Pcap(Sample { file: "/tmp/s".into(), snap: 64, rate });
        let functions = [
            (What::Filter { filters: vec!["f".into(), "g".into()] }, "filters"),
            (sample(None), "pcap"),
            (sample(Some(9)), "rate"),
            (What::Program { program: "/sys/fs/bpf/p".into() }, "program"),
        ];
        for (what, key) in functions {
            let rule = SidHookRule { name: "h".into(), sid: "fc00::1".parse().unwrap(), what };
            let (frames, limited, lost, problem) = (Some(1), None, Some(u64::MAX), Some("p".into()));
            let hook = SidHookStatus { rule, frames, limited, lost, problem };
            let (value, read) = again(&hook);
            assert_eq!(read, hook);
            assert!(value.get(key).is_some_and(|value| !value.is_null()), "{value}");
        }
    }

    #[test]
    fn other_answers_come_back() {
        let counter = VerdictCount { name: "ipv4".into(), kind: Kind::Forward, packets: 1 };
        let bypassed = Bypassed { kind: "tc".into(), passes: true, ..Bypassed::default() };
        again(&Status {
            running: true,
            map_type: Some(trieline_bpf::ImageMapType::Arena),
            pid: Some(1),
            max_stale: Some(2.5),
            devices: vec![DeviceStatus {
                vlan: Some(7),
                counters: vec![counter.clone()],
                ..Default::default()
            }],
            refused: vec![Refused { dev: "n0".into(), reason: "r".into() }],
            filters: filters(),
            families: vec![FamilyStatus { forwards: true, ..FamilyStatus::default() }],
            punted: vec![Punted { hint: Some("h".into()), ..Punted::default() }],
            bypassed: vec![bypassed],
            counters: vec![counter],
            ..Status::default()
        });
        let job = JobStatus { done: true, failed: Some("f".into()), waits: vec!["image".into()] };
        assert_eq!(again(&job).1, job);
        assert_eq!(again(&Job { job: 5 }).1.job, 5);
        assert!(again(&End { end: true }).1.end);
        assert_eq!(again(&Refusal { error: "e".into() }).1.error, "e");
    }

    #[test]
    fn every_request_comes_back() {
        let requests = [
            Request::Status,
            Request::Explain {
                asked: vec![("10.0.0.1".parse().unwrap(), 0), ("fc00::".parse().unwrap(), 1)],
            },
            Request::Filters,
            Request::Sids,
            Request::SidHooks,
            Request::Reload { filter: Some("f".into()) },
            Request::Reconfigure,
            Request::Job { job: 1 },
            Request::Audit { repair: true },
            Request::Show {
                family: Some(4),
                prefix: Some("10.0.0.0/8".into()),
                local: true,
                table: Some(7),
                vrf: None,
            },
        ];
        for request in requests {
            let (_, read) = again(&request);
            assert_eq!(std::mem::discriminant(&read), std::mem::discriminant(&request));
        }
    }
}
