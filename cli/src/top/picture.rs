//! The figures of `top`: everything counted at one moment, and the rates between two moments.

use crate::client::{Names, find_name, one_within, open};
use crate::sid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};
use trieline_router::api::control::Request;
use trieline_router::api::instance::Instance;
use trieline_router::api::status::Status;
use trieline_router::drops::{AfterRedirect, EgressCount, read_pinned};
use trieline_router::{Counters, Kind, PortCount, VerdictCount};
use trieline_terminal::Output;

/// How long trielined may take to answer; its pinned counters do not need it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Rates over one interval, a second.
#[derive(Debug, Serialize)]
pub(super) struct Picture {
    pub(super) seconds: f64,
    pub(super) devices: Vec<Device>,
    pub(super) egress: Vec<Egress>,
    /// Why packets after redirect are not all counted; `None`: they are.
    pub(super) egress_unknown: Option<String>,
    pub(super) verdicts: Vec<Rate>,
    pub(super) filters: Vec<Rate>,
    pub(super) sids: Vec<Rate>,
}

#[derive(Debug, Serialize)]
pub(super) struct Device {
    pub(super) dev: String,
    pub(super) vlan: Option<u16>,
    pub(super) forward: f64,
    pub(super) pass: f64,
    pub(super) drop: f64,
    pub(super) verdicts: Vec<Rate>,
    pub(super) cpus: Vec<Cpu>,
}

impl Device {
    /// The device's name with its VLAN.
    pub(super) fn title(&self) -> String {
        let vlan = self.vlan.map(|vlan| format!(" vlan {vlan}")).unwrap_or_default();
        format!("{}{vlan}", self.dev)
    }
}

/// One CPU's part of a device's packets.
#[derive(Debug, Serialize)]
pub(super) struct Cpu {
    pub(super) cpu: usize,
    pub(super) rate: f64,
    pub(super) share: f64,
}

/// The packets that XDP forwarded to one device.
#[derive(Debug, Serialize)]
pub(super) struct Egress {
    pub(super) dev: String,
    /// Their fates: `sent`, and `drop` by reason.
    pub(super) rates: Vec<Rate>,
}

impl Egress {
    /// Their fates, each named by the device and the reason.
    pub(super) fn titled(&self) -> impl Iterator<Item = (String, &Rate)> {
        let title = |rate: &Rate| [&rate.kind, &self.dev, &rate.name].map(String::as_str).join(" ");
        self.rates.iter().map(move |rate| (title(rate).trim_end().to_owned(), rate))
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Rate {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) packets: u64,
    pub(super) rate: f64,
}

/// Packets by name, each with its kind.
type Named = BTreeMap<String, (String, u64)>;

/// Everything counted at one moment.
pub(super) struct Count {
    pub(super) at: Instant,
    counters: Counters,
    filters: Named,
    sids: Named,
    after_redirect: AfterRedirect,
    pub(super) daemon: String,
}

impl Count {
    /// Counts. The pins are opened each time: a restart of trielined may have replaced them.
    pub(super) fn take(instance: &Instance) -> anyhow::Result<Self> {
        let pinned = open(instance)?;
        let at = Instant::now();
        let counters = pinned.counters()?;
        let mut filters = BTreeMap::new();
        for filter in pinned.filters(0) {
            let packets = pinned.filter_count(&filter)?.packets;
            filters.insert(filter.rule.name, (filter.rule.action.to_string(), packets));
        }
        let answer = one_within::<Status>(instance, PATIENCE, &Request::Status);
        let mut sids = BTreeMap::new();
        // Without a daemon, the list of SIDs is not known.
        if matches!(answer, Ok(Ok(_))) {
            for sid in sid::all(instance).unwrap_or_default() {
                if let Some(count) = sid.count {
                    let table = sid.route.table.map(|table| format!(" table {table}")).unwrap_or_default();
                    sids.insert(
                        sid.route.dst + &table,
                        (sid.route.behaviour.unwrap_or_default(), count.packets),
                    );
                }
            }
        }
        let stale = pinned.heartbeat().is_stale();
        let daemon = match answer {
            Ok(Ok(status)) => {
                format!("trielined {} runs, process {}", status.version, status.pid.unwrap_or_default())
            }
            Ok(Err(_)) if stale => "no trielined; XDP passes all packets to the kernel (stale)".into(),
            Ok(Err(_)) => "no trielined; its tables are in force".into(),
            Err(error) => format!("no answer from trielined: {error}"),
        };
        let after_redirect = read_pinned(&instance.pins()).named(find_name);
        Ok(Self { at, counters, filters, sids, after_redirect, daemon })
    }
}

fn same(one: &PortCount, two: &PortCount) -> bool {
    (one.ifindex, one.vlan, one.logical) == (two.ifindex, two.vlan, two.logical)
}

/// The rates of verdicts that have any packet, the highest first.
fn rates(now: &[VerdictCount], before: Option<&[VerdictCount]>, seconds: f64) -> Vec<Rate> {
    let earlier = |count: &VerdictCount| {
        before
            .and_then(|before| before.iter().find(|other| other.name == count.name))
            .map_or(0, |c| c.packets)
    };
    let mut rates: Vec<Rate> = now
        .iter()
        .filter(|count| count.packets > 0)
        .map(|count| Rate {
            name: count.name.to_string(),
            kind: count.kind.to_string(),
            packets: count.packets,
            rate: count.packets.saturating_sub(earlier(count)) as f64 / seconds,
        })
        .collect();
    rates.sort_by(|one, two| two.rate.total_cmp(&one.rate));
    rates
}

/// The rates of the CPUs that counted a packet since `before`, with their shares of the device's packets.
fn cpus(now: &[u64], before: Option<&[u64]>, seconds: f64) -> Vec<Cpu> {
    let earlier = |cpu: usize| before.and_then(|before| before.get(cpu)).copied().unwrap_or(0);
    let counts: Vec<u64> =
        now.iter().enumerate().map(|(cpu, packets)| packets.saturating_sub(earlier(cpu))).collect();
    let sum: u64 = counts.iter().sum();
    let one = |(cpu, packets): (usize, &u64)| Cpu {
        cpu,
        rate: *packets as f64 / seconds,
        share: *packets as f64 / sum as f64,
    };
    counts.iter().enumerate().filter(|(_, packets)| **packets > 0).map(one).collect()
}

/// The rates of what became of packets that were forwarded to a device; reasons without packets are left out.
fn egress(now: &EgressCount, before: &AfterRedirect, seconds: f64) -> Egress {
    let before = before.devices.iter().find(|device| device.ifindex == now.ifindex);
    let rate = |kind: &str, reason: &str, packets: u64, earlier: Option<u64>| Rate {
        name: reason.into(),
        kind: kind.into(),
        packets,
        rate: packets.saturating_sub(earlier.unwrap_or(0)) as f64 / seconds,
    };
    let sent = now.sent.map(|sent| rate("sent", "", sent, before.and_then(|device| device.sent)));
    let drops = now.drops.iter().filter(|drop| drop.packets > 0).map(|drop| {
        let earlier = before.and_then(|device| device.drops.iter().find(|other| other.reason == drop.reason));
        rate("drop", &drop.reason, drop.packets, earlier.map(|drop| drop.packets))
    });
    Egress { dev: now.name().to_owned(), rates: sent.into_iter().chain(drops).collect() }
}

/// The rates between two moments.
pub(super) fn picture(before: &Count, now: &Count, names: &mut Names) -> Picture {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let mut devices = Vec::new();
    for port in &now.counters.ports {
        let earlier = before.counters.ports.iter().find(|other| same(other, port));
        let of = |kind: Kind| {
            let sum = |counts: &[VerdictCount]| {
                counts.iter().filter(|count| count.kind == kind).map(|count| count.packets).sum()
            };
            rate(earlier.map_or(0, |port| sum(&port.counts)), sum(&port.counts))
        };
        devices.push(Device {
            dev: names.get(port.logical),
            vlan: port.vlan,
            forward: of(Kind::Forward),
            pass: of(Kind::Pass),
            drop: of(Kind::Drop),
            verdicts: rates(&port.counts, earlier.map(|port| port.counts.as_slice()), seconds),
            cpus: cpus(&port.cpus, earlier.map(|port| port.cpus.as_slice()), seconds),
        });
    }
    let verdicts = rates(&now.counters.total, Some(&before.counters.total), seconds);
    let named = |now: &Named, before: &Named| {
        let one = |(name, (kind, packets)): (&String, &(String, u64))| Rate {
            name: name.clone(),
            kind: kind.clone(),
            packets: *packets,
            rate: rate(before.get(name).map_or(0, |(_, packets)| *packets), *packets),
        };
        now.iter().map(one).collect()
    };
    let (filters, sids) = (named(&now.filters, &before.filters), named(&now.sids, &before.sids));
    let after = now.after_redirect.devices.iter();
    let egress = after.map(|device| egress(device, &before.after_redirect, seconds)).collect();
    let egress_unknown = now.after_redirect.unknown.clone();
    Picture { seconds, devices, egress, egress_unknown, verdicts, filters, sids }
}

/// The name of packets after redirect that nothing counts.
pub(super) const UNCOUNTED: &str = "other drops";

/// Why they are not counted.
pub(super) fn cannot_know(why: &str) -> String {
    format!("cannot know: {why}")
}

/// A picture as plain text.
pub(super) fn text(picture: &Picture, output: &Output) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let head = |title: &str, columns: &str| output.bold(&format!("{title:<24}{columns}"));
    writeln!(text, "{}", head("packets a second", "     forward        pass        drop"))?;
    for device in &picture.devices {
        let name = device.title();
        writeln!(text, "{name:<24}{:>12.0}{:>12.0}{:>12.0}", device.forward, device.pass, device.drop)?;
    }
    for (title, rates) in
        [("verdict", &picture.verdicts), ("filter", &picture.filters), ("SID", &picture.sids)]
    {
        if rates.is_empty() {
            continue;
        }
        writeln!(text, "\n{}", head(title, "        rate             packets"))?;
        for rate in rates {
            let name = format!("{} {}", rate.kind, rate.name);
            writeln!(text, "{name:<24}{:>12.0}{:>20}", rate.rate, rate.packets)?;
        }
    }
    let after: Vec<_> = picture.egress.iter().flat_map(Egress::titled).collect();
    if !after.is_empty() || picture.egress_unknown.is_some() {
        writeln!(text, "\n{}", head("after redirect", "        rate             packets"))?;
        for (title, rate) in after {
            writeln!(text, "{title:<24}{:>12.0}{:>20}", rate.rate, rate.packets)?;
        }
    }
    if let Some(why) = &picture.egress_unknown {
        writeln!(text, "{UNCOUNTED:<24}{:>12}{:>20}\n{}", "unknown", "unknown", cannot_know(why))?;
    }
    Ok(text)
}
