//! The daemon's socket: one JSON request a line, answered by lines of JSON; the last line has the key `end`, or is the only one. Commands
//! and daemon are built together, so both sides of it are here.

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
    /// State of the daemon: one line, a [`crate::status::Status`].
    Status,
    /// Answers of a table in the image, for each address: one line, a list of objects.
    Explain {
        /// The addresses, each with the table's id.
        asked: Vec<(std::net::IpAddr, u32)>,
    },
    /// Filters and what they counted: one line, a list of [`crate::filter::FilterStatus`].
    Filters,
    /// Packets of SRv6 endpoints: one line, a list of [`crate::status::SidCount`].
    Sids,
    /// SID hooks: one line, a list of [`crate::sid_hook::SidHookStatus`].
    SidHooks,
    /// Reads a filter's file again, or all filters' files: one line, `{"job": NUMBER}`.
    Reload {
        /// The filter.
        filter: Option<String>,
    },
    /// Follows the configuration as it is now, all of it or nothing: one line, `{"job": NUMBER}`.
    Reconfigure,
    /// How far a job has come: one line, a [`crate::filter::JobStatus`].
    Job {
        /// Its number.
        job: u64,
    },
    /// Routes, one line each, then `{"end":true}`.
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

/// The longest request: addresses of a whole batch.
const REQUEST_MAX: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request to the daemon at `socket`; `each` gets every line of the answer until it returns false.
pub fn send_request(
    socket: &Path,
    request: &Request,
    mut each: impl FnMut(Value) -> bool,
) -> Result<(), Error> {
    let not_running = |source| Error::NotRunning { path: socket.into(), source };
    let mut stream = UnixStream::connect(socket).map_err(not_running)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    for line in BufReader::new(stream).lines() {
        let value: Value = serde_json::from_str(&line?)?;
        if let Some(error) = value.get("error") {
            return Err(Error::Refused(error.as_str().unwrap_or_default().into()));
        }
        if value.get("end").is_some() || !each(value) {
            return Ok(());
        }
    }
    Ok(())
}

/// A connected command, on the daemon's side. Never blocks.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    /// So much of it was looked at for the end of a request.
    scanned: usize,
    output: Vec<u8>,
    written: usize,
}

impl Client {
    /// Takes a connection.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Vec::new(), scanned: 0, output: Vec::new(), written: 0 })
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
            if self.input.len() > REQUEST_MAX {
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
