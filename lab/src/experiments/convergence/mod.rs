//! Experiment `convergence`: from a change of routes to the first packet that leaves by the new route, after the kernel and after XDP.

mod document;
mod events;
mod measure;
mod rows;

use clap::Args;
use trieline_testbed::daemon::Programs;

pub use document::{Outcome, Parameters};
pub use rows::Row;

use events::Event;
use measure::{Bed, Counts, Sample};

use super::{
    experiment::{Compared, Experiment, Figure},
    forked::Product,
    options::{Only, Run, within},
};
use crate::{Context, Result, fork::Routes, in_own_thread, netns, report::Document};

/// Most routes: the image's default limit holds them twice.
pub(super) const ROUTES_MAX: usize = 2_000_000;
/// Routes of a full run and of a quick one.
pub(super) const ROUTES: [usize; 2] = [1_000_000, 100_000];
/// Frames a second, at most.
pub(super) const RATE_MAX: u32 = 2_000_000;

/// The options.
#[derive(Args, Clone, Debug, Default)]
pub struct Convergence {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which changes.
    #[command(flatten)]
    pub only: Only,
    /// Use a table of N routes [default: 1000000, quick 100000]
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 1..=ROUTES_MAX))]
    pub routes: Option<usize>,
    /// Send so many frames a second
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..=i64::from(RATE_MAX)))]
    pub rate: u32,
}

impl Experiment for Convergence {
    const NAME: &'static str = "convergence";
    const PURPOSE: &'static str = "from a change of routes to the first packet by the new one";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["event", "routes", "plane"],
        figures: &[
            Figure::lower("p50_ms").from_to("min_ms", "max_ms"),
            Figure::lower("beyond_kernel_ms"),
            Figure::lower("acknowledged_ms"),
        ],
    }];
    const CODE: &'static [&'static str] = &["router/src", "lpm/src", "lpm/include", "bpf/src"];
    const QUICK_SECONDS: u64 = 60;
    const FULL_SECONDS: u64 = 900;
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        run(self, Some(Programs::beside_me()?), context)
    }
}

/// Runs it, with the kernel alone if the product is absent; blocks until the end, and cleans up whatever happens.
pub fn run(options: &Convergence, programs: Option<Programs>, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(options, programs, context))
}

/// An event by both planes: the samples of the rounds, and the frames of all streams, also of those that the calibration loop rejected.
struct Series {
    event: Event,
    samples: Vec<Vec<Sample>>,
    counts: Vec<Vec<Counts>>,
}

fn run_here(options: &Convergence, programs: Option<Programs>, context: &Context) -> Result<Outcome> {
    let run = &options.run;
    let table = options.routes.unwrap_or(ROUTES[usize::from(run.quick)]);
    let rounds = run.rounds(2, 5);
    let cpu = netns::last_cpu()?;
    let machine = run.machine();
    netns::remove_leftovers(programs.as_ref(), &|text| context.progress.note(text));
    context.progress.phase("drawing routes", 0);
    let routes = Routes::draw(table, run.seed);
    let mut events = vec![Event::Routes(1), Event::Routes(1000), Event::Routes(routes.len())];
    events.retain(|event| event.routes(usize::MAX) <= routes.len());
    events.dedup();
    events.extend([Event::NextHop, Event::NextHopCompat, Event::LinkMultipath, Event::LinkMetric]);
    events.retain(|event| options.only.takes(event.name()));
    let events = options.only.some(events)?;

    let product = programs.map(|programs| Product { programs, configuration: None });
    let planes = [None, product.as_ref()];
    let planes = if product.is_some() { &planes[..] } else { &planes[..1] };
    context.progress.phase("namespaces", 0);
    let mut beds = planes
        .iter()
        .map(|product| Bed::create(*product, &routes, options.rate, context))
        .collect::<Result<Vec<_>>>()?;
    let mut series: Vec<Series> = Vec::new();
    let mut rest = &events[..];
    while let Some(first) = rest.first() {
        let (same, others) = rest.split_at(rest.iter().take_while(|e| e.begins_as(*first)).count());
        rest = others;
        let name = first.name();
        context
            .progress
            .phase(&format!("{name}: routes into the kernel"), (routes.len() * beds.len()) as u64);
        let prepared = beds.iter_mut().try_for_each(|bed| bed.prepare(*first));
        if run.ends(context, prepared, !series.is_empty())? {
            break;
        }
        let cases: Vec<(usize, usize)> =
            (0..same.len()).flat_map(|event| (0..beds.len()).map(move |plane| (event, plane))).collect();
        context.progress.phase(name, (cases.len() * rounds) as u64);
        let begin = series.len();
        let empty = |event: &Event| Series {
            event: *event,
            samples: vec![Vec::new(); beds.len()],
            counts: vec![Vec::new(); beds.len()],
        };
        series.extend(same.iter().map(empty));
        let new = &mut series[begin..];
        let taken = run.take(
            context,
            name,
            (rounds, cases.len()),
            || false,
            |at, gate| {
                let (event, plane) = cases[at];
                let bed = &mut beds[plane];
                let (samples, counts) = netns::between(gate, &[cpu as usize], || bed.measure(same[event]))?;
                // Packets that were lost while the machine was slow are lost all the same.
                new[event].counts[plane].push(counts);
                Ok(samples)
            },
        );
        let taken = match taken {
            Err(_) if context.interrupted() && begin > 0 => {
                run.cut(context, &format!("before {name} was measured"));
                series.truncate(begin);
                break;
            }
            taken => taken?,
        };
        for round in taken.0 {
            for ((event, plane), samples) in cases.iter().zip(round) {
                new[*event].samples[*plane].extend(samples);
            }
        }
    }
    drop(beds);
    let rows = series
        .iter()
        .flat_map(|one| rows::rows(one.event, &one.samples, &one.counts, &routes, options.rate))
        .collect();
    let parameters = Parameters {
        quick: run.quick,
        table: routes.len(),
        rate: options.rate,
        rounds,
        cpu,
        clock: "CLOCK_MONOTONIC: before the first message is sent, and in the receiver's program at each frame",
    };
    Ok(Document::new(Convergence::NAME, machine, parameters, rows))
}
