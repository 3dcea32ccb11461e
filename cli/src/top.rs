//! `trieline top`: packets a second, by device, verdict, filter and SID, every second.

use crate::client::{Names, open};
use crate::sid;
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trieline_dataplane::{Counters, Kind, PinnedMaps};
use trieline_node::instance::Instance;
use trieline_terminal::{CLEAR, Output};

/// How often it is looked whether to end.
const TICK: Duration = Duration::from_millis(50);

/// How to look.
#[derive(Debug, Args)]
#[command(
    after_help = "It needs root. Ends with Ctrl-C. Exit codes: 0 done; 1 failed; 2 the command line is wrong."
)]
pub struct TopArgs {
    /// Wait so many seconds between two pictures
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Print one picture after one interval, and end
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("invalid interval {text:?}: expected 0.1 to 3600 seconds")),
    }
}

/// Rates over one interval, a second.
#[derive(Debug, Serialize)]
struct Picture {
    seconds: f64,
    devices: Vec<Device>,
    verdicts: Vec<Rate>,
    filters: Vec<Rate>,
    sids: Vec<Rate>,
}

#[derive(Debug, Serialize)]
struct Device {
    dev: String,
    vlan: Option<u16>,
    forward: f64,
    pass: f64,
    drop: f64,
}

#[derive(Debug, Serialize)]
struct Rate {
    name: String,
    kind: String,
    packets: u64,
    rate: f64,
}

/// Packets by name, each with its kind.
type Named = BTreeMap<String, (String, u64)>;

/// Everything counted at one moment.
struct Count {
    at: Instant,
    counters: Counters,
    filters: Named,
    sids: Named,
}

impl Count {
    fn take(instance: &Instance, pinned: &PinnedMaps) -> anyhow::Result<Self> {
        let at = Instant::now();
        let counters = pinned.counters()?;
        let mut filters = BTreeMap::new();
        for filter in pinned.filters(0) {
            let packets = pinned.filter_count(&filter)?.packets;
            filters.insert(filter.name, (filter.action.to_string(), packets));
        }
        let word =
            |sid: &Value, key: &str| sid.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut sids = BTreeMap::new();
        // Without a daemon, the list of SIDs is not known.
        for sid in sid::all(instance, pinned).unwrap_or_default() {
            if let Some(packets) = sid.get("packets").and_then(Value::as_u64) {
                sids.insert(word(&sid, "dst"), (word(&sid, "behaviour"), packets));
            }
        }
        Ok(Self { at, counters, filters, sids })
    }
}

/// Runs the command.
pub fn run(args: &TopArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let instance = Instance::current()?;
    let pinned = open(&instance)?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let mut names = Names::default();
    let mut before = Count::take(&instance, &pinned)?;
    loop {
        while before.at.elapsed().as_secs_f64() < args.interval {
            if ended.load(Ordering::Relaxed) {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(TICK);
        }
        let now = Count::take(&instance, &pinned)?;
        let picture = picture(&before, &now, &mut names);
        if output.json {
            output.document(&picture)?;
        } else {
            let clear = if output.colour && !args.once { CLEAR } else { "" };
            output.text(&format!("{clear}{}", text(&picture, output)?))?;
        }
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        before = now;
    }
}

fn picture(before: &Count, now: &Count, names: &mut Names) -> Picture {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let mut devices = Vec::new();
    for port in &now.counters.ports {
        let is_same =
            |other: &&trieline_dataplane::PortCount| (other.ifindex, other.vlan) == (port.ifindex, port.vlan);
        let earlier = before.counters.ports.iter().find(is_same);
        let of = |kind: Kind| {
            let sum = |counts: &[trieline_dataplane::VerdictCount]| {
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
        });
    }
    let totals = now.counters.total.iter().zip(&before.counters.total);
    let mut verdicts: Vec<Rate> = totals
        .filter(|(now, _)| now.packets > 0)
        .map(|(now, before)| Rate {
            name: now.name.into(),
            kind: now.kind.to_string(),
            packets: now.packets,
            rate: rate(before.packets, now.packets),
        })
        .collect();
    verdicts.sort_by(|one, two| two.rate.total_cmp(&one.rate));
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
    Picture { seconds, devices, verdicts, filters, sids }
}

fn text(picture: &Picture, output: &Output) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let head = |title: &str, columns: &str| output.bold(&format!("{title:<24}{columns}"));
    writeln!(text, "{}", head("packets a second", "     forward        pass        drop"))?;
    for device in &picture.devices {
        let vlan = device.vlan.map(|vlan| format!(" vlan {vlan}")).unwrap_or_default();
        let name = format!("{}{vlan}", device.dev);
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
    Ok(text)
}
