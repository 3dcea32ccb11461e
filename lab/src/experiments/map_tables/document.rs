//! The document of `map-tables`: its parameters, a row for each structure, mode and table, its text and its pictures.

use std::{fmt::Write as _, path::PathBuf};

use serde::{Deserialize, Serialize};

use trieline_plot::lines::{self, Line};

use crate::{
    Result,
    experiments::structure::Mode,
    report::{Column, Document, Picture, Report, Table, decimals, factor, mebibytes, table},
    tables::Source,
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// The file measured.
    pub table: Option<PathBuf>,
    /// The data directory used.
    pub data: Option<PathBuf>,
    /// Interleaved rounds.
    pub rounds: usize,
    /// Addresses drawn from each table.
    pub addresses: usize,
    /// CPU that looks up.
    pub cpu: u32,
    /// How it was timed.
    pub clock: &'static str,
    /// Milliseconds between a call of the empty program and its first packet, which the clock leaves out: median.
    pub before_ms: f64,
    /// The meaning of `ns_empty`.
    pub empty: &'static str,
    /// The meaning of a value.
    pub values: &'static str,
    /// The meaning of `bytes`.
    pub bytes: &'static str,
}

/// A structure on a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `bgp4 bgp6 hosts-N`, or the file's name.
    pub table: String,
    /// 4 or 6.
    pub family: u8,
    /// `trieline` or `lpm_trie`.
    pub structure: &'static str,
    /// `arena array`; `map` for LPM_TRIE.
    pub map_type: &'static str,
    /// `packet`, `loop`, or `batch1 batch2 batch4 batch8`.
    pub mode: Mode,
    /// Which addresses: `prefix`, random hosts inside random prefixes.
    pub traffic: &'static str,
    /// `file` or `generated`.
    pub source: Source,
    /// Nanoseconds a lookup, everything included: median of the rounds.
    pub ns: f64,
    /// Fastest round.
    pub ns_min: f64,
    /// Slowest.
    pub ns_max: f64,
    /// 95 % interval of the median; none of fewer than six rounds.
    pub ns_ci: Option<[f64; 2]>,
    /// The same program without the lookup; none for batches.
    pub ns_empty: Option<f64>,
    /// LPM_TRIE's ns over this ns: median of the rounds; 1 for itself; none where LPM_TRIE has no row.
    pub ratio: Option<f64>,
    /// Lowest of the rounds.
    pub ratio_min: Option<f64>,
    /// Highest.
    pub ratio_max: Option<f64>,
    /// 95 % interval of the ratio.
    pub ratio_ci: Option<[f64; 2]>,
    /// LPM_TRIE's median over this one, each less the empty program's; none where this is not above it, and for batches.
    pub ratio_net: Option<f64>,
    /// Memory of the table.
    pub bytes: u64,
    /// Prefixes in it.
    pub prefixes: usize,
    /// Milliseconds to fill it.
    pub fill_ms: f64,
    /// Answers compared with the oracle; all agreed.
    pub checked: u64,
    /// Lookups a round.
    pub lookups: u32,
    /// Rounds: as many as asked for, unless a quick run on a slow machine had no time left.
    pub rounds: usize,
}

/// A line of a picture for each row of one mode.
fn lines(rows: &[Row], mode: Mode) -> Vec<Line> {
    let line = |row: &Row| Line {
        label: format!("{} {} {}", row.table, row.structure, row.map_type),
        value: row.ns,
        min: row.ns_min,
        max: row.ns_max,
        series: match row.map_type {
            "arena" => 2,
            "array" => 3,
            _ => 0,
        },
        note: format!("{:.1} ns ({})", row.ns, factor(row.ratio, 1)),
    };
    rows.iter().filter(|row| row.mode == mode).map(line).collect()
}

const COLUMNS: [Column<Row>; 12] = [
    ("table", |row| row.table.clone()),
    ("prefixes", |row| row.prefixes.to_string()),
    ("structure", |row| row.structure.into()),
    ("map_type", |row| row.map_type.into()),
    ("mode", |row| row.mode.name().into()),
    ("ns", |row| decimals(row.ns, 1)),
    ("min", |row| decimals(row.ns_min, 1)),
    ("max", |row| decimals(row.ns_max, 1)),
    ("empty", |row| decimals(row.ns_empty, 1)),
    ("ratio", |row| factor(row.ratio, 1)),
    ("net", |row| factor(row.ratio_net, 1)),
    ("MiB", |row| decimals(mebibytes(row.bytes), 1)),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 5, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let mut text = String::new();
        let checked = self.rows.iter().map(|row| row.checked).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "{} rounds; random hosts inside random prefixes; up to {checked} answers of each compared with the oracle: all agree.\n\
             net: the ratio without what the empty program takes.",
            self.parameters.rounds
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let draw = |name, title, mode| lines::times(name, title, &self.caption(), &lines(&self.rows, mode));
        Ok(vec![
            draw("map-tables-packet", "Longest-prefix match, a whole XDP program a packet", Mode::Packet)?,
            draw("map-tables-loop", "Longest-prefix match, independent lookups in a loop", Mode::Loop)?,
        ])
    }
}
