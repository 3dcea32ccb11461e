//! The tracer's cost, measured where it runs: a private pair of sockets of each traced transport, without hooks, beside a trace, and
//! traced.
//!
//! To attach a hook the kernel changes its code on all CPUs, so that is done seldom. For a few rounds at a time the hooks stay on, and
//! whether the pair is traced is only written into their memory.

mod live;
mod pair;

use std::fs;
use std::path::Path;
use std::thread;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::filter::{Cgroup, Filter};
use crate::options::Options;
use crate::payers::{Payer, QUEUE};
use crate::record::{Point, Transport};
use crate::tracer::Tracer;
pub use live::{Live, LiveCost};
use pair::Pair;
use trieline_sampling::{Gate, Median, Rounds};

/// No process has this number (`PID_MAX_LIMIT` is 2^22).
const NOBODY: u32 = i32::MAX as u32;

/// Records of the largest ring that is measured with: going around a larger one would take too long.
const RING_MAX: u32 = 1 << 16;
/// Records of a message at most: its receive, its send at the queue, and at the end of the call; and one to spare.
const RECORDS: u32 = 4;

/// Rounds for which the hooks stay on, and then off.
const BLOCK: usize = 4;
/// Blocks that may be made for each that is needed.
const ATTEMPTS: usize = 2;

/// The effort of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Rounds to keep, each with all three cases of each transport; up to twice as many are made on a restless machine.
    pub rounds: usize,
    /// The quickest of so many chunks is a case's sample.
    pub chunks: usize,
    /// Messages sent and received in a chunk.
    pub messages: usize,
}

impl Effort {
    /// About a second on a quiet machine: at the start of a trace.
    pub const BRIEF: Effort = Effort { rounds: 16, chunks: 5, messages: 250 };
    /// About ten seconds on a quiet machine.
    pub const THOROUGH: Effort = Effort { rounds: 60, chunks: 8, messages: 400 };
}

/// The tracer's cost for one message: a send and a receive in one thread, over each traced transport.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// By which hooks.
    pub backend: Backend,
    /// All that are attached, and who pays for them.
    pub payers: Vec<Payer>,
    /// Over each transport, in the order of [`Transport::ALL`]; one is left out where the machine was too restless.
    pub transports: Vec<TransportCost>,
    /// Programs attached for the measuring: each time the kernel's code was changed on all CPUs.
    pub attachments: usize,
}

/// The cost over one transport.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransportCost {
    /// The transport.
    pub transport: Transport,
    /// Without hooks, nanoseconds a message.
    pub base_ns: f64,
    /// Added to a process that is not traced.
    pub bystander: Median,
    /// Added to one that is.
    pub traced: Median,
    /// Hooks that run for a message; over TCP those of acknowledgements come on top.
    pub hooks: usize,
    /// The receive's hook from its clock on, by the clock.
    pub tail_ns: f64,
    /// The send's hook up to its clock.
    pub head_ns: f64,
    /// Rounds in which the processor kept its speed.
    pub kept: usize,
    /// Rounds made.
    pub rounds: usize,
}

impl TransportCost {
    /// How much of T2 is the tracer itself. It is the first hook from its clock on, the way out of it and into the second, and that one up to its
    /// clock. The way is what a hook costs that finds a process which is not traced; that it asks for it is in both, some nanoseconds.
    pub fn inside_ns(&self) -> f64 {
        (self.tail_ns + self.head_ns + self.hook_ns()).max(0.0)
    }

    /// A hook that finds a process which is not traced.
    fn hook_ns(&self) -> f64 {
        self.bystander.value / self.hooks as f64
    }
}

impl Cost {
    /// Over this transport, if it was measured.
    pub fn of(&self, transport: Transport) -> Option<&TransportCost> {
        self.transports.iter().find(|cost| cost.transport == transport)
    }

    /// About what a packet pays that no process sends, as one that is forwarded. That is the one hook at the device's queue, by what each hook
    /// costs a process that is not traced. `None`: no hook is there.
    pub fn packet_ns(&self) -> Option<f64> {
        let is_there = self.payers.iter().any(|payer| payer.hook == QUEUE);
        let each = self.transports.iter().filter(|cost| cost.transport != Transport::Tcp);
        let each = each.chain(&self.transports).next()?;
        is_there.then(|| each.hook_ns().max(0.0))
    }
}

/// Measures the cost of a trace with these options, on a thread of its own.
pub fn calibrate(options: &Options, effort: Effort) -> Result<Cost> {
    if !options.probes.is_empty() {
        return Err(Error::Argument(
            "what is measured is a pair of sockets: what probes in functions cost depends on the functions; --live-cost measures it on the \
             process"
                .into(),
        ));
    }
    // Bytes are captured, but these messages are of no protocol, and this process is not a client.
    let mut own = Options { decode: None, clients: Vec::new(), ..options.clone() };
    if options.is_clients_only() {
        own.filter.processes.push(NOBODY);
    }
    let options = Options { slots: options.slots.min(RING_MAX), ..own };
    thread::spawn(move || measure(options, effort))
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Transports that are traced.
fn transports(filter: &Filter) -> Vec<Transport> {
    let has_port = |transport: &Transport| filter.port.is_none() || *transport <= Transport::Tcp;
    let traced = |transport: &Transport| filter.transports.contains(transport);
    Transport::SOCKETS.into_iter().filter(has_port).filter(traced).collect()
}

/// A pair with what was measured on it: of each round the three cases.
struct Measured {
    pair: Pair,
    rounds: Rounds<f64>,
    /// Rounds made; not all are kept.
    made: usize,
    /// Of the block that is being measured, and whether the processor kept its speed in its rounds.
    block: [[f64; 3]; BLOCK],
    gates: [Gate; BLOCK],
    inside: (f64, f64),
}

/// The kind of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// No hooks.
    Bare,
    /// The hooks, and this process is not traced.
    Bystander,
    /// The hooks, and it is.
    Traced,
}

fn measure(options: Options, effort: Effort) -> Result<Cost> {
    let pairs = transports(&options.filter).into_iter().map(Pair::new).collect::<Result<Vec<_>>>()?;
    let mut all: Vec<Measured> = pairs.into_iter().map(Measured::new).collect();
    pair::pin()?;
    let traced = stand_in(&options.filter, true, 0)?;
    let attach = |inside| {
        let options = Options { filter: traced.clone(), ..options.clone() };
        Ok::<_, Error>(Bench::new(Tracer::attach_timed(&options, inside)?, effort))
    };
    // One after the other: each has rings.
    let mut timed = attach(true)?;
    for measured in &mut all {
        timed.aim(&options.filter, true, &measured.pair)?;
        measured.inside = timed.inside(&measured.pair)?;
    }
    let before = timed.tracer.attachments();
    drop(timed);
    let mut bench = attach(false)?;
    if let Some(Measured { pair, .. }) = all.first() {
        bench.aim(&options.filter, true, pair)?;
        bench.go_around(pair)?;
    }
    let mut is_on = true;
    for _ in 0..ATTEMPTS * effort.rounds.div_ceil(BLOCK) {
        if all.iter().all(|measured| measured.rounds.len() >= effort.rounds) {
            break;
        }
        // On, off; off, on; and so forth: what drifts does so for both, and the hooks are attached every other time only.
        for phase in [is_on, !is_on] {
            if phase != is_on {
                bench.switch(phase)?;
                is_on = phase;
            }
            for measured in &mut all {
                measured.sample(&mut bench, &options.filter, is_on)?;
            }
        }
        all.iter_mut().for_each(Measured::end_block);
    }
    let tracer = &bench.tracer;
    let stated: Vec<_> = all.iter().filter_map(|measured| measured.cost(tracer)).collect();
    if stated.is_empty() {
        let most = |of: fn(&Measured) -> usize| all.iter().map(of).max().unwrap_or(0);
        let (kept, rounds) = (most(|one| one.rounds.len()), most(|one| one.made));
        return Err(Error::Restless { kept, rounds });
    }
    Ok(Cost {
        backend: tracer.backend(),
        payers: tracer.payers(),
        transports: stated,
        attachments: before + tracer.attachments(),
    })
}

impl Measured {
    fn new(pair: Pair) -> Measured {
        Measured {
            pair,
            rounds: Rounds(Vec::new()),
            made: 0,
            block: [[0.0; 3]; BLOCK],
            gates: Default::default(),
            inside: (f64::NAN, f64::NAN),
        }
    }

    /// The cases that there are with the hooks on, or off, in every round of a block.
    fn sample(&mut self, bench: &mut Bench, filter: &Filter, is_on: bool) -> Result<()> {
        let cases: &[Case] = if is_on { &[Case::Bystander, Case::Traced] } else { &[Case::Bare] };
        for (round, gate) in self.gates.iter_mut().enumerate() {
            for step in 0..cases.len() {
                let case = cases[(round + step) % cases.len()];
                if is_on {
                    bench.aim(filter, case == Case::Traced, &self.pair)?;
                }
                gate.step();
                self.block[round][case as usize] = bench.sample(&self.pair, case)?;
                gate.step();
            }
        }
        Ok(())
    }

    fn end_block(&mut self) {
        for (cases, gate) in self.block.iter().zip(&mut self.gates) {
            self.made += 1;
            if gate.end_round() {
                self.rounds.0.push(cases.to_vec());
            }
        }
    }

    /// `None`: too few rounds were kept.
    fn cost(&self, tracer: &Tracer) -> Option<TransportCost> {
        let Measured { pair: Pair { transport, .. }, rounds, made, inside: (tail_ns, head_ns), .. } = self;
        let delta = |case: Case| rounds.delta(case as usize, Case::Bare as usize, |ns| *ns);
        rounds.are_enough().then(|| TransportCost {
            transport: *transport,
            base_ns: rounds.median(Case::Bare as usize, |ns| *ns),
            bystander: delta(Case::Bystander),
            traced: delta(Case::Traced),
            hooks: tracer.fires(*transport),
            tail_ns: *tail_ns,
            head_ns: *head_ns,
            kept: rounds.len(),
            rounds: *made,
        })
    }
}

/// The hooks, and how they are tried.
struct Bench {
    tracer: Tracer,
    chunks: usize,
    /// Of a chunk: no more than the ring holds, which nothing reads meanwhile.
    messages: usize,
    thread: u32,
}

impl Bench {
    fn new(tracer: Tracer, effort: Effort) -> Bench {
        let room = (tracer.rings().slots / RECORDS) as usize;
        let messages = effort.messages.min(room);
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        Bench { tracer, chunks: effort.chunks, messages: messages.max(1), thread }
    }

    /// Whether this pair is traced from now on.
    fn aim(&mut self, filter: &Filter, is_traced: bool, pair: &Pair) -> Result<()> {
        self.tracer.aim(&stand_in(filter, is_traced, pair.port())?)
    }

    fn switch(&mut self, is_on: bool) -> Result<()> {
        if is_on {
            return self.tracer.resume();
        }
        self.tracer.stop(|_| ());
        Ok(())
    }

    /// Once around the ring, so that no page of it is new to the samples.
    fn go_around(&mut self, pair: &Pair) -> Result<()> {
        for _ in 0..(self.tracer.rings().slots / 2).div_ceil(self.messages as u32) {
            pair.chunk(self.messages)?;
            self.tracer.drain(|_| ());
        }
        Ok(())
    }

    /// Nanoseconds a message that the receive's hook runs from its clock on and the send's up to its clock. It is the least of several
    /// samples, which leaves interrupts out.
    fn inside(&mut self, pair: &Pair) -> Result<(f64, f64)> {
        let mut least = (f64::INFINITY, f64::INFINITY);
        for _ in 0..self.chunks {
            let before = self.tracer.inside_ns();
            pair.chunk(self.messages)?;
            let after = self.tracer.inside_ns();
            self.tracer.drain(|_| ());
            let each = |after: u64, before: u64| (after - before) as f64 / self.messages as f64;
            // Each interval holds about one reading of the clock, half at either end: one of the two is not the hook's.
            let clock = each(after.clock, before.clock) / 2.0;
            least.0 = least.0.min(each(after.tail, before.tail) - clock);
            least.1 = least.1.min(each(after.head, before.head) - clock);
        }
        Ok(least)
    }

    /// Nanoseconds a message. The hooks' records are counted: a hook that does not fire is not cheap.
    fn sample(&mut self, pair: &Pair, case: Case) -> Result<f64> {
        let mut points = [0u64; Point::ALL.len()];
        let mut best = f64::INFINITY;
        for _ in 0..self.chunks {
            best = best.min(pair.chunk(self.messages)?);
            let thread = self.thread;
            // Without hooks, too: what is done between chunks is the same for all cases.
            self.tracer.drain(|record| {
                // Packets of other sockets are queued on this thread's time as well.
                let is_own = record.thread == thread && record.transport == pair.transport;
                points[record.point as usize] += u64::from(is_own);
            });
        }
        let moved = (self.chunks * self.messages) as u64;
        let expected = if case == Case::Traced { moved } else { 0 };
        let of = |point: Point| points[point as usize];
        let (received, sent) = (of(Point::Received), of(Point::Queued) + of(Point::Sent));
        if (received, sent) != (expected, expected) {
            return Err(Error::Calibration { transport: pair.transport, moved, received, sent, expected });
        }
        Ok(best)
    }
}

/// A filter that asks the same questions as the user's, and lets this process pass, or none.
fn stand_in(filter: &Filter, is_traced: bool, port: u16) -> Result<Filter> {
    let path = Path::new("/proc/self/comm");
    let comm = || {
        let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.into(), source })?;
        Ok::<_, Error>(if is_traced { text.trim_end().to_owned() } else { "\u{1}".into() })
    };
    let own = rustix::process::getpid().as_raw_nonzero().get() as u32;
    // Others may be called the same, or be in the same cgroup, so this process is named as well. One that is not traced fails at the first
    // of the user's questions.
    let process = if is_traced || filter.processes.is_empty() { own } else { NOBODY };
    let cgroup = || -> Result<Cgroup> {
        let path = Path::new("/proc/self/cgroup");
        let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.into(), source })?;
        let own =
            Cgroup::open(Path::new(text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/")))?;
        Ok(if is_traced { own } else { Cgroup { number: u64::MAX, ..own } })
    };
    Ok(Filter {
        processes: vec![process],
        descendants: filter.descendants,
        comm: filter.comm.as_ref().map(|_| comm()).transpose()?,
        cgroup: filter.cgroup.map(|_| cgroup()).transpose()?,
        port: filter.port.map(|_| if is_traced { port } else { port ^ 1 }),
        transports: filter.transports.clone(),
        // It is this process that is measured: another one is left out in its place.
        except: filter.except.map(|_| NOBODY),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_process_is_measured() {
        let filter = Filter { comm: Some("broker".into()), except: Some(1), ..Filter::default() };
        let own = std::process::id();
        let traced = stand_in(&filter, true, 9).unwrap();
        assert_eq!((traced.processes, traced.except), (vec![own], Some(NOBODY)));
        let beside = stand_in(&filter, false, 9).unwrap();
        assert_eq!((beside.processes, beside.comm.as_deref()), (vec![own], Some("\u{1}")));
        let named = Filter { processes: vec![7], ..Filter::default() };
        assert_eq!(stand_in(&named, false, 9).unwrap().processes, [NOBODY]);
    }

    #[test]
    fn calibration_measures_the_traced_transports() {
        assert_eq!(transports(&Filter::default()), Transport::SOCKETS);
        // Unix sockets have no port.
        let port = Filter { port: Some(80), ..Filter::default() };
        assert_eq!(transports(&port), [Transport::Udp, Transport::Tcp]);
        let tcp = Filter { transports: vec![Transport::UnixStream, Transport::Tcp], ..Filter::default() };
        assert_eq!(transports(&tcp), [Transport::Tcp, Transport::UnixStream]);
    }
}
