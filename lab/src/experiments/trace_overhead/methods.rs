//! The ways to take times of a broker's messages, each on for a segment and checked after it: what was not noted costs nothing.

use serde::Serialize;
use trieline_trace::{By, Counts, Filter, IdAt, Joiner, Leaves, Options, Rung, Tracer, Transport};

use super::{
    bench::Segment,
    broker::{ID_AT, Own},
};
use crate::{
    Error, Result,
    experiments::hooked::{Hooked, Noted, Work},
};

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    /// Two tracepoints in sockets that only ask whose the message is, and count: what no tracer by such hooks can be cheaper than.
    Bare,
    /// The product's, with C at the end of the send, joined by the thread.
    Hooks,
    /// The product's, with C at the device's queue (Unix: the end of the send), joined by the id in the message.
    HooksId,
    /// The product's, with C at the device's queue, counted in the kernel.
    Histogram,
}

impl Method {
    /// In the order of the rows.
    pub const ALL: [Method; 8] = [
        Method::None,
        Method::Memory,
        Method::File,
        Method::SyscallHash,
        Method::Bare,
        Method::Hooks,
        Method::HooksId,
        Method::Histogram,
    ];

    /// As in a row.
    pub fn name(self) -> &'static str {
        ["none", "memory", "file", "syscall-hash", "bare", "hooks", "hooks-id", "histogram"][self as usize]
    }

    /// As the paper's table calls it.
    pub fn published(self) -> Option<&'static str> {
        match self {
            Method::None => Some("none"),
            Method::Memory => Some("memory"),
            Method::File => Some("file"),
            Method::SyscallHash => Some("ebpf"),
            Method::Bare | Method::Hooks | Method::HooksId | Method::Histogram => None,
        }
    }

    /// What the broker does itself.
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
    Lab(Hooked, Noted),
    Records(Tracer, By),
    Counts(Tracer, Counts),
}

const BARE: &[&str] = &["socket_received", "socket_sent"];
const PAPER: &[&str] = &["paper_receive_begun", "paper_receive_ended", "paper_send_begun"];

impl Taking {
    /// Loads what it needs; `most` messages may come.
    pub fn load(method: Method, process: u32, transport: Transport, most: u32, ring: u32) -> Result<Taking> {
        let tracer = |leaves, id, histogram| -> Result<Tracer> {
            let filter =
                Filter { processes: vec![process], transports: vec![transport], ..Filter::default() };
            let options = Options { leaves, id, histogram, slots: ring, ..Options::new(filter) };
            let mut tracer = Tracer::start(&options)?;
            tracer.stop(|_| ());
            Ok(tracer)
        };
        let at = ID_AT as u32;
        let how = match method {
            Method::None | Method::Memory | Method::File => How::Broker,
            Method::SyscallHash => {
                How::Lab(Hooked::load(PAPER, Work::Hash, process, most)?, Noted::default())
            }
            Method::Bare => How::Lab(Hooked::load(BARE, Work::Filter, process, 1)?, Noted::default()),
            Method::Hooks => How::Records(tracer(Leaves::Done, None, false)?, By::Thread),
            Method::HooksId => {
                let id = IdAt { received: at, sent: at, bytes: 8 };
                How::Records(tracer(Leaves::Queue, Some(id), false)?, By::Id)
            }
            Method::Histogram => How::Counts(tracer(Leaves::Queue, None, true)?, Counts::default()),
        };
        Ok(Taking { method, how, matched: 0 })
    }

    /// Switches it on.
    pub fn on(&mut self) -> Result<()> {
        match &mut self.how {
            How::Broker => Ok(()),
            How::Lab(hooked, _) => hooked.on(),
            How::Records(tracer, _) | How::Counts(tracer, _) => Ok(tracer.resume()?),
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
            How::Lab(hooked, before) => {
                hooked.off();
                let after = hooked.noted()?;
                let received = after.received - before.received;
                let left = after.sent - before.sent;
                *before = after;
                (received, left, received.min(left) - after.refused)
            }
            How::Records(tracer, by) => {
                let mut joiner = Joiner::new(*by, tracer.at_queue());
                let mut joined = 0;
                tracer.stop(|record| joiner.take(record, |_| joined += 1));
                joiner.finish(|_| joined += 1);
                let counts = joiner.counts();
                (counts.received, counts.sent, joined)
            }
            How::Counts(tracer, before) => {
                tracer.stop(|_| ());
                let counts = tracer.histograms().map(|(_, counts)| counts).unwrap_or_default();
                let new = (counts.received - before.received, counts.sent - before.sent);
                let joined = counts.matched - before.matched;
                *before = counts;
                (new.0, new.1, joined)
            }
        };
        let lost = self.lost();
        let one_missing = received + 1 == sent && self.misses_waiting_calls();
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
            How::Broker => false,
            How::Lab(..) => self.method == Method::SyscallHash,
            How::Records(tracer, _) | How::Counts(tracer, _) => tracer.rung() == Rung::Functions,
        }
    }

    /// Messages joined so far; none where nobody joins anything.
    pub fn matched(&self) -> Result<Option<u64>> {
        match &self.how {
            How::Broker => Ok(None),
            How::Lab(..) if self.method == Method::Bare => Ok(None),
            // Not a count of events: what the two hashes have in common.
            How::Lab(hooked, _) => Ok(Some(hooked.joined()?)),
            How::Records(..) | How::Counts(..) => Ok(Some(self.matched)),
        }
    }

    /// Records and events that the product's own tracer has lost.
    pub fn lost(&self) -> u64 {
        match &self.how {
            How::Records(tracer, _) | How::Counts(tracer, _) => tracer.seen().lost + tracer.seen().missed,
            How::Broker | How::Lab(..) => 0,
        }
    }
}
