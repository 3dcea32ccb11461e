//! The document of `map-curve`: its parameters, a row for each number of entries, structure, mode and order of keys, its text and its
//! pictures.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::curve::{self, Curve, Point, Stroke};

use super::counters::Misses;
use crate::{
    Result,
    experiments::{
        comparison::{published_point, series},
        structure::Mode,
    },
    published,
    report::{Column, Document, Picture, Report, Table, decimals, factor, mebibytes, table},
};

/// The order in which keys are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// 95 % interval of the median; none of fewer than six rounds.
    pub ns_ci: Option<[f64; 2]>,
    /// The same program without the lookup.
    pub ns_empty: f64,
    /// The published time for LPM_TRIE with so many entries, looked up in sequence in a loop; null if none was published.
    pub published_ns: Option<f64>,
    /// LPM_TRIE's ns over this ns: median of the rounds; none where LPM_TRIE has no row.
    pub ratio: Option<f64>,
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

/// Curves of the time of a lookup in one mode, beside the published one.
fn times(rows: &[Row], mode: Mode, published: &[published::Point]) -> Vec<Curve> {
    let measured = rows.iter().filter(|row| row.mode == mode).map(|row| {
        let label = format!("{} {}, {}", row.structure, row.map_type, row.order.name());
        let stroke = if row.order == Order::Sequence { Stroke::Thin } else { Stroke::Solid };
        let point = Point { x: row.entries as f64, y: row.ns, least: row.ns_min, most: row.ns_max };
        ((label, series(row.map_type), stroke), point)
    });
    let published = published.iter().map(|of| published_point(of.entries.into(), of.ns));
    curve::by_label(measured.chain(published))
}

/// Curves of what a lookup of a random key in a loop touches; an array's is an arena's.
fn touched(rows: &[Row]) -> Vec<Curve> {
    let rows = rows
        .iter()
        .filter(|row| (row.mode, row.order) == (Mode::Loop, Order::Random) && row.map_type != "array");
    curve::by_label(rows.flat_map(|row| {
        [("cache lines", Stroke::Solid, row.lines), ("pages", Stroke::Thin, row.pages)].map(
            |(what, stroke, figure)| {
                let label = format!("{}, {what}", row.structure);
                ((label, series(row.map_type), stroke), Point::exact(row.entries as f64, figure))
            },
        )
    }))
}

/// Curves of the misses that were published for LPM_TRIE.
fn misses(published: &[published::Misses]) -> Vec<Curve> {
    let curve = |label: &str, series, figure: fn(&published::Misses) -> f64| Curve {
        label: label.into(),
        points: published.iter().map(|of| Point::exact(of.entries.into(), figure(of))).collect(),
        series,
        stroke: Stroke::Dotted,
    };
    vec![curve("level 2, published", 4, |of| of.l2), curve("dTLB, published", 2, |of| of.dtlb)]
}

const COLUMNS: [Column<Row>; 14] = [
    ("entries", |row| row.entries.to_string()),
    ("structure", |row| row.structure.into()),
    ("map_type", |row| row.map_type.into()),
    ("mode", |row| row.mode.name().into()),
    ("order", |row| row.order.name().into()),
    ("ns", |row| decimals(row.ns, 1)),
    ("min", |row| decimals(row.ns_min, 1)),
    ("max", |row| decimals(row.ns_max, 1)),
    ("empty", |row| decimals(row.ns_empty, 1)),
    ("published", |row| decimals(row.published_ns, 1)),
    ("ratio", |row| factor(row.ratio, 1)),
    ("lines", |row| format!("{:.2}/{}", row.lines, row.lines_max)),
    ("pages", |row| format!("{:.2}/{}", row.pages, row.pages_max)),
    ("MiB", |row| decimals(mebibytes(row.bytes), 2)),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 5, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let counted = p.no_counters.as_deref().map_or("with -j".into(), |why| format!("none here ({why})"));
        let _ = writeln!(
            text,
            "{} rounds; tables {}.\nPublished: LPM_TRIE, in a loop, in sequence; {}.\nLines, pages a lookup, mean/most: {}.\n\
             Counters of the processor: {counted}. Every answer agrees with the oracle.",
            p.rounds, p.tables, p.published, p.lines
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let (_, published) = published::curve()?;
        let (source, published_misses) = published::misses()?;
        let times = |mode| times(&self.rows, mode, &published);
        let draw = |name, title, y, curves: &[_]| curve::by_entries(name, title, y, &self.caption(), curves);
        Ok(vec![
            draw("map-curve-packet", "A lookup in a whole XDP program a packet", "ns", &times(Mode::Packet))?,
            draw("map-curve-loop", "A lookup in a loop inside one program", "ns", &times(Mode::Loop))?,
            draw(
                "map-curve-touched",
                "Memory that a lookup of a random key touches",
                "distinct 64-byte lines, 4 KiB pages",
                &touched(&self.rows),
            )?,
            // Not measured here: what stands under it is the publication.
            curve::by_entries(
                "map-curve-misses",
                "Cache and dTLB misses of LPM_TRIE, published, not measured here",
                "percent of the accesses to level 2, of the dTLB's loads",
                source,
                &misses(&published_misses),
            )?,
        ])
    }
}
