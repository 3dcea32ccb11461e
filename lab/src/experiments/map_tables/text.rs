//! The result for people: a table and pictures.

use std::fmt::Write as _;

use trieline_plot::lines;
use trieline_terminal::aligned;

use super::{Outcome, lines as rows};
use crate::{
    Result,
    experiments::structure::Mode,
    report::{Picture, Report, heading},
};

impl Report for Outcome {
    fn text(&self) -> String {
        let words = [
            "table",
            "prefixes",
            "structure",
            "map_type",
            "mode",
            "ns",
            "min",
            "max",
            "empty",
            "ratio",
            "net",
            "MiB",
        ];
        let mut rows = vec![heading(words)];
        for row in &self.rows {
            rows.push(vec![
                row.table.clone(),
                row.prefixes.to_string(),
                row.structure.into(),
                row.map_type.into(),
                row.mode.name().into(),
                format!("{:.1}", row.ns),
                format!("{:.1}", row.ns_min),
                format!("{:.1}", row.ns_max),
                row.ns_empty.map(|ns| format!("{ns:.1}")).unwrap_or_default(),
                format!("{:.1}x", row.ratio),
                row.ratio_net.map(|net| format!("{net:.1}x")).unwrap_or_default(),
                format!("{:.1}", row.bytes as f64 / (1 << 20) as f64),
            ]);
        }
        let mut text = aligned(&rows, 5);
        let checked = self.rows.iter().map(|row| row.checked).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "\n{} rounds; random hosts inside random prefixes; up to {checked} answers of each compared with the oracle: all agree.\n\
             net: the ratio without what the empty program takes.",
            self.parameters.rounds
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let draw = |name, title, mode| lines::times(name, title, &self.caption(), &rows(&self.rows, mode));
        Ok(vec![
            draw("map-tables-packet", "Longest-prefix match, a whole XDP program a packet", Mode::Packet)?,
            draw("map-tables-loop", "Longest-prefix match, independent lookups in a loop", Mode::Loop)?,
        ])
    }
}
