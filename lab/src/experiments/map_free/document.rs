//! The document of `map-free`: its parameters, a row for each structure, part that goes, and size, its text and its pictures.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::curve::{self, Curve, Point, Stroke};

use super::memory::What;
use crate::{
    Result,
    experiments::comparison::{published_point, series},
    measure::Samples,
    report::{Column, Document, Picture, Report, Table, decimals, mebibytes, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Interleaved rounds.
    pub rounds: usize,
    /// The content of the tables.
    pub tables: &'static str,
    /// The meaning of `cpu_ms`.
    pub cpu: &'static str,
    /// The meaning of `stall_ms`.
    pub stall: &'static str,
    /// Entries of the table that stays when another goes.
    pub live: usize,
    /// Readings thrown away because a kernel thread ended meanwhile or none was quiet for a minute.
    pub discarded: usize,
}

/// Milliseconds of freeing a structure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Entries.
    pub entries: usize,
    /// `trieline` or `lpm_trie`.
    pub structure: &'static str,
    /// `arena array`; `map` for LPM_TRIE.
    pub map_type: &'static str,
    /// `map`, all of it, or `table`, beside a live one.
    pub what: What,
    /// CPU time, this process's and the kernel's: median, less the median of the kernel's without a freeing; 0 when that is more.
    pub cpu_ms: f64,
    /// Least of the rounds.
    pub cpu_ms_min: f64,
    /// Most.
    pub cpu_ms_max: f64,
    /// 95 % interval of the median; none of fewer than six rounds.
    pub cpu_ms_ci: Option<[f64; 2]>,
    /// This process's part: median.
    pub own_ms: f64,
    /// Of that the mapping and the file descriptor, by the clock: median; null without a mapping that goes.
    pub unmap_ms: Option<f64>,
    /// The subtracted time: median of the time that the kernel's threads ran without a freeing, in as long a time.
    pub idle_ms: f64,
    /// Longest time a CPU was kept from a thread meanwhile: median of the rounds.
    pub stall_ms: f64,
    /// The longest of all rounds.
    pub stall_ms_max: f64,
    /// 95 % interval of the median; none of fewer than six rounds.
    pub stall_ms_ci: Option<[f64; 2]>,
    /// The same without a freeing: median.
    pub idle_stall_ms: f64,
    /// The longest.
    pub idle_stall_ms_max: f64,
    /// CPU time that was published for an LPM_TRIE of this size; null where nothing was.
    pub published_ms: Option<f64>,
    /// Bytes of the image that the table took; null for LPM_TRIE.
    pub bytes: Option<u64>,
    /// Rounds that count.
    pub rounds: usize,
}

/// A point of a row's curve.
fn point(row: &Row, [y, least, most]: [f64; 3]) -> ((String, usize, Stroke), Point) {
    let (what, stroke) =
        if row.what == What::Table { (", one table", Stroke::Thin) } else { ("", Stroke::Solid) };
    let label = format!("{} {}{what}", row.structure, row.map_type);
    ((label, series(row.map_type), stroke), Point { x: row.entries as f64, y, least, most })
}

/// Curves of the CPU time, beside what was published.
fn times(rows: &[Row]) -> Vec<Curve> {
    let measured = rows.iter().map(|row| point(row, [row.cpu_ms, row.cpu_ms_min, row.cpu_ms_max]));
    let published =
        rows.iter().filter_map(|row| Some(published_point(row.entries as f64, row.published_ms?)));
    curve::by_label(measured.chain(published))
}

/// Curves of the longest stalls, beside those of a machine on which nothing is freed.
fn stalls(rows: &[Row]) -> Vec<Curve> {
    let measured = rows.iter().map(|row| point(row, [row.stall_ms, row.stall_ms, row.stall_ms_max]));
    let idle = rows.chunk_by(|one, two| one.entries == two.entries).map(|of| {
        let idle: Samples = of.iter().map(|row| row.idle_stall_ms).collect();
        let (x, y) = (of[0].entries as f64, idle.median());
        let point = Point { x, y, least: idle.min(), most: idle.max() };
        (("nothing freed".into(), 3, Stroke::Dotted), point)
    });
    curve::by_label(measured.chain(idle))
}

const COLUMNS: [Column<Row>; 15] = [
    ("entries", |row| row.entries.to_string()),
    ("structure", |row| row.structure.into()),
    ("map_type", |row| row.map_type.into()),
    ("what", |row| row.what.name().into()),
    ("CPU ms", |row| decimals(row.cpu_ms, 2)),
    ("min", |row| decimals(row.cpu_ms_min, 2)),
    ("max", |row| decimals(row.cpu_ms_max, 2)),
    ("own", |row| decimals(row.own_ms, 2)),
    ("unmap", |row| decimals(row.unmap_ms, 2)),
    ("idle", |row| decimals(row.idle_ms, 2)),
    ("stall ms", |row| decimals(row.stall_ms, 2)),
    ("max", |row| decimals(row.stall_ms_max, 2)),
    ("idle stall", |row| decimals(row.idle_stall_ms, 2)),
    ("max", |row| decimals(row.idle_stall_ms_max, 2)),
    ("MiB", |row| decimals(row.bytes.map(mebibytes), 1)),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 4, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} rounds; tables {}. CPU: {};\nof that own: this process's, unmap: of that the mapping and the file descriptor. Stall: {};\n\
             idle: the same without a freeing. table: one table goes, another of {} entries stays and answers as before.",
            p.rounds, p.tables, p.cpu, p.stall, p.live
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let draw = |name, title, y, curves: &[_]| curve::by_entries(name, title, y, &self.caption(), curves);
        Ok(vec![
            draw("map-free-cpu", "Freeing dense hosts", "ms of CPU time", &times(&self.rows))?,
            draw("map-free-stall", "Freeing dense hosts: longest stall of a CPU", "ms", &stalls(&self.rows))?,
        ])
    }
}
