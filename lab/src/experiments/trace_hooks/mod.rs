//! Experiment `trace-hooks`: what a hook on messages costs by kind, by what it does inside, and what it costs those whom it is not for.

mod cases;

use std::{
    cell::Cell,
    net::{Ipv4Addr, UdpSocket},
    time::Instant,
};

use clap::Args;
use serde::{Deserialize, Serialize};

use self::cases::{Case, cases};
use super::{
    experiment::{Compared, Experiment, Figure},
    options::Run,
    probed::{Tracefs, whole},
};
use crate::{
    Context, Error, Result,
    error::During,
    in_own_thread,
    measure::rounded,
    netns,
    report::{Column, Document, Report, Table, dash, table},
};

/// Bytes of a message.
const MESSAGE: usize = 64;
/// The quickest of so many chunks is a sample.
const CHUNKS: usize = 4;
/// Messages, or calls, of a chunk.
const TIMES: usize = 200;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Interleaved rounds.
    pub rounds: usize,
    /// Messages or calls of a sample.
    pub times: usize,
    /// CPU that works.
    pub cpu: u32,
    /// The operation that is timed.
    pub timed: &'static str,
    /// The meaning of `hooks`.
    pub hooks: &'static str,
}

/// Hooks of a kind with some work inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Their kind.
    pub hooks: &'static str,
    /// How many run for a message.
    pub count: usize,
    /// Their work.
    pub work: &'static str,
    /// The payer: `traced`, `bystander` (a process that is not traced, at its socket calls), `getppid` (any other system call of such a
    /// process).
    pub who: &'static str,
    /// Nanoseconds of a send and a receive, or of the call, without hooks.
    pub base_ns: f64,
    /// The time that the hooks add: median of the rounds.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub delta_ns: f64,
    /// Its 95 % interval; null of fewer than six rounds.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub ci_low: f64,
    /// Its other end.
    #[serde(deserialize_with = "crate::measure::or_nan")]
    pub ci_high: f64,
    /// Events that were noted and checked; null where hooks note none.
    pub events: Option<u64>,
}

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// Its options.
#[derive(Args, Clone, Debug, Default)]
pub struct TraceHooks {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
}

impl Experiment for TraceHooks {
    const NAME: &'static str = "trace-hooks";
    const PURPOSE: &'static str =
        "the cost of a hook on messages by its kind, by its work, and for other processes";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["hooks", "count", "work", "who"],
        figures: &[Figure::lower("delta_ns").within("ci_low", "ci_high")],
    }];
    const CODE: &'static [&'static str] = &["trace/src", "trace/bpf"];
    const QUICK_SECONDS: u64 = 10;
    const FULL_SECONDS: u64 = 60;
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| run_here(&self.run, context))
    }
}

fn run_here(asked: &Run, context: &Context) -> Result<Outcome> {
    let wanted = asked.rounds(8, 60);
    let machine = asked.machine();
    let cpu = netns::measure_here()?;
    context.progress.phase("loading hooks", 0);
    let _tracefs = Tracefs::mount()?;
    let pair = Pair::new()?;
    let mut cases = cases(asked, context)?;
    let mut is_lost = vec![false; cases.len()];
    // The first two are the bases: messages and calls without hooks.
    context.progress.phase("rounds", (wanted * (cases.len() + 2)) as u64);
    let count = (wanted, cases.len() + 2);
    let rounds = asked.take(
        context,
        "hooks",
        count,
        || false,
        |case, _| match case {
            0 => sample(None, || pair.pass()),
            1 => sample(None, call),
            _ => {
                let at = case - 2;
                if is_lost[at] {
                    return Ok(f64::NAN);
                }
                let taken = turn(&mut cases[at], &pair, asked, context)?;
                is_lost[at] = taken.is_none();
                Ok(taken.unwrap_or(f64::NAN))
            }
        },
    )?;
    let rows = cases.iter().enumerate().filter(|(at, _)| !is_lost[*at]).map(|(at, case)| {
        let base = usize::from(case.is_call);
        let delta = rounds.delta(at + 2, base, |ns| *ns);
        Row {
            hooks: case.hooks,
            count: case.count,
            work: case.work,
            who: case.who,
            base_ns: rounded(rounds.median(base, |ns| *ns), 1),
            delta_ns: rounded(delta.value, 1),
            ci_low: rounded(delta.low, 1),
            ci_high: rounded(delta.high, 1),
            events: case.events,
        }
    });
    let parameters = Parameters {
        quick: asked.quick,
        rounds: rounds.len(),
        times: CHUNKS * TIMES,
        cpu,
        timed: "a send and a receive of 64 bytes over UDP on loopback in one thread, or getppid; quickest of 4 chunks of 200",
        hooks: "receive+queue: tp_btf sock_recv_length, net_dev_queue; receive+done: sock_recv_length, sock_send_length; receive: the \
                    first alone; any-call: tp_btf sys_exit, sys_enter; two-calls: tracepoints sys_exit_recvfrom, sys_enter_sendto; \
                    paper: tracepoints sys_enter_recvfrom, sys_exit_recvfrom, sys_enter_sendto with the id from the message and a hash by id; \
                    trieline: the product's own, with C at the queue or at the end of the send",
    };
    Ok(Document::new(TraceHooks::NAME, machine, parameters, rows.collect()))
}

const COLUMNS: [Column<Row>; 9] = [
    ("hooks", |row| row.hooks.into()),
    ("work", |row| row.work.into()),
    ("who", |row| row.who.into()),
    ("count", |row| row.count.to_string()),
    ("base", |row| whole(row.base_ns)),
    ("delta", |row| whole(row.delta_ns)),
    ("low", |row| whole(row.ci_low)),
    ("high", |row| whole(row.ci_high)),
    ("events", |row| dash(row.events, |events| events.to_string())),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 3, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        format!("ns; {};\n{};\n{} rounds\n", p.timed, p.hooks, p.rounds)
    }
}

/// A case's turn; none, with the reason in the account, if it is a rival that failed.
fn turn(case: &mut Case, pair: &Pair, run: &Run, context: &Context) -> Result<Option<f64>> {
    let taken = if case.is_call { sample(Some(case), call) } else { sample(Some(case), || pair.pass()) };
    match taken {
        Err(error) if case.is_rival() => {
            case.attached.off()?;
            run.lose(context, case.hooks, &case.name(), error)?;
            Ok(None)
        }
        taken => taken.map(Some),
    }
}

/// Nanoseconds of one of `work` with the hooks attached, or none.
fn sample(mut case: Option<&mut Case>, work: impl Fn() -> Result<()>) -> Result<f64> {
    if let Some(case) = &mut case {
        case.attached.on()?;
    }
    let mut best = f64::INFINITY;
    for _ in 0..CHUNKS {
        let start = Instant::now();
        for _ in 0..TIMES {
            work()?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / TIMES as f64);
    }
    if let Some(case) = case {
        case.check((CHUNKS * TIMES) as u64)?;
    }
    Ok(best)
}

fn call() -> Result<()> {
    std::hint::black_box(rustix::process::getppid());
    Ok(())
}

/// Two UDP sockets on loopback.
struct Pair {
    from: UdpSocket,
    to: UdpSocket,
    /// Each message has an id of its own.
    next: Cell<u64>,
}

impl Pair {
    fn new() -> Result<Pair> {
        let make = || {
            let [from, to] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
            let (from, to) = (from?, to?);
            from.connect(to.local_addr()?)?;
            to.connect(from.local_addr()?)?;
            Ok::<_, std::io::Error>(Pair { from, to, next: Cell::new(0) })
        };
        make().during(|| "cannot make a pair of sockets".into())
    }

    fn pass(&self) -> Result<()> {
        let mut message = [0u8; MESSAGE];
        let id = self.next.get();
        self.next.set(id + 1);
        message[8..16].copy_from_slice(&id.to_ne_bytes());
        let passed = self.from.send(&message).and_then(|_| self.to.recv(&mut message));
        passed.map(drop).during(|| "cannot send a message".into())
    }
}

impl Case {
    /// Detaches, and checks that everything was noted that should have been: a hook that does not fire is not cheap.
    fn check(&mut self, times: u64) -> Result<()> {
        let before = self.noted;
        let after = self.attached.off()?;
        self.noted = after;
        let Some(events) = &mut self.events else { return Ok(()) };
        let seen = (after.received - before.received, after.sent - before.sent, after.refused);
        let expected = if self.who == "traced" { times } else { 0 };
        if seen != (expected, expected, 0) {
            return Err(Error::Unseen {
                hooks: format!("{}, {}, {}", self.hooks, self.work, self.who),
                sent: expected,
                seen: format!("{} receives and {} sends were noted, {} refused", seen.0, seen.1, seen.2),
            });
        }
        *events += seen.0 + seen.1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{Quiet, testing::alone};

    #[test]
    fn a_rival_that_misses_messages_loses_its_row_and_trielines_hooks_end_the_run() {
        let Some(_alone) = alone() else { return };
        let _tracefs = Tracefs::mount().unwrap();
        let (pair, run, interrupt) = (Pair::new().unwrap(), Run::default(), AtomicBool::new(false));
        let context = Context { progress: &Quiet, interrupt: &interrupt };
        // Room for one message's times: the second one's are refused.
        let mut case = cases::paper(1).unwrap();
        assert_eq!(turn(&mut case, &pair, &run, &context).unwrap(), None);
        let [refused] = &run.account.refused()[..] else { panic!("{:?}", run.account.refused()) };
        assert_eq!((refused.rival.as_str(), refused.case.as_str()), ("paper", "hash-by-id, traced"));
        assert!(refused.reason.contains("every one was expected"), "{refused:?}");
        case.hooks = "trieline";
        assert!(matches!(turn(&mut case, &pair, &run, &context), Err(Error::Unseen { .. })));
        case.attached.off().unwrap();
    }
}
