//! Reads what the hooks have noted: each CPU's ring in order, all CPUs' records merged by time, what was overwritten counted exactly.
//!
//! After a loss of records, nothing shows which records belong together: a gap. Records of that time on other CPUs are not passed on, and
//! the gap is an event of its own. So a joiner only has to drop the messages that it has in hand.

mod words;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread::sleep;
use std::time::Duration;

use crate::error::Result;
use crate::hooks::Hooks;
use crate::layout::{self, CPU_WORDS, PAYLOAD_WORDS, RECORD_WORDS, RING_WORDS, What, tr_cpu, tr_inside};
use crate::options::Options;
use crate::record::{Event, Record};
use crate::rings::Rings;
use words::Words;

/// How much older than the reading a record must be before it is passed on. A hook on another CPU may have read the clock
/// and not yet claimed its record.
const SETTLE_NS: u64 = 1_000_000;
/// A record that is claimed and not written for so long counts as lost: its hook was interrupted, and its CPU is taken away.
const OPEN_NS: u64 = 20_000_000;

/// An event that is not passed on yet, with its bytes.
#[derive(Debug)]
struct Waiting {
    time_ns: u64,
    what: Read,
    payload: Box<[u8]>,
}

#[derive(Debug)]
enum Read {
    Record(What, Record),
    /// Something may be missing since then.
    Gap {
        from_ns: u64,
    },
}

/// An event as it comes out of the rings. There, [`Event::Process`] means that the process has begun another program.
#[derive(Debug)]
pub(crate) struct Noted<'a> {
    pub(crate) event: Event,
    /// The message's first bytes, where they are captured.
    pub(crate) seen: &'a [u8],
}

/// Time that hooks spent inside T2, nanoseconds (`enum tr_inside`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inside {
    pub(crate) tail: u64,
    pub(crate) head: u64,
    pub(crate) clock: u64,
}

/// How far a CPU's ring was read.
#[derive(Clone, Debug, Default)]
struct Cpu {
    /// Records read or lost.
    next: u64,
    /// Time of the last one read.
    last_ns: u64,
    /// Time of the last one before what was lost, until another is read.
    gap_ns: Option<u64>,
    /// The next one is claimed and not written, and since when.
    open_ns: Option<u64>,
}

/// All CPUs' rings.
#[derive(Debug)]
pub(crate) struct Ring {
    cpus: Words,
    rings: Words,
    /// The words beside the records, if bytes are captured, and how many each record has.
    payloads: Option<(Words, usize)>,
    slots: u64,
    /// CPUs that have a ring: the first ones. Events on others are lost, and counted.
    with_ring: usize,
    /// Addresses of the kernel are nobody's business.
    salt: u64,
    read: Vec<Cpu>,
    lost: u64,
    late: u64,
    discarded: u64,
    /// Read and not yet passed on.
    waiting: Vec<Waiting>,
    /// Time of the youngest record that has been passed on.
    passed_ns: u64,
    /// All records up to then have been.
    until_ns: u64,
}

impl Ring {
    pub(crate) fn map(hooks: &Hooks, options: &Options) -> Result<Ring> {
        let Rings { cpus: cpu_count, rings, slots: of_ring, .. } = hooks.rings;
        let slots = rings * of_ring as usize;
        let payload_words = layout::payload_bytes(options) as usize / 8;
        let payloads = if options.has_payloads() {
            Some((Words::of(&hooks.map("payloads")?, slots * payload_words)?, payload_words))
        } else {
            None
        };
        let cpus = Words::of(&hooks.map("cpus")?, cpu_count * CPU_WORDS)?;
        let words = Words::of(&hooks.map("rings")?, rings * hooks.rings.ring_bytes() / 8)?;
        Ok(Ring::over(cpus, words, payloads, (cpu_count, rings), of_ring))
    }

    fn over(
        cpus: Words,
        rings: Words,
        payloads: Option<(Words, usize)>,
        (cpu_count, with_ring): (usize, usize),
        slots: u32,
    ) -> Ring {
        Ring {
            cpus,
            rings,
            payloads,
            slots: slots.into(),
            with_ring,
            // Random, without a crate for it.
            salt: RandomState::new().hash_one(0u8),
            read: vec![Cpu::default(); cpu_count],
            lost: 0,
            late: 0,
            discarded: 0,
            waiting: Vec::new(),
            passed_ns: 0,
            until_ns: 0,
        }
    }

    /// On all CPUs.
    pub(crate) fn inside_ns(&self) -> Inside {
        let sum = |tr_inside(word): tr_inside| {
            let at = offset_of!(tr_cpu, inside) / 8 + word as usize;
            let of = |cpu: usize| self.cpus.get()[cpu * CPU_WORDS + at].load(Ordering::Relaxed);
            (0..self.read.len()).map(of).sum()
        };
        Inside {
            tail: sum(tr_inside::TR_INSIDE_TAIL),
            head: sum(tr_inside::TR_INSIDE_HEAD),
            clock: sum(tr_inside::TR_INSIDE_CLOCK),
        }
    }

    /// Records overwritten before they were read, or never written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that came after younger ones had been passed on.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Records of a time in which others were lost.
    pub(crate) fn discarded(&self) -> u64 {
        self.discarded
    }

    /// All records up to this time have been passed on.
    pub(crate) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// The hooks were off from then until now: records of that time are missing.
    pub(crate) fn was_off(&mut self, from_ns: u64) {
        let what = Read::Gap { from_ns };
        self.waiting.push(Waiting { time_ns: monotonic_ns(), what, payload: Box::default() });
    }

    /// Passes on what is there, in the order of time, each with the bytes captured of it. With `all` it passes on the youngest, too, for
    /// when the hooks are off. It waits for those of them that are still running.
    pub(crate) fn poll(&mut self, all: bool, each: impl FnMut(Noted<'_>)) {
        let now_ns = monotonic_ns();
        let mut until = self.read(now_ns);
        while all && until < u64::MAX {
            sleep(Duration::from_micros(100));
            until = self.read(monotonic_ns());
        }
        if all {
            for cpu in 0..self.read.len() {
                // No other record comes to end it.
                self.end_gap(cpu, now_ns);
            }
            self.until_ns = now_ns;
        } else {
            until = until.min(now_ns.saturating_sub(SETTLE_NS));
            self.until_ns = until;
        }
        self.pass(until, each);
    }

    fn pass(&mut self, until: u64, mut each: impl FnMut(Noted<'_>)) {
        self.waiting.sort_by_key(|waiting| waiting.time_ns);
        let gaps: Vec<_> = self.waiting.iter().filter_map(Waiting::gap).collect();
        let ready = self.waiting.partition_point(|waiting| waiting.time_ns < until);
        for Waiting { time_ns, what, payload } in self.waiting.drain(..ready) {
            self.late += u64::from(time_ns < self.passed_ns);
            self.passed_ns = self.passed_ns.max(time_ns);
            let event = match what {
                Read::Gap { .. } => Event::Gap { time_ns },
                Read::Record(What::Opened, record) => {
                    let Some(socket) = layout::socket(&record, &payload, self.salt) else { continue };
                    Event::Socket(socket)
                }
                Read::Record(What::Ended, Record { thread, .. }) => Event::Ended { time_ns, thread },
                Read::Record(What::Program, Record { process, .. }) => {
                    Event::Process { process, runtime: None }
                }
                Read::Record(What::Message, _)
                    if gaps.iter().any(|(from, to)| (from + 1..*to).contains(&time_ns)) =>
                {
                    self.discarded += 1;
                    continue;
                }
                Read::Record(What::Message, record) => Event::Record(record),
            };
            each(Noted { event, seen: &payload });
        }
    }

    /// A CPU's ring: its words before the records, and those.
    fn ring(&self, cpu: usize) -> &[AtomicU64] {
        let words = RING_WORDS + self.slots as usize * RECORD_WORDS;
        &self.rings.get()[cpu * words..][..words]
    }

    /// The bytes captured beside a record, and its position, if anything lies there.
    fn payload(&self, slot: u64) -> (Box<[u8]>, Option<u32>) {
        let Some((payloads, words)) = &self.payloads else { return (Box::default(), None) };
        let payload = &payloads.get()[slot as usize * words..][..*words];
        let (captured, position) = layout::payload_header(payload[0].load(Ordering::Relaxed));
        let captured = captured as usize;
        let mut bytes: Vec<u8> = payload[PAYLOAD_WORDS..]
            .iter()
            .take(captured.div_ceil(8))
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        bytes.truncate(captured);
        (bytes.into(), Some(position))
    }

    /// Reads all rings to their ends, or to a record that is claimed and not yet written. Returns the time up to which all is there.
    fn read(&mut self, now_ns: u64) -> u64 {
        (0..self.read.len()).map(|cpu| self.read_cpu(cpu, now_ns)).fold(u64::MAX, u64::min)
    }

    fn read_cpu(&mut self, cpu: usize, now_ns: u64) -> u64 {
        loop {
            if cpu >= self.with_ring {
                let begun = self.cpus.get()[cpu * CPU_WORDS].load(Ordering::Acquire);
                let next = self.read[cpu].next;
                if begun > next {
                    self.lose(cpu, begun - next);
                    self.end_gap(cpu, now_ns);
                    self.read[cpu].last_ns = now_ns;
                }
                return u64::MAX;
            }
            let ring = self.ring(cpu);
            let claimed = &ring[0];
            let next = self.read[cpu].next;
            let end = claimed.load(Ordering::Acquire);
            if end - next > self.slots {
                self.lose(cpu, end - next - self.slots);
                continue;
            }
            if next == end {
                return u64::MAX;
            }
            let at = RING_WORDS + (next % self.slots) as usize * RECORD_WORDS;
            let slot = &ring[at..at + RECORD_WORDS];
            if layout::sequence(slot[RECORD_WORDS - 1].load(Ordering::Acquire))
                != (next as u32).wrapping_add(1)
            {
                if claimed.load(Ordering::Acquire) - next > self.slots {
                    continue; // overwritten meanwhile
                }
                let since_ns = *self.read[cpu].open_ns.get_or_insert(now_ns);
                if now_ns - since_ns < OPEN_NS {
                    return self.read[cpu].last_ns;
                }
                self.lose(cpu, 1);
                continue;
            }
            let (payload, position) = self.payload(cpu as u64 * self.slots + next % self.slots);
            let words = std::array::from_fn(|word| slot[word].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if claimed.load(Ordering::Relaxed) - next > self.slots {
                continue; // overwritten while it was read
            }
            self.read[cpu].next += 1;
            self.read[cpu].open_ns = None;
            if let Some((what, record)) = layout::record(words, self.salt) {
                self.end_gap(cpu, record.time_ns);
                self.read[cpu].last_ns = record.time_ns;
                let position = position.unwrap_or(record.position);
                let what = Read::Record(what, Record { position, ..record });
                self.waiting.push(Waiting { time_ns: record.time_ns, what, payload });
            }
        }
    }

    /// The next records of a CPU are not to be had.
    fn lose(&mut self, cpu: usize, records: u64) {
        self.lost += records;
        let cpu = &mut self.read[cpu];
        cpu.next += records;
        cpu.open_ns = None;
        cpu.gap_ns.get_or_insert(cpu.last_ns);
    }

    fn end_gap(&mut self, cpu: usize, time_ns: u64) {
        if let Some(from_ns) = self.read[cpu].gap_ns.take() {
            self.waiting.push(Waiting { time_ns, what: Read::Gap { from_ns }, payload: Box::default() });
        }
    }
}

impl Waiting {
    fn gap(&self) -> Option<(u64, u64)> {
        match self.what {
            Read::Gap { from_ns } => Some((from_ns, self.time_ns)),
            Read::Record(..) => None,
        }
    }
}

/// `CLOCK_MONOTONIC`, the clock of the hooks.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;
