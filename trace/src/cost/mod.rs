//! What the tracer costs, measured where it runs: a private pair of sockets without hooks, beside a trace, and traced, in turn.

mod gate;
mod pair;

use std::fs;
use std::path::Path;
use std::thread;

use crate::error::{Error, Result};
use crate::filter::{Cgroup, Filter};
use crate::hooks::{Options, Rung};
use crate::record::{Point, Transport};
use crate::tracer::Tracer;
use gate::Gate;
use pair::Pair;

/// No process has this number (`PID_MAX_LIMIT` is 2^22).
const NOBODY: u32 = i32::MAX as u32;
/// Rounds that may be made for each that is to be kept.
const ATTEMPTS: usize = 4;
/// Fewer rounds give no interval worth the name.
const ROUNDS_MIN: usize = 5;

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

/// Median of the differences of rounds, with its 95 % confidence interval from their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delta {
    /// Nanoseconds.
    pub ns: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Delta {
    /// Of at least one difference.
    fn of(mut differences: Vec<f64>) -> Delta {
        differences.sort_by(f64::total_cmp);
        let count = differences.len();
        // Ranks of the binomial distribution's 2.5 % and 97.5 %, by its normal approximation.
        let reach = 0.98 * (count as f64).sqrt();
        let middle = (count as f64 - 1.0) / 2.0;
        let low = (middle - reach).floor().max(0.0) as usize;
        let high = ((middle + reach).ceil() as usize).min(count - 1);
        let ns = (differences[(count - 1) / 2] + differences[count / 2]) / 2.0;
        Delta { ns, low: differences[low], high: differences[high] }
    }
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
    /// Rounds in which the processor kept its speed.
    pub kept: usize,
    /// Rounds made.
    pub rounds: usize,
}

impl Cost {
    /// About how much of T2 is the tracer itself: what follows the clock in the first hook and precedes it in the second. Both hooks
    /// do the same in the same order, so it is half of what they cost together.
    pub fn inside_ns(&self) -> f64 {
        (self.traced.ns / 2.0).max(0.0)
    }
}

/// Measures the cost of a trace with these options, on a thread of its own.
pub fn calibrate(options: &Options, effort: Effort) -> Result<Cost> {
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
    let slots = ((4 * effort.chunks * effort.messages) as u32).next_power_of_two();
    let attach = |is_traced| -> Result<Tracer> {
        let mut tracer = Tracer::attach(&Options { filter: filter(is_traced)?, slots, ..options.clone() })?;
        tracer.stop(|_| ());
        Ok(tracer)
    };
    let mut beside = attach(false)?;
    let mut traced = attach(true)?;
    let rung = traced.rung();
    pair.pin()?;

    let mut kept: Vec<[f64; 3]> = Vec::with_capacity(effort.rounds);
    let mut gate = Gate::new();
    let mut made = 0;
    while kept.len() < effort.rounds && made < effort.rounds * ATTEMPTS {
        made += 1;
        let mut ns = [0.0; 3];
        for step in 0..3 {
            let case = (made + step) % 3;
            let tracer = [None, Some(&mut beside), Some(&mut traced)].into_iter().nth(case).flatten();
            ns[case] = sample(tracer, case == 2, &mut pair, &mut gate, effort)?;
        }
        if gate.end_round() {
            kept.push(ns);
        }
    }
    if kept.len() < ROUNDS_MIN {
        return Err(Error::Restless { kept: kept.len(), rounds: made });
    }
    let delta = |case: usize| Delta::of(kept.iter().map(|ns| ns[case] - ns[0]).collect());
    let mut base: Vec<f64> = kept.iter().map(|ns| ns[0]).collect();
    base.sort_by(f64::total_cmp);
    Ok(Cost {
        rung,
        base_ns: base[base.len() / 2],
        bystander: delta(1),
        traced: delta(2),
        kept: kept.len(),
        rounds: made,
    })
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
        return Err(Error::Argument(format!(
            "calibration: of {moved} messages {} receives and {} sends were noted: expected {expected} of each",
            found.0, found.1
        )));
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
    let process = if is_traced { rustix::process::getpid().as_raw_nonzero().get() as u32 } else { NOBODY };
    let cgroup = || -> Result<Cgroup> {
        let path = Path::new("/proc/self/cgroup");
        let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.into(), source })?;
        let own =
            Cgroup::open(Path::new(text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/")))?;
        Ok(if is_traced { own } else { Cgroup { number: u64::MAX, ..own } })
    };
    Ok(Filter {
        processes: filter.processes.iter().take(1).map(|_| process).collect(),
        descendants: filter.descendants,
        comm: filter.comm.as_ref().map(|_| comm()).transpose()?,
        cgroup: filter.cgroup.map(|_| cgroup()).transpose()?,
        port: filter.port.map(|_| if is_traced { port } else { port ^ 1 }),
        transports: if filter.transports.contains(&Transport::Udp) {
            filter.transports.clone()
        } else {
            [filter.transports.as_slice(), &[Transport::Udp]].concat()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_and_its_interval() {
        let delta = Delta::of((0..100).rev().map(f64::from).collect());
        assert_eq!((delta.ns, delta.low, delta.high), (49.5, 39.0, 60.0));
        let few = Delta::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((few.ns, few.low, few.high), (2.0, 1.0, 3.0));
    }
}
