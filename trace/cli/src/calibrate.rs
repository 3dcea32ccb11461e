//! `trieline trace calibrate`: what the tracer costs on this machine.

use std::process::ExitCode;

use serde::Serialize;
use trieline_trace::{Backend, Cost, Effort, LiveCost, Median, Options, Payer, TransportCost, calibrate};

use trieline_terminal::{Output, aligned};

/// A cost in JSON; nanoseconds a message.
#[derive(Serialize)]
pub struct CostJson {
    hooks: &'static str,
    attached: Vec<PayerJson>,
    attachments: usize,
    /// Of a packet that no process sends; null without a hook at the device's queue.
    packet_ns: Option<f64>,
    transports: Vec<TransportJson>,
}

#[derive(Serialize)]
struct TransportJson {
    transport: &'static str,
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

/// A hook and who pays for it, in JSON.
#[derive(Serialize)]
pub struct PayerJson {
    hook: &'static str,
    paid_by: &'static str,
}

impl From<Payer> for PayerJson {
    fn from(Payer { hook, who }: Payer) -> Self {
        PayerJson { hook, paid_by: who }
    }
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

impl From<Median> for DeltaJson {
    fn from(delta: Median) -> Self {
        DeltaJson { delta_ns: tenths(delta.value), ci_low: tenths(delta.low), ci_high: tenths(delta.high) }
    }
}

impl From<&Cost> for CostJson {
    fn from(cost: &Cost) -> Self {
        CostJson {
            hooks: cost.backend.name(),
            attached: cost.payers.iter().copied().map(PayerJson::from).collect(),
            attachments: cost.attachments,
            packet_ns: cost.packet_ns().map(tenths),
            transports: cost.transports.iter().copied().map(TransportJson::from).collect(),
        }
    }
}

impl From<TransportCost> for TransportJson {
    fn from(cost: TransportCost) -> Self {
        TransportJson {
            transport: cost.transport.name(),
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

fn delta(delta: Median) -> String {
    let interval = delta.interval().map_or_else(too_few, |(low, high)| format!("[{low:.0}..{high:.0}]"));
    format!("{:+.0} {interval}", delta.value)
}

/// The hooks and who pays for each, for people.
pub fn hooks_text(backend: Backend, payers: &[Payer]) -> String {
    let mut rows = vec![[format!("hooks: {}", backend.name()), "paid for by".to_owned()].to_vec()];
    rows.extend(payers.iter().map(|payer| [format!("       {}", payer.hook), payer.who.to_owned()].to_vec()));
    aligned(&rows, 2)
}

/// A cost for people.
pub fn text(cost: &Cost) -> String {
    let mut text = "cost: ns that the hooks add to a message, a send and a receive on loopback; medians with 95 % intervals\n".to_owned();
    let heads =
        ["      transport", "traced", "any other process", "without hooks", "own part of T2", "rounds"];
    let mut rows = vec![heads.map(String::from).to_vec()];
    for one in &cost.transports {
        rows.push(vec![
            format!("      {}", one.transport),
            delta(one.traced),
            delta(one.bystander),
            format!("{:.0}", one.base_ns),
            format!("{:.0}", one.inside_ns()),
            format!("{} of {}", one.kept, one.rounds),
        ]);
    }
    text += &aligned(&rows, 1);
    if let Some(ns) = cost.packet_ns() {
        text += &format!(
            "      a packet that the kernel forwards, or sends for no process, pays about {ns:.0} ns at net_dev_queue (--done goes without it)\n"
        );
    }
    text
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
fn percent(delta: Median) -> Option<PercentJson> {
    let hundredths = |value: f64| (value * 100.0).round() / 100.0;
    let [delta, ci_low, ci_high] = [delta.value, delta.low, delta.high].map(hundredths);
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
    let words = |delta: Median, what: &str| match (percent(delta), delta.interval()) {
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
        output.document(&CostJson::from(&cost))?;
    } else {
        output.text(&format!("{}{}", hooks_text(cost.backend, &cost.payers), text(&cost)))?;
    }
    Ok(ExitCode::SUCCESS)
}
