//! `trieline sid`: the SRv6 SIDs that the kernel has, what XDP does for each, and the functions bound to them.

use crate::look::ask;
use crate::output::{List, Output};
use crate::route;
use clap::Subcommand;
use serde_json::Value;
use std::process::ExitCode;
use trieline_node::control::Request;
use trieline_node::function::FunctionStatus;
use trieline_node::instance::Instance;

/// SIDs.
#[derive(Debug, Subcommand)]
pub enum SidCommand {
    /// List the routes with `encap seg6local`: behaviour, parameters, what XDP does, and the function bound to the SID
    #[command(visible_alias = "list")]
    #[command(
        after_help = "It needs root and a running trielined. Exit codes: 0 done; 1 failed; 2 the command line is wrong."
    )]
    Show,
}

/// Runs a `sid` command.
pub fn run(command: &SidCommand, output: &Output) -> anyhow::Result<ExitCode> {
    let SidCommand::Show = command;
    let instance = Instance::current()?;
    let mut functions: Vec<FunctionStatus> = Vec::new();
    let mut trouble = None;
    let absent = ask(&instance, &Request::Functions, |answer| {
        match serde_json::from_value(answer) {
            Ok(told) => functions = told,
            Err(error) => trouble = Some(error.into()),
        }
        false
    })?;
    if let Some(error) = absent.map(anyhow::Error::from).or(trouble.take()) {
        return Err(error);
    }
    let mut list = List::new(output, output.stdout());
    let request = Request::Show { family: Some(6), prefix: None, local: true, table: None, vrf: None };
    let absent = ask(&instance, &request, |mut route| {
        if route.get("encap").is_none_or(|encap| encap != "seg6local") {
            return true;
        }
        let bound =
            functions.iter().position(|function| route.get("dst").is_some_and(|dst| *dst == function.sid));
        if let Some(function) = bound.map(|at| functions.swap_remove(at))
            && let Ok(function) = serde_json::to_value(function)
        {
            route["function"] = function;
        }
        match list.push(&route, line) {
            Ok(()) => true,
            Err(error) => {
                trouble = Some(error);
                false
            }
        }
    })?;
    if let Some(error) = absent.map(anyhow::Error::from).or(trouble) {
        return Err(error);
    }
    list.finish()?;
    for function in functions {
        eprintln!(
            "trieline: function {}: the kernel has no SID {} (ip -6 route)",
            function.name, function.sid
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A SID in words.
fn line(sid: &Value) -> String {
    let mut line = route::text(sid);
    let Some(function) = sid.get("function") else { return line };
    let word = |key: &str| function.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    line += &format!("  function {} {}", word("name"), word("kind"));
    for filter in function.get("filters").and_then(Value::as_array).into_iter().flatten() {
        line += &format!(" {}", filter.as_str().unwrap_or_default());
    }
    if function.get("file").is_some_and(Value::is_string) {
        line += &format!(" {}", word("file"));
    }
    for (key, name) in [("frames", "frames"), ("limited", "over the rate"), ("lost", "lost")] {
        if let Some(count) = function.get(key).and_then(Value::as_u64) {
            line += &format!(", {count} {name}");
        }
    }
    line
}
