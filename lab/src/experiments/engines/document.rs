//! The document of `engines`: a row for each structure, table, traffic and mode, one for each way to change it, and the skipped rows.

use std::path::PathBuf;

use serde::Serialize;
use trieline_plot::bars::Group;

use super::{engine::Mode, traffic::Traffic};
use crate::{
    report::{Machine, Measured},
    tables::Source,
};

/// Name of the experiment.
pub const NAME: &str = "engines";

/// The experiment's document.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// `engines`.
    pub experiment: &'static str,
    /// Of this form.
    pub version: u32,
    /// Where and how.
    pub machine: Machine,
    /// The parameters.
    pub parameters: Parameters,
    /// Lookups.
    pub rows: Vec<Row>,
    /// Changes.
    pub updates: Vec<UpdateRow>,
    /// The rows that were not measured.
    pub skipped: Vec<Skip>,
}

impl Measured for Outcome {
    fn experiment(&self) -> &'static str {
        self.experiment
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// The file measured.
    pub table: Option<PathBuf>,
    /// The data directory used.
    pub data: Option<PathBuf>,
    /// Where the prefixes come from.
    pub source: Source,
    /// IPv4 prefixes.
    pub prefixes4: usize,
    /// IPv6 prefixes.
    pub prefixes6: usize,
    /// Interleaved rounds.
    pub rounds: usize,
    /// How it was timed.
    pub clock: &'static str,
    /// On which pages the structures lie.
    pub pages: String,
    /// DPDK's version and pages, or why there is none.
    pub dpdk: String,
    /// The meaning of `values`.
    pub values: &'static str,
    /// The meaning of `bytes` and `bytes_total`.
    pub bytes: &'static str,
    /// The meaning of `checked`.
    pub checked: &'static str,
    /// The changes.
    pub updates: &'static str,
}

/// A structure on a table under one traffic.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `64` next hops or all `distinct`.
    pub values: &'static str,
    /// Whose structure.
    pub engine: &'static str,
    /// `bgp4 bgp6`, or the file's name.
    pub table: String,
    /// Which addresses.
    pub traffic: Traffic,
    /// How they are looked up.
    pub mode: Mode,
    /// Million lookups a second: median of the rounds.
    pub mlps: f64,
    /// Slowest round.
    pub mlps_min: f64,
    /// Fastest.
    pub mlps_max: f64,
    /// Nanoseconds a lookup: median.
    pub ns: f64,
    /// Bytes of what a lookup reads.
    pub bytes: u64,
    /// Bytes of everything it keeps; none when the program does not count.
    pub bytes_total: Option<u64>,
    /// Seconds to build it.
    pub build_s: f64,
    /// Changes a second, one by one; none where it cannot be changed or was not (only with 64 next hops).
    pub updates_per_s: Option<f64>,
    /// Answers compared: one by one, and by the sum of every round.
    pub checked: u64,
    /// Lookups a round.
    pub lookups: usize,
    /// Rounds.
    pub rounds: usize,
}

/// A structure being changed.
#[derive(Clone, Debug, Serialize)]
pub struct UpdateRow {
    /// Whose structure.
    pub engine: &'static str,
    /// Which table.
    pub table: String,
    /// `single`, or `apply-N`: so many at once.
    pub way: String,
    /// Changes a second of CPU time: median of the rounds.
    pub updates_per_s: f64,
    /// Slowest round.
    pub updates_per_s_min: f64,
    /// Fastest.
    pub updates_per_s_max: f64,
    /// Changes a round.
    pub updates: usize,
    /// Microseconds for a change: half take less.
    pub p50_us: Option<f64>,
    /// 99 % take less.
    pub p99_us: Option<f64>,
    /// 99.9 % take less.
    pub p999_us: Option<f64>,
    /// The slowest.
    pub max_us: Option<f64>,
    /// The prefix that changes the most.
    pub worst_prefix: String,
    /// Milliseconds of CPU time to add or remove it: the slowest.
    pub worst_ms: Option<f64>,
    /// Million lookups a second that another thread made meanwhile; none if reading is not allowed.
    pub reader_mlps: Option<f64>,
    /// Bytes of what a lookup reads, afterwards.
    pub bytes: u64,
    /// Answers compared afterwards.
    pub checked: u64,
}

/// A row that was not measured, with the reason.
#[derive(Clone, Debug, Serialize)]
pub struct Skip {
    /// Whose structure.
    pub engine: &'static str,
    /// On which table.
    pub table: String,
    /// With which values.
    pub values: &'static str,
    /// Why.
    pub why: String,
}

/// The bars of a picture: for each traffic and mode of one table with 64 next hops, one bar an engine.
pub fn groups(rows: &[Row], table: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows.iter().filter(|row| row.table == table && row.values == "64") {
        let label = format!("{} {}", row.traffic.name(), row.mode.name());
        let bar = (row.engine, row.mlps, row.mlps_min, row.mlps_max);
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Group { label, bars: vec![bar] }),
        }
    }
    groups.sort_by_key(|group| Mode::ALL.iter().position(|mode| group.label.ends_with(mode.name())));
    groups
}
