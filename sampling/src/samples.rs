//! The median of some figures with its interval, other ways to sum figures up, and the samples of one figure. NaN stands for a figure that is
//! not known: a round whose sample was refused keeps its place by it, and counts for nothing.

/// Fewer values give no interval: the least and the greatest of five hold the median in 94 % of the cases.
pub const ROUNDS_MIN: usize = 6;

/// A median with its confidence interval of at least 95 %, from the order of the values; NaN is what is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The middle value, or the mean of the two middle ones; in the unit of the values.
    pub value: f64,
    /// Lower end of the interval; NaN of fewer than [`ROUNDS_MIN`] values.
    pub low: f64,
    /// Upper end, in the same way.
    pub high: f64,
}

impl Median {
    /// Of the values that are known; NaN without any. O(n log n).
    pub fn of(values: Vec<f64>) -> Median {
        let values = sorted(&values);
        let count = values.len();
        if count == 0 {
            return Median { value: f64::NAN, low: f64::NAN, high: f64::NAN };
        }
        let value = (values[(count - 1) / 2] + values[count / 2]) / 2.0;
        let ends = rank(count).map(|rank| (values[rank], values[count - 1 - rank]));
        let (low, high) = ends.unwrap_or((f64::NAN, f64::NAN));
        Median { value, low, high }
    }

    /// The interval, if it is known.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.low.is_finite().then_some((self.low, self.high))
    }
}

/// How many of the least values lie below the interval: the most that leave at least 95 % between them and as many of the greatest. By the binomial
/// distribution of the values below the median. `None`: even none are too many. O(`count`).
fn rank(count: usize) -> Option<usize> {
    let mut below = 0.0;
    // Logarithms: of 2000 values each case has a probability that is too small for a number.
    let mut case = -(count as f64) * std::f64::consts::LN_2;
    for rank in 0..count {
        below += case.exp();
        if below > 0.025 {
            return rank.checked_sub(1);
        }
        case += ((count - rank) as f64 / (rank + 1) as f64).ln();
    }
    None
}

/// The values that are known, in ascending order.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    known.sort_unstable_by(f64::total_cmp);
    known
}

/// The least value that at least this share of the values does not exceed (0.5: a median that was measured); NaN without any. O(n log n).
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let sorted = sorted(values);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// The mean without the least and the greatest value; of fewer than three values, of all. None without any. O(n log n).
pub fn trimmed_mean(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = if sorted.len() < 3 { &sorted[..] } else { &sorted[1..sorted.len() - 1] };
    (!middle.is_empty()).then(|| middle.iter().sum::<f64>() / middle.len() as f64)
}

/// With so many decimals.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

/// One figure a round: the median is quoted; the interval and the extremes say how far to trust it.
#[derive(Clone, Debug, Default)]
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

    /// How many rounds, with those whose figure is not known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many figures are known.
    pub fn known(&self) -> usize {
        self.0.iter().filter(|value| !value.is_nan()).count()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The middle one; the mean of the two middle ones when their number is even. NaN without samples.
    pub fn median(&self) -> f64 {
        Median::of(self.0.clone()).value
    }

    /// Median, smallest and largest, rounded.
    pub fn spread(&self, decimals: i32) -> [f64; 3] {
        [self.median(), self.min(), self.max()].map(|value| rounded(value, decimals))
    }

    /// Ends of the median's 95 % interval, rounded; none of fewer than [`ROUNDS_MIN`] samples.
    pub fn interval(&self, decimals: i32) -> Option<[f64; 2]> {
        let (low, high) = Median::of(self.0.clone()).interval()?;
        Some([low, high].map(|end| rounded(end, decimals)))
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
        let known = sorted(&self.0);
        let count = known.len() as f64;
        if count < 2.0 {
            return 0.0;
        }
        let mean = known.iter().sum::<f64>() / count;
        (known.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt()
    }

    /// Round by round, another's figure over this one's: noise that hits a whole round cancels out. Not known where either is not.
    pub fn ratio_of(&self, other: &Samples) -> Samples {
        Samples(other.0.iter().zip(&self.0).map(|(other, own)| other / own).collect())
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Samples(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_and_its_interval() {
        let median = Median::of((0..100).rev().map(f64::from).collect());
        assert_eq!((median.value, median.low, median.high), (49.5, 39.0, 60.0));
        for count in 1..ROUNDS_MIN {
            let few = Median::of((0..count).map(|n| n as f64).collect());
            assert!(few.value.is_finite() && few.interval().is_none(), "{few:?}");
        }
        let six = Median::of(vec![3.0, 1.0, 2.0, 9.0, 4.0, 5.0]);
        assert_eq!((six.value, six.interval()), (3.5, Some((1.0, 9.0))));
        assert!(Median::of(Vec::new()).value.is_nan());
    }

    #[test]
    fn a_figure_that_is_not_known_keeps_its_place_and_counts_for_nothing() {
        let own: Samples = [10.0, f64::NAN, 20.0, 40.0].into_iter().collect();
        assert_eq!((own.len(), own.known(), own.median()), (4, 3, 20.0));
        assert_eq!((own.min(), own.max()), (10.0, 40.0));
        let other: Samples = [20.0, 30.0, f64::NAN, 120.0].into_iter().collect();
        let ratio = own.ratio_of(&other);
        assert_eq!((ratio.len(), ratio.known(), ratio.median()), (4, 2, 2.5));
        let seven: Samples = [f64::NAN, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0].into_iter().collect();
        assert_eq!((seven.interval(0), seven.deviation()), (Some([1.0, 6.0]), 3.5f64.sqrt()));
        assert!(Samples(vec![f64::NAN]).median().is_nan());
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [5.0, 1.0, f64::NAN, 4.0, 2.0, 3.0];
        assert_eq!(
            [0.0, 0.2, 0.5, 0.8, 0.99, 1.0].map(|share| quantile(&values, share)),
            [1.0, 1.0, 3.0, 4.0, 5.0, 5.0]
        );
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn the_least_and_the_greatest_value_are_dropped() {
        assert_eq!(trimmed_mean(&[5.0, 1.0, 3.0, 100.0, 4.0]), Some(4.0));
        let few = [trimmed_mean(&[1.0, 3.0]), trimmed_mean(&[7.0, f64::NAN]), trimmed_mean(&[])];
        assert_eq!(few, [Some(2.0), Some(7.0), None]);
    }

    #[test]
    fn ranks_are_those_of_tables() {
        // Of sign tests: the least values that may be left out on either side at 5 %, two-sided.
        for (count, least) in
            [(5, None), (6, Some(0)), (8, Some(0)), (9, Some(1)), (20, Some(5)), (50, Some(17))]
        {
            assert_eq!(rank(count), least, "{count}");
        }
        // By the normal approximation, near enough for so many.
        assert!(rank(10_000).unwrap().abs_diff(4_902) <= 1, "{:?}", rank(10_000));
    }

    #[test]
    fn median_extremes_interval_and_paired_ratios() {
        let ours: Samples = [10.0, 30.0, 20.0].into_iter().collect();
        let kernel: Samples = [40.0, 120.0, 60.0].into_iter().collect();
        assert_eq!((ours.median(), ours.min(), ours.max()), (20.0, 10.0, 30.0));
        assert_eq!(ours.ratio_of(&kernel).median(), 4.0);
        assert_eq!([1.0, 2.0].into_iter().collect::<Samples>().median(), 1.5);
        assert_eq!((ours.deviation(), Samples::default().deviation()), (10.0, 0.0));
        assert!(Samples::default().median().is_nan());
        assert_eq!(Samples(vec![1.26, 9.0, -1.0]).spread(1), [1.3, -1.0, 9.0]);
        assert_eq!(ours.interval(1), None);
        let nine: Samples = (1..=9).map(|n| f64::from(n) / 3.0).collect();
        assert_eq!(nine.interval(1), Some([0.7, 2.7]));
    }
}
