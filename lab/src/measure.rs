//! Samples of interleaved rounds: the median is quoted, the extremes say how far to trust it.

use serde::Serialize;

/// One figure a round.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a round's figure.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
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

/// Rounded to so many decimals: more digits than the noise allows are no information.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_min_max_and_paired_ratios() {
        let ours: Samples = [10.0, 30.0, 20.0].into_iter().collect();
        let kernel: Samples = [40.0, 120.0, 60.0].into_iter().collect();
        assert_eq!((ours.median(), ours.min(), ours.max()), (20.0, 10.0, 30.0));
        assert_eq!(ours.ratio_of(&kernel).median(), 4.0);
        assert_eq!([1.0, 2.0].into_iter().collect::<Samples>().median(), 1.5);
        assert!(Samples::default().median().is_nan());
        assert_eq!(rounded(1.23456, 2), 1.23);
    }
}
