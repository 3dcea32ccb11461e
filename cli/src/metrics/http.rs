//! A small HTTP server for a few scrapers: one thread that never waits for a client, with bounds for connections, bytes and time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The most connections at a time; a further one takes the place of the oldest.
const CONNECTIONS: usize = 64;
/// The longest request, bytes.
const REQUEST_MAX: usize = 8 << 10;
/// The most header lines of a request.
const HEADERS: usize = 64;
/// From the connection to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No connections are taken for so long after the system had no room for one.
const PAUSE: Duration = Duration::from_millis(200);

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Format {
    /// The format that an `Accept` header prefers. Equal preference means Prometheus' own, as does an absent header.
    fn preferred(accept: &str) -> Self {
        let (mut openmetrics, mut text) = (0.0, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let quality =
                parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match name {
                "application/openmetrics-text" => openmetrics = f64::max(openmetrics, quality),
                "text/plain" | "text/*" | "*/*" => text = f64::max(text, quality),
                _ => {}
            }
        }
        if openmetrics > text { Self::OpenMetrics } else { Self::Text }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A whole request, or one that is refused.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// A scrape; with a body (GET), or only its header (HEAD).
    Metrics { format: Format, body: bool },
    /// An error, by its status line.
    Refused(&'static str),
}

impl Request {
    /// Reads a request; `None` until it is whole.
    fn parse(input: &[u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(input) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) if input.len() < REQUEST_MAX => return None,
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Some(Self::Refused("431 Request Header Fields Too Large"));
            }
            Err(_) => return Some(Self::Refused("400 Bad Request")),
        }
        let body = match request.method {
            Some("GET") => true,
            Some("HEAD") => false,
            _ => return Some(Self::Refused("405 Method Not Allowed")),
        };
        let path = request.path.unwrap_or_default();
        if path.split('?').next() != Some("/metrics") {
            return Some(Self::Refused("404 Not Found"));
        }
        let accept = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
        let accept: Vec<_> = accept.map(|header| String::from_utf8_lossy(header.value)).collect();
        Some(Self::Metrics { format: Format::preferred(&accept.join(",")), body })
    }
}

/// The bytes of an answer; every connection ends with it.
fn answer(status: &str, media_type: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    bytes.push_str(if with_body { body } else { "" });
    bytes.into_bytes()
}

/// A connected client.
struct Connection {
    stream: TcpStream,
    until: Instant,
    input: Vec<u8>,
    /// The answer, and how much of it is sent.
    output: Option<(Vec<u8>, usize)>,
}

impl Connection {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, until: Instant::now() + PATIENCE, input: Vec::new(), output: None })
    }

    /// Reads what is there, as far as a request goes. An error ends the connection.
    fn request(&mut self) -> io::Result<Option<Request>> {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.input.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if let Some(request) = Request::parse(&self.input) {
                return Ok(Some(request));
            }
        }
    }

    /// Sends as much of the answer as goes; true when it is sent. An error ends the connection.
    fn send(&mut self) -> io::Result<bool> {
        let Some((bytes, sent)) = &mut self.output else { return Ok(false) };
        while *sent < bytes.len() {
            match self.stream.write(&bytes[*sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => *sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        // If unread bytes of a refused request remained, the kernel would reset the connection, and the client lose the answer.
        let mut rest = [0; 4096];
        (0..16).take_while(|_| self.stream.read(&mut rest).is_ok_and(|len| len > 0)).for_each(drop);
        Ok(true)
    }
}

/// The server.
pub struct Server {
    listener: TcpListener,
    /// The oldest first.
    connections: VecDeque<Connection>,
    accept_after: Instant,
}

impl Server {
    /// Serves what connects to `listener`.
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, connections: VecDeque::new(), accept_after: Instant::now() })
    }

    /// Answers scrapes with what `metrics` returns, until an error ends it. Scrapes that come at the same time get the same answer.
    pub fn run(
        mut self,
        mut metrics: impl FnMut(Format) -> anyhow::Result<String>,
    ) -> anyhow::Result<ExitCode> {
        loop {
            self.wait()?;
            self.accept();
            self.serve(&mut metrics)?;
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&self) -> io::Result<()> {
        let now = Instant::now();
        let accepts = self.accept_after <= now;
        let mut until = self.connections.front().map(|connection| connection.until);
        if !accepts {
            until = Some(until.map_or(self.accept_after, |until| until.min(self.accept_after)));
        }
        let timeout = until.map(|until| until.saturating_duration_since(now));
        let timeout = timeout
            .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
        let mut fds: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .map(|connection| {
                let flags = if connection.output.is_some() { PollFlags::OUT } else { PollFlags::IN };
                PollFd::new(&connection.stream, flags)
            })
            .collect();
        if accepts {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes new connections, at most as many as there are places: those that are there already get their turn.
    fn accept(&mut self) {
        for _ in 0..CONNECTIONS {
            match self.listener.accept().and_then(|(stream, _)| Connection::new(stream)) {
                Ok(connection) => {
                    if self.connections.len() == CONNECTIONS {
                        self.connections.pop_front();
                    }
                    self.connections.push_back(connection);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client has gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.accept_after = Instant::now() + PAUSE;
                    return;
                }
            }
        }
    }

    fn serve(&mut self, metrics: &mut impl FnMut(Format) -> anyhow::Result<String>) -> anyhow::Result<()> {
        let now = Instant::now();
        let mut made: Vec<(Format, String)> = Vec::new();
        let mut remaining = VecDeque::with_capacity(self.connections.len());
        for mut connection in self.connections.drain(..).filter(|connection| now < connection.until) {
            if connection.output.is_none() {
                let request = match connection.request() {
                    Ok(request) => request,
                    Err(_) => continue,
                };
                let bytes = match request {
                    Some(Request::Metrics { format, body }) => {
                        let place = match made.iter().position(|(of, _)| *of == format) {
                            Some(place) => place,
                            None => {
                                made.push((format, metrics(format)?));
                                made.len() - 1
                            }
                        };
                        Some(answer("200 OK", format.media_type(), &made[place].1, body))
                    }
                    Some(Request::Refused(status)) => Some(answer(
                        status,
                        Format::Text.media_type(),
                        &format!("{status}: expected GET /metrics\n"),
                        true,
                    )),
                    None => None,
                };
                connection.output = bytes.map(|bytes| (bytes, 0));
            }
            if matches!(connection.send(), Ok(false)) {
                remaining.push_back(connection);
            }
        }
        self.connections = remaining;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_format_is_chosen() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Format::preferred(prometheus), Format::OpenMetrics);
        assert_eq!(
            Format::preferred("application/openmetrics-text; version=1.0.0; q=0.2, text/plain;q=0.5"),
            Format::Text
        );
        for accept in
            ["", "*/*", "text/html", "application/openmetrics-text;q=0", "application/openmetrics-text;q=x"]
        {
            assert_eq!(Format::preferred(accept), Format::Text, "{accept}");
        }
    }

    #[test]
    fn requests_are_read_when_they_are_whole() {
        let scrape = |format, body| Some(Request::Metrics { format, body });
        let refused = |status| Some(Request::Refused(status));
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: application/openmetrics-text\r\n\r\n";
        assert_eq!(Request::parse(whole), scrape(Format::OpenMetrics, true));
        (0..whole.len()).for_each(|len| assert_eq!(Request::parse(&whole[..len]), None, "{len}"));
        assert_eq!(Request::parse(b"HEAD /metrics HTTP/1.0\r\n\r\n"), scrape(Format::Text, false));
        assert_eq!(Request::parse(b"GET / HTTP/1.1\r\n\r\n"), refused("404 Not Found"));
        assert_eq!(Request::parse(b"GET /metricsx HTTP/1.1\r\n\r\n"), refused("404 Not Found"));
        assert_eq!(Request::parse(b"POST /metrics HTTP/1.1\r\n\r\n"), refused("405 Method Not Allowed"));
        assert_eq!(Request::parse(b"\x16\x03\x01\x02\x00"), refused("400 Bad Request"));
        let long = [b"GET /metrics HTTP/1.1\r\nX: ", &[b'a'; REQUEST_MAX][..]].concat();
        assert_eq!(Request::parse(&long), refused("431 Request Header Fields Too Large"));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS + 1));
        assert_eq!(Request::parse(many.as_bytes()), refused("431 Request Header Fields Too Large"));
    }
}
