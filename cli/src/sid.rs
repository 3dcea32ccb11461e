//! `trieline sid`: the SRv6 SIDs that the kernel has, what XDP does for each, and the hooks bound to them.

use crate::client::{one, open, send_request};
use crate::route;
use anyhow::bail;
use clap::Subcommand;
use std::net::Ipv6Addr;
use std::process::ExitCode;
use trieline_lpm::{Memory, Reader};
use trieline_router::PinnedMaps;
use trieline_router::SidCount;
use trieline_router::SidHookRule;
use trieline_router::api::control::{CountedSid, Request};
use trieline_router::api::instance::Instance;
use trieline_router::api::route::{Route, SidStatus};
use trieline_router::sid_hook::SidHookStatus;
use trieline_router::xdp::table_ids::TABLE6;
use trieline_terminal::{List, Output};

/// SIDs.
#[derive(Debug, Subcommand)]
pub enum SidCommand {
    /// List the routes with `encap seg6local`
    ///
    /// Each with its behaviour, its parameters, XDP's action and its SID hook.
    #[command(visible_alias = "list")]
    #[command(
        after_help = "It needs root and a running trielined. Exit codes: 0 done; 1 failed; 2 the command line is wrong."
    )]
    Show {
        /// Show only this SID
        #[arg(value_name = "ADDRESS")]
        sid: Option<Ipv6Addr>,
    },
}

/// Runs a `sid` command.
pub fn run(command: &SidCommand, output: &Output) -> anyhow::Result<ExitCode> {
    let SidCommand::Show { sid: wanted } = command;
    let instance = Instance::current()?;
    let pinned = open(&instance)?;
    let mut sid_hooks: Vec<SidHookStatus> = one(&instance, &Request::SidHooks)??;
    let mut list = List::new(output, output.stdout());
    let mut sids = all(&instance, &pinned)?;
    if let Some(wanted) = wanted {
        sids.retain(|sid| sid.route.dst == wanted.to_string());
        sid_hooks.retain(|sid_hook| sid_hook.rule.sid == *wanted);
        if sids.is_empty() {
            bail!("the kernel has no SID {wanted} (ip -6 route)");
        }
    }
    if sids.is_empty() {
        eprintln!("trieline: the kernel has no SID (ip -6 route)");
    }
    for mut sid in sids {
        let is_bound = |sid_hook: &SidHookStatus| sid_hook.rule.sid.to_string() == sid.route.dst;
        sid.sid_hook = sid_hooks.iter().position(is_bound).map(|at| sid_hooks.swap_remove(at));
        list.push(&sid, line)?;
    }
    list.finish()?;
    for sid_hook in sid_hooks {
        let SidHookRule { name, sid, .. } = &sid_hook.rule;
        eprintln!("trieline: hook {name}: the kernel has no SID {sid} (ip -6 route)");
    }
    Ok(ExitCode::SUCCESS)
}

/// The SIDs, as `route show` has them, with what was counted. Needs a daemon.
pub fn all(instance: &Instance, pinned: &PinnedMaps) -> anyhow::Result<Vec<SidStatus>> {
    let counts: Vec<CountedSid> = one(instance, &Request::Sids)??;
    let memory = pinned.memory();
    let reader = Reader::new(memory.words())?;
    let mut sids = Vec::new();
    let request = Request::Show { family: Some(6), prefix: None, local: true, table: None, vrf: None };
    let absent = send_request(instance, &request, |route: Route| {
        if route.encap.as_deref() != Some("seg6local") {
            return true;
        }
        let address: Option<Ipv6Addr> = route.dst.split('/').next().and_then(|address| address.parse().ok());
        let id = address.and_then(|address| reader.lookup6(TABLE6, address.into()));
        let count = counts.iter().find(|counted| Some(counted.id) == id).map(|counted| counted.count);
        sids.push(SidStatus { route, count, sid_hook: None });
        true
    })?;
    absent.map_or(Ok(sids), |error| Err(error.into()))
}

/// A SID in words.
fn line(sid: &SidStatus) -> String {
    let mut line = route::text(&sid.route);
    if let Some(SidCount { packets, bytes, errors }) = sid.count {
        line += &format!("  {packets} packets, {bytes} bytes, {errors} errors");
    }
    let Some(sid_hook) = &sid.sid_hook else { return line };
    line += &format!("  hook {} {}", sid_hook.rule.name, sid_hook.rule.what.kind());
    for filter in sid_hook.rule.what.filters() {
        line += &format!(" {filter}");
    }
    if let Some(file) = sid_hook.rule.what.file() {
        line += &format!(" {}", file.display());
    }
    for (count, name) in
        [(sid_hook.frames, "frames"), (sid_hook.limited, "over the rate"), (sid_hook.lost, "lost")]
    {
        if let Some(count) = count {
            line += &format!(", {count} {name}");
        }
    }
    if let Some(problem) = &sid_hook.problem {
        line += &format!("  problem: {problem}");
    }
    line
}
