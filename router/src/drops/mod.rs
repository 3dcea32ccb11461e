//! The fates of packets that the XDP program forwarded: how many the drivers of the output devices took, and how many were lost.
//!
//! `drops.bpf.c` counts them at the kernel's tracepoints, in maps that are pinned beside the tables. Its programs are pinned, too, so that
//! counting goes on without a daemon. If the kernel refuses them, `driver.rs` reads the counters of drivers instead.

mod counts;
mod driver;
mod hooks;
mod maps;
mod slots;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::xdp::attachment::{self, Attachment};
use crate::xdp::error::{Error, Result};
use crate::xdp::sys;
pub use counts::{AfterRedirect, DropCount, EgressCount, Source};
use maps::{Maps, keys};
use slots::Slots;
use trieline_bpf::ReaderGrace;

/// The owner's half: it attaches the programs, says whose packets count, and gives each output device its counters.
#[derive(Debug, Default)]
pub struct Drops {
    counting: Option<Counting>,
    /// Why some program does not count.
    missing: Option<String>,
    /// Why some device is not followed at present.
    failed: Option<String>,
}

/// The maps, and what the owner wrote there.
#[derive(Debug)]
struct Counting {
    maps: Maps,
    /// Devices whose packets count.
    sources: BTreeSet<u32>,
    slots: Slots,
}

impl Drops {
    /// Attaches the programs, or leaves pinned ones that are the same. Counts that are pinned go on. It never fails: if the kernel refuses
    /// the programs, the counts say so, and those that an earlier owner attached go on.
    pub fn start(pins: &Path, grace: ReaderGrace) -> Self {
        let (maps, missing) = match hooks::start(pins) {
            Ok((maps, missing)) => (Some(maps), missing),
            Err(error) => {
                tracing::debug!(%error, "the kernel refuses the programs that count drops");
                // The rest is the verifier's log.
                let missing = error.to_string().lines().next().map(str::to_owned);
                (hooks::keep(pins), missing)
            }
        };
        match maps.map(|maps| Counting::open(maps, grace)).transpose() {
            Ok(counting) => Self { counting, missing, failed: None },
            Err(error) => {
                let error = Error::kernel("cannot read the devices whose drops are counted", error);
                Self { counting: None, missing: Some(error.to_string()), failed: None }
            }
        }
    }

    /// Why something is not counted.
    pub fn unknown(&self) -> Option<String> {
        let why: Vec<_> = self.missing.iter().chain(&self.failed).map(String::as_str).collect();
        (!why.is_empty()).then(|| why.join("; "))
    }

    /// From now on, packets count that came in by the sources. Each output device gets counters of its own, which it keeps until
    /// [`Drops::retire`]. After an error, the same call does the rest; the counts say until then that they are not whole.
    pub fn follow(&mut self, sources: BTreeSet<u32>, outputs: &BTreeSet<u32>) -> Result<()> {
        let Some(counting) = &mut self.counting else { return Ok(()) };
        let followed = counting.follow(sources, outputs);
        let followed =
            followed.map_err(|e| Error::kernel("cannot write the devices whose drops are counted", e));
        self.failed = followed.as_ref().err().map(ToString::to_string);
        followed
    }

    /// Counts of devices that are gone become those of former devices, with the next [`Drops::follow`]. A device that has such a number by
    /// now gets other counters.
    pub fn retire(&mut self, is_gone: impl Fn(u32) -> bool) {
        if let Some(counting) = &mut self.counting {
            counting.slots.retire(is_gone);
        }
    }

    /// The counts so far; devices have no names yet.
    pub fn read(&self) -> AfterRedirect {
        match &self.counting {
            Some(counting) => counting.maps.counted(self.unknown()),
            None => AfterRedirect { unknown: self.unknown(), ..AfterRedirect::default() },
        }
    }
}

impl Counting {
    fn open(maps: Maps, grace: ReaderGrace) -> io::Result<Self> {
        let (sources, slots) = (keys(&maps.sources)?, Slots::open(&maps, grace)?);
        Ok(Self { maps, sources, slots })
    }

    /// Does as much as it can; the first error, if any.
    fn follow(&mut self, sources: BTreeSet<u32>, outputs: &BTreeSet<u32>) -> io::Result<()> {
        let mut done = self.slots.follow(&self.maps, outputs);
        let map = self.maps.sources.as_fd();
        for device in &self.sources ^ &sources {
            let key = device.to_ne_bytes();
            let written = if sources.contains(&device) {
                sys::map_update(map, &key, &1u32.to_ne_bytes())
            } else {
                sys::map_delete(map, &key).map(drop)
            };
            if written.is_ok() && !self.sources.remove(&device) {
                self.sources.insert(device);
            }
            done = done.and(written);
        }
        done
    }
}

/// The counts so far, by the pins of an instance, with or without its owner; devices have no names yet.
pub fn read_pinned(pins: &Path) -> AfterRedirect {
    let unknown = |why: String| AfterRedirect { unknown: Some(why), ..AfterRedirect::default() };
    let is_generic = attachment::all(pins).is_ok_and(|all| all.iter().any(Attachment::is_generic));
    let counted = Maps::open(pins).and_then(|maps| match maps {
        Some(maps) => hooks::missing(pins, &maps).map(|missing| maps.counted(missing)),
        None => Ok(unknown("trielined attached no programs to the tracepoints".into())),
    });
    match counted {
        Ok(counts) if is_generic => counts.in_generic_mode(),
        Ok(counts) => counts,
        Err(error) => unknown(error.to_string()),
    }
}
