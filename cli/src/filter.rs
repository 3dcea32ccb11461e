//! `trieline filter`: counts of the filters' matches, and reading their files again.

use crate::client::{self, one, open};
use anyhow::bail;
use clap::Subcommand;
use std::process::ExitCode;
use trieline_router::api::control::Request;
use trieline_router::api::instance::Instance;
use trieline_router::filter::FilterStatus;
use trieline_router::filter::rule::range_text;
use trieline_router::{Filters, PinnedMaps};
use trieline_terminal::{List, Output};

/// Filters.
#[derive(Debug, Subcommand)]
pub enum FilterCommand {
    /// List the filters in order, with counts of their matches
    #[command(visible_alias = "list")]
    #[command(
        after_help = "It needs root or group trieline. Exit codes: 0 done; 1 failed; 2 the command line is wrong."
    )]
    Show {
        /// Show only this filter
        name: Option<String>,
    },
    /// Read the files of one filter, or of all, again
    ///
    /// A bad file changes nothing
    #[command(
        after_help = "It needs root. Exit codes: 0 done; 1 failed, and the filters are as before; 2 the command line is wrong."
    )]
    Reload {
        /// Read only this filter's file
        name: Option<String>,
    },
}

/// Runs a `filter` command.
pub fn run(command: &FilterCommand, output: &Output) -> anyhow::Result<ExitCode> {
    let instance = Instance::current()?;
    let name = match command {
        FilterCommand::Show { name } => name,
        FilterCommand::Reload { name } => {
            client::job(&instance, &Request::Reload { filter: name.clone() })?;
            name
        }
    };
    let mut filters = match reported(&instance)? {
        Some(filters) => filters,
        None => pinned(&open(&instance)?)?,
    };
    if let Some(name) = name {
        filters.retain(|filter| filter.rule.name == *name);
        if filters.is_empty() {
            bail!("no filter is named {name}");
        }
    }
    let mut list = List::new(output, output.stdout());
    for filter in &filters {
        list.push(filter, line)?;
    }
    list.finish()?;
    if filters.is_empty() {
        eprintln!("trieline: no filter is configured");
    }
    let is_empty = |filter: &&FilterStatus| (filter.prefixes4, filter.prefixes6) == (Some(0), Some(0));
    for filter in filters.iter().filter(is_empty) {
        eprintln!("trieline: filter {}: no prefixes in its file: it matches nothing", filter.rule.name);
    }
    Ok(ExitCode::SUCCESS)
}

/// The daemon's answer about its filters; `None` without a daemon.
fn reported(instance: &Instance) -> anyhow::Result<Option<Vec<FilterStatus>>> {
    Ok(one(instance, &Request::Filters)?.ok())
}

/// The filters in the dataplane's pins.
pub fn pinned(pinned: &PinnedMaps) -> anyhow::Result<Vec<FilterStatus>> {
    let of_list = |list| pinned.filters(list).into_iter().map(move |filter| (filter, list != Filters::PORTS));
    let mut filters: Vec<_> = (0..Filters::LISTS).flat_map(of_list).collect();
    // Several SID hooks may ask the same one.
    let mut names = std::collections::BTreeSet::new();
    filters.retain(|(filter, _)| names.insert(filter.rule.name.clone()));
    let reported = |(filter, inside)| {
        let count = pinned.filter_count(&filter)?;
        Ok(FilterStatus { inside, ..FilterStatus::of(filter.rule, count) })
    };
    filters.into_iter().map(reported).collect()
}

/// A filter in words.
pub fn line(filter: &FilterStatus) -> String {
    let rule = &filter.rule;
    let mut line = format!("{} {} {}", rule.name, rule.action, rule.address);
    if let Some(protocol) = rule.protocol {
        line += &format!(" protocol {protocol}");
    }
    for (what, ranges) in [("ports", &rule.ports), ("source ports", &rule.source_ports)] {
        if !ranges.is_empty() {
            let ports: Vec<_> = ranges.iter().map(range_text).collect();
            line += &format!(" {what} {}", ports.join(","));
        }
    }
    if let (Some(file), Some(four), Some(six)) = (&rule.file, filter.prefixes4, filter.prefixes6) {
        let bad = match filter.bad_lines {
            None | Some(0) => String::new(),
            Some(bad) => format!(", {} passed over", client::count(bad, "bad line", "bad lines")),
        };
        line += &format!("  [{}: {four} IPv4, {six} IPv6{bad}]", file.display());
    }
    if let Some(problem) = &filter.problem {
        line += &format!("  [previous set in force: {problem}]");
    }
    if filter.inside {
        line += "  (used by SID hooks only)";
    }
    line + &format!("  {} packets, {} bytes", filter.packets, filter.bytes)
}
