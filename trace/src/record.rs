//! A hook's record: one event of one message at one point.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::intf::{tr_flags, tr_limits, tr_point, tr_transport};
use crate::runtime::Runtime;

/// The points of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Point {
    /// The kernel has copied it to the process: before the receiving call returns. Point B.
    Received = tr_point::TR_RECEIVED.0,
    /// It is handed to the device's queue, inside the sending call. Point C of UDP and TCP.
    Queued = tr_point::TR_QUEUED.0,
    /// The kernel has taken it from the process: before the sending call returns. Point C of Unix sockets. On a loopback device
    /// and for Unix sockets it has reached the receiver's socket by then.
    Sent = tr_point::TR_SENT.0,
    /// Its packet has come in by a device: it is handed to the kernel, or to XDP. Point R.
    Arrived = tr_point::TR_ARRIVED.0,
    /// Its packet leaves a host that passes it on, by XDP. Point Q.
    Forwarded = tr_point::TR_FORWARDED.0,
}

impl Point {
    /// In the order of `enum tr_point`.
    pub const ALL: [Point; 5] =
        [Point::Received, Point::Queued, Point::Sent, Point::Arrived, Point::Forwarded];

    /// The name in outputs.
    pub fn name(self) -> &'static str {
        ["received", "queued", "sent", "arrived", "forwarded"][self as usize]
    }
}

/// The transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Transport {
    /// UDP over IPv4 or IPv6.
    Udp = tr_transport::TR_UDP.0,
    /// TCP over IPv4 or IPv6.
    Tcp = tr_transport::TR_TCP.0,
    /// A Unix stream socket.
    UnixStream = tr_transport::TR_UNIX_STREAM.0,
    /// A Unix socket with message borders.
    UnixDatagram = tr_transport::TR_UNIX_DATAGRAM.0,
    /// None: functions of the process itself ([`crate::Probe`]). All of a point are one stream, whose messages have no borders.
    Function = tr_transport::TR_FUNCTION.0,
}

impl Transport {
    /// In the order of `enum tr_transport`.
    pub const ALL: [Transport; 5] =
        [Transport::Udp, Transport::Tcp, Transport::UnixStream, Transport::UnixDatagram, Transport::Function];

    /// The transports of sockets.
    pub const SOCKETS: [Transport; 4] =
        [Transport::Udp, Transport::Tcp, Transport::UnixStream, Transport::UnixDatagram];

    /// The name in outputs and on the command line.
    pub fn name(self) -> &'static str {
        ["udp", "tcp", "unix-stream", "unix-datagram", "function"][self as usize]
    }

    /// Whether messages have no borders in it.
    pub fn is_stream(self) -> bool {
        matches!(self, Transport::Tcp | Transport::UnixStream | Transport::Function)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of a message, by the decoder; without a decoder each call is a [`Kind::Message`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing more is known.
    #[default]
    Message,
    /// To all subscribers, on its way to the broker or from it.
    Publish,
    /// Wants an answer.
    Request,
    /// The answer.
    Response,
    /// Of the connection itself, or an acknowledgement: not joined.
    Control,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Message, Kind::Publish, Kind::Request, Kind::Response, Kind::Control];

    /// The name in outputs.
    pub fn name(self) -> &'static str {
        ["message", "publish", "request", "response", "control"][self as usize]
    }
}

// A number of `enum tr_point` or `enum tr_transport` is the place in these lists.
const _: () = {
    let mut at = 0;
    while at < Point::ALL.len() {
        assert!(Point::ALL[at] as usize == at && Transport::ALL[at] as usize == at);
        at += 1;
    }
    assert!(Transport::ALL.len() == tr_transport::TR_TRANSPORTS.0 as usize);
    assert!(Point::ALL.len() == tr_point::TR_OPENED.0 as usize);
};

/// `enum tr_flags`, and above it those that user space sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    pub(crate) const HAS_ID: u16 = tr_flags::TR_HAS_ID.0 as u16;
    const SHORT: u16 = tr_flags::TR_SHORT.0 as u16;
    pub(crate) const NO_BUFFER: u16 = tr_flags::TR_NO_BUFFER.0 as u16;
    const SEVERAL: u16 = tr_flags::TR_SEVERAL.0 as u16;
    pub(crate) const CLIENT: u16 = tr_flags::TR_CLIENT.0 as u16;
    pub(crate) const NO_POSITION: u16 = tr_flags::TR_NO_POSITION.0 as u16;
    /// Set by who looks for an id in user space; not in `enum tr_flags`.
    pub(crate) const ABSENT: u16 = 64;
    /// As [`Flags::ABSENT`].
    pub(crate) const EARLY: u16 = 256;
    pub(crate) const REST: u16 = 512;
    const _APART: () = {
        let hooks = Self::HAS_ID
            | Self::SHORT
            | Self::NO_BUFFER
            | Self::SEVERAL
            | Self::CLIENT
            | Self::NO_POSITION
            | tr_flags::TR_FAULT.0 as u16;
        assert!(hooks & (Self::ABSENT | Self::EARLY | Self::REST) == 0);
    };

    pub(crate) fn with(self, flag: u16) -> Flags {
        Flags(self.0 | flag)
    }

    /// The same of a client, or not.
    pub fn of_client(self, is_client: bool) -> Flags {
        Flags(if is_client { self.0 | Flags::CLIENT } else { self.0 & !Flags::CLIENT })
    }

    /// The id was read.
    pub fn has_id(self) -> bool {
        self.0 & Flags::HAS_ID != 0
    }
    /// The message ends before the id does.
    pub fn is_short(self) -> bool {
        self.0 & Flags::SHORT != 0
    }
    /// The hook does not see where the message lies (io_uring, recvmmsg, sendmmsg, a packet in pieces), or the id lies in two places.
    pub fn has_no_buffer(self) -> bool {
        self.0 & Flags::NO_BUFFER != 0
    }
    /// The message has no id, and all bytes that are searched were seen.
    pub fn is_absent(self) -> bool {
        self.0 & Flags::ABSENT != 0
    }
    /// The kernel had no memory to count where it lies in its stream.
    pub fn has_no_position(self) -> bool {
        self.0 & Flags::NO_POSITION != 0
    }
    /// Not a message, but the rest of a call with unknown messages; or, without bytes, a socket that has rested. Requests that
    /// came by it have no answer from here on.
    pub fn is_rest(self) -> bool {
        self.0 & Flags::REST != 0
    }
    /// An answer that began before its request had come to its end, or such a request.
    pub fn is_early(self) -> bool {
        self.0 & Flags::EARLY != 0
    }
    /// Of a process that sends to those that are traced, or receives from them; at devices: towards their port.
    pub fn is_client(self) -> bool {
        self.0 & Flags::CLIENT != 0
    }
    /// One record for a call or a packet with several messages; `bytes` is their number.
    pub fn is_several(self) -> bool {
        self.0 & Flags::SEVERAL != 0
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// A number of the socket: the same in all of a trace's records as long as the socket lives. Of functions: of the point.
    pub socket: u64,
    /// The message's id, its first byte lowest.
    pub id: Option<u64>,
    /// The thread whose call it was (in the host's PID namespace).
    pub thread: u32,
    /// Its process (there, too); 0 at devices, which know none.
    pub process: u32,
    /// Bytes moved; of functions what they returned, 0 at their entry.
    pub bytes: u32,
    /// The point.
    pub point: Point,
    /// The transport.
    pub transport: Transport,
    /// Its kind.
    pub kind: Kind,
    /// Where it ends in its stream, modulo 2³². Of TCP the sequence number behind it. Of Unix sockets bytes, of those with message
    /// borders messages, since the socket was first seen. UDP has no streams: there it is 0. Without [`crate::Options::stages`] only
    /// sends over TCP are sure to have one.
    pub position: u32,
    /// The state of the id.
    pub flags: Flags,
}

/// A socket's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its number, as its records have it.
    pub number: u64,
    /// Its transport.
    pub transport: Transport,
    /// The ends that its messages come from and go to.
    pub ends: Ends,
}

/// The ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Addresses and ports; an IPv4 address in an IPv6 socket is an IPv4 address.
    Internet {
        /// The socket's own.
        local: SocketAddr,
        /// The other's.
        remote: SocketAddr,
    },
    /// The number of the Unix socket at the other end, if it is connected.
    Unix(Option<u64>),
}

/// An event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message at a point.
    Record(Record),
    /// A message at a device that it passes: [`Point::Arrived`], [`Point::Forwarded`].
    Passed(Record),
    /// A socket that was not seen before, or whose number now is another's: before its first record.
    Socket(Socket),
    /// A process that was not seen before, where messages are joined by thread: before its first record.
    Process {
        /// The process.
        process: u32,
        /// The runtime that moves messages between its threads, if one is known.
        runtime: Option<Runtime>,
    },
    /// A thread has ended: its number may become another's.
    Ended {
        /// `CLOCK_MONOTONIC`, nanoseconds.
        time_ns: u64,
        /// The thread.
        thread: u32,
    },
    /// Records were lost just before, or the hooks were off: what comes now does not belong to what came.
    Gap {
        /// `CLOCK_MONOTONIC`, nanoseconds.
        time_ns: u64,
    },
}

impl Event {
    /// When it was, if that is known.
    pub(crate) fn time_ns(&self) -> Option<u64> {
        match self {
            Event::Record(record) | Event::Passed(record) => Some(record.time_ns),
            Event::Ended { time_ns, .. } | Event::Gap { time_ns } => Some(*time_ns),
            Event::Socket(_) | Event::Process { .. } => None,
        }
    }
}

impl From<Record> for Event {
    fn from(record: Record) -> Event {
        match record.point {
            Point::Arrived | Point::Forwarded => Event::Passed(record),
            _ => Event::Record(record),
        }
    }
}

/// Where a message has its id: `OFFSET:BYTES` (`offset:OFFSET` for eight bytes), or `RECEIVED/SENT:BYTES` where the process sends it at another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdAt {
    /// Bytes before it in what is received.
    pub received: u32,
    /// In what is sent.
    pub sent: u32,
    /// Its own: one to eight.
    pub bytes: u8,
}

impl FromStr for IdAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "id `{text}`: expected OFFSET:BYTES, as in 0:8, or RECEIVED/SENT:BYTES, as in 10/12:8, with 1 to 8 bytes and \
                 offsets up to 65535"
            )
        };
        let offset = |text: &str| text.parse::<u16>().map(u32::from).map_err(|_| wrong());
        let places = text.strip_prefix("offset:").unwrap_or(text);
        let is_named = places.len() < text.len();
        let (offsets, bytes) =
            places.split_once(':').or(is_named.then_some((places, "8"))).ok_or_else(wrong)?;
        let (received, sent) = offsets.split_once('/').unwrap_or((offsets, offsets));
        let bytes = bytes
            .parse()
            .ok()
            .filter(|bytes| (1..=tr_limits::TR_ID_MAX.0 as u8).contains(bytes))
            .ok_or_else(wrong)?;
        Ok(IdAt { received: offset(received)?, sent: offset(sent)?, bytes })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record; tests change what matters to them.
    pub(crate) const RECORD: Record = Record {
        time_ns: 1,
        socket: 1,
        id: None,
        thread: 1,
        process: 1,
        bytes: 64,
        point: Point::Received,
        transport: Transport::Tcp,
        kind: Kind::Message,
        position: 0,
        flags: Flags(0),
    };

    /// A record of this point, transport, thread, socket and time.
    pub(crate) fn record(
        point: Point,
        transport: Transport,
        thread: u32,
        socket: u64,
        time_ns: u64,
    ) -> Record {
        Record { time_ns, socket, thread, point, transport, ..RECORD }
    }

    #[test]
    fn ids_are_offset_and_bytes() {
        assert_eq!("16:4".parse(), Ok(IdAt { received: 16, sent: 16, bytes: 4 }));
        assert_eq!("10/12:8".parse(), Ok(IdAt { received: 10, sent: 12, bytes: 8 }));
        assert_eq!("offset:8".parse(), Ok(IdAt { received: 8, sent: 8, bytes: 8 }));
        assert_eq!("offset:1/2:4".parse(), Ok(IdAt { received: 1, sent: 2, bytes: 4 }));
        for bad in ["", "offset:", "offset:x", "8", "0:0", "0:9", "65536:1", "-1:4", "a:b", "1/:2", "1/2/3:4"]
        {
            assert!(bad.parse::<IdAt>().unwrap_err().contains("OFFSET:BYTES"), "{bad}");
        }
    }
}
