//! Packet counters: one a verdict and port, one copy a CPU.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::os::fd::BorrowedFd;

use crate::xdp::error::{Error, Result};
use crate::xdp::layout::tl_counters;
use crate::xdp::sys;

/// A port: device and VLAN.
pub(crate) type PortKey = (u32, Option<u16>);

/// Counters in a slot.
const COUNTERS: usize = size_of::<tl_counters>() / size_of::<u64>();

include!(concat!(env!("OUT_DIR"), "/verdicts.rs"));

/// The XDP program's decision on a packet, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Index of its counter. Numbers are sparse: each kind has a range of its own.
    pub number: u8,
    /// Unique; the label of metrics and the key in JSON.
    pub name: &'static str,
    /// Whether the packet was forwarded, passed or dropped.
    pub kind: Kind,
}

/// The way that a packet took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Sent on by XDP.
    Forward,
    /// Given to the kernel.
    Pass,
    /// Dropped.
    Drop,
}

impl Verdict {
    /// The verdict of a number, which may be that of another version's.
    pub(crate) fn of(number: u16) -> Option<&'static Self> {
        let place = VERDICTS.binary_search_by_key(&number, |verdict| verdict.number.into()).ok()?;
        VERDICTS.get(place)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Forward => "forward",
            Kind::Pass => "pass",
            Kind::Drop => "drop",
        })
    }
}

/// Packets of one verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictCount {
    /// Name of the verdict.
    pub name: Cow<'static, str>,
    /// Its kind.
    pub kind: Kind,
    /// Packets since the maps were made.
    pub packets: u64,
}

/// Packets of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortCount {
    /// The device.
    pub ifindex: u32,
    /// Its VLAN.
    pub vlan: Option<u16>,
    /// The device the kernel receives these packets on.
    pub logical: u32,
    /// One for every verdict.
    pub counts: Vec<VerdictCount>,
    /// Packets by the number of the CPU that counted them, over all verdicts.
    pub cpus: Vec<u64>,
}

/// All counters at (about) one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Over all ports, former ones and packets of no port included; one for every verdict, in the order of [`VERDICTS`].
    pub total: Vec<VerdictCount>,
    /// Of each port.
    pub ports: Vec<PortCount>,
}

fn named(packets: &[u64]) -> Vec<VerdictCount> {
    let of = |number: u8| packets.get(usize::from(number)).copied().unwrap_or(0);
    VERDICTS
        .iter()
        .map(|v| VerdictCount { name: v.name.into(), kind: v.kind, packets: of(v.number) })
        .collect()
}

/// Reads all slots. `ports` names their owners: the port, its slot and its logical device.
pub(crate) fn read(fd: BorrowedFd<'_>, ports: &[(PortKey, u16, u32)]) -> Result<Counters> {
    let slots = sys::map_shape(fd).map_err(fail)?.entries;
    let mut total = vec![0u64; COUNTERS];
    let mut of_slot = Vec::new();
    for slot in 0..slots {
        let (packets, cpus) = slot_packets(fd, slot)?;
        total.iter_mut().zip(&packets).for_each(|(sum, n)| *sum += n);
        of_slot.push((packets, cpus));
    }
    let ports = ports
        .iter()
        .filter(|(_, slot, _)| *slot != 0)
        .filter_map(|(key, slot, logical)| {
            let (packets, cpus) = of_slot.get(usize::from(*slot))?;
            let (counts, cpus) = (named(packets), cpus.clone());
            Some(PortCount { ifindex: key.0, vlan: key.1, logical: *logical, counts, cpus })
        })
        .collect();
    Ok(Counters { total: named(&total), ports })
}

fn fail(error: std::io::Error) -> Error {
    Error::kernel("cannot read counters", error)
}

/// One slot: each counter summed over the CPUs, and each CPU summed over the counters.
fn slot_packets(fd: BorrowedFd<'_>, slot: u32) -> Result<(Vec<u64>, Vec<u64>)> {
    let values = cpu_values(fd, slot)?;
    let mut sum = vec![0u64; COUNTERS];
    let mut cpus = Vec::new();
    for cpu in values.chunks_exact(size_of::<tl_counters>()) {
        let mut packets = 0;
        for (sum, bytes) in sum.iter_mut().zip(cpu.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            *sum += u64::from_ne_bytes(word);
            packets += u64::from_ne_bytes(word);
        }
        cpus.push(packets);
    }
    Ok((sum, cpus))
}

fn cpu_values(fd: BorrowedFd<'_>, slot: u32) -> Result<Vec<u8>> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(|e| fail(std::io::Error::other(e)))?;
    let mut values = vec![0u8; cpus * size_of::<tl_counters>()];
    sys::map_lookup(fd, &slot.to_ne_bytes(), &mut values).map_err(fail)?;
    Ok(values)
}

/// Adds what slot `from` holds to slot `to`, which no running program counts into, and clears it.
pub(crate) fn retire(fd: BorrowedFd<'_>, from: u16, to: u16) -> Result<()> {
    let (mut left, mut kept) = (cpu_values(fd, from.into())?, cpu_values(fd, to.into())?);
    if left.iter().all(|b| *b == 0) {
        return Ok(());
    }
    for (kept, left) in kept.chunks_exact_mut(8).zip(left.chunks_exact_mut(8)) {
        let (mut a, mut b) = ([0; 8], [0; 8]);
        a.copy_from_slice(kept);
        b.copy_from_slice(left);
        kept.copy_from_slice(&(u64::from_ne_bytes(a) + u64::from_ne_bytes(b)).to_ne_bytes());
        left.fill(0);
    }
    sys::map_update(fd, &u32::from(to).to_ne_bytes(), &kept).map_err(fail)?;
    sys::map_update(fd, &u32::from(from).to_ne_bytes(), &left).map_err(fail)
}
