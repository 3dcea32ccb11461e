//! The document of `tries`: its parameters, a row for each structure, threshold and table, its text and its pictures.

use std::{fmt::Write as _, path::PathBuf};

use serde::{Deserialize, Serialize};
use trieline_plot::thresholds::{Series, Spot, Words, picture};

use crate::{
    Result, published,
    report::{Column, Document, Picture, Report, Table, decimals, mebibytes, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// 95 % interval of the median; none of fewer than six rounds.
    pub lookups_per_s_ci: Option<[f64; 2]>,
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
type Figure = fn(&Row) -> [f64; 3];

/// Million lookups a second.
const RATE: Figure =
    |row| [row.lookups_per_s, row.lookups_per_s_min, row.lookups_per_s_max].map(|rate| rate / 1e6);
/// Nodes.
const NODES: Figure = |row| [row.nodes as f64; 3];
/// MiB.
const MEMORY: Figure = |row| [mebibytes(row.bytes as u64); 3];

/// A series a table of more than so many prefixes: a table of one route has no node, and hardly any memory.
fn series(rows: &[Row], above: usize, figure: Figure) -> Vec<Series> {
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

/// The published rates of the kernel's trie, a series for each table that the rows have, too.
fn published(rows: &[Row]) -> Result<Vec<Series>> {
    let (_, rates) = published::fib_trie()?;
    let measured = rates.into_iter().filter(|(table, _)| rows.iter().any(|row| row.table == table));
    let series = measured.map(|(table, rate)| {
        let rate = rate / 1e6;
        let spot = Spot { place: "fib".into(), value: rate, least: rate, most: rate };
        Series { label: format!("{table}, published"), spots: vec![spot] }
    });
    Ok(series.collect())
}

/// Where a row stands in a picture: the thresholds in order, then the others by name.
fn place(row: &Row) -> String {
    match (row.structure, row.threshold, row.root_threshold) {
        ("relaxed", Some(inner), Some(root)) if inner == root => format!("{inner}"),
        ("relaxed", Some(inner), Some(root)) => format!("{inner}/{root} %"),
        (name, ..) => name.into(),
    }
}

fn percent(value: Option<u32>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

const COLUMNS: [Column<Row>; 12] = [
    ("table", |row| row.table.into()),
    ("structure", |row| row.structure.into()),
    ("%", |row| percent(row.threshold)),
    ("root", |row| percent(row.root_threshold)),
    ("Mlookups/s", |row| decimals(row.lookups_per_s / 1e6, 2)),
    ("min", |row| decimals(row.lookups_per_s_min / 1e6, 2)),
    ("max", |row| decimals(row.lookups_per_s_max / 1e6, 2)),
    ("nodes", |row| row.nodes.to_string()),
    ("MiB", |row| decimals(mebibytes(row.bytes as u64), 2)),
    ("depth", |row| decimals(row.depth_mean, 2)),
    ("most", |row| row.depth_max.to_string()),
    ("lines", |row| decimals(row.lines_mean, 2)),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 2, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} rounds of {} lookups, addresses {}.\nkernel: {}.\nAll sums of answers agree with the reference.",
            p.rounds, p.lookups, p.addresses, p.kernel
        );
        for row in &self.rows {
            if let Some(limit) = &row.limit {
                let percent = row.threshold.unwrap_or_default();
                let _ = writeln!(text, "{}, {} at {percent} %: {limit}.", row.table, row.structure);
            }
            let said = match row.differences.as_deref() {
                None => continue,
                Some([]) => "is the kernel's trie in every figure of fib_triestat".to_owned(),
                Some(found) => format!("differs from the kernel's trie: {}", found.join("; ")),
            };
            let _ = writeln!(text, "{}: fib {said}.", row.table);
        }
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let draw = |name: &str, title, y, series: &[Series]| -> Result<Picture> {
            let words = Words { title, y, source: &self.caption() };
            Ok(Picture { name: name.to_owned(), svg: picture(words, series)? })
        };
        let series = |above, figure| series(&self.rows, above, figure);
        let mut rates = series(0, RATE);
        rates.extend(published(&self.rows)?);
        let rate = "Lookups by the threshold at which nodes double";
        let nodes = "Nodes by the threshold at which they double";
        let memory = "Memory by the threshold at which nodes double";
        Ok(vec![
            draw("tries-rate", rate, "million lookups a second", &rates)?,
            draw("tries-nodes", nodes, "nodes that have children", &series(1, NODES))?,
            draw(
                "tries-memory",
                memory,
                "MiB (fib and kernel: nodes of the kernel's sizes)",
                &series(1, MEMORY),
            )?,
        ])
    }
}
