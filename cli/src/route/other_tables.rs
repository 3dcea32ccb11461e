//! The tables that `--against` names: those that trielined would have with another configuration, or with other routes.

use crate::client::Names;
use crate::config::File;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use trieline_router::daemon::Config;
use trieline_router::daemon::rehearsal::routes::RouteList;
use trieline_router::daemon::rehearsal::{Rehearsal, WhatIf};
use trieline_router::kernel::family;
use trieline_router::{AttachMode, PinnedMaps, Port, PortFlags};
use trieline_terminal::usage;

/// Read with other routes if no other file is named and it exists.
const FILE: &str = "/etc/trieline/trielined.toml";

/// The other tables.
pub(super) struct Other<'a> {
    /// The other configuration or routes.
    pub(super) against: &'a Path,
    /// The configuration that goes with other routes.
    pub(super) config: Option<&'a Path>,
    /// The family of routes that do not show it.
    pub(super) family: Option<u8>,
}

impl Other<'_> {
    /// Builds them.
    pub(super) fn build(&self, pinned: &PinnedMaps) -> anyhow::Result<WhatIf> {
        let against = self.against;
        let named = || against.display().to_string();
        let extension = against.extension().and_then(|extension| extension.to_str());
        let (config, routes) = match extension {
            Some("toml") => (configuration(against, pinned)?, None),
            Some("json") => {
                let text = std::fs::read_to_string(against).with_context(named)?;
                let routes: RouteList = text.parse().with_context(named)?;
                (settings(self.config, pinned)?, Some(routes))
            }
            _ => {
                return Err(usage(format!(
                    "{}: expected FILE.toml, a configuration, or FILE.json, the output of `ip -j route`",
                    against.display()
                ))
                .into());
            }
        };
        let mut rehearsal = Rehearsal::read(config)?;
        if let Some(refusal) = rehearsal.refusal() {
            eprintln!("trieline: note: trielined would refuse to start so: {refusal}");
        }
        for name in rehearsal.missing() {
            eprintln!("trieline: note: {name}: no such device in this network namespace");
        }
        if let Some(routes) = routes {
            let family = self.family.map(|family| if family == 6 { family::INET6 } else { family::INET });
            rehearsal.replace_routes(routes, family).with_context(named)?;
        }
        rehearsal.what_if(pinned).with_context(named)
    }
}

/// The configuration that goes with other routes: that of the file, else the devices alone, if nothing else is in force.
fn settings(named: Option<&Path>, pinned: &PinnedMaps) -> anyhow::Result<Config> {
    let usual = || Some(PathBuf::from(FILE)).filter(|path| path.exists());
    if let Some(path) = named.map(Path::to_owned).or_else(usual) {
        return configuration(&path, pinned);
    }
    let ports = pinned.ports()?;
    let is_more = |(_, _, port): &(u32, Option<u16>, Port)| {
        port.flags.filter || port.flags.sid_hook || port.flags.tenant
    };
    if ports.iter().any(is_more) {
        let what = "filters, SID hooks or tenants are in force; expected --config FILE, their configuration";
        return Err(usage(what.into()).into());
    }
    let mut names = Names::default();
    let attached = pinned.attachments()?;
    let generic = attached.iter().any(|attached| attached.mode == AttachMode::Generic);
    let devices = attached.iter().map(|attached| names.get(attached.ifindex)).collect();
    let any = |is: fn(&PortFlags) -> bool| ports.iter().any(|(_, _, port)| is(&port.flags));
    // Where XDP forwards, no rules of netfilter are in the way, or they are bypassed.
    let forwards = any(|flags| flags.forward4 || flags.forward6);
    let rfc = any(|flags| flags.ecn);
    let mode = if generic { AttachMode::Generic } else { AttachMode::Native };
    let config = config(&File::default(), Path::new("."), pinned);
    Ok(Config { devices, mode, rfc, bypass_netfilter: forwards, ..config })
}

fn configuration(path: &Path, pinned: &PinnedMaps) -> anyhow::Result<Config> {
    let config = config(&File::read(path)?, path.parent().unwrap_or(Path::new(".")), pinned);
    if config.devices.is_empty() {
        bail!("{}: no devices; expected devices = [\"DEVICE\"]", path.display());
    }
    Ok(config)
}

/// The file's configuration, with maps as those in force where the file leaves that open.
fn config(file: &File, folder: &Path, pinned: &PinnedMaps) -> Config {
    let config = file.config(folder);
    Config {
        map_type: config.map_type.or(Some(pinned.map_type())),
        image_bytes: file.image().map_or(pinned.image_bytes(), |size| size.0),
        receive_buffer: 1 << 20,
        max_stale: None,
        ..config
    }
}
