//! The document of `tries`: its parameters, a row for each structure, threshold and table, and the curves of its pictures.

use std::path::PathBuf;

use serde::Serialize;

use trieline_plot::thresholds::{Series, Spot};

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Directory that the real table was read from; null without.
    pub data: Option<PathBuf>,
    /// Interleaved rounds.
    pub rounds: usize,
    /// Addresses that every structure looks up in a round.
    pub lookups: usize,
    /// CPU that looks up.
    pub cpu: u32,
    /// How the addresses are drawn.
    pub addresses: &'static str,
    /// How it was timed.
    pub clock: &'static str,
    /// The meaning of `bytes`.
    pub bytes: &'static str,
    /// The meaning of the kernel's rows.
    pub kernel: &'static str,
}

/// A structure with a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `binary`, `patricia`, `lctrie`, `relaxed`, `fib`, `trieline`, `kernel`.
    pub structure: &'static str,
    /// Percent at which nodes double; null for structures without.
    pub threshold: Option<u32>,
    /// Of the root.
    pub root_threshold: Option<u32>,
    /// How memory limited it, or why it was not measured; null if neither.
    pub limit: Option<String>,
    /// `bgp4`, `generated`, `default-route`.
    pub table: &'static str,
    /// Prefixes in it.
    pub prefixes: usize,
    /// Median of the rounds.
    pub lookups_per_s: f64,
    /// Slowest round.
    pub lookups_per_s_min: f64,
    /// Fastest.
    pub lookups_per_s_max: f64,
    /// Nodes that have children; of `trieline` all.
    pub nodes: usize,
    /// Memory of nodes and prefixes, as `parameters` says.
    pub bytes: usize,
    /// Nodes above a leaf: mean; null for `trieline`.
    pub depth_mean: Option<f64>,
    /// And at the most; of `trieline` the most nodes that a lookup reads.
    pub depth_max: usize,
    /// Distinct cache lines that a lookup reads; null for `kernel`.
    pub lines_mean: Option<f64>,
    /// Leaves; null for `trieline`, as the next three.
    pub leaves: Option<usize>,
    /// Slots of all nodes.
    pub slots: Option<usize>,
    /// Those that lead nowhere.
    pub empty: Option<usize>,
    /// By key bits, how many nodes.
    pub sizes: Option<Vec<usize>>,
    /// Of `kernel`: in what `fib` with the same routes differs from what the kernel says; empty when in nothing.
    pub differences: Option<Vec<String>>,
    /// Answers in a round, whose sum is the reference's.
    pub checked: usize,
    /// Rounds.
    pub rounds: usize,
}

/// A picture's figure of a row, with its least and most.
pub type Figure = fn(&Row) -> [f64; 3];

/// Million lookups a second.
pub const RATE: Figure =
    |row| [row.lookups_per_s, row.lookups_per_s_min, row.lookups_per_s_max].map(|rate| rate / 1e6);
/// Nodes.
pub const NODES: Figure = |row| [row.nodes as f64; 3];
/// MiB.
pub const MEMORY: Figure = |row| [row.bytes as f64 / f64::from(1 << 20); 3];

/// A series a table of more than so many prefixes: a table of one route has no node, and hardly any memory.
pub fn series(rows: &[Row], above: usize, figure: Figure) -> Vec<Series> {
    let mut tables: Vec<&'static str> =
        rows.iter().filter(|row| row.prefixes > above).map(|row| row.table).collect();
    tables.dedup();
    let spot = |row: &Row| {
        let [value, least, most] = figure(row);
        Spot { place: place(row), value, least, most }
    };
    tables
        .into_iter()
        .map(|table| Series {
            label: table.into(),
            spots: rows.iter().filter(|row| row.table == table).map(spot).collect(),
        })
        .collect()
}

/// Where a row stands in a picture: the thresholds in order, then the others by name.
fn place(row: &Row) -> String {
    match (row.structure, row.threshold, row.root_threshold) {
        ("relaxed", Some(inner), Some(root)) if inner == root => format!("{inner}"),
        ("relaxed", Some(inner), Some(root)) => format!("{inner}/{root} %"),
        (name, ..) => name.into(),
    }
}
