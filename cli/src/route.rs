//! `trieline route`: the mirrored routes, and what happens to packets to an address.

mod answer;
mod filters;
mod ingress;
mod other_tables;
mod packet;
mod packets;
mod text;
mod what_if;

pub use text::text;

use crate::addresses::{Addresses, Query, expect_family, parse_query};
use crate::client::{Names, open, send_request};
use answer::answers;
use clap::{Args, Subcommand};
use ingress::Ingress;
use other_tables::Other;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use trieline_lpm::IpPrefix;
use trieline_router::api::control::Request;
use trieline_router::api::instance::Instance;
use trieline_router::api::route::Route;
use trieline_router::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use trieline_terminal::{List, Output, usage};
use what_if::Question;

/// Ends of the helps.
const EXIT_CODES: &str =
    "It needs root or group trieline. Exit codes: 0 done; 1 failed; 2 the command line is wrong.";
const GET_EXIT_CODES: &str = "\
It needs root. Exit codes: 0 all have a route, XDP forwards all packets, or no packet changes (--against);
1 one has none, is not forwarded, or changes, or it failed; 2 the command line is wrong.";
/// Addresses in one request to the daemon.
const BATCH: usize = 50_000;

/// Routes.
#[derive(Debug, Subcommand)]
pub enum RouteCommand {
    /// List the mirrored routes, with XDP's action for each
    #[command(after_help = EXIT_CODES)]
    #[command(visible_alias = "list")]
    Show(ShowArgs),
    /// Show what XDP does with packets to an address
    #[command(after_help = GET_EXIT_CODES)]
    Get(GetArgs),
}

/// Options of `route show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Show only this prefix and the prefixes below it
    ///
    /// `default` is the default route alone.
    #[arg(value_name = "PREFIX|default", value_parser = parse_wanted)]
    prefix: Option<Wanted>,
    /// Also show the node's own addresses (table local)
    #[arg(long)]
    local: bool,
    /// Show only this table: a number, `local`, `main` or `default`
    #[arg(long, value_name = "TABLE", value_parser = parse_table)]
    table: Option<u32>,
    /// Show only the table of this VRF
    #[arg(long, value_name = "NAME", conflicts_with = "table")]
    vrf: Option<String>,
}

fn parse_table(text: &str) -> Result<u32, String> {
    match text {
        "local" => Ok(TABLE_LOCAL),
        "main" => Ok(TABLE_MAIN),
        "default" => Ok(TABLE_DEFAULT),
        _ => text.parse().map_err(|_| "expected a table's number, or local, main or default".into()),
    }
}

/// Which routes to list.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wanted {
    Within(IpPrefix),
    Default,
}

fn parse_wanted(text: &str) -> Result<Wanted, String> {
    if text == "default" {
        return Ok(Wanted::Default);
    }
    text.parse().map(Wanted::Within).map_err(|error: trieline_lpm::PrefixError| error.to_string())
}

/// Options of `route get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Look up these addresses; `-` reads them, one a line
    #[arg(required_unless_present = "packet", value_name = "ADDRESS|-", value_parser = parse_query::<IpAddr>)]
    addresses: Vec<Query>,
    /// Run the program on a packet: hex digits or a pcap file
    ///
    /// The packet begins with its Ethernet header, or with its IP header; then it goes to the device's MAC address. Of a pcap or pcap-ng
    /// file, packets that left are skipped.
    #[arg(long, value_name = "HEX|FILE", conflicts_with = "addresses")]
    packet: Option<String>,
    /// Show the packets that FILE would give another fate
    ///
    /// FILE.toml is a configuration of trielined, FILE.json the output of `ip -j route`: each table in it replaces the kernel's. The
    /// packets run through the program over the tables in force, then over those that trielined would have. Nothing that runs changes.
    #[arg(long, value_name = "FILE.toml|FILE.json", requires = "packet", conflicts_with = "summary")]
    against: Option<PathBuf>,
    /// Take the settings for other routes from this file
    ///
    /// With --against FILE.json. By default /etc/trieline/trielined.toml, if it exists.
    #[arg(long, value_name = "FILE", requires = "against")]
    config: Option<PathBuf>,
    /// Show only how many packets get each verdict
    #[arg(long, requires = "packet")]
    summary: bool,
    /// Set the source address of the packets, for `from` rules
    #[arg(long, value_name = "ADDRESS", conflicts_with = "packet")]
    from: Option<IpAddr>,
    /// Let the packets come in by this device [default: any]
    ///
    /// By default, the tables local and main decide if devices differ. A packet of a file comes in by the device that the file names,
    /// else by trieline's first one.
    #[arg(long, value_name = "DEVICE")]
    iif: Option<String>,
}

/// Runs a `route` command. `family` is 4 or 6 with -4 or -6.
pub fn run(command: &RouteCommand, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    let instance = Instance::current()?;
    match command {
        RouteCommand::Show(args) => show_routes(args, family, &instance, output),
        RouteCommand::Get(GetArgs { packet: Some(packet), iif, against, config, summary, .. }) => {
            let (iif, config) = (iif.as_deref(), config.as_deref());
            let other = against.as_deref().map(|against| Other { against, config, family });
            if other.is_some() || *summary {
                return what_if::run(&Question { packet, iif, other }, &instance, output);
            }
            packet::run(packet, iif, &instance, output)
        }
        RouteCommand::Get(args) => get(args, family, &instance, output),
    }
}

fn show_routes(
    args: &ShowArgs,
    family: Option<u8>,
    instance: &Instance,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let default = args.prefix == Some(Wanted::Default);
    let prefixes = match args.prefix {
        None => vec![None],
        Some(Wanted::Within(prefix)) => {
            let is = if matches!(prefix, IpPrefix::V4(_)) { 4 } else { 6 };
            expect_family(family, is, &prefix).map_err(usage)?;
            vec![Some(prefix.to_string())]
        }
        Some(Wanted::Default) => [(4, "0.0.0.0/0"), (6, "::/0")]
            .into_iter()
            .filter(|(is, _)| family.is_none_or(|family| family == *is))
            .map(|(_, prefix)| Some(prefix.to_owned()))
            .collect(),
    };
    let mut list = List::new(output, output.stdout());
    let mut trouble = None;
    for prefix in prefixes {
        let (table, vrf) = (args.table, args.vrf.clone());
        let request = Request::Show { family, prefix, local: args.local && !default, table, vrf };
        let absent = send_request(instance, &request, |route: Route| {
            // Default routes are the first of all.
            if default && route.dst != "default" {
                return false;
            }
            match list.push(&route, text) {
                Ok(()) => true,
                Err(error) => {
                    trouble = Some(error);
                    false
                }
            }
        })?;
        if let Some(error) = absent {
            return Err(error.into());
        }
        if let Some(error) = trouble {
            return Err(error);
        }
    }
    let shown = list.finish()?;
    if let Some(prefix) = args.prefix.filter(|_| shown == 0 && !output.json) {
        eprintln!(
            "trieline: no routes of {}",
            match prefix {
                Wanted::Default => "default".to_owned(),
                Wanted::Within(prefix) => format!("{prefix} or below"),
            }
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn get(args: &GetArgs, family: Option<u8>, instance: &Instance, output: &Output) -> anyhow::Result<ExitCode> {
    let mut addresses = Addresses::new(&args.addresses, family);
    let mut batch = addresses.batch(BATCH)?;
    let pinned = open(instance)?;
    let mut names = Names::default();
    let ingress = Ingress::new(args.from, args.iif.as_deref(), &pinned, &mut names)?;
    let mut list = List::new(output, output.stdout());
    let mut all = true;
    while !batch.is_empty() {
        for answer in answers(&batch, &ingress, &pinned, instance, &mut names)? {
            all &= answer.kind.as_deref() != Some("none");
            list.push(&answer, text)?;
        }
        list.flush()?;
        batch = addresses.batch(BATCH)?;
    }
    list.finish()?;
    // "The answer is no": some address has no route.
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
