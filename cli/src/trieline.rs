//! The command `trieline`: `trieline [-j] [-4|-6] [-n NETNS] OBJECT COMMAND`.

mod addresses;
mod audit;
mod capture;
mod check;
mod client;
mod command;
mod config;
mod daemon;
mod dissect;
mod extcap;
mod filter;
mod log;
mod metrics;
mod node;
mod report;
mod route;
mod sid;
mod table;
mod top;

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use trieline_router::api::instance::enter_namespace;
use trieline_terminal::{GLOBAL_OPTIONS as GLOBAL, Output, exit_code, parse, run_program, usage};

/// The end of every command's help.
const AFTER_HELP: &str = "\
The help of each command names the rights that it needs.
Exit codes: 0 done; 1 failed, or the result is negative (`route get` without a route, `table diff` with differences); \
2 the command line is wrong.";

/// Forward packets in XDP by the routes of the kernel
#[derive(Debug, Parser)]
#[command(name = "trieline", version, infer_subcommands = true, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    /// Print JSON
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Indent JSON
    #[arg(long, global = true, help_heading = GLOBAL)]
    pretty: bool,
    /// Use only IPv4
    #[arg(short = '4', global = true, help_heading = GLOBAL, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6
    #[arg(short = '6', global = true, help_heading = GLOBAL)]
    ipv6: bool,
    /// Run in this network namespace: a name, or a path
    #[arg(short = 'n', long = "netns", global = true, help_heading = GLOBAL, value_name = "NETNS")]
    netns: Option<String>,
    #[command(subcommand)]
    object: Object,
}

#[derive(Debug, Subcommand)]
enum Object {
    /// Show, reload and detach the daemon trielined
    #[command(subcommand, infer_subcommands = true)]
    Node(node::NodeCommand),
    /// Show mirrored routes, and XDP's action for an address
    #[command(subcommand, infer_subcommands = true)]
    Route(route::RouteCommand),
    /// Show and reload the filters that packets meet before routes
    #[command(subcommand, infer_subcommands = true)]
    Filter(filter::FilterCommand),
    /// Capture the packets that XDP handles into a pcap-ng file
    Capture(capture::CaptureArgs),
    /// Show SRv6 SIDs: behaviours, packets and hooks
    #[command(subcommand, infer_subcommands = true)]
    Sid(sid::SidCommand),
    /// Watch packets a second by device, verdict, filter and SID
    Top(top::TopArgs),
    /// Serve metrics for Prometheus
    #[command(subcommand, infer_subcommands = true)]
    Metrics(metrics::MetricsCommand),
    /// Build, read and compare prefix tables in files
    #[command(subcommand, infer_subcommands = true)]
    Table(table::TableCommand),
    /// Re-measure trieline's figures (runs trieline-lab)
    #[command(disable_help_flag = true)]
    Lab(Arguments),
    /// Follow messages through processes (runs trieline-trace)
    #[command(disable_help_flag = true)]
    Trace(Arguments),
    /// Compare the kernel and XDP on a table (trieline-lab demo)
    #[command(disable_help_flag = true)]
    Demo(Arguments),
}

/// The arguments of another program.
#[derive(Debug, Args)]
struct Arguments {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs `program` in the network namespace and with the global options of this command line, `words`, and what follows. Returns only if
/// that fails.
fn run_other(cli: &Cli, program: &str, words: &[&str], rest: &Arguments) -> anyhow::Error {
    if cli.ipv4 || cli.ipv6 {
        return usage(format!("-4 and -6 have no effect on {program}; expected neither")).into();
    }
    // Global options stand behind subcommands and in front of `--`, which begins another program's command line.
    let own = rest.arguments.iter().position(|word| word == "--").unwrap_or(rest.arguments.len());
    let (own, behind) = rest.arguments.split_at(own);
    let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
    arguments.extend(own.iter().cloned());
    arguments.extend(cli.json.then(|| "--json".into()));
    arguments.extend(cli.pretty.then(|| "--pretty".into()));
    arguments.extend(behind.iter().cloned());
    if let Some(Err(error)) = cli.netns.as_deref().map(enter_namespace) {
        return error.into();
    }
    run_program(program, arguments)
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.object {
        Object::Lab(rest) => return Err(run_other(cli, "trieline-lab", &[], rest)),
        Object::Demo(rest) => return Err(run_other(cli, "trieline-lab", &["demo"], rest)),
        Object::Trace(rest) => return Err(run_other(cli, "trieline-trace", &[], rest)),
        _ => {}
    }
    let output = Output::new(cli.json, cli.pretty);
    if let Some(netns) = &cli.netns {
        enter_namespace(netns)?;
    }
    let family = if cli.ipv4 { Some(4) } else { cli.ipv6.then_some(6) };
    match &cli.object {
        Object::Node(command) => node::run(command, cli.netns.as_deref(), &output),
        Object::Route(command) => route::run(command, family, &output),
        Object::Capture(args) => capture::run(args, &output),
        Object::Top(args) => top::run(args, &output),
        Object::Sid(command) => sid::run(command, &output),
        Object::Filter(command) => filter::run(command, &output),
        Object::Metrics(command) => metrics::run(command),
        Object::Table(command) => table::run(command, family, &output),
        Object::Lab(_) | Object::Trace(_) | Object::Demo(_) => Ok(ExitCode::SUCCESS),
    }
}

/// The name this program was called by: a link's, if it is one.
fn called() -> Option<OsString> {
    let path = std::env::args_os().next()?;
    std::path::Path::new(&path).file_name().map(OsString::from)
}

fn main() -> ExitCode {
    match called() {
        Some(name) if name == daemon::NAME => daemon::main(),
        Some(name) if name == extcap::NAME => exit_code(extcap::NAME, extcap::run()),
        _ => exit_code("trieline", run(&parse::<Cli>(&["lab", "trace"]))),
    }
}
