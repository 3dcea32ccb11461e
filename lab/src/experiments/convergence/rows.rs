//! The rows of `convergence`, from the samples of both planes.

use serde::{Deserialize, Serialize};

use super::{
    events::Event,
    measure::{Counts, PROBES, Sample},
};
use crate::{
    experiments::forked::Plane,
    fork::Routes,
    measure::{Samples, quantile, rounded},
};

/// One event after one plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `routes`, `nexthop`, `nexthop-compat`, `link-multipath`, `link-metric`.
    pub event: &'static str,
    /// `kernel`, `xdp`.
    pub plane: Plane,
    /// Routes that the event moves.
    pub routes: usize,
    /// Routes in the node's table.
    pub table: usize,
    /// How often it was measured.
    pub changes: usize,
    /// Routes whose packets were watched, at most; the first and the last that change are among them.
    pub probes: usize,
    /// Milliseconds from the first message to the last watched route's first packet by the new way: median of the changes.
    pub p50_ms: f64,
    /// 95 % interval of the median; none of fewer than six changes.
    pub p50_ms_ci: Option<[f64; 2]>,
    /// The quickest.
    pub min_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// To the first packet of any watched route: median.
    pub first_ms: f64,
    /// To the kernel's acknowledgement of the last message: median.
    pub acknowledged_ms: f64,
    /// 95 % interval of that.
    pub acknowledged_ms_ci: Option<[f64; 2]>,
    /// From a route's own message to its first packet by the new way: median over watched routes and changes.
    pub route_p50_ms: f64,
    /// The 99th percentile.
    pub route_p99_ms: f64,
    /// The slowest.
    pub route_max_ms: f64,
    /// Time between two packets of a watched route: no time above is more exact.
    pub resolution_ms: f64,
    /// Median of the differences between XDP's and the kernel's time for the last route, change by change; null for the kernel.
    pub beyond_kernel_ms: Option<f64>,
    /// 95 % interval of that.
    pub beyond_kernel_ms_ci: Option<[f64; 2]>,
    /// The difference of the 99th percentiles.
    pub beyond_kernel_p99_ms: Option<f64>,
    /// Frames sent, all streams.
    pub sent: u64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// How often a watched route's packets left by the old way again, after they had left by the new one.
    pub wrong: u64,
    /// Packets that XDP left to the kernel.
    pub passed: u64,
}

/// A row for each plane's samples: the kernel's, then XDP's. `counts` are of all its streams.
pub(super) fn rows(
    event: Event,
    samples: &[Vec<Sample>],
    counts: &[Vec<Counts>],
    routes: &Routes,
    rate: u32,
) -> Vec<Row> {
    let of = |samples: &[Sample]| samples.iter().map(|sample| sample.last_ms).collect::<Vec<f64>>();
    let kernel = samples.first().map(|samples| of(samples)).unwrap_or_default();
    let row = |((plane, samples), counts): ((Plane, &Vec<Sample>), &Vec<Counts>)| {
        let last = of(samples);
        let interval = |values: &[f64]| values.iter().copied().collect::<Samples>().interval(3);
        let acknowledged: Vec<f64> = samples.iter().map(|sample| sample.acknowledged_ms).collect();
        let lags: Vec<f64> = samples.iter().flat_map(|sample| sample.lags_ms.iter().copied()).collect();
        let median =
            |figure: fn(&Sample) -> f64| rounded(samples.iter().map(figure).collect::<Samples>().median(), 3);
        let sum = |count: fn(&Counts) -> u64| counts.iter().map(count).sum();
        let share = |values: &[f64], share| rounded(quantile(values, share), 3);
        let beyond = || last.iter().zip(&kernel).map(|(own, kernel)| own - kernel).collect::<Samples>();
        let is_kernel = plane == Plane::Kernel;
        let probes = samples.iter().map(|sample| sample.lags_ms.len()).max().unwrap_or(0);
        Row {
            event: event.name(),
            plane,
            routes: event.routes(routes.len()),
            table: routes.len(),
            changes: samples.len(),
            probes: probes.min(PROBES),
            p50_ms: share(&last, 0.5),
            p50_ms_ci: interval(&last),
            min_ms: share(&last, 0.0),
            p99_ms: share(&last, 0.99),
            max_ms: share(&last, 1.0),
            first_ms: median(|sample| sample.first_ms),
            acknowledged_ms: median(|sample| sample.acknowledged_ms),
            acknowledged_ms_ci: interval(&acknowledged),
            route_p50_ms: share(&lags, 0.5),
            route_p99_ms: share(&lags, 0.99),
            route_max_ms: share(&lags, 1.0),
            resolution_ms: rounded(probes as f64 * 1e3 / f64::from(rate), 3),
            beyond_kernel_ms: (!is_kernel).then(|| rounded(beyond().median(), 3)),
            beyond_kernel_ms_ci: if is_kernel { None } else { beyond().interval(3) },
            beyond_kernel_p99_ms: (!is_kernel)
                .then(|| rounded(quantile(&last, 0.99) - quantile(&kernel, 0.99), 3)),
            sent: sum(|counts| counts.sent),
            lost: sum(|counts| counts.lost),
            duplicated: sum(|counts| counts.duplicated),
            wrong: sum(|counts| counts.wrong),
            passed: sum(|counts| counts.passed),
        }
    };
    [Plane::Kernel, Plane::Xdp].into_iter().zip(samples).zip(counts).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdp_is_compared_with_the_kernel_change_by_change() {
        let samples = |times: &[f64]| {
            times
                .iter()
                .map(|ms| Sample { last_ms: *ms, lags_ms: vec![*ms, 1.0], ..Sample::default() })
                .collect()
        };
        let both: [Vec<Sample>; 2] = [samples(&[1.0, 5.0, 3.0]), samples(&[2.0, 9.0, 3.5])];
        let streams =
            |lost: &[u64]| lost.iter().map(|lost| Counts { lost: *lost, ..Counts::default() }).collect();
        // The kernel's second stream ran on a slow machine: no sample of it was kept.
        let counts: [Vec<Counts>; 2] = [streams(&[1, 2]), streams(&[0])];
        let rows = rows(Event::Routes(1), &both, &counts, &Routes::draw(10, 1), 1000);
        let [kernel, xdp] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((kernel.plane, kernel.p50_ms, kernel.max_ms), (Plane::Kernel, 3.0, 5.0));
        assert_eq!((kernel.min_ms, kernel.p50_ms_ci, kernel.lost, xdp.lost), (1.0, None, 3, 0));
        assert_eq!((kernel.beyond_kernel_ms, kernel.beyond_kernel_p99_ms), (None, None));
        assert_eq!((xdp.beyond_kernel_ms, xdp.beyond_kernel_p99_ms), (Some(1.0), Some(4.0)));
        assert_eq!((xdp.changes, xdp.probes, xdp.routes, xdp.table), (3, 2, 1, 10));
        assert_eq!((xdp.resolution_ms, xdp.route_max_ms), (2.0, 9.0));
        let both: [Vec<Sample>; 2] = [samples(&[1.0; 6]), samples(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0])];
        let rows = super::rows(Event::Routes(1), &both, &counts, &Routes::draw(10, 1), 1000);
        assert_eq!((rows[1].p50_ms_ci, rows[1].beyond_kernel_ms_ci), (Some([2.0, 7.0]), Some([1.0, 6.0])));
        assert_eq!(rows[0].beyond_kernel_ms_ci, None);
    }
}
