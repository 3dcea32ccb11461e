//! The document of `map-curve`: its parameters and a row for each number of entries, structure, mode and order of keys.

use serde::Serialize;

use super::counters::Misses;
use trieline_plot::curve::{Curve, Point, Stroke};

use crate::{experiments::structure::Mode, published};

/// The order in which keys are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other, as in the kernel's bench.
    Sequence,
    /// At random.
    Random,
}

impl Order {
    /// As in a row.
    pub fn name(self) -> &'static str {
        match self {
            Order::Sequence => "sequence",
            Order::Random => "random",
        }
    }
}

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Interleaved rounds.
    pub rounds: usize,
    /// CPU that looks up.
    pub cpu: u32,
    /// The content of the tables.
    pub tables: &'static str,
    /// How it was timed.
    pub clock: &'static str,
    /// The meaning of `lines` and `pages`.
    pub lines: &'static str,
    /// Why rows have no `counters`; null where the processor counts.
    pub no_counters: Option<String>,
    /// Where the published figures are from.
    pub published: &'static str,
}

/// Lookups in a structure of so many entries.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Entries.
    pub entries: usize,
    /// `trieline` or `lpm_trie`.
    pub structure: &'static str,
    /// `arena array`; `map` for LPM_TRIE.
    pub map_type: &'static str,
    /// `packet` or `loop`.
    pub mode: Mode,
    /// `sequence` or `random`.
    pub order: Order,
    /// Nanoseconds a lookup, everything included: median of the rounds.
    pub ns: f64,
    /// Fastest round.
    pub ns_min: f64,
    /// Slowest.
    pub ns_max: f64,
    /// The same program without the lookup.
    pub ns_empty: f64,
    /// The published time for LPM_TRIE with so many entries, looked up in sequence in a loop; null if none was published.
    pub published_ns: Option<f64>,
    /// LPM_TRIE's ns over this ns: median of the rounds.
    pub ratio: f64,
    /// Distinct cache lines of 64 bytes that a lookup touches: mean.
    pub lines: f64,
    /// At the most.
    pub lines_max: usize,
    /// Distinct pages of 4 KiB: mean.
    pub pages: f64,
    /// At the most.
    pub pages_max: usize,
    /// Misses a lookup by the processor's counters, in a turn of their own; null where it has none.
    pub counters: Option<Misses>,
    /// Memory of the table, as in `map-tables`.
    pub bytes: u64,
    /// Answers compared with the oracle; all agreed.
    pub checked: u64,
    /// Lookups a round.
    pub lookups: u32,
    /// Rounds.
    pub rounds: usize,
}

/// The kinds of structure in a picture: name, map type, its colour.
const KINDS: [(&str, &str, usize); 3] =
    [("lpm_trie", "map", 0), ("trieline", "arena", 1), ("trieline", "array", 2)];

/// Curves of the time of a lookup in one mode, beside the published one.
pub fn times(rows: &[Row], mode: Mode, published: &[published::Point]) -> Vec<Curve> {
    let mut curves = Vec::new();
    for (structure, map_type, series) in KINDS {
        for (order, stroke) in [(Order::Sequence, Stroke::Thin), (Order::Random, Stroke::Solid)] {
            let of = |row: &&Row| {
                (row.structure, row.map_type, row.mode, row.order) == (structure, map_type, mode, order)
            };
            let point =
                |row: &Row| Point { x: row.entries as f64, y: row.ns, least: row.ns_min, most: row.ns_max };
            let points = rows.iter().filter(of).map(point).collect();
            let label = format!("{structure} {map_type}, {}", order.name());
            curves.push(Curve { label, points, series, stroke });
        }
    }
    let flat = |of: &published::Point| exact(f64::from(of.entries), of.ns);
    curves.push(Curve {
        label: "lpm_trie, published".into(),
        points: published.iter().map(flat).collect(),
        series: 4,
        stroke: Stroke::Dotted,
    });
    curves
}

/// Curves of what a lookup touches.
pub fn touched(rows: &[Row]) -> Vec<Curve> {
    let mut curves = Vec::new();
    for (structure, map_type, series) in &KINDS[..2] {
        let of = |row: &&Row| {
            (row.structure, row.map_type, row.mode, row.order)
                == (*structure, *map_type, Mode::Loop, Order::Random)
        };
        let points = |figure: fn(&Row) -> f64| {
            rows.iter().filter(of).map(|row| exact(row.entries as f64, figure(row))).collect()
        };
        let lines = Curve {
            label: format!("{structure}, cache lines"),
            points: points(|row| row.lines),
            series: *series,
            stroke: Stroke::Solid,
        };
        let pages = Curve {
            label: format!("{structure}, pages"),
            points: points(|row| row.pages),
            stroke: Stroke::Thin,
            ..lines.clone()
        };
        curves.extend([lines, pages]);
    }
    curves
}

fn exact(x: f64, y: f64) -> Point {
    Point { x, y, least: y, most: y }
}
