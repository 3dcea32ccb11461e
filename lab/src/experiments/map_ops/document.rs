//! The document of `map-ops`: its parameters, a row for each operation on each structure, its text and its picture.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::lines::{self, Line};

use crate::{
    Result,
    report::{Column, Document, Picture, Report, Table, decimals, factor, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Entries of the table.
    pub entries: usize,
    /// Interleaved rounds.
    pub rounds: usize,
    /// CPU that works.
    pub cpu: u32,
    /// Which keys, in which order.
    pub keys: &'static str,
    /// The meaning of `place`.
    pub places: &'static str,
    /// How it was timed.
    pub clock: &'static str,
    /// Where the published figures are from.
    pub published: &'static str,
}

/// An operation on a structure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `trieline` or `lpm_trie`.
    pub structure: &'static str,
    /// `arena array`; `map` for LPM_TRIE.
    pub map_type: &'static str,
    /// The place of the operation: `bpf`, `user`, or, for freeing, `kernel`.
    #[serde(rename = "where")]
    pub place: &'static str,
    /// `lookup update delete free`.
    pub op: &'static str,
    /// Million operations a second: 1000 / `ns`.
    pub mops: f64,
    /// Standard deviation of the rounds' `mops`.
    pub stddev: f64,
    /// Nanoseconds each: median of the rounds.
    pub ns: f64,
    /// Fastest round.
    pub ns_min: f64,
    /// Slowest.
    pub ns_max: f64,
    /// 95 % interval of the median; none of fewer than six rounds.
    pub ns_ci: Option<[f64; 2]>,
    /// The published time for LPM_TRIE; null unless the table has as many entries.
    pub published_ns: Option<f64>,
    /// Its million a second.
    pub published_mops: Option<f64>,
    /// LPM_TRIE's ns of the same operation, in BPF (free: in the kernel), over this ns; none where LPM_TRIE has no row.
    pub ratio: Option<f64>,
    /// Operations a round.
    pub operations: usize,
    /// Answers that were compared after or during the rounds; all agreed.
    pub checked: u64,
    /// Rounds.
    pub rounds: usize,
}

/// A line of a picture for each row, by operation, what was published first.
fn lines(rows: &[Row]) -> Vec<Line> {
    let mut lines = Vec::new();
    for op in ["lookup", "update", "delete", "free"] {
        let of: Vec<&Row> = rows.iter().filter(|row| row.op == op).collect();
        if let Some(ns) = of.iter().find_map(|row| row.published_ns) {
            lines.push(Line {
                label: format!("{op} lpm_trie, published"),
                value: ns,
                min: ns,
                max: ns,
                series: 1,
                note: note(ns),
            });
        }
        lines.extend(of.iter().map(|row| Line {
            label: format!("{op} {} {}, {}", row.structure, row.map_type, row.place),
            value: row.ns,
            min: row.ns_min,
            max: row.ns_max,
            series: match row.map_type {
                "arena" => 2,
                "array" => 3,
                _ => 0,
            },
            note: note(row.ns),
        }));
    }
    lines
}

fn note(ns: f64) -> String {
    match ns {
        ns if ns < 100.0 => format!("{ns:.1} ns"),
        ns if ns < 1e5 => format!("{ns:.0} ns"),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

const COLUMNS: [Column<Row>; 11] = [
    ("structure", |row| row.structure.into()),
    ("map_type", |row| row.map_type.into()),
    ("op", |row| row.op.into()),
    ("where", |row| row.place.into()),
    ("Mops", |row| decimals(row.mops, 4)),
    ("stddev", |row| decimals(row.stddev, 4)),
    ("ns", |row| short(row.ns)),
    ("min", |row| short(row.ns_min)),
    ("max", |row| short(row.ns_max)),
    ("published ns", |row| row.published_ns.map(short).unwrap_or_default()),
    ("ratio", |row| factor(row.ratio, 1)),
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
            "{} entries, {} rounds; keys {}.\n{}; free is CPU time.\nPublished: {}, of LPM_TRIE. Ratio: LPM_TRIE's ns in BPF over this ns.\n\
             Every change was compared with what lookups found afterwards: all agree.",
            p.entries, p.rounds, p.keys, p.places, p.published
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let title = format!("Operations on {} dense hosts", self.parameters.entries);
        Ok(vec![lines::times("map-ops", &title, &self.caption(), &lines(&self.rows))?])
    }
}

/// A number with as many decimals as are worth reading.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => decimals(value, 0),
        value if value >= 1.0 => decimals(value, 1),
        value => decimals(value, 3),
    }
}
