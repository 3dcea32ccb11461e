//! Sender and receiver of `trace-overhead`, in one thread: each message's way is timed from before its send to after its receipt.

use std::{
    io::{BufRead, BufReader, Read},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};
use trieline_trace::Transport;

use super::broker::{BATCH, ID_AT, MESSAGE, Own, Reading, Then};
use crate::{Error, Result, error::During, measure::monotonic_ns};

/// A way's turn in a round.
pub(crate) struct Sample {
    /// Mean of the messages' ways, the quickest 5 % and the slowest 10 % left out.
    pub(super) way_ns: f64,
    pub(super) cpu_ns: f64,
    pub(super) ways_ns: Vec<u32>,
}

/// Longest that a message may be under way.
const PATIENCE: Duration = Duration::from_secs(1);
/// Batches of a segment; the quickest counts.
const BATCHES: usize = 3;

/// How the broker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Broker {
    /// It asks again and again.
    Busy,
    /// It sleeps in the receiving call.
    Blocking,
}

impl Broker {
    /// As in a row and on the command line.
    pub fn name(self) -> &'static str {
        ["busy", "blocking"][self as usize]
    }
}

/// A running broker between two pairs of sockets.
pub struct Bench {
    child: Child,
    reading: BufReader<ChildStderr>,
    from: OwnedFd,
    to: OwnedFd,
    transport: Transport,
    next: u64,
}

/// The result of a segment.
pub struct Segment {
    /// Of each message, from before its send to after its receipt, nanoseconds.
    pub way_ns: Vec<u32>,
    /// Processor time of the broker a message, nanoseconds: the quickest batch.
    pub cpu_ns: f64,
    /// Seconds of the gate's loop on the broker's processor.
    pub gate: Vec<f64>,
    /// Messages that went through the broker, those of batches among them.
    pub messages: u64,
    /// Messages whose times the broker has taken itself since it began.
    pub noted: u64,
}

impl Bench {
    /// Starts `program broker KIND CPU`: the broker would inherit the one CPU of this thread.
    pub fn start(program: &Path, transport: Transport, broker: Broker, cpu: usize) -> Result<Bench> {
        let sockets = || "cannot make sockets".to_owned();
        let (from, input) = pair(transport).during(sockets)?;
        let (output, to) = pair(transport).during(sockets)?;
        let mut command = Command::new(program);
        command
            .args(["broker", broker.name(), &cpu.to_string()])
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output));
        let starting = || format!("cannot start {}", program.display());
        let mut child = command.stderr(Stdio::piped()).spawn().during(starting)?;
        let Some(reading) = child.stderr.take() else {
            return Err(Error::Daemon {
                what: "the broker has no standard error".into(),
                stderr: String::new(),
            });
        };
        let mut bench = Bench { child, reading: BufReader::new(reading), from, to, transport, next: 1 };
        // The first message finds the broker when it is ready. Then it sleeps: beside a busy processor hooks are loaded slowly.
        let until = Instant::now() + PATIENCE;
        bench.send(Own::Nothing, Then::SayAndSleep)?;
        while bench.try_receive()?.is_none() {
            if Instant::now() > until {
                return Err(bench.gone(0));
            }
        }
        bench.listen()?;
        Ok(bench)
    }

    /// The broker's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends messages one by one, `gap` apart, then batches.
    pub fn segment(&mut self, own: Own, messages: usize, gap: Duration) -> Result<Segment> {
        let first = self.next;
        let mut way_ns = Vec::with_capacity(messages);
        let mut slot = Instant::now();
        for _ in 0..messages {
            slot = (slot + gap).max(Instant::now());
            while Instant::now() < slot {
                std::hint::spin_loop();
            }
            way_ns.push(self.pass(own, Then::GoOn)?);
        }
        let mut reading = Vec::with_capacity(BATCHES);
        for batch in 1..=BATCHES {
            self.pass(own, Then::Hold)?;
            let last = if batch < BATCHES { Then::Say } else { Then::SayAndSleep };
            for n in 1..=BATCH {
                self.send(own, if n < BATCH { Then::GoOn } else { last })?;
            }
            for n in 0..BATCH as u64 {
                self.receive(self.next - BATCH as u64 + n)?;
            }
            reading.push(self.listen()?);
        }
        Ok(Segment {
            way_ns,
            cpu_ns: reading.iter().map(|reading| reading.cpu_ns).fold(f64::INFINITY, f64::min),
            gate: reading.iter().map(|reading| reading.gate).collect(),
            messages: self.next - first,
            noted: reading.last().map_or(0, |reading| reading.noted),
        })
    }

    /// One message through the broker.
    fn pass(&mut self, own: Own, then: Then) -> Result<u32> {
        let sent_ns = monotonic_ns();
        let id = self.send(own, then)?;
        self.receive(id)?;
        Ok((monotonic_ns() - sent_ns).min(u32::MAX.into()) as u32)
    }

    fn send(&mut self, own: Own, then: Then) -> Result<u64> {
        let mut message = [0u8; MESSAGE];
        message[0] = own as u8;
        message[1] = then as u8;
        let id = self.next;
        message[ID_AT..ID_AT + 8].copy_from_slice(&id.to_ne_bytes());
        self.next += 1;
        send(&self.from, &message, SendFlags::empty()).during(|| "cannot send a message".into())?;
        Ok(id)
    }

    fn try_receive(&mut self) -> Result<Option<[u8; MESSAGE]>> {
        let mut message = [0u8; MESSAGE];
        match recv(&self.to, &mut message, RecvFlags::DONTWAIT) {
            Ok((MESSAGE, _)) => Ok(Some(message)),
            Ok(_) => Err(self.gone(self.next - 1)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error).during(|| "cannot receive a message".into()),
        }
    }

    /// Waits for the message with this id, asking again and again.
    fn receive(&mut self, id: u64) -> Result<()> {
        let mut asked = 0u32;
        let mut since = None;
        loop {
            if let Some(message) = self.try_receive()? {
                return if message[ID_AT..ID_AT + 8] == id.to_ne_bytes() {
                    Ok(())
                } else {
                    Err(self.gone(id))
                };
            }
            asked += 1;
            if asked.is_multiple_of(1 << 12) {
                let since: &mut Instant = since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(self.gone(id));
                }
            }
        }
    }

    fn listen(&mut self) -> Result<Reading> {
        let mut line = String::new();
        self.reading.read_line(&mut line).during(|| "cannot listen to the broker".into())?;
        Reading::parse(&line).ok_or_else(|| Error::Daemon { what: "the broker failed".into(), stderr: line })
    }

    fn gone(&mut self, id: u64) -> Error {
        let mut reading = String::new();
        if let Ok(Some(status)) = self.child.try_wait() {
            let _ = self.reading.read_to_string(&mut reading);
            reading = format!("; it has ended with {status} and said: {reading}");
        }
        Error::Gone { id, transport: self.transport.name(), reading }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two connected sockets: who sends, who receives.
fn pair(transport: Transport) -> std::io::Result<(OwnedFd, OwnedFd)> {
    match transport {
        Transport::Udp => {
            let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            from.connect(to.local_addr()?)?;
            to.connect(from.local_addr()?)?;
            Ok((from.into(), to.into()))
        }
        Transport::Tcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let from = TcpStream::connect(listener.local_addr()?)?;
            let (to, _) = listener.accept()?;
            from.set_nodelay(true)?;
            Ok((from.into(), to.into()))
        }
        _ => UnixStream::pair().map(|(from, to)| (from.into(), to.into())),
    }
}
