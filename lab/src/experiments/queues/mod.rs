//! Experiment `queues`: many flows over one and two RX queues and cores, through the kernel and through XDP, by trieline and by
//! `bpf_fib_lookup`. Also ways to hand packets to
//! another core; and what keeps a second core from doubling the rate.

mod bench;
mod document;
mod rows;
pub(super) mod settings;

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use clap::Args;
use trieline_testbed::daemon::Programs;

pub use document::{More, Outcome, Parameters};
pub use rows::{Case, Handoff, Plane, Row, Skip, Turn, Variant};

use self::bench::{Bench, Load};
use super::{
    experiment::{Compared, Experiment, Figure},
    options::{Only, Run, within},
    rss::{
        Fields, balance,
        flows::{Flow, Flows, Traffic},
        toeplitz::Key,
    },
};
use crate::{
    Context, Error, Result,
    flow_sender::{FLOWS_MAX, FlowSender, ORDER},
    frames::Kind,
    in_own_thread, netns,
    report::Document,
    tables::{Random, Tables},
    topology::{Device, PLAIN_PREFIX, Topology},
};

/// Flows: what they are kept in stays in the second cache.
const FLOWS: usize = 1024;
/// A quick run begins no further round after this time.
const QUICK: Duration = Duration::from_secs(25);

/// Its options.
#[derive(Args, Clone, Debug)]
pub struct Queues {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which cases; those that they are compared with run as well.
    #[command(flatten)]
    pub only: Only,
    /// Send packets of so many flows
    #[arg(long, value_name = "N", default_value_t = FLOWS, value_parser = |text: &str| within(text, 2..=FLOWS_MAX))]
    pub flows: usize,
    /// Send so many frames a turn [default: 2000000, quick 150000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub frames: Option<u64>,
}

impl Experiment for Queues {
    const NAME: &'static str = "queues";
    const PURPOSE: &'static str =
        "many flows over one and two queues and cores, with and without hand-offs between cores";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["plane", "handoff", "variant", "queues", "cores"],
        figures: &[Figure::higher("mpps")],
    }];
    const CODE: &'static [&'static str] = &["router/src", "lpm/src", "lpm/include", "bpf/src"];
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        run(self, Some(&Programs::beside_me()?), context)
    }
}

/// Runs it; without the product only the kernel and plane `fib` are measured.
pub fn run(asked: &Queues, product: Option<&Programs>, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(asked, product, context))
}

fn run_here(asked: &Queues, product: Option<&Programs>, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let (run, seed) = (&asked.run, asked.run.seed);
    let frames = asked.frames.unwrap_or(if run.quick { 150_000 } else { 2_000_000 });
    let mut planes = vec![Plane::Kernel, Plane::Fib];
    planes.extend(product.map(|_| Plane::Xdp));
    let all: Vec<Case> = planes.iter().flat_map(|plane| Case::of(*plane)).collect();
    let taken = |case: &&Case| asked.only.takes(&case.name());
    asked.only.some(all.iter().filter(taken).collect())?;
    let mut cases: Vec<Case> = all.iter().filter(|case| case.is_base() || taken(case)).copied().collect();
    let cpus = netns::two_cpus()?;
    let machine = run.machine();
    netns::remove_leftovers(product, &|text| context.progress.note(text));
    let topology = Topology::create(context)?;
    let mut bench = Bench::new(&topology, product, cpus, run, context)?;
    cases.retain(|case| bench.has(case.plane));
    let mut loads = Vec::new();
    for case in &cases {
        let ingress = bench.ingress(case.plane);
        loads.push(load(case.variant, asked.flows, topology.towards(ingress), ingress, seed)?);
    }
    // A case of a rival that failed: it has no rows. Turns of trielined's that fail end the run.
    let mut is_lost = vec![false; cases.len()];
    let mut turn = |at: usize, frames: u64| {
        let (case, load) = (&cases[at], &loads[at]);
        if is_lost[at] {
            return Ok(None);
        }
        match bench.turn(case, load, frames) {
            Err(error) if case.plane != Plane::Xdp && !context.interrupted() => {
                let note = format!("no row of {}: {error}", case.name());
                run.account.refuse(case.plane.name(), &case.name(), &error.to_string());
                context.progress.note(&note);
                is_lost[at] = true;
                Ok(None)
            }
            taken => taken.map(Some),
        }
    };
    context.progress.phase("warming up", cases.len() as u64);
    for at in 0..cases.len() {
        turn(at, (frames / 16).max(1000))?;
        context.progress.advance(1);
    }
    let rounds = run.rounds(3, 11);
    context.progress.phase("rounds", (rounds * cases.len()) as u64);
    let late = || run.quick && began.elapsed() > QUICK;
    let taken = run.take(context, Queues::NAME, (rounds, cases.len()), late, |at, gate| {
        netns::between(gate, &cpus, || turn(at, frames))
    })?;
    drop(bench);
    // All turns of a case, if none failed.
    let turns = |at: usize| taken.0.iter().map(|round| round[at]).collect::<Option<Vec<Turn>>>();
    let turns: Vec<Option<Vec<Turn>>> = (0..cases.len()).map(turns).collect();
    let of =
        |wanted: &dyn Fn(&Case) -> bool| cases.iter().position(wanted).and_then(|at| turns[at].as_deref());
    let rows = cases.iter().zip(&loads).zip(&turns).filter_map(|((case, load), turns)| {
        let base = of(&|other| other.plane == case.plane && other.is_base());
        let kernel = of(&|other| *other == Case { plane: Plane::Kernel, ..*case });
        let busiest = if case.queues == 1 { 1.0 } else { load.share.max(1.0 - load.share) };
        Some(Row::new(case, busiest, turns.as_deref()?, base, kernel))
    });
    let rows: Vec<Row> = rows.collect();
    if rows.is_empty() {
        let reasons: Vec<String> = run.account.refused().into_iter().map(|one| one.reason).collect();
        return Err(Error::Traffic(format!("no case has a figure: {}", reasons.join("; "))));
    }
    let parameters = Parameters {
        quick: run.quick,
        frames,
        frame_bytes: Kind::Ipv4.frame_bytes(),
        flows: asked.flows,
        rounds: taken.len(),
        cpus,
        queue: "A queue of a veth is a ring of 256 frames with a NAPI of its own. The sending CPU chooses it, since a veth does not hash. \
                So the lab hashes the flows beforehand, and sends those of a queue on that queue's CPU",
        clock: "frames that came out over the time of the queue that took the longest, from its first frame to its last, by the \
                monotonic clock in the senders' programs; both senders begin at one time",
    };
    let more = More { skipped: rows::skipped(&planes) };
    Ok(Document::new(Queues::NAME, machine, parameters, rows).with(more))
}

/// The flows of a variant, each with the sender of its queue: the first sends what the hash gives to queue 0.
fn load(variant: Variant, count: usize, from: &Device, to: &Device, seed: u64) -> Result<Load> {
    let mut random = Random::new(seed);
    let traffic = if variant == Variant::Skewed { Traffic::Zipf } else { Traffic::Uniform };
    // Destinations are of one route, whatever the table: all planes look up the same.
    let mut flows = Flows::draw(traffic, count, 1, &Tables::internet(64, 0, seed), &mut random)?;
    let (route, len) = PLAIN_PREFIX;
    for flow in &mut flows.list {
        let host = random.below(1 << (32 - len)) as u32;
        flow.destination = Ipv4Addr::from_bits(route.to_bits() | host);
    }
    let words = Key::MICROSOFT.words();
    let table = balance::equal(2);
    let queue = |flow: &Flow| table[balance::entry(words.hash(&Fields::IpPorts.input(flow)))];
    let frames: Vec<Vec<u8>> =
        (0..).zip(&flows.list).map(|(number, flow)| flow.frame(number, from.mac, to.mac)).collect();
    let mut shares = [0.0; 2];
    for (flow, share) in flows.list.iter().zip(&flows.shares) {
        shares[queue(flow)] += share;
    }
    let order = flows.order(ORDER, &mut random);
    let of = |wanted: usize| {
        let its: Vec<u32> =
            order.iter().copied().filter(|flow| queue(&flows.list[*flow as usize]) == wanted).collect();
        // Of a handful of flows all may be the other queue's: then one of them stands for this one's.
        FlowSender::new(&frames, if its.is_empty() { &order[..1] } else { &its })
    };
    let senders = [of(0)?, of(1)?];
    let share = match variant {
        Variant::Skewed => shares[0],
        Variant::OneTunnel => 1.0,
        _ => 0.5,
    };
    Ok(Load { senders, share })
}

#[cfg(test)]
mod tests;
