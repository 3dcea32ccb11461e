//! The document of `project`: a model, and labelled as one in its text, its keys and its picture.

use std::{collections::BTreeSet, fmt::Write as _};

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
    /// Published nanoseconds of the driver's bare redirect, least; null without any.
    pub driver_min: Option<f64>,
    /// Most.
    pub driver_max: Option<f64>,
    /// Million packets a second and core by the model; null, with the reason in `why`, if there is none.
    pub mpps: Option<f64>,
    /// Lower end of the range.
    pub mpps_min: Option<f64>,
    /// Upper end.
    pub mpps_max: Option<f64>,
    /// The reason why the model has no figure.
    pub why: Option<&'static str>,
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
    /// By the slowest of median, fastest and slowest rounds.
    pub model_min: Option<f64>,
    /// By the fastest.
    pub model_max: Option<f64>,
    /// The model's over the paper's, less one, in percent.
    pub error_percent: Option<f64>,
}

/// Of a driver without a published rate.
const NO_SOURCE: &str =
    "no published rate of XDP_REDIRECT on one core was found; add yours by --driver NAME=MPPS";
/// Of a path that costs nothing here.
const NOT_SLOWER: &str = "the path is not slower than the bare redirect here: nothing was measured";

pub(super) fn rows(added: &[Added], drivers: &[Driver]) -> Vec<Row> {
    let row = |added: &Added, driver: &Driver| {
        let ns = packet_ns(driver, added);
        let why = match driver.ns {
            None => Some(NO_SOURCE),
            Some(_) => ns.is_none().then_some(NOT_SLOWER),
        };
        Row {
            path: added.path.clone(),
            plane: added.plane.clone(),
            driver: driver.name.clone(),
            added_ns: rounded(added.ns, 1),
            added_min: rounded(added.least, 1),
            added_max: rounded(added.most, 1),
            driver_min: driver.ns.map(|[least, _]| rounded(least, 1)),
            driver_max: driver.ns.map(|[_, most]| rounded(most, 1)),
            mpps: ns.map(|[middle, ..]| mpps(middle)),
            mpps_min: ns.map(|[.., most]| mpps(most)),
            mpps_max: ns.map(|[_, least, _]| mpps(least)),
            why,
        }
    };
    added.iter().flat_map(|added| drivers.iter().map(move |driver| row(added, driver))).collect()
}

pub(super) fn checks(added: &[Added], routed: &[Routed]) -> Vec<Check> {
    let check = |routed: &Routed| {
        let ns = 1e3 / routed.redirect_mpps;
        let driver = Driver { name: String::new(), ns: Some([ns, ns]) };
        let found = added.iter().find(|added| added.plane == "fib" && added.path == routed.path);
        let times = found.and_then(|added| packet_ns(&driver, added));
        let [model, model_max, model_min] = [0, 1, 2].map(|at| times.map(|times| mpps(times[at])));
        Check {
            path: routed.path.clone(),
            what: routed.what.clone(),
            published_mpps: rounded(routed.mpps, 2),
            model_mpps: model,
            model_min,
            model_max,
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
    ("driver ns", |row| {
        dash(row.driver_min.zip(row.driver_max), |(least, most)| format!("{least:.0}..{most:.0}"))
    }),
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
        let mut text = format!("{}.\n", p.meaning);
        for why in [NO_SOURCE, NOT_SLOWER] {
            let of = self.rows.iter().filter(|row| row.why == Some(why));
            let names: BTreeSet<String> = match why {
                NO_SOURCE => of.map(|row| row.driver.clone()).collect(),
                _ => of.map(|row| format!("{} {}", row.path, row.plane)).collect(),
            };
            if !names.is_empty() {
                let names: Vec<String> = names.into_iter().collect();
                let _ = writeln!(text, "No figure of {}: {why}.", names.join(", "));
            }
        }
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
