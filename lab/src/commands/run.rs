//! `trieline lab`: runs the experiments, shows their results as a table or as JSON, and prints generated tables.

use std::{
    fmt::Write as _,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use trieline_lab::{
    Context, Error,
    experiments::{LIST, Options, trace_overhead},
    report::Finished,
    tables::Tables,
};
use trieline_terminal::{Bars, Output, interrupt_flag};

use super::demo::{self, DemoArgs};

/// Most prefixes of a family that are generated: within about a minute.
const PREFIXES_MAX: usize = 2_000_000;
/// Most entries of a table of hosts: some GiB in an LPM_TRIE.
const ENTRIES_MAX: usize = 10_000_000;
/// Most rounds: days.
const ROUNDS_MAX: usize = 10_000;

/// A number of prefixes to generate.
pub(crate) fn prefixes(text: &str) -> Result<usize, String> {
    within(text, 0..=PREFIXES_MAX)
}

fn rounds(text: &str) -> Result<usize, String> {
    within(text, 1..=ROUNDS_MAX)
}

fn entries(text: &str) -> Result<usize, String> {
    within(text, 1..=ENTRIES_MAX)
}

fn within(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
}

/// Directory of `--save`.
const RESULTS: &str = "results";

/// The commands of `trieline lab`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run an experiment and show its results
    Run(RunArgs),
    /// List the experiments
    List,
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
    /// Mirror a table into XDP, and send packets through both
    Demo(DemoArgs),
}

#[derive(Args, Debug)]
#[command(
    after_help = "It needs root (structures does not). Exit codes: 0 done; 1 failed; 2 the command line is wrong."
)]
pub struct RunArgs {
    /// Run this experiment (see `trieline lab list`)
    name: String,
    /// End within 40 s (structures, engines: a minute)
    ///
    /// With fewer and shorter rounds, and smaller tables.
    #[arg(long)]
    quick: bool,
    /// Use the prefixes of this file
    ///
    /// `prefix [value]` lines, gzip or not, or the output of `ip route`.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Find bgp-table.txt.gz in this directory
    ///
    /// By default in ../shared/data; without it, tables are generated.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Measure only cases whose name contains NAME
    ///
    /// `decap` also takes decap-full and decap-dt6. Tables (structures, map-tables, tries), paths (forward), transports and brokers
    /// (trace-overhead: `udp busy`) have names.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Set the tables' entries, with commas between
    ///
    /// By default the experiment's (map-curve, map-free, map-ops).
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = entries)]
    entries: Vec<usize>,
    /// Send so many frames a turn [default: 1000000, quick 150000]
    ///
    /// For forward.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    frames: Option<u64>,
    /// Wait so many microseconds between messages [default: 60]
    ///
    /// For trace-overhead.
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    gap: Option<u64>,
    /// Write NAME.json and pictures into the folder `results`
    ///
    /// In the current directory. For structures: also the tables of docs/structure.md, unless the machine was busy.
    #[arg(long)]
    save: bool,
    /// Set the seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run so many rounds [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = rounds)]
    rounds: Option<usize>,
}

impl RunArgs {
    fn options(&self) -> Options {
        Options {
            quick: self.quick,
            only: self.only.clone(),
            table: self.table.clone(),
            data: self.data.clone(),
            entries: self.entries.clone(),
            frames: self.frames,
            gap: self.gap,
            seed: self.seed,
            rounds: self.rounds,
            command: command_line("lab "),
            ..Options::default()
        }
    }
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
        Command::List => list(output),
        Command::Table(table) => print_table(table, output),
        Command::Run(run) => run_experiment(run, output),
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

fn run_experiment(args: &RunArgs, output: &Output) -> anyhow::Result<ExitCode> {
    // A unique beginning of the name will do, as with other words.
    let named: Vec<_> = LIST.iter().filter(|one| one.name.starts_with(&args.name)).collect();
    let [experiment] = named[..] else { bail!(Error::NoExperiment(args.name.clone())) };
    let interrupt = interrupt_flag()?;
    let bars = Bars::new();
    let context = Context { progress: &bars, interrupt: &interrupt };
    let finished = match (experiment.run)(&args.options(), &context) {
        Ok(finished) => finished,
        Err(error) => return finish_error(error, &interrupt),
    };
    bars.finish();
    if args.save {
        save(finished.as_ref(), &bars)?;
    }
    show(output, finished.as_ref())?;
    Ok(ExitCode::SUCCESS)
}

/// The error of an experiment; an interrupted one says only that.
pub(crate) fn finish_error(error: Error, interrupt: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let left = trieline_lab::netns::left().join(" ");
    let advice = format!("network namespaces left behind (`ip netns del`): {left}");
    match (interrupt.load(Ordering::Relaxed), left.is_empty()) {
        // Whatever failed, failed because of that.
        (true, true) => bail!("interrupted; everything made for the experiment is removed"),
        (true, false) => bail!("interrupted; {advice}"),
        (false, true) => Err(error.into()),
        (false, false) => bail!("{error}; {advice}"),
    }
}

/// The command line as a user would type it again, without the directories of this machine.
pub(crate) fn command_line(words: &str) -> String {
    let rest: Vec<String> = std::env::args().skip(1).collect();
    format!("trieline {words}{}", rest.join(" "))
}

/// With `--save`: the document, its pictures, and its page for the docs unless the machine was busy.
fn save(finished: &dyn Finished, bars: &Bars) -> anyhow::Result<()> {
    let directory = Path::new(RESULTS);
    let wrote = |path: &Path| bars.say(&format!("wrote {}", path.display()));
    wrote(&finished.save(directory).context("cannot save the result")?);
    for picture in finished.pictures()? {
        wrote(&picture.save(directory)?);
    }
    if let Some(page) = finished.page() {
        let path = directory.join(format!("{}.md", finished.experiment()));
        let load = &finished.machine().load;
        if load.is_busy() {
            bars.say(&format!(
                "did not write {}: the machine was busy, and figures for the docs wait for a quiet one{}",
                path.display(),
                load.caption()
            ));
        } else {
            fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
            wrote(&path);
        }
    }
    Ok(())
}

fn show(output: &Output, finished: &dyn Finished) -> anyhow::Result<()> {
    if output.json {
        return output.text(&finished.json(output.pretty)?);
    }
    let m = finished.machine();
    let head = format!(
        "{}: {}, {} cores, Linux {}, commit {}, {}, seed {}{}\n\n",
        finished.experiment(),
        m.cpu,
        m.cores,
        m.kernel,
        m.git,
        m.date,
        m.seed,
        m.load.caption()
    );
    output.text(&(head + &finished.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cannot_be_are_mistakes() {
        assert_eq!((prefixes("0"), rounds("1")), (Ok(0), Ok(1)));
        assert!(rounds("0").unwrap_err().contains("from 1 to"));
        assert!(entries("0").is_err() && entries("10000001").is_err() && entries("10000000").is_ok());
        for bad in ["x", "-1", "99999999999", "2000001", "99999999999999999999999"] {
            assert!(prefixes(bad).unwrap_err().contains("from 0 to 2000000"), "{bad}");
        }
    }
}
