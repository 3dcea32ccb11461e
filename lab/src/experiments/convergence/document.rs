//! The document of `convergence`: its parameters, its text and its picture.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::lines::{self, Line};

use super::rows::Row;
use crate::{
    Result,
    report::{Column, Document, Picture, Report, Table, decimals, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run, with fewer routes.
    pub quick: bool,
    /// Routes in the table.
    pub table: usize,
    /// Frames a second.
    pub rate: u32,
    /// Rounds.
    pub rounds: usize,
    /// CPU that generates, forwards and counts.
    pub cpu: u32,
    /// The clock.
    pub clock: &'static str,
}

const COLUMNS: [Column<Row>; 14] = [
    ("event", |row| row.event.into()),
    ("plane", |row| row.plane.name().into()),
    ("routes", |row| row.routes.to_string()),
    ("changes", |row| row.changes.to_string()),
    ("p50 ms", |row| decimals(row.p50_ms, 2)),
    ("p99", |row| decimals(row.p99_ms, 2)),
    ("max", |row| decimals(row.max_ms, 2)),
    ("beyond kernel", |row| decimals(row.beyond_kernel_ms, 2)),
    ("p99", |row| decimals(row.beyond_kernel_p99_ms, 2)),
    ("acknowledged", |row| decimals(row.acknowledged_ms, 2)),
    ("route p50", |row| decimals(row.route_p50_ms, 2)),
    ("route p99", |row| decimals(row.route_p99_ms, 2)),
    ("lost", |row| row.lost.to_string()),
    ("wrong", |row| row.wrong.to_string()),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 2, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} routes in the table{}, {} frames a second to at most {} of those that change, {} rounds.\n\
             p50, p99, max: from the first message until the last of them carries a packet by the new way; acknowledged: until\n\
             the kernel has made the last change; route: from a route's own message to its packet. veth, one core for the traffic.",
            p.table,
            if p.quick { " (a quick run: a full one has a million)" } else { "" },
            p.rate,
            super::measure::PROBES,
            p.rounds
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let line = |row: &Row| Line {
            label: format!("{} {}, {}", row.event, row.routes, row.plane.name()),
            value: row.p50_ms,
            min: row.p50_ms,
            max: row.max_ms,
            series: row.plane as usize,
            note: format!("{:.2} ms, p99 {:.2}", row.p50_ms, row.p99_ms),
        };
        let rows: Vec<Line> = self.rows.iter().map(line).collect();
        let unit = "milliseconds, median with maximum";
        let svg = lines::picture("From a change to the last route's packet", unit, &self.caption(), &rows)?;
        Ok(vec![Picture { name: self.experiment.to_owned(), svg }])
    }
}
