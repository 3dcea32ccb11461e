//! Captures: frames that the XDP program copies into a ring as they come in and as they leave.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libbpf_rs::{MapHandle, MapType, RingBufferBuilder, libbpf_sys};
use trieline_bpf::Mapping;

use crate::xdp::counters::Verdict;
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_capture, tl_capture_record, tl_limits};
use crate::xdp::pins;
use crate::xdp::sys;

const SLOTS: usize = tl_limits::TL_CAPTURES.0 as usize;
const WORDS: usize = size_of::<tl_capture>() / 8;
/// The program ends a capture that its reader has not asked to go on for so long.
const ALIVE: Duration = Duration::from_secs(3);

/// The slot for packets of all kinds.
pub const CAPTURE_ALL: u32 = tl_limits::TL_CAPTURE_ALL.0;
/// Most bytes of a frame that a capture keeps.
pub const SNAP_MAX: u32 = tl_limits::TL_SNAP_MAX.0;

/// The packets of a capture, and how much of each is kept.
#[derive(Clone, Copy, Debug)]
pub struct CaptureOptions {
    /// Only those that come in by this device.
    pub ifindex: Option<u32>,
    /// Only those whose outer destination this is.
    pub sid: Option<Ipv6Addr>,
    /// Bytes of a frame that are kept, at most [`SNAP_MAX`].
    pub snap: u32,
    /// Most packets a second.
    pub rate: Option<u32>,
    /// Memory of the ring, a power of two and whole pages.
    pub ring_bytes: u32,
}

/// A packet as it came in, or as it left, with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// The packet's number in this capture: the same coming in and leaving.
    pub number: u64,
    /// Its verdict; `None`: this is the packet as it came in.
    pub verdict: Option<Verdict>,
    /// If the verdict is the drop of a tenant's packet: the verdict by which the kernel would have got it.
    pub first: Option<Verdict>,
    /// The counter ([`crate::Filter::counter`]) of the filter that dropped or passed it.
    pub filter: Option<u8>,
    /// The device it came in or leaves by; 0 where it does not leave.
    pub ifindex: u32,
    /// Bytes of the frame.
    pub bytes: u32,
    /// The first of them; none of a packet that is not sent.
    pub frame: Vec<u8>,
}

/// Packets a capture has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Packets taken.
    pub taken: u64,
    /// Packets left out for the rate.
    pub limited: u64,
    /// Records that the ring had no room for.
    pub lost: u64,
}

/// A running capture. Ends when dropped; when its process is killed, three seconds later.
pub struct Capture {
    slot: u32,
    settings: Mapping,
    rings: OwnedFd,
    ring: libbpf_rs::RingBuffer<'static>,
    queue: Rc<RefCell<VecDeque<Captured>>>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Capture {
    /// Begins to capture in a slot of the instance pinned at `pins`. The caller sees to it that a slot has one reader.
    pub fn start(pins: &Path, slot: u32, options: &CaptureOptions) -> Result<Self> {
        if slot as usize >= SLOTS || !(1..=SNAP_MAX).contains(&options.snap) || options.rate == Some(0) {
            return Err(Error::argument(format!(
                "capture: slot {slot}, {} bytes, rate {:?}",
                options.snap, options.rate
            )));
        }
        let settings = pins::need(pins, pins::CAPTURES)?;
        Self::over(&settings, pins::need(pins, pins::CAPTURE_RINGS)?, slot, options)
    }

    /// The same over these two maps.
    pub(crate) fn over(
        settings: &OwnedFd,
        rings: OwnedFd,
        slot: u32,
        options: &CaptureOptions,
    ) -> Result<Self> {
        let fail = |e| Error::kernel("cannot set a capture up", e);
        let other = |e: libbpf_rs::Error| fail(std::io::Error::other(e));
        let bytes = (SLOTS * size_of::<tl_capture>()) as u64;
        let settings = Mapping::of_array(settings.as_fd(), bytes).map_err(fail)?;
        let plain = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let ring = MapHandle::create(MapType::RingBuf, Some("capture"), 0, 0, options.ring_bytes, &plain)
            .map_err(other)?;
        sys::map_update(rings.as_fd(), &slot.to_ne_bytes(), &ring.as_fd().as_raw_fd().to_ne_bytes())
            .map_err(fail)?;
        let queue = Rc::new(RefCell::new(VecDeque::new()));
        let mut builder = RingBufferBuilder::new();
        let filled = Rc::clone(&queue);
        builder
            .add(&ring, move |record| {
                filled.borrow_mut().extend(decode(record));
                0
            })
            .map_err(other)?;
        let ring = builder.build().map_err(other)?;
        let capture = Self { slot, settings, rings, ring, queue };
        let sid = options.sid.map_or([0; 16], |sid| sid.octets());
        let mut halves = [[0; 8]; 2];
        halves[0].copy_from_slice(&sid[..8]);
        halves[1].copy_from_slice(&sid[8..]);
        // The members of struct tl_capture after the first, which goes last.
        let words = [
            u64::from(options.snap) | u64::from(options.ifindex.unwrap_or(0)) << 32,
            u64::from_ne_bytes(halves[0]),
            u64::from_ne_bytes(halves[1]),
            options.rate.map_or(0, |rate| 1_000_000_000 / u64::from(rate)),
            0,
            0,
            0,
            0,
        ];
        for (to, word) in capture.words()[1..].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        capture.go_on();
        Ok(capture)
    }

    fn words(&self) -> &[AtomicU64] {
        let at = self.slot as usize * WORDS;
        &self.settings.words64(SLOTS * WORDS)[at..at + WORDS]
    }

    /// Lets the capture go on for some seconds.
    pub(crate) fn go_on(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        self.words()[0].store((now + ALIVE).as_nanos() as u64, Ordering::Release);
    }

    /// Waits for packets, at most `timeout` (less than two seconds), and returns them. To be called again and again.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<Captured>> {
        self.go_on();
        match self.ring.poll(timeout) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                return Err(Error::kernel("cannot read a capture", std::io::Error::other(error)));
            }
            _ => {}
        }
        Ok(self.queue.borrow_mut().drain(..).collect())
    }

    /// Takes no further packets; those in the ring can still be read.
    pub fn stop(&mut self) {
        self.words()[0].store(0, Ordering::Release);
    }

    /// The records in the ring, without waiting and without moving the deadline on.
    pub fn rest(&mut self) -> Result<Vec<Captured>> {
        self.ring.consume().map_err(|e| Error::kernel("cannot read a capture", std::io::Error::other(e)))?;
        Ok(self.queue.borrow_mut().drain(..).collect())
    }

    /// Counts of the capture so far.
    pub fn counts(&self) -> CaptureCounts {
        let word = |at: usize| self.words()[at].load(Ordering::Relaxed);
        CaptureCounts { taken: word(6), limited: word(7), lost: word(8) }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
        // Without a ring nothing can be written, which is all that a failure here would change.
        let _ = sys::map_delete(self.rings.as_fd(), &self.slot.to_ne_bytes());
    }
}

/// A record of the ring; `None` when it is too short, which none is.
fn decode(bytes: &[u8]) -> Option<Captured> {
    let (head, frame) = bytes.split_at_checked(size_of::<tl_capture_record>())?;
    let head: [u8; size_of::<tl_capture_record>()] = head.try_into().ok()?;
    // SAFETY: a struct of integers, all of whose bit patterns are valid, of just this size.
    let head: tl_capture_record = unsafe { std::mem::transmute(head) };
    let named = |number: u16| Verdict::of(number).copied().filter(|_| head.out != 0);
    Some(Captured {
        time: head.time,
        number: head.number,
        verdict: named(head.verdict),
        first: named(head.first.into()).filter(|_| head.verdict != u16::from(head.first)),
        filter: head.filter.checked_sub(1),
        ifindex: head.ifindex,
        bytes: head.bytes,
        frame: frame.get(..usize::from(head.kept))?.to_vec(),
    })
}
