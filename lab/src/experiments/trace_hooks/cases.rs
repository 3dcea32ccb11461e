//! The cases of `trace-hooks`: which hooks, what they do, and who pays.

use trieline_trace::{Filter, Leaves, Options, Point, Tracer, Transport};

use crate::{
    Context, Result,
    experiments::{
        options::Run,
        probed::{Noted, Probed, Work},
    },
};

/// No process has this number (`PID_MAX_LIMIT` is 2^22).
const NOBODY: u32 = i32::MAX as u32;

/// More than the rounds can send.
const MESSAGES_MAX: u32 = 1 << 19;

/// A kind of hooks, and its programs.
type Hooks = (&'static str, &'static [&'static str]);

const QUEUE: Hooks = ("receive+queue", &["socket_received", "device_queued"]);
const DONE: Hooks = ("receive+done", &["socket_received", "socket_sent"]);
const RECEIVE: Hooks = ("receive", &["socket_received"]);
const ANY_CALL: Hooks = ("any-call", &["any_call_ended", "any_call_begun"]);
const TWO_CALLS: Hooks = ("two-calls", &["receive_ended", "send_begun"]);
const PAPER: Hooks = ("paper", &["paper_receive_begun", "paper_receive_ended", "paper_send_begun"]);

/// Hooks that are attached for a sample.
pub enum Attached {
    /// The lab's.
    Lab(Probed),
    /// The product's; what it noted so far.
    Product(Box<Tracer>, Noted),
}

impl Attached {
    pub fn on(&mut self) -> Result<()> {
        match self {
            Attached::Lab(probed) => probed.on(),
            Attached::Product(tracer, _) => Ok(tracer.resume()?),
        }
    }

    /// Detaches them; what they have noted since they were loaded.
    pub fn off(&mut self) -> Result<Noted> {
        match self {
            Attached::Lab(probed) => {
                probed.off();
                probed.drain()?;
                probed.noted()
            }
            Attached::Product(tracer, noted) => {
                let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                // Packets of other sockets are queued on this thread's time as well.
                tracer.stop(|record| match record.point {
                    _ if record.thread != thread => {}
                    Point::Received => noted.received += 1,
                    Point::Queued | Point::Sent => noted.sent += 1,
                    Point::Arrived | Point::Forwarded => {}
                });
                Ok(*noted)
            }
        }
    }
}

/// One of them.
pub struct Case {
    pub hooks: &'static str,
    pub count: usize,
    pub work: &'static str,
    pub who: &'static str,
    pub is_call: bool,
    pub attached: Attached,
    pub noted: Noted,
    /// Events so far, where they are counted.
    pub events: Option<u64>,
}

/// The hooks of the product; all others are rivals.
const OURS: &str = "trieline";

impl Case {
    /// Whether a failure of it takes its own row only, and not the run.
    pub fn is_rival(&self) -> bool {
        self.hooks != OURS
    }

    /// Its work and the payer, for refusals.
    pub fn name(&self) -> String {
        format!("{}, {}", self.work, self.who)
    }
}

/// The paper's hooks, with room for the times of so many messages.
#[cfg(test)]
pub fn paper(messages: u32) -> Result<Case> {
    let (hooks, programs) = PAPER;
    Ok(Case {
        hooks,
        count: programs.len(),
        work: "hash-by-id",
        who: "traced",
        is_call: false,
        attached: Attached::Lab(Probed::load(programs, Work::Hash, std::process::id(), messages)?),
        noted: Noted::default(),
        events: Some(0),
    })
}

/// All of them, loaded. A rival whose programs the kernel refuses loses its row.
pub fn cases(run: &Run, context: &Context) -> Result<Vec<Case>> {
    let own = std::process::id();
    let mut cases = Vec::new();
    let lab = |(hooks, programs): Hooks, work: Work, who| {
        let process = if who == "traced" { own } else { NOBODY };
        let messages = if hooks == PAPER.0 { MESSAGES_MAX } else { 1 };
        Ok::<_, crate::Error>(Case {
            hooks,
            count: programs.len(),
            work: if hooks == PAPER.0 { "hash-by-id" } else { work.name() },
            who,
            is_call: who == "getppid",
            attached: Attached::Lab(Probed::load(programs, work, process, messages)?),
            noted: Noted::default(),
            // A program that does nothing counts nothing. Other calls than the two end as well.
            events: (work != Work::Empty && hooks != ANY_CALL.0).then_some(0),
        })
    };
    let mut add = |hooks: Hooks, work: Work, who| match lab(hooks, work, who) {
        Ok(case) => {
            cases.push(case);
            Ok(())
        }
        Err(error) => run.lose(context, hooks.0, &format!("{}, {who}", work.name()), error),
    };
    for work in [
        Work::Empty,
        Work::Filter,
        Work::Clock,
        Work::RingSection,
        Work::RingPlain,
        Work::RingArray,
        Work::Ringbuf,
        Work::Hash,
        Work::Task,
    ] {
        add(QUEUE, work, "traced")?;
    }
    for work in [Work::Empty, Work::RingSection] {
        for hooks in [DONE, RECEIVE, ANY_CALL, TWO_CALLS] {
            // With one hook there is nothing to take out of a hash, and no send.
            if (hooks, work) != (RECEIVE, Work::RingSection) {
                add(hooks, work, "traced")?;
            }
        }
    }
    add(PAPER, Work::Hash, "traced")?;
    for hooks in [QUEUE, DONE, ANY_CALL, TWO_CALLS, PAPER] {
        add(hooks, Work::Filter, "bystander")?;
    }
    for hooks in [QUEUE, ANY_CALL, TWO_CALLS] {
        add(hooks, Work::Filter, "getppid")?;
    }
    for (leaves, work) in [(Leaves::Queue, "queue"), (Leaves::Done, "done")] {
        for who in ["traced", "bystander"] {
            let process = if who == "traced" { own } else { 1 };
            let filter =
                Filter { processes: vec![process], transports: vec![Transport::Udp], ..Filter::default() };
            let mut tracer = Tracer::start(&Options { leaves, ..Options::new(filter) })?;
            tracer.stop(|_| ());
            cases.push(Case {
                hooks: OURS,
                count: 2,
                work,
                who,
                is_call: false,
                attached: Attached::Product(Box::new(tracer), Noted::default()),
                noted: Noted::default(),
                events: Some(0),
            });
        }
    }
    Ok(cases)
}
