//! Experiment `project`: a model of what the figures of `forward` on veth mean on network cards.
//!
//! Drivers' costs are published ones, with their sources (`lab/published/xdp_redirect.csv`). The model is checked against the router of the
//! XDP paper, which looks routes up as plane `fib` of `forward` does.

mod document;
mod model;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::Value;

pub use document::{Check, Model, Outcome, Parameters, Row};

use super::{
    experiment::{Compared, Experiment, Figure},
    forward::Forward,
    options::{Only, Run, Table},
};
use crate::{
    Context, Error, Result,
    error::During,
    published::{self, Redirect},
    report::Document,
};

/// Frames a turn if `forward` runs for the model alone.
const FRAMES: u64 = 150_000;

/// Its options.
#[derive(Args, Clone, Debug)]
pub struct Project {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Read this saved document of forward
    ///
    /// `trieline lab run forward --save` writes one. Without it, forward runs now, with few frames.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Add a driver by its bare redirect, Mpps a core
    ///
    /// For example `ice=9.4`, as `xdp-bench redirect` measures it on your card. May stand several times.
    #[arg(long = "driver", value_name = "NAME=MPPS", value_parser = driver)]
    pub drivers: Vec<Redirect>,
    /// Which table, if forward runs.
    #[command(flatten)]
    pub table: Table,
    /// Which paths.
    #[command(flatten)]
    pub only: Only,
}

fn driver(text: &str) -> std::result::Result<Redirect, String> {
    let parts = text.split_once('=').and_then(|(name, mpps)| Some((name, mpps.parse::<f64>().ok()?)));
    match parts {
        Some((name, mpps)) if !name.is_empty() && (0.01..=1000.0).contains(&mpps) => Ok(Redirect {
            driver: name.into(),
            mpps,
            conditions: "given by --driver".into(),
            source: "the command line".into(),
        }),
        _ => Err("expected NAME=MPPS, for example ice=9.4".into()),
    }
}

impl Experiment for Project {
    const NAME: &'static str = "project";
    const PURPOSE: &'static str = "a model: what the figures of forward on veth mean on network cards";
    const COMPARED: &'static [Compared] = &[
        Compared {
            list: "rows",
            names: &["path", "plane", "driver"],
            figures: &[
                Figure::lower("added_ns").within("added_min", "added_max"),
                Figure::higher("mpps").within("mpps_min", "mpps_max"),
            ],
        },
        Compared {
            list: "checks",
            names: &["path"],
            figures: &[Figure::higher("model_mpps").within("model_min", "model_max")],
        },
    ];
    const CODE: &'static [&'static str] =
        &["router/src", "lpm/src", "lpm/include", "bpf/src", "lab/src/experiments/forward"];
    type Outcome = Outcome;

    fn needs_root(&self) -> bool {
        self.from.is_none()
    }

    fn measures(&self) -> bool {
        self.from.is_none()
    }

    fn run(&self, context: &Context) -> Result<Outcome> {
        let machine = self.run.machine();
        let measured = match &self.from {
            Some(file) => read(file)?,
            None => {
                let (run, table, only) = (self.run.clone(), self.table.clone(), self.only.clone());
                let forward = Forward { run, table, only, frames: Some(FRAMES) }.run(context)?;
                serde_json::to_value(&forward)
                    .map_err(std::io::Error::other)
                    .during(|| "cannot read forward's document".into())?
            }
        };
        let named = || self.from.clone().unwrap_or_else(|| Forward::NAME.into());
        let mut added = model::added(&measured).map_err(|why| Error::Table { path: named(), why })?;
        added.retain(|one| self.only.takes(&one.path));
        if added.is_empty() {
            let why = "no row of plane xdp or fib to project".into();
            return Err(Error::Table { path: named(), why });
        }
        let mut figures = published::redirects()?;
        figures.extend(self.drivers.iter().cloned());
        let (source, routed) = published::routed()?;
        let rows = document::rows(&added, &model::drivers(&figures));
        let checks = document::checks(&added, &routed);
        let parameters = Parameters {
            from: self.from.as_ref().map(|file| file.display().to_string()),
            measured: measured["machine"].clone(),
            drivers: figures,
            meaning: "time a packet = the driver's published bare redirect + what the path adds to the bare redirect here; the middle of the \
                      driver's figures, and the range of both; this CPU's nanoseconds stand for those of the card's machine",
            published: source,
        };
        Ok(Document::new(Self::NAME, machine, parameters, rows).with(Model { model: true, checks }))
    }
}

fn read(file: &Path) -> Result<Value> {
    let text = fs::read(file).during(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::Table { path: file.to_owned(), why: format!("is not JSON: {error}") })
}
