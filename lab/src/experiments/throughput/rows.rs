//! A row of `throughput`: a case's rates, from its runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    case::{Case, Path, Plane},
    counters::Places,
    find::Found,
};
use crate::measure::{Samples, rounded, trimmed_mean};

/// A case, measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `kernel kernel-tc-sink flowtable fib xdp redirect`, or `device` between two devices.
    pub plane: Plane,
    /// `ipv4 encap decap`.
    pub path: Path,
    /// Bytes of a frame with FCS, without outer headers; `imix`, or the profile's name.
    pub size: String,
    /// Flows.
    pub flows: usize,
    /// Highest rate without loss, million frames a second: mean of the runs, the best and the worst dropped. Null if each rate lost frames.
    pub ndr_mpps: Option<f64>,
    /// The worst run.
    pub ndr_min: Option<f64>,
    /// The best run.
    pub ndr_max: Option<f64>,
    /// Gigabits a second of frames at that rate, with FCS and without outer headers.
    pub ndr_gbps: Option<f64>,
    /// Highest rate that loses 0.5 % at most, by the same runs.
    pub pdr_mpps: Option<f64>,
    /// The worst run.
    pub pdr_min: Option<f64>,
    /// The best run.
    pub pdr_max: Option<f64>,
    /// Over the kernel's `ndr_mpps` of the same traffic.
    pub ratio: Option<f64>,
    /// The lowest of the runs' ratios.
    pub ratio_min: Option<f64>,
    /// The highest.
    pub ratio_max: Option<f64>,
    /// Over the `ndr_mpps` of plane `fib` for the same traffic. Null where `fib` has no row of it.
    pub ratio_fib: Option<f64>,
    /// As a share of the bare redirect's `ndr_mpps` at this size. Null without a row of `redirect`.
    pub floor_share: Option<f64>,
    /// The limit of `ndr_mpps`: `node`; `generator`: then the node's own rate is higher.
    pub limit: Limit,
    /// The meaning of the rates here.
    pub meaning: &'static str,
    /// Nanoseconds from generator to receiver at `ndr_mpps`: median of the runs.
    pub p50_ns: Option<f64>,
    /// Likewise.
    pub p99_ns: Option<f64>,
    /// Likewise.
    pub p999_ns: Option<f64>,
    /// Frames of the trials at the highest rate without loss, all runs.
    pub frames: u64,
    /// Of them: lost.
    pub lost: u64,
    /// Arrived again.
    pub duplicated: u64,
    /// Arrived after a later one of their flow.
    pub reordered: u64,
    /// Frames that all trials of the searches lost, by place.
    pub losses: Losses,
    /// Frames that XDP redirected in vain, all trials: too long for the next device, which is down, or its ring was full. Null if the kernel does not
    /// show them.
    pub redirect_errors: Option<u64>,
    /// Counters of drivers and kernel that grew meanwhile, by device and name.
    pub counters: BTreeMap<String, u64>,
    /// Trials of the full length, all runs.
    pub trials: usize,
    /// Trials in which the machine took the node's CPU away; those that lost frames were made again.
    pub disturbed: usize,
    /// Runs that found a rate without loss.
    pub runs: usize,
}

/// The limit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The node under test.
    Node,
    /// The generator.
    Generator,
}

/// Where frames were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// By sequence numbers: all of them.
    pub all: u64,
    /// By place, as the counters say.
    #[serde(flatten)]
    pub places: Places,
    /// The rest: counted by no device that was looked at.
    pub elsewhere: u64,
}

/// The runs that a row is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Baselines<'r> {
    /// The kernel's, of the same traffic.
    pub kernel: Option<&'r [Found]>,
    /// Those of plane `fib`.
    pub fib: Option<&'r [Found]>,
    /// The bare redirect's, of the same size.
    pub redirect: Option<&'r [Found]>,
}

/// Trimmed mean, least and most, in millions.
fn millions(values: &[f64]) -> [Option<f64>; 3] {
    let samples: Samples = values.iter().copied().collect();
    let ends = [trimmed_mean(values), Some(samples.min()), Some(samples.max())];
    ends.map(|value| value.filter(|_| !values.is_empty()).map(|rate| rounded(rate / 1e6, 4)))
}

impl Row {
    /// From a case's runs, and those that its ratios are over.
    pub(super) fn of(case: &Case, meaning: &'static str, runs: &[Found], baselines: &Baselines) -> Row {
        let kernel = baselines.kernel;
        let ndrs: Vec<f64> = runs.iter().filter_map(|run| run.ndr).collect();
        let [ndr_mpps, ndr_min, ndr_max] = millions(&ndrs);
        let [pdr_mpps, pdr_min, pdr_max] =
            millions(&runs.iter().filter_map(|run| run.pdr).collect::<Vec<_>>());
        let pairs = runs.iter().zip(kernel.unwrap_or_default());
        let ratios: Samples = pairs.filter_map(|(own, kernel)| Some(own.ndr? / kernel.ndr?)).collect();
        let over = |base: Option<&[Found]>| {
            let base: Vec<f64> = base.unwrap_or_default().iter().filter_map(|run| run.ndr).collect();
            trimmed_mean(&ndrs).zip(trimmed_mean(&base)).map(|(own, base)| own / base)
        };
        let ratio = over(kernel);
        let round = |ratio: f64| rounded(ratio, 2);
        let trials = || runs.iter().filter_map(|run| run.at_ndr);
        let latency = |at: usize| {
            let samples: Samples = trials().map(|trial| trial.latency[at] as f64).collect();
            (!samples.is_empty()).then(|| rounded(samples.median(), 0))
        };
        let all = runs.iter().map(|run| run.lost).sum::<u64>();
        let mut places = Places::default();
        runs.iter().for_each(|run| places.add(run.places));
        let mut counters = BTreeMap::new();
        for (name, count) in runs.iter().flat_map(|run| &run.counters) {
            *counters.entry(name.clone()).or_default() += count;
        }
        let generators = runs.iter().filter(|run| run.is_generators()).count();
        Row {
            plane: case.plane,
            path: case.traffic.path,
            size: case.traffic.size.clone(),
            flows: case.traffic.flows,
            ndr_mpps,
            ndr_min,
            ndr_max,
            ndr_gbps: ndr_mpps.map(|mpps| rounded(mpps * case.traffic.mean_size() * 8e-3, 3)),
            pdr_mpps,
            pdr_min,
            pdr_max,
            ratio: ratio.map(round),
            ratio_min: ratio.map(|_| round(ratios.min())),
            ratio_max: ratio.map(|_| round(ratios.max())),
            ratio_fib: over(baselines.fib).map(round),
            floor_share: over(baselines.redirect).map(|share| rounded(share, 3)),
            limit: if 2 * generators > runs.len() { Limit::Generator } else { Limit::Node },
            meaning,
            p50_ns: latency(0),
            p99_ns: latency(1),
            p999_ns: latency(2),
            frames: trials().map(|trial| trial.sent).sum(),
            lost: trials().map(|trial| trial.lost).sum(),
            duplicated: trials().map(|trial| trial.duplicated).sum(),
            reordered: trials().map(|trial| trial.reordered).sum(),
            losses: Losses { all, places, elsewhere: all.saturating_sub(places.sum()) },
            redirect_errors: runs.iter().map(|run| run.redirect_errors).sum(),
            counters,
            trials: runs.iter().map(|run| run.trials).sum(),
            disturbed: runs.iter().map(|run| run.disturbed).sum(),
            runs: ndrs.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_and_the_worst_run_are_dropped() {
        assert_eq!(millions(&[]), [None; 3]);
        assert_eq!(millions(&[1e6, 2e6, 6e6]), [Some(2.0), Some(1.0), Some(6.0)]);
    }
}
