//! The search for the highest rate that loses no more than is allowed. It sends nothing itself: a trial is a function.

/// Where a search looks, and how exactly.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Lowest rate.
    pub least: f64,
    /// Highest rate.
    pub most: f64,
    /// The result lies below a rate that lost too much by no more than this share.
    pub precision: f64,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// Frames a second that were really sent.
    pub rate: f64,
    /// Share of them that did not arrive, 0 to 1.
    pub loss: f64,
}

/// More trials than any search needs.
const TRIALS_MAX: usize = 96;

/// A search and all its trials. A search for another loss begins with what these say.
#[derive(Clone, Debug)]
pub struct Search {
    range: Range,
    tried: Vec<Tried>,
}

impl Search {
    /// Begins without any trial.
    pub fn new(range: Range) -> Search {
        Search { range, tried: Vec::new() }
    }

    /// Highest rate that the generator reached, as far as it is known.
    pub fn most(&self) -> f64 {
        self.range.most
    }

    /// The highest rate that lost no more than the share `allowed` and lies below all rates that lost more; none if each rate lost more.
    ///
    /// It begins at `start` and goes up or down in growing steps until both kinds of rates are known. Then it halves what lies between them.
    ///
    /// # Errors
    /// The first error of a trial.
    pub fn highest<E>(
        &mut self,
        allowed: f64,
        start: f64,
        mut trial: impl FnMut(f64) -> Result<Tried, E>,
    ) -> Result<Option<f64>, E> {
        let mut step = 1.0 + 2.0 * self.range.precision;
        for _ in 0..TRIALS_MAX {
            let Range { least, most, precision } = self.range;
            let next = match self.between(allowed) {
                (None, None) => start.clamp(least, most),
                (Some(low), None) if low >= most => return Ok(Some(low)),
                (None, Some(high)) if high <= least => return Ok(None),
                (Some(low), Some(high)) if high <= low * (1.0 + precision) => return Ok(Some(low)),
                (Some(low), None) => (low * step).min(most),
                (None, Some(high)) => (high / step).max(least),
                (Some(low), Some(high)) => (low * high).sqrt(),
            };
            if let (Some(_), None) | (None, Some(_)) = self.between(allowed) {
                step *= step;
            }
            let reached = next * (1.0 - precision / 2.0);
            let mut tried = trial(next)?;
            if tried.rate < reached && tried.loss <= allowed {
                // A pause of the generator is not its limit: it has a second attempt.
                tried = trial(next)?;
            }
            let Tried { rate, loss } = tried;
            let is_reached = rate >= reached;
            // A rate that was reached counts as the one asked for: so each trial makes the gap smaller.
            let rate = if is_reached { next } else { rate };
            self.tried.push(Tried { rate, loss });
            if !is_reached && loss <= allowed {
                let (low, _) = self.between(allowed);
                self.range.most = low.map_or(rate, |low| low.max(rate));
            }
        }
        Ok(self.between(allowed).0)
    }

    /// The lowest rate that lost more than is allowed, and before it the highest one below that did not.
    fn between(&self, allowed: f64) -> (Option<f64>, Option<f64>) {
        let bad = self.tried.iter().filter(|tried| tried.loss > allowed).map(|tried| tried.rate);
        let high = bad.min_by(f64::total_cmp);
        let good = self.tried.iter().filter(|tried| tried.loss <= allowed).map(|tried| tried.rate);
        let low = good.filter(|rate| high.is_none_or(|high| *rate < high)).max_by(f64::total_cmp);
        (low, high)
    }
}

/// The highest rate not above `start` whose trial loses nothing, tried downwards in growing steps; none if each rate down to `least` lost
/// frames.
///
/// # Errors
/// The first error of a trial.
pub fn confirmed<E>(
    range: Range,
    start: f64,
    mut trial: impl FnMut(f64) -> Result<Tried, E>,
) -> Result<Option<f64>, E> {
    let (mut rate, mut step) = (start, 1.0 + range.precision);
    loop {
        if trial(rate)?.loss <= 0.0 {
            return Ok(Some(rate));
        }
        if rate <= range.least {
            return Ok(None);
        }
        rate = (rate / step).max(range.least);
        step *= step;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    const RANGE: Range = Range { least: 1e3, most: 2e7, precision: 0.01 };

    /// A node that takes `capacity` a second and drops the rest.
    fn node(capacity: f64) -> impl FnMut(f64) -> Result<Tried, Infallible> {
        move |rate| Ok(Tried { rate, loss: (1.0 - capacity / rate).max(0.0) })
    }

    fn found(search: &mut Search, allowed: f64, start: f64, capacity: f64) -> Option<f64> {
        let Ok(found) = search.highest(allowed, start, node(capacity));
        found
    }

    #[test]
    fn ends_of_the_range_and_a_generator_that_is_too_slow() {
        assert_eq!(found(&mut Search::new(RANGE), 0.0, 5e5, 999.0), None);
        assert_eq!(found(&mut Search::new(RANGE), 0.0, 5e5, 1e3), Some(1e3));
        assert_eq!(found(&mut Search::new(RANGE), 0.0, 5e5, 1e9), Some(2e7));
        // It sends a million and a half a second at most, whatever is asked.
        let mut search = Search::new(RANGE);
        let Ok(highest) = search
            .highest(0.0, 1e6, |asked: f64| Ok::<_, Infallible>(Tried { rate: asked.min(1.5e6), loss: 0.0 }));
        let highest = highest.unwrap();
        assert!((1.5e6 * 0.98..=1.5e6 / 0.98).contains(&highest), "{highest}");
        assert_eq!(search.most(), highest);
        // Rates above it lose too much: the generator's limit is not the answer.
        let mut search = Search::new(RANGE);
        let Ok(highest) = search.highest(0.0, 1e6, |asked: f64| {
            let rate = asked.min(1.5e6);
            Ok::<_, Infallible>(Tried { rate, loss: if rate > 1.2e6 { 0.1 } else { 0.0 } })
        });
        assert!((1.188e6..=1.2e6).contains(&highest.unwrap()), "{highest:?}");
    }

    #[test]
    fn a_rate_is_confirmed_or_a_lower_one_is() {
        let confirm = |start, capacity| {
            let mut trials = 0;
            let mut node = node(capacity);
            let trial = |rate| {
                trials += 1;
                node(rate)
            };
            let Ok(rate) = confirmed(RANGE, start, trial);
            (rate, trials)
        };
        assert_eq!(confirm(1e6, 1e6), (Some(1e6), 1));
        let (rate, trials) = confirm(1e6, 0.995e6);
        assert!(trials == 2 && (0.99e6..=0.995e6).contains(&rate.unwrap()), "{rate:?}");
        assert_eq!(confirm(1e6, 1e3).0, Some(1e3));
        let (rate, trials) = confirm(2e7, 10.0);
        assert!(rate.is_none() && trials < 20, "{trials}");
    }

    proptest! {
        #[test]
        fn finds_the_capacity_from_any_start(capacity in 2e3..1.9e7f64, start in 1.0..1e8f64) {
            let mut search = Search::new(RANGE);
            let ndr = found(&mut search, 0.0, start, capacity).unwrap();
            prop_assert!(ndr <= capacity && capacity <= ndr * 1.01, "{ndr} of {capacity}");
            // Half a percent may be lost: the trials so far are of use.
            let before = search.tried.len();
            let pdr = found(&mut search, 0.005, ndr, capacity).unwrap();
            let limit = capacity / 0.995;
            prop_assert!(ndr <= pdr && pdr <= limit && limit <= pdr * 1.01, "{pdr} of {limit}");
            prop_assert!(search.tried.len() - before <= 8, "{:?}", search.tried);
            // Growing steps and halves: no search goes through the range step by step.
            prop_assert!(before <= 40, "{before} trials");
        }

        #[test]
        fn a_start_near_the_capacity_takes_few_trials(capacity in 1e4..1e7f64, off in -0.02..0.02f64) {
            let mut search = Search::new(RANGE);
            found(&mut search, 0.0, capacity * (1.0 + off), capacity);
            prop_assert!(search.tried.len() <= 7, "{:?}", search.tried);
        }

        #[test]
        fn a_noisy_node_gives_a_rate_that_was_tried(
            capacity in 2e3..1.9e7f64,
            noise in prop::collection::vec(-0.3..0.3f64, TRIALS_MAX),
        ) {
            let mut search = Search::new(RANGE);
            let (mut noise, mut trials) = (noise.into_iter(), 0);
            let Ok(highest) = search.highest(0.0, 1e6, |rate: f64| {
                trials += 1;
                let capacity = capacity * (1.0 + noise.next().unwrap());
                Ok::<_, Infallible>(Tried { rate, loss: (1.0 - capacity / rate).max(0.0) })
            });
            prop_assert!(trials < TRIALS_MAX);
            let lossy = |rate: f64| search.tried.iter().any(|tried| tried.rate <= rate && tried.loss > 0.0);
            match highest {
                Some(rate) => {
                    prop_assert!(search.tried.contains(&Tried { rate, loss: 0.0 }), "{rate} was not tried");
                    prop_assert!(!lossy(rate), "a rate below {rate} had lost frames: {:?}", search.tried);
                    prop_assert!(lossy(rate * 1.01) || rate == RANGE.most, "{rate}: {:?}", search.tried);
                }
                None => prop_assert!(lossy(RANGE.least), "{:?}", search.tried),
            }
        }
    }
}
