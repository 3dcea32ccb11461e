//! The abilities of this kernel and this process, with the reason for each that is missing.

use trieline_bpf::ImageMapType;
use trieline_bpf::probe::missing_capabilities;

use crate::xdp::sys::{self, MapShape};

const DEVMAP: u32 = 14;
/// `NETDEV_XDP_ACT_BASIC`
const BASIC: u64 = 1;
/// `NETDEV_XDP_ACT_REDIRECT`
const ACT_REDIRECT: u64 = 2;
/// `NETDEV_XDP_ACT_RX_SG`
const RX_SG: u64 = 32;
/// `NETDEV_XDP_ACT_NDO_XMIT`
const NDO_XMIT: u64 = 4;
/// `NETDEV_XDP_ACT_NDO_XMIT_SG`
const NDO_XMIT_SG: u64 = 64;

/// The usable map types.
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
    /// The map type to take.
    pub fn map_type(&self) -> Option<ImageMapType> {
        if self.arena.is_ok() {
            Some(ImageMapType::Arena)
        } else if self.array.is_ok() {
            Some(ImageMapType::Array)
        } else {
            None
        }
    }
}

/// Tries what the dataplane needs. Leaves nothing behind.
pub fn probe() -> Probe {
    let redirect = MapShape { kind: DEVMAP, key: 4, value: 4, entries: 1, ..Default::default() };
    Probe {
        arena: ImageMapType::Arena.probe(),
        array: ImageMapType::Array.probe(),
        redirect: sys::map_create("probe", redirect, None).map(drop).map_err(|e| e.to_string()),
        missing_capabilities: missing_capabilities(),
    }
}

/// Whether a device takes frames that native XDP redirects to it. One that does not loses them; in generic mode every
/// device takes them. `None`: the kernel does not report this (before Linux 6.3), or the device does not exist.
///
/// It can change: a veth takes them only while its peer has an XDP program or GRO.
pub fn takes_redirects(ifindex: u32) -> Option<bool> {
    let features = sys::xdp_features(ifindex).ok()?;
    (features != 0 || tells_features()).then_some(features & NDO_XMIT != 0)
}

/// The abilities of a device's driver with XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverXdp {
    /// It runs native programs.
    pub native: bool,
    /// Its programs can redirect.
    pub source: bool,
    /// It takes redirected frames at present.
    pub target: bool,
    /// It hands over frames of several buffers.
    pub frags: bool,
}

/// The abilities of a device's driver with XDP; `None` if the kernel does not tell (before Linux 6.3).
pub fn driver_xdp(ifindex: u32) -> Option<DriverXdp> {
    let features = sys::xdp_features(ifindex).ok()?;
    let has = |bit: u64| features & bit != 0;
    let said =
        DriverXdp { native: has(BASIC), source: has(ACT_REDIRECT), target: has(NDO_XMIT), frags: has(RX_SG) };
    (features != 0 || tells_features()).then_some(said)
}

/// A program that holds a device's XDP hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Its id.
    pub program: u32,
    /// Its name, if the kernel tells.
    pub name: String,
    /// The BPF link that holds it there; `None`: none, or the kernel does not tell.
    pub link: Option<u32>,
}

/// The program on a device's XDP hook, unless it is that of the instance whose pins these are.
pub fn occupant(ifindex: u32, own: &std::path::Path) -> Option<Occupant> {
    let state = sys::xdp_attached(ifindex).ok().filter(|state| state.program != 0)?;
    let ours = crate::xdp::pins::links(own).unwrap_or_default();
    if ours.iter().any(|(_, _, device)| *device == Some(ifindex)) {
        return None;
    }
    let holds = |link: &libbpf_rs::query::LinkInfo| link.prog_id == state.program;
    let link = libbpf_rs::query::LinkInfoIter::default().find(holds).map(|link| link.id);
    let name = sys::program_name(state.program).unwrap_or_default();
    Some(Occupant { program: state.program, name, link })
}

/// Whether a device takes such frames also when they lie in several buffers. Not before Linux 6.3, which refuses them itself.
///
/// In generic mode every device would; but the kernel then forwards a frame of several buffers nearly as fast.
pub(crate) fn takes_jumbo_redirects(ifindex: u32) -> bool {
    sys::xdp_features(ifindex).is_ok_and(|features| features & NDO_XMIT_SG != 0)
}

/// Whether this is Linux 6.3 or newer.
fn tells_features() -> bool {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap_or_default().split('.').map(|n| n.parse::<u32>());
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 3))
}
