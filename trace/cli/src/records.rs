//! Files of what hooks noted on a host (`--records`), which `trieline trace join` puts together with those of other hosts.
//!
//! A file is lines of JSON in the order of time: what the trace was, sockets each before its first record, and records. At the end is what
//! was missed. Times are the host's CLOCK_MONOTONIC.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use trieline_trace::{By, Ends, Event, Flags, Kind, Point, Record, Runtime, Seen, Socket, Transport};

use crate::errors::cannot_write;

/// 3: records have their process.
const VERSION: u32 = 3;
/// A record can come so much later than younger ones. A send over TCP has the time of its first segment, and comes with its end.
const WINDOW_NS: u64 = 1_000_000_000;

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Trace(Trace),
    Socket {
        socket: u64,
        transport: String,
        local: Option<SocketAddr>,
        remote: Option<SocketAddr>,
        peer: Option<u64>,
    },
    Record(RecordLine),
    /// A process, before its first record, and its runtime, if that moves messages between threads.
    Process {
        process: u32,
        runtime: Option<String>,
    },
    /// The thread has ended.
    Ended {
        t: u64,
        thread: u32,
    },
    /// Records were lost before, or the hooks were off.
    Gap {
        t: u64,
    },
    End(End),
}

/// The trace of the records.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trace {
    version: u32,
    /// The host: /etc/machine-id.
    pub machine: String,
    /// Its clock: /proc/sys/kernel/random/boot_id.
    pub boot: String,
    /// How far its wall clock (CLOCK_REALTIME) was ahead of CLOCK_MONOTONIC, nanoseconds.
    wall_ahead_ns: i64,
    /// Whether UDP and TCP were noted at the device's queue.
    pub at_queue: bool,
    /// Whether messages have ids.
    by_id: bool,
}

impl Trace {
    /// The wall clock's time, nanoseconds: right to what NTP does, so good for an order only.
    pub fn wall_ns(&self, time_ns: u64) -> u64 {
        time_ns.saturating_add_signed(self.wall_ahead_ns)
    }

    /// How its messages are joined.
    pub fn by(&self) -> By {
        if self.by_id { By::Id } else { By::Thread }
    }
}

/// Counts of missed records.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct End {
    /// Records.
    pub lost: u64,
    /// Events.
    pub missed: u64,
    /// Records too late for the file's order.
    pub late: u64,
    /// Records of a time in which others were lost.
    #[serde(default)]
    pub discarded: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordLine {
    t: u64,
    at: String,
    transport: String,
    socket: u64,
    thread: u32,
    process: u32,
    bytes: u32,
    position: u32,
    id: Option<u64>,
    kind: String,
    flags: u16,
}

/// Lines that wait to be written, in the order of their time, each with its new definitions.
#[derive(Debug)]
struct Waiting {
    first: First,
    line: Line,
}

/// A process and a socket whose first record it is.
#[derive(Debug, Default)]
struct First {
    process: Option<(u32, Option<Runtime>)>,
    socket: Option<Socket>,
}

/// A file being written.
#[derive(Debug)]
pub struct RecordWriter {
    path: PathBuf,
    out: BufWriter<File>,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: HashMap<u64, Waiting>,
    next: u64,
    /// Sockets that have no record yet.
    new: BTreeMap<u64, Socket>,
    /// The same of processes.
    new_processes: BTreeMap<u32, Option<Runtime>>,
    youngest_ns: u64,
    written_ns: u64,
    late: u64,
    failed: Option<std::io::Error>,
}

impl RecordWriter {
    /// Opens it, before anything is traced.
    pub fn create(path: &Path) -> anyhow::Result<RecordWriter> {
        let out = File::create(path).with_context(|| cannot_write(path))?;
        Ok(RecordWriter {
            path: path.into(),
            out: BufWriter::new(out),
            order: BinaryHeap::new(),
            waiting: HashMap::new(),
            next: 0,
            new: BTreeMap::new(),
            new_processes: BTreeMap::new(),
            youngest_ns: 0,
            written_ns: 0,
            late: 0,
            failed: None,
        })
    }

    /// Writes the trace's own line.
    pub fn begin(&mut self, by: By, at_queue: bool) -> anyhow::Result<()> {
        let read = |path: &str| {
            fs::read_to_string(path)
                .map(|text| text.trim().to_owned())
                .with_context(|| format!("cannot read {path}"))
        };
        let boot = read("/proc/sys/kernel/random/boot_id")?;
        // Containers and small systems have none.
        let machine = read("/etc/machine-id").unwrap_or_else(|_| boot.clone());
        let by_id = by == By::Id;
        let wall_ahead_ns = clock_ns(ClockId::Realtime) - clock_ns(ClockId::Monotonic);
        self.write(&Line::Trace(Trace { version: VERSION, machine, boot, wall_ahead_ns, at_queue, by_id }));
        // A process that waits for the file knows now that the trace is on.
        self.out.flush().with_context(|| cannot_write(&self.path))
    }

    /// The next event.
    pub fn take(&mut self, event: &Event) {
        let (time_ns, line, first) = match event {
            Event::Socket(socket) => {
                self.new.insert(socket.number, *socket);
                return;
            }
            Event::Record(record) | Event::Passed(record) => {
                let first = First {
                    process: self.new_processes.remove_entry(&record.process),
                    socket: self.new.remove(&record.socket),
                };
                (record.time_ns, Line::Record(record_line(record)), first)
            }
            Event::Process { process, runtime } => {
                self.new_processes.insert(*process, *runtime);
                return;
            }
            Event::Ended { time_ns, thread } => {
                (*time_ns, Line::Ended { t: *time_ns, thread: *thread }, First::default())
            }
            Event::Gap { time_ns } => (*time_ns, Line::Gap { t: *time_ns }, First::default()),
        };
        self.order.push(Reverse((time_ns, self.next)));
        self.waiting.insert(self.next, Waiting { first, line });
        self.next += 1;
        self.youngest_ns = self.youngest_ns.max(time_ns);
        self.write_until(self.youngest_ns.saturating_sub(WINDOW_NS));
    }

    fn write_until(&mut self, until_ns: u64) {
        while let Some(Reverse((time_ns, number))) = self.order.peek().copied()
            && time_ns <= until_ns
        {
            self.order.pop();
            let Some(Waiting { first, line }) = self.waiting.remove(&number) else { continue };
            if let Some((process, runtime)) = first.process {
                let runtime = runtime.map(|runtime| runtime.name().into());
                self.write(&Line::Process { process, runtime });
            }
            if let Some(socket) = first.socket {
                self.write(&socket_line(&socket));
            }
            if time_ns < self.written_ns {
                self.late += 1;
            } else {
                self.written_ns = time_ns;
                self.write(&line);
            }
        }
    }

    fn write(&mut self, line: &Line) {
        if self.failed.is_none() {
            let written = serde_json::to_writer(&mut self.out, line).map_err(Into::into);
            self.failed = written.and_then(|()| self.out.write_all(b"\n")).err();
        }
    }

    /// Why it cannot be written, if it cannot.
    pub fn failure(&mut self) -> Option<anyhow::Error> {
        let failed = self.failed.take()?;
        Some(anyhow::Error::from(failed).context(cannot_write(&self.path)))
    }

    /// Ends the file.
    pub fn finish(mut self, seen: Seen) -> anyhow::Result<()> {
        self.write_until(u64::MAX);
        let Seen { lost, missed, late, discarded } = seen;
        self.write(&Line::End(End { lost, missed, late: self.late + late, discarded }));
        let done = self.failed.map_or_else(|| self.out.flush(), Err);
        done.with_context(|| cannot_write(&self.path))
    }
}

fn clock_ns(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn socket_line(socket: &Socket) -> Line {
    let (local, remote, peer) = match socket.ends {
        Ends::Internet { local, remote } => (Some(local), Some(remote), None),
        Ends::Unix(peer) => (None, None, peer),
    };
    Line::Socket { socket: socket.number, transport: socket.transport.name().into(), local, remote, peer }
}

fn record_line(record: &Record) -> RecordLine {
    RecordLine {
        t: record.time_ns,
        at: record.point.name().into(),
        transport: record.transport.name().into(),
        socket: record.socket,
        thread: record.thread,
        process: record.process,
        bytes: record.bytes,
        position: record.position,
        id: record.id,
        kind: record.kind.name().into(),
        flags: record.flags.0,
    }
}

/// A file that was read.
#[derive(Debug)]
pub struct RecordFile {
    /// Where it was.
    pub path: PathBuf,
    /// The trace.
    pub trace: Trace,
    /// All of it, in the order of time.
    pub events: Vec<Event>,
    /// Counts of missed records; `None`: the trace did not end by itself.
    pub end: Option<End>,
}

impl RecordFile {
    /// Reads one; whatever is wrong is named with its line.
    pub fn read(path: &Path) -> anyhow::Result<RecordFile> {
        let name = path.display();
        let mut lines =
            BufReader::new(File::open(path).with_context(|| format!("cannot read {name}"))?).lines();
        let parse = |text: &str, number: usize| -> anyhow::Result<Line> {
            serde_json::from_str(text)
                .with_context(|| format!("{name}:{number}: expected a line of trieline trace --records"))
        };
        let Some(first) = lines.next() else {
            bail!("{name}: empty: expected a file of trieline trace --records")
        };
        let trace = match parse(&first.with_context(|| format!("cannot read {name}"))?, 1)? {
            Line::Trace(trace) if trace.version == VERSION => trace,
            Line::Trace(trace) => bail!("{name}:1: version {}: expected {VERSION}", trace.version),
            _ => bail!("{name}:1: expected the trace's own line (\"line\":\"trace\")"),
        };
        let mut file = RecordFile { path: path.into(), trace, events: Vec::new(), end: None };
        let mut last_ns = 0;
        for (index, text) in lines.enumerate() {
            let number = index + 2;
            let line = parse(&text.with_context(|| format!("cannot read {name}"))?, number)?;
            if file.end.is_some() {
                bail!("{name}:{number}: a line after the end: expected one trace in a file");
            }
            match line {
                Line::Record(RecordLine { t, .. }) | Line::Ended { t, .. } | Line::Gap { t }
                    if t < last_ns =>
                {
                    bail!(
                        "{name}:{number}: the clock goes backwards: {t} after {last_ns}: expected records of one boot in the order of time"
                    )
                }
                Line::Ended { t, thread } => {
                    last_ns = t;
                    file.events.push(Event::Ended { time_ns: t, thread });
                }
                Line::Process { process, runtime } => {
                    let named = |text: &String| named(&Runtime::ALL, Runtime::name, text);
                    let runtime = runtime.as_ref().map(named).transpose();
                    let runtime = runtime.with_context(|| format!("{name}:{number}"))?;
                    file.events.push(Event::Process { process, runtime });
                }
                Line::Gap { t } => {
                    last_ns = t;
                    file.events.push(Event::Gap { time_ns: t });
                }
                Line::Record(line) => {
                    last_ns = line.t;
                    let record = record(&line).with_context(|| format!("{name}:{number}"))?;
                    file.events.push(record.into());
                }
                Line::Socket { socket, transport, local, remote, peer } => {
                    let transport = named(&Transport::ALL, Transport::name, &transport)
                        .with_context(|| format!("{name}:{number}"))?;
                    let ends = local
                        .zip(remote)
                        .map_or(Ends::Unix(peer), |(local, remote)| Ends::Internet { local, remote });
                    file.events.push(Event::Socket(Socket { number: socket, transport, ends }));
                }
                Line::End(end) => file.end = Some(end),
                Line::Trace(_) => bail!("{name}:{number}: a second trace: expected one in a file"),
            }
        }
        Ok(file)
    }
}

fn record(line: &RecordLine) -> anyhow::Result<Record> {
    Ok(Record {
        time_ns: line.t,
        socket: line.socket,
        id: line.id,
        thread: line.thread,
        process: line.process,
        bytes: line.bytes,
        point: named(&Point::ALL, Point::name, &line.at)?,
        transport: named(&Transport::ALL, Transport::name, &line.transport)?,
        kind: named(&Kind::ALL, Kind::name, &line.kind)?,
        position: line.position,
        flags: Flags(line.flags),
    })
}

fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> anyhow::Result<T> {
    let found = all.iter().copied().find(|one| name(*one) == text);
    let names = || all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ");
    found.with_context(|| format!("`{text}`: expected one of {}", names()))
}
