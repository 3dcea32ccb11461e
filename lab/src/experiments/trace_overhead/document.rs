//! The document of `trace-overhead`: its parameters, a row for each way on each transport with each kind of broker, its text and its picture.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::bars::{self, Group};
use trieline_trace::Transport;

use super::{
    bench::{Broker, Sample},
    methods::{Method, Taking},
};
use crate::{
    Result,
    experiments::probed::whole,
    measure::{Median, Rounds, rounded},
    report::{Column, Document, Picture, Report, Table, dash, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// From one message to the next, microseconds.
    pub gap_us: u64,
    /// Messages that one way has at a stretch.
    pub segment: usize,
    /// Interleaved rounds.
    pub rounds: usize,
    /// The processes and their CPUs.
    pub layout: &'static str,
    /// The meaning of `delta_ns`.
    pub delta: &'static str,
    /// The meaning of `cpu_ns`.
    pub cpu: &'static str,
    /// When records are read.
    pub records: &'static str,
    /// Where the published figures are from.
    pub published: &'static str,
}

/// A way to take times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub method: Method,
    /// `udp tcp unix-stream`.
    pub transport: &'static str,
    /// How the broker waits.
    pub broker: Broker,
    /// Messages that were timed.
    pub messages: u64,
    /// The time that the method adds to a message's way from sender to receiver, nanoseconds.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub delta_ns: f64,
    /// Its 95 % interval; null of fewer than six rounds.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub ci_low: f64,
    /// Its other end.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub ci_high: f64,
    /// Of `hooks`: what it adds to a message beyond `bystander`, so what being traced adds; else null.
    pub traced_ns: Option<f64>,
    /// Its 95 % interval.
    pub traced_low: Option<f64>,
    /// Its other end.
    pub traced_high: Option<f64>,
    /// The time that it adds to the broker's processor time a message, nanoseconds.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub cpu_ns: f64,
    /// Its 95 % interval.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub cpu_ci_low: f64,
    /// Its other end.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub cpu_ci_high: f64,
    /// Median of a message's way, nanoseconds.
    pub p50: u32,
    /// 99 % of the messages are quicker.
    pub p99: u32,
    /// `delta_ns` over that of `memory` in the same rounds.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub ratio_to_memory: f64,
    /// `cpu_ns` over that of `memory`.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub cpu_ratio_to_memory: f64,
    /// Records that the product lost; null if the method notes no records.
    pub lost: Option<u64>,
    /// Messages whose two times were joined, those of batches and of rounds that were left out among them.
    pub matched: Option<u64>,
    /// The paper's value; null if it has none.
    pub published_delta_ns: Option<f64>,
}

/// The rows of a transport with a kind of broker. The paper's broker is nearest to a busy one over UDP.
pub(super) fn rows(
    transport: Transport,
    broker: Broker,
    rounds: &Rounds<Sample>,
    takings: &[Taking],
    published: &[(String, f64)],
) -> Result<Vec<Row>> {
    let way = |case| rounds.delta(case, 0, |sample: &Sample| sample.way_ns);
    let cpu = |case| rounds.delta(case, 0, |sample: &Sample| sample.cpu_ns);
    let memory = Method::Memory as usize;
    let is_papers = transport == Transport::Udp && broker == Broker::Busy;
    let mut rows = Vec::new();
    for (case, (method, taking)) in Method::ALL.into_iter().zip(takings).enumerate() {
        let mut all: Vec<u32> =
            rounds.0.iter().flat_map(|round| round[case].ways_ns.iter().copied()).collect();
        all.sort_unstable();
        let share = |share: usize| all.get(all.len() * share / 100).copied().unwrap_or(0);
        let traced = (method == Method::Hooks)
            .then(|| rounds.delta(case, Method::Bystander as usize, |sample: &Sample| sample.way_ns));
        let (delta, used): (Median, Median) = (way(case), cpu(case));
        let matched = taking.matched()?;
        let known = published.iter().find(|(name, _)| is_papers && Some(name.as_str()) == method.published());
        rows.push(Row {
            method,
            transport: transport.name(),
            broker,
            messages: all.len() as u64,
            delta_ns: rounded(delta.value, 1),
            ci_low: rounded(delta.low, 1),
            ci_high: rounded(delta.high, 1),
            traced_ns: traced.map(|traced| rounded(traced.value, 1)),
            traced_low: traced.map(|traced| rounded(traced.low, 1)),
            traced_high: traced.map(|traced| rounded(traced.high, 1)),
            cpu_ns: rounded(used.value, 1),
            cpu_ci_low: rounded(used.low, 1),
            cpu_ci_high: rounded(used.high, 1),
            p50: share(50),
            p99: share(99),
            ratio_to_memory: rounded(delta.value / way(memory).value, 2),
            cpu_ratio_to_memory: rounded(used.value / cpu(memory).value, 2),
            lost: matched.map(|_| taking.lost()),
            matched,
            published_delta_ns: known.map(|(_, ns)| *ns),
        });
    }
    Ok(rows)
}

/// Bars of the rows, those of a transport and a broker together, each beside the paper's.
fn groups(rows: &[Row]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows.iter().filter(|row| row.method != Method::None) {
        let label = format!("{} {}", row.transport, row.broker.name());
        if groups.last().is_none_or(|last| last.label != label) {
            groups.push(Group { label, bars: Vec::new() });
        }
        let Some(group) = groups.last_mut() else { continue };
        let [low, high] = [row.ci_low, row.ci_high].map(|end| if end.is_nan() { row.delta_ns } else { end });
        group.bars.push((row.method.name(), row.delta_ns, low, high));
        if let Some(ns) = row.published_delta_ns {
            group.bars.push(("in the paper", ns, ns, ns));
        }
    }
    groups
}

const COLUMNS: [Column<Row>; 17] = [
    ("method", |row| row.method.name().into()),
    ("transport", |row| row.transport.into()),
    ("broker", |row| row.broker.name().into()),
    ("messages", |row| row.messages.to_string()),
    ("delta", |row| whole(row.delta_ns)),
    ("low", |row| whole(row.ci_low)),
    ("high", |row| whole(row.ci_high)),
    ("x memory", |row| format!("{:.2}", row.ratio_to_memory)),
    ("cpu", |row| whole(row.cpu_ns)),
    ("low", |row| whole(row.cpu_ci_low)),
    ("high", |row| whole(row.cpu_ci_high)),
    ("x memory", |row| format!("{:.2}", row.cpu_ratio_to_memory)),
    ("p50", |row| row.p50.to_string()),
    ("p99", |row| row.p99.to_string()),
    ("lost", |row| dash(row.lost, |count| count.to_string())),
    ("matched", |row| dash(row.matched, |count| count.to_string())),
    ("paper", |row| dash(row.published_delta_ns, whole)),
];

/// A line for each transport and broker: what the machine pays for the tracer, and what being traced adds.
fn shares(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let with = |method| (row.transport, row.broker, method);
        let bystander =
            rows.iter().find(|one| (one.transport, one.broker, one.method) == with(Method::Bystander));
        if let (Some(ns), Some(low), Some(high), Some(bystander)) =
            (row.traced_ns, row.traced_low, row.traced_high, bystander)
        {
            let _ = writeln!(
                text,
                "{} {}: a machine with the tracer on it pays {} [{}..{}] ({}); being traced adds {} [{}..{}] ({} - {})",
                row.transport,
                row.broker.name(),
                whole(bystander.delta_ns),
                whole(bystander.ci_low),
                whole(bystander.ci_high),
                bystander.method.name(),
                whole(ns),
                whole(low),
                whole(high),
                row.method.name(),
                bystander.method.name(),
            );
        }
    }
    text
}

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 3, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let (shares, p) = (shares(&self.rows), &self.parameters);
        format!(
            "{shares}ns a message; delta: {};\ncpu: {};\n{} rounds, one message per {} us\n",
            p.delta, p.cpu, p.rounds, p.gap_us
        )
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let title = "The time that taking times in a broker adds to a message's way";
        let unit = "nanoseconds, median of the rounds' differences with its 95 % interval";
        let svg = bars::picture(title, unit, &self.caption(), "hooks", &groups(&self.rows))?;
        Ok(vec![Picture { name: self.experiment.to_owned(), svg }])
    }
}
