//! The document of `forward`: its parameters, its text and its picture.

use std::{fmt::Write as _, path::PathBuf};

use serde::{Deserialize, Serialize};
use trieline_plot::lines::{self, Line};

use super::{case::Plane, rows::Row};
use crate::{
    Result,
    published::{self, Routed},
    report::{Column, Document, Picture, Report, Table, decimals, table},
    tables::Source,
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// File of the routes.
    pub table: Option<PathBuf>,
    /// Read or generated.
    pub source: Source,
    /// Routes of each family in the kernel.
    pub routes4: usize,
    /// IPv6.
    pub routes6: usize,
    /// Frames a turn.
    pub frames: u64,
    /// Interleaved rounds.
    pub rounds: usize,
    /// CPU that generates, forwards and sinks.
    pub cpu: u32,
    /// Seconds that `ip -batch` took to load the routes.
    pub load_s: f64,
    /// How it was timed.
    pub clock: &'static str,
    /// How the mirror came up; none without the product.
    pub mirror: Option<Mirror>,
}

/// How long the product took to forward what the kernel knew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mirror {
    /// From the daemon's start to the first frame that XDP forwarded, probed every ~25 ms.
    pub start_to_first_forwarded_ms: f64,
    /// From its start until all paths were forwarded by XDP.
    pub start_to_all_paths_ms: f64,
    /// The daemon's own status (`trieline -j node status`).
    pub status: Option<serde_json::Value>,
}

/// A line of a picture for each row.
fn lines(rows: &[Row]) -> Vec<Line> {
    let line = |row: &Row| {
        let plane = match row.plane {
            Plane::Kernel => "kernel",
            Plane::KernelTcSink => "kernel, tc sink",
            Plane::Flowtable => "kernel, flowtable",
            Plane::Fib => "XDP by bpf_fib_lookup",
            Plane::Xdp => "XDP",
        };
        let ratio = row.ratio.map(|ratio| format!(" ({ratio:.1}x)")).unwrap_or_default();
        Line {
            label: format!("{} {plane}", row.path),
            value: row.ns,
            min: row.ns_min,
            max: row.ns_max,
            series: match row.plane {
                Plane::Kernel => 0,
                Plane::KernelTcSink => 1,
                Plane::Xdp => 2,
                Plane::Fib => 3,
                Plane::Flowtable => 4,
            },
            note: format!("{:.1} ns{ratio}", row.ns),
        }
    };
    rows.iter().map(line).collect()
}

/// A line for each figure that the XDP paper has of a path with a row of plane `fib`.
fn published(rows: &[Row]) -> Result<Vec<Line>> {
    let (_, routed) = published::routed()?;
    let has_row = |path: &str| rows.iter().any(|row| row.plane == Plane::Fib && row.path == path);
    let line = |routed: Routed| {
        let ns = 1e3 / routed.mpps;
        Line {
            label: format!("{} XDP paper, mlx5", routed.path),
            value: ns,
            min: ns,
            max: ns,
            series: 3,
            note: format!("{ns:.1} ns (published, on a network card)"),
        }
    };
    Ok(routed.into_iter().filter(|routed| has_row(&routed.path)).map(line).collect())
}

const COLUMNS: [Column<Row>; 14] = [
    ("path", |row| row.path.into()),
    ("plane", |row| row.plane.name().into()),
    ("bytes", |row| row.frame_bytes.to_string()),
    ("Mpps", |row| format!("{:.2}", row.mpps)),
    ("ns", |row| format!("{:.1}", row.ns)),
    ("min", |row| format!("{:.1}", row.ns_min)),
    ("max", |row| format!("{:.1}", row.ns_max)),
    ("net", |row| format!("{:.1}", row.ns_net)),
    ("ratio", |row| row.ratio.map(|ratio| format!("{ratio:.2}x")).unwrap_or_default()),
    ("ratio tc", |row| row.ratio_tc.map(|ratio| format!("{ratio:.2}x")).unwrap_or_default()),
    ("ratio fib", |row| row.ratio_fib.map(|ratio| format!("{ratio:.2}x")).unwrap_or_default()),
    ("floor", |row| decimals(row.floor_share, 2)),
    ("share", |row| {
        row.share.zip(row.of).map(|(share, of)| format!("{share:.2} of {of}")).unwrap_or_default()
    }),
    ("delivered", delivered),
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
            "{} IPv4 and {} IPv6 routes ({}), {} rounds of {} frames on one core; ns a frame with generator and sink,\n\
             net without the generator; ratio: the kernel's ns over this ns, tc: against the kernel with a tc sink;\n\
             fib: against an XDP program by bpf_fib_lookup; floor: the bare redirect's ns as a share of this ns;\n\
             share: the rate as a share of another path's. decap-full is End.DX4 nh4 0.0.0.0: End.DT4 needs a VRF device.",
            p.routes4,
            p.routes6,
            source(p.source),
            p.rounds,
            p.frames
        );
        for row in self.rows.iter().filter(|row| row.lossy_turns > 0) {
            let (lossy, all) = (row.lossy_turns, row.lossy_turns + row.rounds);
            let _ = writeln!(
                text,
                "{} {}: {lossy} of {all} turns lost frames ({} of {} arrived) and count for no figure.",
                row.path,
                row.plane.name(),
                row.delivered,
                row.frames
            );
        }
        if let Some(mirror) = &p.mirror {
            let _ = writeln!(
                text,
                "trielined: {} ms from its start to the first frame forwarded by XDP.",
                mirror.start_to_first_forwarded_ms
            );
        }
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let mut rows = lines(&self.rows);
        rows.extend(published(&self.rows)?);
        Ok(vec![lines::times("forward", "Forwarding, time a frame", &self.caption(), &rows)?])
    }
}

/// Where routes come from, in words.
pub fn source(source: Source) -> &'static str {
    match source {
        Source::File => "from a file",
        Source::Generated => "generated",
    }
}

/// All frames, or how many are missing.
pub fn delivered(row: &Row) -> String {
    match row.frames.saturating_sub(row.delivered) {
        0 => "all".into(),
        short => format!("{short} short"),
    }
}
