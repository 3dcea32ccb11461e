//! `trieline trace calibrate`: what the tracer costs on this machine.

use std::process::ExitCode;

use serde::Serialize;
use trieline_trace::{Cost, Delta, Effort, LiveCost, Options, calibrate};

use crate::output::Output;

/// A cost in JSON; nanoseconds a message.
#[derive(Serialize)]
pub struct CostJson {
    hooks: &'static str,
    base_ns: f64,
    bystander: DeltaJson,
    traced: DeltaJson,
    inside_ns: f64,
    tail_ns: f64,
    head_ns: f64,
    hooks_a_message: usize,
    rounds: usize,
    rounds_kept: usize,
}

#[derive(Serialize)]
struct DeltaJson {
    delta_ns: f64,
    // Null where there were too few rounds.
    ci_low: f64,
    ci_high: f64,
}

/// To a tenth.
pub fn tenths(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

impl From<Delta> for DeltaJson {
    fn from(delta: Delta) -> Self {
        DeltaJson { delta_ns: tenths(delta.ns), ci_low: tenths(delta.low), ci_high: tenths(delta.high) }
    }
}

impl From<Cost> for CostJson {
    fn from(cost: Cost) -> Self {
        CostJson {
            hooks: cost.rung.name(),
            base_ns: tenths(cost.base_ns),
            bystander: cost.bystander.into(),
            traced: cost.traced.into(),
            inside_ns: tenths(cost.inside_ns()),
            tail_ns: tenths(cost.tail_ns),
            head_ns: tenths(cost.head_ns),
            hooks_a_message: cost.hooks,
            rounds: cost.rounds,
            rounds_kept: cost.kept,
        }
    }
}

fn too_few() -> String {
    "[too few for an interval]".to_owned()
}

fn delta(delta: Delta) -> String {
    let interval = delta.interval().map_or_else(too_few, |(low, high)| format!("[{low:.0}..{high:.0}]"));
    format!("{:+.0} ns {interval}", delta.ns)
}

/// A cost for people.
pub fn text(cost: &Cost) -> String {
    format!(
        "cost: {} a message in a traced process, {} in any other, to {:.0} ns without hooks\n\
         \x20     (UDP on loopback, one send and one receive; median and 95 % interval of {} of {} rounds); about {:.0} ns of a T2 are \
         the tracer's own\n",
        delta(cost.traced),
        delta(cost.bystander),
        cost.base_ns,
        cost.kept,
        cost.rounds,
        cost.inside_ns()
    )
}

/// A live cost in JSON.
#[derive(Serialize)]
pub struct LiveJson {
    pairs: usize,
    paused_s: f64,
    packets_percent: Option<PercentJson>,
    cpu_percent: Option<PercentJson>,
    cpu_per_packet_percent: Option<PercentJson>,
}

#[derive(Serialize)]
struct PercentJson {
    delta: f64,
    // Null below six pairs.
    ci_low: f64,
    ci_high: f64,
}

/// `None` where nothing was counted.
fn percent(delta: Delta) -> Option<PercentJson> {
    let hundredths = |value: f64| (value * 100.0).round() / 100.0;
    let [delta, ci_low, ci_high] = [delta.ns, delta.low, delta.high].map(hundredths);
    delta.is_finite().then_some(PercentJson { delta, ci_low, ci_high })
}

impl From<LiveCost> for LiveJson {
    fn from(live: LiveCost) -> Self {
        LiveJson {
            pairs: live.pairs,
            paused_s: (live.paused.as_secs_f64() * 1000.0).round() / 1000.0,
            packets_percent: percent(live.packets),
            cpu_percent: percent(live.cpu),
            cpu_per_packet_percent: percent(live.cpu_per_packet),
        }
    }
}

/// A live cost for people.
pub fn live_text(live: &LiveCost) -> String {
    let words = |delta: Delta, what: &str| match (percent(delta), delta.interval()) {
        (Some(p), Some((low, high))) => format!("{:+.1} % [{low:.1}..{high:.1}] {what}", p.delta),
        (Some(p), None) => format!("{:+.1} % {} {what}", p.delta, too_few()),
        (None, _) => format!("no {what}"),
    };
    format!(
        "live: with the hooks {}, {}, {} (median and 95 % interval of {} pairs of windows of 100 ms); paused {:.1} s, whose messages are in no \
         count\n",
        words(live.packets, "packets a second"),
        words(live.cpu, "processor time"),
        words(live.cpu_per_packet, "processor time a packet"),
        live.pairs,
        live.paused.as_secs_f64()
    )
}

/// Runs `trieline trace calibrate`.
pub fn run(options: &Options, output: &Output) -> anyhow::Result<ExitCode> {
    let mut options = options.clone();
    if options.filter.processes.is_empty() && options.filter.comm.is_none() && options.filter.cgroup.is_none()
    {
        // As of `trace -p`.
        options.filter.processes = vec![std::process::id()];
    }
    options.filter.check()?;
    let cost = calibrate(&options, Effort::THOROUGH)?;
    if output.json {
        output.document(&CostJson::from(cost))?;
    } else {
        output.text(&format!("hooks: {} ({})\n{}", cost.rung.name(), cost.rung.meaning(), text(&cost)))?;
    }
    Ok(ExitCode::SUCCESS)
}
