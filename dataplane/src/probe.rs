//! What this kernel and this process can do, with the reason where they cannot.

use rustix::thread::{CapabilitySet, capabilities};

use crate::memory::{Home, ImageMap};
use crate::sys::{self, MapShape};

/// Size of the image's home that is tried.
const TRIAL_BYTES: u64 = 1 << 16;
const DEVMAP: u32 = 14;
/// `NETDEV_XDP_ACT_NDO_XMIT`
const NDO_XMIT: u64 = 4;
/// `NETDEV_XDP_ACT_NDO_XMIT_SG`
const NDO_XMIT_SG: u64 = 64;

/// What can be used here.
#[derive(Clone, Debug)]
pub struct Probe {
    /// BPF arena, or why not.
    pub arena: std::result::Result<(), String>,
    /// Memory-mapped BPF array, or why not.
    pub array: std::result::Result<(), String>,
    /// Redirecting between devices (device maps), or why not.
    pub redirect: std::result::Result<(), String>,
    /// Capabilities that the dataplane needs and this process lacks.
    pub missing_capabilities: Vec<&'static str>,
}

impl Probe {
    /// The home to take.
    pub fn home(&self) -> Option<Home> {
        if self.arena.is_ok() {
            Some(Home::Arena)
        } else if self.array.is_ok() {
            Some(Home::Array)
        } else {
            None
        }
    }
}

/// Tries what the dataplane needs. Leaves nothing behind.
pub fn probe() -> Probe {
    let redirect = MapShape { kind: DEVMAP, key: 4, value: 4, entries: 1, ..Default::default() };
    Probe {
        arena: try_home(Home::Arena),
        array: try_home(Home::Array),
        redirect: sys::map_create("probe", redirect, None).map(drop).map_err(|e| e.to_string()),
        missing_capabilities: missing_capabilities(),
    }
}

/// Whether a device takes frames that native XDP redirects to it. One that does not loses them, uncounted; in generic mode every
/// device takes them. `None`: this kernel does not tell (before Linux 6.3), or there is no such device.
///
/// It can change: a veth takes them only while its peer has an XDP program or GRO.
pub fn takes_redirects(ifindex: u32) -> Option<bool> {
    let features = sys::xdp_query(ifindex).ok()?.features;
    (features != 0 || tells_features()).then_some(features & NDO_XMIT != 0)
}

/// Whether a device takes such frames also when they lie in several buffers. Not before Linux 6.3, which refuses them itself.
///
/// In generic mode every device would; but the kernel then forwards a frame of several buffers nearly as fast.
pub(crate) fn takes_jumbo_redirects(ifindex: u32) -> bool {
    sys::xdp_query(ifindex).is_ok_and(|state| state.features & NDO_XMIT_SG != 0)
}

/// Whether this is Linux 6.3 or newer.
fn tells_features() -> bool {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap_or_default().split('.').map(|n| n.parse::<u32>());
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 3))
}

fn try_home(home: Home) -> std::result::Result<(), String> {
    match ImageMap::create(home, TRIAL_BYTES) {
        Ok(_) => Ok(()),
        // How a kernel says that it does not know this type of map.
        Err(crate::Error::Kernel { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            Err(match home {
                Home::Arena => "this kernel has none (Linux 6.9 or newer with CONFIG_BPF_JIT)".into(),
                Home::Array => "this kernel has none (trieline is tested on Linux 6.1 and newer)".into(),
            })
        }
        Err(crate::Error::Kernel { source, .. }) if source.raw_os_error() == Some(libc::ENOSYS) => {
            Err("this kernel has no BPF (CONFIG_BPF_SYSCALL)".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Capabilities this process lacks. CAP_SYS_ADMIN stands for the two BPF ones.
pub(crate) fn missing_capabilities() -> Vec<&'static str> {
    let Ok(sets) = capabilities(None) else { return Vec::new() };
    let has = |capability| sets.effective.contains(capability);
    let mut missing = Vec::new();
    if !has(CapabilitySet::SYS_ADMIN) {
        if !has(CapabilitySet::BPF) {
            missing.push("CAP_BPF");
        }
        if !has(CapabilitySet::PERFMON) {
            missing.push("CAP_PERFMON");
        }
    }
    if !has(CapabilitySet::NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    missing
}

/// Whether the kernel refuses BPF even to root.
pub(crate) fn bpf_is_locked_down() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lockdown")
        .is_ok_and(|text| text.contains("[confidentiality]"))
}
