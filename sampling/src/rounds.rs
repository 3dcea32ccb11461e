//! Cases that take turns in rounds, in random order, so that what a machine does to a round it does to all of them. A sample of a slow machine is
//! taken again.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::gate::Gate;
use super::samples::{Median, ROUNDS_MIN, Samples};

/// Readings of the loop before the first sample: what this CPU can do.
const FIRST: usize = 32;
/// A sample is taken so often at most.
const ATTEMPTS: usize = 4;
/// Samples that may be rejected in any run; and half of those that are kept.
const REJECTED: usize = 16;

/// The samples of a run so far, by the calibration loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Samples that were kept.
    pub kept: usize,
    /// Samples that were rejected and taken again, because the loop was slower than the quickest one by more than [`Gate::TOLERANCE`].
    pub rejected: usize,
    /// Kept samples during which the machine was as slow: they were taken again too often.
    pub slow: usize,
}

/// Takes the samples of a run: one at a time, in random order, each between two calibration loops.
#[derive(Debug)]
pub struct Sampler {
    seed: u64,
    quickest: f64,
    rejected: usize,
    /// Of each kept sample the slowest loop.
    loops: Vec<f64>,
}

impl Sampler {
    /// The order of turns is the same for the same seed.
    pub fn new(seed: u64) -> Sampler {
        Sampler { seed, quickest: f64::INFINITY, rejected: 0, loops: Vec::new() }
    }

    /// The cases of a round, from 0 to `cases` - 1, in an order that is random: none always follows the same one.
    pub fn order(&self, round: usize, cases: usize) -> Vec<usize> {
        order(cases, self.seed, round)
    }

    /// Takes one sample. `take` may add readings of other CPUs to the gate. A sample during which the machine was slow is taken again, at most
    /// three times.
    ///
    /// # Errors
    /// The first error of `take`.
    pub fn sample<S, E>(&mut self, mut take: impl FnMut(&mut Gate) -> Result<S, E>) -> Result<S, E> {
        if self.quickest.is_infinite() {
            self.quickest = (0..FIRST).map(|_| Gate::seconds()).fold(f64::INFINITY, f64::min);
        }
        let mut attempt = 1;
        loop {
            let mut gate = Gate::default();
            gate.step();
            let sample = take(&mut gate)?;
            gate.step();
            self.quickest = self.quickest.min(gate.quickest());
            // The speed does not matter to a sample that holds at any.
            let slowest = if gate.holds() { self.quickest } else { gate.slowest() };
            let may_reject = attempt < ATTEMPTS && self.rejected < REJECTED + self.loops.len() / 2;
            if may_reject && self.is_slow(slowest) {
                self.rejected += 1;
                attempt += 1;
                continue;
            }
            self.loops.push(slowest);
            return Ok(sample);
        }
    }

    /// Takes a sample of every case from 0 to `cases` - 1, in the round's order. The samples, by case.
    ///
    /// # Errors
    /// The first error of `take`.
    pub fn round<S, E>(
        &mut self,
        round: usize,
        cases: usize,
        mut take: impl FnMut(usize, &mut Gate) -> Result<S, E>,
    ) -> Result<Vec<S>, E> {
        let mut samples: Vec<(usize, S)> = Vec::with_capacity(cases);
        for case in self.order(round, cases) {
            samples.push((case, self.sample(|gate| take(case, gate))?));
        }
        samples.sort_by_key(|(case, _)| *case);
        Ok(samples.into_iter().map(|(_, sample)| sample).collect())
    }

    /// The account of all samples so far.
    pub fn kept(&self) -> Kept {
        let slow = self.loops.iter().filter(|seconds| self.is_slow(**seconds)).count();
        Kept { kept: self.loops.len(), rejected: self.rejected, slow }
    }

    fn is_slow(&self, seconds: f64) -> bool {
        seconds > self.quickest * Gate::TOLERANCE
    }
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

/// The samples of rounds.
#[derive(Clone, Debug, Default)]
pub struct Rounds<S>(pub Vec<Vec<S>>);

impl<S> Rounds<S> {
    /// How many rounds.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has not a single round.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are enough of them for an interval.
    pub fn are_enough(&self) -> bool {
        self.len() >= ROUNDS_MIN
    }

    /// A case's samples: `of` gives a sample's figure.
    pub fn samples(&self, case: usize, of: impl Fn(&S) -> f64) -> Samples {
        self.0.iter().map(|round| of(&round[case])).collect()
    }

    /// How much more a case shows than another in the same rounds.
    pub fn delta(&self, case: usize, base: usize, of: impl Fn(&S) -> f64) -> Median {
        Median::of(self.0.iter().map(|round| of(&round[case]) - of(&round[base])).collect())
    }

    /// A case's median.
    pub fn median(&self, case: usize, of: impl Fn(&S) -> f64) -> f64 {
        self.samples(case, of).median()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A sampler that has seen a loop of one nanosecond: no real loop is so quick, only readings that a test adds.
    fn sampler() -> Sampler {
        Sampler { quickest: 1e-9, ..Sampler::new(7) }
    }

    #[test]
    fn cases_take_turns_and_keep_their_places() {
        let (mut sampler, mut order) = (Sampler::new(7), Vec::new());
        let mut take = |case: usize, _: &mut Gate| {
            if order.last() != Some(&case) {
                order.push(case);
            }
            Ok::<_, Infallible>(10.0 * case as f64)
        };
        let rounds = Rounds((0..6).map(|round| sampler.round(round, 3, &mut take).unwrap()).collect());
        assert!((0..3).all(|case| order.contains(&case)), "{order:?}");
        assert_eq!(
            (rounds.len(), rounds.delta(2, 1, |ns| *ns).value, rounds.median(2, |ns| *ns)),
            (6, 10.0, 20.0)
        );
        assert!(rounds.are_enough() && sampler.kept().kept == 18);
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
    fn slow_samples_are_taken_again_within_bounds_and_counted() {
        // Every loop here is slower than the quickest one that was seen.
        let (mut sampler, mut taken) = (sampler(), 0);
        for round in 0..20 {
            let numbers = sampler.round(round, 2, |_, _| {
                taken += 1;
                Ok::<_, Infallible>(taken)
            });
            assert_eq!(numbers.unwrap().len(), 2);
        }
        let kept = sampler.kept();
        assert_eq!((kept.kept, kept.slow, kept.rejected), (40, 40, taken - 40));
        assert!((REJECTED..=REJECTED + 20).contains(&kept.rejected), "{kept:?}");
    }

    #[test]
    fn the_last_attempt_is_kept_and_an_error_ends_the_round() {
        let (mut sampler, mut taken) = (sampler(), 0);
        let mut take = |_: usize, _: &mut Gate| {
            taken += 1;
            if taken > ATTEMPTS { Err("broken") } else { Ok(taken) }
        };
        assert_eq!(sampler.round(0, 1, &mut take), Ok(vec![ATTEMPTS]));
        assert_eq!(sampler.round(1, 1, &mut take), Err("broken"));
        assert_eq!(sampler.kept(), Kept { kept: 1, rejected: ATTEMPTS - 1, slow: 1 });
    }

    #[test]
    fn a_sample_that_holds_at_any_speed_is_not_taken_again() {
        let (mut sampler, mut taken) = (sampler(), 0);
        let sample = sampler.sample(|gate| {
            taken += 1;
            gate.hold();
            Ok::<_, Infallible>(taken)
        });
        assert_eq!((sample, sampler.kept()), (Ok(1), Kept { kept: 1, rejected: 0, slow: 0 }));
    }

    #[test]
    fn a_reading_of_another_cpu_counts() {
        let mut sampler = Sampler::new(1);
        let taken = sampler.round(0, 1, |_, gate| {
            gate.add(10.0);
            Ok::<_, Infallible>(())
        });
        assert_eq!(
            (taken, sampler.kept()),
            (Ok(vec![()]), Kept { kept: 1, rejected: ATTEMPTS - 1, slow: 1 })
        );
    }
}
