//! The document of `map-free`: its parameters and a row for each structure, part that goes, and size.

use serde::Serialize;

use super::What;
use trieline_plot::curve::{Curve, Point, Stroke};

use crate::measure::Samples;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
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

/// The kinds of freeing in a picture: structure, map type, what, its colour.
const KINDS: [(&str, &str, What, usize); 5] = [
    ("lpm_trie", "map", What::Map, 0),
    ("trieline", "arena", What::Map, 1),
    ("trieline", "arena", What::Table, 1),
    ("trieline", "array", What::Map, 2),
    ("trieline", "array", What::Table, 2),
];

fn by_kind(rows: &[Row], point: impl Fn(&Row) -> Point) -> Vec<Curve> {
    let curve = |(structure, map_type, what, series): (&str, &str, What, usize)| {
        let of = |row: &&Row| (row.structure, row.map_type, row.what) == (structure, map_type, what);
        Curve {
            label: format!("{structure} {map_type}{}", if what == What::Table { ", one table" } else { "" }),
            points: rows.iter().filter(of).map(&point).collect(),
            series,
            stroke: if what == What::Table { Stroke::Thin } else { Stroke::Solid },
        }
    };
    KINDS.into_iter().map(curve).collect()
}

/// Curves of the CPU time, beside what was published.
pub fn times(rows: &[Row]) -> Vec<Curve> {
    let mut curves = by_kind(rows, |row| Point {
        x: row.entries as f64,
        y: row.cpu_ms,
        least: row.cpu_ms_min,
        most: row.cpu_ms_max,
    });
    let published = rows.iter().filter_map(|row| {
        row.published_ms.map(|ms| Point { x: row.entries as f64, y: ms, least: ms, most: ms })
    });
    curves.push(Curve {
        label: "lpm_trie, published".into(),
        points: published.collect(),
        series: 4,
        stroke: Stroke::Dotted,
    });
    curves
}

/// Curves of the longest stalls, beside those of a machine on which nothing is freed.
pub fn stalls(rows: &[Row]) -> Vec<Curve> {
    let mut curves = by_kind(rows, |row| Point {
        x: row.entries as f64,
        y: row.stall_ms,
        least: row.stall_ms,
        most: row.stall_ms_max,
    });
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.entries).collect();
    sizes.dedup();
    let idle = |size: usize| {
        let of: Samples =
            rows.iter().filter(|row| row.entries == size).map(|row| row.idle_stall_ms).collect();
        Point { x: size as f64, y: of.median(), least: of.min(), most: of.max() }
    };
    curves.push(Curve {
        label: "nothing freed".into(),
        points: sizes.into_iter().map(idle).collect(),
        series: 3,
        stroke: Stroke::Dotted,
    });
    curves
}
