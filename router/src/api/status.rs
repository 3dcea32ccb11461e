//! The answer of `trieline node status`: written by the daemon, read by the command, so both use these types.

use crate::api::verdict_hint;
use crate::audit::AuditStatus;
use crate::bypass::scan::Bypassed;
use crate::drops::AfterRedirect;
use crate::xdp::action::PassReason;
use crate::xdp::attachment::AttachMode;
use crate::xdp::counters::VerdictCount;
use serde::{Deserialize, Serialize};
use trieline_bpf::ImageMapType;

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
    /// Map type of the image.
    pub map_type: Option<ImageMapType>,
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
    /// Nexthop groups and host entries that wait for a neighbour's MAC address.
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
    /// Comparisons of the kernel's routes with what packets meet.
    pub audit: AuditStatus,
    /// Packets by verdict, over all devices.
    pub counters: Vec<VerdictCount>,
    /// The fates of the forwarded packets.
    pub after_redirect: AfterRedirect,
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
    /// Adds the counters of the attached devices' drivers, if no program counts what became of forwarded packets. In generic mode, drivers
    /// count none. It runs `ethtool` for each device, so it is for a person who asks, not for the daemon and metrics.
    pub fn with_driver_counters(self) -> Self {
        if self.devices.iter().any(|device| device.mode == AttachMode::Generic.to_string()) {
            return self;
        }
        let attached = self.devices.iter().filter(|device| device.vlan.is_none() && !device.mode.is_empty());
        let attached = attached.map(|device| (device.dev.as_str(), device.ifindex));
        Self { after_redirect: self.after_redirect.clone().or_drivers(attached), ..self }
    }

    /// Adds how current the tables are.
    pub fn with_heartbeat(self, heartbeat: crate::xdp::heartbeat::Heartbeat) -> Self {
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
    pub reason: PassReason,
    /// The device they leave by, where it is the reason.
    pub dev: Option<String>,
    /// The exact reason, and what helps.
    pub hint: Option<String>,
}

impl std::fmt::Display for Punted {
    /// The cause, its reason, and what helps.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, dev) = (&self.what, self.dev.as_deref().unwrap_or("?"));
        let groups = if self.nexthop_groups == 1 { "nexthop group" } else { "nexthop groups" };
        write!(f, "{} {groups} of {what}: ", self.nexthop_groups)?;
        let hint = self.hint.clone().or_else(|| verdict_hint::of(self.reason, dev));
        f.write_str(hint.as_deref().unwrap_or(self.reason.name()))
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
    /// Properties of its packets: `forward4`, `forward6`, `seg6`, `tenant`, `rpf-loose`, `rpf-strict`, `filter`, `sid_hook`, `ecn`,
    /// `no-xdp-xmit`. With the last one it takes no redirected frames, so that packets to it are the kernel's.
    pub flags: Vec<String>,
    /// Packets by verdict; verdicts without any are left out.
    pub counters: Vec<VerdictCount>,
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

/// How long batches of changes took to publish.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchTimes {
    /// Batches whose time is at most the bound of the same place in [`Self::BOUNDS_US`], and above the one before; the last: all longer ones.
    pub counts: [u64; 12],
    /// All times together, µs.
    pub sum_us: u64,
}

impl BatchTimes {
    /// Bounds of the counts, µs.
    pub const BOUNDS_US: [u64; 11] =
        [10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000];

    /// Counts a batch.
    pub fn add(&mut self, took_us: u64) {
        self.counts[Self::BOUNDS_US.partition_point(|bound| *bound < took_us)] += 1;
        self.sum_us += took_us;
    }
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
    /// How long the batches since the first tables took.
    pub batch_times: BatchTimes,
    /// Dumps during which routes changed, and that were repeated.
    pub interrupted: u64,
    /// Times that a change did not fit what was known, or the kernel changed routes without a word.
    pub resync_requests: u64,
    /// Times that the image was full.
    pub full: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_counted_below_its_bound() {
        let mut times = BatchTimes::default();
        [0, 10, 11, 1_000_000, 1_000_001].into_iter().for_each(|took| times.add(took));
        assert_eq!(times.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(times.sum_us, 2_000_022);
    }
}
