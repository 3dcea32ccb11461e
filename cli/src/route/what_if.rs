//! `trieline route get --packet FILE --against FILE`: the packets of a capture whose fate another configuration, or other routes, would
//! change. `--summary`: what becomes of them now.

use super::other_tables::Other;
use super::packet::{Entry, framed};
use super::packets::Packets;
use crate::capture::device;
use crate::client::{Names, count, open};
use crate::dissect;
use anyhow::{Context, bail};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use trieline_router::api::instance::Instance;
use trieline_router::daemon::rehearsal::WhatIf;
use trieline_router::kernel::family;
use trieline_router::kernel::link::mac_text;
use trieline_router::{Kind, Outcome, TestRun};
use trieline_terminal::{Bars, List, Output, Progress};

/// The shown progress moves after so many packets.
const STEP: u64 = 1000;

/// The question.
pub(super) struct Question<'a> {
    /// Hexadecimal digits, or the file of packets.
    pub(super) packet: &'a str,
    pub(super) iif: Option<&'a str>,
    pub(super) other: Option<Other<'a>>,
}

/// The fate of a packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fate {
    action: String,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_verdict: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oif: Option<String>,
    /// The neighbour that it is sent to: its address if the kernel knows it, else its MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    nexthop: Option<String>,
}

impl Fate {
    /// The verdict alone, for the summary.
    fn verdict(&self) -> String {
        format!("{} {}", self.action, self.verdict)
    }
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.verdict())?;
        for (word, value) in
            [("for", self.first_verdict), ("by filter", self.filter.as_deref()), ("out", self.oif.as_deref())]
        {
            if let Some(value) = value {
                write!(f, " {word} {value}")?;
            }
        }
        self.nexthop.as_ref().map_or(Ok(()), |nexthop| write!(f, " via {nexthop}"))
    }
}

/// A packet with two fates.
#[derive(Debug, Serialize)]
struct Change {
    packet: u64,
    iif: String,
    #[serde(flatten)]
    flow: dissect::Flow,
    before: Fate,
    after: Fate,
}

impl Change {
    fn line(&self) -> String {
        let Self { packet, iif, flow, before, after } = self;
        format!("{packet} in {iif} {flow}: {before} -> {after}")
    }
}

/// Packets of one verdict, or of a pair of them.
#[derive(Debug, Serialize)]
struct Sum {
    before: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    packets: u64,
}

/// The end of the answer.
#[derive(Debug, Serialize)]
struct Summary {
    packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<u64>,
    /// Packets that the file has as outgoing.
    left_out: u64,
    /// Packets of devices that this network namespace does not have.
    other_devices: u64,
    verdicts: Vec<Sum>,
}

impl Summary {
    fn text(&self) -> String {
        let mut text = count(self.packets, "packet", "packets");
        if let Some(changed) = self.changed {
            text += &format!(": {changed} change, {} stay", self.packets - changed);
        }
        for (number, why) in [(self.left_out, "left a device"), (self.other_devices, "of other devices")] {
            if number > 0 {
                text += &format!("; left out: {number} {why}");
            }
        }
        for Sum { before, after, packets } in &self.verdicts {
            let after = after.as_ref().map(|after| format!(" -> {after}")).unwrap_or_default();
            text += &format!("\n{packets:>10} {before}{after}");
        }
        text
    }
}

/// Tables that packets are tried over.
struct Tables<'a> {
    test_run: TestRun,
    /// The name of the filter that counts in a counter.
    name: Box<dyn Fn(u8) -> Option<String> + 'a>,
    filters: HashMap<u8, Option<String>>,
}

impl<'a> Tables<'a> {
    fn new(test_run: TestRun, name: impl Fn(u8) -> Option<String> + 'a) -> Self {
        Self { test_run, name: Box::new(name), filters: HashMap::new() }
    }

    fn run(&mut self, ifindex: u32, frame: &[u8]) -> anyhow::Result<(Outcome, Option<String>)> {
        let outcome = self.test_run.run(ifindex, frame)?;
        let known = |counter: u8| self.filters.entry(counter).or_insert_with(|| (self.name)(counter)).clone();
        let filter = outcome.filter.and_then(known);
        Ok((outcome, filter))
    }
}

/// Answers.
pub(super) fn run(question: &Question<'_>, instance: &Instance, output: &Output) -> anyhow::Result<ExitCode> {
    let mut packets = Packets::open(question.packet)?;
    let pinned = open(instance)?;
    let bars = Bars::new();
    if question.other.is_some() {
        bars.phase("building the other tables", 0);
    }
    let what_if = question.other.as_ref().map(|other| other.build(&pinned)).transpose()?;
    bars.phase("packets", 0);
    let mut ports = pinned.ports()?;
    let mut before = Tables::new(pinned.test_run()?, |counter| pinned.filter_name(counter));
    let mut after = None;
    if let Some(what_if) = &what_if {
        ports.extend(what_if.ports()?);
        after = Some(Tables::new(what_if.test_run()?, |counter| what_if.filter_name(counter)));
    }
    let mut devices = Devices { iif: question.iif.map(device).transpose()?, known: HashMap::new() };
    let mut names = Names::default();
    let mut list = List::new(output, output.stdout());
    let mut pairs: BTreeMap<(String, Option<String>), u64> = BTreeMap::new();
    let (mut tried, mut changed, mut others) = (0, 0, 0);
    while let Some(packet) = packets.next()? {
        let (at, number) = (packets.place(), packet.number);
        let Some(ifindex) = devices.of(packet.iif.as_deref()).with_context(|| at.clone())? else {
            others += 1;
            continue;
        };
        let entry = entry(&ports, ifindex).with_context(|| at.clone())?;
        let frame = framed(packet, entry).with_context(|| at.clone())?;
        let (now, filter) = before.run(ifindex, &frame).with_context(|| at.clone())?;
        tried += 1;
        if tried % STEP == 0 {
            bars.advance(STEP);
        }
        let verdict = |outcome: &Outcome| format!("{} {}", outcome.verdict.kind, outcome.verdict.name);
        let Some(after) = &mut after else {
            *pairs.entry((verdict(&now), None)).or_default() += 1;
            continue;
        };
        let (then, filter_then) = after.run(ifindex, &frame).with_context(|| at.clone())?;
        *pairs.entry((verdict(&now), Some(verdict(&then)))).or_default() += 1;
        if filter == filter_then && same(&now, &then) {
            continue;
        }
        changed += 1;
        let mut fate = |outcome: Outcome, filter| fate(outcome, filter, what_if.as_ref(), &mut names);
        let (before, after) = (fate(now, filter), fate(then, filter_then));
        let flow = dissect::flow(&dissect::frame(&frame));
        let change = Change { packet: number, iif: names.get(ifindex), flow, before, after };
        bars.hidden(|| list.push(&change, Change::line))?;
    }
    bars.finish();
    let verdicts =
        pairs.into_iter().map(|((before, after), packets)| Sum { before, after, packets }).collect();
    let summary = Summary {
        packets: tried,
        changed: after.is_some().then_some(changed),
        left_out: packets.left(),
        other_devices: others,
        verdicts,
    };
    list.push(&summary, Summary::text)?;
    list.finish()?;
    // "The answer is yes, something changes", as of diff(1).
    Ok(if changed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether two outcomes are the same but for the filter. The bytes of a packet that is not sent on do not matter.
fn same(now: &Outcome, then: &Outcome) -> bool {
    let is_sent = now.verdict.kind == Kind::Forward;
    (now.verdict, now.first, now.out) == (then.verdict, then.first, then.out)
        && (!is_sent || now.frame == then.frame)
}

fn fate(outcome: Outcome, filter: Option<String>, what_if: Option<&WhatIf>, names: &mut Names) -> Fate {
    let out = outcome.out.filter(|_| outcome.verdict.kind == Kind::Forward);
    let nexthop = out.and_then(|out| {
        let mac: [u8; 6] = *outcome.frame.first_chunk()?;
        let is_v6 = outcome.frame.get(12..14) == Some(&[0x86, 0xdd]);
        let family = if is_v6 { family::INET6 } else { family::INET };
        let address = what_if.and_then(|what_if| what_if.neighbour(family, out, mac));
        Some(address.map_or_else(|| mac_text(&mac), |address| address.to_string()))
    });
    Fate {
        action: outcome.verdict.kind.to_string(),
        verdict: outcome.verdict.name,
        first_verdict: outcome.first.map(|first| first.name),
        filter,
        oif: out.map(|out| names.get(out)),
        nexthop,
    }
}

/// The devices that packets of a file came in by.
struct Devices {
    iif: Option<u32>,
    known: HashMap<String, Option<u32>>,
}

impl Devices {
    /// `None`: this network namespace does not have it.
    fn of(&mut self, name: Option<&str>) -> anyhow::Result<Option<u32>> {
        match (self.iif, name) {
            (Some(iif), _) => Ok(Some(iif)),
            (None, None) => bail!("the file names no device; expected --iif DEVICE"),
            (None, Some(name)) => Ok(match self.known.get(name) {
                Some(known) => *known,
                None => *self.known.entry(name.to_owned()).or_insert(device(name).ok()),
            }),
        }
    }
}

/// The port of a device; a packet that begins with its IP header goes to its MAC address.
fn entry(ports: &[Entry], ifindex: u32) -> anyhow::Result<&Entry> {
    let mut of_device = ports.iter().filter(|(device, ..)| *device == ifindex);
    of_device
        .find(|(_, vlan, _)| vlan.is_none())
        .context("trieline takes no packets from its device; expected --iif DEVICE")
}
