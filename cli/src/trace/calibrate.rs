//! `trieline trace calibrate`: what the tracer costs on this machine.

use std::process::ExitCode;

use serde::Serialize;
use trieline_trace::{Cost, Delta, Effort, Options, calibrate};

use crate::output::Output;

/// A cost in JSON; nanoseconds a message.
#[derive(Serialize)]
pub struct CostJson {
    hooks: &'static str,
    base_ns: f64,
    bystander: DeltaJson,
    traced: DeltaJson,
    inside_ns: f64,
    rounds: usize,
    rounds_kept: usize,
}

#[derive(Serialize)]
struct DeltaJson {
    delta_ns: f64,
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
            rounds: cost.rounds,
            rounds_kept: cost.kept,
        }
    }
}

fn delta(delta: Delta) -> String {
    format!("{:+.0} ns [{:.0}..{:.0}]", delta.ns, delta.low, delta.high)
}

/// A cost for people.
pub fn text(cost: &Cost) -> String {
    format!(
        "cost: {} a message in a traced process, {} in any other, to {:.0} ns without hooks\n\
         \x20     (UDP on loopback, one send and one receive; median and 95 % interval of {} of {} rounds); about {:.0} ns of a T2 are \
         the tracer's\n",
        delta(cost.traced),
        delta(cost.bystander),
        cost.base_ns,
        cost.kept,
        cost.rounds,
        cost.inside_ns()
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
