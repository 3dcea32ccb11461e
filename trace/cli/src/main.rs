//! The command `trieline-trace`, which `trieline trace` runs.

mod trace;

use clap::Parser;
use std::process::ExitCode;
use trieline_terminal::{GLOBAL_OPTIONS, Output, exit_code};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "trieline-trace", bin_name = "trieline trace", version)]
struct Cli {
    /// Print JSON
    #[arg(short, long, global = true, help_heading = GLOBAL_OPTIONS)]
    json: bool,
    /// Indent JSON
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pretty: bool,
    /// Network namespace: a name of `ip netns`, or a path
    #[arg(short = 'n', long = "netns", global = true, help_heading = GLOBAL_OPTIONS, value_name = "NETNS")]
    netns: Option<String>,
    #[command(flatten)]
    trace: trace::TraceArgs,
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    if let Some(netns) = &cli.netns {
        trieline_node::instance::enter_namespace(netns)?;
    }
    trace::run(&cli.trace, &Output::new(cli.json, cli.pretty))
}

fn main() -> ExitCode {
    exit_code("trieline", run(&Cli::parse()))
}
