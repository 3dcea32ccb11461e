//! The document of `throughput`: its parameters, its text and its picture.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::curve::{self, Curve, Marks, Point, Stroke, Words};

use super::{
    case::{Path, Plane},
    counters::Places,
    rows::{Limit, Row},
};
use crate::{
    Result, published,
    report::{Column, Document, Picture, Report, Table, dash, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Seconds of a trial.
    pub trial_s: f64,
    /// Seconds of the trials that search. If they are shorter than `trial_s`, a trial of that length confirms each NDR.
    pub search_s: f64,
    /// Cases that a quick run had no time for, by name; they have no row.
    pub left_out: Vec<String>,
    /// Runs of each case.
    pub runs: usize,
    /// A found rate lies below one that lost too much by this share at most.
    pub precision: f64,
    /// Share that `pdr_mpps` may lose.
    pub pdr_loss: f64,
    /// CPU of the generator, and of the node with the sink; none between two devices.
    pub cpus: Option<[usize; 2]>,
    /// The device that frames leave by, and the one they come back by; none on the lab's own veth.
    pub devices: Option<[String; 2]>,
    /// Places of loss.
    pub places: &'static str,
}

fn mpps(value: Option<f64>) -> String {
    dash(value, |mpps| format!("{mpps:.3}"))
}

fn microseconds(value: Option<f64>) -> String {
    dash(value, |ns| format!("{:.1}", ns / 1e3))
}

const COLUMNS: [Column<Row>; 17] = [
    ("path", |row| row.path.name().into()),
    ("plane", |row| row.plane.name().into()),
    ("size", |row| row.size.clone()),
    ("flows", |row| row.flows.to_string()),
    ("NDR Mpps", |row| mpps(row.ndr_mpps)),
    ("min", |row| mpps(row.ndr_min)),
    ("max", |row| mpps(row.ndr_max)),
    ("", |row| if row.limit == Limit::Generator { "!" } else { "" }.into()),
    ("Gbit/s", |row| dash(row.ndr_gbps, |gbps| format!("{gbps:.2}"))),
    ("PDR Mpps", |row| mpps(row.pdr_mpps)),
    ("ratio", |row| dash(row.ratio, |ratio| format!("{ratio:.2}x"))),
    ("fib", |row| dash(row.ratio_fib, |ratio| format!("{ratio:.2}x"))),
    ("floor", |row| dash(row.floor_share, |share| format!("{:.0}%", share * 100.0))),
    ("p50 us", |row| microseconds(row.p50_ns)),
    ("p99", |row| microseconds(row.p99_ns)),
    ("p99.9", |row| microseconds(row.p999_ns)),
    ("reordered", |row| row.reordered.to_string()),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 2, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let runs = if p.runs < 3 { "mean" } else { "mean without the best and the worst" };
        let _ = writeln!(
            text,
            "NDR: highest rate without loss; PDR: with {} % at most. {} runs ({runs}), trials of {} s, rates to {} %.\n\
             ratio: over the kernel's NDR of the same traffic; fib: over that of an XDP program by bpf_fib_lookup.\n\
             floor: as a share of the NDR of an XDP program that looks nothing up, at the same size. us: from generator to receiver at the NDR.",
            p.pdr_loss * 100.0,
            p.runs,
            p.trial_s,
            p.precision * 100.0
        );
        if let Some(row) = self.rows.first() {
            let _ = writeln!(text, "Mpps: {}.", row.meaning);
        }
        if p.search_s < p.trial_s {
            let _ = writeln!(
                text,
                "A short search: by trials of {} s; the NDR was confirmed by one of {} s.",
                p.search_s, p.trial_s
            );
        }
        if !p.left_out.is_empty() {
            let _ =
                writeln!(text, "Left out, since a quick run ends in two minutes: {}.", p.left_out.join(", "));
        }
        if self.rows.iter().any(|row| row.limit == Limit::Generator) {
            text.push_str("!: the node took all that the generator can send: its own limit is higher.\n");
        }
        let mut places = Places::default();
        self.rows.iter().for_each(|row| places.add(row.losses.places));
        let _ = writeln!(
            text,
            "Lost in all trials: {}; by the devices' counters {} at the generator, {} at an RX ring, {} in XDP, {} at a TX ring.",
            self.rows.iter().map(|row| row.losses.all).sum::<u64>(),
            places.generator,
            places.rx_ring,
            places.xdp,
            places.tx_ring
        );
        let disturbed = self.rows.iter().map(|row| row.disturbed).sum::<usize>();
        if disturbed > 0 {
            let trials = self.rows.iter().map(|row| row.trials).sum::<usize>();
            let _ = writeln!(
                text,
                "The machine took the node's CPU away in {disturbed} trials ({trials} count); those that lost frames were made again."
            );
        }
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let mut curves: Vec<Curve> = curve::by_label(self.rows.iter().filter_map(|row| {
            let many = if row.flows == 1 { String::new() } else { format!(", {} flows", row.flows) };
            let label = format!("{} {}{many}", row.plane.name(), row.path.name());
            let series = match (row.plane, row.path) {
                (Plane::Kernel | Plane::KernelTcSink, _) => 0,
                (Plane::Fib | Plane::Flowtable, _) => 4,
                (Plane::Redirect, _) => 3,
                (_, Path::Ipv4) => 2,
                (_, Path::Encap) => 1,
                (_, Path::Decap) => 3,
            };
            let is_variant = matches!(row.plane, Plane::KernelTcSink | Plane::Flowtable | Plane::Redirect);
            let stroke = if row.flows == 1 && !is_variant { Stroke::Solid } else { Stroke::Thin };
            let size = row.size.parse().ok()?;
            let point = Point { x: size, y: row.ndr_mpps?, least: row.ndr_min?, most: row.ndr_max? };
            Some(((label, series, stroke), point))
        }));
        if curves.is_empty() {
            return Ok(Vec::new());
        }
        curves.extend(self.published()?);
        let words = Words {
            title: "Throughput without loss, by frame size",
            x: "bytes of a frame, with FCS and without outer headers",
            marks: Marks::Numbers,
            y: "highest rate without loss, million frames a second",
            source: &self.caption(),
        };
        Ok(vec![Picture { name: self.experiment.to_owned(), svg: curve::picture(words, &curves)? }])
    }
}

impl Document<Parameters, Row> {
    /// Figures that others published, and that have a place here: a rate of the kernel's, and a ratio over the kernel.
    fn published(&self) -> Result<Vec<Curve>> {
        let forwarding = published::forwarding()?.1;
        let value = |unit: &str| forwarding.iter().find(|one| one.unit == unit).map(|one| one.value);
        let kernel = |path: Path| {
            let rows = self
                .rows
                .iter()
                .filter(move |row| row.plane == Plane::Kernel && row.path == path && row.flows == 1);
            rows.filter_map(|row| Some((row.size.parse::<f64>().ok()?, row.ndr_mpps?)))
        };
        let sizes = self.rows.iter().filter_map(|row| row.size.parse::<f64>().ok());
        let ends = [sizes.clone().fold(f64::NAN, f64::min), sizes.fold(f64::NAN, f64::max)];
        let dotted = |label: &str, series, points: Vec<Point>| {
            (!points.is_empty()).then(|| Curve {
                label: label.to_owned(),
                points,
                series,
                stroke: Stroke::Dotted,
            })
        };
        let ratio = value("ratio").and_then(|ratio| {
            let points = kernel(Path::Decap).map(|(size, mpps)| Point::exact(size, mpps * ratio)).collect();
            dotted(&format!("LINE 2019: {ratio} x kernel decap"), 3, points)
        });
        let rate = value("Mpps").and_then(|mpps| {
            // Of one size it is a point.
            let count = if ends[0] < ends[1] { 2 } else { 1 };
            let sizes = ends.iter().take(count).filter(|size| size.is_finite());
            let points = sizes.map(|size| Point::exact(*size, mpps)).collect();
            dotted("kernel, Asama 2014", 0, points)
        });
        Ok(ratio.into_iter().chain(rate).collect())
    }
}
