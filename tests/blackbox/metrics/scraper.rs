//! A server of metrics as a process, and a scraper that reads its answers strictly.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trieline_testbed::command::binary_path;
use trieline_testbed::namespace::Namespace;

pub const TEXT: &str = "text/plain;version=0.0.4";
pub const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

/// `trieline metrics serve` in a namespace; dropping this ends it.
pub struct Server<'a> {
    child: Child,
    namespace: &'a Namespace,
    address: SocketAddr,
}

impl<'a> Server<'a> {
    /// Starts it as root.
    pub fn start(namespace: &'a Namespace, wrap: &[&str]) -> Self {
        Self::start_as(namespace, wrap, &binary_path("trieline"))
    }

    /// Starts `program` behind the words `wrap`.
    pub fn start_as(namespace: &'a Namespace, wrap: &[&str], program: &str) -> Self {
        namespace.ip("link set lo up");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", namespace.name())).args(wrap).arg(program);
        command
            .args(["metrics", "serve", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
        let first = lines.next().expect("a message").expect("a message");
        let address = first.rsplit_once("http://").and_then(|(_, rest)| rest.strip_suffix("/metrics"));
        let address = address.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("{first}"));
        // The server must not wait for a reader of its messages.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
        Self { child, namespace, address }
    }

    pub fn connect(&self) -> TcpStream {
        let address = self.address;
        let stream = self.namespace.enter(move || TcpStream::connect(address)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    }

    /// The whole answer to a request.
    pub fn answer_to(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// A scrape that accepts these media types.
    pub fn scrape(&self, accept: &str) -> Scrape {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: node\r\nAccept: {accept}\r\n\r\n");
        let answer = self.answer_to(request.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
        assert_eq!(length.parse(), Ok(body.len()));
        let openmetrics = accept == OPENMETRICS;
        let media_type = if openmetrics {
            "application/openmetrics-text; version=1.0.0"
        } else {
            "text/plain; version=0.0.4"
        };
        assert!(head.contains(&format!("\r\nContent-Type: {media_type}; charset=utf-8")), "{head}");
        Scrape::parse(body, openmetrics)
    }

    /// Memory of the process.
    pub fn resident_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
pub struct Scrape {
    /// Samples by name and labels.
    samples: BTreeMap<String, f64>,
    /// Names of metrics as samples have them.
    pub types: BTreeMap<String, String>,
    /// Names of metrics that have samples.
    pub names: BTreeSet<String>,
    /// Labels of each metric, each with its values.
    pub labels: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

/// The labels of a series, with their values.
fn labels(series: &str) -> Vec<(String, String)> {
    let (_, mut rest) = series.split_once('{').unwrap_or(("", ""));
    let mut found = Vec::new();
    while let Some((label, behind)) = rest.split_once("=\"") {
        let mut escaped = false;
        let end = behind.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let (value, behind) = behind.split_at(end.unwrap_or_else(|| panic!("{series}")));
        found.push((label.trim_start_matches(',').to_owned(), value.to_owned()));
        rest = &behind[1..];
    }
    assert!(rest.is_empty() || rest == "}", "{series}");
    found
}

impl Scrape {
    /// Reads an answer; a line that the format does not allow is a failure.
    fn parse(body: &str, openmetrics: bool) -> Self {
        assert_eq!(body.ends_with("\n# EOF\n"), openmetrics, "{body}");
        let mut found = Self {
            samples: BTreeMap::new(),
            types: BTreeMap::new(),
            names: BTreeSet::new(),
            labels: BTreeMap::new(),
        };
        let (mut help, mut family) = (None, None);
        for line in body.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, text) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
                assert!(text.len() > 5 && name.starts_with("trieline_"), "{line}");
                help = Some(name);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
                assert_eq!(help, Some(name), "{line}");
                // OpenMetrics describes a counter without the end that its samples have.
                let ends = if openmetrics && kind == "counter" { "_total" } else { "" };
                assert!(kind != "counter" || openmetrics || name.ends_with("_total"), "{line}");
                let name = format!("{name}{ends}");
                assert!(found.types.insert(name.clone(), kind.into()).is_none(), "twice: {line}");
                family = Some((name, kind));
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
                let (of, kind) = family.as_ref().unwrap_or_else(|| panic!("{line}"));
                let name = series.split('{').next().unwrap_or_default();
                let is_part = || ["_bucket", "_sum", "_count"].iter().any(|end| name == format!("{of}{end}"));
                assert!(name == of || *kind == "histogram" && is_part(), "{line}");
                let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(found.samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
                found.names.insert(of.clone());
                let known = found.labels.entry(of.clone()).or_default();
                for (label, value) in labels(series) {
                    known.entry(label).or_default().insert(value);
                }
            }
        }
        found
    }

    /// The value of a sample, by its name and labels.
    #[track_caller]
    pub fn value(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series} in {:?}", self.samples))
    }

    /// Packets of a device that XDP forwarded.
    pub fn forwarded(&self, device: &str) -> f64 {
        let begin = format!("trieline_packets_total{{iface=\"{device}\",");
        let of = |series: &&String| series.starts_with(&begin) && series.contains("kind=\"forward\"");
        self.samples.iter().filter(|(series, _)| of(series)).map(|(_, packets)| packets).sum()
    }

    /// The labels of a metric, or of a part of a histogram, with their values.
    pub fn labels_of(&self, name: &str) -> BTreeMap<String, BTreeSet<String>> {
        let whole = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let names = [Some(name), whole].into_iter().flatten();
        names.filter_map(|name| self.labels.get(name)).next().cloned().unwrap_or_default()
    }

    /// Whether an expression may use this name: that of a metric, or of a part of a histogram.
    pub fn has(&self, name: &str) -> bool {
        let whole = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        self.types.contains_key(name)
            || whole.and_then(|name| self.types.get(name)).is_some_and(|kind| kind == "histogram")
    }
}
