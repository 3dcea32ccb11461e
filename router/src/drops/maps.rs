//! The maps that the programs count in: opened by their pins or made, and read.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::counts::{DropCount, EgressCount};
use crate::xdp::error::{Error, Result};
use crate::xdp::sys;

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
use generated::types::{tl_fate, tl_fates};

include!(concat!(env!("OUT_DIR"), "/fates.rs"));

/// Name of the map of counts, and of its pin.
pub(super) const COUNTS: &str = "drops";
/// Name of the map of devices whose packets are counted, and of its pin.
pub(super) const SOURCES: &str = "drop_sources";

/// Both maps.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) counts: OwnedFd,
    pub(super) sources: OwnedFd,
}

/// The counts of all devices, which have no names yet.
pub(super) fn read(counts: &OwnedFd) -> Result<Vec<EgressCount>> {
    let fail = |e| Error::kernel("cannot read what became of forwarded packets", e);
    let mut devices = Vec::new();
    let mut keys = keys(counts).map_err(fail)?;
    keys.sort_unstable();
    for ifindex in keys {
        let values = per_cpu(counts, ifindex).map_err(fail)?;
        let sum = |fate: usize| values.iter().skip(fate).step_by(FATES).sum();
        let drops = LOSSES.map(|(fate, reason)| DropCount { reason: reason.into(), packets: sum(fate) });
        let sent = Some(sum(tl_fate::TL_SENT.0 as usize));
        devices.push(EgressCount { dev: None, ifindex, sent, drops: drops.into() });
    }
    Ok(devices)
}

/// Counters of a device on one CPU.
const FATES: usize = size_of::<tl_fates>() / size_of::<u64>();

/// A device's counters, all of one CPU, then all of the next; empty if it has none by now.
pub(super) fn per_cpu(counts: &OwnedFd, ifindex: u32) -> io::Result<Vec<u64>> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    let mut values = vec![0; cpus * size_of::<tl_fates>()];
    if !sys::map_lookup(counts.as_fd(), &ifindex.to_ne_bytes(), &mut values)? {
        return Ok(Vec::new());
    }
    let words = values.chunks_exact(8).map(|bytes| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    });
    Ok(words.collect())
}

/// The device numbers that are keys of a map.
pub(super) fn keys(map: &OwnedFd) -> io::Result<Vec<u32>> {
    let (mut keys, mut last) = (Vec::new(), None::<Vec<u8>>);
    // A key that goes meanwhile makes the kernel begin again.
    let most = sys::map_shape(map.as_fd())?.entries;
    while let Some(key) =
        sys::map_next_key(map.as_fd(), last.as_deref())?.filter(|_| keys.len() < most as usize)
    {
        let mut number = [0; 4];
        number.copy_from_slice(&key);
        keys.push(u32::from_ne_bytes(number));
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
