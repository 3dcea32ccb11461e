//! The account of a run: its samples by the calibration loop, and the rivals that lost their rows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use trieline_sampling::{Gate, Kept, Sampler};

use crate::error::{Error, Result};

/// The samples of a run, by a loop of plain arithmetic that is timed before and after each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// A sample counts as slow if a loop took longer than the quickest loop of the run, by this factor.
    pub tolerance: f64,
    /// Samples that the figures are made of.
    pub samples: usize,
    /// Slow samples that were rejected and taken again.
    pub rejected: usize,
    /// Slow samples among those of the figures: they were taken again too often.
    pub slow: usize,
}

impl Calibration {
    /// Whether so many samples are slow (more than a quarter) that a median says little.
    pub fn is_noisy(&self) -> bool {
        4 * self.slow > self.samples
    }

    /// The text for captions: how many samples were rejected, and how many are slow; empty without either.
    pub fn caption(&self) -> String {
        let Calibration { samples, rejected, slow, .. } = *self;
        let mut text = String::new();
        if rejected > 0 {
            text += &format!("; {rejected} slow samples rejected");
        }
        if slow > 0 {
            text += &format!("; THE MACHINE WAS SLOW in {slow} of {samples} samples");
        }
        text
    }
}

/// A rival, or one of its cases, without rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The structure, engine or method of others.
    pub rival: String,
    /// Of what: the table, path or operation.
    pub case: String,
    /// Why.
    pub reason: String,
}

/// The account of one run. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Account {
    sampler: Arc<Mutex<Option<Sampler>>>,
    refused: Arc<Mutex<Vec<Refusal>>>,
    cut: Arc<Mutex<Option<String>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Account {
    /// Forgets an earlier run.
    pub fn begin(&self) {
        *locked(&self.sampler) = None;
        locked(&self.refused).clear();
        *locked(&self.cut) = None;
    }

    /// [`Sampler::round`] of this run's sampler, whose order of turns is by `seed`. `take` may use the account's refusals, not its samples.
    ///
    /// # Errors
    /// The first error of `take`.
    pub fn round<S>(
        &self,
        seed: u64,
        round: usize,
        cases: usize,
        take: impl FnMut(usize, &mut Gate) -> Result<S>,
    ) -> Result<Vec<S>> {
        locked(&self.sampler).get_or_insert_with(|| Sampler::new(seed)).round(round, cases, take)
    }

    /// [`Sampler::order`] of this run's sampler: the cases of a round in their order.
    pub fn order(&self, seed: u64, round: usize, cases: usize) -> Vec<usize> {
        locked(&self.sampler).get_or_insert_with(|| Sampler::new(seed)).order(round, cases)
    }

    /// [`Sampler::sample`] of this run's sampler. `take` may use the account's refusals, not its samples.
    ///
    /// # Errors
    /// The first error of `take`.
    pub fn sample<S>(&self, seed: u64, take: impl FnMut(&mut Gate) -> Result<S>) -> Result<S> {
        locked(&self.sampler).get_or_insert_with(|| Sampler::new(seed)).sample(take)
    }

    /// Notes that a rival has no rows of a case.
    pub fn refuse(&self, rival: &str, case: &str, reason: &str) {
        let refusal = Refusal { rival: rival.into(), case: case.into(), reason: reason.into() };
        let mut refused = locked(&self.refused);
        if !refused.contains(&refusal) {
            refused.push(refusal);
        }
    }

    /// Notes that a rival lost its rows of a case because it failed: that says something about the rival, not about the run.
    ///
    /// # Errors
    /// The error itself if it is not the rival's: an interrupt, or a defect of the lab.
    pub fn lose(&self, rival: &str, case: &str, error: Error) -> Result<()> {
        if !error.is_of_a_structure() {
            return Err(error);
        }
        self.refuse(rival, case, &error.to_string());
        Ok(())
    }

    /// The account of the samples so far.
    pub fn calibration(&self) -> Calibration {
        let Kept { kept, rejected, slow } =
            locked(&self.sampler).as_ref().map(Sampler::kept).unwrap_or_default();
        Calibration { tolerance: Gate::TOLERANCE, samples: kept, rejected, slow }
    }

    /// Notes where the run was interrupted; false if that is known already.
    pub fn cut(&self, at: &str) -> bool {
        let mut cut = locked(&self.cut);
        let is_new = cut.is_none();
        cut.get_or_insert_with(|| at.to_owned());
        is_new
    }

    /// Where the run was interrupted, if it was.
    pub fn was_cut(&self) -> Option<String> {
        locked(&self.cut).clone()
    }

    /// The rivals without rows so far.
    pub fn refused(&self) -> Vec<Refusal> {
        locked(&self.refused).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_that_fails_is_noted_once_and_other_errors_go_on() {
        let account = Account::default();
        let refused = || Error::Refused { structure: "dpdk-fib6".into(), count: 4463 };
        account.lose("dpdk-fib6", "bgp6", refused()).unwrap();
        account.clone().lose("dpdk-fib6", "bgp6", refused()).unwrap();
        let refusals = account.refused();
        assert_eq!((refusals.len(), refusals[0].case.as_str()), (1, "bgp6"));
        assert!(refusals[0].reason.contains("refuses 4463 changes"), "{refusals:?}");
        assert!(matches!(account.lose("x", "y", Error::Interrupted), Err(Error::Interrupted)));
        account.begin();
        assert!(account.refused().is_empty());
    }

    #[test]
    fn samples_are_counted_and_many_slow_ones_are_noise() {
        let account = Account::default();
        // A reading of another CPU that no loop here reaches.
        let take = |case: usize, gate: &mut Gate| {
            gate.add(if case == 0 { 10.0 } else { 0.0 });
            Ok(case)
        };
        assert_eq!(account.calibration().samples, 0);
        assert_eq!(account.round(1, 0, 1, take).unwrap(), [0]);
        let calibration = account.calibration();
        assert_eq!((calibration.samples, calibration.rejected, calibration.slow), (1, 3, 1));
        assert!(calibration.is_noisy() && calibration.caption().contains("SLOW in 1 of 1"));
        assert!(!Calibration { samples: 40, slow: 10, ..calibration }.is_noisy());
        assert_eq!(Calibration::default().caption(), "");
    }
}
