//! The clocks that experiments read; their samples and medians are those of `trieline_sampling`.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::{Error, Result};

pub use trieline_sampling::{Gate, Median, Rounds, Samples, quantile, rounded, trimmed_mean};

/// A figure, if it is known: not NaN.
pub fn known(value: f64) -> Option<f64> {
    (!value.is_nan()).then_some(value)
}

/// Reads a figure of a document, in which null is NaN: for fields that are not always known.
pub(crate) fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    Option::<f64>::deserialize(deserializer).map(|value| value.unwrap_or(f64::NAN))
}

/// A system call that ran a BPF program many times, on the monotonic clock: the caller's and the program's own readings.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// From the call to the program's first packet: the kernel prepares, and mostly sleeps.
    pub before: Duration,
    /// From its first packet to its last: what is measured.
    pub inside: Duration,
    /// From its last packet to the return.
    pub after: Duration,
}

impl Span {
    /// From the readings of the clock in their order; an error when they are in another one.
    pub(crate) fn new(readings: [u64; 4], what: impl FnOnce() -> String) -> Result<Span> {
        let [called, first, last, returned] = readings;
        if !readings.is_sorted() {
            return Err(Error::Clock { what: what(), called, first, last, returned });
        }
        Ok(Span {
            before: Duration::from_nanos(first - called),
            inside: Duration::from_nanos(last - first),
            after: Duration::from_nanos(returned - last),
        })
    }

    /// The whole call, as its caller sees it.
    pub fn outside(&self) -> Duration {
        self.before + self.inside + self.after
    }
}

/// CLOCK_MONOTONIC, the clock of BPF programs, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds that this thread has been on a CPU: what others do on a shared machine is not in it. A reading is a system call.
pub(crate) fn thread_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_out_of_order_are_refused() {
        let span = Span::new([100, 120, 150, 151], String::new).unwrap();
        assert_eq!((span.inside, span.outside()), (Duration::from_nanos(30), Duration::from_nanos(51)));
        let error = Span::new([100, 120, 150, 149], || "empty4 of tables".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "timing empty4 of tables: called at 100, first packet at 120, last at 150, returned at 149 ns: not in this order"
        );
        assert!(Span::new([100, 0, 0, 200], String::new).is_err(), "a program that read no clock");
    }
}
