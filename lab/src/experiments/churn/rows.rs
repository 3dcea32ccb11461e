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
    /// The work done, all rounds: routes replaced, answers to status, reloads, kills, upgrades.
    #[serde(flatten)]
    pub done: Done,
    /// Routes replaced a second.
    pub changes_per_s: f64,
    /// Seconds of all rounds.
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
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The 99.9th.
    pub p999_ns: f64,
    /// The slowest of all.
    pub max_ns: u64,
}

impl Row {
    /// The trials together.
    pub(super) fn new(event: Event, plane: Plane, routes: &Routes, trials: &[Counts]) -> Row {
        let done = trials.iter().fold(Done::default(), |sum, trial| sum.and(trial.done));
        let seconds: f64 = trials.iter().map(|trial| trial.seconds).sum();
        let sum = |count: fn(&Counts) -> u64| trials.iter().map(count).sum();
        let [p50_ns, p99_ns, p999_ns] = [0, 1, 2].map(|which: usize| {
            trials.iter().map(|trial| trial.ns[which] as f64).collect::<Samples>().median()
        });
        Row {
            event: event.name(),
            plane,
            routes: routes.len(),
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
            p50_ns,
            p99_ns,
            p999_ns,
            max_ns: trials.iter().map(|trial| trial.max_ns).max().unwrap_or(0),
        }
    }
}
