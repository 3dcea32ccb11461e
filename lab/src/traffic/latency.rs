//! A histogram of latencies, as the receiver's program counts them: log-linear buckets, 32 for each power of two (3 %).

/// Bits below the leading one that a bucket keeps.
const BITS: u32 = 5;

/// Latencies of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    pub(super) buckets: Vec<u64>,
    pub(super) max_ns: u64,
}

impl Latency {
    /// How many were taken.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The longest, in nanoseconds; 0 without frames.
    pub fn max(&self) -> u64 {
        self.max_ns
    }

    /// The latency in nanoseconds that this share of the frames did not exceed (0.5: the median), 3 % too long at most; 0 without frames.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            below += count;
            if *count > 0 && below >= rank {
                return upper(index as u32).min(self.max_ns);
            }
        }
        0
    }

    pub(super) fn add(&mut self, buckets: impl IntoIterator<Item = u64>, max_ns: u64) {
        let buckets: Vec<u64> = buckets.into_iter().collect();
        self.buckets.resize(self.buckets.len().max(buckets.len()), 0);
        self.buckets.iter_mut().zip(buckets).for_each(|(sum, count)| *sum += count);
        self.max_ns = self.max_ns.max(max_ns);
    }
}

/// The longest latency of a bucket.
fn upper(index: u32) -> u64 {
    let (power, low) = (index >> BITS, u64::from(index & ((1 << BITS) - 1)));
    match power {
        0 => low,
        power => (((1 << BITS) + low + 1) << (power - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        assert_eq!([upper(31), upper(32), upper(63), upper(64), upper(65)], [31, 32, 63, 65, 67]);
        let mut latency = Latency::default();
        latency.add([0, 0, 90, 0, 9], 4);
        latency.add([1], 0);
        assert_eq!((latency.count(), latency.max()), (100, 4));
        assert_eq!(
            [0.0, 0.01, 0.02, 0.5, 0.91, 0.92, 1.0].map(|share| latency.quantile(share)),
            [0, 0, 2, 2, 2, 4, 4]
        );
        assert_eq!(Latency::default().quantile(0.5), 0);
    }
}
