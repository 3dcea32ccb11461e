//! Experiment `churn`: what happens to a stream of packets while routes are replaced, status is asked, filters are reloaded, and trielined is
//! killed and upgraded.

mod document;
mod drive;
mod options;
mod rows;
mod trial;

use std::fs;

use trieline_testbed::daemon::Programs;

pub use document::{Outcome, Parameters};
pub use drive::Done;
pub use options::Churn;
pub use rows::Row;

use drive::Lists;
use trial::{Bed, Counts, Event};

use super::{
    convergence::ROUTES,
    experiment::{Compared, Experiment, Figure},
    forked::{Plane, Product},
};
use crate::{Context, Error, Result, error::During, fork::Routes, in_own_thread, netns, report::Document};

impl Experiment for Churn {
    const NAME: &'static str = "churn";
    const PURPOSE: &'static str =
        "packets lost while routes and filters change, and through kill and upgrade";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["event", "plane"],
        figures: &[
            Figure::lower("lost_share"),
            Figure::lower("wrong_share"),
            Figure::lower("p50_ns"),
            Figure::lower("p999_ns"),
        ],
    }];
    const CODE: &'static [&'static str] = &["router/src", "lpm/src", "lpm/include", "bpf/src"];
    const QUICK_SECONDS: u64 = 60;
    const FULL_SECONDS: u64 = 700;
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        run(self, Some(Programs::beside_me()?), context)
    }
}

/// Runs it, with the kernel alone if the product is absent; blocks until the end, and cleans up in every case.
pub fn run(options: &Churn, programs: Option<Programs>, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(options, programs, context))
}

fn run_here(options: &Churn, programs: Option<Programs>, context: &Context) -> Result<Outcome> {
    let run = &options.run;
    let table = options.routes.unwrap_or(ROUTES[usize::from(run.quick)]);
    let trial = options.trial.unwrap_or(if run.quick { 1.5 } else { 10.0 });
    let rounds = run.rounds(1, 5);
    let machine = run.machine();
    netns::remove_leftovers(programs.as_ref(), &|text| context.progress.note(text));
    context.progress.phase("drawing routes", 0);
    let routes = Routes::draw(table, run.seed);
    let folder = tempfile::tempdir().during(|| "cannot make a folder for filters".into())?;
    let product = match programs {
        Some(programs) => {
            let configuration = folder.path().join("trielined.toml");
            fs::write(&configuration, Lists::CONFIGURATION)
                .during(|| format!("cannot write {}", configuration.display()))?;
            Some(Product { programs, configuration: Some(configuration) })
        }
        None => None,
    };
    let mut cases = Vec::new();
    for event in Event::ALL.into_iter().filter(|event| options.only.takes(event.name())) {
        if event.is_kernels() {
            cases.push((event, Plane::Kernel));
        }
        if product.is_some() {
            cases.push((event, Plane::Xdp));
        }
    }
    let cases = options.only.some(cases)?;
    context.progress.phase("namespaces", 0);
    let mut beds = Vec::new();
    for plane in [Plane::Kernel, Plane::Xdp] {
        if cases.iter().any(|(_, of)| *of == plane) {
            let product = product.as_ref().filter(|_| plane == Plane::Xdp);
            beds.push(Bed::create(product, folder.path(), &routes, options, context)?);
        }
    }
    context.progress.phase("routes into the kernel", (routes.len() * beds.len()) as u64);
    for bed in &mut beds {
        bed.fill()?;
    }
    context.progress.phase("events", (cases.len() * rounds) as u64);
    // Packets that were lost while the machine was slow are lost all the same. Their counts are of all trials, times of those that were
    // kept.
    let mut all: Vec<Vec<Counts>> = vec![Vec::new(); cases.len()];
    let cpu = netns::last_cpu()?;
    let taken = run.take(
        context,
        Churn::NAME,
        (rounds, cases.len()),
        || false,
        |at, gate| {
            let (event, plane) = cases[at];
            let bed = beds.iter_mut().find(|bed| bed.plane() == plane);
            let bed = bed.ok_or_else(|| Error::Traffic(format!("no node runs plane {}", plane.name())))?;
            let counts = netns::between(gate, &[cpu as usize], || bed.trial(event, trial))?;
            all[at].push(counts.clone());
            Ok(counts)
        },
    )?;
    drop(beds);
    let kept = |at: usize| taken.0.iter().map(|round| round[at].clone()).collect::<Vec<Counts>>();
    let rows = cases
        .iter()
        .enumerate()
        .map(|(at, (event, plane))| Row::new(*event, *plane, &routes, &all[at], &kept(at)));
    let rows = rows.collect();
    let parameters = Parameters {
        quick: run.quick,
        table: routes.len(),
        rate: options.rate,
        changes: options.changes,
        trial_s: trial,
        rounds: taken.len(),
        cpu,
        clock: "CLOCK_MONOTONIC in the sender's and the receiver's program",
    };
    Ok(Document::new(Churn::NAME, machine, parameters, rows))
}
