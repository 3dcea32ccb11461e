//! Devices whose packets something takes before the kernel routes them: by a receive handler, which XDP would forward past.

use crate::bypass::rx_handlers::RxHandlers;
use crate::rib::kernel_state::KernelState;
use std::collections::BTreeMap;

/// Where only packets between these devices count, their numbers and names.
pub type Devices = BTreeMap<u32, String>;

/// Kinds of links that take the packets of the link below by a receive handler. Macvlans are judged by their handler alone.
const KINDS: [&str; 5] = ["ipvlan", "ipvtap", "macsec", "macvlan", "macvtap"];

/// Handlers that take the packets of devices.
#[derive(Debug)]
pub struct RxHandlerScan {
    handlers: Option<RxHandlers>,
    /// The failure of the kernel's list was logged.
    logged: bool,
}

impl RxHandlerScan {
    /// Prepares to ask the kernel.
    pub fn new() -> Self {
        let handlers = RxHandlers::load().inspect_err(|error| {
            tracing::warn!(
                "receive handlers of devices are unknown: {error}; trielined sees a macvlan, ipvlan or MACsec only in this network namespace"
            );
        });
        Self { handlers: handlers.ok(), logged: false }
    }

    /// Those of `devices` whose packets something takes, and what. O(devices of the namespace).
    pub fn of(&mut self, kernel: &KernelState, devices: &Devices) -> Vec<(u32, String)> {
        let reported = self.handlers.as_mut().map(RxHandlers::taking);
        match reported {
            Some(Ok(handlers)) => {
                self.logged = false;
                let ours = handlers.into_iter().filter(|(device, _)| devices.contains_key(device));
                ours.map(|(device, handler)| (device, name(&handler))).collect()
            }
            Some(Err(error)) => {
                if !std::mem::replace(&mut self.logged, true) {
                    tracing::warn!(%error, "receive handlers of devices are unknown; trielined looks only at links");
                }
                above(kernel, devices)
            }
            None => above(kernel, devices),
        }
    }
}

impl Default for RxHandlerScan {
    fn default() -> Self {
        Self::new()
    }
}

/// The user of a handler.
fn name(handler: &str) -> String {
    let of = match handler {
        "macvlan_handle_frame" => "a macvlan in mode passthru or source",
        "ipvlan_handle_frame" => "an ipvlan",
        "macsec_handle_frame" => "MACsec",
        "br_handle_frame" => "a bridge",
        "bond_handle_frame" => "a bond",
        "team_handle_frame" => "a team",
        "netdev_frame_hook" => "Open vSwitch",
        _ => return handler.to_owned(),
    };
    of.to_owned()
}

/// Devices whose packets links of this namespace take, for kernels that do not list their handlers.
fn above(kernel: &KernelState, devices: &Devices) -> Vec<(u32, String)> {
    let taking = kernel.links.values().filter(|link| KINDS.contains(&link.kind.as_str()));
    let taken = taking.filter_map(|link| Some((link.parent?, format!("{} ({})", link.name, link.kind))));
    let taken: BTreeMap<u32, String> = taken.filter(|(device, _)| devices.contains_key(device)).collect();
    taken.into_iter().collect()
}
