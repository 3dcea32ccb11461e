//! The rows of `churn`, from the trials of all rounds.

use serde::{Deserialize, Serialize};

use super::{
    drive::Done,
    trial::{Counts, Event},
};
use crate::{
    experiments::forked::Plane,
    fork::Routes,
    measure::{Samples, rounded},
};

/// One event after one plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `none`, `routes`, `status`, `reload`, `kill`, `upgrade`, `all`.
    pub event: &'static str,
    /// `kernel`, `xdp`.
    pub plane: Plane,
    /// Routes in the node's table.
    pub routes: usize,
    /// Trials that the counts are of: also those that the calibration loop rejected.
    pub trials: usize,
    /// Trials that the times are of.
    pub rounds: usize,
    /// The work done, all trials: routes replaced, answers to status, reloads, kills, upgrades.
    #[serde(flatten)]
    pub done: Done,
    /// Routes replaced a second.
    pub changes_per_s: f64,
    /// Seconds of all trials.
    pub seconds: f64,
    /// Frames sent that should arrive.
    pub sent: u64,
    /// Of them: those that did not.
    pub lost: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames to routes that never change which left by the other link.
    pub wrong: u64,
    /// Frames that arrived after a later one of their destination.
    pub reordered: u64,
    /// Frames sent to the address that the filter drops; 0 for the kernel.
    pub filtered: u64,
    /// Of them: those that arrived.
    pub leaked: u64,
    /// Packets that XDP left to the kernel.
    pub passed: u64,
    /// The sender was held up so often.
    pub stalls: u64,
    /// From the sender's program to the receiver's, in nanoseconds: median; each the median of the rounds.
    pub p50_ns: f64,
    /// The least round of that.
    pub p50_ns_min: f64,
    /// The greatest.
    pub p50_ns_max: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The 99.9th.
    pub p999_ns: f64,
    /// Its least round.
    pub p999_ns_min: f64,
    /// Its greatest.
    pub p999_ns_max: f64,
    /// The slowest of all trials.
    pub max_ns: u64,
    /// Share of a trial's frames that were lost: median of the trials.
    pub lost_share: f64,
    /// The least trial.
    pub lost_share_min: f64,
    /// The greatest.
    pub lost_share_max: f64,
    /// Share of a trial's frames that left by the wrong link: median of the trials.
    pub wrong_share: f64,
    /// The least trial.
    pub wrong_share_min: f64,
    /// The greatest.
    pub wrong_share_max: f64,
}

impl Row {
    /// The trials together: counts of all, times of those that were kept.
    pub(super) fn new(
        event: Event,
        plane: Plane,
        routes: &Routes,
        trials: &[Counts],
        kept: &[Counts],
    ) -> Row {
        let done = trials.iter().fold(Done::default(), |sum, trial| sum.and(trial.done));
        let seconds: f64 = trials.iter().map(|trial| trial.seconds).sum();
        let sum = |count: fn(&Counts) -> u64| trials.iter().map(count).sum();
        let [p50, p99, p999] = [0, 1, 2].map(|which: usize| {
            kept.iter().map(|trial| trial.ns[which] as f64).collect::<Samples>().spread(0)
        });
        let share = |count: fn(&Counts) -> u64| {
            let shares = trials.iter().map(|trial| count(trial) as f64 / trial.sent.max(1) as f64);
            shares.collect::<Samples>().spread(9)
        };
        let [lost_share, lost_share_min, lost_share_max] = share(|trial| trial.lost);
        let [wrong_share, wrong_share_min, wrong_share_max] = share(|trial| trial.wrong);
        Row {
            event: event.name(),
            plane,
            routes: routes.len(),
            trials: trials.len(),
            rounds: kept.len(),
            done,
            changes_per_s: rounded(done.changes as f64 / seconds, 0),
            seconds: rounded(seconds, 2),
            sent: sum(|trial| trial.sent),
            lost: sum(|trial| trial.lost),
            duplicated: sum(|trial| trial.duplicated),
            wrong: sum(|trial| trial.wrong),
            reordered: sum(|trial| trial.reordered),
            filtered: sum(|trial| trial.filtered),
            leaked: sum(|trial| trial.leaked),
            passed: sum(|trial| trial.passed),
            stalls: sum(|trial| trial.stalls),
            p50_ns: p50[0],
            p50_ns_min: p50[1],
            p50_ns_max: p50[2],
            p99_ns: p99[0],
            p999_ns: p999[0],
            p999_ns_min: p999[1],
            p999_ns_max: p999[2],
            max_ns: trials.iter().map(|trial| trial.max_ns).max().unwrap_or(0),
            lost_share,
            lost_share_min,
            lost_share_max,
            wrong_share,
            wrong_share_min,
            wrong_share_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_trial_keeps_its_losses_and_loses_its_times() {
        let trial = |lost, ns| Counts {
            done: Done::default(),
            seconds: 1.0,
            sent: 1000,
            lost,
            duplicated: 0,
            wrong: lost,
            reordered: 0,
            filtered: 0,
            leaked: 0,
            passed: 0,
            stalls: 0,
            ns: [ns, ns, ns],
            max_ns: ns,
        };
        let (slow, kept) = (trial(5, 9000), [trial(0, 100), trial(0, 300), trial(1, 200)]);
        let all = [&[slow][..], &kept].concat();
        let row = Row::new(Event::None, Plane::Kernel, &Routes::draw(10, 1), &all, &kept);
        assert_eq!((row.trials, row.rounds, row.sent, row.lost, row.wrong), (4, 3, 4000, 6, 6));
        assert_eq!((row.p50_ns, row.p50_ns_min, row.p50_ns_max, row.max_ns), (200.0, 100.0, 300.0, 9000));
        assert_eq!((row.lost_share, row.lost_share_min, row.lost_share_max), (0.0005, 0.0, 0.005));
        assert_eq!(row.wrong_share_max, 0.005);
    }
}
