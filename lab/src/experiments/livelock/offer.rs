//! Offers a load: frames at a given rate for a given time, into the peer of a device, by `BPF_PROG_TEST_RUN` with live frames.

use std::time::Duration;

use libbpf_rs::{Object, ProgramInput};
use trieline_testbed::namespace::Namespace;

use super::bed::{COMPILED, Pair};
use crate::{
    error::{During, Result},
    frames::Kind,
    object::{self, get, types},
};

const LIVE_FRAMES: u32 = 1 << 1; // BPF_F_TEST_XDP_LIVE_FRAMES
/// A call of the program waits no longer: a batch of 64 calls leaves within 32 microseconds.
const SLICE_NS: u64 = 500;
/// Where the run's tag lies in a frame: behind the UDP header.
pub(super) const TAG_AT: usize = 42;

/// The counts of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    /// Frames that were sent.
    pub frames: u64,
    /// From the first frame to the end of the run.
    pub seconds: f64,
}

/// Sends along a pair: `rate` frames a second for `length`, each with the tag. The CPU is that of the calling thread.
pub(super) fn send(
    object: &Object,
    from: &Namespace,
    pair: &Pair,
    tag: u64,
    rate: f64,
    length: Duration,
) -> Result<Offered> {
    let frame = Kind::Ipv4.frame(pair.near_mac, pair.far_mac);
    let mut bytes = frame.towards4(pair.address);
    bytes[TAG_AT..TAG_AT + 8].copy_from_slice(&tag.to_ne_bytes());
    let section = COMPILED().map(object, ".bss.offer")?;
    object::write(&section, &run_bytes(&bytes, rate, length))?;
    let program = COMPILED().program_mut(object, "offer")?;
    // So many calls are enough, whether they wait or send; those that are left when the run is over return at once.
    let waits = length.as_nanos() as f64 / SLICE_NS as f64;
    let calls = (1.1 * (waits + rate * length.as_secs_f64()) + 1000.0).min(f64::from(u32::MAX)) as u32;
    let mut context: Vec<u8> = [0, bytes.len() as u32, 0, pair.near_index, 0, 0]
        .iter()
        .flat_map(|word: &u32| word.to_ne_bytes())
        .collect();
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(&bytes),
        flags: LIVE_FRAMES,
        repeat: calls,
        ..Default::default()
    };
    {
        let _inside = from.enter_here()?;
        program.test_run(input).during(|| format!("cannot send {rate:.0} frames a second"))?;
    }
    let run = object::read(&section)?;
    let (first, last) = (get!(run, lab_offer.first_ns), get!(run, lab_offer.last_ns));
    // A run that its calls did not end has no end: then its seconds are none, which the caller refuses.
    Ok(Offered { frames: get!(run, lab_offer.sent), seconds: last.saturating_sub(first) as f64 / 1e9 })
}

fn run_bytes(frame: &[u8], rate: f64, length: Duration) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<types::lab_offer>()];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(std::mem::offset_of!(types::lab_offer, head), &frame[..56]);
    put(std::mem::offset_of!(types::lab_offer, gap_ps), &((1e12 / rate) as u64).to_ne_bytes());
    put(std::mem::offset_of!(types::lab_offer, slice_ns), &SLICE_NS.to_ne_bytes());
    put(std::mem::offset_of!(types::lab_offer, length_ns), &(length.as_nanos() as u64).to_ne_bytes());
    bytes
}
