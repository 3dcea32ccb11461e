//! The broker of `trace-overhead`: a process that passes messages on and takes times in the way that each message asks for. So all
//! ways are measured in one process at the same addresses.

use std::{
    fs::File,
    io::{Write, stderr, stdin, stdout},
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::{ClockId, clock_gettime};
use trieline_sampling::Gate;

use crate::{Error, Result, error::During, measure::monotonic_ns, netns};

/// Bytes of a message.
pub const MESSAGE: usize = 64;
/// Where a message has its id.
pub const ID_AT: usize = 8;
/// Messages of a batch, whose time on the processor is taken together.
pub const BATCH: usize = 64;
/// How long a broker waits for the batch to lie ready.
const HOLD: Duration = Duration::from_micros(700);
/// Times that are kept in memory.
const KEPT: usize = 1 << 20;

/// The first byte of a message: what the broker does itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Nothing.
    Nothing,
    /// Keeps both times in an array.
    Memory,
    /// Writes each time to a file.
    File,
}

/// The second byte: what it does after it has passed the message on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Goes on.
    GoOn,
    /// Waits until a batch lies ready, and begins to count its own time.
    Hold,
    /// Says what the batch took.
    Say,
    /// Says it, and sleeps until the next message, so that hooks can be exchanged without a busy processor.
    SayAndSleep,
}

/// The broker's line of three numbers.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Processor time of a message of the batch, nanoseconds.
    pub cpu_ns: f64,
    /// Seconds of the gate's loop on its processor.
    pub gate: f64,
    /// Messages whose times it has taken itself, so far.
    pub noted: u64,
}

impl Reading {
    /// From its line.
    pub fn parse(line: &str) -> Option<Reading> {
        let mut words = line.split_whitespace();
        let mut next = || words.next();
        let reading = Reading {
            cpu_ns: next()?.parse().ok()?,
            gate: next()?.parse().ok()?,
            noted: next()?.parse().ok()?,
        };
        next().is_none().then_some(reading)
    }
}

struct Notes {
    times: Vec<[u64; 2]>,
    file: File,
    noted: u64,
}

impl Notes {
    /// Both times of a message, before it is sent.
    fn take(&mut self, own: u8) -> std::io::Result<()> {
        if own == Own::Memory as u8 {
            let received = monotonic_ns();
            let at = self.noted as usize % KEPT;
            self.times[at] = [received, monotonic_ns()];
        } else if own == Own::File as u8 {
            self.file.write_all(&monotonic_ns().to_le_bytes())?;
            self.file.write_all(&monotonic_ns().to_le_bytes())?;
        } else {
            return Ok(());
        }
        self.noted += 1;
        Ok(())
    }
}

/// Passes messages from the socket that is standard input to the one that is standard output, until there are no more. Says what batches
/// took on standard error. A busy one asks for messages again and again, the other waits for them. It stays on one CPU, from 0.
pub fn serve(is_busy: bool, cpu: usize) -> Result<()> {
    let fd = |fd: std::io::Result<OwnedFd>| fd.during(|| "cannot open the broker's sockets".into());
    let input = fd(stdin().as_fd().try_clone_to_owned())?;
    let output = fd(stdout().as_fd().try_clone_to_owned())?;
    netns::pin_to(cpu)?;
    netns::insist_here()?;
    let file = tempfile::tempfile().during(|| "cannot make a file for times".into())?;
    // Ones, so that the memory is there.
    let mut notes = Notes { times: vec![[1; 2]; KEPT], file, noted: 0 };
    let waits = if is_busy { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    let mut flags = RecvFlags::empty();
    let mut message = [0u8; MESSAGE];
    let mut began = 0;
    loop {
        let bytes = match recv(&input, &mut message, flags) {
            Ok((0, _)) => return Ok(()),
            Ok((bytes, _)) => bytes,
            Err(rustix::io::Errno::AGAIN) => continue,
            Err(error) => return Err(error).during(|| "cannot receive".into()),
        };
        flags = waits;
        notes.take(message[0]).during(|| "cannot write a time".into())?;
        let sent = send(&output, &message, SendFlags::empty()).during(|| "cannot send".into())?;
        if (bytes, sent) != (MESSAGE, MESSAGE) {
            let why = format!("{bytes} bytes received and {sent} sent: expected {MESSAGE}");
            return Err(Error::Daemon { what: why, stderr: String::new() });
        }
        if message[1] == Then::Hold as u8 {
            let until = Instant::now() + HOLD;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            began = thread_ns();
        } else if message[1] >= Then::Say as u8 {
            let cpu_ns = (thread_ns() - began) as f64 / BATCH as f64;
            let line = format!("{cpu_ns} {} {}\n", Gate::seconds(), notes.noted);
            stderr().write_all(line.as_bytes()).during(|| "cannot write the times of a batch".into())?;
            if message[1] == Then::SayAndSleep as u8 {
                flags = RecvFlags::empty();
            }
        }
    }
}

/// Nanoseconds that this thread has been on a processor.
fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_three_numbers() {
        let reading = Reading::parse("3200.5 0.000051 128\n").unwrap();
        assert_eq!((reading.cpu_ns, reading.gate, reading.noted), (3200.5, 0.000051, 128));
        for bad in ["", "1 2", "1 2 3 4", "trieline: receiving: broken"] {
            assert!(Reading::parse(bad).is_none(), "{bad}");
        }
    }
}
