//! Sends the frames of many flows in a given order, each with its flow's sequence number; several senders begin at one time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libbpf_rs::Object;
use trieline_testbed::namespace::Namespace;

use crate::{
    error::{Error, Result},
    frames::ETHERNET,
    generator::{Sent, send_live},
    measure::{Span, monotonic_ns},
    object::{self, Compiled, compiled, get, types},
};

/// Most flows.
pub const FLOWS_MAX: usize = 1 << 14;
/// Frames until the order of flows begins again.
pub const ORDER: usize = 1 << 16;
/// Bytes at the start of a frame that the sender writes.
const HEAD: usize = 56;
/// Where a flow's number is, and four bytes further its sequence number: behind Ethernet, IPv4 and UDP.
pub const FLOW_AT: usize = ETHERNET + 28;
/// Calls that a sender may spend waiting for its start, on top of its frames.
const WAITING: u64 = 1_000_000;
const COMPILED: fn() -> Compiled = || compiled!("flows");

/// A loaded sender with its flows.
pub struct FlowSender {
    object: Object,
    /// A whole frame: its length, and the bytes behind the head, are those of all.
    sample: Vec<u8>,
    sent: AtomicU64,
}

impl FlowSender {
    /// Loads a sender for these frames, one a flow, all of one length; `order` has the flow of each frame and is repeated.
    pub fn new(frames: &[Vec<u8>], order: &[u32]) -> Result<FlowSender> {
        let compiled = COMPILED();
        let object = compiled.load(compiled.open()?)?;
        let heads: Vec<u8> = frames.iter().flat_map(|frame| &frame[..HEAD]).copied().collect();
        let order: Vec<u8> = order.iter().cycle().take(ORDER).flat_map(|flow| flow.to_ne_bytes()).collect();
        object::write(&compiled.map(&object, ".bss.frames")?, &heads)?;
        object::write(&compiled.map(&object, ".bss.order")?, &order)?;
        Ok(FlowSender {
            object,
            sample: frames.first().cloned().unwrap_or_default(),
            sent: AtomicU64::new(0),
        })
    }

    /// Sends `count` frames out of the device with index `out` in namespace `from`, the first at `start_ns` of the monotonic
    /// clock or at once. The order and the sequence numbers go on from call to call.
    pub fn send(&self, from: &Namespace, out: u32, count: u64, start_ns: Option<u64>) -> Result<Sent> {
        let compiled = COMPILED();
        let section = compiled.map(&self.object, ".bss.run")?;
        let mut run = vec![0; size_of::<types::lab_flows_run>()];
        let mut put = |at: usize, value: u64| run[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        put(std::mem::offset_of!(types::lab_flows_run, limit), count);
        put(std::mem::offset_of!(types::lab_flows_run, begin), self.sent.fetch_add(count, Relaxed));
        put(std::mem::offset_of!(types::lab_flows_run, start_ns), start_ns.unwrap_or_default());
        object::write(&section, &run)?;
        let program = compiled.program_mut(&self.object, "send")?;
        let calls = count + start_ns.map_or(0, |_| WAITING);
        let called = monotonic_ns();
        let (run, returned) = loop {
            send_live(&program, from, out, &self.sample, calls)?;
            let returned = monotonic_ns();
            let run = object::read(&section)?;
            // All calls may be over before the start is.
            if get!(run, lab_flows_run.sent) > 0 {
                break (run, returned);
            }
        };
        let frames = get!(run, lab_flows_run.sent);
        if frames != count {
            let what = format!("sent in {calls} calls, the start included");
            return Err(Error::Packets { what, got: frames, expected: count });
        }
        let readings =
            [called, get!(run, lab_flows_run.first_ns), get!(run, lab_flows_run.last_ns), returned];
        let elapsed = Span::new(readings, || format!("{count} frames of flows"))?.inside;
        Ok(Sent { frames, elapsed })
    }
}

const _: () = assert!(HEAD >= FLOW_AT + 8);
