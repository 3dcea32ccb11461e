//! `trieline node check`: whether trielined can start here, what it would refuse, and what this node could forward. Changes nothing.

mod device;
mod finding;
mod host;
mod model;
mod offloads;
mod processing;

use crate::config::{File, check_devices, parse_device};
use clap::Args;
use finding::{Finding, Level};
use model::{MODEL, Model};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trieline_router::AttachMode;
use trieline_router::api::instance::Instance;
use trieline_router::daemon::Config;
use trieline_router::daemon::rehearsal::{Measured, Rehearsal};
use trieline_router::kernel::link::{self, Link};
use trieline_terminal::{Output, aligned, usage};

/// Read if no other file is named and it exists.
const FILE: &str = "/etc/trieline/trielined.toml";
/// Bytes in front of a frame that a header may take: XDP's 256, less the kernel's record of a redirected frame.
const HEADROOM: usize = 256 - 40;

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

/// Whether this process may ask for all: netlink of netfilter, BPF, and a private mount.
fn may_look() -> bool {
    capabilities(None).is_ok_and(|sets| {
        sets.effective.contains(CapabilitySet::NET_ADMIN) && sets.effective.contains(CapabilitySet::SYS_ADMIN)
    })
}

/// Runs the command.
pub fn run(
    args: &CheckArgs,
    instance: &Instance,
    netns: Option<&str>,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let config = configuration(args)?;
    let (image_bytes, mode) = (config.image_bytes, config.mode);
    let devices = config.devices.clone();
    let mut findings = host::findings(instance);
    let mut models = Vec::new();
    if devices.is_empty() {
        let what = "no device could be meant: expected one that is up and has a MAC address";
        findings.push(Finding::no_go("devices", what, "trieline node check --dev DEVICE"));
    }
    let mut rehearsal = Rehearsal::read(config)?;
    for name in rehearsal.missing() {
        let what = "no such device in this network namespace; trielined would wait until it appears";
        findings.push(Finding::no_go(name, what, "ip link show"));
    }
    let mut speeds = Vec::new();
    for link in rehearsal.links() {
        let looked = device::look(link);
        speeds.push((link.name.clone(), looked.speed));
        findings.extend(device::findings(&rehearsal, link, &looked, mode, instance));
    }
    if may_look() {
        findings.extend(processing::processing(&rehearsal));
        findings.push(headroom(rehearsal.longest_push()));
        if let Some(short) = host::too_little_memory(image_bytes) {
            findings.push(short);
        } else {
            models = measure(&mut rehearsal, &speeds, &mut findings);
        }
    } else {
        let what = "not checked without root: netfilter, conntrack, tc, receive handlers, other XDP programs, another trielined, the \
                    program on this processor";
        findings.push(Finding::no_go("permissions", what, "sudo trieline node check"));
    }
    let level = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Go);
    let checked = Checked { level, devices, findings, model_note: MODEL, model: models };
    if output.json {
        output.document(&checked)?;
    } else {
        output.text(&text(&checked, netns, output))?;
    }
    Ok(if level == Level::NoGo { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs this node's program. Findings about the tables, and about a model that is not known, come to `findings`.
fn measure(
    rehearsal: &mut Rehearsal,
    speeds: &[(String, Option<u32>)],
    findings: &mut Vec<Finding>,
) -> Vec<Model> {
    let routes = rehearsal.routes();
    let measured = match rehearsal.measure() {
        Ok(Some(measured)) => measured,
        Ok(None) => {
            let what = "unknown: no checked device has a MAC address, so the program was not run";
            findings.push(Finding::warn("model", what, "ip link show"));
            return Vec::new();
        }
        Err(error) => {
            let what = format!("cannot run this node's program: {error}");
            findings.push(Finding::no_go("program", what, "trielined --verbose"));
            return Vec::new();
        }
    };
    findings.push(tables(routes, &measured));
    let mut models = Vec::new();
    for (family, time) in [("IPv4", measured.v4), ("IPv6", measured.v6)] {
        match time {
            Some(time) => models.push(Model::new(family, time, speeds)),
            None => {
                let what = format!("{family}: unknown, since XDP forwards none of the sampled destinations");
                findings.push(Finding::go("model", what));
            }
        }
    }
    models
}

/// Whether the longest header that a route pushes fits in front of a frame.
fn headroom(pushed: usize) -> Finding {
    let what = format!("routes push up to {pushed} bytes; a frame has room for {HEADROOM}");
    if pushed <= HEADROOM {
        return Finding::go("headroom", what);
    }
    let what = format!("{what}: the program moves such frames, and the kernel gets those of several buffers");
    Finding::warn("headroom", what, "ip -6 route show | grep seg6, and use fewer segments")
}

/// The tables that were built.
fn tables(routes: usize, measured: &Measured) -> Finding {
    let [used, limit] = [measured.used, measured.image_bytes].map(|bytes| bytes as f64 / f64::from(1 << 20));
    let what = format!(
        "{routes} routes take {used:.1} of {limit:.0} MiB ({}); a rebuild needs them twice",
        measured.map_type
    );
    if let Some(why) = measured.blocked.first() {
        return Finding::no_go("tables", format!("{what}: {why}"), "trielined --image 1G");
    }
    if 2 * measured.used > measured.image_bytes {
        return Finding::warn("tables", what, "trielined --image 1G");
    }
    Finding::go("tables", what)
}

fn text(checked: &Checked, netns: Option<&str>, output: &Output) -> String {
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
    if let Some(netns) = netns.filter(|_| checked.findings.iter().any(|finding| finding.mend.is_some())) {
        // A path names no namespace to `ip netns`.
        let enter = if netns.contains('/') { "nsenter --net=" } else { "ip netns exec " };
        text += &format!("Run these commands in the network namespace: {enter}{netns} COMMAND\n");
    }
    checked.model.iter().for_each(|model| text += &model.to_string());
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
    fn levels_are_ordered() {
        assert!(Level::Go < Level::Warn && Level::Warn < Level::NoGo);
        assert_eq!(serde_json::to_value(Level::NoGo).unwrap(), "no-go");
    }

    #[test]
    fn a_header_of_eleven_segments_fits() {
        let outer = |segments: usize| 40 + 8 + 16 * segments;
        assert_eq!((headroom(0).level, headroom(outer(10)).level), (Level::Go, Level::Go));
        assert_eq!(headroom(outer(11)).level, Level::Warn);
    }
}
