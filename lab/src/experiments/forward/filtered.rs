//! The cost of filters. The same traffic goes through nodes with a default route that drop packets to the hosts of a list, or have no list.

use std::{
    fmt::Write as _,
    fs,
    net::Ipv4Addr,
    path::{Path as File, PathBuf},
};

use trieline_lpm::Prefix;
use trieline_testbed::daemon::Daemon;

use super::{
    bench::Bench,
    case::{Plane, Sample, Turn, same},
    path::Path,
    rows::{Row, lossy},
    setup::{Hosts, Setup},
};
use crate::{
    Context, Error, Result,
    error::During,
    generator::{ADDRESSES, Destinations, Generator},
    measure::Samples,
    sinks::{Sink, Sinks},
    tables::{
        Random,
        destinations::{forwardable4, random_hosts},
        kinds,
    },
    topology::{Topology, gateway4},
};

/// Entries of the longer list.
const MILLION: usize = 1_000_000;
/// Entries of the shorter one where the real one is missing.
const THREATS: usize = 120_430;
/// The traffic: that of the whole table.
const TRAFFIC: Path = Path::Ipv4Full;

/// The lists that the figures are about: hosts seen attacking, from `data` or as many random ones, and a million random hosts.
pub fn hosts(data: Option<&File>, seed: u64) -> Result<Vec<Hosts>> {
    let mut random = Random::new(seed ^ 0x7468_7265_6174_7300);
    let file = data.map(|directory| directory.join(kinds::THREATS)).filter(|file| file.is_file());
    let threats = match file {
        Some(file) => kinds::rules(&file)?.0.into_iter().map(|(prefix, _)| prefix).collect(),
        None => kinds::random_hosts(THREATS, &mut random),
    };
    let million = kinds::random_hosts(MILLION, &mut random);
    Ok(vec![Hosts { path: "filter", hosts: threats }, Hosts { path: "filter-1m", hosts: million }])
}

/// Sends along [`TRAFFIC`] to addresses that no list holds, so that every frame shall arrive.
pub(super) fn generator(setup: &Setup) -> Result<Generator> {
    let mut generator = Generator::new();
    if setup.filters.is_empty() || setup.tables.v4.is_empty() {
        return Ok(generator);
    }
    let mut random = Random::new(setup.options.run.seed ^ 0x6669_6c74_6572_7300);
    let listed =
        |host| setup.filters.iter().any(|list| list.hosts.binary_search(&Prefix::host(host)).is_ok());
    let usable = |host| forwardable4(host) && !listed(host);
    let hosts = random_hosts(&setup.tables.v4, ADDRESSES, &mut random, usable)
        .ok_or(Error::NoDestinations("IPv4"))?;
    let hosts = Destinations::V4(hosts.into_iter().map(Ipv4Addr::from).collect());
    generator.destinations(TRAFFIC.name(), &hosts)?;
    Ok(generator)
}

/// Writes a list, and a configuration that drops packets to its hosts; the configuration's name.
fn configuration(folder: &File, list: &Hosts) -> Result<PathBuf> {
    let mut text = String::new();
    for host in &list.hosts {
        let _ = writeln!(text, "{}", Ipv4Addr::from(host.addr()));
    }
    let hosts = format!("{}.txt", list.path);
    let filter = format!(
        "[[filter]]\nname = \"{}\"\nfile = \"{hosts}\"\nmatch = \"destination\"\naction = \"drop\"\n",
        list.path
    );
    let file = folder.join(format!("{}.toml", list.path));
    for (file, text) in [(folder.join(hosts), text), (file.clone(), filter)] {
        fs::write(&file, text).during(|| format!("cannot write {}", file.display()))?;
    }
    Ok(file)
}

/// An error when packets to hosts of the list get through the node.
fn drops(bench: &Bench, list: &Hosts) -> Result<()> {
    let hosts: Vec<_> = list
        .hosts
        .iter()
        .map(|host| host.addr())
        .filter(|host| forwardable4(*host))
        .map(Ipv4Addr::from)
        .collect();
    if hosts.is_empty() {
        return Ok(());
    }
    let mut generator = Generator::new();
    generator.destinations(list.path, &Destinations::V4(hosts))?;
    let (topology, sinks) = (bench.topology, &bench.sinks);
    let out = topology.towards(&topology.n0);
    let frame = TRAFFIC.kind().frame(out.mac, topology.n0.mac);
    sinks.clear(Sink::Xdp)?;
    generator.run(list.path, &topology.source, out.index, &frame, 64, false)?;
    match sinks.settled(Sink::Xdp, 1)?.frames {
        0 => Ok(()),
        through => {
            let what = format!("{}: {through} of 64 frames to listed hosts were not dropped", list.path);
            Err(Error::Daemon { what, stderr: String::new() })
        }
    }
}

/// A node for each list and one without, none when there is nothing to filter.
pub(super) fn nodes(setup: &Setup, context: &Context) -> Result<Vec<Topology>> {
    if setup.filters.is_empty() || setup.product.is_none() || setup.tables.v4.is_empty() {
        return Ok(Vec::new());
    }
    (0..=setup.filters.len())
        .map(|_| {
            let topology = Topology::create(context)?;
            topology.node.ip_words(&[
                "route",
                "add",
                "default",
                "via",
                &gateway4(2).to_string(),
                "dev",
                "n1",
            ])?;
            Ok(topology)
        })
        .collect()
}

/// A running node.
struct Node<'t> {
    path: &'static str,
    bench: Bench<'t>,
    turns: Vec<Turn>,
    // Before its topology goes.
    _daemon: Daemon,
}

/// The running nodes, the one without a list first.
pub(super) struct Filtered<'t> {
    nodes: Vec<Node<'t>>,
    generator: Samples,
}

impl<'t> Filtered<'t> {
    /// Starts the product on each node, and makes sure that it drops what it shall.
    pub(super) fn start(
        setup: &Setup,
        topologies: &'t [Topology],
        generator: &'t Generator,
        context: &'t Context<'t>,
    ) -> Result<Filtered<'t>> {
        let mut nodes = Vec::new();
        let lists = std::iter::once(None).chain(setup.filters.iter().map(Some));
        let folder = tempfile::tempdir().during(|| "cannot make a folder for lists of hosts".into())?;
        for (topology, list) in topologies.iter().zip(lists) {
            let Some(product) = &setup.product else { break };
            let mut bench =
                Bench { topology, generator, sinks: Sinks::attach(topology)?, fib: None, context };
            let file = list.map(|list| configuration(folder.path(), list)).transpose()?;
            let daemon = bench.start(product, &[TRAFFIC], file.as_deref())?.0;
            if let Some(list) = list {
                drops(&bench, list)?;
            }
            let path = list.map_or("unfiltered", |list| list.path);
            nodes.push(Node { path, bench, turns: Vec::new(), _daemon: daemon });
        }
        Ok(Filtered { nodes, generator: Samples::default() })
    }

    /// Cases of a round: the generator alone, then each node; none without nodes.
    pub(super) fn cases(&self) -> usize {
        if self.nodes.is_empty() { 0 } else { self.nodes.len() + 1 }
    }

    /// One case's turn.
    pub(super) fn case(&mut self, case: usize, frames: u64) -> Result<Sample> {
        let bench = &mut self.nodes[case.saturating_sub(1)].bench;
        if case == 0 {
            return bench.generator_alone(TRAFFIC, frames);
        }
        let ingress = bench.topology.n0.clone();
        bench.turn(TRAFFIC.name(), TRAFFIC.kind(), &ingress, Sink::Xdp, frames)
    }

    /// Adds a round. An error if a node sent another frame than the first.
    pub(super) fn add(&mut self, round: &[Sample]) -> Result<()> {
        let Some((generator, nodes)) = round.split_first() else { return Ok(()) };
        self.generator.push(generator.turn.ns);
        for (node, sample) in self.nodes.iter_mut().zip(nodes) {
            if sample.turn.delivered == 0 {
                let what = format!("{}: by trieline, behind the node", node.path);
                return Err(Error::Packets { what, got: 0, expected: sample.turn.sent });
            }
            same(node.path, Plane::Xdp, &sample.first, &nodes[0].first)?;
            node.turns.push(sample.turn);
        }
        Ok(())
    }

    /// A row a node, with its share of the bare redirect's times in the same rounds.
    pub(super) fn rows(&self, floor: &Samples) -> Vec<Row> {
        let row = |node: &Node| {
            Row::new(node.path, TRAFFIC.kind(), Plane::Xdp, &node.turns, &self.generator, floor)
        };
        let Some(plain) = self.nodes.first() else { return Vec::new() };
        let beside = |node: &Node| {
            let row = row(node);
            if node.path == plain.path { row } else { row.share_of(plain.path, &node.turns, &plain.turns) }
        };
        self.nodes.iter().filter(|node| lossy(&node.turns).is_none()).map(beside).collect()
    }

    /// The nodes without a row, and why.
    pub(super) fn lost(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.nodes.iter().filter_map(|node| Some((node.path, lossy(&node.turns)?)))
    }
}
