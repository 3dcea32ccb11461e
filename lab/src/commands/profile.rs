//! `trieline lab profile`: a traffic profile as a script of another generator.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use trieline_lab::experiments::throughput::Traffic;
use trieline_terminal::Output;

/// Its options.
#[derive(Args, Debug)]
pub struct ProfileArgs {
    /// Read the profile from this TOML file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Set the seed of the flows
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Prints the script.
pub fn run(args: &ProfileArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let script = Traffic::read(&args.file)?.trex(args.seed)?;
    if output.json {
        output.document(&script)?;
    } else {
        output.text(&script)?;
    }
    Ok(ExitCode::SUCCESS)
}
