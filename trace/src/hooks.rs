//! The hooks: the programs of the first backend that loads and attaches.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::sync::Once;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, Program, set_print};

use crate::backend::{Backend, Refusal};
use crate::error::{Error, Result, io_error};
use crate::filter::Filter;
use crate::layout;
use crate::options::{Leaves, Options};
use crate::payers::{self, Payer};
use crate::record::Transport;
use crate::rings::Rings;
use crate::stamps;
use crate::user::{self, Site};

/// An object file as bytes, aligned as ELF wants it.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o")));
/// The same hooks for traces without further settings, which they neither read nor test.
static PLAIN: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/plain.bpf.o")));

const QUEUE: &str = "device_queued";
const ARRIVAL: &str = "device_received";
const THREADS: &str = "thread_ended";
const PROGRAMS: &str = "program_begins";
/// The map of the traced processes.
const WHO: &str = ".data.who";

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
        let sites = user::find(&options.probes, &options.filter)?;
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
        let mut programs = received(backend).to_vec();
        programs.extend(sent(backend).iter().filter(|name| at_end && !received(backend).contains(name)));
        programs.extend(at_queue.then_some(QUEUE));
        programs.extend(options.arrivals.then_some(ARRIVAL));
        // Their numbers will be others'; joining by thread and names ask for it.
        programs.push(THREADS);
        programs.extend(options.looks_at_runtimes().then_some(PROGRAMS));
        programs.extend(options.stamp.map(|_| stamps::PROGRAM));

        let mut builder = ObjectBuilder::default();
        let config = layout::config(options, backend, rings.slots, !at_queue, inside);
        let object = if layout::is_plain(&config) { PLAIN } else { OBJECT };
        let mut open = builder.name("trieline_trace")?.open_memory(&object.0)?;
        // Both fit: `Rings::of`.
        let (cpus, records) = (rings.cpus as u32, rings.rings as u32 * rings.slots);
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some("cpus") => map.set_max_entries(cpus)?,
                Some("rings") => {
                    map.set_max_entries(rings.rings as u32)?;
                    map.set_value_size(rings.ring_bytes() as u32)?;
                }
                Some("payloads") if options.has_payloads() => {
                    map.set_max_entries(records)?;
                    map.set_value_size(layout::payload_bytes(options))?;
                }
                Some(name) if name.ends_with(".rodata") => {
                    map.set_initial_value(&config)?;
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
        wanted.sort_by_key(|program| is_one_of(program.name(), received(*backend)));
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
        let at_end = self.programs.iter().any(|name| sent(self.backend).contains(name));
        let at_device = usize::from(self.at_queue()) + usize::from(!self.devices.is_empty());
        1 + usize::from(at_end) + if transport <= Transport::Tcp { at_device } else { 0 }
    }

    /// Whether messages are noted at the device's queue.
    pub(crate) fn at_queue(&self) -> bool {
        self.programs.contains(&QUEUE)
    }
}

/// The programs that take the receives.
fn received(backend: Backend) -> &'static [&'static str] {
    match backend {
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

/// The programs that take the sends.
fn sent(backend: Backend) -> &'static [&'static str] {
    match backend {
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
