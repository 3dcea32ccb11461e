//! Sends a run of frames: `BPF_PROG_TEST_RUN` with live frames, which enter the peer of a device of ours as a driver's would.

use std::{collections::HashMap, net::Ipv4Addr, net::Ipv6Addr, time::Duration};

use libbpf_rs::{Object, ProgramMut};
use trieline_testbed::namespace::Namespace;

use crate::{
    error::{During, Result},
    frames::{Frame, Kind},
    live,
    measure::{Span, monotonic_ns},
    object::{self, Compiled, compiled, get, types},
};

/// How many destinations a run cycles through.
pub const ADDRESSES: usize = 1 << 20;

/// Destinations of a run; repeated up to [`ADDRESSES`].
#[derive(Clone, Debug)]
pub enum Destinations {
    /// For an IPv4 destination left open.
    V4(Vec<Ipv4Addr>),
    /// For an IPv6 one.
    V6(Vec<Ipv6Addr>),
}

impl Destinations {
    /// As the programs read them: network order, [`ADDRESSES`] of them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Destinations::V4(list) => list.iter().cycle().take(ADDRESSES).flat_map(|a| a.octets()).collect(),
            Destinations::V6(list) => list.iter().cycle().take(ADDRESSES).flat_map(|a| a.octets()).collect(),
        }
    }
}

/// The counts and times of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Frames that the program made.
    pub frames: u64,
    /// From the first to the last frame, by the monotonic clock read in the generator's program. The call's sleep
    /// before the first frame and after the last is not in it.
    pub elapsed: Duration,
}

impl Sent {
    /// Nanoseconds a frame.
    pub fn ns(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / (self.frames.max(2) - 1) as f64
    }
}

/// The loaded generator, one object for each set of destinations.
pub struct Generator {
    objects: HashMap<String, Object>,
}

const COMPILED: fn() -> Compiled = || compiled!("generator");

impl Generator {
    /// Nothing is loaded before [`Generator::destinations`].
    pub fn new() -> Generator {
        Generator { objects: HashMap::new() }
    }

    /// Loads a generator under a name, with its destinations.
    pub fn destinations(&mut self, name: &str, destinations: &Destinations) -> Result<()> {
        let compiled = COMPILED();
        let object = compiled.load(compiled.open()?)?;
        object::write(&compiled.map(&object, ".bss.addresses")?, &destinations.bytes())?;
        self.objects.insert(name.to_owned(), object);
        Ok(())
    }

    /// Sends `frames` frames out of the device with index `out` in namespace `from`; `drop` makes and drops them instead,
    /// which is the generator's own cost.
    pub fn run(
        &self,
        name: &str,
        from: &Namespace,
        out: u32,
        frame: &Frame,
        frames: u64,
        drop: bool,
    ) -> Result<Sent> {
        let compiled = COMPILED();
        let object = self.objects.get(name).ok_or_else(|| crate::Error::Object {
            object: compiled.name,
            part: format!("destinations {name}"),
        })?;
        let program = compiled.program_mut(object, &program_name(frame.kind, drop))?;
        let section = compiled.map(object, ".bss.run")?;
        object::write(&section, &run_bytes(frame, frames))?;
        let _inside = from.enter_here()?;
        let what = || format!("cannot send {frames} {:?} frames", frame.kind);
        let called = monotonic_ns();
        live::run(&program, out, &frame.bytes, frames as u32, live::BATCH).during(what)?;
        let returned = monotonic_ns();
        let run = object::read(&section)?;
        let readings = [called, get!(run, lab_run.first_ns), get!(run, lab_run.last_ns), returned];
        let elapsed = Span::new(readings, what)?.inside;
        Ok(Sent { frames: get!(run, lab_run.sent), elapsed })
    }
}

impl Default for Generator {
    fn default() -> Self {
        Generator::new()
    }
}

/// Calls a program once a frame; what it answers with `XDP_TX` leaves by the device with index `out` in namespace `from`.
pub(crate) fn send_live(
    program: &ProgramMut,
    from: &Namespace,
    out: u32,
    frame: &[u8],
    count: u64,
) -> Result<()> {
    let _inside = from.enter_here()?;
    let name = || format!("cannot send {count} frames by the program {}", program.name().to_string_lossy());
    live::run(program, out, frame, count as u32, live::BATCH).during(name)?;
    Ok(())
}

fn program_name(kind: Kind, drop: bool) -> String {
    let name = kind.program();
    if drop { format!("{name}_drop") } else { name.into() }
}

fn run_bytes(frame: &Frame, frames: u64) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<types::lab_run>()];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(std::mem::offset_of!(types::lab_run, limit), &frames.to_ne_bytes());
    let head = std::mem::offset_of!(types::lab_run, head);
    let room = std::mem::offset_of!(types::lab_run, sum) - head;
    put(head, &frame.bytes[..frame.bytes.len().min(room)]);
    put(std::mem::offset_of!(types::lab_run, sum), &frame.sum.to_ne_bytes());
    bytes
}
