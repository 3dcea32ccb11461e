//! The command `trieline-trace`, which `trieline trace` runs.

mod args;
mod calibrate;
mod cgroup;
mod command;
mod errors;
mod following;
mod join;
mod liveness;
mod node;
mod outputs;
mod probes;
mod records;
mod report;
mod trace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use trieline_terminal::{GLOBAL_OPTIONS, Output, exit_code, parse};

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
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    trace: trace::TraceArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure the tracer's cost for a traced process, and others
    Calibrate(Box<args::What>),
    Join(join::JoinArgs),
    Node(node::NodeArgs),
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    if let Some(netns) = &cli.netns {
        trieline_router::api::instance::enter_namespace(netns)?;
    }
    let output = Output::new(cli.json, cli.pretty);
    match &cli.command {
        Some(Command::Calibrate(what)) => calibrate::run(&what.options()?, &output),
        Some(Command::Join(args)) => join::run(args, &output),
        Some(Command::Node(args)) => node::run(args, &output),
        None => trace::run(&cli.trace, &output),
    }
}

fn main() -> ExitCode {
    exit_code("trieline", run(&parse(&[])))
}
