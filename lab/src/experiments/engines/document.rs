//! The document of `engines`: a row for each structure, table, traffic and mode, one for each way to change it; its text and its pictures.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trieline_plot::bars::{self, Group};

use super::{engine::Mode, traffic::Traffic};
use crate::{
    Result,
    report::{Column, Document, Picture, Report, Table, dash, table},
    tables::Source,
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row, More>;

/// Rows of other kinds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct More {
    /// Changes.
    pub updates: Vec<UpdateRow>,
}

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// 95 % interval of the median; none of fewer than six rounds.
    pub mlps_ci: Option<[f64; 2]>,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// 95 % interval of the median; none of fewer than six rounds.
    pub updates_per_s_ci: Option<[f64; 2]>,
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

/// The bars of a picture: for each traffic and mode of one table with 64 next hops, one bar an engine.
fn groups(rows: &[Row], table: &str) -> Vec<Group> {
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

const COLUMNS: [Column<Row>; 12] = [
    ("values", |row| row.values.into()),
    ("engine", |row| row.engine.into()),
    ("table", |row| row.table.clone()),
    ("traffic", |row| row.traffic.name().into()),
    ("mode", |row| row.mode.name().into()),
    ("mlps", |row| format!("{:.1}", row.mlps)),
    ("ns", |row| format!("{:.2}", row.ns)),
    ("bytes", |row| row.bytes.to_string()),
    ("bytes_total", |row| dash(row.bytes_total, |bytes| bytes.to_string())),
    ("build_s", |row| format!("{:.3}", row.build_s)),
    ("updates_per_s", |row| dash(row.updates_per_s, |rate| format!("{rate:.0}"))),
    ("checked", |row| row.checked.to_string()),
];

const UPDATES: [Column<UpdateRow>; 13] = [
    ("engine", |row| row.engine.into()),
    ("table", |row| row.table.clone()),
    ("changes", |row| row.way.clone()),
    ("updates_per_s", |row| format!("{:.0}", row.updates_per_s)),
    ("min", |row| format!("{:.0}", row.updates_per_s_min)),
    ("max", |row| format!("{:.0}", row.updates_per_s_max)),
    ("p50_us", |row| hundredths(row.p50_us)),
    ("p99_us", |row| hundredths(row.p99_us)),
    ("p99.9_us", |row| hundredths(row.p999_us)),
    ("max_us", |row| hundredths(row.max_us)),
    ("worst_ms", |row| hundredths(row.worst_ms)),
    ("reader_mlps", |row| dash(row.reader_mlps, |rate| format!("{rate:.0}"))),
    ("bytes after", |row| row.bytes.to_string()),
];

fn hundredths(value: Option<f64>) -> String {
    dash(value, |value| format!("{value:.2}"))
}

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 5, &COLUMNS), table(&self.more.updates, 3, &UPDATES).titled("Updates")]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        format!(
            "{} IPv4 and {} IPv6 prefixes, {} rounds, medians; pages: {}; DPDK: {}.\n\
             Every round's answers summed up right; those of each structure were first compared one by one.\n",
            p.prefixes4, p.prefixes6, p.rounds, p.pages, p.dpdk
        )
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let mut tables: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !tables.contains(&row.table.as_str()) {
                tables.push(&row.table);
            }
        }
        let draw = |table: &&str| {
            let title = format!("Longest-prefix match in user space, {table}, 64 next hops");
            let unit = "million lookups a second of one core, median with minimum and maximum";
            let svg = bars::picture(&title, unit, &self.caption(), "trieline", &groups(&self.rows, table))?;
            // A table's name may be a file's.
            let name: String =
                table.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            Ok(Picture { name: format!("engines-{name}"), svg })
        };
        tables.iter().map(draw).collect()
    }
}
