//! The backends: each takes the same points in another way, and the first that loads and attaches is used.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::Once;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, Program, set_print};

use crate::decode::Decode;
use crate::error::{Error, Result, io_error};
use crate::filter::{COMM_MAX, Filter, PROCESSES_MAX, check_process, check_processes_are_the_hosts};
use crate::join::By;
use crate::layout::{self, CAPTURE_MAX, IDENTITY_BYTES, PAYLOAD_WORDS};
use crate::payers::{self, Payer};
use crate::record::{IdAt, Transport};
use crate::rings::{RINGS_MAX, Rings};
use crate::stamps;
use crate::user::{self, Probe, Site};

/// An object file as bytes, aligned as ELF wants it.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o")));

const QUEUE: &str = "device_queued";
const ARRIVAL: &str = "device_received";
const THREADS: &str = "thread_ended";
const PROGRAMS: &str = "program_begins";
/// The map of the traced processes.
const WHO: &str = ".data.who";

/// A way to take the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Programs at the ends of the address families' functions (fexit).
    Functions,
    /// Tracepoints inside sockets (Linux 6.3).
    Sockets,
    /// A tracepoint at the end of every system call.
    SystemCalls,
    /// Probes in functions of the processes themselves: no backend, only on request ([`Options::probes`]).
    User,
}

impl Backend {
    /// From the first choice to the last.
    pub const ALL: [Backend; 3] = [Backend::Functions, Backend::Sockets, Backend::SystemCalls];

    /// The name in outputs and on the command line.
    pub fn name(self) -> &'static str {
        ["functions", "sockets", "system-calls", "user"][self as usize]
    }

    fn received(self) -> &'static [&'static str] {
        match self {
            Backend::Functions => &[
                "inet_recvmsg_ended",
                "inet6_recvmsg_ended",
                "unix_stream_recvmsg_ended",
                "unix_dgram_recvmsg_ended",
            ],
            Backend::Sockets => &["socket_received"],
            Backend::SystemCalls => &["call_ended"],
            Backend::User => &[user::RECEIVED],
        }
    }

    fn sent(self) -> &'static [&'static str] {
        match self {
            Backend::Functions => &[
                "inet_sendmsg_ended",
                "inet6_sendmsg_ended",
                "unix_stream_sendmsg_ended",
                "unix_dgram_sendmsg_ended",
            ],
            Backend::Sockets => &["socket_sent"],
            Backend::SystemCalls => &["call_ended"],
            Backend::User => &[user::SENT],
        }
    }
}

/// The reason why a backend was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The backend.
    pub backend: Backend,
    /// In words.
    pub reason: String,
}

/// The choice of point C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaves {
    /// At the device's queue, before the packet leaves; Unix sockets, which have none: when the send is done.
    #[default]
    Queue,
    /// The end of the send: cheaper, and its cost lies behind the message; on loopback that includes the delivery.
    Done,
}

/// A process at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Client {
    /// By its number.
    Process(u32),
    /// By its name (`/proc/PID/comm`).
    Name(String),
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.parse() {
            Ok(process) => Ok(Client::Process(process)),
            Err(_) if (1..=COMM_MAX).contains(&text.len()) => Ok(Client::Name(text.to_owned())),
            Err(_) => Err(format!("client `{text}`: expected a process or a name of 1 to {COMM_MAX} bytes")),
        }
    }
}

/// The options of a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// The filter.
    pub filter: Filter,
    /// The place of the messages' id.
    pub id: Option<IdAt>,
    /// Write ids into messages that leave over UDP, where their eight bytes have this value: the first lowest. Such messages are those
    /// of this thread's network namespace, by the devices that are there at the start.
    pub stamp: Option<u64>,
    /// Note when messages over UDP arrive at the devices of this thread's network namespace, too, by their port and id.
    pub arrivals: bool,
    /// The way to read the messages' bytes.
    pub decode: Option<Decode>,
    /// Bytes of each message that are captured for that, its first ones: a multiple of eight; 0: none.
    pub capture: u32,
    /// Processes that send to those that are traced, or receive from them: their sends are A, their receives D.
    pub clients: Vec<Client>,
    /// Note where messages lie in their streams and who sockets are, as [`crate::Hops`] needs it; decoders of streams do so, too. Not by
    /// system calls.
    pub stages: bool,
    /// The choice of point C.
    pub leaves: Leaves,
    /// Records that each CPU's ring holds at most: a power of two.
    pub slots: u32,
    /// Bytes of all rings: they hold fewer records where they would take more, but 256 each or [`Options::slots`].
    pub rings_max: u64,
    /// Only this backend.
    pub backend: Option<Backend>,
    /// Join by thread also in processes whose runtime moves messages between threads ([`crate::Runtime`]).
    pub trust_threads: bool,
    /// Take the points in functions of the processes themselves ([`Backend::User`]), some for each; none: at their sockets.
    pub probes: Vec<Probe>,
}

impl Options {
    /// The defaults: rings of 65,536 records (2.5 MiB a CPU), of 64 MiB in all.
    pub fn new(filter: Filter) -> Options {
        Options {
            filter,
            id: None,
            stamp: None,
            arrivals: false,
            decode: None,
            capture: 0,
            clients: Vec::new(),
            stages: false,
            leaves: Leaves::Queue,
            slots: 1 << 16,
            rings_max: RINGS_MAX,
            backend: None,
            trust_threads: false,
            probes: Vec::new(),
        }
    }

    /// The way that messages are joined.
    pub fn by(&self) -> By {
        if self.id.is_some() || self.decode.is_some() { By::Id } else { By::Thread }
    }

    /// Whether a process's runtime matters.
    pub(crate) fn looks_at_runtimes(&self) -> bool {
        self.by() == By::Thread && !self.trust_threads
    }

    /// Whether only clients are followed: of two hosts, on that of the sender or the receiver.
    pub(crate) fn is_clients_only(&self) -> bool {
        self.filter.is_open() && !self.clients.is_empty()
    }

    /// Refuses what would trace nothing.
    pub fn check_filter(&self) -> Result<()> {
        if self.is_clients_only() { Ok(()) } else { self.filter.check() }
    }

    /// Refuses what no hook can do.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::Argument(text));
        if !self.slots.is_power_of_two() || self.slots > 1 << 24 {
            return wrong(format!("ring of {} records: expected a power of two up to 16777216", self.slots));
        }
        if self.capture > CAPTURE_MAX || !self.capture.is_multiple_of(8) {
            return wrong(format!(
                "capture of {} bytes: expected a multiple of 8 up to {CAPTURE_MAX}",
                self.capture
            ));
        }
        Rings::of(self)?;
        let names = self.clients.iter().filter(|client| matches!(client, Client::Name(_))).count();
        if names > 1 || self.clients.len() - names > PROCESSES_MAX {
            return wrong(format!("clients: expected at most {PROCESSES_MAX} processes and one name"));
        }
        for client in &self.clients {
            if let Client::Process(process) = client {
                check_processes_are_the_hosts()?;
                check_process(*process)?;
            }
        }
        if self.has_streams() && self.backend == Some(Backend::SystemCalls) {
            return wrong("streams are not followed by hooks on system calls".into());
        }
        if self.stamp.is_some() {
            self.check_stamp()?;
        }
        if self.arrivals && (self.id.is_none() || self.filter.port.is_none()) {
            return wrong("arrivals at devices are of messages over UDP, by their port and id".into());
        }
        if self.decode.is_some() && (self.capture == 0 || self.id.is_some()) {
            return wrong("decoding needs captured bytes and no id at an offset".into());
        }
        if !self.probes.is_empty() || self.backend == Some(Backend::User) {
            self.check_probes()?;
        }
        Ok(())
    }

    /// Refuses what only sockets have.
    fn check_probes(&self) -> Result<()> {
        let of_sockets = self.id.is_some()
            || self.decode.is_some()
            || self.capture > 0
            || !self.clients.is_empty()
            || self.stages
            || self.filter.port.is_some()
            || self.leaves != Leaves::Queue
            || self.backend.is_some_and(|backend| backend != Backend::User);
        if of_sockets {
            return Err(Error::Argument(
                "functions have neither sockets nor payloads: no id, decoder, capture, client, stage, port, device queue or other hooks \
                 with probes in them"
                    .into(),
            ));
        }
        Probe::check(&self.probes)
    }

    /// Refuses stamps that could not be written, or not be read.
    fn check_stamp(&self) -> Result<()> {
        let is_id = self.id.is_some_and(|id| id.bytes == 8) && self.leaves == Leaves::Queue;
        if !is_id || !self.filter.transports.contains(&Transport::Udp) {
            return Err(Error::Argument(
                "stamps are ids of eight bytes in messages over UDP, read at the device's queue".into(),
            ));
        }
        let clients = self.clients.iter().filter_map(|client| match client {
            Client::Process(process) => Some(process),
            Client::Name(_) => None,
        });
        let own = stamps::namespace("thread-self");
        match self.filter.processes.iter().chain(clients).find(|process| {
            let theirs = stamps::namespace(&process.to_string());
            theirs.is_some() && theirs != own
        }) {
            Some(process) => Err(Error::OtherNamespace(*process)),
            None => Ok(()),
        }
    }

    /// Whether it is noted where messages lie in their streams, and who sockets are.
    pub(crate) fn has_streams(&self) -> bool {
        self.stages || self.decode.as_ref().is_some_and(Decode::is_of_streams)
    }

    /// Whether anything lies beside records.
    pub(crate) fn has_payloads(&self) -> bool {
        let has_segments = self.leaves == Leaves::Queue && self.filter.transports.contains(&Transport::Tcp);
        self.capture > 0 || self.has_streams() || (self.id.is_some() && has_segments)
    }

    /// Of what lies beside a record.
    pub(crate) fn payload_bytes(&self) -> u32 {
        let identity = if self.has_streams() { IDENTITY_BYTES } else { 0 };
        PAYLOAD_WORDS as u32 * 8 + self.capture.max(identity)
    }
}

/// Hooks in the kernel, attached or not.
#[derive(Debug)]
pub(crate) struct Hooks {
    object: Object,
    programs: Vec<&'static str>,
    links: Vec<Link>,
    /// Devices at which messages are stamped.
    devices: Vec<u32>,
    /// Where in processes the points are taken.
    sites: Vec<Site>,
    pub(crate) backend: Backend,
    pub(crate) refused: Vec<Refusal>,
    pub(crate) rings: Rings,
    /// Programs attached so far.
    pub(crate) attachments: usize,
}

impl Hooks {
    /// Loads and attaches the first backend that holds. If the kernel refuses every backend, the error names each reason.
    /// `inside`: they take their own times.
    pub(crate) fn attach(options: &Options, inside: bool) -> Result<Hooks> {
        let mut refused = Vec::new();
        let mut denied = None;
        let sites = user::find(options)?;
        let rings = Rings::of(options)?;
        let only = if sites.is_empty() { options.backend } else { Some(Backend::User) };
        let backends: Vec<Backend> = only.map_or_else(|| Backend::ALL.to_vec(), |backend| vec![backend]);
        for backend in backends {
            if backend == Backend::SystemCalls && options.has_streams() {
                let reason = "they do not see streams (--client, --records, --decode)".into();
                refused.push(Refusal { backend, reason });
                continue;
            }
            match Hooks::try_backend(options, backend, &sites, rings, inside) {
                Ok(hooks) => return Ok(Hooks { refused, ..hooks }),
                Err(error) => {
                    let error = io_error(&error);
                    let mut reason = reason(backend, &error);
                    if options.stamp.is_some() && error.kind() == io::ErrorKind::InvalidInput {
                        reason.push_str(" (stamps need Linux 6.6)");
                    }
                    refused.push(Refusal { backend, reason });
                    denied = Some(error).filter(|error| error.kind() == io::ErrorKind::PermissionDenied);
                }
            }
        }
        match denied {
            Some(error) if !rustix::process::geteuid().is_root() => Err(Error::Permission(error)),
            _ => Err(Error::NoHooks(refused)),
        }
    }

    fn try_backend(
        options: &Options,
        backend: Backend,
        sites: &[Site],
        rings: Rings,
        inside: bool,
    ) -> std::result::Result<Hooks, libbpf_rs::Error> {
        silence();
        let transports = &options.filter.transports;
        let internet =
            backend != Backend::User && transports.iter().any(|transport| *transport <= Transport::Tcp);
        let at_queue = internet && options.leaves == Leaves::Queue;
        // With the device's queue, a UDP message is known without the end of the send.
        let at_end = !at_queue || transports.iter().any(|transport| *transport != Transport::Udp);
        let mut programs = backend.received().to_vec();
        programs.extend(backend.sent().iter().filter(|name| at_end && !backend.received().contains(name)));
        programs.extend(at_queue.then_some(QUEUE));
        programs.extend(options.arrivals.then_some(ARRIVAL));
        // Their numbers will be others'; joining by thread and names ask for it.
        programs.push(THREADS);
        programs.extend(options.looks_at_runtimes().then_some(PROGRAMS));
        programs.extend(options.stamp.map(|_| stamps::PROGRAM));

        let mut builder = ObjectBuilder::default();
        let mut open = builder.name("trieline_trace")?.open_memory(&OBJECT.0)?;
        // Both fit: `Rings::of`.
        let (cpus, records) = (rings.cpus as u32, rings.rings as u32 * rings.slots);
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some("cpus") => map.set_max_entries(cpus)?,
                Some("records") => map.set_max_entries(records)?,
                Some("payloads") if options.has_payloads() => {
                    map.set_max_entries(records)?;
                    map.set_value_size(options.payload_bytes())?;
                }
                Some(name) if name.ends_with(".rodata") => {
                    map.set_initial_value(&layout::config(options, backend, rings.slots, !at_queue, inside))?;
                }
                Some(WHO) => map.set_initial_value(&layout::who(&options.filter))?,
                _ => {}
            }
        }
        for mut program in open.progs_mut() {
            let wanted = is_one_of(program.name(), &programs);
            program.set_autoload(wanted);
        }
        let devices = if options.stamp.is_some() { stamps::devices()? } else { Vec::new() };
        let object = open.load()?;
        let mut hooks = Hooks {
            object,
            programs,
            links: Vec::new(),
            devices,
            sites: sites.to_vec(),
            backend,
            refused: Vec::new(),
            rings,
            attachments: 0,
        };
        hooks.switch_on()?;
        Ok(hooks)
    }

    /// Attaches all programs.
    pub(crate) fn switch_on(&mut self) -> std::result::Result<(), libbpf_rs::Error> {
        let Hooks { object, programs, devices, sites, backend, .. } = self;
        let mut links = Vec::new();
        let mut wanted: Vec<_> =
            object.progs_mut().filter(|program| is_one_of(program.name(), programs)).collect();
        // Sends go first, on and off: one without its receive is seen to be that, but a receive is joined with any send that follows.
        wanted.sort_by_key(|program| is_one_of(program.name(), backend.received()));
        for program in wanted {
            if program.name() == stamps::PROGRAM {
                stamps::attach(&program, devices, &mut links)?;
            } else if *backend == Backend::User && !is_one_of(program.name(), &[THREADS, PROGRAMS]) {
                user::attach(&program, sites, &mut links)?;
            } else {
                links.push(program.attach()?);
            }
        }
        self.attachments += links.len();
        self.links = links;
        Ok(())
    }

    /// Traces others from now on.
    pub(crate) fn aim(&self, filter: &Filter) -> Result<()> {
        let who = layout::who(filter);
        let failed = Error::bpf("cannot write the filter");
        self.map(WHO)?.update(&0u32.to_ne_bytes(), &who, MapFlags::ANY).map_err(failed)
    }

    /// The processes and packets that meet each hook.
    pub(crate) fn payers(&self) -> Vec<Payer> {
        self.programs.iter().map(|program| payers::of(program)).collect()
    }

    /// Detaches them.
    pub(crate) fn switch_off(&mut self) {
        self.links.clear(); // in their order
    }

    /// A map by its name.
    pub(crate) fn map(&self, name: &str) -> Result<MapHandle> {
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| Error::Argument(format!("the BPF object has no map {name}")))?;
        MapHandle::try_from(&map).map_err(Error::bpf("cannot open a map"))
    }

    /// Events for which a hook was not run, because it was running already on that CPU.
    pub(crate) fn missed(&self) -> u64 {
        let loaded = self.object.progs().filter(|program| is_one_of(program.name(), &self.programs));
        let ids: Vec<u32> = loaded.filter_map(|program| Program::id_from_fd(program.as_fd()).ok()).collect();
        ProgInfoIter::default().filter(|info| ids.contains(&info.id)).map(|info| info.recursion_misses).sum()
    }

    /// Hooks that run when a message is sent and received; over TCP those of acknowledgements come on top.
    pub(crate) fn fires(&self, transport: Transport) -> usize {
        let at_end = self.programs.iter().any(|name| self.backend.sent().contains(name));
        let at_device = usize::from(self.at_queue()) + usize::from(!self.devices.is_empty());
        1 + usize::from(at_end) + if transport <= Transport::Tcp { at_device } else { 0 }
    }

    /// Whether messages are noted at the device's queue.
    pub(crate) fn at_queue(&self) -> bool {
        self.programs.contains(&QUEUE)
    }
}

fn is_one_of(name: &OsStr, names: &[&str]) -> bool {
    name.to_str().is_some_and(|name| names.contains(&name))
}

/// A library does not print: libbpf's messages go to the log.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Debug, |_, text| tracing::debug!("{}", text.trim_end()))));
    });
}

/// The kernel's answer in words.
fn reason(backend: Backend, error: &io::Error) -> String {
    const ESRCH: i32 = 3;
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    let root = rustix::process::geteuid().is_root();
    match (error.raw_os_error(), backend) {
        (Some(ESRCH), Backend::Sockets) => "this kernel has no tracepoints in sockets (Linux 6.3)".into(),
        (Some(ESRCH), Backend::User) => "the process has ended".into(),
        (Some(ENOENT), Backend::User) => "this kernel has no uprobes (CONFIG_UPROBE_EVENTS)".into(),
        (Some(ESRCH), _) => "this kernel's BTF does not have the functions".into(),
        (Some(EPERM), _) if root => match lockdown() {
            Some(mode) => format!("the kernel refuses them even to root (EPERM; lockdown is `{mode}`)"),
            None => "the kernel refuses them even to root (EPERM)".into(),
        },
        _ => error.to_string(),
    }
}

/// The kernel's lockdown, where it is on.
fn lockdown() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    let mode = text.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}
