//! The command `trieline-lab`, which `trieline lab` and `trieline demo` run.

mod commands;

use clap::Parser;
use std::process::ExitCode;
use trieline_terminal::{GLOBAL_OPTIONS, Output, exit_code, parse};

/// Experiment `engines` counts the memory that each structure takes from the allocator.
#[global_allocator]
static ALLOCATOR: trieline_lab::heap::Counting = trieline_lab::heap::Counting;

/// Re-measure trieline's figures, in own network namespaces
#[derive(Parser)]
#[command(
    name = "trieline-lab",
    bin_name = "trieline lab",
    version,
    infer_subcommands = true,
    after_help = "`demo` and most experiments need root; `list`, `table`, `profile` and `draw` do not."
)]
struct Cli {
    /// Print JSON
    #[arg(short, long, global = true, help_heading = GLOBAL_OPTIONS)]
    json: bool,
    /// Indent JSON
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pretty: bool,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli: Cli = parse(&[]);
    exit_code("trieline", commands::run(&cli.command, &Output::new(cli.json, cli.pretty)))
}
