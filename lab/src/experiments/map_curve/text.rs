//! The result for people: a table and pictures.

use std::fmt::Write as _;

use trieline_plot::curve;
use trieline_terminal::aligned;

use super::{Outcome, times, touched};
use crate::{
    Result,
    experiments::structure::Mode,
    published,
    report::{Picture, Report, heading},
};

impl Report for Outcome {
    fn text(&self) -> String {
        let words = [
            "entries",
            "structure",
            "map_type",
            "mode",
            "order",
            "ns",
            "min",
            "max",
            "empty",
            "published",
            "ratio",
            "lines",
            "pages",
            "MiB",
        ];
        let mut rows = vec![heading(words)];
        for row in &self.rows {
            rows.push(vec![
                row.entries.to_string(),
                row.structure.into(),
                row.map_type.into(),
                row.mode.name().into(),
                row.order.name().into(),
                format!("{:.1}", row.ns),
                format!("{:.1}", row.ns_min),
                format!("{:.1}", row.ns_max),
                format!("{:.1}", row.ns_empty),
                row.published_ns.map(|ns| format!("{ns:.1}")).unwrap_or_default(),
                format!("{:.1}x", row.ratio),
                format!("{:.2}/{}", row.lines, row.lines_max),
                format!("{:.2}/{}", row.pages, row.pages_max),
                format!("{:.2}", row.bytes as f64 / (1 << 20) as f64),
            ]);
        }
        let p = &self.parameters;
        let mut text = aligned(&rows, 5);
        let counted = p.no_counters.as_deref().map_or("with -j".into(), |why| format!("none here ({why})"));
        let _ = writeln!(
            text,
            "\n{} rounds; tables {}.\nPublished: LPM_TRIE, in a loop, in sequence; {}.\nLines, pages a lookup, mean/most: {}.\n\
             Counters of the processor: {counted}. Every answer agrees with the oracle.",
            p.rounds, p.tables, p.published, p.lines
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let (_, published) = published::curve()?;
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
        ])
    }
}
