//! `trieline sid`: the SRv6 SIDs that the kernel has, what XDP does for each, and the hooks bound to them.

use crate::client::{open, send_request};
use crate::route;
use anyhow::bail;
use clap::Subcommand;
use serde_json::Value;
use std::net::Ipv6Addr;
use std::process::ExitCode;
use trieline_dataplane::PinnedMaps;
use trieline_lpm::{Memory, Reader};
use trieline_node::control::Request;
use trieline_node::instance::Instance;
use trieline_node::publish::TABLE6;
use trieline_node::sid_hook::SidHookStatus;
use trieline_node::status::SidCount;
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
    let mut sid_hooks: Vec<SidHookStatus> = serde_json::from_value(one(&instance, &Request::SidHooks)?)?;
    let mut list = List::new(output, output.stdout());
    let mut sids = all(&instance, &pinned)?;
    if let Some(wanted) = wanted {
        let wanted = wanted.to_string();
        sids.retain(|sid| sid.get("dst").is_some_and(|dst| *dst == *wanted));
        sid_hooks.retain(|sid_hook| sid_hook.sid == wanted);
        if sids.is_empty() {
            bail!("the kernel has no SID {wanted} (ip -6 route)");
        }
    }
    for mut sid in sids {
        let is_bound = |sid_hook: &SidHookStatus| sid.get("dst").is_some_and(|dst| *dst == sid_hook.sid);
        if let Some(at) = sid_hooks.iter().position(is_bound) {
            sid["sid_hook"] = serde_json::to_value(sid_hooks.swap_remove(at))?;
        }
        list.push(&sid, line)?;
    }
    list.finish()?;
    for sid_hook in sid_hooks {
        eprintln!("trieline: hook {}: the kernel has no SID {} (ip -6 route)", sid_hook.name, sid_hook.sid);
    }
    Ok(ExitCode::SUCCESS)
}

/// The one line of an answer.
fn one(instance: &Instance, request: &Request) -> anyhow::Result<Value> {
    let mut answer = Value::Null;
    let absent = send_request(instance, request, |line| {
        answer = line;
        false
    })?;
    absent.map_or(Ok(answer), |error| Err(error.into()))
}

/// The SIDs, as `route show` has them, with what was counted. Needs a daemon.
pub fn all(instance: &Instance, pinned: &PinnedMaps) -> anyhow::Result<Vec<Value>> {
    let counts: Vec<SidCount> = serde_json::from_value(one(instance, &Request::Sids)?)?;
    let memory = pinned.memory();
    let reader = Reader::new(memory.words())?;
    let mut sids = Vec::new();
    let request = Request::Show { family: Some(6), prefix: None, local: true, table: None, vrf: None };
    let absent = send_request(instance, &request, |mut route| {
        if route.get("encap").is_none_or(|encap| encap != "seg6local") {
            return true;
        }
        let address = route.get("dst").and_then(Value::as_str).and_then(|dst| dst.split('/').next());
        let address: Option<Ipv6Addr> = address.and_then(|address| address.parse().ok());
        let id = address.and_then(|address| reader.lookup6(TABLE6, address.into()));
        if let Some(count) = counts.iter().find(|count| Some(count.id) == id) {
            route["packets"] = count.packets.into();
            route["bytes"] = count.bytes.into();
            route["errors"] = count.errors.into();
        }
        sids.push(route);
        true
    })?;
    absent.map_or(Ok(sids), |error| Err(error.into()))
}

/// A SID in words.
fn line(sid: &Value) -> String {
    let mut line = route::text(sid);
    let count = |key: &str| sid.get(key).and_then(Value::as_u64);
    if let (Some(packets), Some(bytes), Some(errors)) = (count("packets"), count("bytes"), count("errors")) {
        line += &format!("  {packets} packets, {bytes} bytes, {errors} errors");
    }
    let Some(sid_hook) = sid.get("sid_hook") else { return line };
    let word = |key: &str| sid_hook.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    line += &format!("  hook {} {}", word("name"), word("kind"));
    for filter in sid_hook.get("filters").and_then(Value::as_array).into_iter().flatten() {
        line += &format!(" {}", filter.as_str().unwrap_or_default());
    }
    if sid_hook.get("file").is_some_and(Value::is_string) {
        line += &format!(" {}", word("file"));
    }
    for (key, name) in [("frames", "frames"), ("limited", "over the rate"), ("lost", "lost")] {
        if let Some(count) = sid_hook.get(key).and_then(Value::as_u64) {
            line += &format!(", {count} {name}");
        }
    }
    if sid_hook.get("problem").is_some_and(Value::is_string) {
        line += &format!("  problem: {}", word("problem"));
    }
    line
}
