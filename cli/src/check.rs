//! `trieline node check`: whether trielined can start here, what it would refuse, and what this node could forward. Changes nothing.

mod device;
mod finding;
mod host;

use crate::config::{File, check_devices, parse_device};
use clap::Args;
use finding::{Finding, Level};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trieline_router::AttachMode;
use trieline_router::api::instance::Instance;
use trieline_router::bypass::scan::UNLISTED;
use trieline_router::daemon::Config;
use trieline_router::daemon::rehearsal::{Measured, PacketTime, Rehearsal};
use trieline_router::kernel::link::{self, Link};
use trieline_terminal::{Output, aligned, usage};

/// Read if no other file is named and it exists.
const FILE: &str = "/etc/trieline/trielined.toml";
/// Bits of the smallest Ethernet frame on the wire, with preamble and gap.
const SMALLEST: f64 = 84.0 * 8.0;
/// The model, and its limits.
const MODEL: &str = "a model: the program's time on this processor, run in maps of its own. It leaves out the driver's own cost, \
                     filters and SID hooks; `trieline lab run project` has published costs of drivers";

/// The options.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Check this device; repeatable [default: the file's]
    ///
    /// Without --dev and without a file, every device is checked that could be meant.
    #[arg(long = "dev", value_name = "DEVICE", value_parser = parse_device)]
    devices: Vec<String>,
    /// Read this file [default: /etc/trieline/trielined.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check for generic mode
    #[arg(long)]
    generic: bool,
    /// Accept that packets bypass netfilter's rules
    #[arg(long)]
    bypass_netfilter: bool,
}

/// The model of one family.
#[derive(Debug, Serialize)]
struct Model {
    family: &'static str,
    ns: f64,
    ns_low: f64,
    ns_high: f64,
    /// Million packets a second and processor.
    mpps: f64,
    /// Part of the random destinations that XDP forwards.
    forwarded: f64,
    /// Processors for the line rate of each device, smallest frames.
    cores: Vec<Cores>,
}

#[derive(Debug, Serialize)]
struct Cores {
    dev: String,
    speed_mbits: u32,
    line_mpps: f64,
    cores: f64,
}

/// The whole answer.
#[derive(Debug, Serialize)]
struct Checked {
    level: Level,
    devices: Vec<String>,
    findings: Vec<Finding>,
    /// The model, and its limits.
    model_note: &'static str,
    model: Vec<Model>,
}

/// The configuration to check: that of the file and the flags.
fn configuration(args: &CheckArgs) -> anyhow::Result<Config> {
    let path = args.config.as_deref().or_else(|| Some(Path::new(FILE)).filter(|path| path.exists()));
    let file = path.map(File::read).transpose()?.unwrap_or_default();
    check_devices(&args.devices).map_err(|error| usage(format!("--dev: {error}")))?;
    let mut devices = if args.devices.is_empty() { file.devices() } else { args.devices.clone() };
    if devices.is_empty() {
        devices = link::list()?.into_iter().filter(could_be_meant).map(|link| link.name).collect();
    }
    let config = file.config(Path::new("."));
    Ok(Config {
        devices,
        mode: if args.generic { AttachMode::Generic } else { config.mode },
        receive_buffer: 1 << 20,
        filters: Vec::new(),
        sid_hooks: Vec::new(),
        bypass_netfilter: args.bypass_netfilter || config.bypass_netfilter,
        ..config
    })
}

/// Devices that are up, have a MAC address, and stand for themselves: no VLAN, bridge, VRF or member of one.
fn could_be_meant(link: &Link) -> bool {
    let own = ["", "veth", "bond", "virtio"].contains(&link.kind.as_str());
    own && link.is_up() && !link.is_loopback() && link.mac.is_some() && link.master.is_none()
}

fn rounded(number: f64, digits: i32) -> f64 {
    let by = 10_f64.powi(digits);
    (number * by).round() / by
}

fn model(family: &'static str, time: PacketTime, speeds: &[(String, u32)]) -> Model {
    let mpps = 1e3 / time.ns;
    let cores = speeds.iter().map(|(dev, speed)| {
        let line = f64::from(*speed) / SMALLEST;
        Cores {
            dev: dev.clone(),
            speed_mbits: *speed,
            line_mpps: rounded(line, 2),
            cores: rounded(line / mpps, 1),
        }
    });
    Model {
        family,
        ns: rounded(time.ns, 0),
        ns_low: rounded(time.ns_low, 0),
        ns_high: rounded(time.ns_high, 0),
        mpps: rounded(mpps, 2),
        forwarded: rounded(time.forwarded, 3),
        cores: cores.collect(),
    }
}

/// Findings about processing that a start would refuse, or that packets would bypass.
fn processing(rehearsal: &Rehearsal) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = rehearsal.refusal() {
        let text = error.to_string();
        // The daemon's own words end with the way out.
        let (what, mend) = text.rsplit_once("; ").unwrap_or((&text, ""));
        let about = match error {
            trieline_router::daemon::Error::Offload { device, .. } => device.as_str(),
            _ => "netfilter",
        };
        let finding = Finding::no_go(about, what);
        findings.push(match error {
            trieline_router::daemon::Error::Netfilter { .. } => {
                finding.mend("trielined --bypass-netfilter; or find the rules: nft list ruleset")
            }
            _ => finding.mend(mend),
        });
    }
    for bypassed in rehearsal.bypassed().iter().filter(|bypassed| bypassed.kind != UNLISTED) {
        let is_same =
            |known: &Finding| known.what.contains(&bypassed.what) || bypassed.what.contains(&known.what);
        if findings.iter().any(is_same) {
            continue;
        }
        let finding = match bypassed.kind.as_str() {
            "handler" => {
                let device = bypassed.what.split(':').next().unwrap_or_default();
                Finding::no_go(device, bypassed.to_string())
                    .mend(format!("ip link set dev {device} nomaster; or give its bond instead"))
            }
            "tc" => Finding::warn("tc", bypassed.to_string()).mend("tc qdisc show; tc filter show"),
            kind => Finding::warn(kind, bypassed.to_string()),
        };
        findings.push(finding);
    }
    for (family, what) in rehearsal.obstacles() {
        if !findings.iter().any(|known| known.what.contains(&what)) {
            findings
                .push(Finding::warn("kernel", format!("{what}: the kernel forwards all {family} packets")));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::go("netfilter", "no rules, tracked connections or policies are in the way"));
    }
    findings
}

/// Whether this process may ask for all: netlink of netfilter, BPF, and a private mount.
fn may_look() -> bool {
    capabilities(None).is_ok_and(|sets| {
        sets.effective.contains(CapabilitySet::NET_ADMIN) && sets.effective.contains(CapabilitySet::SYS_ADMIN)
    })
}

/// Runs the command.
pub fn run(args: &CheckArgs, instance: &Instance, output: &Output) -> anyhow::Result<ExitCode> {
    let config = configuration(args)?;
    let (image_bytes, mode) = (config.image_bytes, config.mode);
    let devices = config.devices.clone();
    let mut findings = host::findings(instance);
    let mut models = Vec::new();
    if devices.is_empty() {
        findings.push(
            Finding::no_go(
                "devices",
                "no device could be meant: expected one that is up and has a MAC address",
            )
            .mend("trieline node check --dev DEVICE"),
        );
    }
    let mut rehearsal = Rehearsal::read(config)?;
    for name in rehearsal.missing() {
        let what = "no such device in this network namespace; trielined would wait until it appears";
        findings.push(Finding::no_go(name, what).mend("ip link show"));
    }
    let mut speeds = Vec::new();
    for link in rehearsal.links() {
        let looked = device::look(link);
        speeds.extend(looked.speed.map(|speed| (link.name.clone(), speed)));
        findings.extend(device::findings(&rehearsal, link, &looked, mode, instance));
    }
    if may_look() {
        findings.extend(processing(&rehearsal));
        let routes = rehearsal.routes();
        if let Some(short) = host::too_little_memory(image_bytes) {
            findings.push(short);
        } else {
            match rehearsal.measure() {
                Ok(Some(measured)) => {
                    findings.extend(tables(routes, &measured));
                    let times = [("IPv4", measured.v4), ("IPv6", measured.v6)];
                    models = times
                        .iter()
                        .filter_map(|(family, time)| Some(model(family, (*time)?, &speeds)))
                        .collect();
                }
                Ok(None) => {}
                Err(error) => findings.push(
                    Finding::no_go("program", format!("cannot run this node's program: {error}"))
                        .mend("trielined --verbose"),
                ),
            }
        }
    } else {
        let what = "not checked without root: netfilter, conntrack, tc, receive handlers, other XDP programs, another trielined, the \
                    program on this processor";
        findings.push(Finding::no_go("permissions", what).mend("sudo trieline node check"));
    }
    let level = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Go);
    let checked = Checked { level, devices, findings, model_note: MODEL, model: models };
    if output.json {
        output.document(&checked)?;
    } else {
        output.text(&text(&checked, output))?;
    }
    Ok(if level == Level::NoGo { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The tables that were built.
fn tables(routes: usize, measured: &Measured) -> Vec<Finding> {
    let [used, limit] = [measured.used, measured.image_bytes].map(|bytes| bytes as f64 / f64::from(1 << 20));
    let what = format!(
        "{routes} routes take {used:.1} of {limit:.0} MiB ({}); a rebuild needs them twice",
        measured.map_type
    );
    if let Some(why) = measured.blocked.first() {
        return vec![Finding::no_go("tables", format!("{what}: {why}")).mend("trielined --image 1G")];
    }
    if 2 * measured.used > measured.image_bytes {
        return vec![Finding::warn("tables", what).mend("trielined --image 1G")];
    }
    vec![Finding::go("tables", what)]
}

fn text(checked: &Checked, output: &Output) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for finding in &checked.findings {
        let mend = finding.mend.as_ref().map(|mend| format!("  -> {mend}")).unwrap_or_default();
        rows.push(vec![
            finding.level.name().into(),
            finding.about.clone(),
            format!("{}{mend}", finding.what),
        ]);
    }
    let mut text = aligned(&rows, 3);
    for model in &checked.model {
        text += &format!(
            "model {}: {} ns a packet ({} to {}), {} Mpps a core; XDP forwards {} % of random destinations\n",
            model.family,
            model.ns,
            model.ns_low,
            model.ns_high,
            model.mpps,
            rounded(100.0 * model.forwarded, 1)
        );
        for cores in &model.cores {
            text += &format!(
                "  {}: {} Mbit/s of 64-byte frames are {} Mpps: {} cores\n",
                cores.dev, cores.speed_mbits, cores.line_mpps, cores.cores
            );
        }
    }
    if !checked.model.is_empty() {
        text += &format!("{MODEL}\n");
    }
    text += &match checked.level {
        Level::NoGo => output.bad("no-go"),
        Level::Warn => "go, with warnings".into(),
        Level::Go => output.good("go"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rate_and_cores() {
        let time = PacketTime { ns: 100.0, ns_low: 90.0, ns_high: 120.0, forwarded: 0.5 };
        let model = model("IPv4", time, &[("eth0".into(), 10_000)]);
        assert_eq!((model.mpps, model.cores[0].line_mpps, model.cores[0].cores), (10.0, 14.88, 1.5));
    }

    #[test]
    fn levels_are_ordered() {
        assert!(Level::Go < Level::Warn && Level::Warn < Level::NoGo);
        assert_eq!(serde_json::to_value(Level::NoGo).unwrap(), "no-go");
    }
}
