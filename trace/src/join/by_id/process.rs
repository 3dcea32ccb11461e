//! Facts about a process from its ids so far, by which its next messages are judged.

use crate::join::counts::Counts;
use crate::join::message::Message;
use crate::record::{Point, Record};

/// A process and an id.
pub(super) type Key = (u32, u64);

/// Facts about a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    /// It has sent an id by another socket than that by which it came.
    pub(super) is_relay: bool,
    /// It has answered by the socket by which an id came.
    pub(super) is_server: bool,
    /// An id has come again.
    pub(super) is_repeating: bool,
    /// It has sent a message twice by one socket: of an id that comes again, a send may be an earlier message's.
    pub(super) is_resending: bool,
    /// When it last sent something whose id is not known: that may have been the first send of any message that it had.
    pub(super) sent_unseen_ns: u64,
    /// When it last received such, or may have: that may have been any message.
    pub(super) received_unseen_ns: u64,
}

impl Process {
    pub(super) fn has_unseen(&mut self, record: &Record) {
        let is_received = record.point == Point::Received;
        *if is_received { &mut self.received_unseen_ns } else { &mut self.sent_unseen_ns } = record.time_ns;
    }

    /// Whether something has left since the receive that may have been the first send of it.
    pub(super) fn lacks(&self, received: &Record) -> bool {
        self.sent_unseen_ns > received.time_ns
    }

    /// Joins a receive with the send that belongs to it, as far as is known.
    pub(super) fn found(
        &self,
        received: Record,
        sent: Record,
        counts: &mut Counts,
        mut each: impl FnMut(Message),
    ) {
        if self.lacks(&received) {
            counts.cut_off += 1;
            counts.undecided += 1;
        } else if sent.time_ns < received.time_ns {
            // It began before the receive's end.
            counts.streamed += 1;
        } else {
            counts.matched += 1;
            each(Message { received, sent, reads: 1 });
        }
    }

    /// Counts a receive without a send.
    pub(super) fn left(&self, received: &Record, counts: &mut Counts) {
        *if self.lacks(received) { &mut counts.cut_off } else { &mut counts.unmatched_received } += 1;
    }
}
