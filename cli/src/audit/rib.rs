//! Routes of a routing daemon beside those of the kernel's table main.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use trieline_lpm::{IpPrefix, Prefix};
use trieline_router::kernel::socket::Netlink;
use trieline_router::kernel::{TABLE_MAIN, family, route};
use trieline_router::rib::table::Ip;
use trieline_terminal::Output;

/// Looks before a difference counts: routing daemons install in batches.
const LOOKS: u32 = 3;
/// The time between two looks.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// Gateways of each prefix; none for routes that lead to a device or nowhere.
pub type Routes = BTreeMap<IpPrefix, BTreeSet<IpAddr>>;

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
    /// Gateways that the routing daemon chose; none: it has no such route.
    daemon: Option<Vec<IpAddr>>,
    /// Gateways in the kernel; none: it has no such route.
    kernel: Option<Vec<IpAddr>>,
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
        let said = |gateways: &Option<Vec<IpAddr>>| match gateways {
            None => "no route".into(),
            Some(gateways) if gateways.is_empty() => "no gateway".into(),
            Some(gateways) => {
                format!("via {}", gateways.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
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

/// The kernel's routes of table main: all of them, and those of some protocols.
fn kernel(protocols: &[u8]) -> anyhow::Result<(Routes, Routes)> {
    let (mut all, mut theirs) = (Routes::new(), Routes::new());
    let mut socket = Netlink::route()?;
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
            let nhg = found.nhg();
            let gateways = nhg.hops.iter().filter_map(|hop| hop.gateway);
            if protocols.contains(&nhg.protocol) {
                theirs.entry(prefix).or_default().extend(gateways.clone());
            }
            all.entry(prefix).or_default().extend(gateways);
        })?;
    }
    Ok((all, theirs))
}

/// Differences at this moment, and how many routes the daemon wants in the kernel.
fn look(wanted: &Wanted) -> anyhow::Result<Vec<RibDifference>> {
    let (all, theirs) = kernel(&wanted.protocols)?;
    let listed = |gateways: &BTreeSet<IpAddr>| Some(gateways.iter().copied().collect::<Vec<_>>());
    let mut differences = Vec::new();
    for (prefix, gateways) in &wanted.routes {
        // A route of another protocol at the same prefix may have won in the kernel.
        let found = theirs.get(prefix).or_else(|| all.get(prefix));
        let is_same = found.is_some_and(|found| gateways.is_empty() || found.is_superset(gateways));
        if !is_same {
            let (daemon, kernel) = (listed(gateways), found.and_then(listed));
            differences.push(RibDifference { dst: prefix.to_string(), daemon, kernel });
        }
    }
    for (prefix, gateways) in theirs.iter().filter(|(prefix, _)| !wanted.routes.contains_key(prefix)) {
        let kernel = listed(gateways);
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
    use anyhow::Context;
    let answer = std::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}; is it installed?"))?;
    if !answer.status.success() {
        let said = String::from_utf8_lossy(&answer.stderr);
        let said = said.lines().chain(std::str::from_utf8(&answer.stdout).unwrap_or_default().lines()).next();
        anyhow::bail!("{program} {}: {}", arguments.join(" "), said.unwrap_or("failed without a message"));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}
