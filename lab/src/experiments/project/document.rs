//! The document of `project`: a model, and labelled as one in its text, its keys and its picture.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trieline_plot::lines::{self, Line};

use super::model::{Added, Driver, mpps, packet_ns};
use crate::{
    Result,
    measure::rounded,
    published::{Redirect, Routed},
    report::{Column, Document, Picture, Report, Table, dash, decimals, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row, Model>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// File of the measured document; null if `forward` ran now.
    pub from: Option<String>,
    /// Where and how `forward` measured.
    pub measured: Value,
    /// The figures of drivers that the model starts from.
    pub drivers: Vec<Redirect>,
    /// Drivers without a figure, and why.
    pub left_out: &'static str,
    /// The model, in words.
    pub meaning: &'static str,
    /// Where the figures that it is checked against are from.
    pub published: &'static str,
}

/// The keys of a model's document besides rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Model {
    /// Always true: no row was measured on a NIC.
    pub model: bool,
    /// The model against what was published.
    pub checks: Vec<Check>,
}

/// A path on a driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Path of `forward`.
    pub path: String,
    /// `xdp fib`.
    pub plane: String,
    /// Name of the driver.
    pub driver: String,
    /// Nanoseconds that the path adds to the bare redirect here.
    pub added_ns: f64,
    /// Least of median, fastest and slowest rounds.
    pub added_min: f64,
    /// Most.
    pub added_max: f64,
    /// Published nanoseconds of the driver's bare redirect, least.
    pub driver_min: f64,
    /// Most.
    pub driver_max: f64,
    /// Million packets a second and core by the model; null if the path was not slower than the bare redirect.
    pub mpps: Option<f64>,
    /// Lower end of the range.
    pub mpps_min: Option<f64>,
    /// Upper end.
    pub mpps_max: Option<f64>,
}

/// The model of the kernel's routes by XDP beside what the XDP paper measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Path of `forward`.
    pub path: String,
    /// The paper's table and settings.
    pub what: String,
    /// Million packets a second that the paper measured.
    pub published_mpps: f64,
    /// Those that the model gives from the paper's own bare redirect; null without rows of plane `fib`.
    pub model_mpps: Option<f64>,
    /// The model's over the paper's, less one, in percent.
    pub error_percent: Option<f64>,
}

pub(super) fn rows(added: &[Added], drivers: &[Driver]) -> Vec<Row> {
    let row = |added: &Added, driver: &Driver| {
        let ns = packet_ns(driver, added);
        Row {
            path: added.path.clone(),
            plane: added.plane.clone(),
            driver: driver.name.clone(),
            added_ns: rounded(added.ns, 1),
            added_min: rounded(added.least, 1),
            added_max: rounded(added.most, 1),
            driver_min: rounded(driver.least, 1),
            driver_max: rounded(driver.most, 1),
            mpps: ns.map(|[middle, ..]| mpps(middle)),
            mpps_min: ns.map(|[.., most]| mpps(most)),
            mpps_max: ns.map(|[_, least, _]| mpps(least)),
        }
    };
    added.iter().flat_map(|added| drivers.iter().map(move |driver| row(added, driver))).collect()
}

pub(super) fn checks(added: &[Added], routed: &[Routed]) -> Vec<Check> {
    let check = |routed: &Routed| {
        let ns = 1e3 / routed.redirect_mpps;
        let driver = Driver { name: String::new(), least: ns, most: ns };
        let found = added.iter().find(|added| added.plane == "fib" && added.path == routed.path);
        let model = found.and_then(|added| packet_ns(&driver, added)).map(|[middle, ..]| mpps(middle));
        Check {
            path: routed.path.clone(),
            what: routed.what.clone(),
            published_mpps: rounded(routed.mpps, 2),
            model_mpps: model,
            error_percent: model.map(|model| rounded(100.0 * (model / routed.mpps - 1.0), 1)),
        }
    };
    routed.iter().map(check).collect()
}

const COLUMNS: [Column<Row>; 8] = [
    ("path", |row| row.path.clone()),
    ("plane", |row| row.plane.clone()),
    ("driver", |row| row.driver.clone()),
    ("added ns", |row| decimals(row.added_ns, 1)),
    ("driver ns", |row| format!("{:.0}..{:.0}", row.driver_min, row.driver_max)),
    ("model Mpps", |row| dash(row.mpps, |mpps| format!("{mpps:.2}"))),
    ("from", |row| dash(row.mpps_min, |mpps| format!("{mpps:.2}"))),
    ("to", |row| dash(row.mpps_max, |mpps| format!("{mpps:.2}"))),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        let title = "A MODEL, not a measurement: million packets a second and core on network cards";
        vec![table(&self.rows, 3, &COLUMNS).titled(title)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = format!("{}.\n{}.\n", p.meaning, p.left_out);
        for check in &self.more.checks {
            let model = match (check.model_mpps, check.error_percent) {
                (Some(mpps), Some(error)) => format!("the model says {mpps:.2}: error {error:+.1} %"),
                _ => {
                    "the document has no row of plane fib that is slower than the bare redirect: not checked"
                        .into()
                }
            };
            let _ = writeln!(
                text,
                "Check by plane fib, {} ({}): the XDP paper measured {:.2} Mpps; {model}.",
                check.path, check.what, check.published_mpps
            );
        }
        let mut known: Vec<&str> = p.drivers.iter().map(|figure| figure.source.as_str()).collect();
        known.dedup();
        let _ = writeln!(text, "Drivers' figures: {}.", known.join("; "));
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let rows = self.rows.iter().filter_map(|row| {
            let ns = 1e3 / row.mpps?;
            Some(Line {
                label: format!("{} {} on {}", row.path, row.plane, row.driver),
                value: rounded(ns, 1),
                min: 1e3 / row.mpps_max?,
                max: 1e3 / row.mpps_min?,
                series: if row.plane == "fib" { 0 } else { 2 },
                note: format!("{:.1} Mpps (model)", row.mpps?),
            })
        });
        let title = "Model, not measured: time a packet on network cards";
        Ok(vec![lines::times(self.experiment, title, &self.caption(), &rows.collect::<Vec<_>>())?])
    }
}
