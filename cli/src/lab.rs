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
use serde::Serialize;
use trieline_lab::{
    Context, Error,
    daemon::Product,
    experiments::{LIST, engines, forward, map_tables, structures, trace_overhead, tries},
    plot,
    report::{Document, Machine, save_picture},
    scatter,
    tables::{Source, Tables},
};

use crate::{
    maps,
    output::Output,
    progress::{Bars, interrupt_flag},
};

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

/// Experiments that re-measure trieline's figures, in network namespaces of their own
#[derive(Args, Debug)]
#[command(
    infer_subcommands = true,
    after_help = "Running an experiment needs root; listing and generating does not."
)]
pub struct LabArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run an experiment and show what it measured
    Run(RunArgs),
    /// List the experiments
    List,
    /// The broker of trace-overhead: standard input and output are its sockets
    #[command(hide = true)]
    Broker {
        /// How it waits: busy or blocking
        #[arg(value_parser = ["busy", "blocking"])]
        kind: String,
        /// The CPU it stays on, from 0
        cpu: usize,
    },
    /// Print a generated table of the Internet's shape, one prefix a line
    Table(TableArgs),
}

#[derive(Args, Debug)]
#[command(
    after_help = "It needs root (structures does not). Exit codes: 0 done; 1 failed; 2 the command line is wrong."
)]
pub(crate) struct RunArgs {
    /// Name of the experiment (see `trieline lab list`)
    pub(crate) name: String,
    /// End within 40 s (structures, engines: a minute): fewer and shorter rounds, smaller tables
    #[arg(long)]
    pub(crate) quick: bool,
    /// Use the prefixes of this file: `prefix [value]` lines, gzip or not, or the output of `ip route`
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Option<PathBuf>,
    /// Directory that holds bgp-table.txt.gz [default: ../shared/data where that lies there, else tables are generated]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Measure only what contains NAME: `decap` also takes decap-full and decap-dt6. Of tables (structures, map-tables, tries), paths (forward),
    /// transports and brokers (trace-overhead: `udp busy`)
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// Entries of the tables, several with commas between [default: the experiment's] (map-curve, map-free, map-ops)
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = entries)]
    pub(crate) entries: Vec<usize>,
    /// Frames a turn [default: 1000000, quick 150000] (forward)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) frames: Option<u64>,
    /// Microseconds from one message to the next [default: 60] (trace-overhead)
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) gap: Option<u64>,
    /// Also write NAME.json and pictures into the folder `results` of the current directory (structures: and the tables of
    /// docs/structure.md, unless the machine was busy)
    #[arg(long)]
    pub(crate) save: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Interleaved rounds [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = rounds)]
    pub(crate) rounds: Option<usize>,
}

#[derive(Args, Debug)]
struct TableArgs {
    /// IPv4 prefixes
    #[arg(long = "ipv4", value_name = "N", default_value_t = 80_000, value_parser = prefixes)]
    prefixes4: usize,
    /// IPv6 prefixes
    #[arg(long = "ipv6", value_name = "N", default_value_t = 20_000, value_parser = prefixes)]
    prefixes6: usize,
    /// Seed: the same seed makes the same table
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs `trieline lab …`.
pub fn run(args: &LabArgs, output: &Output) -> anyhow::Result<ExitCode> {
    match &args.command {
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
        let list: Vec<_> = LIST
            .iter()
            .map(|(name, purpose)| serde_json::json!({ "name": name, "purpose": purpose }))
            .collect();
        output.document(&list)?;
    } else {
        let lines: String = LIST.iter().map(|(name, purpose)| format!("{name:<14} {purpose}\n")).collect();
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
    let interrupt = interrupt_flag()?;
    let bars = Bars::new();
    let context = Context { progress: &bars, interrupt: &interrupt };
    // A unique beginning of the name will do, as with other words.
    let names: Vec<_> =
        LIST.iter().map(|(name, _)| *name).filter(|name| name.starts_with(&args.name)).collect();
    let [name] = names[..] else { bail!(Error::NoExperiment(args.name.clone())) };
    let done = match name {
        "forward" => run_forward(args, output, &context, &bars),
        "structures" => run_structures(args, output, &context, &bars),
        "tries" => run_tries(args, output, &context, &bars),
        engines::NAME => run_engines(args, output, &context, &bars),
        trace_overhead::NAME => crate::traces::overhead(args, output, &context, &bars),
        "trace-hooks" => crate::traces::hooks(args, output, &context, &bars),
        _ => maps::run(name, args, output, &context, &bars),
    };
    match done.map_err(anyhow::Error::downcast) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Ok(error)) => finish_error(error, &interrupt),
        Err(Err(other)) => Err(other),
    }
}

fn run_forward(args: &RunArgs, output: &Output, context: &Context, bars: &Bars) -> anyhow::Result<()> {
    let outcome = forward::run(&forward_options(args, context)?, context)?;
    bars.finish();
    let lines = forward::lines(&outcome.rows);
    save(args, &outcome, &[("forward", "Forwarding, time a frame", lines)], bars)?;
    show(output, &outcome, forward_table(&outcome))
}

fn run_engines(args: &RunArgs, output: &Output, context: &Context, bars: &Bars) -> anyhow::Result<()> {
    let options = engines::Options {
        quick: args.quick,
        table: args.table.clone(),
        data: args.data.clone(),
        seed: args.seed,
        command: command_line(),
        rounds: args.rounds,
        addresses: None,
    };
    let outcome = engines::run(&options, context)?;
    bars.finish();
    keep(args, bars, |directory| outcome.save(directory), || crate::engines::pictures(&outcome))?;
    show_text(output, &outcome, outcome.experiment, &outcome.machine, crate::engines::text(&outcome))
}

fn run_tries(args: &RunArgs, output: &Output, context: &Context, bars: &Bars) -> anyhow::Result<()> {
    let options = tries::Options {
        quick: args.quick,
        only: args.only.clone(),
        data: args.data.clone(),
        seed: args.seed,
        command: command_line(),
        rounds: args.rounds,
    };
    let outcome = tries::run(&options, context)?;
    bars.finish();
    keep(args, bars, |directory| outcome.save(directory), || crate::tries::pictures(&outcome))?;
    show(output, &outcome, crate::tries::text(&outcome))
}

fn run_structures(args: &RunArgs, output: &Output, context: &Context, bars: &Bars) -> anyhow::Result<()> {
    let options = structures::Options {
        quick: args.quick,
        only: args.only.clone(),
        data: args.data.clone(),
        seed: args.seed,
        command: command_line(),
        rounds: args.rounds,
    };
    let outcome = structures::run(&options, context)?;
    bars.finish();
    keep(
        args,
        bars,
        |directory| outcome.save(directory),
        || {
            let panels =
                structures::Family::ALL.map(|family| (family, structures::panels(&outcome.rows, family)));
            let drawn =
                panels.into_iter().filter(|(_, panels)| !panels.is_empty()).map(|(family, panels)| {
                    let title = format!("Memory and time of a lookup (prefix traffic), {}", family.title());
                    let svg = scatter::picture(&title, &outcome.caption(), &panels)?;
                    Ok((format!("structures-{}", family.name()), svg))
                });
            drawn.collect()
        },
    )?;
    if args.save && outcome.machine.load.is_busy() {
        bars.say(&format!(
            "did not write {RESULTS}/structures.md: the machine was busy, and figures for the docs wait for a quiet one{}",
            outcome.machine.load.caption()
        ));
    } else if args.save {
        let path = Path::new(RESULTS).join("structures.md");
        fs::write(&path, structures::markdown(&outcome))
            .with_context(|| format!("writing {}", path.display()))?;
        bars.say(&format!("wrote {}", path.display()));
    }
    show(output, &outcome, structures_table(&outcome))
}

fn structures_table(outcome: &structures::Outcome) -> String {
    let mut rows = vec![
        [
            "table",
            "structure",
            "MiB",
            "build ms",
            "prefix",
            "min",
            "max",
            "rand",
            "dependent",
            "arithmetic",
            "lines",
            "pages",
            "steps",
        ]
        .map(String::from)
        .to_vec(),
    ];
    for row in &outcome.rows {
        let mut cells = vec![row.table.to_owned(), row.structure.to_owned()];
        match (&row.measured, &row.refused) {
            (Some(m), _) => cells.extend([
                format!("{:.2}", m.bytes as f64 / f64::from(1 << 20)),
                format!("{:.1}", m.build_ms),
                format!("{:.1}", m.prefix.ns),
                format!("{:.1}", m.prefix.min),
                format!("{:.1}", m.prefix.max),
                format!("{:.1}", m.rand.ns),
                format!("{:.1}", m.dependent.ns),
                format!("{:.1}", m.arithmetic.ns),
                format!("{:.2}/{}", m.lines, m.lines_max),
                format!("{:.2}/{}", m.pages, m.pages_max),
                m.steps_max.to_string(),
            ]),
            (None, why) => {
                let text = why.as_deref().unwrap_or("refused");
                cells.push(format!("- {}", text.split(':').next().unwrap_or(text)));
            }
        }
        rows.push(cells);
    }
    let p = &outcome.parameters;
    let checked = outcome.rows.iter().filter_map(|row| row.measured.as_ref()).map(|m| m.checked).max();
    let mut text = aligned(&rows, 2);
    let _ = writeln!(
        text,
        "\n{} rounds of {} lookups; ns a lookup: prefix = independent, random addresses inside random prefixes (median, min, max),\n\
         rand = uniformly random addresses, dependent = each waits for the one before, arithmetic = prefix without the popcount\n\
         instruction; lines and pages touched: mean/most; {} answers of each compared with the reference: all agree.",
        p.rounds,
        p.queries,
        checked.unwrap_or(0)
    );
    text
}

fn forward_options(args: &RunArgs, context: &Context) -> anyhow::Result<forward::Options> {
    let data = trieline_lab::tables::source::data_directory(args.data.as_deref())?;
    let (table, tables) = match &args.table {
        Some(file) => (Some(file.clone()), Tables::read(file)?),
        // A quick run has no time to load a million routes into the kernel.
        None if args.quick && args.data.is_none() => (None, Tables::internet(80_000, 20_000, args.seed)),
        None => {
            let file = data.as_ref().map(|d| d.join(trieline_lab::tables::source::BGP_FILE));
            (file, map_tables::internet(data.as_deref(), args.seed, context)?)
        }
    };
    let mut filters = forward::hosts(data.as_deref(), args.seed)?;
    if let Some(only) = &args.only {
        filters.retain(|list| list.path.contains(only));
    }
    Ok(forward::Options {
        quick: args.quick,
        tables,
        table,
        seed: args.seed,
        command: command_line(),
        product: Some(Product::beside_me()?),
        filters,
        only: args.only.clone(),
        rounds: args.rounds,
        frames: args.frames,
    })
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
pub(crate) fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = "trieline".into();
    }
    words.join(" ")
}

/// With `--save`: the document and bars of times.
pub(crate) fn save<P: Serialize, R: Serialize>(
    args: &RunArgs,
    outcome: &Document<P, R>,
    pictures: &[(&str, &str, Vec<plot::Line>)],
    bars: &Bars,
) -> anyhow::Result<()> {
    let unit = "nanoseconds, median with minimum and maximum";
    let draw = |(name, title, list): &(&str, &str, Vec<plot::Line>)| {
        Ok(((*name).to_owned(), plot::picture(title, unit, &outcome.caption(), list)?))
    };
    keep(args, bars, |directory| outcome.save(directory), || pictures.iter().map(draw).collect())
}

/// With `--save`: a document, and its pictures by name.
pub(crate) fn keep(
    args: &RunArgs,
    bars: &Bars,
    document: impl FnOnce(&Path) -> trieline_lab::Result<PathBuf>,
    pictures: impl FnOnce() -> trieline_lab::Result<Vec<(String, String)>>,
) -> anyhow::Result<()> {
    if !args.save {
        return Ok(());
    }
    let directory = Path::new(RESULTS);
    let path = document(directory).context("saving the result")?;
    bars.say(&format!("wrote {}", path.display()));
    for (name, svg) in pictures()? {
        let path = save_picture(directory, &name, &svg)?;
        bars.say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

pub(crate) fn show<P: Serialize, R: Serialize>(
    output: &Output,
    outcome: &Document<P, R>,
    text: String,
) -> anyhow::Result<()> {
    show_text(output, outcome, outcome.experiment, &outcome.machine, text)
}

fn show_text(
    output: &Output,
    document: &impl Serialize,
    experiment: &str,
    m: &Machine,
    text: String,
) -> anyhow::Result<()> {
    if output.json {
        output.document(document)?;
    } else {
        let head = format!(
            "{experiment}: {}, {} cores, Linux {}, commit {}, {}, seed {}{}\n\n",
            m.cpu,
            m.cores,
            m.kernel,
            m.git,
            m.date,
            m.seed,
            m.load.caption()
        );
        output.text(&(head + &text))?;
    }
    Ok(())
}

/// Experiment forward for people.
pub(crate) fn forward_table(outcome: &forward::Outcome) -> String {
    let mut rows = vec![
        [
            "path",
            "plane",
            "bytes",
            "Mpps",
            "ns",
            "min",
            "max",
            "net",
            "ratio",
            "ratio tc",
            "share",
            "delivered",
        ]
        .map(String::from)
        .to_vec(),
    ];
    for row in &outcome.rows {
        let ratio = |ratio: Option<f64>| ratio.map(|r| format!("{r:.2}x")).unwrap_or_default();
        rows.push(vec![
            row.path.into(),
            plane(row.plane).into(),
            row.frame_bytes.to_string(),
            format!("{:.2}", row.mpps),
            format!("{:.1}", row.ns),
            format!("{:.1}", row.ns_min),
            format!("{:.1}", row.ns_max),
            format!("{:.1}", row.ns_net),
            ratio(row.ratio),
            ratio(row.ratio_tc),
            row.share.zip(row.of).map(|(share, of)| format!("{share:.2} of {of}")).unwrap_or_default(),
            delivered(row),
        ]);
    }
    let p = &outcome.parameters;
    let mut text = aligned(&rows, 2);
    let _ = writeln!(
        text,
        "\n{} IPv4 and {} IPv6 routes ({}), {} rounds of {} frames on one core; ns a frame with generator and sink,\n\
         net without the generator; ratio: the kernel's ns over this ns, tc: against the kernel with a tc sink;\n\
         share: the rate as a share of another path's. decap-full is End.DX4 nh4 0.0.0.0: End.DT4 needs a VRF device.",
        p.routes4,
        p.routes6,
        source(p.source),
        p.rounds,
        p.frames
    );
    if let Some(mirror) = &p.mirror {
        let _ = writeln!(
            text,
            "trielined: {} ms from its start to the first frame forwarded by XDP.",
            mirror.start_to_first_forwarded_ms
        );
    }
    text
}

pub(crate) fn plane(plane: forward::Plane) -> &'static str {
    match plane {
        forward::Plane::Kernel => "kernel",
        forward::Plane::KernelTcSink => "kernel-tc-sink",
        forward::Plane::Xdp => "xdp",
    }
}

pub(crate) fn source(source: Source) -> &'static str {
    match source {
        Source::File => "from a file",
        Source::Generated => "generated",
    }
}

/// All frames, or how many are missing.
pub(crate) fn delivered(row: &forward::Row) -> String {
    match row.frames.saturating_sub(row.delivered) {
        0 => "all".into(),
        short => format!("{short} short"),
    }
}

/// Columns as wide as their widest cell: the first `left` flush left but numbers, the others flush right.
pub(crate) fn aligned(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        rows.iter().filter_map(|row| row.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = widths[c];
            let number = cell.bytes().next().is_some_and(|b| b.is_ascii_digit())
                && cell.bytes().all(|b| b.is_ascii_digit());
            let _ = if c < left && !number {
                write!(line, "{cell:<pad$}  ")
            } else {
                write!(line, "{cell:>pad$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
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
