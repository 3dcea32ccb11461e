//! Reads what the hooks have noted: each CPU's ring in order, all CPUs' records merged by time, what was overwritten counted exactly.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use libbpf_rs::MapHandle;
use memmap2::{MmapOptions, MmapRaw};

use crate::error::{Error, Result};
use crate::hooks::{Hooks, Options};
use crate::layout::{self, CPU_WORDS, PAYLOAD_WORDS, RECORD_WORDS, tr_cpu};
use crate::record::{Event, Record};

/// How much older than the reading a record must be before it is passed on: a hook on another CPU may have read the clock
/// and not yet claimed its record.
const SETTLE_NS: u64 = 1_000_000;

/// A BPF array that is mapped.
#[derive(Debug)]
pub(crate) struct Words(MmapRaw);

impl Words {
    pub(crate) fn of(map: &MapHandle, words: usize) -> Result<Words> {
        let mapped = MmapOptions::new().len(words * 8).map_raw_read_only(&map.as_fd());
        mapped.map(Words).map_err(Error::system("mapping a ring"))
    }

    pub(crate) fn get(&self) -> &[AtomicU64] {
        // SAFETY: mapped until drop, page-aligned; the kernel zeroes and never moves it; in this process the words
        // are only loaded, atomically.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 8) }
    }
}

/// A record that is not passed on yet, with its bytes.
#[derive(Debug)]
struct Waiting {
    record: Record,
    is_opened: bool,
    payload: Box<[u8]>,
}

/// A record as it comes out of the rings.
#[derive(Debug)]
pub(crate) struct Noted<'a> {
    pub(crate) event: Event,
    /// The message's first bytes, where they are captured.
    pub(crate) seen: &'a [u8],
    /// Records lost before it was passed on.
    pub(crate) lost: u64,
}

/// What hooks spent inside T2, nanoseconds (`enum tr_inside`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inside {
    pub(crate) tail: u64,
    pub(crate) head: u64,
    pub(crate) clock: u64,
}

/// All CPUs' rings.
#[derive(Debug)]
pub(crate) struct Ring {
    cpus: Words,
    records: Words,
    slots: u64,
    /// Addresses of the kernel are nobody's business.
    salt: u64,
    /// Of each CPU: records read or lost so far.
    read: Vec<u64>,
    lost: u64,
    late: u64,
    /// What lies beside the records, where bytes are captured, and the words of each.
    payloads: Option<(Words, usize)>,
    /// Read and not yet passed on.
    waiting: Vec<Waiting>,
    /// Records up to this time have been passed on.
    passed_ns: u64,
}

impl Ring {
    pub(crate) fn map(hooks: &Hooks, cpu_count: usize, options: &Options) -> Result<Ring> {
        let slots = cpu_count * options.slots as usize;
        let payload_words = options.payload_bytes() as usize / 8;
        let payloads = if options.has_payloads() {
            Some((Words::of(&hooks.map("payloads")?, slots * payload_words)?, payload_words))
        } else {
            None
        };
        Ok(Ring {
            cpus: Words::of(&hooks.map("cpus")?, cpu_count * CPU_WORDS)?,
            records: Words::of(&hooks.map("records")?, slots * RECORD_WORDS)?,
            payloads,
            slots: options.slots.into(),
            // Random, without a crate for it.
            salt: RandomState::new().hash_one(0u8),
            read: vec![0; cpu_count],
            lost: 0,
            late: 0,
            waiting: Vec::new(),
            passed_ns: 0,
        })
    }

    /// On all CPUs.
    pub(crate) fn inside_ns(&self) -> Inside {
        let sum = |word: usize| {
            let at = offset_of!(tr_cpu, inside) / 8 + word;
            let of = |cpu: usize| self.cpus.get()[cpu * CPU_WORDS + at].load(Ordering::Relaxed);
            (0..self.read.len()).map(of).sum()
        };
        Inside { tail: sum(0), head: sum(1), clock: sum(2) }
    }

    /// Records overwritten before they were read.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that came after younger ones had been passed on.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Passes on what is there, in the order of time, each with the bytes captured of it; with `all` also the youngest, for when the hooks are off.
    pub(crate) fn poll(&mut self, all: bool, mut each: impl FnMut(Noted<'_>)) {
        let mut until = if all { u64::MAX } else { monotonic_ns().saturating_sub(SETTLE_NS) };
        for cpu in 0..self.read.len() {
            until = until.min(self.read_cpu(cpu));
        }
        self.waiting.sort_by_key(|waiting| waiting.record.time_ns);
        let ready = self.waiting.partition_point(|waiting| waiting.record.time_ns < until);
        for Waiting { record, is_opened, payload } in self.waiting.drain(..ready) {
            self.late += u64::from(record.time_ns < self.passed_ns);
            self.passed_ns = self.passed_ns.max(record.time_ns);
            let event = if is_opened {
                let Some(socket) = layout::socket(&record, &payload, self.salt) else { continue };
                Event::Socket(socket)
            } else {
                Event::Record(record)
            };
            each(Noted { event, seen: &payload, lost: self.lost });
        }
    }

    /// The bytes captured beside a record, and its position.
    fn payload(&self, slot: u64) -> (Box<[u8]>, u32) {
        let Some((payloads, words)) = &self.payloads else { return (Box::default(), 0) };
        let payload = &payloads.get()[slot as usize * words..][..*words];
        let (captured, position) = layout::beside(payload[0].load(Ordering::Relaxed));
        let captured = captured as usize;
        let mut bytes: Vec<u8> = payload[PAYLOAD_WORDS..]
            .iter()
            .take(captured.div_ceil(8))
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        bytes.truncate(captured);
        (bytes.into(), position)
    }

    /// Reads a CPU's ring to its end, or to a record that is claimed and not yet written: then the time of the one before.
    fn read_cpu(&mut self, cpu: usize) -> u64 {
        let claimed = &self.cpus.get()[cpu * CPU_WORDS];
        let ring = &self.records.get()[cpu * self.slots as usize * RECORD_WORDS..];
        let mut next = self.read[cpu];
        let mut stuck = u64::MAX;
        let mut last_ns = 0;
        loop {
            let end = claimed.load(Ordering::Acquire);
            if end - next > self.slots {
                let gone = end - next - self.slots;
                self.lost += gone;
                next += gone;
            }
            if next == end {
                break;
            }
            let at = (next % self.slots) as usize * RECORD_WORDS;
            let slot = &ring[at..at + RECORD_WORDS];
            if layout::sequence(slot[RECORD_WORDS - 1].load(Ordering::Acquire)) != next as u32 + 1 {
                if claimed.load(Ordering::Acquire) - next > self.slots {
                    continue; // overwritten meanwhile
                }
                stuck = last_ns;
                break;
            }
            let (payload, position) = self.payload(cpu as u64 * self.slots + next % self.slots);
            let mut words = std::array::from_fn(|word| slot[word].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if claimed.load(Ordering::Relaxed) - next > self.slots {
                continue; // overwritten while it was read
            }
            next += 1;
            let is_opened = layout::opened(&mut words);
            if let Some(record) = layout::record(words, self.salt) {
                last_ns = record.time_ns;
                self.waiting.push(Waiting { record: Record { position, ..record }, is_opened, payload });
            }
        }
        self.read[cpu] = next;
        stuck
    }
}

/// `CLOCK_MONOTONIC`, the clock of the hooks.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
