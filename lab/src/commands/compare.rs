//! `trieline lab compare`: tells a change between two saved documents from noise.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use trieline_lab::{compare::compare, results::Saved};
use trieline_terminal::Output;

/// Options of `lab compare`.
#[derive(Args, Debug)]
#[command(
    after_help = "A figure has changed if the intervals of its medians lie apart. Exit codes: 0 compared, changed or not; 1 failed; 2 the command line is wrong."
)]
pub struct CompareArgs {
    /// Compare this document, for example of the last release
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// Compare it with this one, of the same experiment
    #[arg(value_name = "B.json")]
    b: PathBuf,
}

/// Runs the command.
pub fn run(args: &CompareArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let comparison = compare(&Saved::read(&args.a)?, &Saved::read(&args.b)?)?;
    if output.json {
        output.document(&comparison)?;
    } else {
        output.text(&comparison.text())?;
    }
    Ok(ExitCode::SUCCESS)
}
