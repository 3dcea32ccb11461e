//! The fates of packets that the XDP program forwarded: how many the drivers of the output devices took, and how many were lost.
//!
//! `drops.bpf.c` counts them at the kernel's tracepoints, in maps that are pinned beside the tables. Its programs are pinned, too, so that
//! counting goes on without a daemon. If the kernel refuses them, `driver.rs` reads the counters of drivers instead.

mod counts;
mod driver;
mod hooks;
mod maps;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::xdp::attachment::{self, Attachment};
use crate::xdp::error::{Error, Result};
use crate::xdp::{pins, sys};
use counts::NO_DEVICE;
pub use counts::{AfterRedirect, DropCount, EgressCount, Source};
use maps::{COUNTS, Maps, keys, per_cpu};

/// The owner's half: it attaches the programs and says whose packets count.
#[derive(Debug)]
pub struct Drops {
    maps: Option<Maps>,
    /// Why something is not counted.
    unknown: Option<String>,
    /// Devices whose packets count.
    sources: BTreeSet<u32>,
}

impl Drops {
    /// Attaches the programs, or leaves pinned ones that are the same. Counts that are pinned go on. It never fails: if the kernel refuses
    /// the programs, the counts say so.
    pub fn start(pins: &Path) -> Self {
        match hooks::start(pins) {
            Ok((maps, refused)) => {
                let sources = keys(&maps.sources).unwrap_or_default().into_iter().collect();
                Self { maps: Some(maps), unknown: refused, sources }
            }
            Err(error) => {
                tracing::debug!(%error, "the kernel refuses the programs that count drops");
                // The rest is the verifier's log.
                let unknown = error.to_string().lines().next().map(str::to_owned);
                Self { maps: None, unknown, sources: BTreeSet::new() }
            }
        }
    }

    /// Why something is not counted.
    pub fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// From now on, packets count that came in by these devices.
    pub fn follow(&mut self, sources: BTreeSet<u32>) -> Result<()> {
        let Some(maps) = self.maps.as_ref().filter(|_| sources != self.sources) else { return Ok(()) };
        let fail = |e| Error::kernel("cannot write the devices whose drops are counted", e);
        for gone in self.sources.difference(&sources) {
            sys::map_delete(maps.sources.as_fd(), &gone.to_ne_bytes()).map_err(fail)?;
        }
        for new in sources.difference(&self.sources) {
            sys::map_update(maps.sources.as_fd(), &new.to_ne_bytes(), &1u32.to_ne_bytes()).map_err(fail)?;
        }
        self.sources = sources;
        Ok(())
    }

    /// Counts what went to devices that no longer exist as that of former devices: their numbers may be given again.
    pub fn retire(&self, exists: impl Fn(u32) -> bool) -> Result<()> {
        let Some(maps) = &self.maps else { return Ok(()) };
        let fail = |e| Error::kernel("cannot move the counts of a device that is gone", e);
        for gone in keys(&maps.counts).map_err(fail)?.into_iter().filter(|key| *key != NO_DEVICE) {
            if exists(gone) {
                continue;
            }
            let left = per_cpu(&maps.counts, gone).map_err(fail)?;
            let mut former = per_cpu(&maps.counts, NO_DEVICE).map_err(fail)?;
            former.iter_mut().zip(left).for_each(|(all, counts)| *all += counts);
            let bytes: Vec<u8> = former.iter().flat_map(|count| count.to_ne_bytes()).collect();
            sys::map_update(maps.counts.as_fd(), &NO_DEVICE.to_ne_bytes(), &bytes).map_err(fail)?;
            sys::map_delete(maps.counts.as_fd(), &gone.to_ne_bytes()).map_err(fail)?;
        }
        Ok(())
    }

    /// The counts so far; devices have no names yet.
    pub fn read(&self) -> AfterRedirect {
        match &self.maps {
            Some(maps) => counted(&maps.counts, self.unknown.clone()),
            None => AfterRedirect { unknown: self.unknown.clone(), ..AfterRedirect::default() },
        }
    }
}

/// The counts so far, by the pins of an instance, with or without its owner; devices have no names yet.
pub fn read_pinned(pins: &Path) -> AfterRedirect {
    let unknown = |why: String| AfterRedirect { unknown: Some(why), ..AfterRedirect::default() };
    let is_generic = attachment::all(pins).is_ok_and(|all| all.iter().any(Attachment::is_generic));
    match (pins::open(pins, COUNTS), hooks::missing(pins)) {
        (Ok(Some(counts)), Ok(missing)) if is_generic => counted(&counts, missing).in_generic_mode(),
        (Ok(Some(counts)), Ok(missing)) => counted(&counts, missing),
        (Ok(None), _) => unknown("trielined attached no programs to the tracepoints".into()),
        (Err(error), _) | (_, Err(error)) => unknown(error.to_string()),
    }
}

fn counted(counts: &OwnedFd, unknown: Option<String>) -> AfterRedirect {
    match maps::read(counts) {
        Ok(devices) => AfterRedirect { source: Some(Source::Tracepoints), unknown, devices },
        Err(error) => AfterRedirect { unknown: Some(error.to_string()), ..AfterRedirect::default() },
    }
}
