//! The traced processes, and the way of tracing, on the command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use trieline_trace::{
    Backend, Cgroup, Client, DECODERS, Decode, Filter, IdAt, Leaves, MessageId, Options, StampAt, Transport,
    sees_host_processes,
};

use trieline_terminal::usage;

use crate::cgroup;
use crate::probes::ProbeArgs;

/// Records of a ring, unless set: 2.5 MiB a CPU. If bytes are captured, fewer, as each is larger. In both cases 64 MiB for all CPUs at
/// most.
const SLOTS: u32 = 1 << 16;
const SLOTS_CAPTURING: u32 = 1 << 14;

/// The traced processes, and the way of tracing.
#[derive(Args, Debug, Clone)]
pub struct What {
    /// Trace this process; repeatable
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Also trace its descendants, up to four generations
    #[arg(long, requires = "pid")]
    pub children: bool,
    /// Trace processes of this name (/proc/PID/comm)
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Trace processes of this cgroup and below it
    ///
    /// A directory, in full or below where cgroups are mounted.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// Trace processes of this container
    ///
    /// Of Docker, Podman, containerd or LXC.
    #[arg(long, value_name = "NAME|ID", conflicts_with_all = ["cgroup", "unit"])]
    pub container: Option<String>,
    /// Trace processes of this systemd unit
    ///
    /// A name without an ending is a service.
    #[arg(long, value_name = "NAME", conflicts_with = "cgroup")]
    pub unit: Option<String>,
    /// Trace only sockets with this local or remote port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Trace only these transports, with commas between
    ///
    /// udp, tcp, unix-stream, unix-datagram, unix-seqpacket (either of the last two is both).
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = transport)]
    pub transport: Vec<Transport>,
    /// Join by an id in the message: BYTES (1 to 8) at OFFSET
    ///
    /// RECEIVED/SENT:BYTES if the id is sent at another offset than received. regex:PATTERN for a regular expression over the message's
    /// first bytes. The id is its first group, or all of the match.
    #[arg(long, value_name = "OFFSET:BYTES|regex:PATTERN")]
    pub id: Option<MessageId>,
    /// Write an id into messages over UDP, and join by it
    ///
    /// Each message needs eight reserved bytes at OFFSET (zeros, or HEX). The id is the time of CLOCK_MONOTONIC in nanoseconds, the
    /// lowest byte first.
    #[arg(long, value_name = "OFFSET[:HEX]", conflicts_with_all = ["id", "decode", "done"])]
    pub stamp: Option<StampAt>,
    /// Also note arrivals over UDP at devices (R)
    ///
    /// At the devices of this network namespace, by --port and --id or --stamp.
    #[arg(long, requires = "port", conflicts_with = "decode")]
    pub arrivals: bool,
    /// Decode messages of this protocol, and join by their ids
    #[arg(long, value_name = "PROTOCOL", long_help = decode_help())]
    pub decode: Option<Decode>,
    /// Capture so many bytes of each call
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=4096), long_help = capture_help())]
    pub capture: Option<u32>,
    /// Follow messages from and to this process; repeatable
    ///
    /// By number or name: its sends are A, its receives D.
    #[arg(long, value_name = "PID|NAME")]
    pub client: Vec<Client>,
    /// Take C at the end of the send, not at the device's queue
    #[arg(long)]
    pub done: bool,
    /// Join by thread even if a runtime moves messages
    ///
    /// Go, tokio and Erlang move messages between threads.
    #[arg(long, conflicts_with_all = ["id", "decode", "stamp"])]
    pub trust_threads: bool,
    /// Use only these hooks: functions, sockets or system-calls
    ///
    /// By default, the first that the kernel accepts.
    #[arg(long, value_name = "NAME", value_parser = backend)]
    pub hooks: Option<Backend>,
    #[command(flatten)]
    pub probes: ProbeArgs,
    /// Hold so many records in each CPU's ring: a power of two
    ///
    /// By default 65536, with captured bytes 16384; fewer, but at least 256, if all rings would take more than 64 MiB.
    #[arg(long, value_name = "N", value_parser = slots)]
    pub ring: Option<u32>,
}

/// The help of --decode, from the list of decoders.
fn decode_help() -> String {
    let names: Vec<String> =
        DECODERS.iter().map(|known| format!("{} ({})", known.name, known.about)).collect();
    format!(
        "Decode messages of this protocol, and join by their ids\n\n\
         {}, or `length:OFFSET:WIDTH[:le][:+N|:-N]` for messages with their length before them; --id may give the id of those.",
        names.join(", ")
    )
}

/// The help of --capture, with the decoders that capture more or less.
fn capture_help() -> String {
    let others = DECODERS.iter().filter(|known| known.capture != Decode::CAPTURE);
    let others: String = others.map(|known| format!(", with {} {}", known.name, known.capture)).collect();
    format!(
        "Capture so many bytes of each call\n\n\
         For a pattern or a decoder: its first bytes [default: {}{others}].",
        Decode::CAPTURE
    )
}

/// Seconds above 0.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or("expected seconds above 0".into())
}

/// Transports by the names that the command line has for them.
const TRANSPORTS: [(&str, Transport); 5] = [
    ("udp", Transport::Udp),
    ("tcp", Transport::Tcp),
    ("unix-stream", Transport::UnixStream),
    ("unix-datagram", Transport::UnixDatagram),
    // Hooks see that messages have borders, which they have in both.
    ("unix-seqpacket", Transport::UnixDatagram),
];

fn transport(text: &str) -> Result<Transport, String> {
    let found = TRANSPORTS.into_iter().find(|(name, _)| *name == text);
    let names = || TRANSPORTS.map(|(name, _)| name).join(", ");
    found.map(|(_, transport)| transport).ok_or_else(|| format!("expected one of {}", names()))
}

fn backend(text: &str) -> Result<Backend, String> {
    let found = Backend::ALL.into_iter().find(|backend| backend.name() == text);
    found.ok_or_else(|| format!("expected one of {}", Backend::ALL.map(Backend::name).join(", ")))
}

fn slots(text: &str) -> Result<u32, String> {
    let slots =
        text.parse().ok().filter(|slots: &u32| slots.is_power_of_two() && (16..=1 << 23).contains(slots));
    slots.ok_or("expected a power of two from 16 to 8388608".into())
}

impl What {
    /// The cgroup that is traced.
    pub fn place(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(match (&self.container, &self.unit) {
            (Some(name), _) => Some(cgroup::container(&Cgroup::root()?, Path::new("/"), name)?),
            (None, Some(name)) => Some(cgroup::unit(&Cgroup::root()?, name)?),
            (None, None) => self.cgroup.clone(),
        })
    }

    /// The search in messages: for an id at a place, or for a decoder's findings.
    fn looked_for(&self) -> anyhow::Result<(Option<IdAt>, Option<Decode>)> {
        Ok(match (&self.decode, &self.id) {
            (Some(Decode::Length(length, _)), id) => (None, Some(Decode::Length(*length, id.clone()))),
            (Some(decode), None) => (None, Some(decode.clone())),
            (Some(_), Some(_)) => {
                let why = "--id goes with --decode length:… only: other protocols have ids of their own";
                return Err(usage(why.into()).into());
            }
            (None, Some(MessageId::At(at))) => (Some(*at), None),
            (None, Some(MessageId::Pattern(pattern))) => (None, Some(Decode::Pattern(pattern.clone()))),
            (None, None) => {
                (self.stamp.map(|at| IdAt { received: at.offset, sent: at.offset, bytes: 8 }), None)
            }
        })
    }

    /// Refuses what only sockets have, beside probes in functions.
    fn check_probes(&self) -> anyhow::Result<()> {
        if self.probes.uprobe.is_empty() && self.probes.usdt.is_empty() {
            return Ok(());
        }
        let no_socket = "a function has no socket";
        let no_bytes = "a function shows no bytes of a message, so trieline joins by thread";
        let given = [
            ("--port", self.port.is_some(), no_socket),
            ("--transport", !self.transport.is_empty(), no_socket),
            ("--arrivals", self.arrivals, no_socket),
            ("--client", !self.client.is_empty(), no_socket),
            ("--id", self.id.is_some(), no_bytes),
            ("--decode", self.decode.is_some(), no_bytes),
            ("--capture", self.capture.is_some(), no_bytes),
            ("--stamp", self.stamp.is_some(), no_bytes),
            ("--done", self.done, "C is where the probe is"),
            ("--hooks", self.hooks.is_some(), "the probes are the hooks"),
        ];
        match given.into_iter().find(|(_, is_given, _)| *is_given) {
            Some((option, _, why)) => {
                Err(usage(format!("{option} does not go with --uprobe and --usdt: {why}")).into())
            }
            None => Ok(()),
        }
    }

    /// For the tracer.
    pub fn options(&self) -> anyhow::Result<Options> {
        self.check_probes()?;
        let mut filter = Filter {
            processes: self.pid.clone(),
            descendants: self.children,
            comm: self.comm.clone(),
            cgroup: self.place()?.as_deref().map(Cgroup::open).transpose()?,
            port: self.port,
            // Hooks know it by the host's number.
            except: sees_host_processes().then(std::process::id),
            ..Filter::default()
        };
        if !self.transport.is_empty() {
            filter.transports.clone_from(&self.transport);
        }
        let leaves = if self.done { Leaves::Done } else { Leaves::Queue };
        let (id, decode) = self.looked_for()?;
        if decode.is_none() && self.capture.is_some() {
            let why = "--capture: nothing looks at the bytes; it goes with --decode or --id regex:PATTERN";
            return Err(usage(why.into()).into());
        }
        let capture = |decode: &Decode| self.capture.unwrap_or(decode.capture()).next_multiple_of(8);
        let capture = decode.as_ref().map_or(0, capture);
        Ok(Options {
            id,
            stamp: self.stamp.map(|at| at.reserved),
            arrivals: self.arrivals,
            decode,
            capture,
            clients: self.client.clone(),
            stages: !self.client.is_empty(),
            leaves,
            slots: self.ring.unwrap_or(if capture > 0 { SLOTS_CAPTURING } else { SLOTS }),
            rings_max: if self.ring.is_some() { u64::MAX } else { Options::new(Filter::default()).rings_max },
            backend: self.hooks,
            trust_threads: self.trust_threads,
            probes: self.probes.probes(),
            ..Options::new(filter)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn the_help_and_the_docs_list_the_transports_that_are_taken() {
        let taken = TRANSPORTS.map(|(name, _)| name);
        for (name, known) in TRANSPORTS {
            assert_eq!(transport(name), Ok(known));
            assert!(known.name() == name || name == "unix-seqpacket", "{name} is called {known} in outputs");
        }
        assert!(Transport::SOCKETS.iter().all(|known| taken.contains(&known.name())));

        let command = What::augment_args(clap::Command::new("trace"));
        let option = command.get_arguments().find(|option| option.get_id() == "transport").unwrap();
        let help = option.get_long_help().unwrap().to_string();
        let listed = help.lines().last().unwrap().split(" (").next().unwrap();
        assert_eq!(listed.split(", ").collect::<Vec<_>>(), taken, "{help}");

        // The table of what is seen has UDP and TCP once for each version of IP.
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let pages = fs::read_dir(docs).unwrap().map(|page| page.unwrap().path());
        let pages = pages.filter(|page| page.extension().is_some_and(|ending| ending == "md"));
        let lines: Vec<String> = pages
            .flat_map(|page| fs::read_to_string(page).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| line.starts_with("- Transports: `"))
            .collect();
        let [line] = &lines[..] else { panic!("docs list transports in these lines: {lines:?}") };
        let documented =
            line.split('`').nth(1).unwrap().split(' ').map(|name| name.trim_end_matches(['4', '6']));
        assert_eq!(documented.collect::<BTreeSet<_>>(), BTreeSet::from(taken), "{line}");
    }
}
