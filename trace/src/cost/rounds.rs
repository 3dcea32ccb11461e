//! Cases that take turns in rounds, so that what a machine does to a round it does to all of them.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::gate::Gate;
use crate::error::Error;

/// Rounds that may be made for each that is to be kept.
const ATTEMPTS: usize = 4;
/// Fewer give no interval: the least and the greatest of five hold the median in 94 % of the cases.
const ROUNDS_MIN: usize = 6;

/// Median of the differences of rounds, with its confidence interval of at least 95 % from their order; NaN is what is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delta {
    /// Nanoseconds.
    pub ns: f64,
    /// Lower end of the interval; NaN of fewer than six rounds.
    pub low: f64,
    /// Upper end, in the same way.
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
        let ns = (differences[(count - 1) / 2] + differences[count / 2]) / 2.0;
        let ends = rank(count).map(|rank| (differences[rank], differences[count - 1 - rank]));
        let (low, high) = ends.unwrap_or((f64::NAN, f64::NAN));
        Delta { ns, low, high }
    }

    /// The interval, if it is known.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.low.is_finite().then_some((self.low, self.high))
    }
}

/// How many of the least values lie below the interval: the most with which at least 95 % are left between them and as many of the greatest,
/// by the binomial distribution of how many values lie below the median. `None`: even none are too many. O(`count`).
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

/// The cases of a round in their order: sorted by hashes, whose keys are the same in every process.
fn order(cases: usize, seed: u64, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cases).collect();
    order.sort_by_cached_key(|case| {
        let mut hasher = DefaultHasher::new();
        (seed, round, case).hash(&mut hasher);
        hasher.finish()
    });
    order
}

/// The result of the rounds in which the processor kept its speed.
#[derive(Clone, Debug)]
pub struct Rounds<S> {
    /// A round's samples, by case.
    pub kept: Vec<Vec<S>>,
    /// Rounds made.
    pub made: usize,
}

impl<S> Rounds<S> {
    /// Makes rounds until `wanted` are kept, at most four times as many. In each, every case from 0 to `cases` - 1 has its turn, in an order
    /// that is random, and the same for the same `seed`: none always follows the same one. `sample` steps the gate before and after what
    /// it times.
    ///
    /// # Errors
    /// The error of `sample`; [`Error::Restless`] when fewer than six rounds are kept, of as many that are wanted.
    pub fn take<E: From<Error>>(
        cases: usize,
        wanted: usize,
        seed: u64,
        mut sample: impl FnMut(usize, &mut Gate) -> Result<S, E>,
    ) -> Result<Rounds<S>, E> {
        let mut rounds = Rounds { kept: Vec::with_capacity(wanted), made: 0 };
        let mut gate = Gate::default();
        while rounds.kept.len() < wanted && rounds.made < wanted * ATTEMPTS {
            let mut samples: Vec<(usize, S)> = Vec::with_capacity(cases);
            for case in order(cases, seed, rounds.made) {
                samples.push((case, sample(case, &mut gate)?));
            }
            rounds.made += 1;
            samples.sort_by_key(|(case, _)| *case);
            if gate.end_round() {
                rounds.kept.push(samples.into_iter().map(|(_, sample)| sample).collect());
            }
        }
        if rounds.kept.len() < ROUNDS_MIN.min(wanted) {
            return Err(Error::Restless { kept: rounds.kept.len(), rounds: rounds.made }.into());
        }
        Ok(rounds)
    }

    /// Whether there are enough of them for an interval.
    pub fn are_enough(&self) -> bool {
        self.kept.len() >= ROUNDS_MIN
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
        for count in 1..6 {
            let few = Delta::of((0..count).map(f64::from).collect());
            assert!(few.ns.is_finite() && few.interval().is_none(), "{few:?}");
        }
        let six = Delta::of(vec![3.0, 1.0, 2.0, 9.0, 4.0, 5.0]);
        assert_eq!((six.ns, six.interval()), (3.5, Some((1.0, 9.0))));
        assert!(Delta::of(Vec::new()).ns.is_nan());
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
    fn cases_take_turns_and_keep_their_places() {
        let mut order = Vec::new();
        let rounds = Rounds::take(3, 6, 7, |case, _| {
            order.push(case);
            Ok::<_, Error>(10.0 * case as f64)
        });
        let rounds = rounds.unwrap();
        assert!(order.chunks(3).all(|turn| (0..3).all(|case| turn.contains(&case))), "{order:?}");
        assert_eq!(
            (rounds.made, rounds.delta(2, 1, |ns| *ns).ns, rounds.median(2, |ns| *ns)),
            (6, 10.0, 20.0)
        );
    }

    /// By turns alone each case would have the same one before it in every round.
    #[test]
    fn every_case_follows_every_other() {
        let turns: Vec<Vec<usize>> = (0..200).map(|round| order(4, 1, round)).collect();
        for (one, two) in
            (0..4).flat_map(|one| (0..4).map(move |two| (one, two))).filter(|(one, two)| one != two)
        {
            let follows = |turn: &&Vec<usize>| turn.windows(2).any(|pair| *pair == [one, two]);
            let count = turns.iter().filter(follows).count();
            assert!((25..75).contains(&count), "{two} after {one}: {count} of 50");
        }
        assert_eq!(order(9, 1, 5), order(9, 1, 5));
        assert_ne!(order(9, 1, 5), order(9, 2, 5));
    }

    #[test]
    fn a_processor_that_changes_its_speed_is_refused() {
        let rounds = Rounds::take(2, 6, 7, |case, gate| {
            gate.add(1.0 + case as f64);
            Ok::<_, Error>(())
        });
        assert!(matches!(rounds, Err(Error::Restless { kept: 0, rounds: 24 })));
    }
}
