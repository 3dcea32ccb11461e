//! One trial of `livelock`: a receiver opens, frames are offered at a rate, and what its program got is counted.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use super::{
    bed::{Bed, Pair},
    cpu::Times,
    offer,
    reader::{Reader, Trial, Work},
    receiver::Receiver,
};
use crate::{Error, Result, netns};

/// How long frames may still come once the last was sent.
const DRAIN: Duration = Duration::from_secs(1);
/// No further frame for so long: all that came has been read.
const QUIET: Duration = Duration::from_millis(50);

/// The conditions of all trials.
pub(super) struct Bench<'b> {
    pub bed: &'b Bed,
    pub length: Duration,
    pub work: Work,
    pub sender_cpu: usize,
    pub reader_cpu: usize,
}

/// The counts of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    pub offered: u64,
    pub delivered: u64,
    /// Of the sending.
    pub seconds: f64,
    /// Processor time a delivered frame.
    pub times: Times,
}

impl Bench<'_> {
    /// Makes one. An error says why the receiver has no figure; [`Error::Interrupted`] does not come from here.
    pub fn trial(&self, receiver: Receiver, pair: &Pair, tag: u64, rate: f64) -> Result<Got> {
        let trial =
            Trial { tag, work: self.work, stop: AtomicBool::new(false), delivered: AtomicU64::new(0) };
        let (ready, opened) = mpsc::channel();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let reader = self.open(receiver, pair);
                let (reader, answer) = match reader {
                    Ok(reader) => (Some(reader), Ok(rustix::thread::gettid().as_raw_nonzero().get())),
                    Err(error) => (None, Err(error)),
                };
                // The trial waits for it.
                let _ = ready.send(answer);
                reader.map_or(Ok(()), |reader| reader.read(&trial))
            });
            let sent = match opened.recv() {
                Ok(Ok(thread)) => self.send(pair, &trial, thread, rate),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(Error::Receiver("its thread ended before it was open".into())),
            };
            trial.stop.store(true, Ordering::Relaxed);
            let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (offered, before, after) = sent?;
            read?;
            let delivered = trial.delivered.load(Ordering::Relaxed);
            self.judge(offered, delivered, rate).map(|()| Got {
                offered: offered.frames,
                delivered,
                seconds: offered.seconds,
                times: after.since(before, delivered),
            })
        })
    }

    /// Opens the reader in its namespace; its thread stays on its CPU, as any program with the usual precedence.
    fn open(&self, receiver: Receiver, pair: &Pair) -> Result<Reader> {
        netns::pin_to(self.reader_cpu)?;
        netns::usual_here()?;
        let _inside = self.bed.receiver.enter_here()?;
        Reader::open(receiver, pair)
    }

    fn send(
        &self,
        pair: &Pair,
        trial: &Trial,
        thread: i32,
        rate: f64,
    ) -> Result<(offer::Offered, Times, Times)> {
        let times = || Times::now(thread, pair.napi_thread, self.reader_cpu, self.sender_cpu);
        let before = times()?;
        let sent = offer::send(pair.object(), &self.bed.sender, pair, trial.tag, rate, self.length)?;
        let after = times()?;
        let (until, mut last) = (Instant::now() + DRAIN, trial.delivered.load(Ordering::Relaxed));
        let mut since = Instant::now();
        while last < sent.frames && (last == 0 || since.elapsed() < QUIET) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            let now = trial.delivered.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok((sent, before, after))
    }

    /// Refuses what cannot be: a figure that was not measured.
    fn judge(&self, offered: offer::Offered, delivered: u64, rate: f64) -> Result<()> {
        let why = if offered.frames == 0 || offered.seconds < 0.9 * self.length.as_secs_f64() {
            format!("{} frames in {:.3} s were sent at {rate:.0} a second", offered.frames, offered.seconds)
        } else if delivered == 0 {
            format!("0 of {} frames were delivered", offered.frames)
        } else if delivered > offered.frames {
            format!("{delivered} frames were delivered, and only {} sent", offered.frames)
        } else {
            return Ok(());
        };
        Err(Error::Receiver(why))
    }
}
