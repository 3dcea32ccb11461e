//! `trieline sid`: the SRv6 SIDs that the kernel has, what XDP does for each, and the hooks bound to them.

use crate::client::one;
use crate::route;
use anyhow::bail;
use clap::Subcommand;
use std::net::Ipv6Addr;
use std::process::ExitCode;
use trieline_lpm::{IpPrefix, Prefix};
use trieline_router::SidCount;
use trieline_router::SidHookRule;
use trieline_router::api::control::Request;
use trieline_router::api::instance::Instance;
use trieline_router::api::route::SidStatus;
use trieline_router::sid_hook::SidHookStatus;
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
    let mut sid_hooks: Vec<SidHookStatus> = one(&instance, &Request::SidHooks)??;
    let mut list = List::new(output, output.stdout());
    let mut sids = all(&instance)?;
    if let Some(wanted) = wanted {
        sids.retain(|sid| has(&sid.route.dst, *wanted));
        sid_hooks.retain(|sid_hook| sid_hook.rule.sid == *wanted);
        if sids.is_empty() {
            bail!("the kernel has no SID {wanted} in any table (ip -6 route show table all)");
        }
    }
    if sids.is_empty() {
        eprintln!("trieline: the kernel has no SID in any table (ip -6 route show table all)");
    }
    for mut sid in sids {
        let is_bound = |sid_hook: &SidHookStatus| sid_hook.rule.sid.to_string() == sid.route.dst;
        sid.sid_hook = sid_hooks.iter().position(is_bound).map(|at| sid_hooks.swap_remove(at));
        list.push(&sid, line)?;
    }
    list.finish()?;
    for sid_hook in sid_hooks {
        let SidHookRule { name, sid, .. } = &sid_hook.rule;
        eprintln!(
            "trieline: hook {name}: the kernel has no SID {sid} in any table (ip -6 route show table all)"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The SIDs of all tables, as `route show` has them, with their counts. Needs a daemon.
pub fn all(instance: &Instance) -> anyhow::Result<Vec<SidStatus>> {
    Ok(one(instance, &Request::Sids)??)
}

/// Whether a route's destination, as `ip route` writes it, holds an address.
fn has(dst: &str, address: Ipv6Addr) -> bool {
    match dst.parse() {
        Ok(IpPrefix::V6(prefix)) => prefix.covers(&Prefix::host(address.into())),
        _ => dst.parse() == Ok(address),
    }
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
