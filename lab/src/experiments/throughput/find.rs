//! A run of a case: the search for its rates, and what the trials said.

use std::{collections::BTreeMap, time::Instant};

use super::{
    bench::{Bench, Placed, Total, Trial},
    case::{Case, Plane},
    counters::Places,
    search::{Range, Search, Tried, confirmed},
};
use crate::{
    Context,
    error::{Error, Result},
    experiments::options::Run,
    netns,
};

/// Share of the frames that the partial drop rate may lose.
pub const PARTIAL: f64 = 0.005;
/// Rates below this are not looked for.
const LEAST: f64 = 2e3;
/// Frames of the unpaced trial that a first search begins with.
const OVERLOAD: u64 = 200_000;
/// Trials of this share of the length find roughly where the search begins.
const SHORT: f64 = 0.1;
const SHORT_LEAST_S: f64 = 0.05;
const ROUGH: f64 = 0.08;
/// Share of the frames that may go by the rules of plane `flowtable`.
const SLOW: f64 = 0.05;

/// How a search is made.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Seconds of a trial.
    pub seconds: f64,
    /// Seconds of the trials that search, where these are shorter: then a trial of `seconds` confirms the rate without loss.
    pub search_seconds: Option<f64>,
    /// Precision of the rates, as a share.
    pub precision: f64,
    /// No trial begins later. The case then has no result.
    pub until: Option<Instant>,
    /// Seed of the flows.
    pub seed: u64,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Frames a second.
    pub ndr: Option<f64>,
    pub pdr: Option<f64>,
    /// The trial at the highest rate without loss.
    pub at_ndr: Option<Trial>,
    /// Frames a second that the generator can send.
    pub generator: f64,
    /// Trials of the full length.
    pub trials: usize,
    /// Trials during which the machine took the node's CPU away.
    pub disturbed: usize,
    /// Frames that all trials lost, and where.
    pub lost: u64,
    pub places: Places,
    pub counters: BTreeMap<String, u64>,
    /// Frames that XDP redirected in vain; none if the kernel does not show them.
    pub redirect_errors: Option<u64>,
    /// The reason why the rates are not the plane's own: frames went another way.
    pub astray: Option<String>,
}

impl Found {
    /// Whether the node took all that the generator can send.
    pub fn is_generators(&self) -> bool {
        self.ndr.is_some_and(|ndr| ndr >= self.generator * 0.98)
    }
}

/// A search's surroundings: the run, whose calibration loop stands around each trial, and the CPUs that it is timed on.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub run: &'a Run,
    pub cpus: &'a [usize],
    pub context: &'a Context<'a>,
}

/// Searches both rates of a case; `start` is where an earlier search ended. None if the time is over before.
pub(super) fn find(
    bench: &mut Bench,
    case: &Case,
    method: &Method,
    start: Option<f64>,
    around: Around,
) -> Result<Option<Found>> {
    match search(bench, case, method, start, around) {
        Ok(found) => Ok(Some(found)),
        Err(Stop::Late) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The reason why a search ends without a result.
enum Stop {
    Late,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

fn search(
    bench: &mut Bench,
    case: &Case,
    method: &Method,
    start: Option<f64>,
    around: Around,
) -> std::result::Result<Found, Stop> {
    let Method { seconds, precision, seed, until, .. } = *method;
    let in_time = || if until.is_some_and(|until| Instant::now() > until) { Err(Stop::Late) } else { Ok(()) };
    in_time()?;
    let astray = bench.astray(case.plane)?;
    let (generator, delivered) = bench.overload(case, seed, OVERLOAD)?;
    let forwarded = bench.forwarded(case.plane)?;
    let (before, total) = (bench.before(case.plane)?, bench.total);
    let range = Range { least: LEAST, most: generator.max(LEAST), precision };
    let mut all: Vec<Trial> = Vec::new();
    let mut trial = |rate, seconds, all: &mut Vec<Trial>| {
        in_time()?;
        let Around { run, cpus, context } = around;
        // A trial that lost frames while the machine was slow is made again. One that lost none would lose none on a quick machine, and one that
        // the machine disturbed was made again already.
        let trial = run.sample(context, |gate| {
            let trial = netns::between(gate, cpus, || bench.trial(case, seed, rate, seconds))?;
            if trial.lost == 0 || trial.disturbed > 0 {
                gate.hold();
            }
            Ok(trial)
        })?;
        tried(trial, all).map_err(Stop::Failed)
    };
    let start = match (start, method.search_seconds) {
        (Some(start), _) => start,
        (None, Some(_)) => delivered,
        (None, None) => {
            let short = (seconds * SHORT).max(SHORT_LEAST_S).min(seconds);
            let mut rough = Search::new(Range { precision: ROUGH, ..range });
            let found = rough.highest(0.0, delivered, |rate| trial(rate, short, &mut all))?;
            found.unwrap_or(LEAST)
        }
    };
    let mut rough = all.len();
    let mut search = Search::new(range);
    let length = method.search_seconds.unwrap_or(seconds);
    let mut ndr = search.highest(0.0, start, |rate| trial(rate, length, &mut all))?;
    let pdr = search.highest(PARTIAL, ndr.unwrap_or(start), |rate| trial(rate, length, &mut all))?;
    if method.search_seconds.is_some() {
        rough = all.len();
        ndr = match ndr {
            Some(ndr) => confirmed(range, ndr, |rate| trial(rate, seconds, &mut all))?,
            None => None,
        };
    }
    // If the generator itself is held up, a lower rate can lose more: the rate without loss still loses no more than is allowed.
    let pdr = pdr.into_iter().chain(ndr).reduce(f64::max);
    let most = search.most();
    let total = Total { sent: bench.total.sent - total.sent, lost: bench.total.lost - total.lost };
    let Placed { places, counters, redirect_errors } = bench.placed(case.plane, &before, total)?;
    if case.plane == Plane::Xdp {
        // XDP forwarded the frames that came out, not the kernel.
        let got = bench.forwarded(case.plane)? - forwarded;
        if got < total.sent - total.lost {
            let what = format!("{}: forwarded by XDP, by its own counters", case.name());
            return Err(Error::Packets { what, got, expected: total.sent - total.lost }.into());
        }
    }
    let astray = astray_by(case, bench.astray(case.plane)? - astray, total.sent);
    let full = &all[rough..];
    let at_ndr = ndr.and_then(|ndr| {
        let lossless = full.iter().filter(|trial| trial.lost == 0);
        lossless.min_by(|a, b| (a.rate - ndr).abs().total_cmp(&(b.rate - ndr).abs())).copied()
    });
    let disturbed = all.iter().map(|trial| trial.disturbed).sum();
    Ok(Found {
        ndr,
        pdr,
        at_ndr,
        generator: most,
        trials: full.len(),
        disturbed,
        lost: total.lost,
        places,
        counters,
        redirect_errors,
        astray,
    })
}

/// Why the rates are not the plane's own, if so many of the frames went another way. The flowtable may leave the first packets of each flow to its
/// rules: a flow that was idle for a while begins again.
fn astray_by(case: &Case, astray: u64, sent: u64) -> Option<String> {
    match case.plane {
        Plane::Fib if astray > 0 => Some(format!("bpf_fib_lookup left {astray} frames to the kernel")),
        Plane::Flowtable if astray as f64 > sent as f64 * SLOW => {
            Some(format!("{astray} of {sent} frames went by the rules, not by the flowtable"))
        }
        _ => None,
    }
}

/// Keeps a trial, and says what it came to.
fn tried(trial: Trial, all: &mut Vec<Trial>) -> Result<Tried> {
    all.push(trial);
    if trial.sent < 2 || !trial.rate.is_finite() {
        return Err(Error::Traffic(format!("a trial sent {} frames", trial.sent)));
    }
    Ok(Tried { rate: trial.rate, loss: trial.lost as f64 / trial.sent as f64 })
}
