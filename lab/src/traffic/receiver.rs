//! Ends marked frames in an XDP program, and tells what became of each flow.

use std::{
    mem::offset_of,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use trieline_testbed::namespace::Namespace;

use super::{COMPILED, FLOWS_MAX, latency::Latency, sender::Sent};
use crate::{
    error::{During, Result},
    object::{self, get, types},
    sinks::Egress,
};

/// A flow as it arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowSeen {
    /// All frames.
    pub received: u64,
    /// Of them: those whose sequence number had come before.
    pub duplicated: u64,
    /// Of them: those whose sequence number is below one that had come before (RFC 4737), without duplicates.
    pub reordered: u64,
    /// Of `reordered`: so far below (960 numbers or more) that the program cannot distinguish a late frame from a duplicate.
    pub late: u64,
    /// Of them: those that came by another device than the expected one.
    pub strayed: u64,
    /// Index of the device that the last frame came by.
    pub device: u32,
    /// How often that changed.
    pub changes: u64,
    /// CLOCK_MONOTONIC in nanoseconds at the first frame after the last change; the flow's first frame without one.
    pub since_ns: u64,
    /// At the first frame; 0 without frames.
    pub first_ns: u64,
    /// At the last.
    pub last_ns: u64,
    /// The highest sequence number, plus one.
    pub next: u32,
}

impl FlowSeen {
    /// Frames that arrived, each counted once.
    pub fn distinct(&self) -> u64 {
        self.received - self.duplicated
    }

    fn of(bytes: &[u8], tag: u32) -> FlowSeen {
        let half = |at| object::word(bytes, at) as u32;
        if half(offset_of!(types::lab_arrival, tag)) != tag {
            return FlowSeen::default();
        }
        FlowSeen {
            received: get!(bytes, lab_arrival.received),
            duplicated: get!(bytes, lab_arrival.duplicated),
            reordered: get!(bytes, lab_arrival.reordered),
            late: get!(bytes, lab_arrival.late),
            strayed: get!(bytes, lab_arrival.strayed),
            device: half(offset_of!(types::lab_arrival, device)),
            changes: get!(bytes, lab_arrival.changes),
            since_ns: get!(bytes, lab_arrival.since_ns),
            first_ns: get!(bytes, lab_arrival.first_ns),
            last_ns: get!(bytes, lab_arrival.last_ns),
            next: half(offset_of!(types::lab_arrival, next)),
        }
    }
}

/// The frames of a run that arrived.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Each flow by its number.
    pub flows: Vec<FlowSeen>,
    /// Marked frames of this run.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Marked frames of another run, or of a flow that the receiver does not know.
    pub foreign: u64,
    /// Frames without a mark: they went on to the kernel.
    pub other: u64,
    /// Times from the sender's program to the receiver's.
    pub latency: Latency,
}

impl Received {
    /// Frames that arrived, each counted once.
    pub fn distinct(&self) -> u64 {
        self.flows.iter().map(FlowSeen::distinct).sum()
    }

    /// Frames that came again.
    pub fn duplicated(&self) -> u64 {
        self.flows.iter().map(|flow| flow.duplicated).sum()
    }

    /// Frames that came after a later one of their flow.
    pub fn reordered(&self) -> u64 {
        self.flows.iter().map(|flow| flow.reordered).sum()
    }

    /// Frames by another device than their flow's.
    pub fn strayed(&self) -> u64 {
        self.flows.iter().map(|flow| flow.strayed).sum()
    }

    /// Frames of a sender that did not arrive, over all its flows.
    pub fn lost(&self, sent: &Sent) -> u64 {
        self.lost_by_flow(sent).iter().sum()
    }

    /// The same for each flow of the sender.
    pub fn lost_by_flow(&self, sent: &Sent) -> Vec<u64> {
        let seen = self.flows.iter().skip(sent.first_flow.into()).map(FlowSeen::distinct);
        let seen = seen.chain(std::iter::repeat(0));
        sent.flows.iter().zip(seen).map(|(sent, seen)| u64::from(*sent).saturating_sub(seen)).collect()
    }

    /// CLOCK_MONOTONIC at the first frame of all, in nanoseconds; none without frames.
    pub fn first_ns(&self) -> Option<u64> {
        self.flows.iter().filter(|flow| flow.received > 0).map(|flow| flow.first_ns).min()
    }

    /// And at the last.
    pub fn last_ns(&self) -> Option<u64> {
        self.flows.iter().filter(|flow| flow.received > 0).map(|flow| flow.last_ns).max()
    }
}

/// A loaded receiver, attached to any number of devices. Dropping it detaches.
pub struct Receiver {
    pub(super) object: Object,
    links: Vec<Link>,
    flows: usize,
    tag: u32,
}

impl Receiver {
    /// Loads it for flows 0 to `flows` - 1, 65,536 at most.
    pub fn new(flows: usize) -> Result<Receiver> {
        let flows = flows.clamp(1, FLOWS_MAX);
        let compiled = COMPILED();
        let mut open = compiled.open()?;
        for mut map in open.maps_mut().filter(|map| map.name() == "arrivals") {
            map.set_max_entries(flows as u32).during(|| "cannot size the receiver's map".into())?;
        }
        Ok(Receiver { object: compiled.load(open)?, links: Vec::new(), flows, tag: 0 })
    }

    /// Attaches to the device with this index in a namespace. It ends marked frames there and leaves all others to the kernel.
    pub fn attach(&mut self, namespace: &Namespace, device: u32) -> Result<()> {
        let _inside = namespace.enter_here()?;
        self.attach_here(device)
    }

    /// Likewise in the calling thread's namespace.
    pub fn attach_here(&mut self, device: u32) -> Result<()> {
        let program = COMPILED().program_mut(&self.object, "receive")?;
        let link = program
            .attach_xdp(device as i32)
            .during(|| format!("cannot attach the receiver to device {device}"))?;
        self.links.push(link);
        Ok(())
    }

    /// Attaches to the egress of a device, in tc, until the answer is dropped: frames end there before they are sent. Frames that XDP redirects
    /// do not pass there.
    pub fn attach_egress<'t>(&self, namespace: &'t Namespace, device: u32) -> Result<Egress<'t>> {
        Egress::attach(namespace, device, COMPILED().program(&self.object, "receive_tc")?.as_fd())
    }

    /// The only right device of each flow by its number, 0 for any. Frames by another one count as strayed. It may change during a run.
    pub fn expect(&self, devices: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = devices.iter().take(FLOWS_MAX).flat_map(|device| device.to_ne_bytes()).collect();
        object::write(&COMPILED().map(&self.object, ".bss.devices")?, &bytes)
    }

    /// Forgets everything and counts a run's frames from now on.
    pub fn begin(&mut self, tag: u32) -> Result<()> {
        let tallies = COMPILED().map(&self.object, "tallies")?;
        let cpus = libbpf_rs::num_possible_cpus().during(|| "cannot count CPUs".into())?;
        let empty = vec![vec![0; tallies.value_size() as usize]; cpus];
        tallies
            .update_percpu(&0u32.to_ne_bytes(), &empty, MapFlags::ANY)
            .during(|| "cannot clear the receiver's counts".into())?;
        self.tag = tag;
        let expected =
            [tag, self.flows as u32].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        object::write(&COMPILED().map(&self.object, ".bss.expected")?, &expected)
    }

    /// How many marked frames of this run have arrived so far.
    pub fn frames(&self) -> Result<u64> {
        Ok(self.tallies()?.iter().map(|tally| get!(tally, lab_tally.frames)).sum())
    }

    /// The frames that have arrived so far.
    pub fn received(&self) -> Result<Received> {
        let mut received = Received::default();
        for tally in self.tallies()? {
            received.frames += get!(tally, lab_tally.frames);
            received.bytes += get!(tally, lab_tally.bytes);
            received.foreign += get!(tally, lab_tally.foreign);
            received.other += get!(tally, lab_tally.other);
            let buckets = tally[offset_of!(types::lab_tally, buckets)..].chunks_exact(8);
            let buckets = buckets.map(|bytes| object::word(bytes, 0));
            received.latency.add(buckets, get!(tally, lab_tally.max_ns));
        }
        received.flows = (0..self.flows).map(|flow| self.flow(flow)).collect::<Result<_>>()?;
        Ok(received)
    }

    /// The frames of one flow that have arrived so far.
    pub fn flow(&self, flow: usize) -> Result<FlowSeen> {
        let arrivals = COMPILED().map(&self.object, "arrivals")?;
        let bytes = arrivals
            .lookup(&(flow as u32).to_ne_bytes(), MapFlags::ANY)
            .during(|| format!("cannot read flow {flow}"))?;
        Ok(FlowSeen::of(&bytes.unwrap_or_default(), self.tag))
    }

    /// As [`Receiver::received`], once `frames` have arrived, or none has for 20 ms: the last ones may still be on their way.
    pub fn settled(&self, frames: u64) -> Result<Received> {
        const QUIET: Duration = Duration::from_millis(20);
        let (mut seen, mut since) = (self.frames()?, Instant::now());
        while seen < frames && since.elapsed() < QUIET {
            std::thread::sleep(Duration::from_millis(1));
            let now = self.frames()?;
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        self.received()
    }

    fn tallies(&self) -> Result<Vec<Vec<u8>>> {
        let tallies = COMPILED().map(&self.object, "tallies")?;
        let found = tallies
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .during(|| "cannot read the receiver's counts".into())?;
        Ok(found.unwrap_or_default())
    }
}
