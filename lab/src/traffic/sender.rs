//! Sends marked frames at a given rate. The program itself waits for each frame's time, so one system call sends a whole run.

use std::{
    mem::offset_of,
    os::unix::thread::JoinHandleExt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use trieline_testbed::namespace::Namespace;

use super::{
    COMPILED,
    flows::{Flows, ORDER},
};
use crate::{
    Error,
    error::{During, Result},
    frames::Frame,
    live, netns,
    object::{self, get, types},
};

/// The kernel's `batch_size` of a paced run: each frame leaves at its time.
const PACED_BATCH: u32 = 1;
/// How long a call of the program waits for the next frame's time at most.
const SLICE_NS: u64 = 10_000;
/// So many frames may follow at once after the sender was held up; the rest of the time that it lost is left out.
const BURST: f64 = 32.0;
const INTERVAL_SHIFT: u32 = 16;

/// How much is sent how fast.
#[derive(Clone, Debug)]
pub struct Load {
    /// Frames a second; none: as fast as possible.
    pub rate: Option<f64>,
    /// How many frames, at most 2^31.
    pub frames: u64,
    /// Sends on this CPU, with precedence; none: wherever the scheduler puts the thread.
    pub cpu: Option<u32>,
    /// Which of the sender's frames is next, by its place; again and again. Empty: the first. At most 64 places count.
    pub pattern: Vec<u8>,
    /// How many frames leave at once, 256 at most. Those of a paced run wait for the last of them.
    pub batch: u32,
    /// Marks the frames of this run; the receiver counts others as foreign.
    pub tag: u32,
}

impl Load {
    /// So many frames at so many a second, with a tag of its own.
    pub fn paced(rate: f64, frames: u64) -> Load {
        Load { rate: Some(rate), batch: PACED_BATCH, ..Load::unpaced(frames) }
    }

    /// So many frames as fast as possible, with a tag of its own.
    pub fn unpaced(frames: u64) -> Load {
        static TAG: AtomicU32 = AtomicU32::new(0);
        let tag = (std::process::id() << 12) | (TAG.fetch_add(1, Ordering::Relaxed) + 1);
        Load { rate: None, frames, cpu: None, pattern: Vec::new(), batch: live::BATCH, tag }
    }

    /// The same on a CPU.
    #[must_use]
    pub fn on(self, cpu: u32) -> Load {
        Load { cpu: Some(cpu), ..self }
    }
}

/// The frames that a run sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Frames that the program made. Fewer than asked for if the run was stopped or a signal came.
    pub frames: u64,
    /// CLOCK_MONOTONIC at the first frame, in nanoseconds.
    pub first_ns: u64,
    /// And at the last.
    pub last_ns: u64,
    /// The sender was held up so often for longer than 32 frames take.
    pub stalls: u64,
    /// The time that it lost by that: no frames were sent for it later.
    pub stalled: Duration,
    /// Frames of each flow; the first flow has the number `first_flow`.
    pub flows: Vec<u32>,
    /// Number of the first flow.
    pub first_flow: u16,
    /// The run's tag.
    pub tag: u32,
}

impl Sent {
    /// From the first frame to the last, by the clock that the program read.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.last_ns.saturating_sub(self.first_ns))
    }

    /// Frames a second, from the first to the last; NaN for fewer than two.
    pub fn rate(&self) -> f64 {
        if self.frames < 2 { f64::NAN } else { (self.frames - 1) as f64 / self.elapsed().as_secs_f64() }
    }
}

/// A loaded sender: its frames and flows.
pub struct Sender {
    object: Object,
    frames: Vec<Frame>,
    flows: usize,
    first_flow: u16,
}

impl Sender {
    /// Loads it. The frames are of one kind and differ in length only, at most eight of them. An error if there are no flows, or a frame has
    /// no room for a mark ([`crate::frames::Kind::marked_bytes`]).
    pub fn new(frames: &[Frame], flows: &Flows) -> Result<Sender> {
        let wrong = |why: &str| Err(Error::Traffic(why.into()));
        let Some(kind) = frames.first().map(|frame| frame.kind) else { return wrong("no frames to send") };
        if frames.len() > 8 || frames.iter().any(|frame| frame.kind != kind) {
            return wrong("expected at most eight frames, all of one kind");
        }
        if frames.iter().any(|frame| frame.bytes.len() < kind.marked_bytes()) {
            return wrong("a frame is too short for a flow, a sequence number and a time");
        }
        if flows.order.is_empty() || flows.ends.iter().any(|(to, _)| to.is_ipv4() != kind.is_ipv4()) {
            return wrong("expected one flow or more, with destinations of the frames' family");
        }
        let compiled = COMPILED();
        let mut open = compiled.open()?;
        for mut map in open.maps_mut().filter(|map| map.name() == "arrivals") {
            map.set_max_entries(1).during(|| "cannot make the receiver's map small".into())?;
        }
        let object = compiled.load(open)?;
        let (mut ends, size) = (Vec::new(), size_of::<types::lab_flow>());
        for (i, (destination, port)) in flows.ends.iter().enumerate() {
            match destination {
                std::net::IpAddr::V4(address) => ends.extend(address.octets()),
                std::net::IpAddr::V6(address) => ends.extend(address.octets()),
            }
            ends.resize(i * size + offset_of!(types::lab_flow, source_port), 0);
            ends.extend(port.to_be_bytes());
            ends.resize((i + 1) * size, 0);
        }
        object::write(&compiled.map(&object, ".bss.flows")?, &ends)?;
        let order = flows.order.iter().cycle().take(ORDER).flat_map(|flow| flow.to_ne_bytes());
        object::write(&compiled.map(&object, ".bss.order")?, &order.collect::<Vec<u8>>())?;
        let (flows, first_flow) = (flows.ends.len(), flows.first);
        Ok(Sender { object, frames: frames.to_vec(), flows, first_flow })
    }

    /// Sends out of the device with index `out` in namespace `from`, in a thread of its own.
    pub fn start(self, from: &Namespace, out: u32, load: Load) -> Result<Running> {
        let _inside = from.enter_here()?;
        self.start_here(out, load)
    }

    /// Likewise in the calling thread's namespace.
    pub fn start_here(self, out: u32, load: Load) -> Result<Running> {
        let compiled = COMPILED();
        let handle = |name: &str| {
            MapHandle::try_from(&compiled.map(&self.object, name)?)
                .during(|| format!("cannot open the sender's section {name}"))
        };
        let (stop, pace) = (handle(".bss.stop")?, handle(".bss.pace")?);
        object::write(&stop, &[])?;
        object::write(&pace, &[])?;
        handle_signal()?;
        // It inherits this thread's namespace.
        let thread = std::thread::spawn(move || {
            let sent = load.cpu.map_or(Ok(()), |cpu| {
                netns::pin_to(cpu as usize)?;
                netns::insist_here()
            });
            let sent = sent.and_then(|()| self.run_here(out, &load));
            (self, sent)
        });
        Ok(Running { thread: Some(thread), stop, pace })
    }

    /// Sends on the calling thread.
    pub fn run(&mut self, from: &Namespace, out: u32, load: &Load) -> Result<Sent> {
        let _inside = from.enter_here()?;
        object::write(&COMPILED().map(&self.object, ".bss.stop")?, &[])?;
        self.run_here(out, load)
    }

    fn run_here(&self, out: u32, load: &Load) -> Result<Sent> {
        let compiled = COMPILED();
        let Some(longest) = self.frames.iter().max_by_key(|frame| frame.bytes.len()) else {
            return Err(Error::Traffic("no frames to send".into()));
        };
        let program = compiled.program(&self.object, longest.kind.program())?;
        let (pace, stop) =
            (compiled.map(&self.object, ".bss.pace")?, compiled.map(&self.object, ".bss.stop")?);
        let sequences = compiled.map(&self.object, ".bss.sequences")?;
        object::write(&sequences, &[])?;
        object::write(&pace, &self.pace_bytes(load)?)?;
        let what = || format!("cannot send {:?} frames", longest.kind);
        let mut before = None;
        loop {
            let state = object::read(&pace)?;
            let sent = get!(state, lab_pace.sent);
            let stopped = object::read(&stop)?.iter().any(|byte| *byte != 0);
            if sent >= load.frames || stopped || load.frames == 0 {
                break;
            }
            if before == Some(sent) {
                return Err(Error::Traffic(format!("{}: the program sends nothing", what())));
            }
            before = Some(sent);
            match live::run(&program, out, &longest.bytes, calls(load, load.frames - sent), load.batch) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => break,
                done => done.during(what)?,
            }
        }
        let (state, counts) = (object::read(&pace)?, object::read(&sequences)?);
        let counts = counts.chunks_exact(4).take(self.flows);
        Ok(Sent {
            frames: get!(state, lab_pace.sent),
            first_ns: get!(state, lab_pace.first_ns),
            last_ns: get!(state, lab_pace.last_ns),
            stalls: get!(state, lab_pace.stalls),
            stalled: Duration::from_nanos(get!(state, lab_pace.stalled_ns)),
            flows: counts.map(|count| u32::from_ne_bytes([count[0], count[1], count[2], count[3]])).collect(),
            first_flow: self.first_flow,
            tag: load.tag,
        })
    }

    fn pace_bytes(&self, load: &Load) -> Result<Vec<u8>> {
        let interval = match load.rate {
            None => 0.0,
            Some(rate) if rate.is_finite() && rate >= 1.0 => 1e9 / rate * f64::from(1u32 << INTERVAL_SHIFT),
            Some(rate) => return Err(Error::Traffic(format!("{rate} frames a second: expected 1 or more"))),
        };
        let mut bytes = vec![0; size_of::<types::lab_pace>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        for (i, frame) in self.frames.iter().enumerate() {
            let at = offset_of!(types::lab_pace, templates) + i * size_of::<types::lab_template>();
            let room = offset_of!(types::lab_template, sum) - offset_of!(types::lab_template, head);
            put(at + offset_of!(types::lab_template, head), &frame.bytes[..frame.bytes.len().min(room)]);
            put(at + offset_of!(types::lab_template, sum), &frame.sum.to_ne_bytes());
            put(at + offset_of!(types::lab_template, bytes), &(frame.bytes.len() as u32).to_ne_bytes());
        }
        let pattern: Vec<u8> =
            load.pattern.iter().copied().filter(|i| usize::from(*i) < self.frames.len()).take(64).collect();
        put(offset_of!(types::lab_pace, pattern), &pattern);
        put(offset_of!(types::lab_pace, patterns), &(pattern.len() as u32).to_ne_bytes());
        put(offset_of!(types::lab_pace, limit), &load.frames.to_ne_bytes());
        put(offset_of!(types::lab_pace, interval), &(interval as u64).to_ne_bytes());
        put(offset_of!(types::lab_pace, burst), &((interval * BURST) as u64).to_ne_bytes());
        put(offset_of!(types::lab_pace, slice_ns), &SLICE_NS.to_ne_bytes());
        put(offset_of!(types::lab_pace, tag), &load.tag.to_ne_bytes());
        put(offset_of!(types::lab_pace, first_flow), &u32::from(self.first_flow).to_ne_bytes());
        Ok(bytes)
    }
}

/// How often the program is called at most: a call either sends a frame or waits a slice of time.
fn calls(load: &Load, frames: u64) -> u32 {
    let waits = load.rate.map_or(0.0, |rate| frames as f64 / rate * 1e9 / SLICE_NS as f64);
    (frames as f64 + waits + 1.0).min(f64::from(i32::MAX)) as u32
}

/// Ends a sender's system call. The kernel uses it for sockets that do not exist here.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Lets [`SIGNAL`] interrupt a system call and do nothing else.
fn handle_signal() -> Result<()> {
    static ONCE: OnceLock<()> = OnceLock::new();
    if ONCE.get().is_none() {
        signal_hook::flag::register(SIGNAL, Arc::new(AtomicBool::new(false)))
            .during(|| "cannot handle the signal that stops a sender".into())?;
        let _ = ONCE.set(());
    }
    Ok(())
}

/// A sender at work in its thread. Dropping it ends the run.
pub struct Running {
    thread: Option<JoinHandle<(Sender, Result<Sent>)>>,
    stop: MapHandle,
    pace: MapHandle,
}

impl Running {
    /// Frames so far.
    pub fn sent(&self) -> Result<u64> {
        Ok(get!(object::read(&self.pace)?, lab_pace.sent))
    }

    /// Sends no more frames; [`Running::join`] returns soon.
    pub fn stop(&self) -> Result<()> {
        self.stop
            .update(&0u32.to_ne_bytes(), &1u64.to_ne_bytes(), MapFlags::ANY)
            .during(|| "cannot stop the sender".into())?;
        // The system call would go on with calls of the program, which send nothing now. A signal ends it.
        if let Some(thread) = self.thread.as_ref().filter(|thread| !thread.is_finished()) {
            // SAFETY: the thread was not joined: its handle is here. The signal has a handler since the run was started.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), SIGNAL) };
        }
        Ok(())
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the run.
    pub fn join(mut self) -> Result<(Sender, Sent)> {
        let Some(thread) = self.thread.take() else {
            return Err(Error::Traffic("the run was already joined".into()));
        };
        let (sender, sent) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((sender, sent?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            if let Err(error) = self.stop() {
                tracing::warn!(%error, "sender not stopped");
            }
            let _ = thread.join();
        }
    }
}
