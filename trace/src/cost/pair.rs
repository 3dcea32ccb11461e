//! A private pair of sockets: one thread sends itself messages and takes the time.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::Effort;
use crate::error::{Error, Result};

const MESSAGE: usize = 64;

/// Two UDP sockets on loopback.
#[derive(Debug)]
pub(super) struct Pair {
    from: UdpSocket,
    to: UdpSocket,
    port: u16,
}

impl Pair {
    pub(super) fn new() -> Result<Pair> {
        let failed = Error::system("making a pair of sockets");
        let make = || {
            let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            from.connect(to.local_addr()?)?;
            to.connect(from.local_addr()?)?;
            let port = to.local_addr()?.port();
            Ok(Pair { from, to, port })
        };
        make().map_err(failed)
    }

    /// The receiver's.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Keeps this thread on its CPU.
    pub(super) fn pin(&self) -> Result<()> {
        let mut cpu = CpuSet::new();
        cpu.set(sched_getcpu());
        sched_setaffinity(None, &cpu).map_err(|error| Error::system("staying on one CPU")(error.into()))
    }

    /// Nanoseconds a message in the quickest chunk.
    pub(super) fn quickest(&mut self, effort: Effort) -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..effort.chunks {
            let start = Instant::now();
            self.run(effort.messages).map_err(Error::system("sending on a private pair of sockets"))?;
            best = best.min(start.elapsed().as_nanos() as f64 / effort.messages as f64);
        }
        Ok(best)
    }

    fn run(&mut self, messages: usize) -> std::io::Result<()> {
        let message = [0u8; MESSAGE];
        let mut buffer = message;
        for _ in 0..messages {
            self.from.send(&message)?;
            self.to.recv(&mut buffer)?;
        }
        Ok(())
    }

    /// Messages of a sample.
    pub(super) fn moved(&self, effort: Effort) -> u64 {
        (effort.chunks * effort.messages) as u64
    }
}
