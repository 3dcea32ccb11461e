//! How much memory the hooks write into: rings for the CPUs that are there, of one budget for all of them.

use std::fs;

use crate::error::{Error, Result};
use crate::layout::{self, CPU_WORDS, RECORD_WORDS, RING_WORDS};
use crate::options::Options;

/// Records of a ring, at least: the budget gives way. Read every 2 ms, that is 128,000 a second on each CPU.
const SLOTS_MIN: u32 = 256;

/// Memory of a trace in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// CPUs that may ever be there.
    pub(crate) cpus: usize,
    /// CPUs that have a ring: those up to the last one that is online.
    pub rings: usize,
    /// Records of each.
    pub slots: u32,
    /// All of it, and what lies beside records included.
    pub bytes: u64,
}

impl Rings {
    /// Of a trace on this machine.
    ///
    /// # Errors
    /// The rings have more records than a map can number.
    pub fn of(options: &Options) -> Result<Rings> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(Error::bpf("cannot count CPUs"))?;
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        Rings::sized(options, cpus, last(&online).map_or(cpus, |last| cpus.min(last + 1)))
    }

    /// Bytes of each ring, without what lies beside records.
    pub(crate) fn ring_bytes(&self) -> usize {
        (RING_WORDS + self.slots as usize * RECORD_WORDS) * 8
    }

    fn sized(options: &Options, cpus: usize, rings: usize) -> Result<Rings> {
        let beside = if options.has_payloads() { u64::from(layout::payload_bytes(options)) } else { 0 };
        let record = RECORD_WORDS as u64 * 8 + beside;
        let fitting = options.rings_max / (rings as u64 * record);
        let fitting = u32::try_from(fitting).unwrap_or(u32::MAX).max(SLOTS_MIN);
        // A power of two, as both are.
        let slots = options.slots.min(1 << fitting.ilog2());
        // Hooks number what lies beside the records of all rings.
        if u32::try_from(rings).ok().and_then(|rings| rings.checked_mul(slots)).is_none() {
            return Err(Error::Argument(format!(
                "invalid rings of {slots} records for {rings} CPUs: expected fewer than 2^32 in all"
            )));
        }
        let fixed = ((cpus * CPU_WORDS + rings * RING_WORDS) * 8) as u64;
        Ok(Rings { cpus, rings, slots, bytes: rings as u64 * u64::from(slots) * record + fixed })
    }
}

/// The greatest number of a list of CPUs (`0-3,8`).
fn last(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use crate::options::RINGS_MAX;

    fn options() -> Options {
        Options::new(Filter::default())
    }

    #[test]
    fn all_rings_have_one_budget() {
        let small = Rings::sized(&options(), 2, 2).unwrap();
        let fixed = |cpus: usize| (cpus * (CPU_WORDS + RING_WORDS) * 8) as u64;
        assert_eq!((small.slots, small.bytes), (1 << 16, 2 * 65_536 * 40 + fixed(2)));
        let http =
            Options { decode: Some("http".parse().unwrap()), capture: 1024, slots: 1 << 14, ..options() };
        for (options, cpus) in [(options(), 128), (options(), 1024), (http.clone(), 8), (http.clone(), 128)] {
            let Rings { slots, bytes, .. } = Rings::sized(&options, cpus, cpus).unwrap();
            let records = bytes - fixed(cpus);
            assert!(records <= RINGS_MAX && 2 * records > RINGS_MAX, "{cpus}: {slots}, {bytes}");
        }
        // The least that a ring has, even if all take more, unless the option is smaller.
        assert_eq!(Rings::sized(&http, 1024, 1024).unwrap().slots, 256);
        assert_eq!(Rings::sized(&Options { slots: 64, ..http.clone() }, 1024, 1024).unwrap().slots, 64);
        // Asked for.
        let large = Options { rings_max: u64::MAX, slots: 1 << 20, ..options() };
        assert_eq!(Rings::sized(&large, 128, 128).unwrap().slots, 1 << 20);
        assert!(Rings::sized(&Options { slots: 1 << 23, ..large }, 512, 512).is_err());
    }

    #[test]
    fn cpus_that_are_not_there_have_no_ring() {
        assert_eq!(
            ["0-3\n", "0", "0-3,8", "0-3,8-11\n", ""].map(last),
            [Some(3), Some(0), Some(8), Some(11), None]
        );
        let few = Rings::sized(&options(), 128, 4).unwrap();
        assert_eq!((few.cpus, few.rings, few.slots), (128, 4, 1 << 16));
    }
}
