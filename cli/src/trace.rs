//! `trieline trace`: follows messages through unmodified processes and prints where their time goes, and what that cost.

mod calibrate;
mod report;
mod rows;

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use trieline_trace::{
    By, Cgroup, Cost, Effort, Filter, IdAt, Joiner, Leaves, Message, Options, Rung, Summary, Tracer,
    Transport,
};

use crate::{output::Output, progress::interrupt_flag};
use report::Report;
use rows::Rows;

/// How often records are read; a ring holds many times what comes meanwhile.
const POLL: Duration = Duration::from_millis(2);

/// Follow messages through unmodified processes: from the receive to the send that it led to
#[derive(Args, Debug)]
#[command(
    infer_subcommands = true,
    args_conflicts_with_subcommands = true,
    after_help = "\
B is the receive, as the kernel has copied the message; C is the device's queue (UDP, TCP) or the end of the send (Unix sockets, --done).
T2 is the time from B to C: in the process. What cannot be told is counted, not guessed: see docs/trace.md.
It needs root. Exit codes: 0 done; 1 failed, or records were lost under --strict; 2 the command line is wrong."
)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: Option<TraceCommand>,
    #[command(flatten)]
    what: What,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// End after so many messages
    #[arg(long, value_name = "N", conflicts_with = "histogram")]
    count: Option<u64>,
    /// Fail when records were lost
    #[arg(long)]
    strict: bool,
    /// Do not measure the tracer's own cost first, which takes a second
    #[arg(long)]
    no_cost: bool,
    /// Write each message as a line of comma-separated values
    #[arg(long, value_name = "FILE", conflicts_with = "histogram")]
    csv: Option<PathBuf>,
    /// Write each message as a line of JSON
    #[arg(long, value_name = "FILE", conflicts_with = "histogram")]
    jsonl: Option<PathBuf>,
    /// Run this command and trace it and its children
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pid", "comm", "cgroup"])]
    child: Vec<String>,
}

#[derive(Subcommand, Debug)]
enum TraceCommand {
    /// Measure what the tracer costs here: a message of a traced process, and of any other
    Calibrate(What),
}

/// What is traced, and how.
#[derive(Args, Debug, Clone)]
struct What {
    /// Trace this process; may be given several times
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,
    /// Also its descendants, up to four generations
    #[arg(long, requires = "pid")]
    children: bool,
    /// Trace processes of this name (/proc/PID/comm)
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    /// Trace processes of this cgroup and below it: a directory, in full or below /sys/fs/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Only sockets with this local or remote port
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Only these transports, several with commas between: udp, tcp, unix-stream, unix-datagram
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = transport)]
    transport: Vec<Transport>,
    /// Join by an id in the message, BYTES (1 to 8) at OFFSET, instead of by the thread; RECEIVED/SENT:BYTES where it is sent at
    /// another offset
    #[arg(long, value_name = "OFFSET:BYTES")]
    id: Option<IdAt>,
    /// C is the end of the send, not the device's queue
    #[arg(long)]
    done: bool,
    /// Count times into histograms in the kernel, and note no messages: T2 ends at the first send, whichever socket it is by
    #[arg(long, conflicts_with = "id")]
    histogram: bool,
    /// Only these hooks: functions, sockets or system-calls [default: the first that the kernel accepts]
    #[arg(long, value_name = "NAME", value_parser = rung)]
    hooks: Option<Rung>,
    /// Records that each CPU's ring holds: a power of two
    #[arg(long, value_name = "N", default_value_t = 1 << 16, value_parser = slots)]
    ring: u32,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or("expected seconds above 0".into())
}

fn transport(text: &str) -> Result<Transport, String> {
    let found = Transport::ALL.into_iter().find(|transport| transport.name() == text);
    found.ok_or_else(|| format!("expected one of {}", Transport::ALL.map(Transport::name).join(", ")))
}

fn rung(text: &str) -> Result<Rung, String> {
    let found = Rung::ALL.into_iter().find(|rung| rung.name() == text);
    found.ok_or_else(|| format!("expected one of {}", Rung::ALL.map(Rung::name).join(", ")))
}

fn slots(text: &str) -> Result<u32, String> {
    let slots =
        text.parse().ok().filter(|slots: &u32| slots.is_power_of_two() && (16..=1 << 24).contains(slots));
    slots.ok_or("expected a power of two from 16 to 16777216".into())
}

impl What {
    fn options(&self) -> anyhow::Result<Options> {
        let mut filter = Filter {
            processes: self.pid.clone(),
            descendants: self.children,
            comm: self.comm.clone(),
            cgroup: self.cgroup.as_deref().map(Cgroup::open).transpose()?,
            port: self.port,
            ..Filter::default()
        };
        if !self.transport.is_empty() {
            filter.transports.clone_from(&self.transport);
        }
        let leaves = if self.done { Leaves::Done } else { Leaves::Queue };
        Ok(Options {
            id: self.id,
            leaves,
            slots: self.ring,
            rung: self.hooks,
            histogram: self.histogram,
            ..Options::new(filter)
        })
    }
}

/// Runs `trieline trace`.
pub fn run(args: &TraceArgs, output: &Output) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(TraceCommand::Calibrate(what)) => calibrate::run(&what.options()?, output),
        None => trace(args, output),
    }
}

fn trace(args: &TraceArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let mut options = args.what.options()?;
    if !args.child.is_empty() {
        // Whatever descends from this process: so nothing of the command is missed.
        options.filter.processes = vec![std::process::id()];
        options.filter.descendants = true;
    }
    options.filter.check()?;
    let mut rows = Rows::create(args.csv.as_deref(), args.jsonl.as_deref())?;
    let cost =
        if args.no_cost { Err("not measured (--no-cost)".to_owned()) } else { measure_cost(&options)? };
    let interrupt = interrupt_flag()?;
    let mut tracer = Tracer::start(&options)?;
    let mut child = args.child.split_first().map(|(program, rest)| start(program, rest)).transpose()?;

    let by = if options.id.is_some() { By::Id } else { By::Thread };
    let mut joiner = Joiner::new(by, tracer.at_queue());
    let mut summary = Summary::default();
    let mut failed = None;
    let mut note = |message: Message| {
        summary.add(&message);
        if failed.is_none() {
            failed = rows.write(&message).err();
        }
        summary.messages()
    };
    let started = Instant::now();
    let enough = args.count.unwrap_or(u64::MAX);
    let mut messages = 0;
    while messages < enough && !interrupt.load(Ordering::Relaxed) {
        // Before the reading: what came until then is read.
        let is_last = args.duration.is_some_and(|duration| started.elapsed() >= duration)
            || has_ended(child.as_mut())?
            || all_gone(&args.what.pid);
        tracer.poll(|record| joiner.take(record, |message| messages = note(message)));
        if is_last {
            break;
        }
        sleep(POLL);
    }
    tracer.stop(|record| joiner.take(record, |message| messages = note(message)));
    joiner.finish(|message| messages = note(message));
    let elapsed = started.elapsed();
    if let Some(error) = failed {
        return Err(error);
    }
    rows.finish()?;
    if let Some(child) = &mut child {
        end(child)?;
    }

    let (summary, counts) = tracer.histograms().unwrap_or((summary, joiner.counts()));
    let seen = tracer.seen();
    let report = Report {
        rung: tracer.rung(),
        refused: tracer.refused(),
        at_queue: tracer.at_queue(),
        cost,
        summary: &summary,
        counts,
        seen,
        elapsed,
        by,
    };
    report.print(output)?;
    if args.strict && seen.lost + seen.missed > 0 {
        bail!("{} records were lost and {} events missed (--strict)", seen.lost, seen.missed);
    }
    Ok(ExitCode::SUCCESS)
}

/// The tracer's own cost; on a restless machine a trace goes without, and says so.
fn measure_cost(options: &Options) -> anyhow::Result<Result<Cost, String>> {
    match trieline_trace::calibrate(options, Effort::BRIEF) {
        Ok(cost) => Ok(Ok(cost)),
        Err(error @ trieline_trace::Error::Restless { .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

fn start(program: &str, arguments: &[String]) -> anyhow::Result<Child> {
    Command::new(program).args(arguments).spawn().with_context(|| format!("starting {program}"))
}

fn has_ended(child: Option<&mut Child>) -> anyhow::Result<bool> {
    Ok(child.map(Child::try_wait).transpose()?.flatten().is_some())
}

/// Ends a command that the trace has outlived its use for.
fn end(child: &mut Child) -> anyhow::Result<()> {
    if child.try_wait()?.is_none() {
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    }
    let status = child.wait()?;
    if !status.success() {
        eprintln!("trieline: the command ended with {status}");
    }
    Ok(())
}

/// Whether processes were named and none is left.
fn all_gone(processes: &[u32]) -> bool {
    !processes.is_empty() && !processes.iter().any(|pid| PathBuf::from(format!("/proc/{pid}")).exists())
}
