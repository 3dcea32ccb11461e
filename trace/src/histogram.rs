//! Reads the histograms that the hooks count into, and what became of the events, from all CPUs.

use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

use libbpf_rs::MapHandle;

use crate::error::Result;
use crate::join::Counts;
use crate::layout::{CPU_WORDS, tr_cpu, tr_histogram};
use crate::record::Transport;
use crate::ring::Words;
use crate::summary::{Part, Stage, Summary};

const TRANSPORTS: usize = Transport::ALL.len();
/// Histograms of a CPU: one for each [`Stage`].
pub(crate) const WAYS: usize = TRANSPORTS * TRANSPORTS * 4;
const BUCKETS: usize = size_of::<tr_histogram>() / 8;
const COUNTS_AT: usize = offset_of!(tr_cpu, counts) / 8;
/// The last of `enum tr_count`.
const LOST: usize = (offset_of!(tr_cpu, inside) - offset_of!(tr_cpu, counts)) / 8 - 1;

/// The maps of the hooks.
#[derive(Debug)]
pub(crate) struct Histograms {
    cpus: Words,
    histograms: Words,
    cpu_count: usize,
}

impl Histograms {
    pub(crate) fn map(cpus: &MapHandle, histograms: &MapHandle, cpu_count: usize) -> Result<Histograms> {
        Ok(Histograms {
            cpus: Words::of(cpus, cpu_count * CPU_WORDS)?,
            histograms: Words::of(histograms, cpu_count * WAYS * BUCKETS)?,
            cpu_count,
        })
    }

    /// What was counted so far.
    pub(crate) fn read(&self) -> (Summary, Counts) {
        let mut summary = Summary::default();
        for (index, count) in self.histograms.get().iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                summary.add_many(stage(index / BUCKETS % WAYS), middle_ns(index % BUCKETS), count);
            }
        }
        let [received, sent, matched, pieces, copies, ambiguous, unmatched_sent, queued_later, cut_off] =
            std::array::from_fn(|count| self.sum(count));
        // Those that a thread still has in hand among them.
        let unmatched_received = received.saturating_sub(matched + pieces + ambiguous + cut_off);
        let counts = Counts {
            received,
            sent,
            matched,
            pieces,
            copies,
            ambiguous,
            unmatched_received,
            unmatched_sent,
            queued_later,
            cut_off,
            ..Counts::default()
        };
        (summary, counts)
    }

    /// Receives that could not be kept.
    pub(crate) fn lost(&self) -> u64 {
        self.sum(LOST)
    }

    /// A count of all CPUs.
    fn sum(&self, count: usize) -> u64 {
        let of = |cpu: usize| self.cpus.get()[cpu * CPU_WORDS + COUNTS_AT + count].load(Ordering::Relaxed);
        (0..self.cpu_count).map(of).sum()
    }
}

/// `way` of `bpf/histogram.bpf.h`.
fn stage(way: usize) -> Stage {
    Stage {
        part: Part::INSIDE,
        from: Transport::ALL[way / 4 / TRANSPORTS],
        to: Transport::ALL[way / 4 % TRANSPORTS],
        is_reply: way & 2 != 0,
        at_queue: way & 1 != 0,
    }
}

/// The middle of a bucket: sixteen for each power of two, so at most 3 % from what was counted.
fn middle_ns(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let log = bucket / 16 + 3;
    let step = 1u64 << (log - 4);
    (16 + bucket as u64 % 16) * step + step / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_within_three_percent() {
        assert_eq!((0..16).map(middle_ns).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
        // As tr_bucket() counts them.
        let bucket = |ns: u64| {
            let log = ns.ilog2() as usize;
            (log - 3) * 16 + (ns >> (log - 4) & 15) as usize
        };
        for ns in (16..100_000).chain((1..40).map(|shift| (1 << 20 << shift) - 1)) {
            let error = middle_ns(bucket(ns)).abs_diff(ns) as f64 / ns as f64;
            assert!(bucket(ns) < BUCKETS && error <= 0.0313, "{ns}: {error}");
        }
    }
}
