//! The document of `churn`: its parameters, its text and its picture.

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
    /// Routes replaced a second, as asked for.
    pub changes: u32,
    /// Seconds of an event; it ends later if what it began is not done.
    pub trial_s: f64,
    /// Rounds.
    pub rounds: usize,
    /// CPU that generates, forwards and counts.
    pub cpu: u32,
    /// The clock.
    pub clock: &'static str,
}

const COLUMNS: [Column<Row>; 13] = [
    ("event", |row| row.event.into()),
    ("plane", |row| row.plane.name().into()),
    ("done", done),
    ("changes/s", |row| decimals((row.changes_per_s > 0.0).then_some(row.changes_per_s), 0)),
    ("sent", |row| row.sent.to_string()),
    ("lost", |row| row.lost.to_string()),
    ("twice", |row| row.duplicated.to_string()),
    ("wrong way", |row| row.wrong.to_string()),
    ("reordered", |row| row.reordered.to_string()),
    ("past the filter", |row| row.leaked.to_string()),
    ("p50 us", |row| decimals(row.p50_ns / 1e3, 1)),
    ("p99", |row| decimals(row.p99_ns / 1e3, 1)),
    ("p99.9", |row| decimals(row.p999_ns / 1e3, 1)),
];

/// The work done, in words.
fn done(row: &Row) -> String {
    let done = &row.done;
    let parts = [
        (done.changes, "routes"),
        (done.asked, "answers"),
        (done.reloaded, "reloads"),
        (done.killed, "kills"),
        (done.upgraded, "upgrades"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    parts.collect::<Vec<_>>().join(", ")
}

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 3, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} routes in the table{}; {} frames a second in turn to at most 65,536 of them; {} rounds of {} s.\n\
             Half of the routes are replaced between two next hops. The others never change: a packet of theirs by the other\n\
             link is a wrong one. veth, one core for the traffic.",
            p.table,
            if p.quick { " (a quick run: a full one has a million)" } else { "" },
            p.rate,
            p.rounds,
            p.trial_s
        );
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let line = |row: &Row| Line {
            label: format!("{}, {}", row.event, row.plane.name()),
            value: row.p50_ns / 1e3,
            min: row.p50_ns / 1e3,
            max: row.p999_ns / 1e3,
            series: row.plane as usize,
            note: format!("{:.0} us, p99.9 {:.0}, {} lost", row.p50_ns / 1e3, row.p999_ns / 1e3, row.lost),
        };
        let rows: Vec<Line> = self.rows.iter().map(line).collect();
        let unit = "microseconds, median with the 99.9th percentile";
        let svg = lines::picture("A packet's time while the node changes", unit, &self.caption(), &rows)?;
        Ok(vec![Picture { name: self.experiment.to_owned(), svg }])
    }
}
