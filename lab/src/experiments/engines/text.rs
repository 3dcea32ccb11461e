//! The result for people: its rows as a table, the changes as another, and its pictures.

use std::fmt::Write as _;

use trieline_plot::bars;
use trieline_terminal::aligned;

use super::{Outcome, groups};
use crate::{
    Result,
    report::{Picture, Report},
};

impl Report for Outcome {
    fn text(&self) -> String {
        let mut rows = vec![
            [
                "values",
                "engine",
                "table",
                "traffic",
                "mode",
                "mlps",
                "ns",
                "bytes",
                "bytes_total",
                "build_s",
                "updates_per_s",
                "checked",
            ]
            .map(String::from)
            .to_vec(),
        ];
        for row in &self.rows {
            rows.push(vec![
                row.values.into(),
                row.engine.into(),
                row.table.clone(),
                row.traffic.name().into(),
                row.mode.name().into(),
                format!("{:.1}", row.mlps),
                format!("{:.2}", row.ns),
                row.bytes.to_string(),
                cell(row.bytes_total, |bytes| bytes.to_string()),
                format!("{:.3}", row.build_s),
                cell(row.updates_per_s, |rate| format!("{rate:.0}")),
                row.checked.to_string(),
            ]);
        }
        let mut text = aligned(&rows, 5);
        let mut rows = vec![
            [
                "engine",
                "table",
                "changes",
                "updates_per_s",
                "min",
                "max",
                "p50_us",
                "p99_us",
                "p99.9_us",
                "max_us",
                "worst_ms",
                "reader_mlps",
                "bytes after",
            ]
            .map(String::from)
            .to_vec(),
        ];
        for row in &self.updates {
            let us = |us| cell(us, |us| format!("{us:.2}"));
            rows.push(vec![
                row.engine.into(),
                row.table.clone(),
                row.way.clone(),
                format!("{:.0}", row.updates_per_s),
                format!("{:.0}", row.updates_per_s_min),
                format!("{:.0}", row.updates_per_s_max),
                us(row.p50_us),
                us(row.p99_us),
                us(row.p999_us),
                us(row.max_us),
                cell(row.worst_ms, |ms| format!("{ms:.2}")),
                cell(row.reader_mlps, |rate| format!("{rate:.0}")),
                row.bytes.to_string(),
            ]);
        }
        if !self.updates.is_empty() {
            text += "\n";
            text += &aligned(&rows, 3);
        }
        let p = &self.parameters;
        let _ = writeln!(
            text,
            "\n{} IPv4 and {} IPv6 prefixes, {} rounds, medians; pages: {}; DPDK: {}.\n\
             Every round's answers summed up right; those of each structure were first compared one by one.",
            p.prefixes4, p.prefixes6, p.rounds, p.pages, p.dpdk
        );
        for skip in &self.skipped {
            let _ = writeln!(
                text,
                "No {} on {} with values {}: {}.",
                skip.engine, skip.table, skip.values, skip.why
            );
        }
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let mut tables: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !tables.contains(&row.table.as_str()) {
                tables.push(&row.table);
            }
        }
        let draw = |table: &&str| {
            let title = format!("Longest-prefix match in user space, {table}, 64 next hops");
            let unit = "million lookups a second of one core, median with minimum and maximum";
            let caption = self.machine.caption();
            let svg = bars::picture(&title, unit, &caption, "trieline", &groups(&self.rows, table))?;
            // A table's name may be a file's.
            let name: String =
                table.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            Ok(Picture { name: format!("engines-{name}"), svg })
        };
        tables.iter().map(draw).collect()
    }
}

fn cell<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}
