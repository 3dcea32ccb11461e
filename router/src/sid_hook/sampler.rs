//! Writes the packets of one SID to a file, on a thread of its own, as long as its SID hook is there.

use super::error::Error;
use super::rule::Sample;
use crate::capture::pcapng::Writer;
use crate::capture::ring::{Capture, CaptureCounts, CaptureOptions};
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Memory of the ring.
const RING: u32 = 4 << 20;
/// How long a wait for packets is, at most: also how long an end takes.
const WAIT: Duration = Duration::from_millis(100);

/// Frames written, and what was left out.
type Counts = (u64, CaptureCounts);

/// A running sample. Its file is complete when it is dropped.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    counts: Arc<Mutex<Counts>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Begins a file.
    pub fn start(name: &str, pins: &Path, slot: u32, sample: &Sample) -> Result<Self, Error> {
        let fail = |source| Error::File { name: name.into(), path: sample.file.clone(), source };
        let mut old = sample.file.clone().into_os_string();
        old.push(".old");
        let is_there = sample.file.symlink_metadata().is_ok();
        if is_there {
            std::fs::rename(&sample.file, &old).map_err(fail)?;
        }
        // Customers' packets: for root alone, and never into a file or link that is already there.
        let file =
            File::options().write(true).create_new(true).mode(0o600).open(&sample.file).map_err(fail)?;
        let mut writer = Writer::new(BufWriter::new(file), sample.snap).map_err(fail)?;
        let options = CaptureOptions {
            ifindex: None,
            sid: None,
            snap: sample.snap,
            rate: sample.rate,
            ring_bytes: RING,
        };
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Counts::default())));
        let (stopped, reported) = (Arc::clone(&stop), Arc::clone(&counts));
        let (pins, path, sid_hook) = (pins.to_owned(), sample.file.clone(), name.to_owned());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("sample".into()).spawn(move || {
            let mut capture = match Capture::start(&pins, slot, &options) {
                Ok(capture) => capture,
                // The waiting thread gets the error.
                Err(error) => return drop(ready.send(Err(error))),
            };
            if ready.send(Ok(())).is_err() {
                return;
            }
            let done = write(&mut capture, &mut writer, &stopped, &reported);
            let counts = capture.counts();
            drop(capture);
            if let Err(error) = done.and_then(|()| writer.finish(counts, &mut device).map(drop)) {
                tracing::error!(%error, sid_hook, file = %path.display(), "a SID hook's sample has ended; packets pass it unsampled");
            }
        });
        let thread = Some(thread.map_err(fail)?);
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Self { stop, counts, thread }),
            Ok(Err(source)) => {
                // The sample of before keeps its name. The error that led here is the one to tell.
                let _ = std::fs::remove_file(&sample.file);
                if is_there {
                    let _ = std::fs::rename(&old, &sample.file);
                }
                Err(Error::Dataplane { name: name.into(), source })
            }
            Err(_) => Err(fail(io::Error::other("its thread ended"))),
        }
    }

    /// Frames written, and what was left out.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes until `stop` is set.
fn write(
    capture: &mut Capture,
    writer: &mut Writer<BufWriter<File>>,
    stop: &AtomicBool,
    counts: &Mutex<Counts>,
) -> io::Result<()> {
    loop {
        let is_over = stop.load(Ordering::Acquire);
        if is_over {
            capture.stop();
        }
        let records = if is_over { capture.rest() } else { capture.poll(WAIT) };
        for record in records.map_err(io::Error::other)? {
            writer.frame(&record, &mut device)?;
        }
        writer.flush()?;
        *counts.lock().unwrap_or_else(PoisonError::into_inner) = (writer.written(), capture.counts());
        if is_over {
            return Ok(());
        }
    }
}

/// A device's name, or its number when it has none.
fn device(ifindex: u32) -> String {
    use rustix::net::{AddressFamily, SocketType, netdevice::index_to_name_inlined, socket};
    let name = socket(AddressFamily::INET, SocketType::DGRAM, None)
        .and_then(|socket| index_to_name_inlined(socket, ifindex));
    name.map_or_else(|_| ifindex.to_string(), |name| name.as_str().to_owned())
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
