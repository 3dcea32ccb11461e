//! The reading threads of `livelock`: UDP and AF_XDP, each with its work a frame.

use std::{
    hint::black_box,
    io,
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{bed::Pair, offer::TAG_AT, receiver::Receiver, xsk::Socket};
use crate::{
    error::{During, Result},
    measure::{Samples, thread_seconds},
};

/// How often a reader that sleeps looks whether its trial is over.
const LOOK: Duration = Duration::from_millis(20);
/// The port of every frame.
const PORT: u16 = 9;
/// Microseconds that a reader of `udp-busy-poll` polls the device before it sleeps.
const BUSY_POLL_US: i32 = 50;
/// Frames that an AF_XDP reader takes at a time.
const BATCH: u32 = 64;

/// Busy computing, by a number of steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    steps: u64,
}

impl Work {
    /// As many steps as take so many nanoseconds of CPU time on this CPU now.
    pub fn of(ns: u64) -> Work {
        const STEPS: u64 = 2_000_000;
        if ns == 0 {
            return Work { steps: 0 };
        }
        let times: Samples = (0..5)
            .map(|_| {
                let before = thread_seconds();
                Work { steps: STEPS }.perform();
                thread_seconds() - before
            })
            .collect();
        Work { steps: (ns as f64 * 1e-9 * STEPS as f64 / times.median()).round().max(1.0) as u64 }
    }

    fn perform(self) {
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..self.steps {
            word ^= word << 13;
            word ^= word >> 7;
            word = black_box(word ^ word << 17);
        }
    }
}

/// The trial as its reader sees it.
pub(super) struct Trial {
    pub tag: u64,
    pub work: Work,
    pub stop: AtomicBool,
    /// Frames of this trial that the reader's program got.
    pub delivered: AtomicU64,
}

impl Trial {
    fn take(&self, tag: Option<&[u8]>, count: &mut u64) {
        if tag == Some(&self.tag.to_ne_bytes()) {
            *count += 1;
            self.work.perform();
            self.delivered.store(*count, Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// An open receiver.
pub(super) enum Reader {
    Udp(UdpSocket),
    Xsk { socket: Socket, sleeps: bool },
}

impl Reader {
    /// Opens it in the namespace of the calling thread.
    pub fn open(receiver: Receiver, pair: &Pair) -> Result<Reader> {
        if receiver.is_xsk() {
            let socket = Socket::bind(pair.far_index)?;
            pair.give_to(socket.number())?;
            return Ok(Reader::Xsk { socket, sleeps: receiver != Receiver::XskPolling });
        }
        let socket = UdpSocket::bind((pair.address, PORT)).during(|| "cannot open the UDP socket".into())?;
        socket.set_read_timeout(Some(LOOK)).during(|| "cannot set the socket's timeout".into())?;
        if receiver == Receiver::UdpBusyPoll {
            set_busy_poll(&socket).during(|| "cannot set SO_BUSY_POLL".into())?;
        }
        Ok(Reader::Udp(socket))
    }

    /// Reads until the trial is over.
    pub fn read(self, trial: &Trial) -> Result<()> {
        let mut count = 0;
        match self {
            Reader::Udp(socket) => {
                let mut frame = [0; 64];
                while !trial.is_over() {
                    match socket.recv(&mut frame) {
                        Ok(bytes) => trial.take(frame[..bytes].get(..8), &mut count),
                        Err(error)
                            if matches!(
                                error.kind(),
                                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                            ) => {}
                        Err(error) => return Err(error).during(|| "cannot read from the UDP socket".into()),
                    }
                }
            }
            Reader::Xsk { mut socket, sleeps } => {
                let most = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as _ };
                while !trial.is_over() {
                    let got =
                        socket.receive(BATCH, |frame| trial.take(frame.get(TAG_AT..TAG_AT + 8), &mut count));
                    if got == 0 && sleeps {
                        match poll(&mut [PollFd::new(&socket.as_fd(), PollFlags::IN)], Some(&most)) {
                            Ok(_) | Err(rustix::io::Errno::INTR) => {}
                            Err(errno) => return Err(errno).during(|| "cannot poll".into()),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn set_busy_poll(socket: &UdpSocket) -> io::Result<()> {
    let microseconds = BUSY_POLL_US;
    // SAFETY: the value is of the size that is said, and lives through the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const microseconds).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
