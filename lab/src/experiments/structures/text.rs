//! The result for people: a table, a picture a family, and the tables of docs/structure.md.

use std::fmt::Write as _;

use trieline_plot::scatter;
use trieline_terminal::aligned;

use super::{Family, Outcome, markdown, panels};
use crate::{
    Result,
    report::{Picture, Report},
};

impl Report for Outcome {
    fn text(&self) -> String {
        let mut rows = vec![
            [
                "table",
                "structure",
                "MiB",
                "build ms",
                "prefix",
                "min",
                "max",
                "rand",
                "dependent",
                "arithmetic",
                "lines",
                "pages",
                "steps",
            ]
            .map(String::from)
            .to_vec(),
        ];
        for row in &self.rows {
            let mut cells = vec![row.table.to_owned(), row.structure.to_owned()];
            match (&row.measured, &row.refused) {
                (Some(m), _) => cells.extend([
                    format!("{:.2}", m.bytes as f64 / f64::from(1 << 20)),
                    format!("{:.1}", m.build_ms),
                    format!("{:.1}", m.prefix.ns),
                    format!("{:.1}", m.prefix.min),
                    format!("{:.1}", m.prefix.max),
                    format!("{:.1}", m.rand.ns),
                    format!("{:.1}", m.dependent.ns),
                    format!("{:.1}", m.arithmetic.ns),
                    format!("{:.2}/{}", m.lines, m.lines_max),
                    format!("{:.2}/{}", m.pages, m.pages_max),
                    m.steps_max.to_string(),
                ]),
                (None, why) => {
                    let text = why.as_deref().unwrap_or("refused");
                    cells.push(format!("- {}", text.split(':').next().unwrap_or(text)));
                }
            }
            rows.push(cells);
        }
        let p = &self.parameters;
        let checked = self.rows.iter().filter_map(|row| row.measured.as_ref()).map(|m| m.checked).max();
        let mut text = aligned(&rows, 2);
        let _ = writeln!(
            text,
            "\n{} rounds of {} lookups; ns a lookup: prefix = independent, random addresses inside random prefixes (median, min, max),\n\
             rand = uniformly random addresses, dependent = each waits for the one before, arithmetic = prefix without the popcount\n\
             instruction; lines and pages touched: mean/most; {} answers of each compared with the reference: all agree.",
            p.rounds,
            p.queries,
            checked.unwrap_or(0)
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let mut pictures = Vec::new();
        for family in Family::ALL {
            let panels = panels(&self.rows, family);
            if !panels.is_empty() {
                let title = format!("Memory and time of a lookup (prefix traffic), {}", family.title());
                let svg = scatter::picture(&title, &self.caption(), &panels)?;
                pictures.push(Picture { name: format!("structures-{}", family.name()), svg });
            }
        }
        Ok(pictures)
    }

    fn page(&self) -> Option<String> {
        Some(markdown(self))
    }
}
