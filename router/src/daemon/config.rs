//! The configuration of a daemon, and the options of the dataplane that follow from it.

use super::error::Error;
use crate::api::instance::Instance;
use crate::filter::rule::FilterRule;
use crate::rib::tenant::Tenants;
use crate::sid_hook::Numbers;
use crate::sid_hook::rule::SidHookRule;
use crate::xdp::attachment::AttachMode;
use crate::xdp::options::Options;
use std::time::Duration;
use trieline_bpf::ImageMapType;

/// The configuration of a daemon.
#[derive(Debug, Clone)]
pub struct Config {
    /// Names of the devices.
    pub devices: Vec<String>,
    /// How to attach to them.
    pub mode: AttachMode,
    /// Map type of the image; `None`: the best there is.
    pub map_type: Option<ImageMapType>,
    /// Limit of the image, bytes.
    pub image_bytes: u64,
    /// Limit of actions and of adjacencies.
    pub actions: u32,
    /// Receive buffer for the kernel's changes, bytes.
    pub receive_buffer: usize,
    /// Filters, in the order they are asked.
    pub filters: Vec<FilterRule>,
    /// Packets may go past netfilter's rules.
    pub bypass_netfilter: bool,
    /// SRv6 follows the RFCs where Linux differs.
    pub rfc: bool,
    /// How long XDP forwards when no daemon follows the kernel; `None`: without end.
    pub max_stale: Option<Duration>,
    /// SID hooks.
    pub sid_hooks: Vec<SidHookRule>,
    /// Tenants that the kernel has no devices for.
    pub tenants: Tenants,
    /// Addresses that are compared each second; 0: none.
    pub audit_rate: u32,
}

/// Addresses that are compared each second unless the configuration has another number.
pub const AUDIT_RATE: u32 = 100;
/// The most of them.
pub const AUDIT_RATE_MOST: u32 = 10_000;

impl Config {
    /// The options of the dataplane that follow from the configuration.
    pub(super) fn options(&self, instance: &Instance) -> Options {
        Options {
            pins: instance.pins(),
            map_type: self.map_type,
            image_bytes: self.image_bytes,
            tables: tables(self.image_bytes),
            actions: self.actions,
            adjacencies: self.actions,
            rules: 2 * tables(self.image_bytes),
            frags: self.mode != AttachMode::Generic,
        }
    }

    /// Whether packets must not meet the kernel alone.
    pub(super) fn asks_more_than_the_kernel(&self) -> bool {
        !(self.filters.is_empty() && self.sid_hooks.is_empty() && self.tenants.is_empty())
    }

    /// The reason why a start would replace the pins of this thread's network namespace; `None`: it would not.
    pub fn replaced(&self) -> Result<Option<String>, Error> {
        Ok(crate::xdp::options::difference(&self.options(&Instance::current()?))?)
    }
}

/// A configuration whose filters' files are being read.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) job: u64,
    pub(super) config: Config,
    pub(super) numbers: Numbers,
    /// Keys that only a restart follows.
    pub(super) waits: Vec<String>,
}

/// Tables there can be in an image: two a tenant, twice, as a restart builds its own beside those of the daemon before.
fn tables(image_bytes: u64) -> u32 {
    (image_bytes / 1024).clamp(1024, 65536) as u32
}
