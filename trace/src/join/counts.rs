//! Counts of joined records, and of those that cannot be joined.

use std::ops::AddAssign;

/// Counts of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Receives.
    pub received: u64,
    /// Sends, each once, whether seen at the device's queue, at the end of the call or at both.
    pub sent: u64,
    /// Messages: a receive, or several reads of one, with the send that it led to.
    pub matched: u64,
    /// Reads beyond a message's first, from the same stream.
    pub pieces: u64,
    /// Sends beyond a message's first: fan-out, or one message sent in parts.
    pub copies: u64,
    /// By thread: sends that end a T2 of a message that has another one already. It was passed on and answered, or left by several
    /// transports.
    pub ways: u64,
    /// By thread: datagrams and lines to Unix streams, sent while the thread had a message of another transport. Nothing was received by
    /// their socket. These are lines of a log, counters. They end no T2.
    pub aside: u64,
    /// Receives that cannot be assigned: several came before a send, or their sends went by several sockets. With ids: messages whose id
    /// was in the process more than once, so that the send may be another's.
    pub ambiguous: u64,
    /// Sends of ambiguous or cut-off messages, whose own message is not known.
    pub undecided: u64,
    /// By thread: receives of processes whose runtime moves messages between threads ([`crate::Runtime`]).
    pub shared: u64,
    /// Receives that no send followed.
    pub unmatched_received: u64,
    /// Sends without a receive before them; with ids: without a receive of the same id.
    pub unmatched_sent: u64,
    /// Sends over TCP that the kernel queued only later, outside the call: C is the end of the call instead.
    pub queued_later: u64,
    /// With ids: messages whose send began before all was received, as a relay does that passes bytes on while they come: they have no T2.
    pub streamed: u64,
    /// With a decoder: answers that began before their request had come to its end, and such requests: they have no T2.
    pub early: u64,
    /// With ids: messages too short for theirs.
    pub short: u64,
    /// With ids by a pattern or a decoder: messages that have none.
    pub absent: u64,
    /// With a decoder: messages of the connections themselves, and acknowledgements; not among `received` and `sent`.
    pub control: u64,
    /// Receives and sends of clients; not among `received` and `sent`.
    pub clients: u64,
    /// With ids: messages whose bytes the hook could not see.
    pub unreadable: u64,
    /// Receives that were in hand when records were lost, or as the hooks went off: what was sent next is not known.
    pub cut_off: u64,
    /// With ids: receives that were let go before a send of theirs was seen, as too many others waited: whether one followed is not known.
    pub given_up: u64,
    /// With ids: those that were let go before they had rested, as more than 2^18 came in that time. Later sends with them are in
    /// `unmatched_sent`.
    pub forgotten: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.received += more.received;
        self.sent += more.sent;
        self.matched += more.matched;
        self.pieces += more.pieces;
        self.copies += more.copies;
        self.ways += more.ways;
        self.aside += more.aside;
        self.ambiguous += more.ambiguous;
        self.undecided += more.undecided;
        self.shared += more.shared;
        self.unmatched_received += more.unmatched_received;
        self.unmatched_sent += more.unmatched_sent;
        self.queued_later += more.queued_later;
        self.streamed += more.streamed;
        self.early += more.early;
        self.short += more.short;
        self.absent += more.absent;
        self.control += more.control;
        self.clients += more.clients;
        self.unreadable += more.unreadable;
        self.cut_off += more.cut_off;
        self.given_up += more.given_up;
        self.forgotten += more.forgotten;
    }
}
