//! Samples of interleaved rounds: the median is quoted, the extremes say how far to trust it.

use std::time::Duration;

use serde::Serialize;

use crate::{Error, Result};

/// One figure a round.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a round's figure.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds another's figures.
    pub fn extend(&mut self, other: &Samples) {
        self.0.extend(&other.0);
    }

    /// The figures in the order of the rounds.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// How many rounds.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The middle one; the mean of the two middle ones when their number is even. NaN without samples.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        }
    }

    /// The smallest.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    /// The largest.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The standard deviation of the sample, 0 for fewer than two.
    pub fn deviation(&self) -> f64 {
        let count = self.0.len() as f64;
        if count < 2.0 {
            return 0.0;
        }
        let mean = self.0.iter().sum::<f64>() / count;
        (self.0.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt()
    }

    /// Round by round, another's figure over this one's: noise that hits a whole round cancels out.
    pub fn ratio_of(&self, other: &Samples) -> Samples {
        Samples(other.0.iter().zip(&self.0).map(|(other, own)| other / own).collect())
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Samples(values.into_iter().collect())
    }
}

pub use trieline_plot::rounded;

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

    #[test]
    fn median_min_max_and_paired_ratios() {
        let ours: Samples = [10.0, 30.0, 20.0].into_iter().collect();
        let kernel: Samples = [40.0, 120.0, 60.0].into_iter().collect();
        assert_eq!((ours.median(), ours.min(), ours.max()), (20.0, 10.0, 30.0));
        assert_eq!(ours.ratio_of(&kernel).median(), 4.0);
        assert_eq!([1.0, 2.0].into_iter().collect::<Samples>().median(), 1.5);
        assert_eq!((ours.deviation(), Samples::default().deviation()), (10.0, 0.0));
        assert!(Samples::default().median().is_nan());
        assert_eq!(rounded(1.23456, 2), 1.23);
    }
}
