//! A netlink socket: dumps, single requests, and the stream of changes.

use super::attribute::{FLAG_DUMP_INTERRUPTED, HEADER, Request, aligned, read_u32};
use netlink_sys::{Socket, SocketAddr, protocols};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// One message of a datagram.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Message type.
    pub kind: u16,
    /// Flags of the header.
    pub flags: u16,
    /// Of an answer: the number of its request. Of a change: that of whatever request made it.
    pub sequence: u32,
    /// The part behind the header: the kind's fixed struct, then attributes.
    pub payload: &'a [u8],
}

/// Why talking to the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on the socket failed.
    #[error("netlink: {call}: {source}")]
    Socket {
        /// The call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("netlink: the kernel refused message type {kind}: {source}")]
    Refused {
        /// Message type of the request.
        kind: u16,
        /// The kernel's error.
        source: io::Error,
    },
}

fn socket_error(call: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Socket { call, source }
}

/// Requests that this process has sent.
static SENT: AtomicU64 = AtomicU64::new(0);

/// How many requests this process has sent to the kernel by netlink.
pub fn sent() -> u64 {
    SENT.load(Ordering::Relaxed)
}

const TYPE_NOOP: u16 = 1;
const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;

/// The kernel writes dumps in datagrams of at most 32 KiB, and larger ones only when one object needs it.
const BUFFER: usize = 1 << 20;

/// The part that a message is in an answer.
enum Part {
    Object,
    Nothing,
    /// The last, with the error if there is one.
    End(Option<Errno>),
}

impl Part {
    fn of(message: &Message<'_>) -> Self {
        match message.kind {
            TYPE_DONE | TYPE_ERROR => Self::End(errno(message.payload)),
            TYPE_NOOP => Self::Nothing,
            _ => Self::Object,
        }
    }
}

/// The result of reading the stream of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Everything queued was read.
    All,
    /// Enough for now; more is queued.
    More,
    /// The kernel dropped changes because the socket's buffer was full.
    Overrun,
}

/// A netlink socket with its receive buffer.
pub struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
    protocol: isize,
    /// A dump that was begun was not read to its end.
    unread: bool,
}

/// A dump that is read part by part.
#[derive(Debug)]
pub struct Ongoing {
    kind: u16,
    interrupted: bool,
}

impl Ongoing {
    /// Whether a change interrupted the dump, so that objects may be missing.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Netlink {
    /// A socket for links, addresses, neighbours, routes and rules.
    pub fn route() -> Result<Self, Error> {
        Self::open(protocols::NETLINK_ROUTE)
    }

    /// A socket for generic netlink families.
    pub fn generic() -> Result<Self, Error> {
        Self::open(protocols::NETLINK_GENERIC)
    }

    /// A socket for IPsec policies.
    pub fn xfrm() -> Result<Self, Error> {
        Self::open(protocols::NETLINK_XFRM)
    }

    /// A socket for nftables.
    pub fn netfilter() -> Result<Self, Error> {
        Self::open(protocols::NETLINK_NETFILTER)
    }

    fn open(protocol: isize) -> Result<Self, Error> {
        let mut socket = Socket::new(protocol).map_err(socket_error("socket"))?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(socket_error("bind"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(socket_error("connect"))?;
        // Without strict checking the kernel ignores a dump's filter. Linux before 4.20 lacks it; a dump
        // is filtered by its reader too.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, buffer: vec![0; BUFFER], sequence: 0, protocol, unread: false })
    }

    /// Joins multicast groups, with room for `bytes` of unread changes. Reads of changes no longer block.
    pub fn subscribe(&mut self, groups: &[u32], bytes: usize) -> Result<(), Error> {
        // FORCE passes net.core.rmem_max, which is far too small for a burst of routes, but needs CAP_NET_ADMIN.
        set_socket_recv_buffer_size_force(&self.socket, bytes)
            .or_else(|_| set_socket_recv_buffer_size(&self.socket, bytes))
            .map_err(|error| socket_error("SO_RCVBUF")(error.into()))?;
        for group in groups {
            self.socket.add_membership(*group).map_err(socket_error("NETLINK_ADD_MEMBERSHIP"))?;
        }
        self.socket.set_non_blocking(true).map_err(socket_error("FIONBIO"))
    }

    /// Sends `request` and hands each object of the answer to `each`. Returns whether a change interrupted the dump, so
    /// that objects may be missing. A table that does not exist is empty.
    pub fn dump(&mut self, request: Request, mut each: impl FnMut(Message<'_>)) -> Result<bool, Error> {
        let mut interrupted = false;
        let mut send_request = |socket: &mut Self| {
            let kind = socket.send(request.clone())?;
            let end = socket.answer(|message| {
                interrupted |= message.flags & FLAG_DUMP_INTERRUPTED != 0;
                if let Part::Object = Part::of(&message) {
                    each(message);
                }
            })?;
            Ok((kind, end))
        };
        let (kind, mut end) = send_request(self)?;
        if end == Some(Errno::BUSY) {
            // An earlier dump was not read to its end. Nothing else is tied to this socket.
            *self = Self::open(self.protocol)?;
            (_, end) = send_request(self)?;
        }
        match end {
            None | Some(Errno::NOENT) => Ok(interrupted),
            Some(error) => Err(Error::Refused { kind, source: error.into() }),
        }
    }

    /// Sends `request` for a dump that [`Netlink::go_on`] reads. The socket takes no other request until its end.
    pub fn begin(&mut self, request: Request) -> Result<Ongoing, Error> {
        if self.unread {
            *self = Self::open(self.protocol)?;
        }
        let kind = self.send(request)?;
        self.unread = true;
        Ok(Ongoing { kind, interrupted: false })
    }

    /// Reads the next part of a dump, one datagram, and hands its objects to `each`. Whether there may be more. A table that does not
    /// exist is empty.
    pub fn go_on(&mut self, dump: &mut Ongoing, mut each: impl FnMut(Message<'_>)) -> Result<bool, Error> {
        let len = self.receive(RecvFlags::empty()).map_err(|error| socket_error("recv")(error.into()))?;
        for message in messages(&self.buffer[..len]).filter(|message| message.sequence == self.sequence) {
            dump.interrupted |= message.flags & FLAG_DUMP_INTERRUPTED != 0;
            match Part::of(&message) {
                Part::Object => each(message),
                Part::Nothing => {}
                Part::End(error) => {
                    self.unread = false;
                    return match error {
                        None | Some(Errno::NOENT) => Ok(false),
                        Some(error) => Err(Error::Refused { kind: dump.kind, source: error.into() }),
                    };
                }
            }
        }
        Ok(true)
    }

    /// Sends `request` with an acknowledgement asked for, and hands each object of the answer to `each`.
    pub fn request(&mut self, request: Request, mut each: impl FnMut(Message<'_>)) -> Result<(), Error> {
        let kind = self.send(request.acknowledged())?;
        let end = self.answer(|message| {
            if let Part::Object = Part::of(&message) {
                each(message);
            }
        })?;
        end.map_or(Ok(()), |error| Err(Error::Refused { kind, source: error.into() }))
    }

    /// Reads the answer to the last request; returns the error at its end. An answer to an earlier request, which was given up, is
    /// skipped: without that each answer would be taken for that of the next request.
    fn answer(&mut self, mut each: impl FnMut(Message<'_>)) -> Result<Option<Errno>, Error> {
        loop {
            let len = self.receive(RecvFlags::empty()).map_err(|error| socket_error("recv")(error.into()))?;
            for message in messages(&self.buffer[..len]).filter(|message| message.sequence == self.sequence) {
                each(message);
                if let Part::End(error) = Part::of(&message) {
                    return Ok(error);
                }
            }
        }
    }

    /// Reads queued changes, at most about `limit` datagrams, without blocking.
    pub fn changes(&mut self, limit: usize, mut each: impl FnMut(Message<'_>)) -> Result<Received, Error> {
        for _ in 0..limit {
            match self.receive(RecvFlags::DONTWAIT) {
                Ok(len) => messages(&self.buffer[..len]).for_each(&mut each),
                Err(Errno::AGAIN) => return Ok(Received::All),
                Err(Errno::NOBUFS) => return Ok(Received::Overrun),
                Err(error) => return Err(socket_error("recv")(error.into())),
            }
        }
        Ok(Received::More)
    }

    fn send(&mut self, request: Request) -> Result<u16, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        SENT.fetch_add(1, Ordering::Relaxed);
        let bytes = request.finish(self.sequence);
        self.socket.send(&bytes, 0).map_err(socket_error("send"))?;
        Ok(u16::from_ne_bytes([bytes[4], bytes[5]]))
    }

    fn receive(&mut self, flags: RecvFlags) -> Result<usize, Errno> {
        loop {
            match rustix::net::recv(&self.socket, &mut self.buffer[..], flags) {
                Ok((len, _)) => return Ok(len.min(BUFFER)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The messages of a datagram; ends at the first that does not fit.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = read_u32(bytes)? as usize;
        let message = bytes.get(..len).filter(|message| message.len() >= HEADER)?;
        bytes = bytes.get(aligned(len)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([message[4], message[5]]),
            flags: u16::from_ne_bytes([message[6], message[7]]),
            sequence: u32::from_ne_bytes([message[8], message[9], message[10], message[11]]),
            payload: &message[HEADER..],
        })
    })
}

/// The error in an acknowledgement or at the end of a dump; `None` = success.
fn errno(payload: &[u8]) -> Option<Errno> {
    let code = payload.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
    (code != 0).then(|| Errno::from_raw_os_error(code.wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::super::{family, link, message, rule};
    use super::*;

    /// Answers that were never read, to a dump and to a request with an acknowledgement, are not taken for those of later requests.
    #[test]
    fn an_answer_belongs_to_its_request() {
        let mut socket = Netlink::route().unwrap();
        socket.send(link::dump()).unwrap();
        socket.send(Request::new(message::GET_LINK, 0, &[0; 16]).acknowledged()).unwrap();
        for _ in 0..3 {
            let mut kinds = Vec::new();
            socket.dump(rule::dump(family::INET), |message| kinds.push(message.kind)).unwrap();
            assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == message::NEW_RULE), "{kinds:?}");
        }
        // The kernel refuses link 0: the refusal belongs to its own request, too.
        socket.send(Request::new(message::GET_LINK, 0, &[0; 16]).acknowledged()).unwrap();
        let mut lo = [0; 16];
        lo[4] = 1;
        let mut found = 0;
        socket.request(Request::new(message::GET_LINK, 0, &lo), |_| found += 1).unwrap();
        assert_eq!(found, 1);
    }
}
