//! What the tracer costs, measured where it runs: a private pair of sockets without hooks, beside a trace, and traced, in turn.

mod gate;
mod live;
mod pair;
mod rounds;

use std::fs;
use std::path::Path;
use std::thread;

use crate::error::{Error, Result};
use crate::filter::{Cgroup, Filter};
use crate::hooks::{Options, Rung};
use crate::record::{Point, Transport};
use crate::tracer::Tracer;
pub use gate::Gate;
pub use live::{Live, LiveCost};
use pair::Pair;
pub use rounds::{Delta, Rounds};

/// No process has this number (`PID_MAX_LIMIT` is 2^22).
const NOBODY: u32 = i32::MAX as u32;

/// Records of the largest ring that is measured with: going around a larger one would take too long.
const RING_MAX: u32 = 1 << 16;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Rounds to keep, each with all three cases; up to four times as many are made on a restless machine.
    pub rounds: usize,
    /// The quickest of so many chunks is a case's sample.
    pub chunks: usize,
    /// Messages sent and received in a chunk.
    pub messages: usize,
}

impl Effort {
    /// About a second on a quiet machine: at the start of a trace.
    pub const BRIEF: Effort = Effort { rounds: 16, chunks: 8, messages: 250 };
    /// About ten seconds on a quiet machine.
    pub const THOROUGH: Effort = Effort { rounds: 120, chunks: 12, messages: 400 };
}

/// What the tracer costs one message: a send and a receive over UDP on loopback, in one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// By which hooks.
    pub rung: Rung,
    /// Without hooks, nanoseconds a message.
    pub base_ns: f64,
    /// Added to a process that is not traced.
    pub bystander: Delta,
    /// Added to one that is.
    pub traced: Delta,
    /// Hooks that run for a message.
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

impl Cost {
    /// How much of T2 is the tracer itself: the first hook from its clock on, the way out of it and into the second, and that one up to its
    /// clock. The way is what a hook costs that finds a process which is not traced; that it asks for it is in both, some nanoseconds.
    pub fn inside_ns(&self) -> f64 {
        (self.tail_ns + self.head_ns + self.bystander.ns / self.hooks as f64).max(0.0)
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
    // Bytes are captured, but these messages are nobody's protocol, and this process is no client.
    let mut own = Options { decode: None, clients: Vec::new(), ..options.clone() };
    if options.is_clients_only() {
        own.filter.processes.push(NOBODY);
    }
    let options = own;
    thread::spawn(move || measure(options, effort))
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn measure(options: Options, effort: Effort) -> Result<Cost> {
    let mut pair = Pair::new()?;
    let filter = |is_traced| stand_in(&options.filter, is_traced, pair.port());
    // As large as the trace's: a small ring would stay in the processor's caches.
    let needed = ((4 * effort.chunks * effort.messages) as u32).next_power_of_two();
    let slots = needed.max(options.slots.min(RING_MAX));
    let attach = |is_traced, inside| -> Result<Tracer> {
        let options = Options { filter: filter(is_traced)?, slots, ..options.clone() };
        let mut tracer = Tracer::attach_timed(&options, inside)?;
        tracer.stop(|_| ());
        Ok(tracer)
    };
    let mut beside = attach(false, false)?;
    let mut traced = attach(true, false)?;
    let mut timed = attach(true, true)?;
    let (rung, hooks) = (traced.rung(), traced.fires());
    pair.pin()?;
    for tracer in [&mut traced, &mut timed].into_iter().filter(|_| !options.histogram) {
        // Once around, so that no page is new to the samples.
        tracer.resume()?;
        pair.quickest(Effort { chunks: 1, messages: slots as usize / 2, ..effort })?;
        tracer.stop(|_| ());
    }

    let (tail_ns, head_ns) = inside(&mut timed, &mut pair, effort)?;
    let rounds = Rounds::take(3, effort.rounds, |case, gate| {
        let tracer = [None, Some(&mut beside), Some(&mut traced)].into_iter().nth(case).flatten();
        sample(tracer, case == 2, &mut pair, gate, effort)
    })?;
    let delta = |case| rounds.delta(case, 0, |ns| *ns);
    Ok(Cost {
        rung,
        base_ns: rounds.median(0, |ns| *ns),
        bystander: delta(1),
        traced: delta(2),
        hooks,
        tail_ns,
        head_ns,
        kept: rounds.kept.len(),
        rounds: rounds.made,
    })
}

/// Nanoseconds a message that the receive's hook runs from its clock on and the send's up to its clock: the least of several samples, as
/// an interrupt is no cost of a hook.
fn inside(timed: &mut Tracer, pair: &mut Pair, effort: Effort) -> Result<(f64, f64)> {
    let mut least = (f64::INFINITY, f64::INFINITY);
    timed.resume()?;
    for _ in 0..effort.chunks {
        let before = timed.inside_ns();
        pair.quickest(Effort { chunks: 1, ..effort })?;
        let after = timed.inside_ns();
        let each = |after: u64, before: u64| (after - before) as f64 / effort.messages as f64;
        // Each interval holds about one reading of the clock, half at either end: one of the two is not the hook's.
        let clock = each(after.clock, before.clock) / 2.0;
        least.0 = least.0.min(each(after.tail, before.tail) - clock);
        least.1 = least.1.min(each(after.head, before.head) - clock);
    }
    timed.stop(|_| ());
    Ok(least)
}

/// Nanoseconds a message with a tracer attached, or none. What the hooks noted is counted: a hook that does not fire is not cheap.
fn sample(
    tracer: Option<&mut Tracer>,
    is_traced: bool,
    pair: &mut Pair,
    gate: &mut Gate,
    effort: Effort,
) -> Result<f64> {
    let Some(tracer) = tracer else {
        gate.step();
        let ns = pair.quickest(effort)?;
        gate.step();
        return Ok(ns);
    };
    let counted = |tracer: &Tracer| tracer.histograms().map(|(_, counts)| (counts.received, counts.sent));
    let before = counted(tracer).unwrap_or_default();
    tracer.resume()?;
    gate.step();
    let ns = pair.quickest(effort)?;
    gate.step();
    let mut points = [0u64; 3];
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    tracer.stop(|record| {
        // Packets of other sockets are queued on this thread's time as well.
        points[record.point as usize] +=
            u64::from(record.thread == thread && record.transport == Transport::Udp);
    });
    let moved = pair.moved(effort);
    let left = if tracer.at_queue() { Point::Queued } else { Point::Sent };
    let expected = if is_traced { moved } else { 0 };
    let found = match counted(tracer) {
        Some(after) => (after.0 - before.0, after.1 - before.1),
        None => (points[Point::Received as usize], points[left as usize]),
    };
    if found != (expected, expected) {
        return Err(Error::Calibration { moved, received: found.0, sent: found.1, expected });
    }
    Ok(ns)
}

/// A filter that asks the same questions as the user's, and lets this process pass, or nobody.
fn stand_in(filter: &Filter, is_traced: bool, port: u16) -> Result<Filter> {
    let path = Path::new("/proc/self/comm");
    let comm = || {
        let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.into(), source })?;
        Ok::<_, Error>(if is_traced { text.trim_end().to_owned() } else { "\u{1}".into() })
    };
    let own = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let process = if is_traced { own } else { NOBODY };
    let cgroup = || -> Result<Cgroup> {
        let path = Path::new("/proc/self/cgroup");
        let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.into(), source })?;
        let own =
            Cgroup::open(Path::new(text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/")))?;
        Ok(if is_traced { own } else { Cgroup { number: u64::MAX, ..own } })
    };
    Ok(Filter {
        // Others may be called the same, or be in the same cgroup: what they send is not to be counted.
        processes: if is_traced || !filter.processes.is_empty() { vec![process] } else { Vec::new() },
        descendants: filter.descendants,
        comm: filter.comm.as_ref().map(|_| comm()).transpose()?,
        cgroup: filter.cgroup.map(|_| cgroup()).transpose()?,
        port: filter.port.map(|_| if is_traced { port } else { port ^ 1 }),
        transports: if filter.transports.contains(&Transport::Udp) {
            filter.transports.clone()
        } else {
            [filter.transports.as_slice(), &[Transport::Udp]].concat()
        },
        // It is this process that is measured: another one is left out in its place.
        except: filter.except.map(|_| NOBODY),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_of_the_same_name_is_measured() {
        let filter = Filter { comm: Some("broker".into()), except: Some(1), ..Filter::default() };
        let own = std::process::id();
        let traced = stand_in(&filter, true, 9).unwrap();
        assert_eq!((traced.processes, traced.except), (vec![own], Some(NOBODY)));
        let beside = stand_in(&filter, false, 9).unwrap();
        assert_eq!((beside.processes, beside.comm.as_deref()), (vec![], Some("\u{1}")));
    }
}
