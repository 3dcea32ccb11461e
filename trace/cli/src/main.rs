//! The command `trieline-trace`, which `trieline trace` runs.

mod trace;

use clap::Parser;
use std::process::ExitCode;
use trieline_terminal::{GLOBAL_OPTIONS, Output, exit_code};

/// Follow messages through unmodified processes
///
/// From the receive to the send that it led to.
#[derive(Debug, Parser)]
#[command(
    name = "trieline-trace",
    bin_name = "trieline trace",
    version,
    infer_subcommands = true,
    args_conflicts_with_subcommands = true,
    after_help = "\
B is the receive: the kernel has copied the message to the process.
C is the device's queue (UDP, TCP), or the end of the send (Unix sockets, --done).
T2 is the time from B to C: the process's own work, and the kernel's work in the send as far as C.
The tracer has no point where a send begins, so T2 is longer than the time in the program alone.
trieline counts messages that it cannot join, and never guesses: see docs/trace.md.
With -n, the tracer and a command run in a network namespace; hooks see sockets of all namespaces.
It needs root. Exit codes: 0 done; 1 failed, an output could not be written, or records were lost under --strict;
2 the command line is wrong; 3 no message was seen."
)]
struct Cli {
    /// Print JSON
    #[arg(short, long, global = true, help_heading = GLOBAL_OPTIONS)]
    json: bool,
    /// Indent JSON
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pretty: bool,
    /// Run in this network namespace: a name, or a path
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
