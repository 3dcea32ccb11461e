//! The maps that the programs count in, read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::counts::{AfterRedirect, DropCount, EgressCount, NO_DEVICE, Source};
use crate::xdp::error::{Error, Result};
use crate::xdp::{pins, sys};

/// The structs of `drops.bpf.c`, generated from its BTF.
#[allow(
    missing_docs,
    dead_code,
    unused,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::expect_used
)]
pub(super) mod generated {
    include!(concat!(env!("OUT_DIR"), "/drops.skel.rs"));
}
use generated::types::{tl_drops_limits, tl_fate, tl_fates, tl_place};

include!(concat!(env!("OUT_DIR"), "/fates.rs"));

/// Names of maps, and of their pins.
pub(super) const COUNTS: &str = "drops";
pub(super) const DEVICES: &str = "drop_devices";
pub(super) const SOURCES: &str = "drop_sources";
pub(super) const GENERATION: &str = "drop_generation";
/// All of them.
pub(super) const PINNED: [&str; 4] = [COUNTS, DEVICES, SOURCES, GENERATION];

pub(super) const FORMER: u32 = tl_drops_limits::TL_SLOT_FORMER.0;
pub(super) const OTHER: u32 = tl_drops_limits::TL_SLOT_OTHER.0;
const GONE: u32 = tl_drops_limits::TL_DROP_FORMER.0;

/// The maps, open.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) counts: OwnedFd,
    pub(super) devices: OwnedFd,
    pub(super) sources: OwnedFd,
    pub(super) generation: OwnedFd,
}

/// A key of the map of output devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A device that exists.
    Device(u32),
    /// The place of one that is gone.
    Gone(u32),
}

impl Key {
    fn bytes(self) -> [u8; 4] {
        match self {
            Self::Device(ifindex) => ifindex.to_ne_bytes(),
            Self::Gone(slot) => (slot | GONE).to_ne_bytes(),
        }
    }
}

impl Maps {
    /// Opens the maps by their pins; `None` if one is missing.
    pub(super) fn open(pins: &Path) -> Result<Option<Self>> {
        let (counts, devices) = (pins::open(pins, COUNTS)?, pins::open(pins, DEVICES)?);
        let (sources, generation) = (pins::open(pins, SOURCES)?, pins::open(pins, GENERATION)?);
        let all = counts.zip(devices).zip(sources.zip(generation));
        Ok(all.map(|((counts, devices), (sources, generation))| Self {
            counts,
            devices,
            sources,
            generation,
        }))
    }

    /// The generation of the programs that count; 0 before the first.
    pub(super) fn generation(&self) -> Result<u64> {
        let mut generation = [0; 8];
        sys::map_lookup(self.generation.as_fd(), &0u32.to_ne_bytes(), &mut generation)
            .map_err(|e| Error::kernel("cannot read which programs count drops", e))?;
        Ok(u64::from_ne_bytes(generation))
    }

    /// From now on, the programs of this generation count, and no others.
    pub(super) fn set_generation(&self, generation: u64) -> Result<()> {
        sys::map_update(self.generation.as_fd(), &0u32.to_ne_bytes(), &generation.to_ne_bytes())
            .map_err(|e| Error::kernel("cannot write which programs count drops", e))
    }

    /// The places that output devices have, then those of devices that are gone.
    pub(super) fn places(&self) -> io::Result<Vec<(Key, u32)>> {
        let mut places = Vec::new();
        for key in keys(&self.devices)? {
            let mut value = [0; size_of::<tl_place>()];
            // A key that is gone meanwhile has no place any more.
            if sys::map_lookup(self.devices.as_fd(), &key.to_ne_bytes(), &mut value)? {
                let [a, b, c, d, ..] = value;
                let slot = u32::from_ne_bytes([a, b, c, d]);
                places.push((if key & GONE == 0 { Key::Device(key) } else { Key::Gone(slot) }, slot));
            }
        }
        Ok(places)
    }

    /// Gives a key a place.
    pub(super) fn put(&self, key: Key, slot: u32) -> io::Result<()> {
        let device = match key {
            Key::Device(ifindex) => ifindex,
            Key::Gone(_) => NO_DEVICE,
        };
        let mut value = [0; size_of::<tl_place>()];
        value[..4].copy_from_slice(&slot.to_ne_bytes());
        value[4..].copy_from_slice(&device.to_ne_bytes());
        sys::map_update(self.devices.as_fd(), &key.bytes(), &value)
    }

    pub(super) fn delete(&self, key: Key) -> io::Result<()> {
        sys::map_delete(self.devices.as_fd(), &key.bytes()).map(drop)
    }

    /// Adds the counts of one place to those of former devices, and clears it. Only one that no program counts in any more. If the
    /// process ends between the two writes, these packets count twice.
    pub(super) fn fold(&self, slot: u32) -> io::Result<()> {
        let (left, mut former) = (per_cpu(&self.counts, slot)?, per_cpu(&self.counts, FORMER)?);
        former.iter_mut().zip(&left).for_each(|(all, count)| *all += count);
        set_per_cpu(&self.counts, FORMER, &former)?;
        set_per_cpu(&self.counts, slot, &vec![0; left.len()])
    }

    /// The counts so far; devices have no names yet. `unknown`: why something is not counted.
    pub(super) fn counted(&self, unknown: Option<String>) -> AfterRedirect {
        match self.read() {
            Ok((devices, former)) => {
                AfterRedirect { source: Some(Source::Tracepoints), unknown, devices, former }
            }
            Err(error) => {
                let error = Error::kernel("cannot read what became of forwarded packets", error);
                AfterRedirect { unknown: Some(error.to_string()), ..AfterRedirect::default() }
            }
        }
    }

    /// The counts of all devices, and of former ones together.
    fn read(&self) -> io::Result<(Vec<EgressCount>, Option<EgressCount>)> {
        let (mut devices, mut former) = (Vec::new(), self.count(NO_DEVICE, FORMER)?);
        // A device that is going has both keys for a moment: then it is gone.
        let places: BTreeMap<u32, Key> = self.places()?.into_iter().map(|(key, slot)| (slot, key)).collect();
        for (slot, key) in places {
            match key {
                Key::Device(ifindex) => devices.push(self.count(ifindex, slot)?),
                Key::Gone(_) => former.add(&self.count(NO_DEVICE, slot)?),
            }
        }
        devices.sort_by_key(|device| device.ifindex);
        devices.push(self.count(NO_DEVICE, OTHER)?);
        Ok((devices, Some(former)))
    }

    fn count(&self, ifindex: u32, slot: u32) -> io::Result<EgressCount> {
        let values = per_cpu(&self.counts, slot)?;
        let sum = |fate: usize| values.iter().skip(fate).step_by(FATES).sum();
        let drops = LOSSES.map(|(fate, reason)| DropCount { reason: reason.into(), packets: sum(fate) });
        let sent = Some(sum(tl_fate::TL_SENT.0 as usize));
        Ok(EgressCount { dev: None, ifindex, sent, drops: drops.into() })
    }
}

/// Counters of a device on one CPU.
const FATES: usize = size_of::<tl_fates>() / size_of::<u64>();

/// The counters of a place, all of one CPU, then all of the next.
fn per_cpu(counts: &OwnedFd, slot: u32) -> io::Result<Vec<u64>> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    let mut values = vec![0; cpus * size_of::<tl_fates>()];
    if !sys::map_lookup(counts.as_fd(), &slot.to_ne_bytes(), &mut values)? {
        return Err(io::ErrorKind::NotFound.into());
    }
    let words = values.chunks_exact(8).map(|bytes| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    });
    Ok(words.collect())
}

fn set_per_cpu(counts: &OwnedFd, slot: u32, values: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|count| count.to_ne_bytes()).collect();
    sys::map_update(counts.as_fd(), &slot.to_ne_bytes(), &bytes)
}

/// The keys of a map. If one that goes meanwhile makes the kernel begin again, each is listed once nevertheless.
pub(super) fn keys(map: &OwnedFd) -> io::Result<BTreeSet<u32>> {
    let (mut keys, mut last) = (BTreeSet::new(), None::<Vec<u8>>);
    let most = sys::map_shape(map.as_fd())?.entries;
    // Twice as many steps as there can be keys: one who deletes keys all the time does not hold the reader.
    for _ in 0..most.saturating_mul(2) {
        let Some(key) = sys::map_next_key(map.as_fd(), last.as_deref())? else { break };
        let mut number = [0; 4];
        number.copy_from_slice(&key);
        keys.insert(u32::from_ne_bytes(number));
        last = Some(key);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_fit_their_counters() {
        assert!(LOSSES.iter().all(|(fate, _)| *fate > 0 && *fate < FATES));
    }
}
