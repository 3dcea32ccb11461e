//! The result for people: its rows as a table, what the kernel and `fib` say of the same routes, and the three pictures.

use std::fmt::Write as _;

use trieline_plot::thresholds::{Words, picture};
use trieline_terminal::aligned;

use super::{Figure, MEMORY, NODES, Outcome, RATE, series};
use crate::{
    Result,
    report::{Picture, Report},
};

impl Report for Outcome {
    fn text(&self) -> String {
        let words = [
            "table",
            "structure",
            "%",
            "root",
            "Mlookups/s",
            "min",
            "max",
            "nodes",
            "MiB",
            "depth",
            "most",
            "lines",
        ];
        let mut rows = vec![words.map(String::from).to_vec()];
        for row in &self.rows {
            let percent = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
            let rate = |value: f64| format!("{:.2}", value / 1e6);
            let decimals = |value: Option<f64>| value.map(|value| format!("{value:.2}")).unwrap_or_default();
            rows.push(vec![
                row.table.into(),
                row.structure.into(),
                percent(row.threshold),
                percent(row.root_threshold),
                rate(row.lookups_per_s),
                rate(row.lookups_per_s_min),
                rate(row.lookups_per_s_max),
                row.nodes.to_string(),
                format!("{:.2}", row.bytes as f64 / f64::from(1 << 20)),
                decimals(row.depth_mean),
                row.depth_max.to_string(),
                decimals(row.lines_mean),
            ]);
        }
        let p = &self.parameters;
        let mut text = aligned(&rows, 2);
        let _ = writeln!(
            text,
            "\n{} rounds of {} lookups, addresses {}.\nkernel: {}.\nAll sums of answers agree with the reference.",
            p.rounds, p.lookups, p.addresses, p.kernel
        );
        for row in &self.rows {
            if let Some(limit) = &row.limit {
                let _ = writeln!(
                    text,
                    "{}, {} at {} %: {limit}.",
                    row.table,
                    row.structure,
                    row.threshold.unwrap_or_default()
                );
            }
            match row.differences.as_deref() {
                None => (),
                Some([]) => {
                    let _ = writeln!(
                        text,
                        "{}: fib is the kernel's trie in every figure of fib_triestat.",
                        row.table
                    );
                }
                Some(found) => {
                    let _ = writeln!(
                        text,
                        "{}: fib differs from the kernel's trie: {}.",
                        row.table,
                        found.join("; ")
                    );
                }
            }
        }
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let all: [(&str, &str, &str, usize, Figure); 3] = [
            (
                "tries-rate",
                "Lookups by the threshold at which nodes double",
                "million lookups a second",
                0,
                RATE,
            ),
            (
                "tries-nodes",
                "Nodes by the threshold at which they double",
                "nodes that have children",
                1,
                NODES,
            ),
            (
                "tries-memory",
                "Memory by the threshold at which nodes double",
                "MiB (fib and kernel: nodes of the kernel's sizes)",
                1,
                MEMORY,
            ),
        ];
        let draw = |(name, title, y, above, figure): (&str, &str, &str, usize, Figure)| {
            let words = Words { title, y, source: &self.caption() };
            Ok(Picture { name: name.to_owned(), svg: picture(words, &series(&self.rows, above, figure))? })
        };
        all.into_iter().map(draw).collect()
    }
}
