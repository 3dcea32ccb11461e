//! `trieline trace`: follows messages through unmodified processes and prints where their time goes, and what that cost.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use trieline_terminal::{Output, interrupt_flag, usage};
use trieline_trace::{Cost, Effort, Error, Filter, Live, LiveCost, Options, Tracer, Usage};

use crate::args::{What, seconds};
use crate::command::Traced;
use crate::following::Following;
use crate::liveness::{Left, Liveness};
use crate::outputs::{About, Finished, Now, OutputArgs, Outputs};
use crate::probes;
use crate::records::RecordWriter;
use crate::report::Report;

/// How often records are read; a ring holds many times what comes meanwhile.
const POLL: Duration = Duration::from_millis(2);
/// Exit code of a trace that saw no message and did not fail.
const NO_MESSAGE: u8 = 3;

/// Options of a trace: the messages, and the files.
#[derive(Args, Debug)]
pub struct TraceArgs {
    #[command(flatten)]
    what: What,
    /// End the trace after so many seconds
    ///
    /// A command behind `--` runs on, unless --end-command is given.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// End once so many messages were found
    ///
    /// Messages found together with the last one are kept.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Write the hooks' records for `trieline trace join`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["uprobe", "usdt"])]
    records: Option<PathBuf>,
    /// Fail if records were lost
    #[arg(long)]
    strict: bool,
    /// Do not measure the tracer's own cost first (a second)
    #[arg(long)]
    no_cost: bool,
    /// Measure the hooks' cost while the trace runs
    ///
    /// The tracer switches the hooks off in random windows of 100 ms, about one a second. It neither sees messages in these windows nor
    /// counts them as lost.
    #[arg(long, requires = "pid", conflicts_with_all = ["client", "records"])]
    live_cost: bool,
    /// End the command with the trace: SIGTERM, then SIGKILL
    ///
    /// SIGKILL follows after 2 s.
    #[arg(long, requires = "child")]
    end_command: bool,
    /// Run this command, and trace it and its children
    ///
    /// It outlives the trace unless --end-command is given.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pid", "comm", "cgroup", "container", "unit"])]
    child: Vec<String>,
    // Last: its heading holds for all options after it.
    #[command(flatten)]
    outputs: OutputArgs,
}

/// Runs `trieline trace`.
pub fn run(args: &TraceArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let mut options = args.what.options()?;
    if !args.child.is_empty() {
        // Whatever descends from this process: so nothing of the command is missed.
        options.filter.processes = vec![std::process::id()];
        options.filter.descendants = true;
    }
    options.stages |= args.records.is_some();
    let named = Filter { except: None, ..options.filter.clone() };
    if named == Filter::default() && options.clients.is_empty() {
        let why = "nothing to trace: expected -p, --comm, --cgroup, --container, --unit, --port, --client or a command behind --";
        return Err(usage(why.into()).into());
    }
    options.check_filter()?;
    let cost = if !options.probes.is_empty() {
        Err(probes::COST.to_owned())
    } else if args.no_cost {
        Err("not measured (--no-cost)".to_owned())
    } else {
        measure_cost(&options)?
    };
    let about =
        About { cost: &cost, by: options.by(), json: output.json, has_command: !args.child.is_empty() };
    let mut outputs = Outputs::open(&args.outputs, args.records.as_deref(), &about)?;
    let records = args.records.as_deref().map(RecordWriter::create).transpose()?;
    let interrupt = interrupt_flag()?;
    // Ctrl-C at the terminal goes to the command as well.
    let at_terminal = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&at_terminal))?;
    let mut tracer = Tracer::start(&options)?;
    let mut following = Following::new(&options, tracer.at_queue(), records)?;
    let mut live = args.live_cost.then(|| Live::new(&args.what.pid));
    let mut liveness = Liveness::new(&args.what, options.filter.cgroup)?;
    // Last: from here on nothing may return before the report is printed and the command has been left as the user wants it.
    let mut child =
        args.child.split_first().map(|(program, rest)| Traced::start(program, rest)).transpose()?;
    if !outputs.are_shown() {
        eprintln!("trieline: tracing by hooks at {}", tracer.backend().name());
    }
    let (started, before) = (Instant::now(), Usage::now());
    let enough = args.count.unwrap_or(u64::MAX);
    let mut failure = None;
    while outputs.messages() < enough && !interrupt.load(Ordering::Relaxed) {
        // Before the reading: what came until then is read.
        let left = liveness.check().clone();
        if let Some(cgroup) = liveness.moved() {
            failure = tracer.follow(cgroup).err().map(anyhow::Error::from);
            outputs.note("systemd restarted the service; trieline traces its new cgroup".into());
        }
        let has_ended = child.as_mut().map_or(Ok(false), Traced::has_ended);
        let is_last = matches!(left, Left::Nothing(_))
            || args.duration.is_some_and(|duration| started.elapsed() >= duration)
            || *has_ended.as_ref().unwrap_or(&true);
        failure = failure.or(has_ended.err());
        tracer.poll_events(|event| {
            following.take(&event, |message| outputs.take(&message));
            outputs.event(&event);
        });
        following.drain(tracer.passed_ns(), |message| outputs.take(&message));
        if let Some(error) = following.failure() {
            outputs.fail(&error);
        }
        match left {
            Left::Some => outputs.wait(None),
            Left::Waiting(why) => outputs.wait(Some(why)),
            Left::Nothing(why) => outputs.end(&why),
        }
        if is_last || failure.is_some() {
            break;
        }
        outputs.tick(|| now(&tracer, &following, live.as_ref().map(Live::cost)));
        if let Some(live) = &mut live
            && let Err(error) = live.turn(&mut tracer, |event| {
                following.take(&event, |message| outputs.take(&message));
            })
        {
            failure = Some(error.into());
            break;
        }
        sleep(POLL);
    }
    let live = live.map(|live| live.cost());
    tracer.stop_events(|event| following.take(&event, |message| outputs.take(&message)));
    if let Err(error) = following.finish(tracer.seen(), |message| outputs.take(&message)) {
        outputs.fail(&error);
    }
    let elapsed = started.elapsed();
    let now = now(&tracer, &following, live);
    let Now { counts, seen, .. } = now;
    let stamps = options.stamp.map(|_| tracer.stamps()).transpose();
    let Finished { summary, notes, has_failed } = outputs.finish(now);
    let report = Report {
        backend: tracer.backend(),
        payers: tracer.payers(),
        usage: Usage::now().since(before),
        rings: tracer.rings(),
        refused: tracer.refused(),
        at_queue: tracer.at_queue(),
        cost,
        live,
        summary: &summary,
        ways: following.ways(),
        counts,
        seen,
        decoded: tracer.decoded(),
        elapsed,
        by: options.by(),
        stamps: stamps.as_ref().ok().copied().flatten(),
        notes: &notes,
    };
    let printed = report.print(output);
    let left =
        child.map_or(Ok(()), |child| leave(child, args.end_command, at_terminal.load(Ordering::Relaxed)));
    failure.map_or(Ok(()), Err)?;
    stamps?;
    printed?;
    left?;
    if args.strict && seen.lost + seen.missed > 0 {
        bail!("{} records were lost and {} events missed (--strict)", seen.lost, seen.missed);
    }
    Ok(match (has_failed, report.is_empty()) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(NO_MESSAGE),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// A tracer ends what it traces only if the user asks for that.
fn leave(mut child: Traced, is_to_end: bool, is_interrupted: bool) -> anyhow::Result<()> {
    if is_to_end {
        return child.end();
    }
    if is_interrupted {
        child.wait()?;
    }
    child.leave()
}

fn now(tracer: &Tracer, following: &Following, live: Option<LiveCost>) -> Now {
    let ways = following.ways().map(|ways| ways.times.clone());
    Now { counts: following.counts(), seen: tracer.seen(), ways, live, waiting: None }
}

/// The tracer's own cost; on a restless machine a trace goes without, and reports that.
fn measure_cost(options: &Options) -> anyhow::Result<Result<Cost, String>> {
    match trieline_trace::calibrate(options, Effort::BRIEF) {
        Ok(cost) => Ok(Ok(cost)),
        Err(error @ (Error::Restless { .. } | Error::Calibration { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}
