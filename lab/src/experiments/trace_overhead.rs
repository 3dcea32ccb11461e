//! Experiment `trace-overhead`: what ways to take times inside a broker add to a message's way from sender to receiver, and to the
//! broker's time on the processor: the paper's experiment, whole, with the product's tracer beside its ways.

mod bench;
mod broker;
mod document;
mod methods;
mod text;

use std::{path::Path, time::Duration};

use trieline_trace::{Rounds, Transport};

pub use bench::Broker;
pub use broker::serve;
pub use document::{Parameters, Row, groups};
pub use methods::Method;
pub(super) use text::whole;

use self::{
    bench::{Bench, Segment},
    document::rows,
    methods::{Idle, Taking},
};
use super::{Options, probed::Tracefs};
use crate::{
    Context, Error, Result,
    error::During as _,
    in_own_thread, netns, published,
    report::{Document, Machine},
};

/// Its name.
pub const NAME: &str = "trace-overhead";
/// Messages of the paper, for each way.
pub const MESSAGES: usize = 100_000;
/// From one message to the next, as in the paper.
pub const GAP: Duration = Duration::from_micros(60);
/// Messages that one way has at a stretch.
const SEGMENT: usize = 1000;
/// The same in a quick run.
const SEGMENT_QUICK: usize = 100;
/// Records that a CPU's ring must hold: a segment's.
const RING: u32 = 1 << 13;

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// A way's turn in a round.
pub(crate) struct Sample {
    /// Mean of the messages' ways, the quickest 5 % and the slowest 10 % left out.
    way_ns: f64,
    cpu_ns: f64,
    ways_ns: Vec<u32>,
}

/// Runs it; blocks until the end.
pub fn run(options: &Options, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(options, context))
}

fn run_here(options: &Options, context: &Context) -> Result<Outcome> {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    if cpus < 2 {
        return Err(Error::OneProcessor);
    }
    let machine = Machine::here(options.command.clone(), options.seed);
    let gap = options.gap.map_or(GAP, Duration::from_micros);
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().during(|| "cannot find this program".into())?,
    };
    let (source, published) = published::overhead()?;
    let segment = if options.quick { SEGMENT_QUICK } else { SEGMENT };
    let wanted = options.rounds.unwrap_or(if options.quick { 8 } else { MESSAGES / SEGMENT });
    let _tracefs = Tracefs::mount()?;
    netns::pin_to(0)?;
    netns::insist_here()?;
    let mut all = Vec::new();
    let (mut kept, mut made) = (0, 0);
    for transport in [Transport::Udp, Transport::Tcp, Transport::UnixStream] {
        for broker in [Broker::Busy, Broker::Blocking] {
            let name = format!("{} {}", transport.name(), broker.name());
            if options.only.as_ref().is_some_and(|only| !name.contains(only)) {
                continue;
            }
            let cpu = cpus - 1;
            let cell = Cell {
                program: &program,
                seed: options.seed,
                gap,
                context,
                transport,
                broker,
                cpu,
                segment,
                wanted,
            };
            let (rounds, takings) = cell.measure(&name)?;
            kept += rounds.kept.len();
            made += rounds.made;
            all.extend(rows(transport, broker, &rounds, &takings, &published)?);
        }
    }
    if all.is_empty() {
        return Err(Error::NoCase(options.only.clone().unwrap_or_default()));
    }
    Ok(Document {
        experiment: NAME,
        version: 1,
        machine,
        parameters: Parameters {
            quick: options.quick,
            gap_us: gap.as_micros() as u64,
            segment,
            rounds: kept,
            rounds_made: made,
            layout: "sender and receiver in one thread on CPU 0, the broker on the last CPU; 64 bytes a message; one broker process for all \
                     ways, each message says which is its own",
            delta: "median of the rounds' differences to `none`, in whose order the ways are random; a round's figure is the mean of its segment without the quickest 5 % and the \
                    slowest 10 %; 95 % intervals by rank; rounds in which a processor's speed changed by more than 6 % are left out",
            cpu: "processor time of the broker a message, in batches of 64 that lie ready: what follows the send is in it",
            records: "records are read after each segment, not during it, from rings of 8192, which caches hold: what `hooks` and `hooks-id` add is a \
                      lower bound of what they do in a trace, whose rings are larger and read meanwhile",
            published: source,
        },
        rows: all,
    })
}

/// One transport with one kind of broker.
struct Cell<'c> {
    /// Which has the command `broker`.
    program: &'c Path,
    seed: u64,
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
        let rounds = Rounds::take(takings.len(), self.wanted, self.seed, |case, gate| {
            self.context.check()?;
            let (method, taking) = (Method::ALL[case], &mut takings[case]);
            taking.on()?;
            gate.step();
            let segment = bench.segment(method.own(), self.segment, self.gap)?;
            gate.step();
            segment.gate.iter().for_each(|seconds| gate.add(*seconds));
            taking.off(&segment, noted)?;
            noted = segment.noted;
            progress.advance(1);
            Ok::<_, Error>(Sample::of(segment))
        })?;
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
