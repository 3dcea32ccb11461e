//! The processor's counters of cache and TLB misses around a measurement, where the machine has them.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{FromRawFd, RawFd},
};

use serde::{Deserialize, Serialize};

/// perf_event_attr up to its version 5: what is counted, and flags that are all off.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 12],
}

const HARDWARE: u32 = 0;
const HARDWARE_CACHE: u32 = 3;
const READ_MISSES: u64 = 1 << 16;
/// Name, kind and number of each (perf_event_open(2)).
const EVENTS: [(&str, u32, u64); 3] = [
    ("last-level cache misses", HARDWARE, 3),
    ("L1 data cache read misses", HARDWARE_CACHE, READ_MISSES),
    ("data TLB read misses", HARDWARE_CACHE, READ_MISSES | 3),
];

/// Misses a lookup.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Misses {
    /// Of the last-level cache.
    pub llc: f64,
    /// Of the first-level data cache, reads.
    pub l1d: f64,
    /// Of the data TLB, reads.
    pub dtlb: f64,
}

/// Counters of the calling thread, its time in the kernel included, where BPF programs under test run.
#[derive(Debug)]
pub struct Counters([File; 3]);

impl Counters {
    /// Opens them, or says why there are none.
    pub fn open() -> Result<Counters, String> {
        let open = |(name, kind, config): (&str, u32, u64)| {
            open(kind, config).map_err(|error| format!("perf_event_open of {name}: {error}"))
        };
        let [one, two, three] = EVENTS;
        Ok(Counters([open(one)?, open(two)?, open(three)?]))
    }

    /// Misses of `work`, divided by `lookups`.
    pub fn around<T, E>(
        &self,
        lookups: u64,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<Option<Misses>, E> {
        let before = self.read();
        work()?;
        let after = self.read();
        let (Ok(before), Ok(after)) = (before, after) else { return Ok(None) };
        let each = |n: usize| (after[n] - before[n]) as f64 / lookups as f64;
        Ok(Some(Misses { llc: each(0), l1d: each(1), dtlb: each(2) }))
    }

    fn read(&self) -> io::Result<[u64; 3]> {
        let [one, two, three] = &self.0;
        Ok([value(one)?, value(two)?, value(three)?])
    }
}

fn value(mut counter: &File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    counter.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A counter of the calling thread on whatever CPU, running from now on.
fn open(kind: u32, config: u64) -> io::Result<File> {
    const CLOSE_ON_EXEC: u64 = 8;
    let attributes =
        Attributes { kind, size: size_of::<Attributes>() as u32, config, ..Attributes::default() };
    // SAFETY: the kernel reads `size` bytes of the attributes, which live through the call.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, CLOSE_ON_EXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new file descriptor without another owner.
    Ok(unsafe { File::from_raw_fd(fd as RawFd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_counters_can_be_read() {
        assert_eq!(size_of::<Attributes>(), 112, "perf_event_attr, version 5");
        // Software, task clock: there wherever the call is allowed.
        match open(1, 1) {
            Ok(counter) => {
                let before = value(&counter).unwrap();
                assert!((0..1000).any(|_| value(&counter).unwrap() > before));
            }
            Err(error) => println!("SKIP: perf_event_open: {error}"),
        }
    }

    #[test]
    fn missing_counters_are_named() {
        if let Err(why) = Counters::open() {
            assert!(why.starts_with("perf_event_open of "), "{why}");
        }
    }
}
