//! Counters of SRv6 endpoints: which action has which, and what they say.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use crate::xdp::error::{Error, Result};
use crate::xdp::layout::tl_sid_count;
use crate::xdp::sys;

/// Packets of one SID, as the kernel's `count` counts them; those that were passed to the kernel are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidCount {
    /// Packets sent on.
    pub packets: u64,
    /// Their bytes, each from its outer IPv6 header on, as it came in.
    pub bytes: u64,
    /// Packets dropped.
    pub errors: u64,
}

/// Slots of the map of SID counters, and whose they are.
#[derive(Debug)]
pub(crate) struct Sids {
    map: OwnedFd,
    cpus: usize,
    slots: BTreeMap<u32, u16>,
    free: Vec<u16>,
}

impl Sids {
    pub(crate) fn new(map: OwnedFd) -> Result<Self> {
        let slots = sys::map_shape(map.as_fd()).map_err(fail)?.entries;
        let cpus = libbpf_rs::num_possible_cpus().map_err(|e| fail(std::io::Error::other(e)))?;
        let free = (1..slots).rev().filter_map(|slot| slot.try_into().ok()).collect();
        Ok(Self { map, cpus, slots: BTreeMap::new(), free })
    }

    /// An action found in the maps has this slot.
    pub(crate) fn inherit(&mut self, action: u32, slot: u16) {
        if slot != 0 && self.free.contains(&slot) {
            self.free.retain(|free| *free != slot);
            self.slots.insert(action, slot);
        }
    }

    /// The slot of an action, its counters at 0 if it had none yet; 0 if all slots are taken.
    pub(crate) fn take(&mut self, action: u32) -> Result<u16> {
        if let Some(slot) = self.slots.get(&action) {
            return Ok(*slot);
        }
        let Some(slot) = self.free.pop() else { return Ok(0) };
        let zero = vec![0; self.cpus * size_of::<tl_sid_count>()];
        sys::map_update(self.map.as_fd(), &u32::from(slot).to_ne_bytes(), &zero).map_err(fail)?;
        self.slots.insert(action, slot);
        Ok(slot)
    }

    /// Frees the slot of an action that was removed.
    pub(crate) fn give(&mut self, action: u32) {
        self.free.extend(self.slots.remove(&action));
    }

    /// All counters, summed over the CPUs, by the action's number.
    pub(crate) fn read(&self) -> Result<BTreeMap<u32, SidCount>> {
        let mut values = vec![0; self.cpus * size_of::<tl_sid_count>()];
        let mut all = BTreeMap::new();
        for (action, slot) in &self.slots {
            sys::map_lookup(self.map.as_fd(), &u32::from(*slot).to_ne_bytes(), &mut values).map_err(fail)?;
            let mut sum = [0u64; 3];
            for (at, bytes) in values.chunks_exact(8).enumerate() {
                let mut word = [0; 8];
                word.copy_from_slice(bytes);
                sum[at % 3] += u64::from_ne_bytes(word);
            }
            all.insert(*action, SidCount { packets: sum[0], bytes: sum[1], errors: sum[2] });
        }
        Ok(all)
    }
}

fn fail(error: std::io::Error) -> Error {
    Error::kernel("cannot read the counters of SIDs", error)
}
