//! Experiment `throughput`: the highest rate without loss, and the highest that loses half a percent at most, by size of the frames.
//!
//! As R. Saito measured an SRv6 node of XDP (LINE Verda, 2019): binary search, trials of ten seconds, and five runs without the best and the
//! worst.

mod bench;
mod case;
mod counters;
mod devices;
mod document;
mod find;
mod profile;
mod rows;
mod search;
#[cfg(test)]
mod tests;
mod ways;

use std::{
    cell::Cell,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use trieline_testbed::daemon::Programs;

pub use case::{Case, Path, Plane, Traffic};
pub use document::{Outcome, Parameters};
pub use find::Method;
pub use rows::{Limit, Losses, Row};
pub use search::{Range, Search, Tried};

use self::{
    bench::Bench,
    devices::OwnDevice,
    find::{Around, Found, find},
    rows::Baselines,
    ways::Nodes,
};
use super::{
    experiment::{Compared, Experiment, Figure},
    options::{Run, within},
};
use crate::{
    Context, Error, Result, in_own_thread, netns, report::Document, topology::Topology, traffic::FLOWS_MAX,
};

/// A quick run begins no further trial after this time, so that it ends within two minutes.
const QUICK: Duration = Duration::from_secs(110);
/// Seconds of the trials by which a quick run searches. One of the full length confirms the rate without loss.
const QUICK_SEARCH_S: f64 = 0.1;
const SIZES: [&str; 7] = ["64", "128", "256", "512", "1024", "1518", "imix"];
/// Of a quick run: all for one case, and the smallest for the others.
const SIZES_QUICK: [&str; 2] = ["64", "1518"];
/// Flows where there are many.
const MANY: usize = 1000;
const MEANING: &str = "highest rate at which one CPU that forwards and sinks keeps up with a generator on another, so that the ring of 256 frames \
                       between them (veth) never overflows; not a rate of a network card";
const MEANING_DEVICES: &str = "highest rate at which all frames that leave by the one device come back by the other; the limit is whatever lies between them, or \
                               this machine's receiver";
const PLACES: &str = "generator: the sending device did not take the frame; rx_ring: the ring before the node was full; xdp: XDP dropped or could not redirect; tx_ring: the ring behind the node was full; \
                      elsewhere: lost, and counted by no device that was looked at";

/// Its options.
#[derive(Args, Clone, Debug)]
pub struct Throughput {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Send for so many seconds a trial [default: 10, quick 0.5]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub trial: Option<f64>,
    /// Send frames of these sizes: 64 to 1518, or imix
    ///
    /// With FCS and without outer headers; several with commas between. By default 64,128,256,512,1024,1518,imix.
    #[arg(long = "size", value_name = "SIZE", value_delimiter = ',', value_parser = size)]
    pub sizes: Vec<String>,
    /// Measure only these forwarders
    #[arg(long = "plane", value_name = "PLANE", value_delimiter = ',')]
    pub planes: Vec<Plane>,
    /// Measure only these paths
    #[arg(long = "path", value_name = "PATH", value_delimiter = ',')]
    pub paths: Vec<Path>,
    /// Send so many flows, several with commas between
    ///
    /// One goes to one address, more to random ones in a /24. By default 1,1000.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = |text: &str| within(text, 1..=FLOWS_MAX))]
    pub flows: Vec<usize>,
    /// Send the frames and flows of this TOML file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sizes", "paths", "flows"])]
    pub profile: Option<PathBuf>,
    /// Send by this device instead of the lab's own
    ///
    /// The way from it to the device of --rx is measured.
    #[arg(long, value_name = "DEV", requires = "rx", conflicts_with = "planes")]
    pub tx: Option<String>,
    /// Receive by this device, with an XDP program
    ///
    /// While it runs, the kernel gets no frame that carries the lab's mark.
    #[arg(long, value_name = "DEV", requires = "tx")]
    pub rx: Option<String>,
    /// Send to this MAC address [default: that of --rx]
    #[arg(long = "to", value_name = "MAC", requires = "tx", value_parser = mac)]
    pub to: Option<Mac>,
    /// Read these devices' counters, too
    ///
    /// Those of a node that runs on this machine.
    #[arg(long = "node", value_name = "DEV", requires = "tx", value_delimiter = ',')]
    pub node: Vec<String>,
}

/// A MAC address of the command line.
pub type Mac = [u8; 6];

fn mac(text: &str) -> std::result::Result<Mac, String> {
    devices::mac(text).ok_or_else(|| "expected a MAC address such as 02:00:00:00:00:01".into())
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=300.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds from 0.01 to 300".into())
}

fn size(text: &str) -> std::result::Result<String, String> {
    let traffic = Traffic::of(text, Path::Ipv4, 1);
    traffic.map(|traffic| traffic.size).ok_or_else(|| "expected a size from 64 to 1518, or imix".into())
}

impl Experiment for Throughput {
    const NAME: &'static str = "throughput";
    const PURPOSE: &'static str =
        "highest rate without loss, by size: IPv4 and SRv6, through the kernel and through XDP";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["plane", "path", "size", "flows"],
        figures: &[
            Figure::higher("ndr_mpps").from_to("ndr_min", "ndr_max"),
            Figure::higher("pdr_mpps").from_to("pdr_min", "pdr_max"),
        ],
    }];
    const CODE: &'static [&'static str] = &["router/src", "lpm/src", "lpm/include", "bpf/src"];
    const QUICK_SECONDS: u64 = 120;
    const FULL_SECONDS: u64 = 70_000;
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        let product = if self.tx.is_none() { Some(Programs::beside_me()?) } else { None };
        run(self, product.as_ref(), context)
    }
}

/// Runs it; without the product plane `xdp` is not measured.
pub fn run(asked: &Throughput, product: Option<&Programs>, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(asked, product, context))
}

impl Throughput {
    /// The traffic asked for, or else all; a quick run has only two sizes of one flow in plain IPv4, and one of everything else.
    fn traffic(&self) -> Result<Vec<Traffic>> {
        if let Some(file) = &self.profile {
            return Ok(vec![Traffic::read(file)?]);
        }
        let or =
            |asked: &[usize], own: &[usize]| if asked.is_empty() { own.to_vec() } else { asked.to_vec() };
        let paths = if self.paths.is_empty() { Path::ALL.to_vec() } else { self.paths.clone() };
        let own = if self.run.quick { &SIZES_QUICK[..] } else { &SIZES[..] };
        let mut all = Vec::new();
        for path in paths {
            for flows in or(&self.flows, &[1, MANY]) {
                let is_whole = !self.run.quick || path == Path::Ipv4 && flows == 1;
                let own =
                    own.iter().take(if is_whole { own.len() } else { 1 }).map(|size| (*size).to_owned());
                let sizes = if self.sizes.is_empty() { own.collect() } else { self.sizes.clone() };
                // A quick run has no time for many flows in tunnels.
                if self.run.quick && self.flows.is_empty() && flows > 1 && path != Path::Ipv4 {
                    continue;
                }
                all.extend(sizes.iter().filter_map(|size| Traffic::of(size, path, flows)));
            }
        }
        if self.run.quick {
            // Its time may be over before the end: first those that every other one is compared with.
            all.sort_by_key(|traffic| (traffic.flows > 1, traffic.size != all_first(&self.sizes)));
        }
        Ok(all)
    }

    fn method(&self, began: Instant) -> Method {
        let quick = self.run.quick;
        let seconds = self.trial.unwrap_or(if quick { 0.5 } else { 10.0 });
        Method {
            seconds,
            search_seconds: quick.then_some(QUICK_SEARCH_S).filter(|search| *search < seconds),
            precision: if quick { 0.05 } else { 0.01 },
            until: quick.then(|| began + QUICK),
            seed: self.run.seed,
        }
    }
}

/// The size that a quick run begins with.
fn all_first(asked: &[String]) -> &str {
    asked.first().map_or(SIZES_QUICK[0], String::as_str)
}

fn run_here(asked: &Throughput, product: Option<&Programs>, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let planes: Vec<Plane> = if asked.tx.is_some() {
        vec![Plane::Device]
    } else {
        let asked_for = |plane: &Plane| asked.planes.is_empty() || asked.planes.contains(plane);
        let is_there = |plane: &Plane| *plane != Plane::Xdp || product.is_some();
        Plane::OWN.into_iter().filter(|plane| asked_for(plane) && is_there(plane)).collect()
    };
    let product = product.filter(|_| planes.contains(&Plane::Xdp));
    let traffic = asked.traffic()?;
    let cases: Vec<Case> = traffic
        .iter()
        .flat_map(|traffic| planes.iter().map(|plane| Case { plane: *plane, traffic: traffic.clone() }))
        .filter(|case| case.plane.takes(case.traffic.path))
        .collect();
    if cases.is_empty() {
        return Err(Error::NoCase(Plane::Xdp.name().into()));
    }
    let devices = asked.tx.as_deref().zip(asked.rx.as_deref());
    let devices =
        devices.map(|(tx, rx)| Ok::<_, Error>((OwnDevice::named(tx)?, OwnDevice::named(rx)?))).transpose()?;
    let cpus = if devices.is_none() { Some(netns::two_cpus()?) } else { None };
    let machine = asked.run.machine();
    for plane in &planes {
        let mut paths: Vec<_> = traffic.iter().map(|traffic| traffic.path).collect();
        paths.dedup();
        for path in paths.into_iter().filter(|path| !plane.takes(*path)) {
            asked.run.account.refuse(plane.name(), path.name(), "it does not do SRv6");
        }
    }
    let (topology, ruled);
    let mut bench = match (&devices, cpus) {
        (Some((tx, rx)), _) => Bench::devices(tx, rx, asked.to, &asked.node, &traffic, context)?,
        (None, cpus) => {
            netns::remove_leftovers(product, &|text| context.progress.note(text));
            topology = Topology::create(context)?;
            let has_rules = planes.contains(&Plane::Flowtable);
            ruled = has_rules.then(|| Topology::create(context)).transpose()?;
            let nodes = Nodes { own: &topology, ruled: ruled.as_ref() };
            let of = (planes.as_slice(), traffic.as_slice());
            Bench::veth(&nodes, product, of, cpus.unwrap_or_default(), &asked.run, context)?
        }
    };
    let cases: Vec<Case> = cases.into_iter().filter(|case| bench.has(case.plane)).collect();
    let method = asked.method(began);
    let runs = measure(asked, &mut bench, &cases, &method, (began, cpus), context)?;
    drop(bench);
    for (case, own) in cases.iter().zip(&runs) {
        if let Some(why) = own.iter().find_map(|run| run.astray.as_ref()) {
            asked.run.account.refuse(case.plane.name(), &case.name(), why);
        }
    }
    // A case has rates only if all of its frames went its way.
    let runs: Vec<Vec<Found>> = runs
        .into_iter()
        .map(|own| if own.iter().any(|run| run.astray.is_some()) { Vec::new() } else { own })
        .collect();
    let of = |wanted: &Case| cases.iter().position(|case| case == wanted).map(|at| runs[at].as_slice());
    // The redirect looks at no header: it has one rate for each size, whatever the flows.
    let floor = |traffic: &Traffic| {
        let of_size = |case: &&Case| case.plane == Plane::Redirect && case.traffic.size == traffic.size;
        let floors = || cases.iter().filter(of_size);
        let same = floors().find(|case| case.traffic.flows == traffic.flows);
        same.or_else(|| floors().next()).and_then(of)
    };
    let meaning = if devices.is_some() { MEANING_DEVICES } else { MEANING };
    let row = |(case, own): (&Case, &Vec<Found>)| {
        let by = |plane| of(&Case { plane, ..case.clone() });
        let baselines =
            Baselines { kernel: by(Plane::Kernel), fib: by(Plane::Fib), redirect: floor(&case.traffic) };
        Row::of(case, meaning, own, &baselines)
    };
    let left_out = if asked.run.quick {
        let without = cases.iter().zip(&runs).filter(|(_, own)| own.is_empty());
        without.map(|(case, _)| case.name()).collect()
    } else {
        Vec::new()
    };
    let parameters = Parameters {
        quick: asked.run.quick,
        trial_s: method.seconds,
        search_s: method.search_seconds.unwrap_or(method.seconds),
        left_out,
        runs: runs.iter().map(Vec::len).max().unwrap_or(0),
        precision: method.precision,
        pdr_loss: find::PARTIAL,
        cpus,
        devices: devices.map(|(tx, rx)| [tx.name, rx.name]),
        places: PLACES,
    };
    let rows: Vec<Row> = cases.iter().zip(&runs).filter(|(_, own)| !own.is_empty()).map(row).collect();
    if rows.is_empty() {
        let why = "no search came to its end in time: the machine is too slow or too busy for a quick run";
        return Err(Error::Traffic(why.into()));
    }
    Ok(Document::new(Throughput::NAME, machine, parameters, rows))
}

/// All runs of all cases, in a random order in each round. A quick run takes one kind of traffic after another, and ends when its time is over. A
/// rival's case that fails has no runs, and its reason in the account.
fn measure(
    asked: &Throughput,
    bench: &mut Bench,
    cases: &[Case],
    method: &Method,
    (began, cpus): (Instant, Option<[usize; 2]>),
    context: &Context,
) -> Result<Vec<Vec<Found>>> {
    let run = &asked.run;
    let around = Around { run, cpus: cpus.as_ref().map_or(&[], |cpus| &cpus[..]), context };
    let is_lost = vec![Cell::new(false); cases.len()];
    let lose = |at: usize, error: Error| {
        if !cases[at].plane.is_rival() || context.interrupted() {
            return Err(error);
        }
        let name = cases[at].name();
        run.account.refuse(cases[at].plane.name(), &name, &error.to_string());
        context.progress.note(&format!("no row of {name}: {error}"));
        is_lost[at].set(true);
        Ok(())
    };
    context.progress.phase("warming up", cases.len() as u64);
    for (at, case) in cases.iter().enumerate() {
        if let Err(error) = bench.warm_up(case, method.seed) {
            lose(at, error)?;
        }
        context.progress.advance(1);
    }
    let wanted = run.rounds(1, 5);
    let mut runs: Vec<Vec<Found>> = vec![Vec::new(); cases.len()];
    context.progress.phase("searches", (wanted * cases.len()) as u64);
    'rounds: for round in context.rounds(Throughput::NAME, wanted, || run.quick && began.elapsed() > QUICK) {
        let all: Vec<usize> = (0..cases.len()).collect();
        let together = |a: &usize, b: &usize| !run.quick || cases[*a].traffic == cases[*b].traffic;
        for part in all.chunk_by(together) {
            for at in run.order(round, part.len()).into_iter().map(|turn| part[turn]) {
                if !is_lost[at].get() {
                    // A search begins where the last one of the case ended.
                    let start = runs[at].iter().rev().find_map(|run| run.ndr);
                    match find(bench, &cases[at], method, start, around) {
                        Ok(found) => runs[at].extend(found),
                        // The finished searches stay.
                        Err(_) if context.interrupted() && runs.iter().any(|runs| !runs.is_empty()) => {
                            run.cut(context, &format!("in round {} of {wanted}", round + 1));
                            break 'rounds;
                        }
                        Err(error) => lose(at, error)?,
                    }
                }
                context.progress.advance(1);
            }
        }
    }
    for (runs, is_lost) in runs.iter_mut().zip(is_lost) {
        if is_lost.get() {
            runs.clear();
        }
    }
    Ok(runs)
}
