//! The answer of `trieline node status`: written by the daemon, read by the command, so both use these types.

use serde::{Deserialize, Serialize};

/// State of a daemon, or of what one left behind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// A daemon answers. Without a daemon, the status has only the pins' state.
    pub running: bool,
    /// Version of the daemon.
    pub version: String,
    /// Its process id.
    pub pid: Option<u32>,
    /// Seconds since its start.
    pub uptime_seconds: f64,
    /// Inode of the network namespace.
    pub namespace: u64,
    /// Map type of the image: `arena` or `array`.
    pub map_type: String,
    /// The image's memory.
    pub image: ImageStatus,
    /// Attached devices.
    pub devices: Vec<DeviceStatus>,
    /// Names of configured devices that there are not: each is taken when it comes.
    pub missing: Vec<String>,
    /// Configured devices that refuse the XDP program: each is tried again.
    pub refused: Vec<Refused>,
    /// Other deviations from the configuration since a restart: SID hooks, tables.
    pub problems: Vec<String>,
    /// Seconds that XDP forwards without a heartbeat of the daemon; none: without end.
    pub max_stale: Option<f64>,
    /// Seconds since the last heartbeat.
    pub silent: Option<f64>,
    /// The last heartbeat is longer ago than `max_stale`: all packets are the kernel's.
    pub stale: bool,
    /// Filters, in the order they are asked.
    pub filters: Vec<crate::filter::FilterStatus>,
    /// IPv4 and IPv6.
    pub families: Vec<FamilyStatus>,
    /// Distinct ways of forwarding among all routes.
    pub nexthop_groups: usize,
    /// Neighbours with a host entry.
    pub hosts: usize,
    /// Paths and host entries that wait for a neighbour's MAC address.
    pub unresolved: usize,
    /// Actions in use, of how many.
    pub actions: Usage,
    /// Times that an action could not be written for want of room.
    pub actions_refused: u64,
    /// Routes that only the kernel can follow, by what they do.
    pub punted: Vec<Punted>,
    /// Processing that packets bypass if XDP forwards them, or would.
    pub bypassed: Vec<Bypassed>,
    /// Following the kernel.
    pub mirror: MirrorStatus,
    /// Times that the kernel dropped changes because the socket's buffer was full (ENOBUFS).
    pub overruns: u64,
    /// Times that routes were dumped again.
    pub resyncs: u64,
    /// Packets by verdict, over all devices.
    pub counters: Vec<Counter>,
}

/// A device that refuses the XDP program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refused {
    /// Its name.
    pub dev: String,
    /// The reason.
    pub reason: String,
}

impl Status {
    /// Adds how current the tables are.
    pub fn with_heartbeat(self, heartbeat: trieline_dataplane::Heartbeat) -> Self {
        let seconds = |time: std::time::Duration| time.as_secs_f64();
        Self {
            max_stale: heartbeat.limit.map(seconds),
            silent: heartbeat.silent.map(seconds),
            stale: heartbeat.is_stale(),
            ..self
        }
    }
}

/// Used and possible.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Usage {
    /// In use.
    pub used: u64,
    /// There are.
    pub limit: u64,
}

/// Memory of the image, bytes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageStatus {
    /// Limit.
    pub bytes: u64,
    /// In use by tables.
    pub used: u64,
    /// Replaced, not yet free.
    pub limbo: u64,
    /// The most that both have come to.
    pub peak: u64,
    /// In chunks that hold anything.
    pub claimed: u64,
}

/// Ways of forwarding whose packets are passed to the kernel, which knows how to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Punted {
    /// `seg6` with its mode, `seg6local` with its behaviour, another encapsulation, or the type of the routes.
    pub what: String,
    /// The number of distinct groups.
    pub nexthop_groups: usize,
    /// The verdict of their packets: `unsupported`, `no_device`, `no_xdp_xmit`, `no_carrier`, `table_full`, `on_link`.
    pub reason: String,
    /// The device they leave by, where it is the reason.
    pub dev: Option<String>,
    /// The exact reason, and what helps.
    pub hint: Option<String>,
}

impl std::fmt::Display for Punted {
    /// The cause, its reason, and what helps.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, dev) = (&self.what, self.dev.as_deref().unwrap_or("?"));
        write!(
            f,
            "{} {} of {what}: ",
            self.nexthop_groups,
            if self.nexthop_groups == 1 { "way" } else { "ways" }
        )?;
        match self.reason.as_str() {
            "no_device" => write!(f, "{dev} is not one of `devices`"),
            "no_xdp_xmit" => {
                write!(f, "{dev} takes no redirected frames (a veth: ethtool -K PEER gro on, at its peer)")
            }
            "no_carrier" => write!(f, "{dev} is down or without carrier"),
            "table_full" => f.write_str(
                "no room for its action: set a larger next_hops and restart trielined, or use fewer groups",
            ),
            _ => f.write_str(self.hint.as_deref().unwrap_or("only the kernel can follow it")),
        }
    }
}

/// Something that the kernel does to packets and XDP does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bypassed {
    /// `nftables`, `iptables`, `ip6tables`, `netfilter` (not known which), `conntrack`, `tc`, `offload`, `handler`, `macvlan`; `hooks`: the kernel does not list
    /// who is at netfilter's hooks.
    pub kind: String,
    /// In words.
    pub what: String,
    /// Families concerned: `inet`, `inet6`.
    pub families: Vec<String>,
    /// Because of it their packets are passed to the kernel; else they go past it.
    pub passes: bool,
}

impl std::fmt::Display for Bypassed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line =
            if self.passes { "passed to the kernel because of" } else { "not met by what XDP forwards" };
        write!(f, "{line}: {}", self.what)
    }
}

/// An attached device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceStatus {
    /// Name.
    pub dev: String,
    /// Index.
    pub ifindex: u32,
    /// `native` or `generic`.
    pub mode: String,
    /// VLAN id, for a VLAN device on top of an attached one.
    pub vlan: Option<u16>,
    /// Properties of its packets: `forward4`, `forward6`, `seg6`, `tenant`, `rpf-loose`, `rpf-strict`, `filter`, `sid_hook`, `ecn`;
    /// `no-xdp-xmit`: it takes no redirected frames, so that packets to it are the kernel's.
    pub flags: Vec<String>,
    /// Packets by verdict; verdicts without any are left out.
    pub counters: Vec<Counter>,
    /// A change that would make it quicker.
    pub hint: Option<String>,
}

/// One address family.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FamilyStatus {
    /// `inet` or `inet6`.
    pub family: String,
    /// Packets are forwarded by the tables; else all of them are the kernel's.
    pub forwards: bool,
    /// The reason, if they are not.
    pub reason: Option<String>,
    /// Routes of table main.
    pub main: usize,
    /// Routes of table local.
    pub local: usize,
    /// Routes of other tables.
    pub others: usize,
    /// Prefixes of main and local in the image.
    pub prefixes: usize,
    /// Other tables in the image.
    pub tables: usize,
    /// Rules that are left to the kernel, and why.
    pub punted: Vec<String>,
    /// Neighbours with a MAC address.
    pub neighbours: usize,
}

/// Following the kernel.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MirrorStatus {
    /// Routes in the last dump.
    pub routes: usize,
    /// The last dump: asking, decoding, sorting, ms.
    pub dump_ms: f64,
    /// Deciding, building and swinging the tables after it, ms.
    pub build_ms: f64,
    /// From the daemon's start until the first tables were complete, ms.
    pub ready_ms: f64,
    /// Requests sent to the kernel by netlink.
    pub requests: u64,
    /// Messages of changes read.
    pub messages: u64,
    /// Batches of them published.
    pub batches: u64,
    /// Prefixes written one by one.
    pub prefixes_written: u64,
    /// Tables written as a whole.
    pub tables_written: u64,
    /// From the first message of a batch read to all of it published: the last, µs.
    pub last_batch_us: u64,
    /// From the start of the last batch in which links, settings or rules changed to its actions written, µs.
    pub rewritten_us: u64,
    /// The longest, µs.
    pub longest_batch_us: u64,
    /// Dumps during which routes changed, and that were repeated.
    pub interrupted: u64,
    /// Times that a change did not fit what was known, or the kernel changed routes without a word.
    pub resync_requests: u64,
    /// Times that the image was full.
    pub full: u64,
}

/// Packets of one verdict.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Counter {
    /// Verdict.
    pub name: String,
    /// `forward`, `pass` or `drop`.
    pub kind: String,
    /// Packets with this verdict.
    pub packets: u64,
}

/// Packets of an SRv6 endpoint, as the kernel's `count` of a seg6local route; those that the kernel got are not among them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct SidCount {
    /// The action's number, which is the value of the SID's prefix in the tables.
    pub id: u32,
    /// Packets sent on.
    pub packets: u64,
    /// Their bytes, from the outer IPv6 header on, as they came in.
    pub bytes: u64,
    /// Packets dropped.
    pub errors: u64,
}

/// The counters of `counts`.
pub fn counters(counts: &[trieline_dataplane::VerdictCount]) -> Vec<Counter> {
    counts
        .iter()
        .map(|count| Counter {
            name: count.name.into(),
            kind: count.kind.to_string(),
            packets: count.packets,
        })
        .collect()
}

/// The flags of a port, in words.
pub fn flags(flags: trieline_dataplane::PortFlags) -> Vec<String> {
    [
        ("forward4", flags.forward4),
        ("forward6", flags.forward6),
        ("seg6", flags.seg6),
        ("tenant", flags.tenant),
        ("rpf-loose", flags.rpf_loose),
        ("rpf-strict", flags.rpf_strict),
        ("filter", flags.filter),
        ("sid_hook", flags.sid_hook),
        ("csum-partial", flags.csum_partial),
        ("ecn", flags.ecn),
        ("redirects4", flags.redirects4),
        ("redirects6", flags.redirects6),
        ("proxy-ndp", flags.proxy_ndp),
    ]
    .into_iter()
    .filter(|(_, on)| *on)
    .map(|(name, _)| name.to_owned())
    .collect()
}
