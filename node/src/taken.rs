//! Devices whose packets something takes before the kernel routes them: by a receive handler, which XDP would forward past.

use crate::bypass::Devices;
use crate::world::World;
use std::collections::BTreeMap;
use trieline_dataplane::Handlers;

/// Kinds of links that take the packets of the link below by a receive handler. Macvlans are judged by their handler alone.
const KINDS: [&str; 5] = ["ipvlan", "ipvtap", "macsec", "macvlan", "macvtap"];

/// Who takes the packets of devices.
#[derive(Debug)]
pub struct Takers {
    handlers: Option<Handlers>,
    /// That the kernel could not be asked was logged.
    said: bool,
}

impl Takers {
    /// Prepares to ask the kernel.
    pub fn new() -> Self {
        let handlers = Handlers::load().inspect_err(|error| {
            tracing::warn!(
                "receive handlers of devices are unknown: {error}; trielined sees a macvlan, ipvlan or MACsec only in this network namespace"
            );
        });
        Self { handlers: handlers.ok(), said: false }
    }

    /// Those of `devices` whose packets something takes, and what. O(devices of the namespace).
    pub fn of(&mut self, world: &World, devices: &Devices) -> Vec<(u32, String)> {
        let told = self.handlers.as_mut().map(Handlers::taking);
        match told {
            Some(Ok(handlers)) => {
                self.said = false;
                let ours = handlers.into_iter().filter(|(device, _)| devices.contains_key(device));
                ours.map(|(device, handler)| (device, name(&handler))).collect()
            }
            Some(Err(error)) => {
                if !std::mem::replace(&mut self.said, true) {
                    tracing::warn!(%error, "receive handlers of devices are unknown; trielined looks only at links");
                }
                above(world, devices)
            }
            None => above(world, devices),
        }
    }
}

impl Default for Takers {
    fn default() -> Self {
        Self::new()
    }
}

/// What a handler belongs to.
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

/// What links of this namespace say: the kernel's list of handlers is not known.
fn above(world: &World, devices: &Devices) -> Vec<(u32, String)> {
    let taking = world.links.values().filter(|link| KINDS.contains(&link.kind.as_str()));
    let taken = taking.filter_map(|link| Some((link.parent?, format!("{} ({})", link.name, link.kind))));
    let taken: BTreeMap<u32, String> = taken.filter(|(device, _)| devices.contains_key(device)).collect();
    taken.into_iter().collect()
}
