//! The ways to take times of a broker's messages, each on for a segment and checked after it: what was not noted costs nothing.

use std::process::{Child, Command};

use serde::{Deserialize, Serialize};
use trieline_trace::{Backend, By, Filter, IdAt, Joiner, Leaves, Options, Tracer, Transport};

use super::{
    bench::Segment,
    broker::{ID_AT, Own},
};
use crate::{
    Error, Result,
    error::During,
    experiments::probed::{Noted, Probed, Work},
};

/// Messages of the paper, for each way.
pub(super) const MESSAGES: usize = 100_000;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// None.
    None,
    /// The broker keeps both times in an array.
    Memory,
    /// It writes each to a file.
    File,
    /// The paper's: tracepoints of system calls, the id read from the message, a hash from ids to times.
    SyscallHash,
    /// Two tracepoints in sockets that only ask whose the message is, and count: what no tracer by the hooks of `hooks` can be cheaper than.
    Bare,
    /// The same of the receive and the device's queue, which `default` and `hooks-id` use.
    BareQueue,
    /// The product's hooks as those of `hooks`, for a process that does nothing: what a machine with the tracer on it pays.
    Bystander,
    /// The hooks of `trieline trace -p PID`: all transports, C at the device's queue, joined by the thread.
    Default,
    /// The product's, with C at the end of the send, joined by the thread.
    Hooks,
    /// The product's, with C at the device's queue (Unix: the end of the send), joined by the id in the message.
    HooksId,
}

impl Method {
    /// In the order of the rows.
    pub const ALL: [Method; 10] = [
        Method::None,
        Method::Memory,
        Method::File,
        Method::SyscallHash,
        Method::Bare,
        Method::BareQueue,
        Method::Bystander,
        Method::Default,
        Method::Hooks,
        Method::HooksId,
    ];

    /// As in a row.
    pub fn name(self) -> &'static str {
        [
            "none",
            "memory",
            "file",
            "syscall-hash",
            "bare",
            "bare-queue",
            "bystander",
            "default",
            "hooks",
            "hooks-id",
        ][self as usize]
    }

    /// As the paper's table calls it.
    pub fn published(self) -> Option<&'static str> {
        match self {
            Method::None => Some("none"),
            Method::Memory => Some("memory"),
            Method::File => Some("file"),
            Method::SyscallHash => Some("ebpf"),
            _ => None,
        }
    }

    /// The times that the broker takes itself.
    pub fn own(self) -> Own {
        match self {
            Method::Memory => Own::Memory,
            Method::File => Own::File,
            _ => Own::Nothing,
        }
    }
}

/// A way that can be switched on.
pub struct Taking {
    method: Method,
    how: How,
    /// Messages joined so far.
    matched: u64,
}

enum How {
    Broker,
    Lab(Probed, Noted),
    /// With the messages in its hash, and those that it had both times of before it was emptied.
    Hash {
        probed: Probed,
        before: Noted,
        kept: u64,
        joined: u64,
    },
    Records(Box<Tracer>, By),
}

const BARE: &[&str] = &["socket_received", "socket_sent"];
const BARE_QUEUE: &[&str] = &["socket_received", "device_queued"];
const PAPER: &[&str] = &["paper_receive_begun", "paper_receive_ended", "paper_send_begun"];

/// A process that does nothing.
pub struct Idle(Child);

impl Idle {
    /// Starts it.
    pub fn start() -> Result<Idle> {
        let starting = || "cannot start a process that sleeps".to_owned();
        Ok(Idle(Command::new("sleep").arg("infinity").spawn().during(starting)?))
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Taking {
    /// Loads what it needs for a broker's process; `idle` does nothing.
    pub fn load(
        method: Method,
        process: u32,
        idle: &Idle,
        transport: Transport,
        ring: u32,
    ) -> Result<Taking> {
        let start = |options: Options| -> Result<Box<Tracer>> {
            let mut tracer = Tracer::start(&options)?;
            tracer.stop(|_| ());
            Ok(Box::new(tracer))
        };
        let of =
            |process| Filter { processes: vec![process], transports: vec![transport], ..Filter::default() };
        let tracer = |leaves, id| start(Options { leaves, id, slots: ring, ..Options::new(of(process)) });
        let at = ID_AT as u32;
        let how = match method {
            Method::None | Method::Memory | Method::File => How::Broker,
            Method::SyscallHash => {
                let probed = Probed::load(PAPER, Work::Hash, process, MESSAGES as u32)?;
                How::Hash { probed, before: Noted::default(), kept: 0, joined: 0 }
            }
            Method::Bare | Method::BareQueue => {
                // Unix sockets have no device.
                let has_queue = method == Method::BareQueue && transport <= Transport::Tcp;
                let programs = if has_queue { BARE_QUEUE } else { BARE };
                How::Lab(Probed::load(programs, Work::Filter, process, 1)?, Noted::default())
            }
            Method::Bystander => {
                let leaves = Leaves::Done;
                let tracer = start(Options { leaves, slots: ring, ..Options::new(of(idle.0.id())) })?;
                How::Records(tracer, By::Thread)
            }
            Method::Default => {
                let all = Filter { processes: vec![process], ..Filter::default() };
                How::Records(start(Options { slots: ring, ..Options::new(all) })?, By::Thread)
            }
            Method::Hooks => How::Records(tracer(Leaves::Done, None)?, By::Thread),
            Method::HooksId => {
                let id = IdAt { received: at, sent: at, bytes: 8 };
                How::Records(tracer(Leaves::Queue, Some(id))?, By::Id)
            }
        };
        Ok(Taking { method, how, matched: 0 })
    }

    /// Switches it on.
    pub fn on(&mut self) -> Result<()> {
        match &mut self.how {
            How::Broker => Ok(()),
            How::Lab(probed, _) | How::Hash { probed, .. } => probed.on(),
            How::Records(tracer, _) => Ok(tracer.resume()?),
        }
    }

    /// Switches it off, and checks that every message of the segment was noted and joined.
    pub fn off(&mut self, segment: &Segment, noted_before: u64) -> Result<()> {
        let sent = segment.messages;
        let (received, left, joined) = match &mut self.how {
            How::Broker => {
                let noted = segment.noted - noted_before;
                let noted = if self.method.own() == Own::Nothing { sent + noted } else { noted };
                (noted, noted, noted)
            }
            How::Lab(probed, before) => {
                probed.off();
                let after = probed.noted()?;
                let received = after.received - before.received;
                let left = after.sent - before.sent;
                *before = after;
                (received, left, received.min(left) - after.refused)
            }
            How::Hash { probed, before, kept, joined } => {
                probed.off();
                let after = probed.noted()?;
                let noted = (after.received - before.received, after.sent - before.sent);
                let refused = after.refused - before.refused;
                *before = after;
                *kept += sent;
                // As large as the paper's: of so many messages, not of all rounds.
                if *kept + sent > MESSAGES as u64 {
                    *joined += probed.joined()?;
                    probed.forget()?;
                    *kept = 0;
                }
                (noted.0, noted.1, noted.0.min(noted.1) - refused)
            }
            How::Records(tracer, by) => {
                let mut joiner = Joiner::new(*by, tracer.at_queue());
                let mut joined = 0;
                tracer.stop(|record| joiner.take(record, |_| joined += 1));
                joiner.finish(|_| joined += 1);
                let counts = joiner.counts();
                (counts.received, counts.sent, joined)
            }
        };
        let lost = self.lost();
        let sent = if self.method == Method::Bystander { 0 } else { sent };
        let one_missing = received + 1 == sent && self.misses_waiting_calls();
        // Over TCP acknowledgements pass the device's queue, too: bare hooks there count packets.
        let has_more = self.method == Method::BareQueue && left > sent;
        let left = if has_more { sent } else { left };
        let joined = if has_more { received } else { joined };
        let is_whole = (received == sent || one_missing) && left == sent && joined == received;
        if !is_whole || lost > 0 {
            return Err(Error::Unseen {
                hooks: self.method.name().into(),
                sent,
                seen: format!(
                    "{received} receives and {left} sends were noted, {joined} joined, {lost} lost"
                ),
            });
        }
        self.matched += joined;
        Ok(())
    }

    /// Whether the call that the broker sleeps in when the hooks come is not seen: by hooks that run at its beginning, too.
    fn misses_waiting_calls(&self) -> bool {
        match &self.how {
            How::Broker | How::Lab(..) => false,
            How::Hash { .. } => true,
            How::Records(tracer, _) => tracer.backend() == Backend::Functions,
        }
    }

    /// Messages joined so far; none if the method joins nothing.
    pub fn matched(&self) -> Result<Option<u64>> {
        match &self.how {
            How::Broker | How::Lab(..) => Ok(None),
            How::Records(..) if self.method == Method::Bystander => Ok(None),
            // Not a count of events: what the two hashes have in common.
            How::Hash { probed, joined, .. } => Ok(Some(joined + probed.joined()?)),
            How::Records(..) => Ok(Some(self.matched)),
        }
    }

    /// Records and events that the product's own tracer has lost.
    pub fn lost(&self) -> u64 {
        match &self.how {
            How::Records(tracer, _) => tracer.seen().lost + tracer.seen().missed,
            How::Broker | How::Lab(..) | How::Hash { .. } => 0,
        }
    }
}
