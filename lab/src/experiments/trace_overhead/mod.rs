//! Experiment `trace-overhead`: what ways to take times inside a broker add to a message's way from sender to receiver, and to the broker's
//! processor time. It is the paper's experiment, whole, with the product's tracer beside its ways.

mod bench;
mod broker;
mod document;
mod methods;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use trieline_trace::Transport;

pub use bench::Broker;
pub use broker::serve;
pub use document::{Outcome, Parameters, Row};
pub use methods::Method;

use self::{
    bench::{Bench, Sample, Segment},
    document::rows,
    methods::{Idle, MESSAGES, Taking},
};
use super::{
    experiment::{Compared, Experiment, Figure},
    options::{Only, Run},
    probed::Tracefs,
};
use crate::{
    Context, Error, Result, error::During as _, in_own_thread, measure::Rounds, netns, published,
    report::Document,
};

/// Microseconds from one message to the next, as in the paper.
const GAP_US: u64 = 60;
/// Messages that one way has at a stretch.
const SEGMENT: usize = 1000;
/// The same in a quick run.
const SEGMENT_QUICK: usize = 100;
/// Records that a CPU's ring must hold: a segment's.
const RING: u32 = 1 << 13;

/// Its options.
#[derive(Args, Clone, Debug)]
pub struct TraceOverhead {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which cases.
    #[command(flatten)]
    pub only: Only,
    /// Wait so many microseconds between messages
    #[arg(long, value_name = "US", default_value_t = GAP_US, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub gap: u64,
    /// The program that has the command `broker`; this one if unset.
    #[arg(skip)]
    pub program: Option<PathBuf>,
}

impl Experiment for TraceOverhead {
    const NAME: &'static str = "trace-overhead";
    const PURPOSE: &'static str =
        "ways to take times inside a broker and what each adds to a message's way: the paper's experiment";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["method", "transport", "broker"],
        figures: &[
            Figure::lower("delta_ns").within("ci_low", "ci_high"),
            Figure::lower("cpu_ns").within("cpu_ci_low", "cpu_ci_high"),
        ],
    }];
    const CODE: &'static [&'static str] = &["trace/src", "trace/bpf"];
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| run_here(self, context))
    }
}

fn run_here(asked: &TraceOverhead, context: &Context) -> Result<Outcome> {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    if cpus < 2 {
        return Err(Error::OneProcessor);
    }
    let machine = asked.run.machine();
    let gap = Duration::from_micros(asked.gap);
    let program = match &asked.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().during(|| "cannot find this program".into())?,
    };
    let (source, published) = published::overhead()?;
    let segment = if asked.run.quick { SEGMENT_QUICK } else { SEGMENT };
    let wanted = asked.run.rounds(8, MESSAGES / SEGMENT);
    let _tracefs = Tracefs::mount()?;
    netns::pin_to(0)?;
    netns::insist_here()?;
    let mut all = Vec::new();
    let mut taken = 0;
    'cells: for transport in [Transport::Udp, Transport::Tcp, Transport::UnixStream] {
        for broker in [Broker::Busy, Broker::Blocking] {
            let name = format!("{} {}", transport.name(), broker.name());
            if !asked.only.takes(&name) {
                continue;
            }
            let cpu = cpus - 1;
            let cell = Cell {
                program: &program,
                run: &asked.run,
                gap,
                context,
                transport,
                broker,
                cpu,
                segment,
                wanted,
            };
            let part = cell.measure(&name).and_then(|(rounds, takings)| {
                taken += rounds.len();
                all.extend(rows(transport, broker, &rounds, &takings, &published)?);
                Ok(())
            });
            if asked.run.ends(context, part, !all.is_empty())? {
                break 'cells;
            }
        }
    }
    let all = asked.only.some(all)?;
    let parameters = Parameters {
        quick: asked.run.quick,
        gap_us: gap.as_micros() as u64,
        segment,
        rounds: taken,
        layout: "sender and receiver in one thread on CPU 0, the broker on the last CPU; 64 bytes a message; one broker process for all \
                     ways, each message says which is its own",
        delta: "median of the rounds' differences to `none`, in whose order the ways are random; a round's figure is the mean of its segment without the quickest 5 % and the \
                    slowest 10 %; 95 % intervals by rank",
        cpu: "processor time of the broker a message, in batches of 64 that lie ready: what follows the send is in it",
        records: "records are read after each segment, not during it, from rings of 8192, which caches hold; what `hooks` and `hooks-id` add is a \
                      lower bound of what they do in a trace, whose rings are larger and read meanwhile",
        published: source,
    };
    Ok(Document::new(TraceOverhead::NAME, machine, parameters, all))
}

/// One transport with one kind of broker.
struct Cell<'c> {
    /// Which has the command `broker`.
    program: &'c Path,
    run: &'c Run,
    gap: Duration,
    context: &'c Context<'c>,
    transport: Transport,
    broker: Broker,
    /// The broker's.
    cpu: usize,
    segment: usize,
    wanted: usize,
}

impl Cell<'_> {
    fn measure(&self, name: &str) -> Result<(Rounds<Sample>, Vec<Taking>)> {
        let progress = self.context.progress;
        progress.phase(&format!("{name}: rounds"), (self.wanted * Method::ALL.len()) as u64);
        let mut bench = Bench::start(self.program, self.transport, self.broker, self.cpu)?;
        let idle = Idle::start()?;
        let load = |method| Taking::load(method, bench.process(), &idle, self.transport, RING);
        let mut takings = Method::ALL.into_iter().map(load).collect::<Result<Vec<_>>>()?;
        let mut noted = 0;
        let count = (self.wanted, takings.len());
        let rounds = self.run.take(
            self.context,
            name,
            count,
            || false,
            |case, gate| {
                let (method, taking) = (Method::ALL[case], &mut takings[case]);
                taking.on()?;
                let segment = bench.segment(method.own(), self.segment, self.gap)?;
                segment.gate.iter().for_each(|seconds| gate.add(*seconds));
                taking.off(&segment, noted)?;
                noted = segment.noted;
                Ok(Sample::of(segment))
            },
        )?;
        Ok((rounds, takings))
    }
}

impl Sample {
    fn of(segment: Segment) -> Sample {
        let mut ways_ns = segment.way_ns;
        ways_ns.sort_unstable();
        let inner = &ways_ns[ways_ns.len() / 20..ways_ns.len() - ways_ns.len() / 10];
        let sum: u64 = inner.iter().map(|ns| u64::from(*ns)).sum();
        Sample { way_ns: sum as f64 / inner.len() as f64, cpu_ns: segment.cpu_ns, ways_ns }
    }
}
