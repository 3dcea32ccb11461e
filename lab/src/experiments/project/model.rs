//! The model: a driver's published time for a bare redirect, plus what a path adds to the bare redirect here.

use serde_json::Value;

use crate::{measure::rounded, published::Redirect};

/// A path of `forward` by XDP, and what it adds to the bare redirect, nanoseconds a packet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Added {
    pub path: String,
    pub plane: String,
    /// Of the medians.
    pub ns: f64,
    /// Least and most of the medians, of the fastest and of the slowest rounds.
    pub least: f64,
    pub most: f64,
}

/// Reads from the document of `forward` how much each path adds; an error names what the document lacks.
pub(super) fn added(document: &Value) -> Result<Vec<Added>, String> {
    if document["experiment"] != "forward" {
        return Err(format!("expected a document of `forward`, not of {}", document["experiment"]));
    }
    if document["version"] != 1 {
        return Err(format!("version {} of the document: this lab reads 1", document["version"]));
    }
    let rows = document["rows"].as_array().ok_or("the document has no rows")?;
    let times = |row: &Value| -> Result<[f64; 3], String> {
        let time = |key: &str| {
            row[key]
                .as_f64()
                .filter(|ns| *ns > 0.0)
                .ok_or_else(|| format!("row {} has no {key}", row["path"]))
        };
        Ok([time("ns")?, time("ns_min")?, time("ns_max")?])
    };
    let bare = rows.iter().find(|row| row["path"] == "redirect");
    let bare = times(bare.ok_or("the document has no row of the bare redirect")?)?;
    let word = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let of = rows
        .iter()
        .filter(|row| row["path"] != "redirect" && (row["plane"] == "xdp" || row["plane"] == "fib"));
    of.map(|row| {
        let own = times(row)?;
        let differences = [0, 1, 2].map(|n| own[n] - bare[n]);
        Ok(Added {
            path: word(row, "path"),
            plane: word(row, "plane"),
            ns: differences[0],
            least: differences.into_iter().fold(f64::INFINITY, f64::min),
            most: differences.into_iter().fold(f64::NEG_INFINITY, f64::max),
        })
    })
    .collect()
}

/// Drivers of the cards that are asked about, whether their figures are published or not.
const DRIVERS: [&str; 3] = ["mlx5", "i40e", "ice"];

/// A driver's published times for the bare redirect, nanoseconds a packet: the least and the most; none without any.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Driver {
    pub name: String,
    pub ns: Option<[f64; 2]>,
}

/// [`DRIVERS`], then others that have figures, each by all of its figures.
pub(super) fn drivers(figures: &[Redirect]) -> Vec<Driver> {
    let mut drivers: Vec<Driver> =
        DRIVERS.iter().map(|name| Driver { name: (*name).to_owned(), ns: None }).collect();
    for figure in figures {
        let ns = 1e3 / figure.mpps;
        match drivers.iter_mut().find(|driver| driver.name == figure.driver) {
            Some(driver) => {
                let [least, most] = driver.ns.unwrap_or([ns, ns]);
                driver.ns = Some([least.min(ns), most.max(ns)]);
            }
            None => drivers.push(Driver { name: figure.driver.clone(), ns: Some([ns, ns]) }),
        }
    }
    drivers
}

/// Nanoseconds a packet: the middle, the least and the most. None without a published rate of the driver, or if the path is not slower here than
/// the bare redirect, so that nothing was measured.
pub(super) fn packet_ns(driver: &Driver, added: &Added) -> Option<[f64; 3]> {
    let [least, most] = driver.ns?;
    let middle = (least + most) / 2.0;
    // Below zero is noise: no program is faster than one that does nothing.
    (added.ns > 0.0).then(|| [middle + added.ns, least + added.least.max(0.0), most + added.most])
}

/// Million packets a second.
pub(super) fn mpps(ns: f64) -> f64 {
    rounded(1e3 / ns, 2)
}
