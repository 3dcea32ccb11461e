//! A message: a receive, and the send that it led to.

use crate::record::Record;

/// A message that came in and went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Point B.
    pub received: Record,
    /// Point C: [`crate::Point::Queued`] or [`crate::Point::Sent`].
    pub sent: Record,
    /// Calls that read it; more than one only from streams.
    pub reads: u32,
}

impl Message {
    /// T2: nanoseconds in the process.
    pub fn inside_ns(&self) -> u64 {
        self.sent.time_ns.saturating_sub(self.received.time_ns)
    }

    /// Whether it went back by the socket that it came in by.
    pub fn is_reply(&self) -> bool {
        self.received.socket == self.sent.socket
    }
}
