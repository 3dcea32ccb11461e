//! `trieline lab`: runs the experiments, shows their results as a table or as JSON, and prints generated tables.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::bail;
use clap::{Args, Subcommand};
use trieline_lab::{
    Context,
    experiments::{Asked, LIST, trace_overhead},
    tables::Tables,
};
use trieline_terminal::{Bars, Output, interrupt_flag};

use super::{
    all::{self, AllArgs},
    compare::{self, CompareArgs},
    demo::{self, DemoArgs},
    draw::{self, DrawArgs},
    profile::{self, ProfileArgs},
    report::{self, ReportArgs},
    shared::{QUIET_WITHIN, finish_error, measure, prefixes, save, show},
};

/// The commands of `trieline lab`.
#[derive(Subcommand)]
pub enum Command {
    /// Run an experiment and show its results
    Run(RunArgs),
    /// List the experiments
    List,
    /// Compare two saved documents of an experiment
    Compare(CompareArgs),
    /// Relay messages for trace-overhead (descriptors 0 and 1)
    #[command(hide = true)]
    Broker {
        /// Wait so: busy or blocking
        #[arg(value_parser = ["busy", "blocking"])]
        kind: String,
        /// Stay on this CPU, from 0
        cpu: usize,
    },
    /// Print a generated table of the Internet's shape
    Table(TableArgs),
    /// Print a traffic profile as a script for TRex
    Profile(ProfileArgs),
    /// Draw a small table as a classic trie keeps it
    Draw(DrawArgs),
    /// Show every figure on one page, published and ours
    Report(ReportArgs),
    /// Mirror a table into XDP, and send packets through both
    Demo(DemoArgs),
}

#[derive(Args)]
#[command(
    infer_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "NAME",
    subcommand_help_heading = "Experiments",
    after_help = "`NAME --help` shows the options of an experiment. It needs root. Exit codes: 0 done; 1 failed; 2 the command line is wrong."
)]
pub struct RunArgs {
    /// Write NAME.json and pictures into the folder `results`
    ///
    /// In the current directory.
    #[arg(long, global = true)]
    save: bool,
    /// Measure though other work runs on the machine
    ///
    /// The document then records a busy machine. Without this option, the command ends with exit code 1.
    #[arg(long, global = true)]
    busy: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run every experiment, and save each at once
    All(AllArgs),
    #[command(flatten)]
    One(Asked),
}

#[derive(Args, Debug)]
pub struct TableArgs {
    /// Print so many IPv4 prefixes
    #[arg(long = "ipv4", value_name = "N", default_value_t = 80_000, value_parser = prefixes)]
    prefixes4: usize,
    /// Print so many IPv6 prefixes
    #[arg(long = "ipv6", value_name = "N", default_value_t = 20_000, value_parser = prefixes)]
    prefixes6: usize,
    /// Set the seed: the same seed makes the same table
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs `trieline lab …`.
pub fn run(command: &Command, output: &Output) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(args, output),
        Command::Draw(args) => draw::run(args, output),
        Command::Profile(args) => profile::run(args, output),
        Command::Report(args) => report::run(args, output),
        Command::List => list(output),
        Command::Table(table) => print_table(table, output),
        Command::Run(args) => match &args.what {
            What::All(all) => all::run(all, args.busy, output),
            What::One(asked) => run_experiment(asked, args, output),
        },
        Command::Compare(args) => compare::run(args, output),
        Command::Broker { kind, cpu } => {
            trace_overhead::serve(kind == trace_overhead::Broker::Busy.name(), *cpu)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(output: &Output) -> anyhow::Result<ExitCode> {
    if output.json {
        let list: Vec<_> =
            LIST.iter().map(|one| serde_json::json!({ "name": one.name, "purpose": one.purpose })).collect();
        output.document(&list)?;
    } else {
        let lines: String = LIST.iter().map(|one| format!("{:<14} {}\n", one.name, one.purpose)).collect();
        output.text(&lines)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table(args: &TableArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let tables = Tables::internet(args.prefixes4, args.prefixes6, args.seed);
    let mut text = String::new();
    for prefix in &tables.v4 {
        let _ = writeln!(text, "{prefix}");
    }
    for prefix in &tables.v6 {
        let _ = writeln!(text, "{prefix}");
    }
    if output.json {
        output.document(&text.lines().collect::<Vec<_>>())?;
    } else {
        output.text(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_experiment(asked: &Asked, args: &RunArgs, output: &Output) -> anyhow::Result<ExitCode> {
    if args.save {
        all::keep_full(asked.name, std::env::args().any(|word| word == "--quick"))?;
    }
    let interrupt = interrupt_flag()?;
    let bars = Bars::new();
    let context = Context { progress: &bars, interrupt: &interrupt };
    let finished = match measure(asked, (!args.busy).then_some(QUIET_WITHIN), &context) {
        Ok(finished) => finished,
        Err(error) => return finish_error(error, &interrupt),
    };
    bars.finish();
    if args.save {
        save(finished.as_ref(), &bars)?;
    }
    show(output, finished.as_ref())?;
    match &finished.machine().interrupted {
        None => Ok(ExitCode::SUCCESS),
        Some(at) => bail!("interrupted {at}; the document has what was measured before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cannot_be_are_mistakes() {
        assert_eq!(prefixes("0"), Ok(0));
        for bad in ["x", "-1", "99999999999", "2000001", "99999999999999999999999"] {
            assert!(prefixes(bad).unwrap_err().contains("from 0 to 2000000"), "{bad}");
        }
    }
}
