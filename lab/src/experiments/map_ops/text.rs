//! The result for people: a table and pictures.

use std::fmt::Write as _;

use trieline_plot::lines;
use trieline_terminal::aligned;

use super::{Outcome, lines as rows};
use crate::{
    Result,
    report::{Picture, Report, heading},
};

impl Report for Outcome {
    fn text(&self) -> String {
        let words = [
            "structure",
            "map_type",
            "op",
            "where",
            "Mops",
            "stddev",
            "ns",
            "min",
            "max",
            "published ns",
            "ratio",
        ];
        let mut rows = vec![heading(words)];
        for row in &self.rows {
            rows.push(vec![
                row.structure.into(),
                row.map_type.into(),
                row.op.into(),
                row.place.into(),
                format!("{:.4}", row.mops),
                format!("{:.4}", row.stddev),
                short(row.ns),
                short(row.ns_min),
                short(row.ns_max),
                row.published_ns.map(short).unwrap_or_default(),
                format!("{:.1}x", row.ratio),
            ]);
        }
        let p = &self.parameters;
        let mut text = aligned(&rows, 4);
        let _ = writeln!(
            text,
            "\n{} entries, {} rounds; keys {}.\n{}; free is CPU time.\nPublished: {}, of LPM_TRIE. Ratio: LPM_TRIE's ns in BPF over this ns.\n\
             Every change was compared with what lookups found afterwards: all agree.",
            p.entries, p.rounds, p.keys, p.places, p.published
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let title = format!("Operations on {} dense hosts", self.parameters.entries);
        Ok(vec![lines::times("map-ops", &title, &self.caption(), &rows(&self.rows))?])
    }
}

/// A number with as many decimals as are worth reading.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}
