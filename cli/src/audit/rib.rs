//! Routes of a routing daemon, compared with those of the kernel's table main.

use crate::client::Names;
use crate::command::run_within;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use trieline_lpm::{IpPrefix, Prefix};
use trieline_router::kernel::nexthop::{self, Objects};
use trieline_router::kernel::route::{Nexthop, kind};
use trieline_router::kernel::socket::{Error, Netlink};
use trieline_router::kernel::{TABLE_MAIN, family, route};
use trieline_router::rib::table::Ip;
use trieline_terminal::Output;

/// Looks before a difference counts: routing daemons install in batches.
const LOOKS: u32 = 3;
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// A routing daemon that does not answer for so long is left out. A million routes take some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ways of each prefix: next hops as [`way`] writes them, or a type that leads nowhere, such as `blackhole`.
pub type Routes = BTreeMap<IpPrefix, BTreeSet<String>>;

/// A next hop as `ip route` writes it.
pub fn way(gateway: Option<IpAddr>, device: &str) -> String {
    gateway.map_or_else(|| format!("dev {device}"), |gateway| format!("via {gateway} dev {device}"))
}

/// The routes of a daemon that it wants in the kernel's table main, and the numbers of its protocols there (`rtm_protocol`).
#[derive(Debug, Default)]
pub struct Wanted {
    /// The routes.
    pub routes: Routes,
    /// Routes with these protocols are the daemon's.
    pub protocols: Vec<u8>,
}

/// A route that one side has, or has otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RibDifference {
    dst: String,
    /// Ways that the routing daemon chose; none: it has no such route.
    daemon: Option<Vec<String>>,
    /// Ways in the kernel; none: it has no such route.
    kernel: Option<Vec<String>>,
}

/// The comparison with one routing daemon.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// `FRR` or `BIRD`.
    daemon: &'static str,
    /// Routes that it wants in the kernel.
    routes: usize,
    /// Differences at each of a few looks.
    differences: Vec<RibDifference>,
}

impl Compared {
    /// Whether kernel and daemon have the same routes.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// Lines for people.
    pub fn text(&self, output: &Output) -> String {
        let mut text = String::new();
        let said = |ways: &Option<Vec<String>>| match ways {
            None => "no route".into(),
            Some(ways) if ways.is_empty() => "no next hop".into(),
            Some(ways) => ways.join(", "),
        };
        for difference in &self.differences {
            text += &format!(
                "{} {}: {}: {}; kernel: {}\n",
                output.bad("differs"),
                difference.dst,
                self.daemon,
                said(&difference.daemon),
                said(&difference.kernel)
            );
        }
        text + &format!(
            "compared {} of {} with the kernel's\n",
            crate::client::count(self.routes as u64, "route", "routes"),
            self.daemon
        )
    }
}

/// The kernel's next hop objects: routes may name them without their hops.
fn objects(socket: &mut Netlink) -> Objects {
    let mut objects = Objects::default();
    // A kernel without them refuses, and no route names one.
    let _: Result<bool, Error> = socket.dump(nexthop::dump(), |message| {
        if let Some((id, object)) = nexthop::decode(message.payload) {
            objects.set(id, Some(object));
        }
    });
    objects
}

/// The kernel's routes of table main: all of them, and those of some protocols.
fn kernel(protocols: &[u8]) -> anyhow::Result<(Routes, Routes)> {
    let (mut all, mut theirs) = (Routes::new(), Routes::new());
    let (mut socket, mut names) = (Netlink::route()?, Names::default());
    let objects = objects(&mut socket);
    for number in [family::INET, family::INET6] {
        socket.dump(route::dump(number), |message| {
            let Some(found) = route::decode(message.payload) else { return };
            let prefix = if found.family == family::INET {
                u32::from_bytes(found.destination)
                    .map(|addr| IpPrefix::V4(Prefix::truncated(addr, found.prefix_len.into())))
            } else {
                u128::from_bytes(found.destination)
                    .map(|addr| IpPrefix::V6(Prefix::truncated(addr, found.prefix_len.into())))
            };
            let Some(prefix) = prefix.filter(|_| found.table == TABLE_MAIN) else { return };
            let mut nhg = found.nhg();
            if let (true, Some(id)) = (nhg.hops.is_empty(), nhg.nexthop) {
                nhg.hops = objects.hops(id).unwrap_or_default();
            }
            let ways: BTreeSet<String> = if nhg.kind == kind::UNICAST {
                nhg.hops
                    .iter()
                    .map(|Nexthop { gateway, ifindex, .. }| way(*gateway, &names.get(*ifindex)))
                    .collect()
            } else {
                [kind::name(nhg.kind).to_owned()].into()
            };
            if protocols.contains(&nhg.protocol) {
                theirs.entry(prefix).or_default().extend(ways.clone());
            }
            all.entry(prefix).or_default().extend(ways);
        })?;
    }
    Ok((all, theirs))
}

/// Differences at this moment, and how many routes the daemon wants in the kernel.
fn look(wanted: &Wanted) -> anyhow::Result<Vec<RibDifference>> {
    let (all, theirs) = kernel(&wanted.protocols)?;
    let listed = |ways: &BTreeSet<String>| Some(ways.iter().cloned().collect::<Vec<_>>());
    let mut differences = Vec::new();
    for (prefix, ways) in &wanted.routes {
        // A route of another protocol at the same prefix may have won in the kernel.
        let found = theirs.get(prefix).or_else(|| all.get(prefix));
        if found != Some(ways) {
            let (daemon, kernel) = (listed(ways), found.and_then(listed));
            differences.push(RibDifference { dst: prefix.to_string(), daemon, kernel });
        }
    }
    for (prefix, ways) in theirs.iter().filter(|(prefix, _)| !wanted.routes.contains_key(prefix)) {
        let kernel = listed(ways);
        differences.push(RibDifference { dst: prefix.to_string(), daemon: None, kernel });
    }
    Ok(differences)
}

/// Compares a daemon's routes with the kernel's; only what differs at each of a few looks counts.
pub fn compare(
    daemon: &'static str,
    mut routes: impl FnMut() -> anyhow::Result<Wanted>,
) -> anyhow::Result<Compared> {
    let mut differences: Option<Vec<RibDifference>> = None;
    let mut count = 0;
    for round in 0..LOOKS {
        let wanted = routes()?;
        count = wanted.routes.len();
        let mut now = look(&wanted)?;
        if let Some(before) = &differences {
            now.retain(|difference| before.contains(difference));
        }
        let is_done = now.is_empty() || round + 1 == LOOKS;
        differences = Some(now);
        if is_done {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(Compared { daemon, routes: count, differences: differences.unwrap_or_default() })
}

/// Runs a program and returns its standard output.
pub fn ask(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let ended = run_within(program, arguments, PATIENCE).map_err(anyhow::Error::msg)?;
    if !ended.status.success() {
        anyhow::bail!("{program} {}: {}", arguments.join(" "), ended.cause());
    }
    Ok(ended.out)
}
