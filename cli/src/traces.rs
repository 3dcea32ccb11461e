//! The experiments on tracing (`trace-…`) for people: their tables and their picture.

use std::fmt::Write as _;
use std::time::Duration;

use trieline_lab::{
    Context, bars,
    experiments::{trace_hooks, trace_overhead},
};

use crate::{
    lab::{RunArgs, aligned, command_line, keep, show},
    output::Output,
    progress::Bars,
};

/// Runs `trace-overhead`.
pub fn overhead(args: &RunArgs, output: &Output, context: &Context, bars: &Bars) -> anyhow::Result<()> {
    let options = trace_overhead::Options {
        quick: args.quick,
        only: args.only.clone(),
        gap: args.gap.map_or(trace_overhead::GAP, Duration::from_micros),
        seed: args.seed,
        command: command_line(),
        rounds: args.rounds,
        program: std::env::current_exe()?,
    };
    let outcome = trace_overhead::run(&options, context)?;
    bars.finish();
    let draw = || {
        let title = "What taking times in a broker adds to a message's way";
        let unit = "nanoseconds, median of the rounds' differences with its 95 % interval";
        let groups = trace_overhead::groups(&outcome.rows);
        let svg = bars::picture(title, unit, &outcome.caption(), "hooks", &groups)?;
        Ok(vec![(trace_overhead::NAME.to_owned(), svg)])
    };
    keep(args, bars, |directory| outcome.save(directory), draw)?;
    show(output, &outcome, overhead_text(&outcome))
}

fn overhead_text(outcome: &trace_overhead::Outcome) -> String {
    let heads = [
        "method",
        "transport",
        "broker",
        "messages",
        "delta",
        "low",
        "high",
        "x memory",
        "cpu",
        "low",
        "high",
        "x memory",
        "p50",
        "p99",
        "lost",
        "matched",
        "paper",
    ];
    let mut rows = vec![heads.map(String::from).to_vec()];
    let count = |count: Option<u64>| count.map_or("-".into(), |count| count.to_string());
    for row in &outcome.rows {
        let mut cells = vec![
            row.method.name().to_owned(),
            row.transport.into(),
            row.broker.name().into(),
            row.messages.to_string(),
        ];
        let [delta, cpu] = [
            (row.delta_ns, row.ci_low, row.ci_high, row.ratio_to_memory),
            (row.cpu_ns, row.cpu_ci_low, row.cpu_ci_high, row.cpu_ratio_to_memory),
        ];
        for (ns, low, high, ratio) in [delta, cpu] {
            cells.extend([ns, low, high].map(whole));
            cells.push(format!("{ratio:.2}"));
        }
        cells.extend([row.p50.to_string(), row.p99.to_string(), count(row.lost), count(row.matched)]);
        cells.push(row.published_delta_ns.map_or("-".into(), |ns| format!("{ns:.0}")));
        rows.push(cells);
    }
    let p = &outcome.parameters;
    let mut shares = String::new();
    for row in &outcome.rows {
        let of = |method| {
            outcome
                .rows
                .iter()
                .find(|one| (one.transport, one.broker, one.method) == (row.transport, row.broker, method))
        };
        if let (Some(ns), Some(low), Some(high), Some(beside)) =
            (row.traced_ns, row.traced_low, row.traced_high, of(trace_overhead::Method::Beside))
        {
            let _ = writeln!(
                shares,
                "{} {}: a machine with the tracer on it pays {} [{}..{}] (beside); being traced adds {} [{}..{}] (hooks - beside)",
                row.transport,
                row.broker.name(),
                whole(beside.delta_ns),
                whole(beside.ci_low),
                whole(beside.ci_high),
                whole(ns),
                whole(low),
                whole(high),
            );
        }
    }
    format!(
        "{}\n{shares}ns a message; delta: {};\ncpu: {};\n{} of {} rounds, one message per {} us\n",
        aligned(&rows, 3),
        p.delta,
        p.cpu,
        p.rounds,
        p.rounds_made,
        p.gap_us
    )
}

/// Runs `trace-hooks`.
pub fn hooks(args: &RunArgs, output: &Output, context: &Context, bars: &Bars) -> anyhow::Result<()> {
    let options = trace_hooks::Options {
        quick: args.quick,
        seed: args.seed,
        command: command_line(),
        rounds: args.rounds,
    };
    let outcome = trace_hooks::run(&options, context)?;
    bars.finish();
    keep(args, bars, |directory| outcome.save(directory), || Ok(Vec::new()))?;
    show(output, &outcome, hooks_text(&outcome))
}

/// A cell; fewer than six rounds have no interval.
fn whole(ns: f64) -> String {
    if ns.is_nan() { "-".into() } else { format!("{ns:.0}") }
}

fn hooks_text(outcome: &trace_hooks::Outcome) -> String {
    let heads = ["hooks", "work", "who", "count", "base", "delta", "low", "high", "events"];
    let mut rows = vec![heads.map(String::from).to_vec()];
    for row in &outcome.rows {
        let mut cells = vec![row.hooks.to_owned(), row.work.into(), row.who.into(), row.count.to_string()];
        cells.extend([row.base_ns, row.delta_ns, row.ci_low, row.ci_high].map(whole));
        cells.push(row.events.map_or("-".into(), |events| events.to_string()));
        rows.push(cells);
    }
    let p = &outcome.parameters;
    format!(
        "{}\nns; {};\n{};\n{} of {} rounds\n",
        aligned(&rows, 3),
        p.timed,
        p.hooks,
        p.rounds,
        p.rounds_made
    )
}
