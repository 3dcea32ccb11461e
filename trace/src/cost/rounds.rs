//! Cases that take turns in rounds, so that what a machine does to a round it does to all of them.

use super::gate::Gate;
use crate::error::Error;

/// Rounds that may be made for each that is to be kept.
const ATTEMPTS: usize = 4;
/// Fewer rounds give no interval worth the name.
const ROUNDS_MIN: usize = 5;

/// Median of the differences of rounds, with its 95 % confidence interval from their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delta {
    /// Nanoseconds.
    pub ns: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Delta {
    /// Of the rounds' differences; NaN without any. O(n log n).
    pub fn of(mut differences: Vec<f64>) -> Delta {
        differences.sort_by(f64::total_cmp);
        let count = differences.len();
        if count == 0 {
            return Delta { ns: f64::NAN, low: f64::NAN, high: f64::NAN };
        }
        // Ranks of the binomial distribution's 2.5 % and 97.5 %, by its normal approximation.
        let reach = 0.98 * (count as f64).sqrt();
        let middle = (count as f64 - 1.0) / 2.0;
        let low = (middle - reach).floor().max(0.0) as usize;
        let high = ((middle + reach).ceil() as usize).min(count - 1);
        let ns = (differences[(count - 1) / 2] + differences[count / 2]) / 2.0;
        Delta { ns, low: differences[low], high: differences[high] }
    }
}

/// What the rounds came to, those in which the processor did not keep its speed left out.
#[derive(Clone, Debug)]
pub struct Rounds<S> {
    /// A round's samples, by case.
    pub kept: Vec<Vec<S>>,
    /// Rounds made.
    pub made: usize,
}

impl<S> Rounds<S> {
    /// Makes rounds until `wanted` are kept, at most four times as many. In each, every case from 0 to `cases` - 1 has its turn; another
    /// one begins each round. `sample` steps the gate before and after what it times.
    ///
    /// # Errors
    /// What `sample` says; [`Error::Restless`] when fewer than five rounds are kept.
    pub fn take<E: From<Error>>(
        cases: usize,
        wanted: usize,
        mut sample: impl FnMut(usize, &mut Gate) -> Result<S, E>,
    ) -> Result<Rounds<S>, E> {
        let mut rounds = Rounds { kept: Vec::with_capacity(wanted), made: 0 };
        let mut gate = Gate::default();
        while rounds.kept.len() < wanted && rounds.made < wanted * ATTEMPTS {
            let first = rounds.made % cases.max(1);
            rounds.made += 1;
            let mut samples = Vec::with_capacity(cases);
            for step in 0..cases {
                samples.push(sample((first + step) % cases, &mut gate)?);
            }
            samples.rotate_right(first);
            if gate.end_round() {
                rounds.kept.push(samples);
            }
        }
        if rounds.kept.len() < ROUNDS_MIN.min(wanted) {
            return Err(Error::Restless { kept: rounds.kept.len(), rounds: rounds.made }.into());
        }
        Ok(rounds)
    }

    /// How much more a case shows than another: `of` gives a sample's figure.
    pub fn delta(&self, case: usize, base: usize, of: impl Fn(&S) -> f64) -> Delta {
        Delta::of(self.kept.iter().map(|round| of(&round[case]) - of(&round[base])).collect())
    }

    /// A case's median.
    pub fn median(&self, case: usize, of: impl Fn(&S) -> f64) -> f64 {
        Delta::of(self.kept.iter().map(|round| of(&round[case])).collect()).ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_and_its_interval() {
        let delta = Delta::of((0..100).rev().map(f64::from).collect());
        assert_eq!((delta.ns, delta.low, delta.high), (49.5, 39.0, 60.0));
        let few = Delta::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((few.ns, few.low, few.high), (2.0, 1.0, 3.0));
        assert!(Delta::of(Vec::new()).ns.is_nan());
    }

    #[test]
    fn cases_take_turns_and_keep_their_places() {
        let mut order = Vec::new();
        let rounds = Rounds::take(3, 6, |case, _| {
            order.push(case);
            Ok::<_, Error>(10.0 * case as f64)
        });
        let rounds = rounds.unwrap();
        assert_eq!(order[..9], [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(
            (rounds.made, rounds.delta(2, 1, |ns| *ns).ns, rounds.median(2, |ns| *ns)),
            (6, 10.0, 20.0)
        );
    }

    #[test]
    fn a_processor_that_changes_its_speed_is_refused() {
        let rounds = Rounds::take(2, 6, |case, gate| {
            gate.add(1.0 + case as f64);
            Ok::<_, Error>(())
        });
        assert!(matches!(rounds, Err(Error::Restless { kept: 0, rounds: 24 })));
    }
}
