//! A trial: the program of an instance, loaded once more over its tables, run on packets that were never sent.
//!
//! It reads what the attached program reads: image, actions, ports, filters. Its counts and captures go into maps of its own.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use trieline_bpf::ImageMap;

use crate::capture::ring::{CAPTURE_ALL, Capture, CaptureOptions, SNAP_MAX};
use crate::xdp::counters::Verdict;
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::tl_instance;
use crate::xdp::load::{Loaded, load};
use crate::xdp::options::Options;
use crate::xdp::pins;
use crate::xdp::sys;

/// Memory of the ring that tells the verdict.
const RING: u32 = 64 << 10;

/// The verdict on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What, and why.
    pub verdict: Verdict,
    /// If the verdict is the drop of a tenant's packet: the verdict by which the kernel would have got it.
    pub first: Option<Verdict>,
    /// The counter ([`crate::Filter::counter`]) of the filter that dropped or passed it.
    pub filter: Option<u8>,
    /// The device it leaves by, when it is sent on.
    pub out: Option<u32>,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
}

/// The program of an instance, to be tried. Changes nothing there.
#[derive(Debug)]
pub struct TestRun {
    program: OwnedFd,
    /// Tells the verdict on each packet.
    capture: RefCell<Capture>,
}

impl TestRun {
    /// Loads this build's program over what is pinned. Takes about as long as a start of the daemon.
    pub(crate) fn load(pins: &Path, instance: &tl_instance, image: &ImageMap) -> Result<Self> {
        let count = |name| {
            let map = pins::need(pins, name)?;
            Ok::<_, Error>(
                sys::map_shape(map.as_fd())
                    .map_err(|e| Error::kernel("cannot read a pinned map", e))?
                    .entries,
            )
        };
        let options = Options {
            pins: pins.into(),
            map_type: Some(image.map_type()),
            image_bytes: instance.image_bytes,
            tables: instance.tables,
            actions: count(pins::ACTIONS)?,
            adjacencies: count(pins::ADJACENCIES)?,
            rules: count(pins::RULES)?,
            frags: instance.frags != 0,
        };
        let Loaded { mut maps, program, .. } = load(&options, image, instance.hash_key, Some(&OWN))?;
        let (captures, rings) = (maps.take(pins::CAPTURES)?, maps.take(pins::CAPTURE_RINGS)?);
        let all = CaptureOptions { ifindex: None, sid: None, snap: SNAP_MAX, rate: None, ring_bytes: RING };
        let capture = RefCell::new(Capture::over(&captures, rings, CAPTURE_ALL, &all)?);
        Ok(Self { program, capture })
    }

    /// Runs the program on a frame, as if it came in by device `ifindex` of this network namespace.
    pub fn run(&self, ifindex: u32, frame: &[u8]) -> Result<Outcome> {
        let mut capture = self.capture.borrow_mut();
        capture.go_on();
        let frame = sys::test_run(self.program.as_fd(), ifindex, frame).map_err(|e| {
            Error::kernel(format!("cannot run {} bytes as from device {ifindex}", frame.len()), e)
        })?;
        let records = capture.rest()?;
        let none =
            || Error::kernel("cannot run a trial", io::Error::other("the program returned no verdict"));
        let reported = records.into_iter().find_map(|record| Some((record.verdict?, record)));
        let (verdict, record) = reported.ok_or_else(none)?;
        let out = Some(record.ifindex).filter(|out| *out != 0);
        Ok(Outcome { verdict, first: record.first, filter: record.filter, out, frame })
    }
}

/// Maps that are the trial's own.
const OWN: [&str; 4] = [pins::COUNTERS, pins::FILTER_COUNTERS, pins::CAPTURES, pins::CAPTURE_RINGS];
