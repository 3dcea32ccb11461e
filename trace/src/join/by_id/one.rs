//! One id of a process: its messages, one after the other, and by which sockets they came and left.

use crate::record::Record;

/// An id's messages.
#[derive(Debug, Default)]
pub(super) struct Id {
    /// Receives without a send so far.
    pub(super) open: Vec<Record>,
    /// Several were open at once.
    pub(super) is_contested: bool,
    /// Messages of it may have come that were not seen.
    pub(super) is_unsure: bool,
    /// How many have come since the id began.
    messages: u32,
    sockets: Vec<Socket>,
    /// T2 of messages whose id had come before. If the socket sends the id again, it sends messages twice, and this may be the earlier one.
    held: Vec<Held>,
    pub(super) received_ns: u64,
    pub(super) last_ns: u64,
}

/// A socket by which the id came or left.
#[derive(Debug)]
struct Socket {
    number: u64,
    /// Receives.
    came: u32,
    /// Sends.
    went: u32,
    /// How many of the messages have left by it; [`UNSURE`] where that is not known.
    left: u32,
    /// Several came by it at once: who knows which of them have been answered.
    is_confused: bool,
}

const UNSURE: u32 = u32::MAX;

/// A T2 that waits for what comes next.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) received: Record,
    pub(super) sent: Record,
    /// An answer by the socket by which it came.
    is_own: bool,
}

/// A send with the id, as far as its socket shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    /// It is the last message: all before it have left by the socket. Each message leaves at most once by a socket, in order; so else it
    /// may be any.
    pub(super) is_last: bool,
    /// It is one more than the messages that came.
    pub(super) is_again: bool,
    /// It is one more than the messages that came by the socket, and at least one came.
    pub(super) is_again_to_own: bool,
    /// The socket has sent the id before, or may have.
    pub(super) is_repeated: bool,
    /// Several messages came by the socket, and some may have been answered.
    pub(super) is_confused: bool,
}

impl Id {
    fn socket(&mut self, number: u64) -> &mut Socket {
        let at = self.sockets.iter().position(|socket| socket.number == number).unwrap_or_else(|| {
            self.sockets.push(Socket { number, came: 0, went: 0, left: 0, is_confused: false });
            self.sockets.len() - 1
        });
        &mut self.sockets[at]
    }

    /// Whether nothing of the id can come any more that belongs to what came before.
    pub(super) fn has_rested(&self, now_ns: u64, rest_ns: u64) -> bool {
        self.last_ns.saturating_add(rest_ns) <= now_ns
    }

    /// The id begins again, or goes on; `is_unsure`: messages of it may have come that were not seen.
    pub(super) fn receive(&mut self, received: Record, is_unsure: bool, rest_ns: u64) {
        if self.open.is_empty() {
            self.is_contested = false;
            if self.messages > 0 && self.has_rested(received.time_ns, rest_ns) {
                self.messages = 0;
                self.is_unsure = false;
                self.sockets.clear();
            }
        } else {
            self.is_contested = true;
        }
        if is_unsure {
            self.messages += 1;
            self.is_unsure = true;
        }
        self.messages += 1;
        self.socket(received.socket).came += 1;
        self.received_ns = received.time_ns;
        self.last_ns = self.last_ns.max(received.time_ns);
        self.open.push(received);
    }

    /// Notes a send.
    pub(super) fn leave(&mut self, sent: &Record) -> Leaving {
        self.last_ns = self.last_ns.max(sent.time_ns);
        let (messages, is_unsure) = (self.messages, self.is_unsure);
        let socket = self.socket(sent.socket);
        socket.went += 1;
        let is_first = socket.went == 1;
        let all_left = !is_first && socket.left == messages;
        let is_last = if is_first { messages == 1 } else { socket.left.checked_add(1) == Some(messages) };
        socket.left = if is_last { messages } else { UNSURE };
        Leaving {
            is_last,
            is_again: all_left,
            is_again_to_own: (1..socket.went).contains(&socket.came),
            is_repeated: !is_first || is_unsure,
            is_confused: socket.is_confused,
        }
    }

    /// Several that came by the socket may be the one that left.
    pub(super) fn confuse(&mut self, socket: u64) {
        self.socket(socket).is_confused = true;
    }

    /// Keeps a T2 until it is known whether its socket sends the id once more.
    pub(super) fn hold(&mut self, received: Record, sent: Record, is_own: bool) {
        self.held.push(Held { received, sent, is_own });
    }

    /// The messages that are settled as the id comes by a socket.
    pub(super) fn settled(&mut self, socket: u64) -> impl Iterator<Item = Held> {
        self.held.extract_if(.., move |held| !held.is_own || held.received.socket == socket)
    }

    /// The messages that are unsettled as the socket has sent the id again.
    pub(super) fn unsettled(&mut self, socket: u64) -> impl Iterator<Item = Held> {
        self.held.extract_if(.., move |held| held.sent.socket == socket)
    }

    /// All that is held: nothing more is to come.
    pub(super) fn all_held(&mut self) -> impl Iterator<Item = Held> {
        self.held.drain(..)
    }
}
