//! The result for people: a table and a picture.

use std::fmt::Write as _;

use trieline_plot::lines;
use trieline_terminal::aligned;

use super::{Outcome, Plane, Row, lines as rows};
use crate::{
    Result,
    report::{Picture, Report},
    tables::Source,
};

impl Report for Outcome {
    fn text(&self) -> String {
        let mut rows = vec![
            [
                "path",
                "plane",
                "bytes",
                "Mpps",
                "ns",
                "min",
                "max",
                "net",
                "ratio",
                "ratio tc",
                "share",
                "delivered",
            ]
            .map(String::from)
            .to_vec(),
        ];
        for row in &self.rows {
            let ratio = |ratio: Option<f64>| ratio.map(|r| format!("{r:.2}x")).unwrap_or_default();
            rows.push(vec![
                row.path.into(),
                plane(row.plane).into(),
                row.frame_bytes.to_string(),
                format!("{:.2}", row.mpps),
                format!("{:.1}", row.ns),
                format!("{:.1}", row.ns_min),
                format!("{:.1}", row.ns_max),
                format!("{:.1}", row.ns_net),
                ratio(row.ratio),
                ratio(row.ratio_tc),
                row.share.zip(row.of).map(|(share, of)| format!("{share:.2} of {of}")).unwrap_or_default(),
                delivered(row),
            ]);
        }
        let p = &self.parameters;
        let mut text = aligned(&rows, 2);
        let _ = writeln!(
            text,
            "\n{} IPv4 and {} IPv6 routes ({}), {} rounds of {} frames on one core; ns a frame with generator and sink,\n\
             net without the generator; ratio: the kernel's ns over this ns, tc: against the kernel with a tc sink;\n\
             share: the rate as a share of another path's. decap-full is End.DX4 nh4 0.0.0.0: End.DT4 needs a VRF device.",
            p.routes4,
            p.routes6,
            source(p.source),
            p.rounds,
            p.frames
        );
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
        let rows = rows(&self.rows);
        Ok(vec![lines::times("forward", "Forwarding, time a frame", &self.caption(), &rows)?])
    }
}

/// A plane's name.
pub fn plane(plane: Plane) -> &'static str {
    match plane {
        Plane::Kernel => "kernel",
        Plane::KernelTcSink => "kernel-tc-sink",
        Plane::Xdp => "xdp",
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
