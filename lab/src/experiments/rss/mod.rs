//! Experiment `rss`: how receive side scaling spreads flows over queues, by key, header fields and table, in a model and with real
//! packets. Also how it fails when only a tunnel's outer addresses are hashed.

mod advice;
pub mod balance;
mod bed;
mod document;
mod fields;
pub mod flows;
pub mod toeplitz;

use clap::Args;

pub use document::{More, Order, Outcome, Parameters, Row};
pub use fields::Fields;

use self::{
    balance::{ENTRIES, Entries, Filling},
    bed::{Bed, Headend, Stream},
    flows::{Flows, Traffic},
    toeplitz::Key,
};
use super::{
    experiment::{Compared, Experiment, Figure},
    options::{Run, Table, internet, within},
};
use crate::{
    Context, Result,
    flow_sender::{FLOWS_MAX, ORDER},
    in_own_thread,
    measure::{Samples, rounded},
    netns,
    report::Document,
    tables::{Random, Tables},
};

/// Flows of a draw.
const FLOWS: usize = 10_000;
/// Queues of the model.
const QUEUES: [usize; 3] = [2, 4, 8];
/// Tunnels, where there are many.
const TUNNELS: usize = 64;

/// Its options.
#[derive(Args, Clone, Debug)]
pub struct Rss {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which table.
    #[command(flatten)]
    pub table: Table,
    /// Draw so many flows
    #[arg(long, value_name = "N", default_value_t = FLOWS, value_parser = |text: &str| within(text, 1..=FLOWS_MAX))]
    pub flows: usize,
    /// Send so many packets a case [default: 400000, quick 60000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub packets: Option<u64>,
}

/// A choice that the model makes rows of: one for each number of queues.
#[derive(Clone, Copy)]
struct Case {
    traffic: Traffic,
    tunnels: usize,
    fields: Fields,
    key: Key,
    filling: Filling,
}

/// Plain flows by addresses, with and without ports, under both keys; elephants with a weighted table; tunnels.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let filling = Filling::Equal;
    for traffic in [Traffic::Uniform, Traffic::Table, Traffic::Zipf] {
        for fields in [Fields::Ip, Fields::IpPorts] {
            for key in [Key::MICROSOFT, Key::SYMMETRIC] {
                cases.push(Case { traffic, tunnels: 0, fields, key, filling });
            }
        }
    }
    let (fields, key) = (Fields::IpPorts, Key::MICROSOFT);
    cases.push(Case { traffic: Traffic::Zipf, tunnels: 0, fields, key, filling: Filling::Weighted });
    for tunnels in [1, TUNNELS] {
        for fields in [Fields::Outer, Fields::OuterLabel, Fields::Inner] {
            cases.push(Case { traffic: Traffic::Table, tunnels, fields, key, filling });
        }
    }
    cases
}

impl Experiment for Rss {
    const NAME: &'static str = "rss";
    const PURPOSE: &'static str =
        "receive side scaling: balance over queues by key, fields and table, and order within flows";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["traffic", "tunnels", "fields", "key", "table", "queues"],
        figures: &[Figure::lower("flow_share"), Figure::lower("packet_share")],
    }];
    const CODE: &'static [&'static str] = &[];
    const QUICK_SECONDS: u64 = 10;
    const FULL_SECONDS: u64 = 60;
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| run_here(self, context))
    }
}

fn run_here(asked: &Rss, context: &Context) -> Result<Outcome> {
    let (run, seed) = (&asked.run, asked.run.seed);
    let machine = run.machine();
    netns::remove_leftovers(None, &|text| context.progress.note(text));
    let cpus = netns::two_cpus()?;
    let tables = match asked.table.read(context)? {
        Some((tables, _)) => tables,
        None if run.quick && asked.table.data.directory.is_none() => Tables::internet(80_000, 0, seed),
        None => internet(asked.table.data.directory()?.as_deref(), seed, context)?,
    };
    let rounds = run.rounds(5, 25);
    let (rows, weights) = model(asked, &tables, rounds, context)?;
    let order = packets(asked, &tables, context)?;
    let parameters = Parameters {
        quick: run.quick,
        source: tables.source,
        routes4: tables.v4.len(),
        flows: asked.flows,
        rounds,
        entries: ENTRIES,
        cpus,
        hash: "Toeplitz (Microsoft, RSS Hashing Functions): source, destination, ports; of the outer header both addresses, and the \
               flow label as four bytes behind them; the hash's low bits name the entry",
        keys: "flow_share, packet_share: the largest queue over the mean; in a model, rounds are draws of flows. order: real packets \
               over two queues, through the kernel's SRv6 headend where there is a label",
    };
    let most = QUEUES.into_iter().max().unwrap_or_default();
    let more = More { order, advice: advice::lines(most, &weights) };
    Ok(Document::new(Rss::NAME, machine, parameters, rows).with(more))
}

/// The rows, and the weights of the first draw for the most queues.
fn model(asked: &Rss, tables: &Tables, rounds: usize, context: &Context) -> Result<(Vec<Row>, Vec<usize>)> {
    let cases = cases();
    context.progress.phase("model", (cases.len() * rounds) as u64);
    let mut rows = Vec::new();
    let mut advised = Vec::new();
    for case in cases {
        let words = case.key.words();
        let mut series = QUEUES.map(|queues| (queues, Samples::default(), Samples::default(), 0, 0.0));
        for round in 0..rounds {
            context.check()?;
            // Every case meets the same draws.
            let mut random = Random::new(asked.run.seed ^ (round as u64) << 32);
            let flows = Flows::draw(case.traffic, asked.flows, case.tunnels, tables, &mut random)?;
            let entries = Entries::count(&flows, case.fields, &words);
            for (queues, by_flows, by_packets, idle, both_ways) in &mut series {
                let table = match case.filling {
                    Filling::Equal => balance::equal(*queues),
                    Filling::Weighted => {
                        let weights = balance::weights(&entries.packets, *queues);
                        let table = balance::by_weights(&weights);
                        if round == 0 {
                            advised = weights;
                        }
                        table
                    }
                };
                let of_flows = balance::by_queue(&entries.flows, &table, *queues);
                by_flows.push(balance::largest(&of_flows));
                by_packets.push(balance::largest(&balance::by_queue(&entries.packets, &table, *queues)));
                if round == 0 {
                    *idle = of_flows.iter().filter(|flows| **flows == 0.0).count();
                    *both_ways = balance::same_queue(&flows, case.fields, &words, &table);
                }
            }
            context.progress.advance(1);
        }
        for (queues, by_flows, by_packets, idle, both_ways) in series {
            let [flow_share, flow_share_min, flow_share_max] = by_flows.spread(3);
            let [packet_share, packet_share_min, packet_share_max] = by_packets.spread(3);
            rows.push(Row {
                traffic: case.traffic,
                tunnels: case.tunnels,
                fields: case.fields,
                key: case.key.name,
                table: case.filling,
                queues,
                flows: asked.flows,
                flow_share,
                flow_share_min,
                flow_share_max,
                packet_share,
                packet_share_min,
                packet_share_max,
                idle,
                both_ways: rounded(both_ways, 3),
            });
        }
    }
    Ok((rows, advised))
}

/// Real packets, flow by flow as Zipf says, so that packets of a flow are close to each other.
fn packets(asked: &Rss, tables: &Tables, context: &Context) -> Result<Vec<Order>> {
    let bed = Bed::create(context)?;
    let mut random = Random::new(asked.run.seed);
    let flows = Flows::draw(Traffic::Zipf, asked.flows, 1, tables, &mut random)?;
    let order = flows.order(ORDER, &mut random);
    let packets = asked.packets.unwrap_or(if asked.run.quick { 60_000 } else { 400_000 });
    let stream = Stream { flows: &flows, order, words: Key::MICROSOFT.words(), packets };
    let ways = [
        (Fields::Packet, Headend::Forward),
        (Fields::Ip, Headend::Forward),
        (Fields::IpPorts, Headend::Forward),
        (Fields::Outer, Headend::ZeroLabel),
        (Fields::OuterLabel, Headend::ZeroLabel),
        (Fields::OuterLabel, Headend::HashLabel),
        (Fields::Inner, Headend::ZeroLabel),
    ];
    context.progress.phase("packets", packets * ways.len() as u64);
    // The sender stays with one queue; not before the bed exists, whose commands would stay there as well.
    netns::pin_to(netns::two_cpus()?[1])?;
    ways.into_iter().map(|(fields, headend)| bed.run(fields, headend, &stream, context)).collect()
}

#[cfg(test)]
mod tests;
