//! The document of `structures`: its parameters and a row for each structure on each table.

use std::path::PathBuf;

use serde::Serialize;

use trieline_plot::scatter::{Panel, Point};

use crate::measure::{Samples, rounded};

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// The data directory used.
    pub data: Option<PathBuf>,
    /// Interleaved rounds.
    pub rounds: usize,
    /// Lookups a turn.
    pub queries: usize,
    /// CPU that looks up.
    pub cpu: u32,
    /// Bytes beyond which a structure is refused.
    pub limit: u64,
    /// Whether the CPU has an instruction for population counts, which all figures but `arithmetic` use.
    pub popcount: bool,
    /// How long it all took.
    pub seconds: u64,
    /// How it was timed.
    pub clock: &'static str,
    /// The meaning of `lines` and `pages`.
    pub lines: &'static str,
}

/// Which keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// 32 bits.
    Ipv4,
    /// 128 bits.
    Ipv6,
    /// Other widths.
    Keys,
}

impl Family {
    /// All.
    pub const ALL: [Family; 3] = [Family::Ipv4, Family::Ipv6, Family::Keys];

    /// Its name in file names.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
            Family::Keys => "keys",
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
            Family::Keys => "address and port, 48 and 144 bits",
        }
    }
}

/// Nanoseconds a lookup by rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figure {
    /// Median.
    pub ns: f64,
    /// Fastest round.
    pub min: f64,
    /// Slowest.
    pub max: f64,
}

impl Figure {
    pub(super) fn new(samples: &Samples) -> Figure {
        let [ns, min, max] = [samples.median(), samples.min(), samples.max()].map(|value| rounded(value, 2));
        Figure { ns, min, max }
    }
}

/// A structure on a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `ipv4 ipv6 keys`.
    pub family: Family,
    /// Name of the case.
    pub table: &'static str,
    /// `64` (next hops), `distinct`, or `file` (what the file says).
    pub values: &'static str,
    /// How many tables there are in one memory.
    pub tables: usize,
    /// Prefixes in all of them.
    pub prefixes: usize,
    /// Name of the structure.
    pub structure: &'static str,
    /// The measured values; none if the structure refused the table.
    pub measured: Option<Measured>,
    /// Why it does not hold this table.
    pub refused: Option<String>,
}

/// Figures of a structure that holds its table.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Memory of the structure that lookups walk.
    pub bytes: u64,
    /// Milliseconds to build it from sorted prefixes.
    pub build_ms: f64,
    /// Independent lookups of random addresses inside random prefixes.
    pub prefix: Figure,
    /// Independent lookups of uniformly random addresses (IPv6: in 2000::/3).
    pub rand: Figure,
    /// As `prefix`, but each lookup waits for the one before.
    pub dependent: Figure,
    /// As `prefix`, population counts by arithmetic as in BPF.
    pub arithmetic: Figure,
    /// Distinct cache lines a lookup, prefix traffic: mean.
    pub lines: f64,
    /// Most over both traffics.
    pub lines_max: usize,
    /// Distinct pages a lookup, prefix traffic: mean.
    pub pages: f64,
    /// Most over both traffics.
    pub pages_max: usize,
    /// Nodes below the root: most over both traffics.
    pub steps_max: usize,
    /// Answers compared with the reference; all agreed.
    pub checked: u64,
    /// Rounds: as many as asked for, unless a slow machine had no time left.
    pub rounds: usize,
}

/// A panel of a picture for each table of a family: memory against time.
pub fn panels(rows: &[Row], family: Family) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in rows.iter().filter(|row| row.family == family) {
        let Some(measured) = &row.measured else { continue };
        let title = title(row);
        let panel = match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel,
            None => {
                panels.push(Panel { title, points: Vec::new() });
                let last = panels.len() - 1;
                &mut panels[last]
            }
        };
        panel.points.push(Point {
            label: row.structure.into(),
            bytes: measured.bytes as f64,
            ns: measured.prefix.ns,
            least: measured.prefix.min,
            most: measured.prefix.max,
            ours: row.structure == "trieline",
        });
    }
    panels
}

/// A case for people.
pub(super) fn title(row: &Row) -> String {
    let values = match row.values {
        "64" => ", 64 next hops",
        "distinct" => ", values distinct",
        _ => "",
    };
    let tables = if row.tables == 1 { String::new() } else { format!(" in {} tables", row.tables) };
    format!("{}: {} prefixes{tables}{values}", row.table, row.prefixes)
}
