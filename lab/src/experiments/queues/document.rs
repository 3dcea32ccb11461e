//! The document of `queues`: its parameters, its text and its picture.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::lines::{self, Line};

use super::rows::{Plane, Row, Skip};
use crate::{
    Result,
    report::{Column, Document, Picture, Report, Table, dash, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row, More>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Frames a turn, of all queues together.
    pub frames: u64,
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// Flows.
    pub flows: usize,
    /// Interleaved rounds.
    pub rounds: usize,
    /// The CPUs of the two queues.
    pub cpus: [usize; 2],
    /// The meaning of a queue on a veth.
    pub queue: &'static str,
    /// How `mpps` is computed.
    pub clock: &'static str,
}

/// Results besides the rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct More {
    /// Hand-offs that a plane does not have.
    pub skipped: Vec<Skip>,
}

const COLUMNS: [Column<Row>; 12] = [
    ("plane", |row| row.plane.name().into()),
    ("handoff", |row| row.handoff.name().into()),
    ("variant", |row| row.variant.name().into()),
    ("queues", |row| row.queues.to_string()),
    ("cores", |row| row.cores.to_string()),
    ("share", |row| format!("{:.2}", row.share)),
    ("Mpps", |row| format!("{:.3}", row.mpps)),
    ("min", |row| format!("{:.3}", row.mpps_min)),
    ("max", |row| format!("{:.3}", row.mpps_max)),
    ("ratio", |row| dash(row.ratio, |ratio| format!("{ratio:.2}x"))),
    ("kernel", |row| dash(row.ratio_kernel, |ratio| format!("{ratio:.2}x"))),
    ("lost", |row| row.lost.to_string()),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 3, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} flows, {} rounds of {} frames of {} bytes, generated on the CPUs of the queues ({} and {}). Mpps: packets that came out;\n\
             ratio: over one queue on one core of the same plane; kernel: over the kernel's row of the same case; share: of the busiest\n\
             queue. lost: the generator is not paced, so a full ring between two cores drops. {}.",
            p.flows, p.rounds, p.frames, p.frame_bytes, p.cpus[0], p.cpus[1], p.queue
        );
        for skip in &self.more.skipped {
            let _ = writeln!(text, "No {} with {}: {}.", skip.plane.name(), skip.handoff.name(), skip.why);
        }
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let line = |row: &Row| Line {
            label: format!(
                "{} {}/{} {}",
                row.plane.name(),
                row.queues,
                row.cores,
                if row.handoff.name() == "none" { row.variant.name() } else { row.handoff.name() }
            ),
            value: row.mpps,
            min: row.mpps_min,
            max: row.mpps_max,
            series: match row.plane {
                Plane::Kernel => 0,
                Plane::Xdp => 2,
                Plane::Fib => 3,
            },
            note: format!("{:.2}{}", row.mpps, row.ratio.map(|r| format!(" ({r:.2}x)")).unwrap_or_default()),
        };
        let lines: Vec<Line> = self.rows.iter().map(line).collect();
        let title = "Packets through one and two queues";
        let unit = "million packets a second that came out, median with minimum and maximum";
        let svg = lines::picture(title, unit, &self.caption(), &lines)?;
        Ok(vec![Picture { name: "queues".into(), svg }])
    }
}
