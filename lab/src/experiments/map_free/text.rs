//! The result for people: a table and pictures.

use std::fmt::Write as _;

use trieline_plot::curve;
use trieline_terminal::aligned;

use super::{Outcome, stalls, times};
use crate::{
    Result,
    report::{Picture, Report, heading},
};

impl Report for Outcome {
    fn text(&self) -> String {
        let words = [
            "entries",
            "structure",
            "map_type",
            "what",
            "CPU ms",
            "min",
            "max",
            "own",
            "unmap",
            "idle",
            "stall ms",
            "max",
            "idle stall",
            "max",
            "MiB",
        ];
        let mut rows = vec![heading(words)];
        for row in &self.rows {
            rows.push(vec![
                row.entries.to_string(),
                row.structure.into(),
                row.map_type.into(),
                row.what.name().into(),
                format!("{:.2}", row.cpu_ms),
                format!("{:.2}", row.cpu_ms_min),
                format!("{:.2}", row.cpu_ms_max),
                format!("{:.2}", row.own_ms),
                row.unmap_ms.map(|ms| format!("{ms:.2}")).unwrap_or_default(),
                format!("{:.2}", row.idle_ms),
                format!("{:.2}", row.stall_ms),
                format!("{:.2}", row.stall_ms_max),
                format!("{:.2}", row.idle_stall_ms),
                format!("{:.2}", row.idle_stall_ms_max),
                row.bytes.map(|bytes| format!("{:.1}", bytes as f64 / (1 << 20) as f64)).unwrap_or_default(),
            ]);
        }
        let p = &self.parameters;
        let mut text = aligned(&rows, 4);
        let _ = writeln!(
            text,
            "\n{} rounds; tables {}. CPU: {};\nof that own: this process's, unmap: of that the mapping and the file descriptor. Stall: {};\n\
             idle: the same without a freeing. table: one table goes, another of {} entries stays and answers as before.",
            p.rounds, p.tables, p.cpu, p.stall, p.live
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let draw = |name, title, y, curves: &[_]| curve::by_entries(name, title, y, &self.caption(), curves);
        Ok(vec![
            draw("map-free-cpu", "Freeing dense hosts", "ms of CPU time", &times(&self.rows))?,
            draw("map-free-stall", "Freeing dense hosts: longest stall of a CPU", "ms", &stalls(&self.rows))?,
        ])
    }
}
