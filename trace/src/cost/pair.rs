//! A private pair of sockets: one thread sends itself messages and takes the time.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Instant;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use crate::error::{Error, Result};
use crate::record::Transport;

const MESSAGE: usize = 64;

/// Two connected sockets, those of the internet on loopback.
#[derive(Debug)]
pub(super) struct Pair {
    from: OwnedFd,
    to: OwnedFd,
    port: u16,
    pub(super) transport: Transport,
}

impl Pair {
    /// Over this transport, which is of sockets.
    pub(super) fn new(transport: Transport) -> Result<Pair> {
        let made = sockets(transport).map_err(Error::system("cannot make a pair of sockets"))?;
        let (from, to, port) = made;
        Ok(Pair { from, to, port, transport })
    }

    /// The receiver's; 0: it has none.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Nanoseconds a message, of so many.
    pub(super) fn chunk(&self, messages: usize) -> Result<f64> {
        let start = Instant::now();
        self.run(messages)
            .map_err(|error| Error::system("cannot send on a private pair of sockets")(error.into()))?;
        Ok(start.elapsed().as_nanos() as f64 / messages as f64)
    }

    fn run(&self, messages: usize) -> rustix::io::Result<()> {
        let message = [0u8; MESSAGE];
        let mut buffer = message;
        for _ in 0..messages {
            send(&self.from, &message, SendFlags::NOSIGNAL)?;
            recv(&self.to, &mut buffer, RecvFlags::empty())?;
        }
        Ok(())
    }
}

/// Keeps this thread on its CPU.
pub(super) fn pin() -> Result<()> {
    let mut cpu = CpuSet::new();
    cpu.set(sched_getcpu());
    sched_setaffinity(None, &cpu).map_err(|error| Error::system("cannot stay on one CPU")(error.into()))
}

fn sockets(transport: Transport) -> io::Result<(OwnedFd, OwnedFd, u16)> {
    match transport {
        Transport::Udp => {
            let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            from.connect(to.local_addr()?)?;
            to.connect(from.local_addr()?)?;
            let port = to.local_addr()?.port();
            Ok((from.into(), to.into(), port))
        }
        Transport::Tcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = listener.local_addr()?;
            let from = TcpStream::connect(address)?;
            from.set_nodelay(true)?;
            Ok((from.into(), listener.accept()?.0.into(), address.port()))
        }
        Transport::UnixDatagram => UnixDatagram::pair().map(|(from, to)| (from.into(), to.into(), 0)),
        _ => UnixStream::pair().map(|(from, to)| (from.into(), to.into(), 0)),
    }
}
