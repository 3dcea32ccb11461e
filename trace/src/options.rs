//! The options of a trace.

use std::str::FromStr;

use crate::backend::Backend;
use crate::decode::Decode;
use crate::error::Result;
use crate::filter::{COMM_MAX, Filter};
use crate::join::By;
use crate::record::{IdAt, Transport};
use crate::user::Probe;

/// Bytes of all rings, unless set.
pub(crate) const RINGS_MAX: u64 = 64 << 20;

/// The choice of point C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaves {
    /// At the device's queue, before the packet leaves; Unix sockets, which have none: when the send is done.
    #[default]
    Queue,
    /// The end of the send: cheaper, and its cost lies behind the message; on loopback that includes the delivery.
    Done,
}

/// A process at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Client {
    /// By its number.
    Process(u32),
    /// By its name (`/proc/PID/comm`).
    Name(String),
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.parse() {
            Ok(process) => Ok(Client::Process(process)),
            Err(_) if (1..=COMM_MAX).contains(&text.len()) => Ok(Client::Name(text.to_owned())),
            Err(_) => Err(format!("client `{text}`: expected a process or a name of 1 to {COMM_MAX} bytes")),
        }
    }
}

/// The options of a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// The filter.
    pub filter: Filter,
    /// The place of the messages' id.
    pub id: Option<IdAt>,
    /// Write ids into messages that leave over UDP, where their eight bytes have this value: the first lowest. Such messages are those
    /// of this thread's network namespace, by the devices that are there at the start.
    pub stamp: Option<u64>,
    /// Note when messages over UDP arrive at the devices of this thread's network namespace, too, by their port and id.
    pub arrivals: bool,
    /// The way to read the messages' bytes.
    pub decode: Option<Decode>,
    /// Bytes of each message that are captured for that, its first ones: a multiple of eight; 0: none.
    pub capture: u32,
    /// Processes that send to those that are traced, or receive from them: their sends are A, their receives D.
    pub clients: Vec<Client>,
    /// Note where messages lie in their streams and who sockets are, as [`crate::Hops`] needs it; decoders of streams do so, too. Not by
    /// system calls.
    pub stages: bool,
    /// The choice of point C.
    pub leaves: Leaves,
    /// Records that each CPU's ring holds at most: a power of two.
    pub slots: u32,
    /// Bytes of all rings: they hold fewer records where they would take more, but 256 each or [`Options::slots`].
    pub rings_max: u64,
    /// Only this backend.
    pub backend: Option<Backend>,
    /// Join by thread also in processes whose runtime moves messages between threads ([`crate::Runtime`]).
    pub trust_threads: bool,
    /// Take the points in functions of the processes themselves ([`Backend::User`]), some for each; none: at their sockets.
    pub probes: Vec<Probe>,
}

impl Options {
    /// The defaults: rings of 65,536 records (2.5 MiB a CPU), of 64 MiB in all.
    pub fn new(filter: Filter) -> Options {
        Options {
            filter,
            id: None,
            stamp: None,
            arrivals: false,
            decode: None,
            capture: 0,
            clients: Vec::new(),
            stages: false,
            leaves: Leaves::Queue,
            slots: 1 << 16,
            rings_max: RINGS_MAX,
            backend: None,
            trust_threads: false,
            probes: Vec::new(),
        }
    }

    /// The way that messages are joined.
    pub fn by(&self) -> By {
        if self.id.is_some() || self.decode.is_some() { By::Id } else { By::Thread }
    }

    /// Whether a process's runtime matters.
    pub(crate) fn looks_at_runtimes(&self) -> bool {
        self.by() == By::Thread && !self.trust_threads
    }

    /// Whether only clients are followed: of two hosts, on that of the sender or the receiver.
    pub(crate) fn is_clients_only(&self) -> bool {
        self.filter.is_open() && !self.clients.is_empty()
    }

    /// Refuses what would trace nothing.
    pub fn check_filter(&self) -> Result<()> {
        if self.is_clients_only() { Ok(()) } else { self.filter.check() }
    }

    /// Whether it is noted where messages lie in their streams, and who sockets are.
    pub(crate) fn has_streams(&self) -> bool {
        self.stages || self.decode.as_ref().is_some_and(Decode::is_of_streams)
    }

    /// Whether anything lies beside records.
    pub(crate) fn has_payloads(&self) -> bool {
        let has_segments = self.leaves == Leaves::Queue && self.filter.transports.contains(&Transport::Tcp);
        self.capture > 0 || self.has_streams() || (self.id.is_some() && has_segments)
    }
}
